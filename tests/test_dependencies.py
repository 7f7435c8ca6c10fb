"""What the package stands on: it imports only what pyproject.toml declares, whose oldest versions tests/lowest.txt pins."""

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from source_imports import imports, imports_of, nodes_of

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
TOOLS = {"dev", "test"}  # extras for those who work on dkl; the others are for its users
# Not even in an extra: benchmarks/regression/slkl_peers.py and onk.py leave out what is not installed, metric-learn has an environment
# of its own, and benchmarks/system/answers.py names what it leaves out without rdata.
PEERS = {"celer", "metric-learn", "rdata", "scikit-learn-intelex", "sklearnex", "skglm"}
providers_of = functools.cache(packages_distributions)


def normal(name: str) -> str:
    """A distribution's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def bounds(requirements: list[str]) -> dict[str, str]:
    """{distribution: what follows its name, as in ">=1.2"}, without their extras, and without those of dkl that an extra takes in."""
    named = [re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?(.*)", requirement) for requirement in requirements]
    return {normal(found[1]): found[2] for found in named if found and not found[0].startswith("dkl[")}


def declared(*extras: str) -> dict[str, str]:
    return bounds([*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])])


# What each folder may import: the package works without the extras for tests, and asks nobody to install them.
MAY_IMPORT = {"dkl": set(declared(*EXTRAS.keys() - TOOLS)), "tests": set(declared(*EXTRAS.keys() - {"dev"}))}
MAY_IMPORT["benchmarks"] = MAY_IMPORT["tests"] | PEERS


def undeclared(imported: Iterable[tuple[int, str]], own: set[str], allowed: set[str]) -> list[str]:
    """Those of a file's imports that come neither with Python nor from `own` modules nor from `allowed` distributions."""
    found = []
    for line, name in imported:
        top = name.partition(".")[0]
        if not top.isidentifier() or top in own or top in sys.stdlib_module_names:
            continue
        providers = {normal(provider) for provider in providers_of().get(top, [top])}
        if not providers & allowed:
            found.append(f"{line}: imports {name} of {' or '.join(sorted(providers))}, which pyproject.toml lacks")
    return found


def own_modules(folder: str) -> set[str]:
    """What is imported without being installed: the package, the files of the same folder, and benchmarks by their tests."""
    own = {"dkl", folder}
    return own | {"benchmarks", *(path.stem for path in (ROOT / folder).rglob("*.py"))} if folder == "tests" else own


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_imports_are_declared(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    own = own_modules(folder)
    for path in files:
        found = undeclared(imports_of(path), own, MAY_IMPORT[folder])
        assert not found, "\n".join(f"{path.relative_to(ROOT)}:{fault}" for fault in found)


@pytest.mark.parametrize(
    "source",
    ["import pytest", "import packaging.version", "def f():\n    from joblib import Memory", "find_spec('pandas')"],
)
def test_what_is_not_declared_is_caught(source: str) -> None:
    assert undeclared(imports("dkl", nodes_of(source)), {"dkl"}, MAY_IMPORT["dkl"])


@pytest.mark.parametrize(
    "source", ["import faiss", "from sklearn.base import clone", "import os, dkl", "from . import x"]
)
def test_what_is_declared_passes(source: str) -> None:
    assert not undeclared(imports("dkl", nodes_of(source)), {"dkl"}, MAY_IMPORT["dkl"])


def test_lowest_versions_are_those_of_pyproject() -> None:
    lines = (ROOT / "tests" / "lowest.txt").read_text(encoding="utf-8").splitlines()
    pins = bounds([line for line in lines if line and not line.startswith("#")])
    lowest = {
        name: bound.partition(",")[0].replace(">=", "==", 1)
        for name, bound in declared(*EXTRAS.keys() - {"dev"}).items()
    }
    assert pins == lowest
    assert all(re.fullmatch(r"==[\d.]+", pin) for pin in pins.values())


def test_benchmarks_import_what_is_there() -> None:
    """Scripts under benchmarks/ take functions from each other; each is a file, and defines the names."""
    taken = 0
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("benchmarks."):
                place = ROOT.joinpath(*node.module.split("."))
                names = {file.stem for file in place.glob("*.py")}
                if not names:
                    source = ast.parse(place.with_suffix(".py").read_text(encoding="utf-8"))
                    names = set().union(*map(defined, source.body))
                assert {alias.name for alias in node.names} <= names, path
                taken += 1
    assert taken > 20


def defined(statement: ast.stmt) -> set[str]:
    """Names that a statement at the top of a file defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    return {
        node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    } | {
        alias.asname or alias.name
        for node in ast.walk(statement)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
