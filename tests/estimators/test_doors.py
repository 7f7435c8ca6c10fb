"""Every learner, asked for every form of rows, kernels, labels and weights: right, or refused in one line with the words of the page."""

from functools import cache
from pathlib import Path
from typing import Any

import door_cases as doors
import door_page
import numpy as np
import pytest
import scipy.sparse as sp
from repeats import but_for

from dkl.errors import InputError

EVERYONE = sorted(doors.LEARNERS)
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
@pytest.mark.parametrize("name", EVERYONE)
def test_rows_to_learn_from(name: str, every: bool) -> None:
    learner, (_, wanted) = doors.LEARNERS[name], plain(name)
    call = lambda make: doors.answer(learner.fit(make(doors.X)), doors.FRESH)  # noqa: E731
    assert not faults(some_rows(name, every), call, wanted)


@pytest.mark.parametrize("every", but_for([True], [False, True]))
@pytest.mark.parametrize("name", EVERYONE)
def test_new_rows(name: str, every: bool) -> None:
    fitted, wanted = plain(name)
    assert not faults(some_rows(name, every), lambda make: doors.answer(fitted, make(doors.FRESH)), wanted)


@pytest.mark.parametrize("name", taking("kernel"))
def test_kernel_matrices(name: str) -> None:
    assert not faults(doors.KERNELS, lambda K: doors.LEARNERS[name].fit(K, kernel="precomputed"))


@pytest.mark.parametrize("name", taking("affinity"))
def test_affinities(name: str) -> None:
    assert not faults(doors.AFFINITIES, lambda A: doors.LEARNERS[name].fit(A, affinity="precomputed"))


@pytest.mark.parametrize("name", taking("takes"))
def test_labels_and_targets(name: str) -> None:
    call = lambda y: doors.answer(doors.LEARNERS[name].fit(doors.X, y), doors.FRESH)  # noqa: E731
    assert not faults(doors.LABELS, call, plain(name)[1])


@pytest.mark.parametrize("name", taking("weights"))
def test_weights(name: str) -> None:
    assert not faults(doors.SAMPLE_WEIGHTS, lambda w: doors.LEARNERS[name].fit(doors.X, sample_weight=w))


@pytest.mark.parametrize("name", EVERYONE)
def test_names_of_a_dask_frame(name: str) -> None:
    frames = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    fitted = doors.LEARNERS[name].fit(doors.ROWS["dask frame"][0](doors.X))
    assert fitted.feature_names_in_.tolist() == doors.NAMES
    assert isinstance(turned := doors.ROWS["dask frame"][0](doors.FRESH)[list("bacd")], frames.DataFrame)
    with pytest.raises(InputError, match="feature names should match"):
        doors.answer(fitted, turned)


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
