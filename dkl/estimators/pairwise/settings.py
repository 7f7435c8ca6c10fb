"""The settings of `PairwiseKernelLearner` and of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dkl.errors import InputError
from dkl.estimators.base.rules import CONTRADICTIONS, WIDTH, Either, Flag, Folder, Integer, NotGiven, Real, Size, Word
from dkl.estimators.base.settings import EVERYWHERE, NO_OPTION, RESUMABLE, SHARE_HELD_OUT, Settings, Standardize


@dataclass(frozen=True)
class PairwiseSettings(Settings):
    """Settings of KL-ADMM: the paper's gamma, rank r and rho; the graph; when to end, and limits."""

    gamma: Annotated[
        float | str, Either(Real(above=0), Word("cv")), "Weight of the pairs; cv: by cross-validation."
    ] = 100.0
    contradictions: Annotated[
        str, CONTRADICTIONS, "Cannot-links inside must-link components: keep them, leave out, or refuse."
    ] = "keep"
    wrong_pairs: Annotated[
        str,
        Word("auto", "find", "trust"),
        "Look for wrong pairs by pairs held out, and trust these less: auto, where pairs contradict each other; find, always; "
        "trust, never.",
    ] = "auto"
    rank: Annotated[
        int | str,
        Either(Integer(1), Word("auto")),
        "Columns of ADMM's factor; auto: the paper's rule, or the solver's own choice.",
    ] = "auto"
    solver: Annotated[
        str,
        Word("auto", "admm", "factored"),
        "The paper's Algorithm 1, or a second-order low-rank method; auto: the latter where a gap is to be proven, no rank is given "
        "and it has room.",
    ] = "auto"
    n_neighbors: Annotated[int, Integer(1), "Neighbors of a pattern in the graph."] = 10
    sigma: Annotated[float | str, WIDTH, "Width of the similarity: a number, local, average or kth; auto: average."] = (
        "auto"
    )
    laplacian: Annotated[str, Word("normalized", "unnormalized"), "Of the graph."] = "normalized"
    neighbors_method: Annotated[str, Word("auto", "exact", "approximate"), "How neighbors are searched for."] = "auto"
    standardize: Standardize = "auto"
    rho: Annotated[float, Real(above=0), "ADMM's penalty at the start."] = 100.0
    adapt_rho: Annotated[
        bool | str,
        Either(Flag(), Word("paper")),
        "Whether (15) adapts it; paper: as printed, without a guard.",
        NO_OPTION,
    ] = True
    stopping: Annotated[
        str,
        Word("relative", "paper"),
        "Residuals of ADMM that tol is for: relative, or as the paper has them, absolute.",
    ] = "relative"
    max_iter: Annotated[int, Integer(1), "Most ADMM iterations.", RESUMABLE] = 500
    tol: Annotated[float, Real(least=0), "Residuals to end at."] = 1e-4
    target_gap: Annotated[
        float | str | None,
        Either(Real(above=0), Word("none"), NotGiven()),
        "Go on until this relative gap is proven; none: end by the residuals alone.",
        RESUMABLE,
    ] = 1e-2
    cv: Annotated[int, Integer(2), "Folds of pairs held out."] = 3
    n_gammas: Annotated[int, Integer(2), "Values of gamma on the folds' path of two decades."] = 3
    holdout: Annotated[float, SHARE_HELD_OUT, "Share of the pairs that the quality is measured on; 0: none."] = 0.1
    dtype: Annotated[str, Word("float64", "float32"), "Of the factor."] = "float64"
    seed: Annotated[int, Integer(0), "Seed of the start."] = 0
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".', RESUMABLE] = None
    checkpoint_every: Annotated[
        int | str, Either(Integer(1), Word("auto")), "Iterations between commits; auto: by time.", RESUMABLE
    ] = "auto"

    @property
    def goal(self) -> float | None:
        """Return the relative gap to prove, or None; a command says None by "none"."""
        return None if self.target_gap is None or isinstance(self.target_gap, str) else float(self.target_gap)

    def check_together(self) -> None:
        """Raise InputError where the paper's stop or penalty is asked of another solver than its own."""
        if "paper" in (self.stopping, self.adapt_rho) and self.solver != "admm":
            raise InputError(
                "the paper's rules are those of its Algorithm 1", where="solver", got=self.solver, wanted="admm",
                remedy='solver="admm", or neither stopping nor adapt_rho "paper"',
            )  # fmt: skip

    absent = {"holdout": 0.0, "standardize": False}
    in_python = {
        **EVERYWHERE,
        "affinity": ("neighbors", Word("neighbors", "precomputed")),
        "work_dir": (None, Folder()),
        "warm_start": (False, Flag()),
    }
