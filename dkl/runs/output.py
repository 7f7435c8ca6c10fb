"""`dkl transform`: rows of a run's factor into a file, which is there whole or not at all."""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import click
import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_sources import RowSource
from dkl.errors import DiskError, InputError, StoreError
from dkl.estimators.pairwise.extension import extend_factor
from dkl.runs.files import check_new, check_unchanged, check_values, fingerprint, load_rows
from dkl.runs.stored import factor_blocks, graph_notes, open_factor, open_run
from dkl.stores.run import RunStore

SUFFIXES = (".npz", ".npy")


def transform_run(path: str, data: str, out: str) -> None:
    run = open_run(path)
    target = check_new(out)
    if target.suffix not in SUFFIXES:
        raise InputError("not a kind of file to write", where="--out", got=repr(target.suffix), wanted=".npz or .npy")
    stored = open_factor(run)
    n, rank = stored.shape
    known, file = _training_data(run), Path(data).absolute()
    if known is not None and _is_same(file, known):
        write_rows(target, (n, rank), (rows for _, rows in factor_blocks(run)), stored.dtype)
        click.echo(f"{target}: the {n:,} rows of the factor, rank {rank}")
        return
    rows = load_rows(file)
    check_values(rows)
    if known is None:
        raise StoreError(
            "the run does not say what it was learned from", where=str(run.path), mend="use the learner's transform"
        )
    features = int(known["shape"][1])
    if rows.n_features != features:
        raise InputError("another number of features", where=str(file), got=rows.n_features, wanted=features)
    learned = load_rows(check_unchanged(known, "patterns"))
    factor = np.concatenate([part for _, part in factor_blocks(run)])
    notes = graph_notes(run)
    graph = SimpleNamespace(sigma=float(notes["sigma"]), n_neighbors=int(notes["n_neighbors"]))
    result = np.asarray(extend_factor(_matrix(rows), _matrix(learned), factor, graph))
    write_rows(target, result.shape, iter([result]), result.dtype)
    click.echo(f"{target}: {rows.n:,} rows from those of their neighbours, rank {rank}")


def _training_data(run: RunStore) -> dict[str, Any] | None:
    inputs = run.config.get("inputs")
    return inputs.get("data") if isinstance(inputs, dict) else None


def _is_same(file: Path, known: dict[str, Any]) -> bool:
    """Whether it is the very data of the run, also under another name."""
    if not file.exists():
        raise InputError("no such file", where=str(file))
    if file.is_file() and file.stat().st_size != known["size"]:
        return False
    return bool(fingerprint(file)["crc32"] == known["crc32"])


def _matrix(rows: RowSource) -> Any:
    return rows.read(0, rows.n)


def write_rows(
    target: Path, shape: tuple[int, ...], blocks: Iterator[NDArray], dtype: Any, name: str = "factor"
) -> None:
    """An array from blocks of its rows into a new .npy file, as `name` into a new .npz archive, or as lines of .csv."""
    with _appearing(target) as file:
        if target.suffix == ".npy":
            _write_array(file, shape, blocks, dtype)
            return
        if target.suffix == ".csv":
            for block in blocks:
                _write_lines(file, block)
            return
        with (
            zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
            archive.open(f"{name}.npy", "w", force_zip64=True) as member,
        ):
            _write_array(member, shape, blocks, dtype)


def _write_array(file: IO[bytes], shape: tuple[int, ...], blocks: Iterator[NDArray], dtype: Any) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, header)
    for block in blocks:
        file.write(np.ascontiguousarray(block).data)


def _write_lines(file: IO[bytes], block: NDArray) -> None:
    if block.dtype.kind != "U":
        np.savetxt(file, block, delimiter=",", fmt="%.17g" if block.dtype.kind == "f" else "%d")
        return
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([cell] for cell in block.tolist())
    file.write(text.getvalue().encode())


@contextmanager
def _appearing(target: Path) -> Iterator[IO[bytes]]:
    """A file that stands at `target` once all is written, unless something has come there in the meantime."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with open(partial, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, target)  # unlike a rename this never replaces
    except FileExistsError as error:
        raise InputError("exists already and is never overwritten", where=str(target)) from error
    except OSError as error:
        raise DiskError(f"cannot be written ({error.strerror})", where=str(target), mend="free space") from error
    finally:
        partial.unlink(missing_ok=True)
