"""Files that claim what they do not hold, or have no end: written by hand, since no library would."""

import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import zarr

N, D = 60, 6
X = np.random.default_rng(3).standard_normal((N, D))
Make = Callable[[Path], Any]


def npy(shape: str, descr: str = "<f8") -> bytes:
    """A .npy file whose header claims a shape; 800 bytes follow it."""
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + b"\0" * 800


def saved(values: Any) -> bytes:
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


def archive(path: Path, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in {"y": saved(np.arange(N) % 2), **members}.items():
            file.writestr(f"{name}.npy", content)


def stored(path: Path) -> None:
    zarr.create_array(str(path), shape=(N, D), chunks=(10, D), dtype="f8")[...] = X


def claiming(**changed: Any) -> Make:
    """A zarr array whose metadata say something else."""

    def make(path: Path) -> None:
        stored(path)
        metadata = json.loads((path / "zarr.json").read_text())
        if "chunks" in changed:
            metadata["chunk_grid"]["configuration"]["chunk_shape"] = changed["chunks"]
        metadata |= {name: value for name, value in changed.items() if name != "chunks"}
        (path / "zarr.json").write_text(json.dumps(metadata))

    return make


def in_its_place(part: str, put: Make) -> Make:
    """A zarr array with something else in the place of one of its files."""

    def make(path: Path) -> None:
        stored(path)
        (path / part).unlink()
        put(path / part)

    return make


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def csr(shape: Any, **changed: bytes) -> Make:
    parts = {"data": saved(np.ones(N)), "indices": saved(np.zeros(N, int)), "indptr": saved(np.arange(N + 1))}
    return lambda path: archive(path, **parts | {"shape": saved(np.array(shape))} | changed)


def svmlight(column: int) -> Make:
    return lambda path: path.write_text("".join(f"{i % 2} 1:{i} {column}:1\n" for i in range(N)))


SHAPES = {
    "negative": f"(-{N}, {D})",
    "negative columns": f"({N}, -{D})",
    "10^30 rows": f"({10**30}, {D})",
    "10^30 columns": f"({N}, {10**30})",
    "6e8 rows": f"(600000000, {D})",
    "6e8 columns": f"({N}, 600000000)",
}
CHUNK = "c/2/0"
ROWS: dict[str, tuple[str, Make]] = {
    **{f"npy {case}": ("bad.npy", lambda path, s=shape: path.write_bytes(npy(s))) for case, shape in SHAPES.items()},
    **{f"npz {case}": ("bad.npz", lambda path, s=shape: archive(path, X=npy(s))) for case, shape in SHAPES.items()},
    **{f"zarr {case}": ("bad.zarr", claiming(shape=json.loads(f"[{s[1:-1]}]"))) for case, s in SHAPES.items()},
    "zarr of no shape": ("bad.zarr", claiming(shape=None)),
    "zarr in chunks of nothing": ("bad.zarr", claiming(chunks=[0, D])),
    "zarr in negative chunks": ("bad.zarr", claiming(chunks=[-1, D])),
    "zarr in huge chunks": ("bad.zarr", claiming(chunks=[600_000_000_000, D])),
    "zarr of a pipe": ("bad.zarr", in_its_place("zarr.json", os.mkfifo)),
    "zarr without end": ("bad.zarr", in_its_place("zarr.json", endless)),
    "npy of no bytes an entry": ("bad.npy", lambda path: path.write_bytes(npy("(60, 6)", "|V0"))),
    "npy of no type": ("bad.npy", lambda path: path.write_bytes(npy("(60, 6)", "<f999999999999"))),
    "csr of a negative shape": ("bad.npz", csr([-N, D])),
    "csr of 2^62 columns": ("bad.npz", csr([N, 2**62])),
    "csr of 2e9 columns": ("bad.npz", csr([N, 2_000_000_000])),
    "csr of 6e8 rows": ("bad.npz", csr([600_000_000, D])),
    "csr of two formats": ("bad.npz", csr([N, D], format=saved(["csr", "csc"]))),
    "csr with a false header": ("bad.npz", csr([N, D], data=npy("(600000000,)"))),
    "svmlight of column 2e9": ("bad.svm", svmlight(2_000_000_000)),
    "svmlight of column 10^30": ("bad.svm", svmlight(10**30)),
    "svmlight of column -5": ("bad.svm", svmlight(-5)),
    "a name of 300 letters": ("b" * 300 + ".npz", lambda path: None),
    **{f"endless {kind}": (f"bad.{kind}", endless) for kind in ("npy", "npz", "csv", "svm", "zarr")},
    **{f"pipe {kind}": (f"bad.{kind}", os.mkfifo) for kind in ("npy", "npz", "csv", "svm", "zarr")},
}
"""File name and how it is made; wrong whatever is read of them, shapes alone too."""
CHUNKS: dict[str, tuple[str, Make]] = {
    "garbage": ("bad.zarr", in_its_place(CHUNK, lambda path: path.write_bytes(b"garbage" * 10))),
    "empty": ("bad.zarr", in_its_place(CHUNK, Path.touch)),
    "pipe": ("bad.zarr", in_its_place(CHUNK, os.mkfifo)),
    "endless": ("bad.zarr", in_its_place(CHUNK, endless)),
    "folder": ("bad.zarr", in_its_place(CHUNK, Path.mkdir)),
}
"""What no plan sees, which reads no values."""
TARGETS: dict[str, tuple[str, Make]] = {
    "pipe": ("bad.csv", os.mkfifo),
    "endless": ("bad.csv", endless),
    "endless npy": ("bad.npy", endless),
    "negative": ("bad.npy", lambda path: path.write_bytes(npy("(-60,)"))),
    "10^30": ("bad.npy", lambda path: path.write_bytes(npy(f"({10**30},)"))),
    "6e8": ("bad.npy", lambda path: path.write_bytes(npy("(600000000,)"))),
    "6e8 in an archive": ("bad.npz", lambda path: archive(path, y=npy("(600000000,)"))),
    "a name of 300 letters": ("b" * 300 + ".csv", lambda path: None),
}
PAIRS: dict[str, tuple[str, Make]] = {
    "pipe": ("bad.csv", os.mkfifo),
    "endless": ("bad.csv", endless),
    "pipe npz": ("bad.npz", os.mkfifo),
    "endless npz": ("bad.npz", endless),
    **{
        f"{case} in an archive": ("bad.npz", lambda path, s=shape: archive(path, must_link=npy(s, "<i8")))
        for case, shape in {"negative": "(-4, 2)", "10^30": f"({10**30}, 2)", "6e8": "(600000000, 2)"}.items()
    },
    "5000 digits": ("bad.csv", lambda path: path.write_text(f"0,{'1' * 5000},must\n")),
    "a digit that is none": ("bad.csv", lambda path: path.write_text("0,\u00b2,must\n")),
    "a name of 300 letters": ("b" * 300 + ".csv", lambda path: None),
}
