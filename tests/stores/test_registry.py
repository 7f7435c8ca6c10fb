"""Arrays are made as they are declared, and refused by name where they are not; the page says what is declared."""

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec

from dkl import LowRankKernelRegressor, PairwiseKernelLearner
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import ConvergenceWarning, StoreError
from dkl.estimators.base.classes import describe_classes
from dkl.estimators.svm.decisions import Training, kernels_of
from dkl.estimators.svm.settings import SVCSettings
from dkl.estimators.svm.store import fit_in_run
from dkl.solvers.watch import Watch
from dkl.stores import page, registry
from dkl.stores.arrays import create_array, open_array, read_array, stored_arrays, write_array
from dkl.stores.registry import ONE_EACH, ROWS, WHOLE, ArrayLayout, Arrays, StoredArray
from dkl.stores.run import RunStore

TABLE = StoredArray("model/table", ("row", "column"), ("float64",), "A table.")
LIST = StoredArray("model/list", ("row",), ("int64",), "A list.", optional=True)
BLOCKS = StoredArray("blocks", ("row", "column"), ("float64", "float32"), "Rows.", chunks=ROWS)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of a learner of somebody else's."""
    module = ModuleType("somebodys_arrays")
    module.ARRAYS = Arrays(TABLE, LIST, BLOCKS)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry._CONTRIBUTED, "theirs", module.__name__)
    made = RunStore.create(tmp_path / "run.zarr", {"task": "theirs"})
    yield made
    made.close()


def make(path, **changes):
    """An array as TABLE is declared, but for the changes."""
    path.parent.mkdir(exist_ok=True)
    layout = {
        "shape": (4, 3),
        "chunks": (4, 3),
        "dtype": "f8",
        "compressors": [Crc32cCodec()],
        "filters": None,
        "dimension_names": ("row", "column"),
        "attributes": {"rows": 4, "crc32c": 0},
    }
    zarr.create_array(store=str(path), **layout | changes)


# -- opening ----------------------------------------------------------------------------------------------------------

WRONG = {
    "type": ({"dtype": "f4"}, "another type than declared; got float32; wanted float64"),
    "byte order": (
        {"serializer": BytesCodec(endian="big")},
        "other codecs than declared; got bytes in big-endian order, crc32c",
    ),
    "names": ({"dimension_names": ("column", "row")}, r"other dimensions than declared; got \('column', 'row'\)"),
    "no names": ({"dimension_names": None}, "other dimensions than declared"),
    "number of dimensions": (
        {"shape": (4,), "chunks": (4,), "dimension_names": ("row",)},
        r"other dimensions than declared; got shape \(4,\); wanted \(row, column\)",
    ),
    "chunks": ({"chunks": (2, 3)}, r"in other chunks than declared; got \(2, 3\) of \(4, 3\); wanted one chunk"),
    "codecs": ({"compressors": [ZstdCodec(), Crc32cCodec()]}, "other codecs than declared; got bytes, zstd, crc32c"),
    "no checksum": ({"compressors": None}, "other codecs than declared; got bytes; wanted bytes, crc32c"),
    "version": ({"attributes": {"version": 2}}, "another version than declared; got 2; wanted 1"),
    "no version": ({"attributes": {"version": "new"}}, "another version than declared; got new; wanted 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_array_that_is_not_as_declared_is_refused(case, run):
    changes, message = WRONG[case]
    make(run.path / "model" / "table", **changes)
    for read in (
        lambda: run.read_arrays("model"),
        lambda: open_array(run.path / "model" / "table", TABLE),
        lambda: list(stored_arrays(run.path, run.arrays)),
    ):
        with pytest.raises(StoreError, match=f"model/table: .*{message}"):
            read()


def test_dimensions_that_are_numbered_are_those_of_earlier_runs(run):
    for names in [("table_0", "table_1"), ("axis_0", "axis_1")]:
        make(run.path / "model" / names[0], dimension_names=names)
        open_array(run.path / "model" / names[0], TABLE)
    make(run.path / "model" / "other", dimension_names=("axis_1", "axis_0"))
    with pytest.raises(StoreError, match="other dimensions"):
        open_array(run.path / "model" / "other", TABLE)


def test_an_array_that_nobody_declared_is_refused(run):
    make(run.path / "model" / "else")
    for read in (lambda: run.read_arrays("model"), lambda: list(stored_arrays(run.path, run.arrays))):
        with pytest.raises(StoreError, match="model/else: an array that is not declared; wanted table, list"):
            read()


def test_an_array_that_is_missing_is_named(run):
    run.write_arrays("model", {"list": np.arange(3)})
    with pytest.raises(StoreError, match="model: no table in it; got list"):
        run.read_arrays("model")


def test_a_run_whose_arrays_nobody_declared_is_refused(tmp_path):
    made = RunStore.create(tmp_path / "run.zarr", {"task": "unheard of"})
    assert made.arrays is None
    with pytest.raises(StoreError, match="unknown run type: no arrays are declared for it"):
        made.write_arrays("model", {"table": np.ones((2, 2))})
    assert not (made.path / "model").exists() and not list(made.path.glob("tmp-*"))
    made.close()


# -- making -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"else": np.ones(2)}, "model/else: an array that is not declared"),
        ({"table": np.ones((2, 2), np.float32)}, "of another type than declared; got float32"),
        ({"table": np.ones(2)}, "of other dimensions than declared"),
        ({"list": np.ones((2, 2), np.int64)}, "of other dimensions than declared"),
    ],
)
def test_nothing_is_written_that_is_not_as_declared(arrays, message, run):
    run.write_arrays("model", {"table": np.zeros((2, 2))})
    with pytest.raises(StoreError, match=message):
        run.write_arrays("model", {"table": np.ones((2, 2))} | arrays)
    assert not run.read_arrays("model")["table"].any() and not list(run.path.glob("tmp-*"))


