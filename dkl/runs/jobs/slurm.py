"""SLURM: an allocation with a task for the client and one per worker.
Each attempt is a task of a job array, one at a time."""

from __future__ import annotations

import os
import re
import shlex
from typing import cast

from dkl.errors import InputError, ResourceError
from dkl.runs.jobs.job import Job, JobRecord
from dkl.runs.jobs.settings import SlurmSettings
from dkl.runs.jobs.system import State, answer, script

WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "REQUEUE_FED", "CONFIGURING"}
GONE = ("Invalid job id", "already completing or completed")
"""Messages of scancel about jobs that Slurm has forgotten, or that have ended."""
KEPT = {"SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT"}
"""Variables that name the system, and no allocation of it."""


def write(job: Job) -> dict[str, str]:
    """Return the batch script."""
    # --overlap: the client's own step holds all of the allocation's first task, whose machine workers share.
    launch = (
        f'srun --ntasks={job.workers} --cpus-per-task=1 --overlap bash "$job/job.sh" worker >>"$job/workers.log" 2>&1 &'
    )
    # The rest of an array waits for this attempt to end: none of it is started to find that nothing is left to do.
    over = '[ -z "${SLURM_ARRAY_JOB_ID:-}" ] || scancel --state=PENDING "$SLURM_ARRAY_JOB_ID"'
    return {job.files.script.name: script(job, header=_header(job), launch=launch, over=over)}


def _header(job: Job) -> list[str]:
    settings = cast(SlurmSettings, job.settings)
    if "%" in str(job.folder) or "\n" in str(job.folder):
        raise InputError("a path that sbatch would change", where=job.folder_option, got=repr(str(job.folder)))
    name = re.sub(r"[^\w.-]", "_", job.name)
    lines = [
        f"--job-name={name}",
        f"--output={shlex.quote(str(job.files.folder / 'slurm.log'))}",
        "--open-mode=append",
        f"--time={settings.walltime}",
        f"--signal=B:TERM@{settings.notice}",  # to the script alone, which passes it on to the client
        "--requeue",  # a preempted job resumes
        f"--ntasks={(job.workers or 0) + 1}",
        f"--cpus-per-task={job.client_threads}",
    ]
    if job.megabytes is not None:
        # Not --mem, which is of a node: several processes may be on one.
        lines.append(f"--mem-per-cpu={-(-job.megabytes // job.client_threads)}M")
    if settings.attempts > 1:
        lines.append(f"--array=1-{settings.attempts}%1")
    return [f"#SBATCH {line}" for line in [*lines, *settings.options]]


def submit(job: Job) -> str:
    """Submit the script by sbatch; return the job's id."""
    # What an allocation around this process has set (salloc) would be passed on to the job, whose srun it breaks.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_") or name in KEPT}
    said = answer(["sbatch", "--parsable", str(job.files.script)], environment=environment).stdout.strip()
    number = said.splitlines()[-1].partition(";")[0] if said else ""
    if not number.isdigit():
        raise ResourceError("gave no number of a job", where="sbatch", got=repr(said[:100]))
    return number


def state(job: JobRecord) -> State:
    """Return the job's state by squeue."""
    done = answer(["squeue", "--noheader", "--format=%T", f"--jobs={job.id}"], accept=(0, 1))
    if done.returncode and not any(text in done.stderr for text in GONE):
        raise ResourceError("refused", where="squeue", got=done.stderr.strip()[:300])
    found = set(done.stdout.split())
    if found - WAITING:
        return State.RUNNING
    return State.WAITING if found else State.ENDED


def reason(job: JobRecord) -> str:
    """Return why a job waits, in the words of squeue (PartitionTimeLimit, Resources)."""
    done = answer(["squeue", "--noheader", "--states=PENDING", "--format=%r", f"--jobs={job.id}"], accept=(0, 1))
    return ", ".join(dict.fromkeys(done.stdout.split()))


def cancel(job: JobRecord, *, now: bool) -> None:
    """Cancel a job by scancel: remove it if it waits, else send its script SIGTERM as at the walltime."""
    steps = [[]] if now else [["--state=PENDING"], ["--batch", "--signal=TERM"]]
    for options in steps:
        done = answer(["scancel", *options, job.id], accept=(0, 1))
        if done.returncode and not any(text in done.stderr for text in GONE):
            raise ResourceError("refused", where="scancel", got=done.stderr.strip()[:300])
