"""The shape of the package, read from its source: who may import whom, what nobody may call, how long things may be."""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from source_imports import called, dotted, imports, imports_of, nodes_of

from dkl.runs.registry import TASKS

PACKAGE = Path(__file__).parents[1] / "dkl"
LAYERS = ["linalg", "stores", "blocks", "problems", "solvers", "estimators", "runs", "cli"]
# What a layer may import beside the root modules: itself and all to its left. Baselines stand beside the estimators.
ALLOWED = {layer: set(LAYERS[: k + 1]) for k, layer in enumerate(LAYERS)}
ALLOWED["cli"].add("baselines")
ALLOWED["baselines"] = ALLOWED["solvers"] | {"baselines", "estimators.base", "estimators.regression.columns"}
ALLOWED["reproduce"] = ALLOWED["cli"] - {"cli"} | {"reproduce", "plotting"}
ALLOWED["cli"] = ALLOWED["cli"] | {"reproduce"}
ALLOWED["plotting"] = {"plotting"}  # of plain arrays: the layers that draw import it
for _layer in ("estimators", "baselines", "runs", "cli"):
    ALLOWED[_layer].add("plotting")
ALLOWED["solvers"] = {"linalg", "solvers"}  # problems are met through Protocols that solvers declare
ALLOWED["(front)"] = {"estimators", "baselines", "runs"}  # dkl/__init__.py: the public names
ALLOWED["(root)"] = {"io", "side_information"}  # dkl/datasets.py, dkl/metrics.py; tests of cycles hold the order
for layer in ALLOWED:
    ALLOWED[layer] |= {"io", "side_information"}  # below all layers, next to the root modules
ALLOWED["io"], ALLOWED["side_information"] = {"io"}, {"io", "side_information"}
FAMILIES = {"pairwise", "regression", "svm", "logdet", "qsdp"}
DOORS = {
    "dask": {"blocks", "runs"},
    "distributed": {"blocks", "runs"},
    "matplotlib": {"plotting"},
    "zarr": {"stores"},
}
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
MAX_FILE_LINES, MAX_FUNCTION_LINES = 450, 80
FILES = sorted(PACKAGE.rglob("*.py"))


def layer_of(name: str) -> str:
    """Where a dotted name lives: "linalg" for dkl.linalg.psd, "(root)" for dkl.errors, else "(front)": dkl itself."""
    part = f"{name}.".split(".")[1]
    if part == "__main__":
        return "cli"
    if (PACKAGE / f"{part}.py").is_file() and part != "__init__":
        return "(root)"
    return part if part in ALLOWED else "(front)"


def import_faults(module: str, nodes: list[ast.AST], is_package: bool) -> Iterator[str]:
    layer = layer_of(module)
    allowed = [f"{place}." for place in ALLOWED[layer]]
    for line, name in imports(module, nodes, is_package):
        top, _, rest = name.partition(".")
        if top in UNSAFE_MODULES:
            yield f"{line}: imports {name}, which can run code hidden in data"
        if top in DOORS and layer not in DOORS[top]:
            yield f"{line}: imports {name}; {top} is for {' and '.join(sorted(DOORS[top]))} alone"
        if top == "dkl" and layer_of(name) != "(root)" and not any(f"{rest}.".startswith(ok) for ok in allowed):
            yield f"{line}: imports {name}, which does not stand to its left"


def call_faults(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", getattr(node, "name", None))
        if name in {"to_zarr", "from_zarr"}:
            yield f"{node.lineno}: {name} (stale tokens, torn chunks): read and write zarr inside tasks"
        if not isinstance(node, ast.Call):
            continue
        callee = dotted(node.func)
        options = {option.arg: getattr(option.value, "value", None) for option in node.keywords}
        if callee in {"eval", "exec", "os.system", "os.popen"} or (callee == "yaml.load"):
            yield f"{node.lineno}: {callee} runs what it is given"
        if options.get("shell") is True:
            yield f"{node.lineno}: shell=True runs what it is given"
        if options.get("allow_pickle") is True:
            yield f"{node.lineno}: allow_pickle=True can run code hidden in data"
        opens_store = callee.startswith("zarr.") or called(node) in {"open_group", "open_array"}
        if (opens_store and options.get("mode") == "w") or options.get("overwrite") is True:
            yield f"{node.lineno}: {callee} would erase what stands there; create anew or refuse"


def length_faults(source: str, nodes: list[ast.AST]) -> Iterator[str]:
    lines = source.count("\n")
    if lines > MAX_FILE_LINES:
        yield f"1: {lines} lines, at most {MAX_FILE_LINES}"
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                length -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION_LINES}"


