"""Interface to a batch system for jobs, calls of its commands, and the script of a job.

The script is the job's client by itself; called with `worker`, one of its workers. The client starts a scheduler, and the workers where the
system does not, waits for them and resumes the run. SIGTERM is passed on to it once: it commits and ends with 4. Keys and addresses are
files in the job's folder, which all machines see.
"""

from __future__ import annotations

import importlib
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from string import Template
from typing import Any, Protocol

from dkl.errors import InputError, ResourceError
from dkl.runs.interrupt import echo
from dkl.runs.jobs.job import FINAL_CODES, Job, JobRecord

COMMAND_SECONDS = 120
"""Seconds for a command of the system to answer."""


PATIENCE_SECONDS = 600.0
"""Seconds for which a system without an answer is asked again about a job that is waited for.
The job itself needs no answer."""


class State(Enum):
    """State of a job, as its system reports it."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


class System(Protocol):
    """Interface of a system's module: `write`, `submit`, `state`, `reason` and `cancel`.
    Each raises ResourceError where the system refuses."""

    def write(self, job: Job) -> dict[str, str]:
        """Return the files that the system needs in the job's folder; InputError for a job that it cannot run."""

    def submit(self, job: Job) -> str:
        """Submit what was written; return the system's id of the job."""

    def state(self, job: JobRecord) -> State:
        """Return the state of the job."""

    def reason(self, job: JobRecord) -> str:
        """Return why a job waits, in the system's words; "" where it says nothing."""

    def cancel(self, job: JobRecord, *, now: bool) -> None:
        """Ask a job to commit and end, or kill it if `now`; do nothing if it has ended."""


def system(name: str) -> System:
    """Import and return the module of a system."""
    found: Any = importlib.import_module(f"dkl.runs.jobs.{name}")
    module: System = found
    return module


class Inquiry:
    """Repeated requests about one job, some of which may fail: a controller restarts, a network is down."""

    def __init__(self, host: System, job: JobRecord) -> None:
        self._host, self._job = host, job
        self._unanswered_since: float | None = None

    def state(self) -> State | None:
        """Return the state of the job; None if the system gives no answer now, which is said once.

        Raises ResourceError if it has given none for PATIENCE_SECONDS.
        """
        try:
            found = self._host.state(self._job)
        except ResourceError as error:
            if isinstance(error.__cause__, FileNotFoundError):  # no such command: asking again is of no use
                raise
            self._bear(error)
            return None
        if self._unanswered_since is not None:
            echo(f"note: {self._job.system} answers again", err=True)
        self._unanswered_since = None
        return found

    def _bear(self, error: ResourceError) -> None:
        limit = f"{PATIENCE_SECONDS:g} s"
        if self._unanswered_since is None:
            self._unanswered_since = time.monotonic()
            echo(f"note: {error}; the job may go on, asking again for up to {limit}", err=True)
        elif time.monotonic() - self._unanswered_since >= PATIENCE_SECONDS:
            name = f"{self._job.system} {self._job.id}"
            remedy = "the job may go on: `dkl status` asks for it, once the system answers"
            raise ResourceError(f"no answer for {limit}", where=name, got=str(error), remedy=remedy) from error


def answer(
    command: Sequence[str], *, accept: tuple[int, ...] = (0,), environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of the system; raise ResourceError if it is missing or ends with another code."""
    name = command[0]
    try:
        done = subprocess.run(
            list(command),
            # A command that asks for a password must fail, not wait.
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
            env=environment,
        )
    except FileNotFoundError as error:
        remedy = "submit where the batch system's commands are"
        raise ResourceError("not found", where=name, wanted="a command", remedy=remedy) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ResourceError("gave no answer", where=name, got=error) from error
    if done.returncode not in accept:
        raise ResourceError("refused", where=name, got=(done.stderr or done.stdout).strip()[:300] or done.returncode)
    return done


# `wait` returns at a trapped signal too, so `supervise` waits again while the child lives. 143 is the shell's code of SIGTERM.
COMMON = Template("""\
#!/bin/bash
$header
# Made by `dkl submit` for $run. By itself the client of its job; `bash job.sh worker` is one of its workers.
umask 077
job=$job
python=$python
called=$${1:-client}

# What an attempt ends with. Of a final code no attempt that is left resumes the run.
concluded() {
    echo "$$1" >"$$job/ended"
    case $$1 in $final) $over ;; esac
}

if [ "$$called" != worker ]; then
    exec >>"$$job/log" 2>&1
    earlier=$$(cat "$$job/ended" 2>/dev/null)
    case $$earlier in $final) exit "$$earlier" ;; esac
    printf '=== %s on %s: %s\\n' "$$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$$(hostname)" $shown
    rm -f "$$job/ended" "$$job/scheduler.json"
fi

# Lines of the user's, each of which must succeed: its exit code and itself.
succeeded() {
    [ "$$1" = 0 ] && return
    printf 'dkl: setup: a line ended with %s on %s: %s\\n' "$$1" "$$(hostname)" "$$2" >&2
    [ "$$called" = worker ] || concluded 5
    exit 5
}
$setup

