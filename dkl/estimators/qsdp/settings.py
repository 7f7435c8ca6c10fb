"""Settings of learners in the basis of smooth eigenvectors: of all, `LaplacianKernelLearner`'s and `MaximumVarianceUnfolding`'s."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, ClassVar

from dkl.errors import InconsistentPairsError, InputError
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

    soft_alone: ClassVar[dict[str, object]] = {"n_basis": None, "solver": "low-rank"}
    """Settings that have no effect on hard constraints, with their defaults."""

    @property
    def is_hard(self) -> bool:
        """Return whether the learner's `constraints` hold exactly, by a kernel on all rows."""
        return getattr(self, "constraints", "soft") != "soft"

    def check_together(self) -> None:
        """Raise InputError for a setting of the soft form that is given with hard constraints."""
        for name, default in self.soft_alone.items() if self.is_hard else ():
            value = getattr(self, name)
            if value != default:
                taken = getattr(self, "constraints", "hard")
                raise InputError(
                    f'no effect with constraints="{taken}"', where=name, got=repr(value), wanted=f"{name}={default!r}",
                    remedy=f'leave out {name}, or take constraints="soft"',
                )  # fmt: skip


def basis_size(n_basis: int | None, n: int, where: str = "n_basis") -> int:
    """Return m; InputError if the graph of n rows has fewer than m eigenvectors after the first."""
    if n_basis is not None and n_basis >= n:
        what, wanted = "more eigenvectors than the graph has", f"at most {n - 1} of {n} rows"
        raise InputError(what, where=where, got=n_basis, wanted=wanted)
    # One eigenvector at least, of 2 or 3 rows too.
    return min(MOST_BASIS, max(1, n // ROWS_EACH)) if n_basis is None else int(n_basis)


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
    constraints: Annotated[str, Word("soft", "hard"), "hard: pairs hold exactly, by a kernel on all rows."] = "soft"
    holdout: Annotated[float, SHARE_HELD_OUT, "Share of the pairs that the quality is measured on; 0: none."] = 0.1

    @contextmanager
    def rule_of_contradictions(self) -> Iterator[str]:
        """Yield what a check of pairs does with contradictions; hard constraints cannot keep them, and an error of these says so."""
        # Must-links that join the ends of a cannot-link leave no feasible K: 1 and 0 for one entry.
        cannot_keep = self.is_hard and self.contradictions == "keep"
        try:
            yield "raise" if cannot_keep else self.contradictions
        except InconsistentPairsError as error:
            remedy = 'correct the pairs, or take "drop" for contradictions' if cannot_keep else error.remedy
            given = {"where": error.where, "got": error.got, "wanted": error.wanted, "remedy": remedy}
            raise InconsistentPairsError(error.what, **given) from error


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

    # No nu, as distances hold exactly, and no labels, as the objective of (1)-(4) is the variance.
    soft_alone = {**BasisSettings.soft_alone, "nu": "scale", "colored": False}
