"""The files in cluster/: what they tell Dask, `dkl`, SLURM, Kubernetes and Docker is what these take."""

import re
import shlex
import shutil
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import dask
import pytest
import yaml
from distributed import Security
from distributed.cli.dask_scheduler import main as scheduler_command
from distributed.cli.dask_ssh import main as ssh_command
from distributed.cli.dask_worker import main as worker_command

from dkl.cli.main import dkl
from dkl.resources import parse_bytes
from dkl.runs.jobs import kubernetes
from dkl.runs.jobs.job import NANNY_BYTES, Job
from dkl.runs.jobs.settings import KINDS, job_settings
from dkl.runs.jobs.system import system

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "cluster"
PAGES = sorted(FOLDER.rglob("*.md"))
MANIFESTS = sorted((FOLDER / "kubernetes").glob("[!s]*.yaml")) + [FOLDER / "kubernetes" / "scheduler.yaml"]
COMMANDS = {"scheduler": scheduler_command, "worker": worker_command, "ssh": ssh_command}
SCRIPTS = [FOLDER / "slurm" / "fit.sh", *sorted((Path(__file__).parent / "fakes").glob("system"))]


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def accepted(words: list[str]) -> bool:
    """Whether `dask` or `dkl` knows all options of a command; it is not run."""
    program, *rest = words
    if program == "dask":
        COMMANDS[rest[0]].make_context("dask", [*rest[1:]])
        return True
    assert program == "dkl"
    command: Any = dkl
    context = click.Context(dkl)
    while isinstance(command, click.Group):
        command = command.get_command(context, rest.pop(0))
        assert command is not None, words
    command.make_context(words[1], rest)
    return True


# -- what the pages say to type ---------------------------------------------------------------------------------------------


def typed(page: Path) -> Iterator[list[str]]:
    """The commands that a page shows: in lines of their own, or in a table between backquotes."""
    text = page.read_text().replace("\\\n", " ")
    lines = re.findall(r"^    ((?:dkl|dask) .*)$", text, flags=re.MULTILINE)
    lines += re.findall(r"`((?:dkl|dask) \w+ [^`\[]*--[^`]*)`", text)
    for line in lines:
        words = shlex.split(re.sub(r"\s#.*", "", line))
        if "..." in words:  # stands for a learner and its files
            words[words.index("...") : words.index("...") + 1] = ["svc", "--data", "X.npz", "--out", "run.zarr"]
            words = [word for word in words if word != "TASK"]
        yield words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.parent.name))
def test_what_is_to_be_typed_is_understood(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ca.pem", "cert.pem", "key.pem"):  # Dask's commands look for them
        (tmp_path / name).touch()
    commands = [[word.replace("/scratch", str(tmp_path)) for word in words] for words in typed(page)]
    assert all(map(accepted, commands))
    assert commands or page.parent.name in ("containers",)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.parent.name))
def test_a_page_names_the_tests_that_run_it_and_versions(page: Path) -> None:
    named = re.findall(r"(tests/[\w/]+\.py)", page.read_text())
    assert named and all((ROOT / name).is_file() for name in named)
    assert re.search(r"\b\d+\.\d+", page.read_text())


