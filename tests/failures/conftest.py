"""How many trials, of which seeds, and the table of what came of them, which is printed at the end of pytest's report."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hostile_runs_trials
import pytest
from disturbed_runs import DONE, Runs, Trial
from network_hosts import network_hosts, why_not
from separate_cluster import Cluster

TRIALS = 1


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
    with ExitStack() as stack:

        def made(place: str, worker: str = "nanny") -> Runs:
            hosts, cluster = None, None
            if place == "hosts":
                if reason := why_not():
                    pytest.skip(f"no network namespaces: {reason}")
                hosts = stack.enter_context(network_hosts(3))
            if place in ("cluster", "hosts"):
                cluster = Cluster(worker, hosts)
                stack.callback(cluster.stop)
            runs = Runs(inputs, place, cluster)
            runs.known = known.setdefault(place, {})
            return runs

        yield made


@pytest.fixture
def told(record_property: Callable[[str, object], None]) -> Callable[[str, str, dict[str, Any]], None]:
    """told(figure, case, counts): a row of the figure's table, at the end of pytest's report."""
    return lambda figure, case, counts: record_property(figure, [case, counts])


@pytest.fixture
def checked(told: Callable[..., None]) -> Callable[[str, str, Iterable[Trial]], list[Trial]]:
    """checked(figure, case, trials): all have to be good."""

    def check(figure: str, case: str, trials: Iterable[Trial]) -> list[Trial]:
        found = list(trials)
        told(figure, case, _counts(found))
        assert not [trial for trial in found if not trial.is_good]
        return found

    return check


def _counts(found: Sequence[Trial]) -> dict[str, Any]:
    shares = [trial.seconds / trial.quiet for trial in found if trial.quiet]
    return {
        "trials": len(found),
        "hits": sum(trial.hits for trial in found),
        "resumed": sum(len(trial.codes) > 1 for trial in found),
        **Counter(f"exit {code}" for trial in found for code in trial.codes if code not in DONE),
        **Counter(trial.told for trial in found),
        "worst s": round(max(trial.seconds for trial in found), 1),
        "answer s": round(max(trial.answer for trial in found), 1),
        "mean of quiet": round(statistics.mean(shares), 2) if shares else 0.0,
    }


def pytest_terminal_summary(terminalreporter: Any) -> None:
    figures: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, row in report.user_properties:
                    figures.setdefault(name, []).append(tuple(row))
    for name, rows in sorted(figures.items()):
        terminalreporter.section(name)
        columns = list(dict.fromkeys(column for _, counts in rows for column in counts))
        terminalreporter.write_line(f"{'':<34}" + "".join(f"{column:>20}" for column in columns))
        for case, counts in [*sorted(rows), ("all", {column: _all(column, rows) for column in columns})]:
            terminalreporter.write_line(f"{case:<34}" + "".join(f"{counts.get(column, 0):>20}" for column in columns))


def _all(column: str, rows: list[tuple[str, dict[str, Any]]]) -> Any:
    """The sum of counts, the worst of seconds, the mean of ratios."""
    values = [counts[column] for _, counts in rows if column in counts]
    if column.endswith((" s", " worst")):
        return max(values)
    if column.endswith(" least"):
        return min(values)
    return round(statistics.mean(values), 2) if "mean" in column else sum(values)
