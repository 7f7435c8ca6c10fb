"""Small files for the commands of the classifier."""

from pathlib import Path

import numpy as np

N, D = 160, 3
CLASSES = np.array(["blue", "green", "red", 'très, très "rare"'])
FIT = ("fit", "svc", "--data", "X.npz", "--out", "run.zarr", "--threads", "1", "--no-picture")


def rows_and_labels(n: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Clouds that overlap, of sizes that differ."""
    rng = np.random.default_rng(seed)
    numbers = np.minimum(rng.integers(classes + 1, size=n), classes - 1)
    numbers[:classes] = np.arange(classes)
    return rng.standard_normal((n, D)) + 1.5 * np.eye(classes, D)[numbers], numbers


def write_inputs(folder: Path, n: int = N) -> None:
    """X.npz and new.npz: four classes by name, y beside X; y.csv: the names in a file; two.npz: classes -1 and 1."""
    X, numbers = rows_and_labels(n + 40, len(CLASSES))
    names = CLASSES[numbers]
    np.savez(folder / "X.npz", X=X[:n], y=names[:n])
    np.savez(folder / "new.npz", X=X[n:], y=names[n:])
    quoted = ['"' + name.replace('"', '""') + '"' for name in names[:n]]
    (folder / "y.csv").write_text("\n".join(["colour", *quoted]) + "\n", encoding="utf-8")
    np.save(folder / "X.npy", X[:n])
    np.savez(folder / "two.npz", X=X[:n], y=np.where(numbers[:n] > 0, 1, -1))
