"""Every learner, asked for every form of rows, kernels, labels and weights: right, or refused in one line with the words of the page."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import door_cases as doors
import door_page
import numpy as np
import odd_addresses
import pandas as pd
import pytest
import scipy.sparse as sp
from dask.array.utils import assert_eq
from repeats import but_for

import dkl.baselines
from dkl.errors import InputError

EVERYONE = sorted(doors.LEARNERS)
LEARNERS_FIRST = but_for(dkl.baselines.__all__, EVERYONE)
"""Everyone; the baselines among them, which have the learners' checks, as exhaustive."""
pytestmark = pytest.mark.filterwarnings("ignore")  # what is asked is what comes of a form, not how good the fit is


@cache
def plain(name: str) -> tuple[Any, Any]:
    """A learner that has learned from the plain array, and its answer."""
    fitted = doors.LEARNERS[name].fit(doors.X)
    return fitted, doors.answer(fitted, doors.FRESH)


def taking(what: str) -> list[str]:
    return [name for name in EVERYONE if getattr(doors.LEARNERS[name], what)]


def outcome(call: Any, wanted: Any, words: str) -> str:
    """What is wrong with what comes of a call; "" where nothing is."""
    try:
        found = call()
    except InputError as error:
        import re

        if "\n" in str(error):
            return f"an error of several lines: {error}"
        return "" if words and re.search(words, str(error)) else f"refused by: {error}"
    except Exception as error:
        return f"{type(error).__name__} from inside: {error}"
    if words:
        return "not refused"
    close = found.shape == wanted.shape and np.allclose(found, wanted, rtol=1e-5, atol=1e-6)
    return "" if close else "another answer"


def faults(forms: dict[str, tuple[Any, str]], call: Any, wanted: Any = None) -> dict[str, str]:
    """What is wrong with each form; {} where nothing is."""
    found = {}
    for form, (given, words) in forms.items():
        if doors.HAS_FRAMES or "dask frame" not in form:
            found[form] = outcome(lambda given=given: call(given), wanted, words)
    return {form: fault for form, fault in found.items() if fault}


def test_no_learner_is_missing_and_the_page_is_true() -> None:
    assert doors.LEARNERS.keys() == doors.public_learners()
    assert (Path(__file__).parents[1] / "doors.md").read_text() == door_page.page(), (
        "python tests/door_page.py > tests/doors.md"
    )
    for _, _, test in (row for rows in door_page.ELSEWHERE.values() for row in rows):
        file, _, name = test.partition("::")
        assert f"def {name}(" in (Path(__file__).parents[1] / file).read_text(), test


def some_rows(name: str, every: bool) -> dict[str, tuple[Any, str]]:
    """Every form of rows that is refused, and of those that are right a third, which neighbors in the list have others of."""
    right = [form for form, (_, words) in doors.ROWS.items() if not words]
    left_out = {form for k, form in enumerate(right) if k % 3 != EVERYONE.index(name) % 3}
    return {form: case for form, case in doors.ROWS.items() if every or form not in left_out}


@pytest.mark.parametrize("every", but_for([True], [False, True]))
@pytest.mark.parametrize("name", LEARNERS_FIRST)
def test_rows_to_learn_from(name: str, every: bool) -> None:
    learner, (_, wanted) = doors.LEARNERS[name], plain(name)
    call = lambda make: doors.answer(learner.fit(make(doors.X)), doors.FRESH)  # noqa: E731
    assert not faults(some_rows(name, every), call, wanted)


@pytest.mark.parametrize("every", but_for([True], [False, True]))
@pytest.mark.parametrize("name", LEARNERS_FIRST)
def test_new_rows(name: str, every: bool) -> None:
    fitted, wanted = plain(name)
    assert not faults(some_rows(name, every), lambda make: doors.answer(fitted, make(doors.FRESH)), wanted)


@pytest.mark.parametrize("name", taking("kernel"))
def test_kernel_matrices(name: str) -> None:
    assert not faults(doors.KERNELS, lambda K: doors.LEARNERS[name].fit(K, kernel="precomputed"))


@pytest.mark.parametrize("name", taking("affinity"))
def test_affinities(name: str) -> None:
    assert not faults(doors.AFFINITIES, lambda A: doors.LEARNERS[name].fit(A, affinity="precomputed"))


@pytest.mark.parametrize("name", but_for(dkl.baselines.__all__, taking("takes")))
def test_labels_and_targets(name: str) -> None:
    call = lambda y: doors.answer(doors.LEARNERS[name].fit(doors.X, y), doors.FRESH)  # noqa: E731
    assert not faults(doors.LABELS, call, plain(name)[1])


@pytest.mark.parametrize("name", taking("weights"))
def test_weights(name: str) -> None:
    assert not faults(doors.SAMPLE_WEIGHTS, lambda w: doors.LEARNERS[name].fit(doors.X, sample_weight=w))


