"""Versions and processor of each attempt at a run: noted where they differ from the attempt before, and shown by `dkl info`."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import call, write_inputs

import dkl
from dkl.blocks.workers import worker_checks
from dkl.estimators.base import run_arrays

pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
FIT = ("fit", "svc", "--data", "X.npz", "--max-iter", "1", "--no-picture", "--threads", "1", "--out", "run.zarr")


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Warnings of the package, in a folder with a run that can go further."""
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path, 24)
    lines: list[str] = []
    monkeypatch.setattr(run_arrays.LOG, "warning", lambda text, *given: lines.append(text % given))
    answer = call(*FIT)
    assert answer.code == 3 and not lines, answer.err
    yield lines


def be_elsewhere(patch: pytest.MonkeyPatch, numpy: str, processor: str) -> None:
    """Pretend to compute with another NumPy on another processor."""
    versions = worker_checks._versions() | {"numpy": numpy}
    patch.setattr(worker_checks, "_versions", lambda: versions)
    info = [{"user_api": "blas", "architecture": processor}]
    patch.setattr(worker_checks, "blas_controller", lambda: SimpleNamespace(info=lambda: info))


def shown() -> str:
    (line,) = [line for line in call("info", "run.zarr").out.splitlines() if line.startswith("  computed with")]
    return line


def test_a_run_resumed_elsewhere_says_so_by_command_and_in_python(said: list[str]) -> None:
    here = worker_checks.machine()
    first = shown()
    assert f"numpy {here.versions['numpy']}" in first and first.endswith(f"BLAS for {here.kernels}")
    assert call("resume", "run.zarr", "--max-iter", "2").code == 3 and not said
    with pytest.MonkeyPatch.context() as patch:
        be_elsewhere(patch, "1.0", "Other")
        assert call("resume", "run.zarr", "--max-iter", "3").code == 3
        (note,) = said
        before = f"numpy {here.versions['numpy']}, BLAS for {here.kernels}"
        assert f"was computed with {before} so far, from here on with numpy 1.0, BLAS for Other: " in note
        assert note.endswith("results may differ in the last bits")
        assert call("resume", "run.zarr").code == 3 and len(said) == 1  # complete: nothing is computed
    dkl.resume("run.zarr", max_iter=4, n_jobs=1)
    assert len(said) == 2 and f"from here on with {before}: " in said[1]
    assert shown() == f"{first}; then numpy 1.0, BLAS for Other; then {before}"


def test_a_run_that_logged_none_and_a_damaged_log_are_passed_over(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Path("run.zarr/events.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    rest = [line for line in lines if line["event"] != run_arrays.EVENT]
    wrong = {**lines[0], "event": run_arrays.EVENT}
    for others in ([], [{**wrong, "versions": 3, "kernels": "x"}, {**wrong, "versions": {}, "kernels": None}]):
        log.write_text("".join(json.dumps(line) + "\n" for line in [*rest, *others]))
        assert "computed with" not in call("info", "run.zarr").out
    be_elsewhere(monkeypatch, "1.0\x1b[2J" + "0" * 99, "Other")
    assert call("resume", "run.zarr", "--max-iter", "2").code == 3 and not said
    assert f"numpy {'1.0' + chr(92) + 'x1b[2J' + '0' * 30}, " in shown()