set -u
child=
scheduler=
ending=
trap 'ending=1; [ -z "$$child" ] || kill -TERM "$$child" 2>/dev/null' TERM INT

# A command, which a SIGTERM of ours is passed on to; its exit code.
supervise() {
    local code
    "$$@" &
    child=$$!
    wait "$$child"
    code=$$?
    while kill -0 "$$child" 2>/dev/null; do
        wait "$$child"
        code=$$?
    done
    child=
    return "$$code"
}

await_scheduler() {
    local tries
    for ((tries = 0; tries < 1500; tries++)); do
        if [ -s "$$job/scheduler.json" ] || [ -n "$$ending" ]; then return; fi
        if [ -n "$$scheduler" ] && ! kill -0 "$$scheduler" 2>/dev/null; then return; fi # it has not come up
        sleep 0.2
    done
}
""")

WORKER = Template("""
if [ "$$called" = worker ]; then
    for ((tries = 0; tries < $tries; tries++)); do
        await_scheduler
        if [ -n "$$ending" ]; then break; fi
        supervise "$$python" -m dask worker --scheduler-file "$$job/scheduler.json" --protocol tls $network \\
            --nthreads 1 --memory-limit $memory --local-directory "$local" --death-timeout 60 $quiet
        sleep 1 # after a restart of the client there is another scheduler
    done
    exit 143
fi
""")

CLIENT = Template("""
$start
code=143
if [ -z "$$ending" ]; then
    supervise $place"$$python" -m dkl.cli.main $words
    code=$$?
fi
concluded "$$code"
rm -f "$$job/scheduler.json"
if [ -n "$$scheduler" ]; then # which has its workers end
    kill "$$scheduler" 2>/dev/null
    wait "$$scheduler"
fi
exit "$$code"
""")

START = Template("""\
>>"$$job/workers.log" 2>&1 \\
    "$$python" -m dask scheduler --scheduler-file "$$job/scheduler.json" --protocol tls $network --port 0 $quiet &
scheduler=$$!
$launch
await_scheduler""")

# Not by options: with these, Dask's scheduler takes no --interface.
DASK = Template("""\
export DASK_LOGGING__DISTRIBUTED=warning
export DASK_DISTRIBUTED__COMM__TLS__CA_FILE=$tls_ca DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True
for role in SCHEDULER WORKER CLIENT; do
    export "DASK_DISTRIBUTED__COMM__TLS__$${role}__CERT"=$tls_cert "DASK_DISTRIBUTED__COMM__TLS__$${role}__KEY"=$tls_key
done
""")

QUIET = "--no-dashboard --dashboard-address 127.0.0.1:0"
"""Options of Dask without web pages, which know no login."""


FINAL = "|".join(map(str, (0, *FINAL_CODES)))


def script(job: Job, *, header: Sequence[str] = (), launch: str = "", tries: int = 1000, over: str = ":") -> str:
    """Return the text; raise InputError for lines of `setup` that are no commands.

    header: lines of comments that the system reads; launch: shell that starts the workers; tries: times that a worker looks for a
    scheduler, before it is taken that none will come; over: command that keeps the system from further attempts.
    """
    settings = job.settings
    words = shlex.join(job.resume_words())
    common = COMMON.substitute(
        header="\n".join(header),
        # In a comment of the script, which a newline would end.
        run=" ".join(job.run.split()),
        job=shlex.quote(str(job.files.folder)),
        python=shlex.quote(settings.python),
        setup="\n".join(map(_checked, settings.setup)),
        shown=shlex.quote(f"dkl {words}"),
        final=FINAL,
        over=over,
    )
    place = 'env TMPDIR="$job" ' if job.works_in_folder else ""
    if job.workers is None:
        return common + CLIENT.substitute(start="", place=place, words=words)
    keys = job.keys()
    tls = DASK.substitute({name: shlex.quote(path) for name, path in asdict(keys).items()})
    network = f"--interface {settings.interface}" if settings.interface else ""
    shared = {"network": network, "quiet": QUIET}
    worker = WORKER.substitute(shared, tries=tries, memory=job.memory, local=settings.local_directory)
    start = START.substitute(shared, launch=launch)
    return common + tls + worker + CLIENT.substitute(start=start, place=place, words=words)


def _checked(line: str) -> str:
    """Return a line of `setup` with a check of its exit code; InputError if it is not a whole command."""
    bash = shutil.which("bash")
    parsed = bash and subprocess.run([bash, "-n", "-c", line], capture_output=True, text=True, check=False)
    # A backslash at the end, which bash takes, would join the check of the exit code to the line.
    if line.endswith("\\") or (parsed and parsed.returncode):
        wanted = "whole commands of shell, each in one line"
        raise InputError("not a command of shell", where="setup", got=repr(line), wanted=wanted)
    return f"{line}\nsucceeded $? {shlex.quote(line)}"
