"""A SLURM of two nodes on 127.0.0.1: Debian's slurmctld and slurmd, with a configuration of their own and no service of the system."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import psutil
import pytest
from patience import PATIENCE
from seaweed_server import free_ports

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "squeue", "scancel", "srun")
PATH = f"{os.environ.get('PATH', '')}{os.pathsep}/usr/sbin"
CONFIG = """\
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
OverTimeLimit=0
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=4 RealMemory=9000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=4 RealMemory=9000
PartitionName=batch Nodes=n1,n2 Default=YES MaxTime=1-00:00:00 DefMemPerCPU=500
PartitionName=short Nodes=n1,n2 MaxTime=00:10:00 DefMemPerCPU=500
"""


class Slurm:
    """A controller and two nodes of four processors; partitions `batch` and `short`, the latter of ten minutes."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / "slurm.conf"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        control, first, second = free_ports(3)
        host = socket.gethostname().partition(".")[0]
        given = {"control": control, "first": first, "second": second, "host": host, "user": getpass.getuser()}
        self.config.write_text(CONFIG.format(folder=folder, **given))
        (folder / "state").mkdir()

    @property
    def environment(self) -> dict[str, str]:
        """What its commands have in theirs."""
        return {"SLURM_CONF": str(self.config)}

    def start(self) -> None:
        """Start it, and wait until both nodes take jobs."""
        self.start_controller()
        for name in ("n1", "n2"):
            (self.folder / name).mkdir(exist_ok=True)
            self._begin(name, "slurmd", "-N", name)
        end = monotonic() + PATIENCE
        while self.asked("sinfo", "--noheader", "--Node", "--partition=batch", "--format=%t").split() != ["idle"] * 2:
            assert monotonic() < end and all(one.poll() is None for one in self._processes.values()), self.logs()
            sleep(0.1)

    def start_controller(self) -> None:
        """Start the controller, which remembers its jobs, and wait until it answers."""
        self._begin("slurmctld", "slurmctld")
        end = monotonic() + PATIENCE
        while not self.asked("sinfo", "--noheader"):
            assert monotonic() < end and self._processes["slurmctld"].poll() is None, self.logs()
            sleep(0.1)

    def stop_controller(self) -> None:
        """End the controller; jobs go on."""
        process = self._processes.pop("slurmctld")
        process.terminate()
        process.wait()

    def processes(self) -> set[psutil.Process]:
        """Return its programs that run, and what they have started."""
        own = [psutil.Process(process.pid) for process in self._processes.values() if process.poll() is None]
        return {*own, *(child for process in own for child in process.children(recursive=True))}

    def _begin(self, name: str, program: str, *options: str) -> None:
        found = shutil.which(program, path=PATH)
        assert found is not None
        with open(self.folder / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                [found, "-D", "-f", str(self.config), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
            )

    def asked(self, *command: str) -> str:
        """Return what one of its commands prints; nothing where the controller does not answer."""
        environment = os.environ | self.environment
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout

    def logs(self) -> str:
        """Return the last words of all its programs."""
        return "\n".join(f"== {path.name}\n{path.read_text()[-2000:]}" for path in self.folder.glob("*.log"))

    def stop(self) -> None:
        """End all jobs, and it. Where its controller is away it is started again: nothing else can end jobs."""
        if "n1" in self._processes and "slurmctld" not in self._processes:
            self.start_controller()
        if "slurmctld" in self._processes:
            self.asked("scancel", "--user", getpass.getuser())
            end = monotonic() + PATIENCE
            while self.asked("squeue", "--noheader").strip() and monotonic() < end:
                sleep(0.1)
        for process in reversed(self._processes.values()):
            process.terminate()
            process.wait()


@contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """A cluster, which ends with the block; a skip where SLURM is missing."""
    for program in PROGRAMS:
        if shutil.which(program, path=PATH) is None:
            pytest.skip(f"no {program} of SLURM: apt-get install slurm-wlm")
    cluster = Slurm(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
