"""`dkl sweep` whose points are forked from it, with all that it has imported: what it does with processes is the same."""

import os
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import IO

from dkl.cli.main import main as dkl
from dkl.runs.sweep import points


def main() -> None:
    """What a `Forked` runs."""
    points.start = _forked
    dkl()


def _forked(words: Sequence[str], output: IO[bytes], alive: int) -> SimpleNamespace:
    number = os.fork()
    if number == 0:
        os.setsid()
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
        for signal in (points.signal.SIGINT, points.signal.SIGTERM):
            points.signal.signal(signal, points.signal.SIG_DFL)
        points.signal.signal(points.signal.SIGINT, points.signal.default_int_handler)
        sys.argv = ["dkl", *words]
        code = 1
        try:
            dkl()
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    return SimpleNamespace(pid=number, returncode=None)
