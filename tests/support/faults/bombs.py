"""Small files that claim, or unpack to, gigabytes; and the memory that `dkl` commands take to read them."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numcodecs
import numpy as np
import zarr
from patience import PATIENCE
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

LARGE = 1 << 30
"""Bytes that a bomb unpacks to."""
LIMIT = 430_000_000
"""Limit that commands get as --memory-limit; `info` has none."""
N = 200
FORMATS: dict[str, tuple[int, object]] = {
    "zstd": (3, ZstdCodec()),
    "blosc": (3, BloscCodec()),
    "gzip": (3, GzipCodec()),
    "zstd2": (2, numcodecs.Zstd()),
    "zlib2": (2, numcodecs.Zlib()),
    "bz2": (2, numcodecs.BZ2()),
    "lzma": (2, numcodecs.LZMA()),
    "lz4": (2, numcodecs.LZ4()),
}


@dataclass(frozen=True)
class Burst:
    """Result of a bomb: exit code, peak of resident memory in bytes, seconds of processor and in all, and the message."""

    name: str
    code: int
    peak: int
    cpu: float
    wall: float
    message: str


PROGRAM = """
import sys
from dkl.cli.main import main
from dkl.resources import peak_rss
try: main()
finally: print(f"\\n{peak_rss()}")
"""
"""The command, and its largest resident memory (VmHWM): ru_maxrss has that of the parent in it."""


def measured(command: list[str], folder: Path) -> Burst:
    """Run `dkl` with these arguments in a new process, and measure it by the system's counts."""
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        process = subprocess.Popen([sys.executable, "-c", PROGRAM, *command], cwd=folder, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = code = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - start
        said.seek(0)
        message, _, peak = said.read().decode(errors="replace").strip().rpartition("\n")
    assert peak.isdecimal(), (command, code, message, peak)
    return Burst(command[0], code, int(peak), used.ru_utime + used.ru_stime, wall, message.strip())


def zipped(path: Path, name: str, dtype: str = "<f8", columns: int = 8) -> None:
    """Write an archive with an array of zeros, LARGE bytes, packed to a thousandth."""
    shape = (
        (LARGE // (np.dtype(dtype).itemsize * columns), columns)
        if columns > 1
        else (LARGE // np.dtype(dtype).itemsize,)
    )
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(f"{name}.npy", "w") as member:
        member.write(header.getvalue())
        for _ in range(LARGE >> 24):
            member.write(bytes(1 << 24))


def packed_text(path: Path, line: bytes) -> None:
    """Write this line again and again, or as one where it has no end, packed by gzip: LARGE bytes."""
    piece = line * ((1 << 22) // len(line))
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(LARGE // len(piece)):
            file.write(piece)


def zarr_chunk(path: Path, codec: str) -> None:
    """Write an array (N, 8) whose one chunk unpacks to LARGE bytes, instead of some thousand."""
    version, compressor = FORMATS[codec]
    rows = np.random.default_rng(0).standard_normal((N, 8))
    zarr.create_array(str(path), data=rows, chunks=(N, 8), compressors=compressor, zarr_format=version)
    plain = {"zstd": numcodecs.Zstd, "blosc": numcodecs.Blosc, "gzip": numcodecs.GZip}.get(codec)
    encode = (plain() if plain else compressor).encode
    (chunk,) = (file for file in path.rglob("*") if file.is_file() and file.name.replace(".", "").isdigit())
    size = LARGE if codec not in ("bz2", "lzma") else LARGE // 8
    chunk.write_bytes(encode(np.zeros(size, np.uint8)))


def zarr_claim(path: Path, **changes: object) -> None:
    """Write an array (N, 8) whose metadata claims otherwise."""
    zarr.create_array(str(path), data=np.ones((N, 8)), chunks=(N, 8), config={"write_empty_chunks": True})
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["shape"] = changes.get("shape", metadata["shape"])
    metadata["chunk_grid"]["configuration"]["chunk_shape"] = changes.get("chunks", [N, 8])
    (path / "zarr.json").write_text(json.dumps(metadata))


def plain_inputs(folder: Path) -> None:
    """Write rows, labels, targets and pairs that are in order."""
    rng = np.random.default_rng(0)
    np.save(folder / "X.npy", rng.standard_normal((N, 8)))
    np.save(folder / "y.npy", rng.standard_normal(N))
    (folder / "labels.csv").write_text("\n".join("ab"[k % 2] for k in range(N)) + "\n")
    (folder / "pairs.csv").write_text("i,j,label\n0,1,cannot\n0,2,must\n3,4,cannot\n3,5,must\n")


def fitted(folder: Path) -> str:
    """Return the name of a run of the classifier, which is made once."""
    if not (folder / "run").exists():
        command = ["fit", "svc", "--data", "X.npy", "--targets", "labels.csv", "--out", "run"]
        found = measured(command, folder)
        assert found.code == 0, found.message
    return "run"


def broken_run(folder: Path, name: str, write: Callable[[Path], object]) -> str:
    """Return the name of a copy of the run, of which `write` has changed something."""
    shutil.copytree(folder / fitted(folder), folder / name)
    write(folder / name)
    return name


def _json(fill: str) -> Callable[[Path], object]:
    def write(run: Path) -> None:
        with open(run / "config.json", "w") as file:
            file.write('{"a": [')
            for _ in range(300):
                file.write((fill + ",") * (1_000_000 // (len(fill) + 1)))
            file.write(f"{fill}]}}")

    return write


def _array(run: Path) -> None:
    (chunk,) = (file for file in (run / "model" / "coefficients").rglob("*") if file.name == "0" and file.is_file())
    chunk.write_bytes(numcodecs.Zstd().encode(np.zeros(LARGE, np.uint8)) + bytes(4))


def _fit(task: str, out: str, **files: str) -> list[str]:
    given = {"svc": {"targets": "labels.csv"}, "regression": {"targets": "y.npy"}, "pairwise": {"pairs": "pairs.csv"}}
    names = {"data": "X.npy", **given.get(task, {}), **files}
    return ["fit", task, "--out", out, *(word for name, file in names.items() for word in (f"--{name}", file))]


def _of_archive(task: str, option: str, name: str, dtype: str = "<f8", columns: int = 8) -> Callable[[Path], list[str]]:
    def made(folder: Path) -> list[str]:
        zipped(folder / "bomb.npz", name, dtype, columns)
        return _fit(task, "out", **{option: "bomb.npz"})

    return made


def _of_text(task: str, option: str, suffix: str, line: bytes) -> Callable[[Path], list[str]]:
    def made(folder: Path) -> list[str]:
        packed_text(folder / f"bomb{suffix}", line)
        return _fit(task, "out", **{option: f"bomb{suffix}"})

    return made


def _of_zarr(codec: str) -> Callable[[Path], list[str]]:
    def made(folder: Path) -> list[str]:
        zarr_chunk(folder / "bomb.zarr", codec)
        return _fit("svc", "out", data="bomb.zarr")

    return made


def _of_claim(**changes: object) -> Callable[[Path], list[str]]:
    def made(folder: Path) -> list[str]:
        zarr_claim(folder / "bomb.zarr", **changes)
        return _fit("svc", "out", data="bomb.zarr")

    return made


def _sparse_file(folder: Path) -> list[str]:
    """Targets in a .npy file of LARGE bytes, none of which the disk holds."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (LARGE // 8,)})
    (folder / "bomb.npy").write_bytes(header.getvalue())
    os.truncate(folder / "bomb.npy", len(header.getvalue()) + LARGE)
    return _fit("svc", "out", targets="bomb.npy")


def _of_run(name: str, write: Callable[[Path], object], *command: str) -> Callable[[Path], list[str]]:
    def made(folder: Path) -> list[str]:
        run = broken_run(folder, name, write)
        return [word.replace("RUN", run) for word in command]

    return made


BOMBS: dict[str, Callable[[Path], list[str]]] = {
    "rows of an archive": _of_archive("svc", "data", "X"),
    "rows of an archive, bytes": _of_archive("regression", "data", "X", "|u1"),
    "rows of an archive, complex": _of_archive("mvu", "data", "X", "<c16"),
    "an archive of a sparse matrix": _of_archive("svc", "data", "indices", "<i4", 1),
    "labels of an archive": _of_archive("svc", "targets", "y", "<i8", 1),
    "labels of an archive, text": _of_archive("svc", "targets", "labels", "<U8", 1),
    "targets of an archive": _of_archive("regression", "targets", "y", "<f8", 1),
    "pairs of an archive": _of_archive("pairwise", "pairs", "must_link", "<i8", 2),
    "triplets of an archive": _of_archive("logdet", "triplets", "triplets", "<i8", 3),
    "labels in a file with holes": _sparse_file,
    "rows of packed text": _of_text("svc", "data", ".csv.gz", b"0,0,0,0\n"),
    "rows of packed text, a line": _of_text("svc", "data", ".csv.gz", b"0,"),
    "rows of packed svmlight": _of_text("svc", "data", ".svm.gz", b"1 1:1\n"),
    "rows of packed svmlight, labels": _of_text("svc", "data", ".svm.gz", b"1\n"),
    "labels of packed text": _of_text("svc", "targets", ".csv.gz", b"a\n"),
    "labels of packed text, empty": _of_text("svc", "targets", ".csv.gz", b"\n"),
    "targets of packed text": _of_text("regression", "targets", ".tsv.gz", b"0\n"),
    "pairs of packed text": _of_text("pairwise", "pairs", ".csv.gz", b"0,1,must\n"),
    "pairs of packed text, a line": _of_text("pairwise", "pairs", ".csv.gz", b"0"),
    **{f"chunk of {codec}": _of_zarr(codec) for codec in FORMATS},
    "chunks that metadata claims": _of_claim(shape=[N, 1 << 27], chunks=[N, 1 << 27]),
    "rows that metadata claims": _of_claim(shape=[1 << 40, 8]),
    "config.json of numbers": _of_run("numbers", _json("1"), "info", "RUN"),
    "config.json of lists": _of_run("lists", _json("[]"), "predict", "RUN", "--data", "X.npy", "--out", "p.npy"),
    "a chunk of a run": _of_run("chunk", _array, "predict", "RUN", "--data", "X.npy", "--out", "p.npy"),
    "a chunk of a run, verified": _of_run("chunk", _array, "verify", "RUN"),
}
LIMITED = ("fit", "predict", "verify")


def burst(name: str, inputs: Path) -> Burst:
    """Make a bomb in a folder of its own, and let a command read it; inputs: a folder of `plain_inputs`."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "inputs"
        shutil.copytree(inputs, folder)
        command = BOMBS[name](folder)
        command += ["--memory-limit", str(LIMIT)] if command[0] in LIMITED else []
        found = measured(command, folder)
        assert found.wall < PATIENCE
        return Burst(name, found.code, found.peak, found.cpu, found.wall, found.message)
