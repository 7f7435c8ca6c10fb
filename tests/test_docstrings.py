"""Examples in docstrings run and print what they say. That public definitions have docstrings at all is ruff's to hold."""

import doctest
import importlib
import inspect
import re
import warnings
from typing import Any

import numpy as np
import pytest

import dkl
import dkl.baselines
import dkl.errors

PUBLIC = {**dkl._PLACES, **dkl.baselines._MODULES}
"""The module of each public name."""
LEARNERS = {
    name: module
    for name, module in PUBLIC.items()
    if name[0].isupper() and name != "QuadraticSDP" and module.startswith(("dkl.estimators.", "dkl.baselines."))
}
OTHERS = ["dkl.errors", "dkl.linalg.svm_dual", "dkl.linalg.rows.tree_sum", "dkl.problems.qsdp.problem", "dkl.resources"]


@pytest.mark.parametrize("name", sorted({*PUBLIC.values(), *OTHERS}))
def test_examples_are_true(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted and not found.failed


def sections(thing: object) -> dict[str, str]:
    """Return {title: text} of a docstring's underlined sections."""
    parts = re.split(r"^(\w[\w ]*)\n-+$", inspect.getdoc(thing) or "", flags=re.MULTILINE)
    return dict(zip(parts[1::2], map(str.strip, parts[2::2]), strict=True))


def parameters(thing: object) -> list[str]:
    """Return the names that head the entries of the section of parameters."""
    heads = [line for line in sections(thing)["Parameters"].splitlines() if not line.startswith(" ")]
    return [part.strip(" *") for line in heads for part in line.partition(" : ")[0].split(",")]


def test_public_names_are_listed() -> None:
    assert {*PUBLIC, "baselines"} == {*dkl.__all__, *dkl.baselines.__all__}


@pytest.mark.parametrize("name", PUBLIC)
def test_what_users_import_has_every_section(name: str) -> None:
    public = getattr(importlib.import_module(PUBLIC[name]), name)
    texts = sections(public)
    assert all(texts.values())
    assert {"Parameters", "See Also", "Examples"} <= texts.keys() and ">>>" in texts["Examples"]
    assert ("Attributes" if inspect.isclass(public) else "Returns") in texts
    assert "Raises" in sections(public.fit if name in LEARNERS else public)
    assert name not in LEARNERS or re.search(r"\b(19|20)\d\d\b", texts["References"])


@pytest.mark.parametrize("name", LEARNERS)
def test_who_takes_a_client_takes_a_number_of_threads(name: str) -> None:
    taken = inspect.signature(getattr(importlib.import_module(LEARNERS[name]), name)).parameters
    assert ("client" in taken) == ("n_jobs" in taken)


def refusals(learner: Any, X: Any, **given: Any) -> str:
    with pytest.raises(dkl.errors.DklError) as found:
        learner.fit(X, **given)
    return type(found.value).__name__


@pytest.mark.parametrize("name", LEARNERS)
def test_what_a_fit_says_it_raises_it_raises(name: str, rng: np.random.Generator) -> None:
    kind = getattr(importlib.import_module(LEARNERS[name]), name)
    raised = sections(kind.fit)["Raises"]
    X, y = rng.normal(size=(60, 5)), np.arange(60) % 2
    wrong = np.where(np.arange(60)[:, None] == 3, np.nan, X)
    assert "InputError" in raised and refusals(kind(), wrong, y=y) == "InputError"
    # k-means of rows reads them where they are; with a kernel it needs the matrix.
    limited = kind(memory_limit=1, **{"kernel": "rbf"} if name == "KernelKMeans" else {})
    assert "MemoryBudgetError" in raised and refusals(limited, X, y=y) == "MemoryBudgetError"
    if "must_link" in inspect.signature(kind.fit).parameters:
        given = {"must_link": [[0, 2], [2, 4]], "cannot_link": [[0, 4], [1, 2]]}
        strict = kind(contradictions="raise")
        assert "InconsistentPairsError" in raised and refusals(strict, X, **given) == "InconsistentPairsError"


@pytest.mark.parametrize("name", PUBLIC)
def test_parameters_are_those_described(name: str) -> None:
    public = getattr(importlib.import_module(PUBLIC[name]), name)
    assert sorted(parameters(public)) == sorted(inspect.signature(public).parameters)


@pytest.mark.parametrize("name", LEARNERS)
def test_arguments_of_fits_and_paths_are_those_described(name: str) -> None:
    kind = getattr(importlib.import_module(LEARNERS[name]), name)
    for method in [kind.fit, kind.path] if hasattr(kind, "path") else [kind.fit]:
        assert sorted(["self", *parameters(method)]) == sorted(inspect.signature(method).parameters)
        assert "Returns" in sections(method)


@pytest.mark.parametrize("name", LEARNERS)
def test_fitted_attributes_are_described(name: str, rng: np.random.Generator) -> None:
    kind = getattr(importlib.import_module(LEARNERS[name]), name)
    model = kind(**{"tol": 1e-2} if "tol" in inspect.signature(kind).parameters else {})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dkl.errors.DataWarning)  # what is learned from noise may be worse than without
        model.fit(rng.normal(size=(30, 3)), np.arange(30) % 2)
    fitted = {word for word in {*vars(model), *dir(kind)} if word.endswith("_") and not word.startswith("_")}
    assert fitted <= set(re.findall(r"\w+", sections(kind)["Attributes"]))
