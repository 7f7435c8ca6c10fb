"""Small files for the regression commands, and what a run came to, as bytes."""

from pathlib import Path

import numpy as np
from command_runs import bytes_of

N, D = 300, 3
FIT = ("fit", "regression", "--data", "X.npz", "--out", "run.zarr", "--no-picture", "--threads", "1")
SMALL = ("--n-columns", "30")


def write_inputs(folder: Path, n: int = N) -> None:
    """X.npz with y beside X; new.npz with more of the same; Y.npy with a second target."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n + 50, D))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(n + 50) + 5
    np.savez(folder / "X.npz", X=X[:n], y=y[:n])
    np.savez(folder / "new.npz", X=X[n:], y=y[n:])
    np.save(folder / "Y.npy", np.stack([y, np.cos(X[:, 2])], axis=1)[:n])


def model_bytes(run: Path) -> dict[str, bytes]:
    """Names and bytes of all that a model stands in."""
    return bytes_of(run, "model", "candidates", "columns")
