"""Addresses of objects in stores, and what is told where nothing can be read there; no store is needed."""

import builtins
from pathlib import Path

import numpy as np
import pytest
import zarr

import dkl
from dkl.errors import InputError, ResourceError
from dkl.io.paths import ObjectPath

pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")


def test_what_is_of_this_process_alone_is_sent_as_rows():
    X = np.arange(12.0).reshape(6, 2)
    address = "memory://of-this-process/X.zarr"
    stored = zarr.create_array(zarr.storage.FsspecStore.from_url(address), shape=X.shape, chunks=(2, 2), dtype="f8")
    stored[...] = X
    for given in (address, stored):
        rows = dkl.blocks.rows.row_sources.row_source(given)
        assert rows.is_foreign and np.array_equal(rows.read(1, 5), X[1:5])


class NoCredentialsError(Exception):
    """As the package below has it."""


class EndpointConnectionError(Exception):
    """As the package below has it."""


@pytest.mark.parametrize(
    ("raised", "kind", "told"),
    [
        (
            PermissionError("Access Denied"),
            InputError,
            "lets nobody in by these credentials; got Access Denied; set AWS_",
        ),
        (
            NoCredentialsError("Unable to locate credentials"),
            InputError,
            "these credentials; got Unable to locate.*AWS_PROFILE",
        ),
        (
            EndpointConnectionError("no route"),
            ResourceError,
            "cannot be reached; got EndpointConnectionError: no route; try",
        ),
        (OSError(28, "No space left"), dkl.errors.DiskError, "no space on its store"),
    ],
)
def test_what_a_store_says_is_told(raised, kind, told):
    with pytest.raises(kind, match=f"s3://a/b: .*{told}"), ObjectPath("s3://a/b").telling():
        raise raised


def test_an_address_is_a_string():
    with pytest.raises(InputError, match="X: an address is no pathlib.Path; got s3:/bucket/X.npy; pass it as a string"):
        dkl.blocks.rows.row_sources.row_source(Path("s3://bucket/X.npy"))


@pytest.mark.parametrize(("address", "extra"), [("s3://bucket/X.npy", "s3"), ("gs://bucket/X.npy", "gcs")])
def test_a_missing_package_is_told(address, extra, monkeypatch):
    imported = builtins.__import__

    def missing(name, *arguments, **options):
        if name == "fsspec":
            raise ImportError("no package for such addresses")
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=rf"a package is missing; got no package .*; pip install 'dkl\[{extra}\]'"):
        ObjectPath.of(address).exists()