def faults_of(module: str, source: str, nodes: list[ast.AST], is_package: bool = False) -> list[str]:
    return [*import_faults(module, nodes, is_package), *call_faults(nodes), *length_faults(source, nodes)]


def faults(module: str, source: str) -> list[str]:
    return faults_of(module, source, nodes_of(source))


@dataclass(frozen=True)
class Source:
    """A file of the package, parsed once for all rules: its module, its faults, and lists of (line, name of an import)."""

    path: Path
    module: str
    faults: list[str]
    imports: list[tuple[int, str]]
    at_run_time: list[tuple[int, str]]
    at_the_top: list[tuple[int, str]]

    @classmethod
    def of(cls, path: Path) -> "Source":
        text, is_package = path.read_text(encoding="utf-8"), path.name == "__init__.py"
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if is_package else parts)
        nodes = nodes_of(text)
        found = list(imports(module, nodes, is_package))
        typed = lines_for_types(nodes[0])
        return cls(
            path,
            module,
            faults_of(module, text, nodes, is_package),
            found,
            [(line, name) for line, name in found if line not in typed],
            list(imports(module, getattr(nodes[0], "body", []), is_package)),
        )


def lines_for_types(tree: ast.AST) -> set[int]:
    """Lines that stand at the top under `if TYPE_CHECKING`."""
    blocks = [
        node for node in getattr(tree, "body", []) if getattr(getattr(node, "test", None), "id", "") == "TYPE_CHECKING"
    ]
    return {line for block in blocks for line in range(block.lineno, (block.end_lineno or 0) + 1)}


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return [Source.of(path) for path in FILES]


def test_files_keep_the_rules(sources: list[Source]) -> None:
    found = [f"dkl/{source.path.relative_to(PACKAGE)}:{fault}" for source in sources for fault in source.faults]
    assert not found, "\n".join(found)


def test_plotting_needs_numpy_and_matplotlib_alone(sources: list[Source]) -> None:
    """matplotlib is imported inside functions, but for the module of the figure, which they import."""
    plotting = [source for source in sources if source.module.startswith("dkl.plotting")]
    tops = {name.partition(".")[0] for source in plotting for _, name in source.imports}
    assert tops - sys.stdlib_module_names == {"numpy", "matplotlib", "dkl"}
    for source in plotting:
        for node in nodes_of(source.path.read_text("utf-8"))[0].body:
            if isinstance(node, ast.ImportFrom) and source.path.name != "canvas.py":
                assert not (node.module or "").startswith(("matplotlib", "dkl.plotting.canvas")), source.module


