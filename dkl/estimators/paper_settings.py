"""The papers' own settings of the learners: algorithm, stop, parameters.

A function that returns parameters, not a parameter `preset` that overrides others: an estimator shows each value that it learns by,
clones and searches change one of them as any other, and a run's folder holds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dkl.errors import InputError

# In all papers rows are what they are, and all of the data is learned from.
_PLAIN: dict[str, object] = {"standardize": False, "holdout": 0}

PAPERS: Mapping[str, Mapping[str, object]] = MappingProxyType({
    # Hu & Kwok 2013, Algorithm 1, section 4 and footnote 2. Not in it: gamma, epsilon (tol), which Laplacian.
    "PairwiseKernelLearner": _PLAIN | {
        "solver": "admm", "rank": "auto", "rho": 100.0, "adapt_rho": "paper", "stopping": "paper", "target_gap": None,
        "max_iter": 500, "tol": 1e-3, "gamma": 100.0, "n_neighbors": 5, "sigma": "average", "laplacian": "normalized",
        "neighbors_method": "exact", "contradictions": "keep", "wrong_pairs": "trust",
    },
    # Machart et al. 2011, Algorithm 2 and section 5.1. Not in it: how nu is chosen.
    "LowRankKernelRegressor": _PLAIN | {
        "solver": "paper", "stopping": "paper", "tol": 1e-4, "nu": "cv", "lam": 1.0, "columns": "uniform",
        "refit": "never", "fit_intercept": False,
    },
    # Liu et al. 2009, Algorithm 2; C and rho of its figure 1. Not in it: tol.
    "OptimalNeighborhoodSVC": _PLAIN | {
        "solver": "gradient", "stopping": "paper", "tol": 1e-6, "C": 1.0, "rho": 100.0, "kernel": "rbf",
    },
    # Li et al. 2009, section 6.2: log-loss, K0 of the graph's Laplacian, 10 x 10 triplets of each labeled row, 10 components.
    # Not in it: the graph's neighbors and width; which gamma, for which it follows a path.
    "LogDetKernelLearner": _PLAIN | {
        "solver": "paper", "tol": 1e-3, "max_iter": 10_000, "loss": "log", "normalize_gamma": True, "kernel": "laplacian",
        "kernel_params": {"laplacian": "unnormalized", "sigma": "average"}, "n_neighbors": 10, "n_in": 10, "n_out": 10,
        "n_components": 10, "contradictions": "keep",
    },
    # Section 6.1: ITML's loss, K0 the identity, gamma not divided by the number of labeled rows.
    "LogDetMetricLearner": _PLAIN | {
        "solver": "paper", "tol": 1e-3, "max_iter": 10_000, "loss": "itml", "normalize_gamma": False, "prior": "identity",
        "contradictions": "keep",
    },
    # Wu et al. 2009, (21)-(25) and section 4: 20 neighbors, sigma the mean distance to the 20th, gap 1e-8. m is 10 to 100 in it.
    "LaplacianKernelLearner": _PLAIN | {
        "solver": "sqlp", "tol": 1e-8, "n_neighbors": 20, "sigma": "kth", "contradictions": "keep",
    },
    # The same, of 4 neighbors. Not in it: nu.
    "MaximumVarianceUnfolding": _PLAIN | {"solver": "sqlp", "tol": 1e-8, "n_neighbors": 4, "colored": False},
})  # fmt: skip
"""Parameters by the learner's name. What a paper leaves open is the learner's default, or said in a comment."""


def paper_settings(learner: object) -> dict[str, object]:
    """Return the parameters by which a learner is its paper's own method, also where a faster one is the default.

    Its algorithm, stop, parameters and data treatment as printed; `dkl guide` has a page on each paper that says what they are, where
    the paper is silent, and which slips of the print are mended.

    Parameters
    ----------
    learner : class, estimator or str
        A learner, one of its objects, or its name.

    Returns
    -------
    dict
        Parameters by name, for the constructor or `set_params`; a new dictionary each time.

    Raises
    ------
    InputError
        For anything that has no paper.

    See Also
    --------
    PairwiseKernelLearner : KL-ADMM, Hu and Kwok 2013.
    LowRankKernelRegressor : SLKL, Machart et al. 2011.
    OptimalNeighborhoodSVC : ONK, Liu et al. 2009.
    LogDetKernelLearner : TRIN, Li et al. 2009.
    LaplacianKernelLearner : SQLP, Wu et al. 2009.

    Examples
    --------
    >>> import dkl
    >>> model = dkl.OptimalNeighborhoodSVC(**dkl.paper_settings(dkl.OptimalNeighborhoodSVC))
    >>> model.solver, model.stopping, model.rho
    ('gradient', 'paper', 100.0)
    >>> model = model.set_params(rho=10.0)
    """
    kind = learner if isinstance(learner, (type, str)) else type(learner)
    names = [kind] if isinstance(kind, str) else [one.__name__ for one in kind.__mro__]
    for name in names:
        if name in PAPERS:
            return {key: dict(value) if isinstance(value, dict) else value for key, value in PAPERS[name].items()}
    raise InputError("no learner of a paper", where="paper_settings", got=names[0], wanted=", ".join(PAPERS))
