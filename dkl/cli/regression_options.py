"""What may stand behind the commands of kernel regression. Nothing large is imported: a wrong option is told at once."""

from __future__ import annotations

import math
from typing import Any

import click

from dkl.cli.options import Count, Number, Size, together

KERNELS = (
    *("additive_chi2", "chi2", "cosine", "laplacian", "linear", "poly", "polynomial", "precomputed", "rbf"),
    "sigmoid",
)
"""The names of dkl.linalg.kernel_columns, which takes scikit-learn to import."""


class Real(click.ParamType):
    """Any finite number."""

    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


targets = click.option(
    "--targets", metavar="FILE", help="Targets, one a row or several: .csv, .npy, .npz [y beside the rows]."
)

inputs = together(
    click.option("--data", required=True, metavar="FILE", help="Rows: .npz (key X), .npy, .csv, svmlight, zarr."),
    targets,
    click.option("--out", required=True, metavar="RUN", help="Folder for the run; must not exist."),
)

# None stands for what RegressionSettings has as its default, so that defaults are written down once.
settings = together(
    click.option("--kernel", type=click.Choice(KERNELS), help="As scikit-learn calls it [rbf]."),
    click.option("--gamma", type=Number(), help="Of the kernel [1 / features]."),
    click.option("--degree", type=Number(zero=True), help="Of the polynomial kernel [3]."),
    click.option("--coef0", type=Real(), help="Of the polynomial and sigmoid kernels [1]."),
    click.option("--nu", type=Number("cv"), help="The larger, the fewer columns; cv: by cross-validation [cv]."),
    click.option("--lam", type=Number(), help="The paper's lambda; lam * nu alone matters [1]."),
    click.option("--n-columns", type=Count(), help="Candidate columns [1000]."),
    click.option("--columns", type=click.Choice(["uniform", "rpcholesky"]), help="How they are drawn [uniform]."),
    click.option("--solver", type=click.Choice(["active-set", "exact", "newton"]), help="[active-set]"),
    click.option("--sampling", type=click.Choice(["uniform", "greedy"]), help="Of coordinates [uniform]."),
    click.option("--stopping", type=click.Choice(["gap", "paper"]), help="Proven gap, or the paper's rule [gap]."),
    click.option("--no-intercept", is_flag=True, default=None, help="Fit no constant."),
    click.option("--tol", type=Number(zero=True), help="Relative gap to end at [1e-6]."),
    click.option("--max-iter", type=Count(), help="Most steps of the solver [10000]."),
    click.option("--cv", type=Count(least=2), help="Folds of cross-validation [5]."),
    click.option("--n-nus", type=Count(), help="Values of nu on its path [60]."),
    click.option("--dtype", type=click.Choice(["float64", "float32"]), help="Of the columns [float64]."),
    click.option("--seed", type=Count(least=0), help="Seed of columns, folds and coordinates [0]."),
    click.option("--store-columns", is_flag=True, default=None, help="Keep the columns in the run's folder."),
    click.option("--memory-limit", type=Size(), help='Bytes a process may use, as "4 GB".'),
    click.option("--checkpoint-every", type=Count("auto"), help="Waves of rows between commits, or auto: by time."),
)

picture = click.option("--picture/--no-picture", default=None, help="Draw report.png [if matplotlib is there].")
