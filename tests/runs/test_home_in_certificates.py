"""Paths of certificates in Dask's configuration that begin with `~`, as in cluster/slurm/jobqueue.yaml."""

from pathlib import Path

import dask
import pytest
from distributed import Security

from dkl.runs.backends import check_address


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    made = Security.temporary()
    (tmp_path / "ca.pem").write_text(made.tls_ca_file)
    (tmp_path / "key.pem").write_text(made.tls_client_key)
    tls = {"ca-file": "~/ca.pem", "client.cert": "~/ca.pem", "client.key": "~/key.pem"}
    with dask.config.set({f"distributed.comm.tls.{name}": path for name, path in tls.items()}):
        check_address("tls://127.0.0.1:9", False, "--scheduler")
        assert dask.config.get("distributed.comm.tls.client.cert") == str(tmp_path / "ca.pem")