def test_an_array_says_what_was_declared(run):
    run.write_arrays("model", {"table": np.ones((2, 3)), "list": np.empty(0, np.int64)})
    table = zarr.open_array(str(run.path / "model" / "table"), mode="r")
    assert table.metadata.dimension_names == ("row", "column") and table.chunks == (2, 3)
    assert "version" not in table.attrs
    assert run.read_arrays("model")["list"].shape == (0,)
    assert [path for path, _ in stored_arrays(run.path, run.arrays)] == ["model/list", "model/table"]


def test_a_later_version_is_written_and_asked_for(tmp_path):
    second = StoredArray("a", ("row",), ("float64",), "Another meaning.", version=2)
    write_array(tmp_path / "a", np.ones(3), second)
    assert (read_array(tmp_path / "a", second) == 1).all()
    with pytest.raises(StoreError, match="another version than declared; got 2; wanted 1"):
        read_array(tmp_path / "a", StoredArray("a", ("row",), ("float64",), "A meaning."))


def test_the_last_dimension_may_be_missing_where_that_is_declared(tmp_path):
    points = StoredArray("points", ("point", "feature"), ("float64",), "Points.", may_lack_last=True)
    for name, values in (("a", np.ones((3, 2))), ("b", np.ones(3))):
        write_array(tmp_path / name, values, points)
        assert read_array(tmp_path / name, points).shape == values.shape
    with pytest.raises(StoreError, match="other dimensions"):
        write_array(tmp_path / "c", np.ones((1, 1, 1)), points)


def test_nothing_is_overwritten(tmp_path):
    create_array(tmp_path / "blocks", BLOCKS, (4, 2), "f4", rows=2)
    with pytest.raises(zarr.errors.ContainsArrayError):
        create_array(tmp_path / "blocks", BLOCKS, (4, 2), "f4", rows=2)


@pytest.mark.parametrize(
    ("rule", "shape", "allowed", "refused"),
    [
        (WHOLE, (4, 3), [(4, 3)], [(2, 3), (4, 1), (5, 3), (4,)]),
        (WHOLE, (0, 3), [(1, 3)], [(0, 3), (2, 3)]),
        (ROWS, (4, 3), [(1, 3), (3, 3), (4, 3)], [(5, 3), (4, 2), (0, 3), (4,)]),
        (ONE_EACH, (4, 3), [(1, 3)], [(2, 3), (1, 2)]),
    ],
)
def test_chunks(rule, shape, allowed, refused):
    declared = StoredArray("a", ("row", "column"), ("float64",), "", chunks=rule)
    for chunks in allowed + refused:
        found = ArrayLayout(shape, chunks, "float64", ("row", "column"), ("bytes", "crc32c"))
        assert (declared.fault(found) is None) == (chunks in allowed), chunks
    assert rule.of(shape) in allowed and rule.of(shape, rows=3) in allowed


# -- learners ---------------------------------------------------------------------------------------------------------


