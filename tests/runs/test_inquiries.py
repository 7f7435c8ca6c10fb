"""Waiting for a job whose system does not always answer."""

import pytest

from dkl.errors import ResourceError
from dkl.runs.jobs import system
from dkl.runs.jobs.job import JobFiles, JobRecord
from dkl.runs.jobs.settings import SlurmSettings
from dkl.runs.jobs.system import Inquiry, State


class Host:
    """A system that answers in turn what it is given."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def state(self, job):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def job(tmp_path):
    return JobRecord("slurm", "7", 0.0, SlurmSettings(), JobFiles(tmp_path))


AWAY = ResourceError("refused", where="squeue", got="Unable to contact slurm controller")


def test_a_question_without_an_answer_is_asked_again_and_said_once(job, capsys):
    inquiry = Inquiry(Host(State.RUNNING, AWAY, AWAY, State.RUNNING, AWAY, State.ENDED), job)
    found = [inquiry.state() for _ in range(6)]
    assert found == [State.RUNNING, None, None, State.RUNNING, None, State.ENDED]
    away = (
        "note: squeue: refused; got Unable to contact slurm controller; the job may go on, asking again for up to 600 s"
    )
    back = "note: slurm answers again"
    assert capsys.readouterr().err.splitlines() == [away, back, away, back]


def test_patience_ends(job, monkeypatch):
    monkeypatch.setattr(system, "PATIENCE_SECONDS", 0.0)
    inquiry = Inquiry(Host(AWAY, AWAY), job)
    assert inquiry.state() is None
    with pytest.raises(
        ResourceError, match="slurm 7: no answer for 0 s; got squeue: refused.*the job may go on: `dkl status`"
    ):
        inquiry.state()


def test_a_command_that_is_not_there_is_not_waited_for(job):
    host = Host()
    host.state = lambda job: system.answer(["no-such-command"])
    with pytest.raises(ResourceError, match="no-such-command: not found"):
        Inquiry(host, job).state()
