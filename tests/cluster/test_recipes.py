"""Clusters that their owner starts by Dask's own commands: the pages' lines as they are written, by processes on 127.0.0.1."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from command_line import call, factor_bytes
from dask_processes import wait_until
from patience import PATIENCE
from run_cases import CASES

from dkl.stores.run import RunStore

PAGES = Path(__file__).parents[2] / "cluster"
PROGRAMS = {"dask": [sys.executable, "-m", "dask"], "dkl": [sys.executable, "-m", "dkl.cli.main"]}
PAIRS = CASES["pairwise"]
SMALL = (*PAIRS.options, "--rank", "40", "--max-iter", "5", "--no-picture")  # slabs enough for two workers
FEW = {"--nworkers 4": "--nworkers 2", "--wait-for 4": "--wait-for 2", "--memory-limit 4GB": "--memory-limit 1GB"}
"""What a page's lines are run with in place of what they say, for the size of the machine."""


def commands(page: str, heading: str = "") -> list[str]:
    """The commands that a section of a page shows, or all of the page, in its order."""
    text = (PAGES / page).read_text().replace("\\\n", " ")
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)
    assert section is not None or not heading
    shown = section[1] if heading and section is not None else text
    lines = re.findall(r"^    ((?:dkl|dask|openssl) .*)$", shown, flags=re.MULTILINE)
    for word, other in FEW.items():
        lines = [line.replace(word, other) for line in lines]
    return [line.replace("/scratch", ".") for line in lines]


@contextmanager
def started(folder: Path, environment: dict[str, str], *lines: str) -> Iterator[Callable[[], str]]:
    """`dask scheduler` and `dask worker` as they are typed, but on 127.0.0.1 alone; they end with the block, and what they start."""
    here, log = " --host 127.0.0.1", folder / "dask.log"
    running = []
    try:
        for line in lines:
            program, *options = shlex.split(line if "--host" in line else line + here)
            port = ["--port", "0"] if options[0] == "scheduler" else []
            with open(log, "ab") as out:
                command = [*PROGRAMS[program], *options, *port]
                running.append(psutil.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out))
            wait_until((folder / "scheduler.json").is_file)
        yield log.read_text
    finally:
        ending = [process for one in running for process in (*one.children(recursive=True), one)]
        for process in running[::-1]:
            process.terminate()
        for process in psutil.wait_procs(ending, PATIENCE)[1]:
            process.kill()


def fitted(line: str, folder: Path, environment: dict[str, str], log: Callable[[], str]) -> dict[str, Any]:
    """The report of a run that is fitted as it is typed, with other options of the same learner."""
    program, *options = shlex.split(line)
    command = [*PROGRAMS[program], *options, *SMALL]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 3, done.stderr + log()
    return RunStore.open(folder / "run.zarr").report()


@pytest.mark.exhaustive
@pytest.mark.parametrize("by", ["options", "configuration"])
def test_a_cluster_behind_tls(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Certificates by openssl, named in each command or in Dask's configuration; the bytes are those of a fit without a cluster."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    certificates, *_ = commands("README.md", "Who can reach the port owns the account")
    scheduler, worker, fit = commands("README.md", "A cluster that runs")
    subprocess.run(["bash", "-ec", certificates], cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE)
    environment = {**os.environ, "DASK_CONFIG": str(tmp_path / "dask")}
    if by == "configuration":
        (block,) = re.findall(
            r"^    distributed:\n(?:     .*\n)+", (PAGES / "README.md").read_text(), flags=re.MULTILINE
        )
        assert yaml.safe_load(block)["distributed"]["comm"]["require-encryption"] is True
        (tmp_path / "dask").mkdir()
        (tmp_path / "dask" / "distributed.yaml").write_text(block)
        without = r" --tls-\S+ \S+"
        scheduler, worker, fit = (re.sub(without, "", line) for line in (scheduler, worker, fit))
    PAIRS.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    with started(tmp_path, environment, scheduler, worker) as log:
        report = fitted(fit, tmp_path, environment, log)
    assert report["plan"]["processes"] == 2
    assert call("fit", "pairwise", *PAIRS.files, *SMALL, "--threads", "1", "--out", "here.zarr").code == 3
    assert factor_bytes(tmp_path / "run.zarr") == factor_bytes(tmp_path / "here.zarr")


@pytest.mark.exhaustive
def test_a_cluster_of_one_machine(tmp_path: Path) -> None:
    scheduler, worker, fit = (line for line in commands("one-machine/README.md") if "scheduler" in line)
    PAIRS.write(tmp_path)
    pairs = fit.replace("svc", "pairwise --pairs pairs.csv")
    with started(tmp_path, dict(os.environ), scheduler, worker) as log:
        assert fitted(pairs, tmp_path, dict(os.environ), log)["plan"]["processes"] == 2
