"""A store that is none, foreign, half written, damaged or in use: one line, the right exit code, nothing changed."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from command_line import FIT, call, factor_bytes, tree
from repeats import crossed
from resealed import write_config

from dkl.stores.run import RunStore
from dkl.stores.seals import read_json, write_json

COMMANDS = {
    "resume": ["resume", "run.zarr"],
    "info": ["info", "run.zarr"],
    "info --json": ["info", "run.zarr", "--json"],
    "verify": ["verify", "run.zarr"],
    "transform": ["transform", "run.zarr", "--data", "X.npz", "--out", "new.npz"],
}


def edited(name: str, change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """A store of which one JSON file says something else, with its checksum right."""

    def spoil(run: Path) -> None:
        content = read_json(run / name)
        change(content)
        if name == "config.json":
            write_config(run, content)
        else:
            (write_json if name != "zarr.json" else _plain)(run / name, content)

    return spoil


def _plain(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content))


def emptied(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()


def other_zarr(run: Path) -> None:
    shutil.rmtree(run)
    zarr.create_group(str(run), attributes={"kind": "anndata"})


def array(run: Path) -> None:
    shutil.rmtree(run)
    zarr.create_array(str(run), shape=(3, 3), dtype="f8")[...] = 1.0


def overwritten(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda run: (run / name).write_bytes(content) and None


NO_RUN: dict[str, tuple[Callable[[Path], Any], int]] = {
    "nothing there": (shutil.rmtree, 2),
    "a file": (lambda run: (shutil.rmtree(run), run.write_text("mine")), 2),
    "an empty folder": (emptied, 6),
    "a zarr group of others": (other_zarr, 6),
    "a zarr array": (array, 6),
    "half written": (lambda run: (run / "config.json").unlink(), 6),
    "of another version": (edited("zarr.json", lambda root: root["attributes"].update(version=99)), 6),
    "of another kind": (edited("zarr.json", lambda root: root["attributes"].update(kind="dkl-else")), 6),
    "no attributes": (edited("zarr.json", lambda root: root.pop("attributes")), 6),
    "attributes a list": (edited("zarr.json", lambda root: root.update(attributes=[1])), 6),
    "root empty": (overwritten("zarr.json", b""), 6),
    "root deep": (overwritten("zarr.json", b"[" * 100_000), 6),
    "config empty": (overwritten("config.json", b""), 6),
    "config cut": (lambda run: os.truncate(run / "config.json", 100), 6),
    "config a list": (overwritten("config.json", b"[1, 2]"), 6),
    "config not UTF-8": (overwritten("config.json", b"\xff\xfe{}"), 6),
    "config altered": (
        lambda run: (run / "config.json").write_text((run / "config.json").read_text().replace("100.0", "200.0")),
        6,
    ),
    "no settings": (edited("config.json", lambda config: config.pop("settings")), 6),
    "settings a list": (edited("config.json", lambda config: config.update(settings=[])), 6),
    "unknown setting": (edited("config.json", lambda config: config["settings"].update(gama=1.0)), 6),
    "setting of another type": (edited("config.json", lambda config: config["settings"].update(rank="all")), 6),
    "setting out of range": (edited("config.json", lambda config: config["settings"].update(gamma=-1.0)), 6),
}


@pytest.mark.parametrize(("case", "command"), crossed(list(NO_RUN), list(COMMANDS)))
def test_what_is_no_run(case: str, command: str, run: Path, work: Path) -> None:
    spoil, code = NO_RUN[case]
    spoil(run)
    before = tree(work)
    answer = call(*COMMANDS[command])
    assert (answer.code, len(answer.err.splitlines())) == (code, 1), answer.err
    assert "run.zarr" in answer.err
    assert tree(work) == before


def chunks(run: Path, folder: str) -> list[Path]:
    return sorted(path for path in (run / folder).rglob("*") if path.is_file() and path.name != "zarr.json")


def without_chunk(folder: str) -> Callable[[Path], None]:
    return lambda run: chunks(run, folder)[0].unlink()


def flipped(folder: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        chunk = chunks(run, folder)[0]
        content = bytearray(chunk.read_bytes())
        content[len(content) // 2] ^= 4
        chunk.write_bytes(content)

    return spoil


def as_folder(folder: str) -> Callable[[Path], None]:
    def spoil(run: Path) -> None:
        chunk = chunks(run, folder)[0]
        chunk.unlink()
        chunk.mkdir()

    return spoil


DAMAGED: dict[str, tuple[Callable[[Path], Any], str]] = {
    **{f"{part}, a chunk gone": (without_chunk(part), "verify") for part in ("factor", "graph", "pairs/must_link")},
    **{f"{part}, a bit flipped": (flipped(part), "verify") for part in ("factor", "graph", "pairs/cannot_link")},
    **{f"{part}, a chunk a folder": (as_folder(part), "verify") for part in ("factor", "graph", "pairs/must_link")},
    "factor gone": (lambda run: shutil.rmtree(run / "factor"), "verify"),
    "factor's metadata empty": (overwritten("factor/zarr.json", b""), "verify"),
    "report cut": (lambda run: os.truncate(run / "report.json", 30), "info"),
    "report empty": (overwritten("report.json", b""), "resume"),
    "certificate gone": (edited("report.json", lambda report: report.pop("certificate")), "info"),
    "certificate in words": (edited("report.json", lambda report: report.update(certificate="good")), "verify"),
    "objective altered": (
        edited("report.json", lambda report: report["certificate"].update(objective=1.0)),
        "verify",
    ),
    "gap altered": (edited("report.json", lambda report: report["certificate"].update(gap=1e-9)), "verify"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damage(case: str, run: Path, work: Path) -> None:
    spoil, command = DAMAGED[case]
    spoil(run)
    before = tree(work)
    answer = call(*COMMANDS[command])
    assert (answer.code, len(answer.err.splitlines())) == (6, 1), answer.err or answer.out
    assert tree(work) == before


@pytest.mark.parametrize("spoil", [without_chunk("factor"), flipped("factor")])
def test_transform_reads_no_damaged_factor(spoil: Callable[[Path], None], run: Path, work: Path) -> None:
    spoil(run)
    assert call(*COMMANDS["transform"]).code == 6
    assert not (work / "new.npz").exists()
    assert not list(work.glob(".*partial"))


def test_a_run_in_use_names_its_holder(run: Path) -> None:
    (run / "report.json").unlink()
    holder = RunStore.open(run)
    holder.lock()
    try:
        before = tree(run)
        answer = call("resume", "run.zarr")
        assert answer.code == 2
        assert f"pid {os.getpid()}" in answer.err
        assert tree(run) == before
    finally:
        holder.close()


def test_a_missing_result_is_made_again(run: Path) -> None:
    result = factor_bytes(run)
    shutil.rmtree(run / "factor")
    (run / "report.json").unlink()
    answer = call("resume", "run.zarr")
    assert answer.code == 0, answer.err
    assert factor_bytes(run) == result


def test_a_missing_graph_is_built_again_from_the_data(run: Path) -> None:
    result = factor_bytes(run)
    for name in ("graph", "pairs", "generations"):
        shutil.rmtree(run / name)
    (run / "report.json").unlink()
    assert "not started" in call("info", "run.zarr").out
    assert call("resume", "run.zarr").code == 0
    assert factor_bytes(run) == result


def test_a_graph_is_not_built_from_other_data(run: Path, work: Path) -> None:
    config = RunStore.open(run).config
    config["inputs"]["data"]["path"] = str(work / "X.npz")
    write_json(run / "config.json", config)
    shutil.rmtree(run / "graph")
    (run / "report.json").unlink()
    np.savez(work / "X.npz", X=np.random.default_rng(3).standard_normal((60, 6)))
    answer = call("resume", "run.zarr")
    assert answer.code == 2
    assert str(work / "X.npz") in answer.err


def test_fit_never_touches_a_run_that_exists(run: Path, work: Path) -> None:
    before = tree(work)
    answer = call(*FIT)
    assert answer.code == 2
    assert "never overwritten" in answer.err
    assert tree(work) == before
