"""A cluster of its owner's: processes of Dask's own commands behind TLS, shared by the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dask_processes import Keys, TlsCluster, tls_cluster


@dataclass(frozen=True)
class Standing:
    """A cluster that runs, and its keys."""

    cluster: TlsCluster
    keys: Keys

    @property
    def file(self) -> Path:
        return self.cluster.file

    @property
    def options(self) -> tuple[str, ...]:
        return ("--scheduler-file", str(self.file), *self.keys.options)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys.made(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def standing(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """Two workers."""
    folder = tmp_path_factory.mktemp("standing")
    with tls_cluster(folder, keys, 2) as cluster:
        yield Standing(cluster, keys)
