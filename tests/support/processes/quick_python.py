"""A `python` for job scripts of tests that need not import anything: what it is told to run is forked from `preloaded`.

It takes `-m dkl.cli.main ...`, `-m dask ...` and scripts; workers go without the process that watches over them, which would have to
import all once more.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from preloaded import FORKS, _run

FRONT = """\
#!{python} -SE
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
streams = [f"/proc/{{os.getpid()}}/fd/{{number}}" for number in (1, 2)]
request = {{"arguments": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ), "streams": streams}}
answers = server.makefile("rw")
# One that comes before there is a process is answered as Python does: by ending.
print(json.dumps(request), file=answers, flush=True)
pid = int(answers.readline())
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
sys.exit(int(answers.readline()) % 256)
"""


@contextmanager
def quick_python(folder: Path) -> Iterator[Path]:
    """The path of such a `python`, as long as this is entered."""
    front, address = folder / "python", str(folder / "socket")
    front.write_text(FRONT.format(python=sys.executable, address=address))
    front.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        running: set[Any] = set()
        threading.Thread(target=_serve, args=[server, running], daemon=True).start()
        try:
            yield front
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for process in list(running):  # of a test that has failed
                process.kill()
                process.join()


def _serve(server: socket.socket, running: set[Any]) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:  # it is shut down
            return
        threading.Thread(target=_answer, args=[connection, running], daemon=True).start()


def _answer(connection: socket.socket, running: set[Any]) -> None:
    with connection, connection.makefile() as stream:
        if not (request := stream.readline()):  # who asked has been killed before a word
            return
        given: dict[str, Any] = json.loads(request)
        program, arguments = _program(given["arguments"])
        call = (program, tuple(arguments), given["folder"], given["environment"], given["streams"])
        process = FORKS.Process(target=_run, args=call)
        process.start()
        running.add(process)
        _say(connection, process.pid)
        if connection in wait([process.sentinel, connection]):  # who asked has been killed, and this goes with it
            process.kill()
        process.join()
        running.discard(process)
        _say(connection, process.exitcode)


def _say(connection: socket.socket, number: int) -> None:
    with suppress(OSError):  # nobody listens any more
        connection.sendall(f"{number}\n".encode())


def _program(words: list[str]) -> tuple[Callable[[], None], list[str]]:
    """What these arguments of Python's stand for, and its own arguments."""
    if words[0] != "-m":
        return _script, words
    module, *arguments = words[1:]
    if "distributed.cli.dask_worker" in module:
        return _worker, [*arguments, "--no-nanny"]
    if arguments[0] == "worker":
        arguments.append("--no-nanny")
    return {"dask": _dask, "dkl.cli.main": _dkl}[module], arguments


def _configured() -> None:
    """Dask's configuration is that of this process: what it was forked from had other variables."""
    import dask

    folder = os.environ.get("DASK_CONFIG")
    dask.config.refresh(**({} if folder is None else {"paths": [folder]}))


def _script() -> None:
    _configured()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


def _worker() -> None:
    from distributed.cli.dask_worker import main

    _configured()
    main()


def _dask() -> None:
    from dask.__main__ import main

    _configured()
    main()


def _dkl() -> None:
    from dkl.cli.main import main

    _configured()
    main()
