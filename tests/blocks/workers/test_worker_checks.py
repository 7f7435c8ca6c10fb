"""Workers that are not what this process is: with other versions refused, with another processor noted, in Python and by command."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command_line import FIT, call, write_inputs

import dkl
from dkl.blocks.session import Session
from dkl.blocks.workers import worker_checks
from dkl.errors import InputError


def another_processor(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have BLAS of this process alone say that its processor is another; return the list that notes come to."""
    info = [{"user_api": "blas", "architecture": "Other"}, {"user_api": "openmp"}]
    monkeypatch.setattr(worker_checks, "blas_controller", lambda: SimpleNamespace(info=lambda: info))
    said: list[str] = []
    monkeypatch.setattr(worker_checks.LOG, "warning", lambda text, *given: said.append(text % given))
    return said


def test_a_worker_with_another_version_is_refused_in_python(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    given = worker_checks._versions()
    monkeypatch.setattr(worker_checks, "_versions", lambda: given | {"numpy": "1.0"})
    X, y = np.zeros((20, 2)), np.arange(20) % 2
    for _ in range(2):  # whoever tries again hears it again
        with pytest.raises(
            InputError, match=r"worker tcp://127.0.0.1:\d+: another numpy than here; got .*; wanted 1.0"
        ):
            dkl.OptimalNeighborhoodSVC(client=client).fit(X, y)


def test_another_processor_is_noted_once_for_a_client(
    client: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = another_processor(monkeypatch)
    for _ in range(2):
        Session.find(client)
    (note,) = said
    assert note.startswith("processors of other kinds on 2 of 2 workers (BLAS for ") and "for Other here" in note
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    answer = call("plan", *FIT[1:], "--scheduler", cluster.scheduler_address)
    assert answer.code == 0 and said.count(note) == 2, answer.err


def test_workers_like_this_process_are_not_spoken_of(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(worker_checks.LOG, "warning", said.append)
    Session.find(client)
    assert not said and worker_checks.machine().kernels
