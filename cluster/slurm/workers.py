"""Workers of SLURM by dask-jobqueue, as ~/.config/dask/jobqueue.yaml says: `python workers.py scheduler.json 8`.

Writes the scheduler's address to the file, keeps that many workers and ends with SIGTERM or Ctrl-C.
"""

import json
import os
import signal
import sys
from pathlib import Path

import dask
from dask_jobqueue import SLURMCluster
from distributed import Security


def main(file: str, count: int) -> None:
    """Certificates are those of Dask's configuration."""
    tls = dask.config.get("distributed.comm.tls")
    for part in (tls, tls["scheduler"], tls["worker"], tls["client"]):
        part.update({name: os.path.expanduser(path) for name, path in part.items() if isinstance(path, str)})
    with SLURMCluster(security=Security(), protocol="tls://") as cluster:
        # As many always: whoever goes is asked for anew, and none goes for want of work.
        cluster.adapt(minimum=count, maximum=count)
        partial = Path(f"{file}.partial")
        partial.write_text(json.dumps({"address": cluster.scheduler_address}))
        partial.rename(file)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})  # before any thread: for sigwait
    main(sys.argv[1], int(sys.argv[2]))
