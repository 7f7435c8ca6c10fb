"""Settings shared by the learners in the basis of smooth eigenvectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from dkl.errors import InputError
from dkl.estimators.base.rules import Either, Integer, NotGiven, Real, Size, Word
from dkl.estimators.base.settings import EVERYWHERE, RESUMABLE, Settings, Standardize

MOST_BASIS = 30
"""Default number of eigenvectors, at most."""
ROWS_EACH = 4
"""Minimum rows per eigenvector: functions that separate every row from its neighbors are not smooth."""


@dataclass(frozen=True)
class BasisSettings(Settings):
    """Settings of the basis Q, and of the solver for Y."""

    n_basis: Annotated[
        int | None, Either(Integer(1), NotGiven()), "Eigenvectors m; by default 30, or a quarter of the rows."
    ] = None
    n_neighbors: Annotated[int, Integer(1), "Neighbors of a row in the graph."] = 10
    standardize: Standardize = "auto"
    solver: Annotated[str, Word("low-rank", "sqlp", "scsdp"), "How Y is found."] = "low-rank"
    tol: Annotated[
        float,
        Real(above=0),
        "Gap to end at, over the objective or a thousandth of that of K = 0, the larger.",
    ] = 1e-6
    max_iter: Annotated[int, Integer(1), "Most steps of the solver.", RESUMABLE] = 200
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".', RESUMABLE] = None
    checkpoint_every: Annotated[
        int | str, Either(Integer(1), Word("auto")), "Solver's steps between commits; auto: by time.", RESUMABLE
    ] = "auto"

    in_python = EVERYWHERE
    not_in_python = ("checkpoint_every",)


def basis_size(n_basis: int | None, n: int, where: str = "n_basis") -> int:
    """Return m; InputError if the graph of n rows has fewer than m eigenvectors after the first."""
    if n_basis is not None and n_basis >= n:
        what, wanted = "more eigenvectors than the graph has", f"at most {n - 1} of {n} rows"
        raise InputError(what, where=where, got=n_basis, wanted=wanted)
    return min(MOST_BASIS, max(1, n // ROWS_EACH)) if n_basis is None else int(n_basis)


def refuse_soft(given: Any, **defaults: object) -> None:
    """Raise InputError for a parameter of the soft form that is not at its default: it has no effect on hard constraints.

    given: settings or an estimator, with `constraints`.
    """
    for name, default in defaults.items():
        value = getattr(given, name)
        if value != default:
            raise InputError(
                f'no effect with constraints="{given.constraints}"', where=name, got=repr(value), wanted=f"{name}={default!r}",
                remedy=f'leave out {name}, or take constraints="soft"',
            )  # fmt: skip