def import_graph(sources: list[Source]) -> dict[str, set[str]]:
    """{module: modules of the package that it imports}, inside functions too; not what only a type checker reads."""
    names = {source.module for source in sources}
    graph: dict[str, set[str]] = {}
    for source in sources:
        # `from dkl.runs import driver` names a module, `from dkl.errors import InputError` what is in one.
        found = {name if name in names else name.rpartition(".")[0] for _, name in source.at_run_time}
        graph[source.module] = (found & names) - {source.module}
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, directly or by others; a path for each that is found."""
    found, done = [], set()

    def walk(name: str, path: list[str]) -> None:
        if name in path:
            found.append(path[path.index(name) :] + [name])
            return
        if name in done:
            return
        for target in sorted(graph.get(name, ())):
            walk(target, [*path, name])
        done.add(name)

    for name in sorted(graph):
        walk(name, [])
    return found


def test_no_module_imports_itself_by_others(sources: list[Source]) -> None:
    graph = import_graph(sources)
    assert sum(map(len, graph.values())) > 500  # it sees them
    # dkl/__init__.py names the public objects, which are imported when they are first used.
    assert not cycles({name: targets - {"dkl"} for name, targets in graph.items()})


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c", "a"]]
    assert not cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()})


IMPORT_NUMBA = {"dkl.linalg.slabs.simd_code"}
"""Modules that import the compiler as they are imported themselves, which is for functions to do."""


def test_no_module_begins_with_the_compiler(sources: list[Source]) -> None:
    """Numba takes longer to import than a model to read and a row to predict: `njit` of late_functions.py imports it."""
    assert any(name == "dkl.linalg.late_functions.njit" for source in sources for _, name in source.at_the_top)
    for source in sources:
        waits = any(name.startswith(("numba", "llvmlite", *IMPORT_NUMBA)) for _, name in source.at_the_top)
        assert waits == (source.module in IMPORT_NUMBA), source.module


@pytest.mark.parametrize(
    "path",
    [*sorted(PACKAGE.glob("runs/recomputed*.py")), *sorted(PACKAGE.glob("runs/**/verify.py"))],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_verify_shares_nothing_with_solvers_and_problems(path: Path) -> None:
    """Whoever recomputes the numbers must not share a mistake with whoever computed them."""
    found = {target for _, target in imports_of(path)}
    assert not [target for target in found if target.startswith(("dkl.solvers", "dkl.problems", "dkl.linalg"))]


@pytest.mark.parametrize("layer", ["cli", "runs"])
def test_no_verb_knows_a_learner(layer: str) -> None:
    """Outside of the learners' folders none is named but in the registry; the demo is of one."""
    assert all((PACKAGE.parent / module.replace(".", "/")).is_dir() for module in TASKS.values())
    for path in [file for folder in (".", "jobs", "sweep") for file in (PACKAGE / layer / folder).glob("*.py")]:
        if path.name not in ("registry.py", "demo.py"):
            found = {target for _, target in imports_of(path)}
            named = [one for one in TASKS.values() if any(f"{target}.".startswith(f"{one}.") for target in found)]
            assert not named, f"{path.name} imports {named}"
            words = {node.value for node in nodes_of(path.read_text("utf-8")) if isinstance(node, ast.Constant)}
            assert not words & TASKS.keys(), path.name


def family_of(module: str) -> str | None:
    """Return the family of a module in a folder of one: "svm" of dkl.solvers.svm.interior."""
    return next((part for part in module.split(".")[2:] if part in FAMILIES), None)


def test_no_family_imports_another_family_s_problem_or_solver(sources: list[Source]) -> None:
    """What two families share is in a layer's own files, such as `dkl/problems/pair_folds.py`."""
    assert {family_of(source.module) for source in sources} >= FAMILIES
    for source in [source for source in sources if family_of(source.module)]:
        for line, name in source.imports:
            other = family_of(f"{name}.") if name.startswith(("dkl.problems.", "dkl.solvers.")) else None
            assert other in (None, family_of(source.module)), f"{source.path}:{line} imports {name}"


def test_libraries_with_threads_are_looked_for_in_one_place(sources: list[Source]) -> None:
    """That takes as long as a small eigenvalue problem: whoever limits BLAS asks `one_blas_thread` for what it has found."""
    found = [one.path.stem for one in sources if any(name.startswith("threadpoolctl") for _, name in one.imports)]
    assert found == ["resources"]


