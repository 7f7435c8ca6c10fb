"""What tests run on workers, which import it by this name: they know `tests/` from sys.path, but no test module."""

import os
import signal
import sys
import time

import numpy as np

from dkl.errors import InputError
from dkl.resources import DISK, spending


def set_environment(values):
    os.environ.update(values)


class Foreign:
    """Shape, dtype and slices of rows, and nothing else."""

    def __init__(self, X):
        self.shape, self.dtype, self._X = X.shape, X.dtype, X

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        return self._X[rows]


def labels_in_a_task(X, n_clusters, given):
    """Of a fit in a task, which finds its client by itself, or is given it."""
    from distributed import get_client

    from dkl import KernelKMeans

    return KernelKMeans(n_clusters, random_state=0, client=get_client() if given else None).fit(X).labels_


def owners_held():
    """How many owners of shared state the worker holds."""
    from dkl.blocks.slabs import slab_worker

    return len(slab_worker._owners)


def imported_from():
    """Folders of Dask's own that modules are imported from."""
    return [path for path in sys.path if "dask-scratch-space" in path]


def describe(block, factor=1.0):
    return block.index, block.start, block.stop, factor * block.rows.sum(), block.rows.flags.c_contiguous


def gram(block):
    return block.rows.T @ block.rows, np.array(block.rows.shape[0])


def describe_sparse(block):
    return type(block.rows).__name__, block.rows.sum()


def remember(block):
    seen = block.memo.get("seen", 0)
    block.memo["seen"] = seen + 1
    return seen


def plus(block, array):
    return float(array[block.index])


def sum_of(block, matrix):
    return float(matrix.sum())


def die_once(block, mark):
    """The block's sum; but the first to come to block 5 takes its worker down."""
    if block.index == 5 and not mark.exists():
        mark.touch()
        os._exit(1)
    return block.rows.sum()


def fail(block):
    raise InputError("bad rows", where=f"row {block.start}")


class Given:
    """A start from given factors."""

    def __init__(self, arrays, width):
        self.arrays, self.width = arrays, width

    def __call__(self, name, slab, columns, out):
        out[...] = 0
        out[:, : len(columns)] = self.arrays[name][:, columns.start : columns.stop]


def deadly(x, z, gamma, mark):
    """exp(-gamma |x - z|^2); but the first to come to a row that begins with 13 takes its worker down."""
    if x[0] == 13 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return np.exp(-gamma * ((x - z) ** 2).sum())


def deadly_to_matrices(X, Z, **parameters):
    """The same of all rows with all."""
    return np.array([[deadly(x, z, **parameters) for z in Z] for x in X])


def patience(seconds):
    """For what is late on a shared file system."""
    from dkl.blocks.workers import worker_checks

    worker_checks.LATE_SECONDS = seconds


def wait_for_the_disk(seconds: float) -> None:
    """As long as a slow one takes."""
    with spending(DISK):
        time.sleep(seconds)


def give_up_after(seconds):
    """Of each wait of the worker for another one."""
    from dkl.blocks.workers import waiting

    waiting.GIVE_UP_SECONDS = seconds


def counted(part, others, threads, tell):
    """Ten rows with the sum of all parts; (part, whether it was ended)."""
    for k in range(1, 11):
        if tell({"iteration": k, "sum": sum(others(k, part))}):
            return part, True
    return part, False


def fails(part, others, threads, tell):
    """An error of the second part, after a row; the first one waits for it."""
    tell({"iteration": 1})
    if part == 20:
        raise InputError("made up by 20")
    others(1, part)


def joint_threads():
    """How many threads of joint works the worker has."""
    import threading

    return sum("joint work" in thread.name for thread in threading.enumerate())
