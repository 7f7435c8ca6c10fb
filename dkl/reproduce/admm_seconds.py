"""KL-ADMM's seconds (Hu & Kwok 2013): figures 3 and 4, and next to an interior point method and SimpleNPKL. Draw 0 throughout."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dkl.baselines import SimpleNPKL
from dkl.baselines.pair_solvers import in_smooth_basis
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.datasets import two_gaussians
from dkl.estimators.pairwise.learner import PairwiseKernelLearner
from dkl.reproduce.admm import GAMMA, PROTOCOL, dataset, fitted, paper_settings, rank, rival
from dkl.reproduce.item import CONIC, Axes, Case, Effort, Item, Measured, Scalar
from dkl.side_information.pairs import Pairs
from dkl.solvers.qsdp.conic import solve_conic


def scaling(work: Callable[[int], tuple[float, int]], sizes: Sequence[int]) -> Measured:
    """Measure seconds by size, and the slopes of the logarithms of all and of an iteration's."""
    work(sizes[0])  # compiles
    found = [work(one) for one in sizes]
    seconds = [one for one, _ in found]
    slope = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    of_one = float(np.polyfit(np.log(sizes), np.log([one / count for one, count in found]), 1)[0])
    more: dict[str, Scalar] = {f"s at {sizes[-1]:,}": seconds[-1], "slope of an iteration": of_one}
    more["iterations"] = f"{found[0][1]}, {found[-1][1]}"
    return Measured([slope], more, {"KL-ADMM": (sizes, seconds)})


def work_of(n: int, constraints: int) -> tuple[float, int]:
    """Return (processor seconds, iterations) of KL-ADMM on two Gaussians, half of the constraints of either kind."""
    data = two_gaussians(n, random_state=0)
    half = constraints // 2
    pairs = Pairs.from_labels(data.y, n_must=half, n_cannot=constraints - half, random_state=0)
    learner = PairwiseKernelLearner(rank(constraints), random_state=0, **paper_settings(data.name))
    began = time.process_time()
    learner.fit(data.X, pairs=pairs)
    return time.process_time() - began, learner.n_iter_


def figure3(effort: Effort) -> list[Case]:
    """Return the curve of seconds over n; the paper claims a slope of 1."""
    sizes = (500, 1000, 2000) if effort.quick else (1000, 2000, 4000, 8000, 16000, 32000)
    case = {"data": "two Gaussians, 1,000 constraints"}
    return [Case(case, partial(scaling, lambda n: work_of(n, 1000), sizes), (1.0, None))]


def figure4(effort: Effort) -> list[Case]:
    """Return the curve of seconds over the number of constraints at n = 1,000."""
    sizes = (200, 400, 800) if effort.quick else (200, 400, 600, 800, 1000, 1500, 2000)
    return [Case({"data": "two Gaussians, n = 1,000"}, partial(scaling, lambda m: work_of(1000, m), sizes))]


def against_sdp(name: str) -> Measured:
    """Measure how many times KL-ADMM's seconds an interior point method takes for (1) over all of K."""
    data = dataset(name, 0)
    fitted(data, 0)  # compiles
    began = time.process_time()
    model = fitted(data, 0)
    ours = time.process_time() - began
    pairs, n = Pairs.from_labels(data.y, random_state=0), len(data.y)
    problem = in_smooth_basis(build_graph(data.X, n_neighbors=5, laplacian="normalized").laplacian, pairs, n, GAMMA)[1]
    began = time.process_time()
    conic = solve_conic(problem, "sqlp", tol=1e-6)
    theirs = time.process_time() - began
    optimum = GAMMA / 2 * conic.certificate.objective
    more: dict[str, Scalar] = {
        "n": n, "KL-ADMM, s": ours, "above the optimum, %": 100 * (float(model.result_.history[-1]["objective"]) / optimum - 1),
        "conic, s": theirs, "its proven gap": f"{conic.certificate.relative_gap:.0e}",
    }  # fmt: skip
    return Measured([theirs / ours], more)


def sdp(effort: Effort) -> list[Case]:
    """Return a case a small set; the paper says one to two orders of magnitude."""
    names = ("soybean_small", "chessboard", "double_spiral")
    return [
        Case({"set": name}, partial(against_sdp, name), (10.0, None)) for name in names[: 1 if effort.quick else None]
    ]


STEPS = 10
"""Steps of SimpleNPKL on the adult sets, of 500 that it has on the small ones."""


def against_npkl(name: str, steps: int) -> Measured:
    """Measure how many times the seconds of a whole fit by KL-ADMM the first steps of SimpleNPKL take, graphs included."""
    data = dataset(name, 0)
    fitted(data, 0)  # compiles
    began = time.process_time()
    model = fitted(data, 0)
    ours = time.process_time() - began
    began = time.process_time()
    other = rival(partial(SimpleNPKL, max_iter=steps), data, 0)
    theirs = time.process_time() - began
    more: dict[str, Scalar] = {
        "n": len(data.y), "KL-ADMM, s": ours, "iterations": model.n_iter_, f"{steps} steps, s": theirs,
        "relative gap after them": float(other.relative_gap_),
    }  # fmt: skip
    return Measured([theirs / ours], more)


def npkl(effort: Effort) -> list[Case]:
    """Return a case an adult set; the paper says 30 times on a4a."""
    if effort.quick:
        return [Case({"set": "a1a"}, partial(against_npkl, "a1a", 3))]
    return [
        Case({"set": name}, partial(against_npkl, name, STEPS), (30.0, None) if name == "a4a" else None)
        for name in ("a1a", "a4a")
    ]


ITEMS = (
    Item(
        "admm-figure3", "figure 3", "seconds by the number of patterns, 1,000 constraints", "slope of log CPU seconds over log n",
        figure3, ("two_gaussians",), ("two_gaussians",), f"{PROTOCOL}; rank 44; 10 features; draw 0.",
        axes=Axes("patterns", "CPU seconds", log_x=True),
    ),
    Item(
        "admm-figure4", "figure 4", "seconds by the number of constraints, n = 1,000", "slope of log CPU seconds over log constraints",
        figure4, ("two_gaussians",), ("two_gaussians",), f"{PROTOCOL}; the rank grows with the constraints; draw 0.",
        axes=Axes("constraints", "CPU seconds", log_x=True, log_y=False),
    ),
    Item(
        "admm-sdp", "abstract", "an interior point method for the semidefinite program, in KL-ADMM's seconds",
        "CPU seconds of Clarabel over KL-ADMM's; the paper says one to two orders of magnitude", sdp,
        ("soybean_small", "chessboard", "double_spiral"), ("soybean_small",),
        f"{PROTOCOL}. KL-ADMM to its own stop, graph included; Clarabel for (1) over all of K, its tolerance 1e-6. Draw 0.",
        better="higher", digits=0, extras=CONIC,
    ),
    Item(
        "admm-npkl", "section 4.1", "the first steps of SimpleNPKL, in the seconds of a whole fit by KL-ADMM",
        f"CPU seconds of {STEPS} steps of SimpleNPKL over those of KL-ADMM; the paper says 30 times on a4a", npkl, ("a1a", "a4a"), ("a1a",),
        f"{PROTOCOL}. KL-ADMM: 100 iterations, graph included. SimpleNPKL: {STEPS} steps, each with the eigenvectors of all rows, B = "
        f"100 n, at most n^2 / 10, graph included; it has not come near the optimum by then. Draw 0.",
        better="higher", digits=0,
    ),
)  # fmt: skip
