"""A server of S3 on 127.0.0.1, and what its users have in their environment."""

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Bucket:
    """One of a server's. environment: what reaching it takes."""

    name: str
    environment: dict[str, str]

    def __truediv__(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    @property
    def files(self) -> Any:
        """fsspec's, under this environment."""
        import fsspec

        return fsspec.filesystem("s3", use_listings_cache=False)

    def upload(self, *paths: Path) -> None:
        """Files, by their names; of a folder all of it."""
        for path in paths:
            inside = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
            for one in inside:
                self.files.pipe_file(f"{self.name}/{one.relative_to(path.parent)}", one.read_bytes())

    def names(self, below: str = "") -> list[str]:
        """Of all objects below a prefix, from there on."""
        start = f"{self.name}/{below}"
        return [name[len(start) :].lstrip("/") for name in self.files.find(start)]


_connected = [""]
"""The server that this process has asked last."""


def new_bucket(name: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Make a bucket of the server that an environment names, and set that in this process for the test."""
    if _connected[-1] != (endpoint := environment["AWS_ENDPOINT_URL"]):
        _disconnect()
        _connected[-1] = endpoint
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    made = Bucket(name, environment)
    made.files.mkdir(name)
    return made


def _disconnect() -> None:
    """Close what fsspec keeps: it is connected to another server than the environment names."""
    import fsspec
    import zarr.core.sync
    from fsspec.asyn import sync

    kind = fsspec.get_filesystem_class("s3")
    for files in kind._cache.values():
        if files._s3 is None:
            continue
        # Not by its close_session, which gives up after 0.1 s; and those of zarr, in its own loop, nobody else closes. An unclosed
        # session is an error of the garbage collector, in whatever test runs then.
        if files.asynchronous:
            zarr.core.sync.sync(files._s3.__aexit__(None, None, None))
        else:
            sync(files.loop, files._s3.__aexit__, None, None, None)
    kind.clear_instance_cache()


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """The environment of its users; it ends with the block."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line a request
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": f"secret-{uuid.uuid4().hex}",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        server.stop()
