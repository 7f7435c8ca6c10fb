"""The settings of `MaximumVarianceUnfolding` and of `LaplacianKernelLearner`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dkl.estimators.common.rules import Either, Flag, Integer, NotGiven, Real, Size, Word
from dkl.estimators.common.settings import EVERYWHERE, Settings


@dataclass(frozen=True)
class BasisSettings(Settings):
    """The basis Q, and how Y is found."""

    n_basis: Annotated[
        int | None, Either(Integer(1), NotGiven()), "Eigenvectors m; by default 30, or a quarter of the rows."
    ] = None
    n_neighbors: Annotated[int, Integer(1), "Neighbours of a row in the graph."] = 10
    solver: Annotated[str, Word("low-rank", "sqlp", "scsdp"), "How Y is found."] = "low-rank"
    tol: Annotated[float, Real(above=0), "Relative gap to end at."] = 1e-6
    max_iter: Annotated[int, Integer(1), "Most steps of the solver."] = 200
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".'] = None

    in_python = EVERYWHERE


@dataclass(frozen=True)
class UnfoldingSettings(BasisSettings):
    """RegMVU."""

    n_components: Annotated[int, Integer(1), "Dimensions of the embedding."] = 2
    n_neighbors: Annotated[int, Integer(1), "Neighbours whose distances are kept."] = 4
    nu: Annotated[float | str, Either(Real(above=0), Word("scale")), "Weight of the edges' distances."] = "scale"
    colored: Annotated[bool, Flag(), "Whether labels take the variance's place."] = False


@dataclass(frozen=True)
class PropagationSettings(BasisSettings):
    """RegPCP."""

    n_neighbors: Annotated[int, Integer(1), "Neighbours of a row in the graph."] = 20
    sigma: Annotated[float | str, Either(Real(above=0), Word("auto")), "Width of the similarity."] = "auto"
