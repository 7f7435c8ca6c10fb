"""benchmarks/system/smallest.txt names every program of benchmarks/, with arguments that its parser takes; kill.py's runs last."""

import argparse
import importlib
import json
import math
from pathlib import Path

import preloaded
import pytest
from command_line import call
from patience import PATIENCE
from preloaded import Forked

ROOT = Path(__file__).parents[1]
LINES = (ROOT / "benchmarks" / "system" / "smallest.txt").read_text(encoding="utf-8").splitlines()
OF_OTHERS = {"logdet.metric_learn_peer", "system.smallest"}
"""What needs an environment of its own, and what runs the lines."""
PARSE = """
import argparse, json, runpy, shlex, sys

class Parsed(Exception):
    pass

def parse_args(self, *given, real=argparse.ArgumentParser.parse_args):
    real(self, *given)
    raise Parsed

argparse.ArgumentParser.parse_args = parse_args
root, *lines = json.load(open("lines.json"))
sys.path.insert(0, root)
for line in lines:
    print(line, file=sys.stderr, flush=True)
    module, *arguments = shlex.split(line)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(f"benchmarks.{module}", run_name="__main__")
    except Parsed:
        print(module)
"""


def programs() -> list[str]:
    """Return FAMILY.NAME of what can be started."""
    paths = (ROOT / "benchmarks").glob("*/*.py")
    started = (path for path in paths if 'if __name__ == "__main__"' in path.read_text(encoding="utf-8"))
    return sorted(f"{path.parent.name}.{path.stem}" for path in started)


def test_the_smallest_run_of_every_program_is_listed_and_described() -> None:
    assert sorted(line.split()[0] for line in LINES) == [name for name in programs() if name not in OF_OTHERS]
    described = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert [name for name in programs() if f"`{name.replace('.', '/')}.py`" not in described] == []


def test_the_smallest_runs_are_parsed(tmp_path: Path) -> None:
    (tmp_path / "lines.json").write_text(json.dumps([str(ROOT), *LINES]), encoding="utf-8")
    script = tmp_path / "script.py"
    script.write_text(f"import os\nos.chdir({str(tmp_path)!r})\n{PARSE}", encoding="utf-8")
    run = Forked(preloaded.python, str(script))
    out, err = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, err
    assert out.split() == [line.split()[0] for line in LINES]


def test_runs_to_kill_are_not_finished_before_their_iterations_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit with a target gap may be solved: kill.py takes every other end than that of its iterations for a fault."""
    monkeypatch.syspath_prepend(ROOT)
    kill = importlib.import_module("benchmarks.system.kill")
    monkeypatch.setattr(kill, "undisturbed", lambda case: case)
    options = argparse.Namespace(n=100, rank=8, max_iter=20, checkpoint_every=10, seed=0, placements=["memory"])
    (case,) = kill.cases(tmp_path, options)
    module, *arguments = case.fit(tmp_path / "run.zarr", "the last")
    assert module == "dkl.cli.main"
    assert arguments[-2:] == ["--scheduler", "the last"]
    assert call(*arguments[:-2]).code == kill.NOT_CONVERGED


def test_seconds_an_iteration_of_one_time_are_not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few iterations, workers may report all after the warm-up at once: there is nothing to divide by."""
    monkeypatch.syspath_prepend(ROOT)
    per_iteration = importlib.import_module("benchmarks.pairwise.admm").per_iteration
    history = [{"iteration": k, "seconds": 1.0 if k < 4 else 3.0} for k in range(1, 16)]
    assert math.isnan(per_iteration(history))
    assert per_iteration(history, skip=3) == 2 / 12
