"""The settings of `SpectralEmbedding` and `SpectralClustering`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dkl.estimators.base.rules import WIDTH, Either, Integer, NotGiven, Size, Word
from dkl.estimators.base.settings import IN_ALL, SHARE_HELD_OUT, Settings
from dkl.estimators.base.standardize_setting import Standardize


@dataclass(frozen=True)
class GraphSettings(Settings):
    """Settings of the graph, and limits on what may be used."""

    affinity: Annotated[str, Word("neighbors", "precomputed"), "Of rows, or X itself."] = "neighbors"
    n_neighbors: Annotated[int, Integer(1), "Neighbors of a row in the graph."] = 10
    sigma: Annotated[float | str, WIDTH, "Width of the similarity: a number, local or average; auto: local."] = "auto"
    standardize: Standardize = "auto"
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".'] = None

    in_python = IN_ALL


@dataclass(frozen=True)
class EmbeddingSettings(GraphSettings):
    """Settings of a spectral embedding: the number of coordinates."""

    n_components: Annotated[int, Integer(1), "Eigenvectors after the first."] = 2
    holdout: Annotated[float, SHARE_HELD_OUT, "0: the quality is not measured; nothing is held out for it."] = 0.1


@dataclass(frozen=True)
class ClusteringSettings(GraphSettings):
    """Settings of spectral clustering: the number of clusters and of coordinates."""

    n_clusters: Annotated[int, Integer(1), "Clusters."] = 8
    n_components: Annotated[
        int | None, Either(Integer(1), NotGiven()), "Eigenvectors; by default as many as clusters."
    ] = None
    n_init: Annotated[int, Integer(1), "Starts of k-means."] = 10
