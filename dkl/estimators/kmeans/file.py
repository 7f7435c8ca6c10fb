"""Files of clusterings: one .npz archive with all of a fitted `KernelKMeans`."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.estimators.kmeans.learner import REMEDIES, SHIFT, KernelKMeans
from dkl.estimators.kmeans.plot_data import KMeansView
from dkl.io.array_files import read_npz
from dkl.solvers.watch import Outcome, Result

if TYPE_CHECKING:
    from dkl.stores.seals import Json

VERSION = 1
SETTINGS = ("n_clusters", "n_init", "max_iter", "tol", "random_state")
VIEW = ("points", "labels", "centers", "squares")
_DAMAGED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""Errors of reading a file that lacks a part, or holds another in its place."""


@dataclass(frozen=True)
class Clusters:
    """A fitted clustering and its rows' origin: `run` is JSON about the run; ids (n,) of the rows, if any."""

    model: KernelKMeans
    run: Json = field(default_factory=dict)
    ids: NDArray[np.str_] | None = None

    @property
    def sizes(self) -> list[int]:
        """Return the number of rows in each cluster."""
        return [int(size) for size in np.bincount(self.model.labels_, minlength=len(self.model.cluster_centers_))]

    def facts(self) -> Json:
        """Return what the command prints, as JSON keeps it."""
        result = self.model.result_
        return {
            "run": self.run.get("path"),
            "n_rows": len(self.model.labels_),
            "n_clusters": len(self.model.cluster_centers_),
            "sizes": self.sizes,
            "inertia": float(self.model.inertia_),
            "outcome": result.outcome.value,
            "n_iter": int(self.model.n_iter_),
            "seed": self.model.random_state,
            "seconds": result.seconds,
        }

    def write(self, file: IO[bytes]) -> None:
        """Write the archive; the same clustering gives the same bytes but for its seconds."""
        model, view = self.model, getattr(self.model, "_view_kept", None)
        result = model.result_
        notes = {
            "version": VERSION,
            "run": self.run,
            "settings": {name: getattr(model, name) for name in SETTINGS},
            "inertia": float(model.inertia_),
            "n_iter": int(model.n_iter_),
            "outcome": result.outcome.value,
            "proven": result.proven,
            "asked": result.asked,
            "seconds": result.seconds,
            "peak_bytes": result.peak_bytes,
            "history": result.history,
        }
        arrays = {"labels": model.labels_, "cluster_centers": model.cluster_centers_, "clusters": json.dumps(notes)}
        arrays |= {} if view is None else {f"view_{name}": getattr(view, name) for name in VIEW}
        arrays |= {} if self.ids is None else {"ids": self.ids}
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, values in arrays.items():
                # The default date of ZipInfo is fixed, so that equal content gives equal bytes.
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.asanyarray(values), allow_pickle=False)


def read_clusters(path: Any) -> Clusters:
    """Read the clustering from a file by `dkl cluster`; InputError for any other, or a damaged one."""
    arrays = read_npz(path)
    if "clusters" not in arrays:
        got, wanted = ", ".join(sorted(arrays)), "a file that `dkl cluster --out` wrote"
        raise InputError("not a file of clusters", where=str(path), got=got, wanted=wanted)
    try:
        notes = json.loads(str(arrays["clusters"][()]))
        if notes["version"] != VERSION:
            got = notes["version"]
            raise InputError("a file of clusters of another version", where=str(path), got=got, wanted=VERSION)
        return _clusters(arrays, notes)
    except InputError:  # a ValueError too
        raise
    except _DAMAGED as error:
        got = f"{type(error).__name__}: {error}"[:200]
        raise InputError("a damaged file of clusters", where=str(path), got=got) from error


def _clusters(arrays: dict[str, NDArray], notes: Json) -> Clusters:
    """Build the fitted estimator; ValueError for arrays that do not fit together."""
    labels, centers, ids = arrays["labels"], arrays["cluster_centers"], arrays.get("ids")
    k, outcome = len(centers), Outcome(notes["outcome"])
    _require(labels.ndim == 1 and labels.dtype == np.int32, "labels")
    _require(centers.ndim == 2 and centers.dtype.kind == "f" and bool(np.isfinite(centers).all()), "centers")
    _require(labels.size > 0 and labels.min() >= 0 and labels.max() < k == notes["settings"]["n_clusters"], "labels")
    _require(ids is None or (ids.shape == labels.shape and ids.dtype.kind == "U"), "ids")
    _require(isinstance(notes["run"], dict) and all(isinstance(row, dict) for row in notes["history"]), "notes")
    model = KernelKMeans(**{name: notes["settings"][name] for name in SETTINGS})
    model._check_parameters()
    model.labels_, model.cluster_centers_, model.n_features_in_ = labels, centers, centers.shape[1]
    model.inertia_, model.n_iter_ = float(notes["inertia"]), int(notes["n_iter"])
    seconds = {str(name): float(value) for name, value in notes["seconds"].items()}
    peak = int(notes["peak_bytes"])
    model.result_ = Result(
        outcome, model.n_iter_, notes["history"], seconds, peak, remedy=REMEDIES[outcome],
        proven=float(notes["proven"]), asked=float(notes["asked"]), measure=SHIFT,
    )  # fmt: skip
    model._view_kept = _view(arrays, k, len(labels))
    return Clusters(model, notes["run"], ids)


def _view(arrays: dict[str, NDArray], k: int, n: int) -> KMeansView | None:
    """Return the rows that a picture shows; None where none were kept."""
    if f"view_{VIEW[0]}" not in arrays:
        return None
    points, labels, centers, squares = (arrays[f"view_{name}"] for name in VIEW)
    _require(points.shape == (len(labels), 2) and centers.shape == (k, 2), "view")
    _require(squares.shape == labels.shape and labels.min() >= 0 and labels.max() < k, "view")
    return KMeansView(points, labels.astype(np.intp), centers, squares, n)


def _require(holds: bool, part: str) -> None:
    if not holds:
        raise ValueError(f"{part} that do not fit together")
