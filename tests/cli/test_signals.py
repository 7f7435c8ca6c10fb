"""Interrupted and killed runs go on to the very same bytes. The real command, in processes of its own."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from command_line import FIT, N, call, factor_bytes
from command_runs import told_of_commit
from numba.core.compiler_lock import global_compiler_lock
from patience import PATIENCE
from preloaded import Forked
from repeats import but_for

from dkl.cli.main import main as dkl
from dkl.runs.interrupt import Interrupt, between_compiles, resume_command

LONG = (
    *FIT,
    "--tol",
    "0",
    "--target-gap",
    "none",
    "--max-iter",
    "1500",
    "--rank",
    "20",
    "--threads",
    "1",
    "--checkpoint-every",
    "200",
)


def start(*arguments: str) -> Forked:
    return Forked(dkl, *arguments)


def wait_for_lines(file: Path, count: int, of: Forked) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and of.poll() is None:
        if file.exists() and file.read_bytes().count(b"\n") >= count:
            return
        time.sleep(0.002)
    pytest.fail(f"{file} did not come to {count} lines; the process that writes it ended with {of.poll()}")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, finished: Path) -> bytes:
    """The factor of a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    arguments = [str(finished / word) if word in ("X.npz", "pairs.csv") else word for word in LONG]
    arguments[arguments.index("run.zarr")] = str(folder / "run.zarr")
    assert call(*arguments).code == 3
    return factor_bytes(folder / "run.zarr")


@pytest.mark.parametrize(
    "number", but_for([signal.SIGTERM, signal.SIGKILL], [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
)
def test_a_run_goes_on_to_the_same_bytes(number: int, work: Path, undisturbed: bytes, seed: int) -> None:
    process = start(*LONG)
    try:
        wait_for_lines(work / "run.zarr" / "events.jsonl", random.Random(seed).randint(1, 600), process)
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert process.returncode == 4, err
        assert f"dkl resume {work / 'run.zarr'}" in told_of_commit(err)
        assert "resumable at iteration" in call("info", "run.zarr").out
    assert call("resume", "run.zarr").code == 3
    assert factor_bytes(work / "run.zarr") == undisturbed


def test_an_interrupt_before_the_run_is_made(work: Path, interrupts: None) -> None:
    # Python's own start is over when it prints: an interrupt in the midst of that ends in errors of its own.
    program = f"print(1, flush=True)\nimport sys\nfrom dkl.cli.main import main\nsys.argv = ['dkl', *{LONG!r}]\nmain()"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "1\n"
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode in (4, -signal.SIGINT), err  # the command's own end, or that of its imports


def test_two_fits_to_one_folder(work: Path) -> None:
    first = start(*LONG)
    try:
        wait_for_lines(work / "run.zarr" / "events.jsonl", 1, first)
        answer = call("resume", "run.zarr")
        assert answer.code == 2
        assert f"pid {first.pid} " in answer.err
        assert call(*LONG).code == 2
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.communicate(timeout=PATIENCE)
    assert call("info", "run.zarr").code == 0


def test_outside_the_loop_the_first_signal_is_answered_at_once() -> None:
    with (
        pytest.raises(KeyboardInterrupt, match="interrupted by SIGTERM.*dkl resume run.zarr"),
        Interrupt("dkl resume run.zarr", 10),
    ):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PATIENCE)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("entered", [lambda: Interrupt("dkl resume run.zarr", 10), between_compiles])
def test_a_signal_in_a_compiled_function_is_no_bug(entered: Callable[[], Any]) -> None:
    """What its handler raises there comes out of the function as a SystemError."""

    @numba.njit(nogil=True)
    def work(x: Any, rounds: int) -> Any:
        for _ in range(rounds):
            for i in range(len(x)):
                x[i] = 0.999 * x[i] + 1e-9
        return x

    row = np.ones(1000)
    work(row, 1)
    comes = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), entered():
        comes.start()
        work(row, 10**6)
    comes.join()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_inside_the_loop_it_is_answered_after_the_iteration() -> None:
    with Interrupt("again", 10) as interrupt:
        assert interrupt({"converged": False, "iteration": 1}) is False
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt({"converged": False, "iteration": 2}) is True
        assert interrupt.noticed


@pytest.mark.parametrize("stage", ["factored", "finish"])
def test_inside_the_factored_solver_too_but_not_before_its_result(stage: str) -> None:
    with Interrupt("again", 10) as interrupt:
        interrupt({"stage": stage, "iteration": 25, "relative_gap": None})
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt({"stage": stage, "iteration": 26, "relative_gap": None}) is True
    with pytest.raises(KeyboardInterrupt, match="committed is kept"), Interrupt("again", 10) as interrupt:
        interrupt({"stage": stage, "iteration": 27, "relative_gap": 0.1})
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(PATIENCE)


