"""End of a fit on the command line: what is printed of its result, and the exit code."""

from __future__ import annotations

import shlex

from dkl.plotting.figures import can_draw
from dkl.printable import printable
from dkl.runs import report
from dkl.runs.echo import echo
from dkl.runs.kind import RunKind
from dkl.solvers.result import Result
from dkl.stores.run import RunStore

SOLVED, NOT_CONVERGED = 0, 3
"""Exit codes of a fit that has a result."""


def conclude(kind: RunKind, run: RunStore, result: Result) -> int:
    """Print how it ended, and what to do where it did not converge. The exit code."""
    echo(f"{printable(run.name)}: {result.outcome.value}")
    echo(report.describe_result(kind.facts(run), run.report()))
    if not run.config.get("picture", False) and can_draw():
        echo(f"  draw it with: {printable(shlex.join(['dkl', 'info', run.name, '--picture', 'FILE']))}")
    return _exit_code(kind, result)


def conclude_again(kind: RunKind, run: RunStore) -> int:
    """Print how a complete run ended; return its exit code, so that attempts of a job agree."""
    from dkl.estimators.base.run_arrays import result_in

    echo(f"{printable(run.name)}: complete, nothing to do")
    echo(report.describe_result(kind.facts(run), run.report()))
    return _exit_code(kind, result_in(run, []))


def _exit_code(kind: RunKind, result: Result) -> int:
    """Return the exit code of a result; print what to do if it did not converge."""
    if result.outcome.converged:
        return SOLVED
    remedy = kind.declaration.remedies.get(result.outcome.value, result.remedy)
    echo(f"dkl: not converged: {result.ended}: {remedy}; the result is written", err=True)
    return NOT_CONVERGED
