"""A job: a run, its client and workers, its settings, and the folder that all its machines see.

job.sh       the client and, called with `worker`, a worker
job.json     which system has it, under which id; of a run in an object store also an object next to its commits
log          what the client has printed, of all attempts
workers.log  what its scheduler and workers have, but for pods, whose words their system keeps
ended        its exit code, once an attempt has ended

It is `job` in the run's folder, or one that the user names for a run in an object store.
"""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from dkl.errors import InputError, StoreError
from dkl.io.paths import AnyPath, ObjectPath, is_address
from dkl.resources import n_cpus
from dkl.runs.backends import Certificates
from dkl.runs.inputs.files import check_new
from dkl.runs.jobs.settings import KINDS, NAME, JobSettings, SshSettings
from dkl.stores.folders import disk_errors
from dkl.stores.seals import parsed_json, read_json, sealed_text, write_json

if TYPE_CHECKING:
    from dkl.stores.seals import Json

NANNY_BYTES = 200_000_000
"""Memory of the process that supervises a worker; measured 104 MB."""
FINAL_CODES = (1, 2, 3, 5, 6)
"""Exit codes of a client with which a resumed run would end again."""
RECORD = "job.json"
CERTIFICATES = {"tls_ca": "ca.pem", "tls_cert": "cert.pem", "tls_key": "key.pem"}


@dataclass(frozen=True)
class JobFiles:
    """Files in the folder of a job."""

    folder: Path

    @property
    def script(self) -> Path:
        """Return the path of the shell script of client and workers."""
        return self.folder / "job.sh"

    @property
    def manifest(self) -> Path:
        """Return the path of the manifest given to Kubernetes."""
        return self.folder / "manifest.json"

    @property
    def record(self) -> Path:
        """Return the path of the record of which system has the job, under which id."""
        return self.folder / RECORD

    @property
    def log(self) -> Path:
        """Return the path of the client's log."""
        return self.folder / "log"

    @property
    def workers_log(self) -> Path:
        """Return the path of the log of scheduler and workers."""
        return self.folder / "workers.log"

    @property
    def ended(self) -> Path:
        """Return the path of the file with the exit code."""
        return self.folder / "ended"

    def exit_code(self) -> int | None:
        """Return the exit code of the last attempt that has ended; None if none has."""
        try:
            return int(self.ended.read_text())
        except (OSError, ValueError):
            return None


