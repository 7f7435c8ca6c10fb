"""Commands on the pages of the papers: their options are the papers' settings, as `dkl.paper_settings` has them."""

import re
import shlex
from importlib import resources

import click
import pytest

from dkl.cli.main import dkl
from dkl.estimators.paper_settings import paper_settings
from dkl.runs import registry

LEARNERS = {
    "pairwise": ("kl-admm", "PairwiseKernelLearner"),
    "regression": ("slkl", "LowRankKernelRegressor"),
    "svc": ("onk", "OptimalNeighborhoodSVC"),
    "logdet": ("trin", "LogDetKernelLearner"),
    "metric": ("trin", "LogDetMetricLearner"),
    "laplacian": ("sqlp", "LaplacianKernelLearner"),
    "mvu": ("sqlp", "MaximumVarianceUnfolding"),
}
OTHERS = {"pairwise": {"adapt_rho": True}, "regression": {"solver": "newton"}}
"""Values of the command where they are others than in Python, by task; the pages say why."""


@pytest.mark.parametrize("task", LEARNERS)
def test_options_shown_are_the_papers_settings(task):
    page, name = LEARNERS[task]
    text = (resources.files("dkl") / "guide" / f"{page}.md").read_text(encoding="utf-8").replace("\\\n", "")
    (line,) = re.findall(rf"^    (dkl fit {task} .*)$", text, flags=re.MULTILINE)
    fit = dkl.get_command(click.Context(dkl), "fit")
    command = fit.get_command(click.Context(fit), task)
    files = ["--data", "X.npz", "--out", "run.zarr"]
    if any(option.name == "pairs" and option.required for option in command.params):
        files += ["--pairs", "pairs.csv"]
    given = command.make_context(task, [*shlex.split(line)[3:], *files]).params
    kind = registry.declaration(task).settings
    names = set(kind.__dataclass_fields__)
    settings = kind(**{key: value for key, value in given.items() if key in names and value is not None})
    settings.checked()
    wanted = paper_settings(name)
    wanted |= wanted.pop("kernel_params", {})
    wanted |= OTHERS.get(task, {})
    none = {"target_gap": "none"} if wanted.get("target_gap", "") is None else {}
    assert {key: getattr(settings, key) for key in wanted} == wanted | none