def test_certificates_made_as_the_page_says_let_each_other_in(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    (command,) = re.findall(r"^    (openssl .*)$", (FOLDER / "README.md").read_text(), flags=re.MULTILINE)
    for part in command.split(" && "):
        subprocess.run(shlex.split(part), cwd=tmp_path, check=True, capture_output=True, timeout=120)
    pem = {name: str(tmp_path / f"{name}.pem") for name in ("ca", "cert", "key")}
    roles = {f"tls_{role}_{part}": pem[part] for role in ("scheduler", "client") for part in ("cert", "key")}
    security = Security(require_encryption=True, tls_ca_file=pem["ca"], **roles)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = security.get_connection_args("client")["ssl_context"].wrap_bio(to_client, to_server)
    server = security.get_listen_args("scheduler")["ssl_context"].wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert client.version() == server.version() is not None
    assert server.getpeercert() and client.getpeercert()  # each has seen the other's


# -- files ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_what_submit_is_told_is_understood(name: str) -> None:
    found, settings = job_settings(str(FOLDER / name / "submit.yaml"))
    assert found == name and settings != KINDS[name]


def test_the_settings_of_the_page_are_all_that_every_system_takes() -> None:
    (block,) = re.findall(r"\n\n((?:    .*\n)*    system: slurm\n(?:    .*\n)*)", (FOLDER / "README.md").read_text())
    shown = yaml.safe_load(block)
    common = set.intersection(*(set(vars(kind())) for kind in KINDS.values()))
    assert set(shown) - {"system"} == common


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shell_scripts(script: Path) -> None:
    subprocess.run(["bash", "-n", str(script)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "--severity=warning", str(script)], check=True)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("workers", [None, 3])
@pytest.mark.parametrize("in_store", [False, True])
def test_scripts_of_jobs(
    name: str, workers: int | None, in_store: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a path that a shell would take apart."""
    monkeypatch.setattr(kubernetes, "_user", lambda: (1000, 1000))
    _, settings = job_settings(str(FOLDER / name / "submit.yaml"))
    settings = settings.changed(mount=str(tmp_path)) if name == "kubernetes" else settings
    folder = tmp_path / "a 'b' $c"
    run = "s3://bucket/a 'b' $c" if in_store else str(folder)
    job = Job(run, folder / "job", name, settings, workers, 10**9 if workers else None)
    text = system(name).write(job)["job.sh"]
    (tmp_path / "job.sh").write_text(text)
    test_shell_scripts(tmp_path / "job.sh")
    calls = re.findall(r'"\$python" -m (?:dkl\.cli\.main|dask) .*', text.replace("\\\n", " "))
    assert len(calls) == (3 if workers else 1)
    # A run in a store is worked on where the workers see it.
    assert text.count('supervise env TMPDIR="$job" "$python" -m dkl.cli.main resume') == bool(in_store and workers)
    for call in calls:
        words = shlex.split(call.removesuffix("&"))[2:]
        words = [word.replace("$job", str(tmp_path)) for word in words]
        made = [Path(word) for word in words if word.endswith(".pem")]
        for path in made:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        assert accepted(["dkl" if "dkl" in words[0] else "dask", *words[1:]])


def test_workers_of_dask_jobqueue(interrupts: None) -> None:  # it sets a handler of Ctrl-C as it is imported
    jobqueue = pytest.importorskip("dask_jobqueue.slurm", reason="dask-jobqueue is not installed")
    (given,) = documents(FOLDER / "slurm" / "jobqueue.yaml")
    with dask.config.set(dask.config.merge(dask.config.config, given)):  # as its files are read
        security = Security()
        made = jobqueue.SLURMJob("tls://10.0.0.1:8786", name="1", protocol="tls://", security=security)
    lines = made.job_script().splitlines()
    words = shlex.split(next(line for line in lines if "dask_worker" in line))
    given = {name: words[words.index(name) + 1] for name in ("--memory-limit", "--lifetime", "--lifetime-stagger")}
    directives = dict(re.findall(r"^#SBATCH (-\w|--[\w-]+)[ =](.*)$", "\n".join(lines), flags=re.MULTILINE))
    hours, minutes, _ = map(int, directives["-t"].split(":"))
    leaves = int(given["--lifetime"][:-1]) + int(given["--lifetime-stagger"][:-1])
    assert given["--lifetime"][-1] == given["--lifetime-stagger"][-1] == "m" and leaves < 60 * hours + minutes
    limit, room = parse_bytes(given["--memory-limit"]), parse_bytes(f"{directives['--mem']}iB")  # SLURM's M is 2^20
    assert room is not None and limit is not None and room >= limit + NANNY_BYTES
    # The node's shell is to expand it; certificates are files of the client's machine.
    words = [word for word in words[3:] if word not in ("${TMPDIR:-/tmp}", "--local-directory")]
    assert "--nthreads 1" in " ".join(words) and "${TMPDIR:-/tmp}" in "\n".join(lines)


# -- Kubernetes -------------------------------------------------------------------------------------------------------------


def pods(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods that a document describes."""
    spec = document["spec"]
    if document["kind"] == "DaskCluster":
        return [spec["worker"]["spec"], spec["scheduler"]["spec"]]
    return [spec["template"]["spec"]] if "template" in spec else []


@pytest.mark.parametrize("path", sorted(set(MANIFESTS) - {FOLDER / "kubernetes" / "submit.yaml"}), ids=lambda p: p.stem)
def test_manifests(path: Path, tmp_path: Path) -> None:
    """What their schemas do not say, which test_kubernetes.py holds them to."""
    for document in documents(path):
        if "selector" in document["spec"] and "template" in document["spec"]:
            labels = document["spec"]["template"]["metadata"]["labels"]
            assert document["spec"]["selector"]["matchLabels"].items() <= labels.items()
        for pod in pods(document):
            check_pod(pod, tmp_path)


def check_pod(pod: dict[str, Any], folder: Path) -> None:
    """Its parts have their names, volumes are there, its command is understood, its memory has room for the nanny."""
    volumes = {volume["name"] for volume in pod["volumes"]}
    for container in pod["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        words = [word.replace("/tls/", f"{folder}/") for word in container["command"]]
        for name in ("ca", "cert", "key"):
            (folder / f"{name}.pem").touch()
        if words[0] == "dask":
            assert accepted(words)
        if "--memory-limit" in words:
            limit = parse_bytes(words[words.index("--memory-limit") + 1])
            room = parse_bytes(container["resources"]["limits"]["memory"])
            assert limit is not None and room is not None and room >= limit + NANNY_BYTES


def test_the_client_of_the_manifests_fits_once_and_then_resumes(tmp_path: Path) -> None:
    (document,) = documents(FOLDER / "kubernetes" / "fit.yaml")
    command = document["spec"]["template"]["spec"]["containers"][0]["command"]
    check_client(command, "/data", tmp_path)


def test_compose(tmp_path: Path) -> None:
    """The client's shell is run with a `dkl` that says what it was called with."""
    (found,) = documents(FOLDER / "containers" / "compose.yaml")
    services = found["services"]
    assert set(services) == {"scheduler", "worker", "client"}
    assert all(set(service["networks"]) <= set(found["networks"]) for service in services.values())
    for name in ("scheduler", "worker"):
        words = shlex.split(services[name]["command"].replace("/tls/", f"{tmp_path}/"))
        for file in ("ca", "cert", "key"):
            (tmp_path / f"{file}.pem").touch()
        assert accepted(words)
    limit, room = parse_bytes("3GB"), parse_bytes(services["worker"]["mem_limit"])
    assert "--memory-limit 3GB" in services["worker"]["command"]
    assert limit is not None and room is not None and room >= limit + NANNY_BYTES
    shell = [
        re.sub(r"\$\{(\w+):[?-][^}]*\}", r"${\1}", word).replace("$$", "$") for word in services["client"]["command"]
    ]
    check_client(shell, "/data", tmp_path, WORKERS="2", FIT="svc --data /data/X.npz")


def check_client(command: list[str], data: str, folder: Path, **environment: str) -> None:
    """A client's command, with `dkl` in its place: it fits where there is no run, and else resumes."""
    stand_in = folder / "dkl"
    stand_in.write_text('#!/bin/sh\necho dkl "$@"\n')
    stand_in.chmod(0o700)
    command = [word.replace(f"{data}/", f"{folder}/").replace("/tls/", f"{folder}/") for word in command]
    environment = {name: value.replace(f"{data}/", f"{folder}/") for name, value in environment.items()}
    environment["PATH"] = f"{folder}:/usr/bin:/bin"

    def called() -> list[str]:
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()

    first = called()
    assert first[:3] == ["dkl", "fit", "svc"] and accepted(first)
    (folder / "run.zarr").mkdir()
    (folder / "run.zarr" / "config.json").touch()
    second = called()
    assert second[:3] == ["dkl", "resume", f"{folder}/run.zarr"] and accepted(second)


def test_the_image_has_what_it_is_made_from() -> None:
    lines = (FOLDER / "containers" / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    assert next(line for line in lines if line and line[0] != "#").startswith("FROM python:")
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1]]
    assert {"pyproject.toml", "dkl"} <= set(copied) and all((ROOT / name).exists() for name in copied)
    (extras,) = (line.partition("=")[2].split(",") for line in lines if line.startswith("ARG EXTRAS="))
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"s3", "knn"} <= set(extras) <= set(known)
    version = re.search(r"FROM python:3\.(\d+)", "\n".join(lines))
    assert version is not None and int(version[1]) >= 11 and sys.version_info >= (3, 11)
