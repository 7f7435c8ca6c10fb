"""Fits by the `dkl` command in one process, each with the bytes that it planned and those by which its memory rose.

Resident memory is the system's own figure, of which the peak can be set back; what all runs need is loaded by one that is not
measured.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import zarr
from scipy.linalg import blas

from dkl.resources import current_rss, peak_rss

FORMS = ("X.npy", "columns.npy", "X.npz", "packed.npz", "X.csv", "X.zarr")
STREAMED = ("X.npy", "columns.npy", "X.npz", "X.zarr")


def write_forms(folder: Path, n: int, d: int, forms: Sequence[str] = FORMS) -> None:
    """The same digits in these kinds of files; y, labels and pairs of their rows."""
    digits = np.random.default_rng(0).integers(10, size=(n, d), dtype=np.uint8)
    X = digits.astype(np.float64)
    write: dict[str, Callable[[Path], object]] = {
        "X.npy": lambda path: np.save(path, X),
        "columns.npy": lambda path: np.save(path, np.asfortranarray(X)),
        "X.npz": lambda path: np.savez(path, X=X),
        "packed.npz": lambda path: write_packed(path, X),
        "X.csv": lambda path: write_text(path, digits),
        "X.zarr": lambda path: zarr.create_array(str(path), data=X, chunks=(max(1, 1_000_000 // (8 * d)), d)),
    }
    for form in forms:
        write[form](folder / form)
    np.save(folder / "y.npy", X[:, :5].sum(axis=1))
    np.save(folder / "labels.npy", digits[:, 0] // 5)
    same = digits[::2, 0] // 5 == digits[1::2, 0] // 5
    lines = [f"{2 * k},{2 * k + 1},{'must' if is_same else 'cannot'}" for k, is_same in enumerate(same[:200])]
    (folder / "pairs.csv").write_text("\n".join(["i,j,label", *lines]) + "\n")


def write_packed(path: Path, X: np.ndarray) -> None:
    """As `np.savez_compressed`, at the level that takes the least time."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("X.npy", "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array(member, X)


def write_text(path: Path, digits: np.ndarray) -> None:
    """CSV without a header."""
    text = np.full((len(digits), 2 * digits.shape[1]), ord(","), np.uint8)
    text[:, ::2], text[:, -1] = digits + ord("0"), ord("\n")
    path.write_bytes(text.tobytes())


def use_blas() -> None:
    """BLAS keeps what its first large products pack their factors into, some 10 MB; it is in the plan's base, not a fit's."""
    for dtype in (np.float64, np.float32):
        X = np.ones((1500, 1500), dtype)
        np.matmul(X, X.T)
        blas.get_blas_funcs("gemm", (X,))(1.0, X, X)


def rise(command: list[str]) -> tuple[int, int]:
    """(exit code, bytes by which a command's peak lay above what the process held before)."""
    from dkl.cli.main import dkl

    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what runs before have freed
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = current_rss()
    try:
        dkl.main(command, prog_name="dkl")
    except SystemExit as ended:
        return int(str(ended.code)), peak_rss() - before
    raise AssertionError("the command did not exit")


def on_workers() -> None:
    """Arguments: commands as JSON, a file for the peaks of all processes: [code, planned, own, workers'] each.

    Resident memory of each process, whole, as the system counts it; of workers the largest that was seen while they lived.
    """
    from dkl.cli.main import dkl

    commands, target = json.loads(sys.argv[1]), Path(sys.argv[2])
    planned = note_plans(lambda made: made.process_bytes)
    figures = []
    for command in commands:
        planned.clear()
        with peaks_below() as high:
            try:
                dkl.main(command, prog_name="dkl")
            except SystemExit as ended:
                code = int(str(ended.code))
        figures.append([code, max(planned), peak_rss(), sorted(high.values())])
    target.write_text(json.dumps(figures))


@contextmanager
def peaks_below() -> Iterator[dict[int, int]]:
    """The largest resident memory of each process below this one, by id, looked at every 20 ms: the kernel keeps the peak."""
    high: dict[int, int] = {}
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.02):
            for child in psutil.Process().children(recursive=True):
                with suppress(OSError, IndexError, ValueError):  # it has ended
                    status = Path(f"/proc/{child.pid}/status").read_text()
                    high[child.pid] = 1024 * int(status.split("VmHWM:")[1].split()[0])

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield high
    finally:
        ended.set()
        watcher.join()


def note_plans(bytes_of: Callable[[Any], int]) -> list[int]:
    """A list that takes the bytes of each plan which this process makes from now on, of fits and of uses of runs."""
    from dkl.runs import driver, predictions

    planned: list[int] = []
    fits, applied = driver.check_fits, predictions.prediction_plan

    def noted(made: Any) -> Any:
        planned.append(bytes_of(made))
        return made

    driver.check_fits = lambda *given: (noted((found := fits(*given))[0]), found[1])
    predictions.prediction_plan = lambda *given: noted(applied(*given))
    return planned


def main() -> None:
    """Arguments: how many of the commands are not measured, the commands as JSON, a file for the others' figures."""
    first, commands, target = int(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
    planned = note_plans(lambda made: made.process_bytes - made.base)
    use_blas()
    figures = []
    for command in commands:
        planned.clear()
        code, risen = rise(command)
        figures.append({"code": code, "risen": risen, "planned": planned[0] if planned else None})
    target.write_text(json.dumps(figures[first:]))
