"""The `dkl` command, whose object store is killed just before the result of a run is written, and which waits for it as told."""

import os
import signal
import sys
from typing import Any


def main() -> None:
    """Run with the arguments: seconds of patience, the number of the store's process, and those of `dkl`."""
    from dkl.cli.main import main as command
    from dkl.stores import remote as published
    from dkl.stores.run import RunStore

    published.STORE_SECONDS, published.RETRY_SECONDS = float(sys.argv.pop(1)), 0.2
    store, write = int(sys.argv.pop(1)), RunStore.write_arrays

    def write_arrays(self: RunStore, folder: str, arrays: dict[str, Any]) -> None:
        if folder == "model":
            os.kill(store, signal.SIGKILL)
        write(self, folder, arrays)

    RunStore.write_arrays = write_arrays  # type: ignore[method-assign]
    command()