@pytest.mark.parametrize("baselines", but_for([True], [False, True]))
def test_arrays_at_odd_addresses(baselines: bool) -> None:
    """Under kernels of OpenBLAS that end the process where a number is at no multiple of its size."""
    names = [name for name in EVERYONE if (name in dkl.baselines.__all__) == baselines]
    paths = [path for path in sys.path if "support" in path]
    environment = os.environ | {
        "OPENBLAS_CORETYPE": "Prescott",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", odd_addresses.__file__, *names],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("name", EVERYONE)
def test_names_of_a_dask_frame(name: str) -> None:
    frames = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    fitted = doors.LEARNERS[name].fit(doors.ROWS["dask frame"][0](doors.X))
    assert fitted.feature_names_in_.tolist() == doors.NAMES
    assert isinstance(turned := doors.ROWS["dask frame"][0](doors.FRESH)[list("bacd")], frames.DataFrame)
    with pytest.raises(InputError, match="feature names should match"):
        doors.answer(fitted, turned)


def refused(*_: Any, **__: Any) -> None:
    raise AssertionError("computed before it was asked for")


def verbs(fitted: Any) -> list[str]:
    return [verb for verb in ("predict", "transform", "decision_function") if hasattr(fitted, verb)]


def lazy(fitted: Any, verb: str, rows: Any) -> Any:
    """Return a learner's answer for rows of Dask, where nothing may be computed."""
    with dask.config.set(scheduler=refused):
        return getattr(fitted, verb)(rows)


CUTS = {"chunks": ((3, 0, 4), (1, 3)), "unknown chunks": ((3, 0, 4), (1, 3)), "frame": ((4, 3), (4,))}


@pytest.mark.parametrize("form", CUTS)
@pytest.mark.parametrize("name", EVERYONE)
def test_what_is_asked_of_dask_is_answered_lazily_block_by_block(name: str, form: str) -> None:
    fitted, new, cut = plain(name)[0], doors.FRESH, CUTS[form]
    rows = da.from_array(new, chunks=cut)
    if form == "unknown chunks":
        rows = rows[da.from_array(np.ones(len(new), bool), chunks=cut[0])]
    elif form == "frame":
        frames = pytest.importorskip("dask.dataframe", exc_type=ImportError)
        rows = frames.from_pandas(pd.DataFrame(new), npartitions=2)
    starts = np.cumsum([0, *cut[0]])
    for verb in verbs(fitted):
        call, found = getattr(fitted, verb), lazy(fitted, verb, rows)
        blocks = [call(new[start:][:size]) for start, size in zip(starts, cut[0], strict=False) if size]
        wanted = np.concatenate(blocks)
        assert found.chunks[1:] == tuple((size,) for size in wanted.shape[1:])
        assert found.chunks[0] == cut[0] if form == "chunks" else np.isnan(found.chunks[0]).all()
        assert (found.dtype, type(found._meta)) == (wanted.dtype, np.ndarray)
        assert found.compute().tobytes() == wanted.tobytes()  # of equal shapes, equal bytes
        assert_eq(found, call(new), rtol=1e-10)
        assert all(str(key).startswith(("dkl-", "('dkl-")) for key in found.__dask_graph__() if name in str(key))


@pytest.mark.parametrize("name", ["PairwiseKernelLearner", "LowRankKernelRegressor"])
def test_blocks_are_computed_by_workers(client: Any, name: str) -> None:
    fitted = plain(name)[0]
    verb = verbs(fitted)[0]
    found = lazy(fitted, verb, da.from_array(doors.FRESH, chunks=(4, 2)))
    assert client.compute(found).result().tobytes() == found.compute(scheduler="synchronous").tobytes()


@pytest.mark.parametrize("name", EVERYONE)
def test_what_is_wrong_with_rows_of_dask(name: str) -> None:
    fitted, new = plain(name)[0], doors.changed(np.nan, doors.FRESH)
    for verb in verbs(fitted):
        for rows, place in (
            (da.from_array(new, chunks=(4, 2)), r"X\[5, 2\]"),
            (_uncounted(new), r"X\.blocks\[1, 0\]\[1, 2\]"),
        ):
            with pytest.raises(InputError, match=f"^{place}: .*NaN"):
                lazy(fitted, verb, rows).compute()
        wrong = {"expecting 4 features": new[:, :3], "no rows": new[:0], "1 dimension": new[:, 0]}
        for words, some in wrong.items():
            with pytest.raises(InputError, match=words):
                lazy(fitted, verb, da.from_array(some))
        with pytest.raises(InputError, match="does not know the number of columns"):
            lazy(fitted, verb, da.from_array(new)[:, da.from_array(np.ones(4, bool))])


def _uncounted(rows: Any) -> Any:
    return da.from_array(rows, chunks=(4, 2))[da.from_array(np.ones(len(rows), bool), chunks=4)]


def with_64_bit_indices(rows: Any) -> Any:
    found = sp.csr_array(np.abs(rows))
    found.indices, found.indptr = found.indices.astype(np.int64), found.indptr.astype(np.int64)
    return found


@pytest.mark.parametrize("name", but_for([name for name in EVERYONE if name != "OptimalNeighborhoodSVC"], EVERYONE))
def test_sparse_rows_with_64_bit_indices_are_those_with_32(name: str) -> None:
    learner = doors.LEARNERS[name]
    for more in ({"kernel": "laplacian"}, {"kernel": "rbf"}) if learner.kernel else ({},):
        short = learner.fit(sp.csr_array(np.abs(doors.X)), **more)
        long = learner.fit(with_64_bit_indices(doors.X), **more)
        wanted = doors.answer(short, sp.csr_array(np.abs(doors.FRESH)))
        np.testing.assert_allclose(doors.answer(long, with_64_bit_indices(doors.FRESH)), wanted, rtol=1e-7, atol=1e-9)