def test_a_long_iteration_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dkl.runs.interrupt.NOTICE_SECONDS", 0.05)
    with pytest.raises(KeyboardInterrupt, match="the iteration was long"), Interrupt("again", 10) as interrupt:
        interrupt({"converged": False, "iteration": 1})
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(PATIENCE)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("iterates", [False, True])
def test_what_is_being_compiled_is_compiled_first(number: int, iterates: bool) -> None:
    """An exception inside LLVM's callbacks is printed and lost, or leaves a function half made: exit 1, "a bug in dkl"."""
    compiled = False
    with (
        pytest.raises(KeyboardInterrupt, match="committed is kept; resume it with: again"),
        Interrupt("again", 10) as interrupt,
    ):
        with global_compiler_lock:
            os.kill(os.getpid(), number)
            list(range(1000))  # bytecodes, between which signals are answered
            compiled = True
        if iterates:
            interrupt({"converged": False, "iteration": 1})
        time.sleep(PATIENCE)
    assert compiled


def test_ctrl_c_in_other_verbs_waits_for_the_compiler_too(interrupts: None) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
    compiled = False
    with pytest.raises(KeyboardInterrupt), between_compiles():
        with global_compiler_lock:
            os.kill(os.getpid(), signal.SIGINT)
            list(range(1000))
            compiled = True
        time.sleep(PATIENCE)
    assert compiled
    with pytest.raises(KeyboardInterrupt), between_compiles():
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(PATIENCE)
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]


def test_the_command_is_interrupted_between_compiles(
    work: Path, interrupts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def told(path: str, **options: object) -> None:
        with global_compiler_lock:
            os.kill(os.getpid(), signal.SIGINT)
            list(range(1000))
            held.append(path)
        time.sleep(PATIENCE)

    monkeypatch.setattr("dkl.runs.driver.info", told)
    answer = call("info", ".")
    assert held and answer.code == 4, answer.err


COMMANDS_WITH_LATE_SIGNALS = """
import atexit, os, signal, sys
import click
from dkl.cli.main import dkl, main
from dkl.errors import StoreError
from dkl.runs.interrupt import Interrupt

def kill(call=os.kill, own=os.getpid, number=signal.SIGTERM):
    call(own(), number)

class Last:
    def __del__(self, kill=kill):  # when modules are taken down
        kill()

def fails(error):
    raise error

def interrupted():
    try:
        kill()
    finally:
        kill()

def interrupted_fit():
    try:
        with Interrupt("again", 10):
            kill()
    finally:
        kill()

commands = {
    "ends": lambda: None,
    "exits": lambda: fails(click.exceptions.Exit(3)),
    "fails": lambda: fails(StoreError("damaged")),
    "interrupted": interrupted,
    "fit": interrupted_fit,
}
codes = {}
for name, callback in commands.items():
    dkl.add_command(click.Command(name, callback=callback))
    if not os.fork():
        atexit.register(kill)
        sys.argv, last = ["dkl", name], Last()
        main()
    codes[name] = os.waitstatus_to_exitcode(os.wait()[1])
print(codes)
"""


def test_a_signal_in_the_last_moment_does_not_change_the_exit_code() -> None:
    """SIGTERM when the command has ended, and a second one while the first is answered."""
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS_WITH_LATE_SIGNALS], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout == "{'ends': 0, 'exits': 3, 'fails': 6, 'interrupted': 4, 'fit': 4}\n", done.stderr
    assert done.stderr.splitlines() == [
        "dkl: damaged",
        "dkl: interrupted; nothing was started",
        "dkl: interrupted by SIGTERM; what was committed is kept; resume it with: again",
    ]


@pytest.mark.parametrize("seconds", [9.0, 0.1])
def test_a_second_signal_or_the_time_ends_the_process(seconds: float) -> None:
    program = (
        "import dkl.runs.interrupt as i, os, signal, time\n"
        f"i.LAST_SECONDS = {seconds}\n"
        "with i.Interrupt('dkl resume run.zarr', 10) as interrupt:\n"
        "    interrupt({'converged': False, 'iteration': 1})\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        + ("    os.kill(os.getpid(), signal.SIGINT)\n" if seconds > 1 else "")
        + "    time.sleep(3600)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 4, done.stderr
    assert "dkl resume run.zarr" in done.stderr


def test_resume_command_quotes() -> None:
    assert resume_command("a b.zarr", {"max_iter": 7}) == "dkl resume 'a b.zarr' --max-iter 7"


def test_inputs_are_those_of_the_other_tests(work: Path) -> None:
    assert np.load("X.npz")["X"].shape[0] == N
