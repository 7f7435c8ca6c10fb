"""Inputs of every format, changed at random: bad input in one line, at once, or a fit; never a bug, a hang or a gigabyte.

`pytest -m slow -n0 -s tests/cli/test_mutated_input.py` makes 2,000 of them and prints the table.
"""

from pathlib import Path

import hostile_trials
import pytest
import trials
from command_line import call

FEW, MANY = 26, 2000


def check(folder: Path, count: int) -> None:
    hostile_trials.write_formats(folder)
    formats = hostile_trials.FORMATS
    specs = [(str(folder), formats[seed % len(formats)], seed) for seed in range(count)]
    found = trials.run("hostile_trials.mutated_input", specs)
    print("\n" + trials.table(found, lambda spec: spec[1]))
    print(f"at most {max(outcome.bytes for outcome in found) / 1e6:.0f} MB more than before")
    assert not [outcome for outcome in found if outcome.is_bad or outcome.is_large]
    assert {outcome.told for outcome in found} >= {"exit 0", "exit 2"}


@pytest.mark.exhaustive
def test_a_few(tmp_path: Path) -> None:
    check(tmp_path, FEW)


@pytest.mark.slow
def test_many(tmp_path: Path) -> None:
    check(tmp_path, MANY)


def test_a_header_of_python_2_is_read_without_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy warns of one that says 24L, and reads it."""
    hostile_trials.write_formats(tmp_path)
    monkeypatch.chdir(tmp_path)
    content = Path("X.npy").read_bytes()
    assert b"(24, 3), }  " in content
    Path("X.npy").write_bytes(content.replace(b"(24, 3), }  ", b"(24L, 3L), }"))
    with pytest.warns(UserWarning, match="Python 2"):
        hostile_trials.np.load("X.npy")
    answer = call("plan", "svc", "--data", "X.npy", "--targets", "labels.csv", "--out", "run.zarr")
    assert (answer.code, answer.err) == (0, "note: labels.csv: line 1 names the 24 targets\n")