@dataclass(frozen=True)
class Job:
    """A run to resume (a folder or an address) on machines of a system, all of which see `folder`.

    workers: of one thread each, of `memory` bytes; None: none but threads of the client (None: one a processor), or those
    of a cluster that runs, which `cluster` names by options of `dkl`. changes: options of `dkl resume`.
    on: what the user has named the system by.
    """

    run: str
    folder: Path
    system: str
    settings: JobSettings
    workers: int | None = None
    memory: int | None = None
    threads: int | None = None
    cluster: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    on: str = ""

    @property
    def files(self) -> JobFiles:
        """Return the files in the job's folder."""
        return JobFiles(self.folder)

    @property
    def name(self) -> str:
        """Return the job's name in the system's lists."""
        return f"dkl-{PurePosixPath(self.run).name}"

    @property
    def folder_option(self) -> str:
        """Return the option by which the user has chosen the folder."""
        return "--job-folder" if is_address(self.run) else "--out"

    @property
    def works_in_folder(self) -> bool:
        """Return whether the run is worked on in the job's folder, as its workers cannot see another."""
        return is_address(self.run) and bool(self.workers or self.cluster)

    @property
    def megabytes(self) -> int | None:
        """Return the MiB for each process of the job: a worker's limit and the process that supervises it."""
        return None if self.memory is None else -(-(self.memory + NANNY_BYTES) // 2**20)

    @property
    def client_threads(self) -> int:
        """Return the number of processors that the client is given."""
        # With workers the client waits for them.
        return 1 if self.workers or self.cluster else self.threads or n_cpus()

    def resume_words(self) -> list[str]:
        """Return the arguments of `dkl` with which the client resumes the run."""
        words = ["resume", self.run, *self.changes]
        if self.workers is not None:
            words += ["--scheduler-file", str(self.files.folder / "scheduler.json"), "--wait-for", str(self.workers)]
            return [*words, *self.keys().options()]
        if self.threads is not None:
            words += ["--threads", str(self.threads)]
        return [*words, *self.cluster]

    def again_words(self) -> list[str]:
        """Return the command that submits the run again to the same system, with the same workers."""
        words = ["dkl", "submit", "resume", self.run, "--on", self.on or self.system, *self.changes]
        for option, count in (("--workers", self.workers), ("--threads", self.threads)):
            words += [] if count is None else [option, str(count)]
        return [*words, *self.cluster, *(["--job-folder", str(self.folder)] if is_address(self.run) else [])]

    def keys(self) -> Certificates:
        """Return the certificates by which scheduler, workers and client of this job alone know each other."""
        return Certificates(**{name: str(self.files.folder / file) for name, file in CERTIFICATES.items()})

    def make_keys(self) -> None:
        """Make a new certificate for this job alone, if it has workers. Raises DiskError."""
        if self.workers is None:
            return
        from distributed import Security

        made = Security.temporary()
        for name, content in zip(
            CERTIFICATES, (made.tls_ca_file, made.tls_client_cert, made.tls_client_key), strict=True
        ):
            write_private(Path(getattr(self.keys(), name)), content)

    def record(self, number: str) -> None:
        """Keep what the system calls it. Raises DiskError, ResourceError."""
        found = {"system": self.system, "id": number, "at": round(time.time(), 3), "settings": self.settings.recorded()}
        found["again"] = self.again_words()
        if is_address(self.run):
            found |= {"run": self.run, "folder": str(self.folder)}
            # With the run itself: `dkl status` finds the job from any machine that reads the store.
            (ObjectPath.of(self.run) / RECORD).write(sealed_text(found).encode())
        write_json(self.files.record, found)


@dataclass(frozen=True)
class JobRecord:
    """A job that was submitted: its system, its id there, the time, and its files."""

    system: str
    id: str
    at: float
    settings: JobSettings
    files: JobFiles
    again: tuple[str, ...] = ()

    @property
    def resubmission(self) -> str:
        """Return the shell command that submits the run again."""
        return shlex.join(self.again)


def recorded(run: str) -> JobRecord | None:
    """Return the job last submitted for a run; None without. StoreError for a damaged record."""
    path = ObjectPath.of(run) / RECORD if is_address(run) else folder_of(run) / RECORD
    if not path.is_file():
        return None
    found: Any = _read(path)
    try:
        folder = Path(found["folder"]) if is_address(run) else folder_of(run)
        # A record from a store is not trusted with a place: a relative one would depend on where the command is called.
        if not folder.is_absolute():
            raise ValueError(f"folder {found['folder']!r}")
        settings = KINDS[found["system"]](**found["settings"]).checked()
        if not NAME.accepts(found["id"]):  # it is given to the system's commands: never as an option of theirs
            raise ValueError(f"id {found['id']!r}")
        # Of ssh it is host:pid, and `cancel` sends the host a command.
        if isinstance(settings, SshSettings) and found["id"].rpartition(":")[0] not in settings.hosts:
            raise ValueError(f"id {found['id']!r}, hosts {settings.hosts}")
        # Records of earlier versions have no `again`.
        again = tuple(found.get("again", ("dkl", "submit", "resume", run, "--on", found["system"])))
        if not all(isinstance(word, str) and word.isprintable() for word in again):
            raise ValueError(f"again {again!r}")
        return JobRecord(found["system"], found["id"], float(found["at"]), settings, JobFiles(folder), again)
    except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
        raise StoreError(
            "a damaged record of a job", where=str(path), got=error, remedy="submit the run again"
        ) from error


def folder_of(run: str) -> Path:
    """Return the folder of the job of a run in a folder."""
    return Path(run) / "job"


def named_folder(run: str, folder: Path) -> Path:
    """Return a folder for the job of a run in an object store: new, empty, or an earlier job's.

    InputError for any other; StoreError for a damaged record there.
    """
    record = JobFiles(folder).record
    if not record.is_file():
        return check_new(folder, may_be_empty_folder=True, option="--job-folder")
    other = _read(record).get("run")
    if other != run:
        raise InputError("has the job of another run", where="--job-folder", got=other, remedy="choose another folder")
    return folder


def _read(record: AnyPath) -> Json:
    if isinstance(record, ObjectPath):
        return parsed_json(record.read(), record, sealed=True)
    return read_json(record, sealed=True)


def write_private(path: Path, content: str) -> None:
    """Write a text for the owner alone, replacing any that is there. Raises DiskError."""
    with disk_errors("could not be written", path):
        # A file that is there would keep its mode, by which others may read it.
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
