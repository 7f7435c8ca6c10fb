"""The watch over child processes works, and the shared cluster is what conftest says."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE


def test_cluster_is_two_worker_processes_on_loopback(client: Any) -> None:
    workers = client.scheduler_info(n_workers=-1)["workers"]
    assert len(workers) == 2
    assert all(address.startswith("tcp://127.0.0.1:") and info["nthreads"] == 1 for address, info in workers.items())
    pids = client.run(os.getpid)
    assert len({*pids.values(), os.getpid()}) == 3


def test_client_is_not_current_for_others() -> None:
    from distributed import get_client

    with pytest.raises(ValueError, match="No global client"):
        get_client()


@pytest.mark.exhaustive
def test_orphans_are_noticed_and_ended(tmp_path: Path) -> None:
    for module in [Path(__file__).parent / "conftest.py", *(Path(__file__).parent / "support").rglob("*.py")]:
        if not module.name.startswith("test_"):
            shutil.copy(module, tmp_path)
    (tmp_path / "test_orphan.py").write_text(
        "import pathlib, subprocess, sys\n"
        "def test_orphan():\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'])\n"
        "    pathlib.Path('pid').write_text(str(child.pid))\n"
    )
    inner = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", "test_orphan.py"]
    run = subprocess.run(inner, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    for words in ("1 passed", "1 error", "left child processes behind"):
        assert words in run.stdout
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
