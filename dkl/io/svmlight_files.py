"""Files of svmlight's and LIBSVM's format: known by their suffix, or by their first line, as LIBSVM's own have none."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dkl.errors import InputError
from dkl.io.object_paths import AnyPath
from dkl.io.table_lines import open_bytes

SUFFIXES = (".libsvm", ".svm", ".svmlight")
"""Suffixes of files in svmlight's format, which .gz may follow."""
OTHERS = (".npy", ".npz", ".csv", ".tsv", ".zarr", ".json", ".yaml", ".py", ".txt.gz", ".csv.gz", ".tsv.gz")
"""Suffixes of files of other formats, which are not looked into."""
MOST_COMMENTS, MOST_BYTES = 100, 1 << 16
"""Maximum numbers of comment lines passed over, and of bytes looked at in a line."""
_NUMBER = rb"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_LINE = re.compile(rb"%s(?:,%s)*(?:\s+qid:[0-9]+)?(?:\s+[0-9]+:%s)+(?:\s.*)?" % (_NUMBER, _NUMBER, _NUMBER), re.DOTALL)


def is_svmlight(path: AnyPath) -> bool:
    """Return whether a file is of this format: by its suffix, or where that says nothing by its first line with a label."""
    name = path.name.lower()
    if name.removesuffix(".gz").endswith(SUFFIXES):
        return True
    if name.endswith(OTHERS) or not path.is_file():
        return False
    try:
        with open_bytes(path) as file:
            lines = (file.readline(MOST_BYTES).strip() for _ in range(MOST_COMMENTS))
            first = next((line for line in lines if line and not line.startswith(b"#")), b"")
    except (OSError, EOFError):
        return False
    return _LINE.fullmatch(first.rpartition(b" ")[0] if len(first) >= MOST_BYTES - 1 else first) is not None


def read_svmlight(path: AnyPath, n_features: int | None = None) -> tuple[csr_array, NDArray[np.float64]]:
    """Return rows (n, d) and labels (n,). n_features: d, of which a file names the last that is not 0 in any of its rows.

    Raises InputError for more features than these, ValueError for a malformed file.
    """
    from sklearn.datasets import load_svmlight_file

    with open_bytes(path) as file:
        X, y = load_svmlight_file(file)
    return with_features(csr_array(X), n_features, path), y


def with_features(X: csr_array, n_features: int | None, where: AnyPath) -> csr_array:
    """Return sparse rows with as many features as wanted: what the format leaves out is 0. Raises InputError for more."""
    if n_features is None or n_features == X.shape[1]:
        return X
    if X.shape[1] > n_features:
        remedy = f"features {n_features + 1} to {X.shape[1]} were in no row that was learned from: leave them out, or fit with them"
        raise InputError(
            "another number of features", where=str(where), got=X.shape[1], wanted=n_features, remedy=remedy
        )
    return csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], n_features))
