"""Where dense work is done: which worker, on how many BLAS threads, and what happens where that worker is lost."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from dkl.blocks.session import Session
from dkl.blocks.workers import waiting
from dkl.blocks.workers.dense_work import SHARED_ROWS, DensePlace, DenseWork, blas_threads, dense_place
from dkl.errors import StateLost, WorkersLostError


class Workers(Session):
    """A cluster as the scheduler tells of it."""

    def __init__(self, **members):
        super().__init__("not started", own=True, threads=3)
        self.known = members

    def members(self):
        return self.known


def worker(limit, threads=1, held=0):
    return {"name": "w", "nthreads": threads, "memory_limit": limit, "metrics": {"managed_bytes": held}}


def test_the_worker_with_the_most_free_memory_is_chosen():
    """Or this process, where none has room; none of them has more than the limit."""
    session = Workers(a=worker(1000, 2), b=worker(2000, 4), c=worker(2000, 8, held=600))
    assert dense_place(session, 900, None) == DensePlace("b", 4, 1500)
    assert dense_place(session, 600, 700) == DensePlace("a", 2, 700)  # all have as much: the first
    assert dense_place(session, 1600, None) == DensePlace(None, 3)
    assert dense_place(session, 800, 700) == DensePlace(None, 3)
    assert dense_place(Workers(a=worker(0), b=worker(9000)), 9000, None).worker == "a"  # it has no limit
    assert dense_place(Session(None, threads=3), 10**15, 1) == DensePlace(None, 3)


def test_a_worker_that_joins_meanwhile_is_passed_over():
    """The scheduler is asked twice; it need not answer alike."""

    class Growing(Workers):
        def members(self):
            before, self.known = self.known, {**self.known, "b": worker(2000)}
            return before

    assert dense_place(Growing(a=worker(1000, 2)), 100, None).worker == "a"


def blas():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_small_matrices_have_one_thread():
    place = DensePlace("a", 4, 700)
    assert place.for_rows(SHARED_ROWS - 1) == DensePlace("a", 1, 700) and place.for_rows(SHARED_ROWS) is place


def test_one_thread_may_be_asked_for_by_several_fits_at_a_time():
    """Whichever leaves first, the process has its threads back at the end."""
    before = blas()
    first, second = blas_threads(1), blas_threads(1)
    first.__enter__(), second.__enter__(), first.__exit__(None, None, None)
    assert blas() == {1}
    second.__exit__(None, None, None)
    assert blas() == before


def test_blas_has_no_more_threads_than_before_unless_the_worker_owns_them():
    with threadpool_limits(limits=2, user_api="blas"):
        with blas_threads(1):
            assert blas() == {1}
        with blas_threads(5):
            assert blas() == {2}
        with blas_threads(3, raising=True):
            assert max(blas()) == 3
        assert blas() == {2}


def test_work_that_is_lost_is_done_where_there_is_room_then(monkeypatch):
    """Each time it is asked where that is; in the end here, or it says that workers are lost."""
    monkeypatch.setattr(waiting, "RESEND_PAUSES", (0, 0))
    tried = []

    class Lost(DenseWork):
        def _on_worker(self, function, arguments, follower):
            tried.append(self.place.worker)
            raise StateLost("gone")

    places = iter([DensePlace("b", 1), DensePlace(None, 1)])
    work = Lost(Workers(), np.arange(3), DensePlace("a", 1), lambda: next(places))
    assert not work.is_here
    assert work.call(np.add, 1).tolist() == [1, 2, 3] and tried == ["a", "b"] and work.is_here
    with pytest.raises(WorkersLostError, match="workers were lost"):
        Lost(Workers(), 1, DensePlace("a", 1), lambda: DensePlace("a", 1)).call(np.add, 1)


def test_a_worker_is_sent_the_data_once(client):
    """And calls it with as many threads as it owns."""
    session = Session(client)
    place = dense_place(session, 1, None)
    assert place.worker in session.workers() and place.threads == 1
    work = DenseWork(session, np.arange(4.0), place, lambda: place)
    assert work.call(np.add, 1.0).tolist() == [1, 2, 3, 4]
    sent = work._sent
    assert work.call(np.sum) == 6.0 and work._sent is sent
    with pytest.raises(TypeError):
        work.call(np.add)
    other = DenseWork(session, 1, DensePlace("tcp://127.0.0.1:1", 1), lambda: DensePlace(None, 1))
    assert other.call(np.add, 1) == 2  # a worker that has gone
