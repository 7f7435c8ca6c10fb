"""How many trials, of which seeds, and the table of what came of them, which is printed at the end of pytest's report."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hostile_runs_trials
import pytest
from disturbed_runs import Runs, Trial
from network_hosts import network_hosts, why_not
from separate_cluster import Cluster

TRIALS = 1
FIGURES = pytest.StashKey[dict[str, list[list[str]]]]()
COLUMNS = ("trials", "hits", "resumed", "same bytes", "bad", "worst s", "of quiet", "answer s")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--trials", type=int, default=TRIALS, help="of each case of each figure")
    parser.addoption("--first-seed", type=int, default=0, help="of the first trial; the others follow it")


@pytest.fixture
def seeds(request: pytest.FixtureRequest) -> range:
    """Of the trials. The options are not there where these tests are a few of all."""
    first = request.config.getoption("--first-seed", 0)
    return range(first, first + request.config.getoption("--trials", TRIALS))


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with those of all cases."""
    folder = tmp_path_factory.mktemp("failures")
    hostile_runs_trials.make_inputs(folder, list(hostile_runs_trials.CASES))
    return folder


@pytest.fixture(scope="session")
def known() -> dict[str, Any]:
    """What undisturbed runs have learned, by place."""
    return {}


@pytest.fixture
def runs_at(inputs: Path, known: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Runs]]:
    """runs_at(place, worker): where "cluster" is one that ends with the test, and "hosts" one of several hosts."""
    monkeypatch.chdir(inputs)
    clusters, contexts = [], []

    def made(place: str, worker: str = "nanny") -> Runs:
        hosts = None
        if place == "hosts":
            if reason := why_not():
                pytest.skip(f"no network namespaces: {reason}")
            contexts.append(network_hosts(3))
            hosts = contexts[-1].__enter__()
        cluster = Cluster(worker, hosts) if place in ("cluster", "hosts") else None
        clusters.extend([cluster] if cluster else [])
        runs = Runs(inputs, place, cluster)
        runs.known = known.setdefault(place, {})
        return runs

    yield made
    for cluster in clusters:
        cluster.stop()
    for context in contexts:
        context.__exit__(None, None, None)


@pytest.fixture
def checked(record_property: Callable[[str, object], None]) -> Callable[[str, str, Iterable[Trial]], list[Trial]]:
    """checked(figure, case, trials): tells them in the table; all have to be good."""

    def check(figure: str, case: str, trials: Iterable[Trial]) -> list[Trial]:
        found = list(trials)
        record_property(figure, [case, *_cells(found)])
        assert not [trial for trial in found if not trial.is_good]
        return found

    return check


def _cells(found: Sequence[Trial]) -> list[Any]:
    told = Counter(trial.told for trial in found)
    bad = ", ".join(f"{count} {name}" for name, count in told.items() if name != "same bytes")
    shares = [trial.seconds / trial.quiet for trial in found if trial.quiet]
    return [
        len(found),
        sum(trial.hits for trial in found),
        sum(len(trial.codes) > 1 for trial in found),
        told["same bytes"],
        bad or 0,
        round(max(trial.seconds for trial in found), 1),
        round(statistics.mean(shares), 2) if shares else "",
        round(max(trial.answer for trial in found), 1),
    ]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    figures: dict[str, list[list[Any]]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, row in report.user_properties:
                    figures.setdefault(name, []).append(row)
    for name, rows in sorted(figures.items()):
        terminalreporter.section(name)
        terminalreporter.write_line(f"{'':<34}" + "".join(f"{column:>12}" for column in COLUMNS))
        for row in [*sorted(rows), ["all", *_total([row[1:] for row in rows])]]:
            terminalreporter.write_line(f"{row[0]:<34}" + "".join(f"{cell:>12}" for cell in row[1:]))


def _total(rows: list[list[Any]]) -> list[Any]:
    """Sums of counts, the worst of seconds, the mean of ratios."""
    columns = list(zip(*rows, strict=True))
    shares = [share for share in columns[6] if share != ""]
    bad = sum(row[0] - row[3] for row in rows)
    sums = [sum(column) for column in columns[:4]]
    return [*sums, bad, max(columns[5]), round(statistics.mean(shares), 2) if shares else "", max(columns[7])]
