"""What may stand behind the commands of the classifier. Nothing large is imported: a wrong option is told at once."""

from __future__ import annotations

from typing import Any

import click

from dkl.cli.options import Count, Number, Size, together
from dkl.cli.regression_options import KERNELS, Real


def _kernels(context: Any, option: Any, given: tuple[str, ...]) -> str | list[str] | None:
    """None, the one that is named, or a list of several."""
    return None if not given else given[0] if len(given) == 1 else list(given)


inputs = together(
    click.option("--data", required=True, metavar="FILE", help="Rows: .npz (key X), .npy, .csv, svmlight, zarr."),
    click.option(
        "--targets", metavar="FILE", help="Class labels, numbers or text: .csv, .npy, .npz [y beside the rows]."
    ),
    click.option("--out", required=True, metavar="RUN", help="Folder for the run; must not exist."),
)

# None stands for what SVCRunSettings has as its default, so that defaults are written down once.
settings = together(
    click.option("--C", "C", type=Number(), help="Bound of the coefficients, as in SVC [1]."),
    click.option("--rho", type=Number(), help="The smaller, the further the kernel may be learned from the given [100]."),
    click.option(
        "--kernel", type=click.Choice(KERNELS), multiple=True, callback=_kernels,
        help="As scikit-learn calls it; several are combined [rbf].",
    ),
    click.option("--gamma", type=Number("scale", "auto"), help="Of the kernel [scale]."),
    click.option("--degree", type=Number(zero=True), help="Of the polynomial kernel [3]."),
    click.option("--coef0", type=Real(), help="Of the polynomial and sigmoid kernels [0]."),
    click.option("--solver", type=click.Choice(["accelerated", "gradient", "level"]), help="[accelerated]"),
    click.option("--multi-class", type=click.Choice(["ovo", "ovr"]), help="One against one, or the rest [ovo]."),
    click.option("--class-weight", type=click.Choice(["balanced"]), help="C by the classes' sizes [the same for all]."),
    click.option("--tol", type=Number(zero=True), help="Relative gap to end at [1e-6]."),
    click.option("--max-iter", type=Count(), help="Most gradient steps of a machine [10000]."),
    click.option("--dtype", type=click.Choice(["float64", "float32"]), help="Of the kernel matrix [float64]."),
    click.option("--memory-limit", type=Size(), help='Bytes a process may use, as "4 GB".'),
    click.option("--work-dir", metavar="FOLDER", help="Where a kernel matrix too large for memory may stand meanwhile."),
    click.option("--checkpoint-every", type=Count("auto"), help="Solver's rounds between commits, or auto: by time."),
)  # fmt: skip
