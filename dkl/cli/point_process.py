"""`dkl` as a point of a sweep, which ends with it: `python -m dkl.cli.point_process WORDS`.

Standard input is a pipe whose other end the sweep holds. Nothing comes through it; it ends when the sweep does, also by
SIGKILL. The fit then gets SIGTERM: it commits what it has done and releases its run, which a restarted sweep resumes.
"""

from __future__ import annotations

import os
import signal
import threading

from dkl.cli import main as command


def end_with_sweep(descriptor: int) -> None:
    """Read the pipe until it ends, then SIGTERM to this process."""
    while os.read(descriptor, 64):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run the command, next to a thread that waits for the end of the sweep."""
    threading.Thread(target=end_with_sweep, args=(0,), daemon=True, name="sweep").start()
    command.main()


if __name__ == "__main__":
    main()