def test_a_path_finds_its_declaration():
    state = StoredArray("sums/sums-*/node-*-0", ("row",), ("float64",), "Sums.")
    arrays = Arrays(state, TABLE)
    assert arrays.find("sums/sums-000012/node-3-0") is state and arrays.find("model/table") is TABLE
    for path in ("sums/sums-000012/node-3-1", "sums/sums-000012/deep/node-3-0", "table", "model/Table", "model"):
        assert arrays.find(path) is None, path
    assert arrays.inside("model") == [TABLE] and arrays.inside("sums/sums-000012") == []


def test_runs_that_name_no_task_are_the_oldest(run):
    assert registry.arrays_of(None) is registry.arrays_of("pairwise")
    assert registry.arrays_of("theirs") is run.arrays
    for unknown in ("unheard of", "", 3, ["pairwise"]):
        assert registry.arrays_of(unknown) is None


def pairwise(folder, X, y):
    must, cannot = [[0, 3], [1, 4]], [[0, 1], [1, 2]]
    learner = PairwiseKernelLearner(
        rank=4, max_iter=20, tol=0, target_gap=None, n_neighbors=5, work_dir=folder, checkpoint_every=5
    )
    with pytest.warns(ConvergenceWarning):
        return learner.fit(X, must_link=must, cannot_link=cannot).run_path_


def regression(folder, X, y):
    model = LowRankKernelRegressor(n_columns=8, work_dir=folder, store_columns=True, checkpoint_every=1)
    return model.fit(X, y).run_path_


def svc(folder, X, y):
    settings = SVCSettings(C=1.0, checkpoint_every=1)
    config = {"task": "svc", "classes": describe_classes(np.arange(3)), "settings": settings.as_dict()}
    run = RunStore.create(folder / "svc.zarr", config)
    source = row_source(X)
    training = Training.of(source, np.arange(3), y, kernels_of(settings, source), settings.C)
    fit_in_run(run, training, settings, Session(None, threads=1), Watch())
    run.close()
    return run.path


@pytest.mark.parametrize(
    ("fit", "wanted"),
    [
        (pairwise, {"factor", "lift", "graph/block_00000/indptr", "pairs/must_link", "generations/gen-000020/Lambda"}),
        (regression, {"columns", "candidates/points", "model/weights", "model/cv_errors"}),
        (svc, {"model/coefficients", "model/points", "history/machine", "history/products"}),
    ],
)
def test_all_that_a_fit_leaves_is_declared(fit, wanted, tmp_path, rng):
    run = RunStore.open(fit(tmp_path, rng.standard_normal((60, 2)), np.arange(60) % 3))
    assert run.arrays is registry.arrays_of(fit.__name__)
    found = dict(stored_arrays(run.path, run.arrays))
    assert wanted <= found.keys()
    for path, declared in found.items():
        array = zarr.open_array(str(run.path / path), mode="r")
        assert array.metadata.dimension_names == (declared.dims if declared.named else None), path


@pytest.mark.parametrize("learner", registry.learners())
def test_a_declaration_says_what_it_declares(learner):
    arrays = registry.arrays_of(learner)
    paths = [one.path for one in arrays]
    assert len(set(paths)) == len(paths)
    for one in arrays:
        assert one.doc.endswith(".") and len(set(one.dims)) == len(one.dims) and one.dtypes, one.path
        assert all(np.dtype(name).name == name for name in one.dtypes), one.path


def test_the_page_is_what_the_registry_renders():
    text = (Path(__file__).parents[2] / "dkl" / "stores" / "README.md").read_text(encoding="utf-8")
    assert text == page.render(), "python -m dkl.stores.page > dkl/stores/README.md"


def test_the_page_names_every_array_of_this_package(run):
    text = page.render()
    for learner in registry.learners():
        for one in registry.arrays_of(learner):
            assert f"`{one.path}` | " in text or f"`{one.path}`* | " in text
    assert "theirs" not in text
    cells = next(line for line in text.splitlines() if "kernel_weights" in line and "mu" in line)
    assert r"\|w\|" in cells


def test_every_module_of_arrays_is_registered() -> None:
    root = Path(__file__).parents[2]
    modules = {
        ".".join(path.relative_to(root).with_suffix("").parts) + ("" if name == "ARRAYS" else f":{name}")
        for path in root.glob("dkl/estimators/**/*.py")
        for name in re.findall(
            r"^(ARRAYS|METRIC_ARRAYS|PROPAGATION|UNFOLDING) = Arrays\(", path.read_text("utf-8"), re.MULTILINE
        )
    }
    assert modules == set(registry._MODULES.values())
