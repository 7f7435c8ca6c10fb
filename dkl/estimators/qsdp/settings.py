"""Settings of learners in the basis of smooth eigenvectors: of all, `LaplacianKernelLearner`'s and `MaximumVarianceUnfolding`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from dkl.errors import InputError
from dkl.estimators.base.rules import CONTRADICTIONS, WIDTH, Either, Flag, Integer, NotGiven, Real, Size, Word
from dkl.estimators.base.settings import EVERYWHERE, RESUMABLE, SHARE_HELD_OUT, Settings, Standardize

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


@dataclass(frozen=True)
class PropagationSettings(BasisSettings):
    """Settings of RegPCP."""

    n_neighbors: Annotated[int, Integer(1), "Neighbors of a row in the graph."] = 20
    sigma: Annotated[float | str, WIDTH, "Width of the similarity: a number, local, average or kth; auto: local."] = (
        "auto"
    )
    contradictions: Annotated[
        str, CONTRADICTIONS, "Cannot-links inside must-link components: keep them, leave out, or refuse."
    ] = "keep"
    holdout: Annotated[float, SHARE_HELD_OUT, "Share of the pairs that the quality is measured on; 0: none."] = 0.1

    in_python = {**EVERYWHERE, "constraints": ("soft", Word("soft", "hard"))}


@dataclass(frozen=True)
class UnfoldingSettings(BasisSettings):
    """Settings of RegMVU, and of the form with hard constraints."""

    n_components: Annotated[int, Integer(1), "Dimensions of the embedding."] = 2
    n_neighbors: Annotated[int, Integer(1), "Neighbors whose distances are kept."] = 10
    nu: Annotated[float | str, Either(Real(above=0), Word("scale")), "Weight of the edges' distances."] = "scale"
    colored: Annotated[bool, Flag(), "Have labels take the variance's place."] = False
    constraints: Annotated[
        str,
        Word("soft", "hard", "at-most"),
        "hard: distances are kept, by a kernel on all rows; at-most: none becomes longer.",
    ] = "soft"
    holdout: Annotated[float, SHARE_HELD_OUT, "0: the quality is not measured; nothing is held out for it."] = 0.1

    @property
    def is_hard(self) -> bool:
        """Return whether distances are constraints."""
        return self.constraints != "soft"

    def check_together(self) -> None:
        """Raise InputError for a setting of the soft form that is given with hard constraints."""
        if self.is_hard:
            refuse_soft(self, n_basis=None, nu="scale", colored=False, solver="low-rank")
