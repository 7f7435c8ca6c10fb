"""Names of files as commands print them: no control character reaches the terminal, and no name breaks a line."""

import re
from pathlib import Path

import numpy as np
import pytest
from command_line import call

from dkl.datasets import read_table
from dkl.errors import InputError, MemoryBudgetError, printable

DATA, RUN = "a\x1b[31mred\nb.npz", "r\x1b[2J\nn.zarr"
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def test_every_text_is_of_printable_characters() -> None:
    every = "".join(map(chr, range(0x3000))) + "\udc80é雪\u202e"
    shown = printable(every)
    assert not RAW.search(shown) and "\n" not in shown and "é雪" in shown and shown.endswith("\\u202e")
    assert printable("a\n\tb", lines=True) == "a\n\tb"
    assert printable("plain: é, 雪 \\n") == "plain: é, 雪 \\n"


def test_names_in_what_commands_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).standard_normal((40, 3)) + 4 * (np.arange(40) % 2)[:, None]
    np.savez(DATA, X=X, y=np.arange(40) % 2)
    Path("t\x07.csv").write_text("a\x1bb,c\n1,2\nx,4\n")
    for wanted, arguments in (
        (r"r\x1b[2J\nn.zarr: solved", ("fit", "svc", "--data", DATA, "--out", RUN, "--no-picture")),
        (r"a\x1b[31mred\nb.npz", ("info", RUN)),
        (r"r\x1b[2J\nn.zarr", ("verify", RUN)),
        (r"p\x07.csv: 40 labels", ("predict", RUN, "--data", DATA, "--out", "p\x07.csv")),
        (r"r\x1b[2J\nn.zarr: complete, nothing to do", ("resume", RUN)),
        (r"none\x1b[m\n.npz: no such file", ("fit", "svc", "--data", "none\x1b[m\n.npz", "--out", "x.zarr")),
        (r"t\x07.csv, line 3, column 1 ('a\x1bb')", ("fit", "mvu", "--data", "t\x07.csv", "--out", "x.zarr")),
    ):
        answer = call(*arguments)
        assert wanted in answer.out + answer.err, answer
        assert not RAW.search(answer.out + answer.err), answer


def test_names_in_errors_and_not_in_their_parts() -> None:
    with pytest.raises(InputError, match=r"no\\x1b\[m\\n.csv: no such file") as caught:
        read_table("no\x1b[m\n.csv")
    assert caught.value.where == "no\x1b[m\n.csv"
    assert str(MemoryBudgetError("no room\nfor it", got="\x9b1m")) == r"no room for it; got \x9b1m"


def test_nothing_is_printed_past_the_escapes() -> None:
    folder = Path(__file__).parents[2] / "dkl"
    found = {
        str(file.relative_to(folder)): file.read_text().count("click.echo(")
        for part in ("runs", "cli")
        for file in (folder / part).rglob("*.py")
    }
    # Wipes of a line, and a log of what was printed before.
    known = {"runs/interrupt.py": 1, "cli/main.py": 1, "runs/sweep/sweep.py": 2, "runs/jobs/verbs.py": 1}
    assert {name: count for name, count in found.items() if count} == known
