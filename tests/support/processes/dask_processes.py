"""A Dask cluster as its owner starts it: `dask scheduler` and `dask worker`, a process each, protected by TLS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from distributed import Security
from patience import PATIENCE
from preloaded import Forked

NO_PORTS = ("--no-dashboard", "--dashboard-address", "127.0.0.1:0")


@dataclass(frozen=True)
class Keys:
    """The files of a certificate that is its own authority."""

    ca: Path
    cert: Path
    key: Path

    @classmethod
    def made(cls, folder: Path) -> Keys:
        """New ones, in a folder."""
        made = Security.temporary()
        content = {"ca": made.tls_ca_file, "cert": made.tls_client_cert, "key": made.tls_client_key}
        for name, text in content.items():
            (folder / f"{name}.pem").write_text(text)
        return cls(*(folder / f"{name}.pem" for name in content))

    @property
    def options(self) -> tuple[str, ...]:
        """Of `dkl`."""
        return ("--tls-ca", str(self.ca), "--tls-cert", str(self.cert), "--tls-key", str(self.key))

    @property
    def dask_options(self) -> tuple[str, ...]:
        """Of Dask's commands."""
        return ("--tls-ca-file", str(self.ca), "--tls-cert", str(self.cert), "--tls-key", str(self.key))


def dask_command() -> None:
    """What a `Forked` runs: the `dask` command."""
    from dask.__main__ import main

    main()


class TlsCluster:
    """A scheduler and workers on 127.0.0.1, whose files are in a folder."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self.file, self.folder = folder / "scheduler.json", folder
        self._tls = ("--protocol", "tls", "--host", "127.0.0.1", *keys.dask_options, *NO_PORTS)
        self.started: list[Forked] = []

    def start_scheduler(self) -> None:
        """Until its file is there."""
        self._start("scheduler", "--port", "0", "--scheduler-file", str(self.file))
        wait_until(self.file.is_file)

    def start_worker(self) -> None:
        """It may come later."""
        where = ("--scheduler-file", str(self.file), "--local-directory", str(self.folder))
        self._start("worker", *where, "--nthreads", "1", "--no-nanny")

    def _start(self, what: str, *options: str) -> None:
        self.started.append(Forked(dask_command, what, *self._tls, *options))


@contextmanager
def tls_cluster(folder: Path, keys: Keys, workers: int) -> Iterator[TlsCluster]:
    """With this many workers, of which none need have come yet."""
    cluster = TlsCluster(folder, keys)
    try:
        cluster.start_scheduler()
        for _ in range(workers):
            cluster.start_worker()
        yield cluster
    finally:
        for process in cluster.started:
            process.kill()
            process.communicate(PATIENCE)


def wait_until(true: Callable[[], object]) -> None:
    """Until true(), which must become so."""
    end = monotonic() + PATIENCE
    while not true():
        assert monotonic() < end, "waited for in vain"
        sleep(0.02)
