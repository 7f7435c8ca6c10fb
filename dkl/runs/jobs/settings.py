"""Settings of a batch system's jobs: a YAML file or the section `dkl.submit` of Dask's configuration.

system: slurm
walltime: "08:00:00"
options: [--partition=long, --account=chem]
setup: [module load python]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from dkl.errors import InputError
from dkl.estimators.base.rules import Either, Instance, Integer, NotGiven
from dkl.estimators.base.settings import Settings, declared
from dkl.io.paths import as_path
from dkl.io.reading import require_file

if TYPE_CHECKING:
    from dkl.stores.seals import Json

NAMES = r"[A-Za-z0-9][\w.@:/+-]*"
"""Pattern of hosts, images and claims: words that need no quotes in a shell and are not options."""


def _is_line(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _named(pattern: str, wanted: str) -> Instance:
    return Instance(lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None, wanted)


def _several(each: Callable[[object], bool], wanted: str) -> Instance:
    return Instance(lambda value: isinstance(value, list) and all(map(each, value)), f"a list of {wanted}")


# Printable: a newline would make two lines of one, in a script or for sbatch.
LINE = Instance(_is_line, "a line of text")
LINES = _several(_is_line, "lines of text")
NAME = _named(NAMES, "a name")
MAYBE_NAME = _named(f"({NAMES})?", "a name")
MAPPING = Instance(lambda value: isinstance(value, dict), "a mapping")


@dataclass(frozen=True)
class JobSettings(Settings):
    """Settings common to all batch systems."""

    python: Annotated[str, LINE, "The Python of the job's machines, with dkl."] = sys.executable
    setup: Annotated[list[str], LINES, "Commands of shell before it: modules, variables."] = field(default_factory=list)
    local_directory: Annotated[str, LINE, "Local disk of a worker's machine; a shell may expand it."] = (
        "${TMPDIR:-/tmp}"
    )
    interface: Annotated[str, MAYBE_NAME, "Network of scheduler and workers, as ib0 [the default route's]."] = ""

    def recorded(self) -> Json:
        """Return the settings as the record of a job keeps them."""
        return self.as_dict()


@dataclass(frozen=True)
class SlurmSettings(JobSettings):
    """Settings of SLURM's jobs."""

    attempts: Annotated[int, Integer(1), "Times that the system starts it, each resuming the run."] = 1
    walltime: Annotated[str, _named(r"[\d:-]+", "a time as sbatch takes it"), "Of each attempt."] = "01:00:00"
    notice: Annotated[int, Integer(10), "Seconds before the walltime's end at which the run commits and ends."] = 120
    options: Annotated[list[str], LINES, "Further options of sbatch."] = field(default_factory=list)

    def check_together(self) -> None:
        """Raise InputError for an option of sbatch that does not start with a hyphen."""
        for option in self.options:
            if not option.startswith("-"):
                raise InputError("not an option of sbatch", where="options", got=repr(option), wanted="--name=value")


@dataclass(frozen=True)
class KubernetesSettings(JobSettings):
    """Settings of Kubernetes' jobs."""

    python: Annotated[str, LINE, "The Python of the image, with dkl."] = "python"
    attempts: Annotated[int, Integer(1), "Times that the system starts it, each resuming the run."] = 1
    image: Annotated[str, NAME, "The image, with dkl."] = "dkl:latest"
    claim: Annotated[str, MAYBE_NAME, "The persistent volume claim with data and runs."] = ""
    mount: Annotated[str, _named(r"(/[\w.-]+)+", "a path"), "Where it is mounted, here as in the pods."] = "/data"
    namespace: Annotated[str, MAYBE_NAME, "[kubectl's own]"] = ""
    ttl_seconds_after_finished: Annotated[
        int | None,
        Either(Integer(0), NotGiven()),
        "Seconds for which Kubernetes keeps a Job that has ended; None: for good.",
    ] = 7 * 86_400
    pod: Annotated[dict[str, Any], MAPPING, "Patch of the pod template: its metadata and spec."] = field(
        default_factory=dict
    )

    def recorded(self) -> Json:
        """Return the settings without the patch, which may hold a password and has done its work."""
        return {name: value for name, value in self.as_dict().items() if name != "pod"}

    def check_together(self) -> None:
        """Raise InputError without a volume claim: pods see nothing else."""
        if not self.claim:
            raise InputError("not given", where="claim", wanted="the persistent volume claim with data and runs")


@dataclass(frozen=True)
class SshSettings(JobSettings):
    """Settings of jobs on machines that ssh reaches without a password."""

    hosts: Annotated[list[str], _several(NAME.accepts, "host names"), "The first one is the client's, too."] = field(
        default_factory=list
    )

    def check_together(self) -> None:
        """Raise InputError without any host."""
        if not self.hosts:
            raise InputError("no machines", where="hosts", wanted="a list of host names")


KINDS: dict[str, type[JobSettings]] = {
    "slurm": SlurmSettings,
    "kubernetes": KubernetesSettings,
    "ssh": SshSettings,
}


def job_settings(on: str) -> tuple[str, JobSettings]:
    """Return (system, settings) of --on: a system's name, or a YAML file with `system:`; InputError."""
    if on in KINDS:
        import dask

        where, found = f"dkl.submit.{on} in Dask's configuration", dask.config.get(f"dkl.submit.{on}", None) or {}
        system = on
    else:
        where, found = on, _read(on)
        system = found.pop("system", None)
        if system not in KINDS:
            raise InputError("not a batch system", where=f"{on}: system", got=repr(system), wanted=" or ".join(KINDS))
    return system, _made(KINDS[system], found, where)


def _read(on: str) -> Json:
    """Return the mapping in a YAML file, read as safely as Dask reads its configuration."""
    import dask

    path = as_path(on, "--on")
    if path.suffix not in (".yaml", ".yml"):
        raise InputError("not a batch system", where="--on", got=repr(on), wanted=f"{', '.join(KINDS)} or a .yaml file")
    require_file(path)
    try:
        # Dask yields nothing for an empty file.
        found = next(dask.config.collect_yaml([str(path)]), {})
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("cannot be read as YAML", where=on, got=str(error)[:200]) from error
    return dict(found)


def _made(kind: type[JobSettings], found: object, where: str) -> JobSettings:
    """Return checked settings; raise InputError for an unknown name or an invalid value."""
    if not isinstance(found, dict):
        raise InputError("not a mapping", where=where, got=type(found).__name__)
    # In Dask's configuration a hyphen is as good as an underscore.
    given = {str(name).replace("-", "_"): value for name, value in found.items()}
    for name in given.keys() - declared(kind).keys():
        raise InputError("no such setting", where=where, got=name, wanted=", ".join(declared(kind)))
    try:
        return kind(**given).checked()
    except InputError as error:
        raise InputError(error.what, where=f"{where}: {error.where}", got=error.got, wanted=error.wanted) from None
