"""Files of a run that are well sealed and say what nobody wrote: a damaged store or bad input, never a bug of ours.

Every value in them is changed in turn, a seeded sample of them, and all that reads a run is asked. `pytest -m slow` takes
more of them, and resumes too.
"""

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import call, factor_bytes, tree, write_inputs
from command_runs import refused
from mutations import changed
from repeats import but_for
from resealed import write_config

from dkl.estimators.pairwise.store import load_problem
from dkl.stores.run import RunStore
from dkl.stores.seals import read_json, write_json

FITS = {
    "pairwise": ["--solver", "admm", "--pairs", "pairs.csv", "--checkpoint-every", "20", "--max-iter", "50"],
    "regression": ["--nu", "0.1", "--checkpoint-every", "1"],
    "svc": ["--checkpoint-every", "1"],
}
VALUES: list[Any] = [None, [], {}, "x", -1, 10**400, float("nan"), True, [[1]], {"a": 1}, "../../x"]
FEW, MANY = 3, 60
"""Changes of a file."""


@pytest.fixture(scope="module", params=but_for(FITS.keys() - {"pairwise"}, FITS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete run, and the same without its report."""
    made = tmp_path_factory.mktemp(request.param)
    write_inputs(made)
    given = [str(made / word) if word.endswith(".csv") else word for word in FITS[request.param]]
    files = ["--data", made / "X.npz", "--out", made / "run.zarr"]
    assert call("fit", request.param, "--no-picture", *given, *files).code in (0, 3)
    shutil.copytree(made / "run.zarr", made / "half.zarr")
    (made / "half.zarr" / "report.json").unlink()
    return made


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values stand in JSON; of long lists the first two."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, part in inner:
        yield from places(part, (*path, key))


def mutations(file: Path, rng: random.Random, count: int) -> Iterator[None]:
    """The file changed in `count` ways, one after the other; as it was at the end."""
    before = file.read_bytes()
    is_log = file.suffix == ".jsonl"
    content = [json.loads(line) for line in before.splitlines()][-3:] if is_log else read_json(file)
    ways = [(path, value) for path in places(content) for value in VALUES]
    for path, value in rng.sample(ways, min(count, len(ways))):
        found = changed(content, path, value)
        if is_log:
            file.write_text("".join(json.dumps(event) + "\n" for event in found))
        else:
            write_json(file, found)
        yield
    file.write_bytes(before)


def outcomes(folder: Path, count: int, *, resumes: bool) -> Counter[str]:
    """Exit codes by verb."""
    found: Counter[str] = Counter()
    apply = "transform" if folder.name.startswith("pairwise") else "predict"
    rng, out = random.Random(0), folder / "new.npz"
    for run in (folder / "run.zarr", folder / "half.zarr"):
        files = [file for file in run.rglob("*.json*") if file.name != "zarr.json" and file.is_file()]
        for file in sorted(files):
            for _ in mutations(file, rng, count):
                verbs = [("info", run), ("info", "--json", run), ("verify", run)]
                verbs.append((apply, run, "--data", folder / "X.npz", "--out", out))
                if resumes:
                    shutil.rmtree(folder / "again.zarr", ignore_errors=True)
                    shutil.copytree(run, folder / "again.zarr")
                    verbs.append(("resume", folder / "again.zarr"))
                for verb in verbs:
                    answer = call(*verb)
                    assert answer.code != 1, (verb, file, answer.err)
                    found[f"{verb[0]} {answer.code}"] += 1
                out.unlink(missing_ok=True)
    return found


def test_a_few(folder: Path) -> None:
    found = outcomes(folder, FEW, resumes=False)
    assert any(code.endswith(" 6") for code in found)


@pytest.fixture
def half(folder: Path, tmp_path: Path) -> Path:
    """A copy of the run without its report."""
    return Path(shutil.copytree(folder / "half.zarr", tmp_path / "half.zarr"))


def test_a_size_without_end_in_a_seal(folder: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(folder / "run.zarr", tmp_path / "run.zarr"))
    manifest = min(run.glob("*/MANIFEST.json"))
    content = read_json(manifest)
    next(iter(content["files"].values()))[0] = float("inf")
    write_json(manifest, content)
    for verb in (("info",), ("info", "--json"), ("verify",)):
        refused(call(*verb, run), 6)


def test_what_the_end_could_not_tell_is_refused_before_the_work(folder: Path, half: Path) -> None:
    """Of an iteration in the log, the classes, the means of targets: a run of hours would end in an error."""
    task = read_json(half / "config.json")["task"]
    if task == "pairwise":
        events = [json.loads(line) for line in (half / "events.jsonl").read_text().splitlines()]
        next(event for event in events if event["event"] == "iteration")["seconds"] = "x"
        (half / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    else:
        damage = {"classes": True} if task == "svc" else {"target_means": [None]}
        write_config(half, read_json(half / "config.json") | damage)
    before = tree(half)
    refused(call("resume", half), 6)
    assert {**tree(half), "LOCK": ""} == {**before, "LOCK": ""}


CARRIES = {
    "rho": ["x", 0.0, -1.0, float("nan"), float("inf"), True, None, [], 10**400],
    "rho_floor": ["x", -1.0, float("inf")],
    "least_primal": ["x", float("nan"), None],
    "least_at": ["x", -1, 0.5, True],
    "iteration": ["x", -1, 2.0, None],
    "converged": ["x", 1, None],
}


@pytest.mark.parametrize("folder", ["pairwise"], indirect=True)
def test_commits_of_numbers_that_nobody_wrote_are_passed_over(folder: Path, half: Path) -> None:
    """For the start, where none is sound: to the same bytes."""
    program = load_problem(RunStore.open(half), 1.0).admm(4, "float64", 1e-4)
    wrong = [("rho", "x"), ("iteration", 3)]
    for commit, (name, value) in zip(sorted((half / "generations").glob("gen-*")), wrong, strict=True):
        manifest = commit / "MANIFEST.json"
        content = read_json(manifest)
        assert program.is_carry(content["carry"])
        for key, values in CARRIES.items():
            assert not any(program.is_carry(content["carry"] | {key: other}) for other in values), key
        write_json(manifest, {**content, "carry": content["carry"] | {name: value}})
    shutil.rmtree(half / "factor")
    assert call("resume", half).code in (0, 3)
    assert factor_bytes(half) == factor_bytes(folder / "run.zarr")
    events = [event["event"] for event in RunStore.open(half).events()]
    assert events.count("damaged checkpoint passed over") == 2


@pytest.mark.parametrize("folder", ["pairwise"], indirect=True)
def test_a_damaged_seal_of_the_graph_is_told_before_the_work(folder: Path, half: Path) -> None:
    write_json(half / "graph" / "MANIFEST.json", read_json(half / "graph" / "MANIFEST.json") | {"of": "pairs"})
    lines = len(RunStore.open(half).events())
    refused(call("resume", half), 6)
    assert len(RunStore.open(half).events()) == lines


@pytest.mark.slow
def test_many(folder: Path) -> None:
    found = outcomes(folder, MANY, resumes=True)
    print("\n" + "\n".join(f"{name:<16}{count:>8}" for name, count in sorted(found.items())))
