"""A job: a run, who works on it and what the batch system is told; and what the run's folder keeps of it.

job/job.sh       the client and, called with `worker`, a worker
job/job.json     which system has it, under which id
job/log          what the client has printed, of all attempts
job/ended        its exit code, once an attempt has ended
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkl.errors import InputError, StoreError
from dkl.resources import n_cpus
from dkl.runs.jobs.settings import KINDS, NAME, JobSettings, SshSettings
from dkl.runs.scheduler_address import Certificates
from dkl.stores.disk import disk_errors
from dkl.stores.sealed_json import read_json, write_json

NANNY_BYTES = 200_000_000
"""Of the process that watches over a worker; measured 104 MB."""
CERTIFICATES = {"tls_ca": "ca.pem", "tls_cert": "cert.pem", "tls_key": "key.pem"}


@dataclass(frozen=True)
class JobFiles:
    """Of a run's folder, those of its job."""

    run: Path

    @property
    def folder(self) -> Path:
        """All of them."""
        return self.run / "job"

    @property
    def script(self) -> Path:
        """What runs."""
        return self.folder / "job.sh"

    @property
    def manifest(self) -> Path:
        """What Kubernetes is given."""
        return self.folder / "manifest.json"

    @property
    def record(self) -> Path:
        """Which system has it, under which id."""
        return self.folder / "job.json"

    @property
    def log(self) -> Path:
        """What the client prints."""
        return self.folder / "log"

    @property
    def ended(self) -> Path:
        """Its exit code."""
        return self.folder / "ended"

    def exit_code(self) -> int | None:
        """Of the last attempt that has ended; None where none has."""
        try:
            return int(self.ended.read_text())
        except (OSError, ValueError):
            return None


@dataclass(frozen=True)
class Job:
    """A run to resume, on machines of a system.

    workers: of one thread each, of `memory` bytes; None: none but threads of the client (None: one a processor), or those
    of a cluster that runs, which `cluster` names by options of `dkl`. changes: options of `dkl resume`.
    """

    run: Path
    system: str
    settings: JobSettings
    workers: int | None = None
    memory: int | None = None
    threads: int | None = None
    cluster: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def files(self) -> JobFiles:
        """What the run's folder keeps of it."""
        return JobFiles(self.run)

    @property
    def name(self) -> str:
        """For the system's lists."""
        return f"dkl-{self.run.name}"

    @property
    def megabytes(self) -> int | None:
        """2^20 bytes that each process of the job is given: a worker's limit and the process that watches over it."""
        return None if self.memory is None else -(-(self.memory + NANNY_BYTES) // 2**20)

    @property
    def client_threads(self) -> int:
        """Processors that the client is given."""
        return 1 if self.workers or self.cluster else self.threads or n_cpus()

    def resume_words(self) -> list[str]:
        """What the client is called with."""
        words = ["resume", str(self.run), *self.changes]
        if self.workers is not None:
            words += ["--scheduler-file", str(self.files.folder / "scheduler.json"), "--wait-for", str(self.workers)]
            return [*words, *self.keys().options()]
        if self.threads is not None:
            words += ["--threads", str(self.threads)]
        return [*words, *self.cluster]

    def keys(self) -> Certificates:
        """The files that scheduler, workers and client of this job, and no others, know each other by."""
        return Certificates(**{name: str(self.files.folder / file) for name, file in CERTIFICATES.items()})

    def make_keys(self) -> None:
        """A new certificate for this job alone, where it has workers. Raises DiskError."""
        if self.workers is None:
            return
        from distributed import Security

        made = Security.temporary()
        for name, content in zip(
            CERTIFICATES, (made.tls_ca_file, made.tls_client_cert, made.tls_client_key), strict=True
        ):
            write_private(Path(getattr(self.keys(), name)), content)

    def record(self, number: str) -> None:
        """Keep what the system calls it. Raises DiskError."""
        found = {"system": self.system, "id": number, "at": round(time.time(), 3), "settings": self.settings.as_dict()}
        write_json(self.files.record, found)


@dataclass(frozen=True)
class Recorded:
    """A job that was submitted: who has it, what it is called there, and since when."""

    system: str
    id: str
    at: float
    settings: JobSettings


def recorded(run: Path) -> Recorded | None:
    """The job that was last submitted for a run; None where none was. StoreError for a damaged record."""
    path = JobFiles(run).record
    if not path.is_file():
        return None
    found: Any = read_json(path, sealed=True)
    try:
        settings = KINDS[found["system"]](**found["settings"]).checked()
        if not NAME.accepts(found["id"]):  # it is given to the system's commands: never as an option of theirs
            raise ValueError(f"id {found['id']!r}")
        if isinstance(settings, SshSettings) and found["id"].rpartition(":")[0] not in settings.hosts:
            raise ValueError(f"id {found['id']!r}, hosts {settings.hosts}")
        return Recorded(found["system"], found["id"], float(found["at"]), settings)
    except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
        raise StoreError(
            "a damaged record of a job", where=str(path), got=error, remedy="submit the run again"
        ) from error


def write_private(path: Path, content: str) -> None:
    """A text for the owner alone, in place of any that is there. Raises DiskError."""
    with disk_errors("could not be written", path):
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