def test_every_folder_has_its_place() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders == ALLOWED.keys() - {"(front)", "(root)"}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dkl.linalg.psd", "from dkl.stores import schema"),
        ("dkl.linalg.psd", "from dkl import stores"),
        ("dkl.linalg.psd", "from ..stores.schema import FACTOR"),
        ("dkl.linalg.psd", "def f():\n    import dask.array"),
        ("dkl.linalg.psd", "from dkl import PairwiseKernelLearner"),
        ("dkl.errors", "import dkl.linalg"),
        ("dkl.errors", "from . import linalg"),
        ("dkl.stores.schema", "from dkl.blocks.session import Session"),
        ("dkl.stores.schema", "from distributed import Client"),
        ("dkl.blocks.session", "import zarr"),
        ("dkl.plotting.panels", "from dkl.estimators.base.plot_rows import some_rows"),
        ("dkl.plotting.panels", "from dkl.linalg.eigen.principal_coordinates import Plane"),
        ("dkl.estimators.svm.learner", "from matplotlib.figure import Figure"),
        ("dkl.blocks.session", "__import__('zarr')"),
        ("dkl.solvers.pairwise.admm", "import importlib\nimportlib.import_module('dask')"),
        ("dkl.solvers.pairwise.admm", "from dkl.estimators import base"),
        ("dkl.solvers.regression.active_set", "from dkl.problems.regression.column_lasso import ColumnLasso"),
        (
            "dkl.solvers.regression.active_set",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import dkl.problems.kmeans",
        ),
        ("dkl.solvers.pairwise.admm", "from dkl.blocks.slabs.placement import Placement"),
        ("dkl.estimators.regression.columns.estimator", "from dkl.baselines import itml"),
        ("dkl.baselines.itml", "from dkl.estimators.pairwise.learner import PairwiseKernelLearner"),
        ("dkl", "from dkl.cli import main"),
        ("dkl.cli.main", "from distributed import LocalCluster"),
        ("dkl.estimators.svm.learner", "from dkl.runs import driver"),
        ("dkl.stores.schema", "import pickle"),
        ("dkl.stores.schema", "eval('1')"),
        ("dkl.stores.schema", "yaml.load(text)"),
        ("dkl.stores.schema", "subprocess.run(command, shell=True)"),
        ("dkl.stores.schema", "np.load(path, allow_pickle=True)"),
        ("dkl.stores.schema", "zarr.open_group(path, mode='w')"),
        ("dkl.stores.schema", "group.create_array('x', overwrite=True)"),
        ("dkl.blocks.session", "from dask.array import from_zarr"),
        ("dkl.blocks.session", "x.to_zarr(path)"),
        ("dkl.linalg.psd", "x = 1\n" * (MAX_FILE_LINES + 1)),
        ("dkl.linalg.psd", "def f():\n" + "    x = 1\n" * MAX_FUNCTION_LINES),
    ],
)
def test_rules_catch(module: str, source: str) -> None:
    assert faults(module, source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("dkl.linalg.psd", "import numpy\nfrom dkl.errors import InputError\nfrom dkl import resources"),
        ("dkl.blocks.session", "import dask\nfrom dkl.stores import schema\nfrom . import plan"),
        (
            "dkl.solvers.regression.active_set",
            "from dkl.linalg.lasso import Vector\nfrom dkl.solvers.watch import Watch",
        ),
        (
            "dkl.baselines.itml",
            "from dkl.estimators.regression.columns.estimator import Estimator\nfrom dkl.solvers import watch",
        ),
        ("dkl.runs.backends", "from distributed import LocalCluster"),
        ("dkl.stores.schema", "import zarr\nzarr.open_group(path, mode='w-')\nopen(path, mode='w')"),
        ("dkl.stores.schema", "ast.literal_eval('1')\nmodel.eval()"),
        ("dkl.linalg.psd", 'def f():\n    """' + "line\n" * MAX_FUNCTION_LINES + '"""\n    return 1'),
    ],
)
def test_rules_let_pass(module: str, source: str) -> None:
    assert not faults(module, source)


FRAGMENT = re.compile(r"^(\(|(As|That|What|Whether|Who|Whose|Where|How|Beyond|The same|Nothing|Next to|Those|These)\b)")
WORDS = re.compile(
    r"\b(told|begun|anew|goes on|gone on|whoever|nobody|so many|made again|has room|lets? go of)\b", re.I
)


def test_class_names_are_borne_once() -> None:
    names = [
        node.name for path in FILES for node in nodes_of(path.read_text("utf-8")) if isinstance(node, ast.ClassDef)
    ]
    assert len(names) > 500 and len(names) == len(set(names)), sorted({name for name in names if names.count(name) > 1})


def test_first_lines_of_docstrings_stand_alone() -> None:
    found, words = [], []
    for path in FILES:
        for node in nodes_of(path.read_text("utf-8")):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (text := ast.get_docstring(node)):
                found += [f"{path.name}: {text[:60]}"] if FRAGMENT.match(text) else []
                words += [f"{path.name}: {word[0]}" for word in WORDS.finditer(text)]
    assert not found, "\n".join(found)
    assert not words, "\n".join(words)
