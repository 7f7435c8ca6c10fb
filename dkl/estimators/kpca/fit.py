"""Fit of kernel principal components: of a factor by its covariance, of other kernels by products."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernels.kernel_checks import check_psd, check_symmetric_products
from dkl.blocks.kernels.kernel_products import (
    TILE_COLUMNS,
    FactorProducts,
    KernelProducts,
    MatrixKernel,
    held_bytes,
    tile_bounds,
)
from dkl.blocks.memory_plan import PROCESS_BASE, Place, Plan, check_size
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, RowBlocks, machine_memory
from dkl.blocks.rows.row_pieces import require_finite
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.estimators.base.rules import DICTIONARY, KERNEL, KERNEL_FUNCTION, Either, Integer, NotGiven, Real, Size, Word
from dkl.estimators.base.settings import EVERYWHERE, SHARE_HELD_OUT, InPython, Settings, Standardize
from dkl.linalg.eigen.principal_coordinates import with_signs
from dkl.linalg.kernels.kernel_columns import POINTS_AT_A_TIME, Kernel
from dkl.problems.kernel_components import (
    LANDMARKS,
    CentredKernel,
    are_equal,
    factor_components,
    handed_out,
    inverse_roots,
    nystroem_start,
    random_start,
    residuals_of,
    rounding,
)
from dkl.resources import one_blas_thread, peak_rss
from dkl.solvers.leading_eigenpairs import block_size, leading_eigenpairs, space_columns
from dkl.solvers.watch import Outcome, Result, Watch, remedies

Matrix = NDArray[np.float64]

REMEDIES = remedies(
    iteration_limit="raise max_iter or tol",
    stalled="rounding ends all progress: raise tol, or use dtype='float64' if it is not",
    numerical_error="a value is not finite: scale the rows",
)
MOST_COLUMNS = 1000
"""Maximum columns of a factor whose covariance is formed in n d^2 operations.

For more, some products of n d operations for each vector are cheaper.
"""
COVARIANCES = 10
"""Matrices (d, d) held on top of one a thread: sums in the block tree, covariance, its eigenvectors."""


@dataclass(frozen=True)
class PrincipalComponents:
    """Fitted kernel principal components.

    eigenvalues (k,) descending, eigenvectors (n, k); residual (k,), over the largest eigenvalue. A row has the
    coordinates z @ weights - offset: z its kernel values (n,), or itself (d,) where `is_linear`.
    """

    eigenvalues: Matrix
    eigenvectors: Matrix = field(repr=False)
    weights: Matrix = field(repr=False)
    offset: Matrix = field(repr=False)
    is_linear: bool
    residual: Matrix
    result: Result


@one_blas_thread()  # products with K have threads of ours
def fit_components(
    source: RowSource,
    kernel: Kernel,
    settings: ComponentsSettings,
    session: Session,
    watch: Watch,
    random: np.random.RandomState,
) -> PrincipalComponents:
    """Return the components of the rows of `source`, which are K's own where the kernel is precomputed.

    InputError for rows that are not finite, or a K that is not symmetric; MemoryBudgetError where the work does not fit.
    """
    place = Place.of(session)
    if kernel.name == "linear":
        n, d = source.n, source.n_features
        # A covariance (d, d) has at most d components, and is smaller than K only where d <= n.
        if settings.n_components <= d <= min(n, MOST_COLUMNS):
            covariances = {"covariances": (place.threads + COVARIANCES) * 8 * d * d}
            plan = plan_search(source, settings.n_components, place, settings.memory_limit, covariances)
            of_factor = _of_factor(source, settings, session, watch, plan)
            if of_factor.result.outcome is not Outcome.STALLED:
                return of_factor
            # Products of the rows are rounded as the rows are, where a covariance is as their squares are.
    products, plan = _products(source, kernel, settings, session, place)
    operator, size = CentredKernel(products), min(source.n, block_size(settings.n_components))
    start = (
        nystroem_start(products, size, random)
        if isinstance(products, KernelProducts)
        else random_start(source.n, size, random)
    )
    found = leading_eigenpairs(
        operator,
        start,
        settings.n_components,
        tol=settings.tol,
        max_iter=settings.max_iter,
        watch=watch.stage("product"),
    )
    values, vectors = found.values, with_signs(found.vectors)
    # Centering subtracts numbers of this size: what cancels is rounded as they are.
    scale = source.n * float(np.abs(operator.means).max())
    roots = inverse_roots(values, rounding(values, source.n, scale, settings.dtype))
    weights = vectors * roots
    # The weights less their mean center a row of the kernel, the offset its columns: new rows need no means of their own.
    weights -= weights.mean(axis=0)
    offset = operator.means @ weights
    if isinstance(products, FactorProducts):
        weights = products.transposed_times(weights)
        offset = offset + products.shift @ weights  # of rows that are not shifted
    if isinstance(products, KernelProducts):
        # Tiles held for the search make room for the exact products below.
        products.forget()
    # The vector of an eigenvalue within rounding is arbitrary: both count as 0, as in the weights above.
    values = np.where(roots > 0, values, 0.0)
    residuals, outcome = handed_out(found.values, values, found.residuals), found.outcome
    if not values.any() and are_equal(RowBlocks(source, session, settings.memory_limit and settings.memory_limit // 4)):
        residuals, outcome = np.zeros_like(residuals), Outcome.SOLVED
    elif settings.dtype != "float64" and isinstance(products, KernelProducts) and outcome.converged:
        # What is proven is proven in double precision, whose points take twice the bytes of these.
        exact = KernelProducts(
            kernel,
            source,
            session,
            points=max(1, products.points // 2),
            rows_bytes=settings.memory_limit and settings.memory_limit // 4,
        )
        residuals = residuals_of(CentredKernel(exact), values, vectors)
    result = _result(outcome, found.n_iter, residuals, settings, watch, plan)
    is_linear = isinstance(products, FactorProducts)
    return PrincipalComponents(values, vectors, weights, offset, is_linear, residuals, result)


def _products(
    source: RowSource, kernel: Kernel, settings: ComponentsSettings, session: Session, place: Place
) -> tuple[Any, Plan]:
    """Return (K's products, plan), after checking rows that have not been checked yet."""
    limit, count = settings.memory_limit, settings.n_components
    if kernel.is_precomputed or kernel.name == "linear":
        plan, rows_bytes = plan_search(source, count, place, limit, {}), limit and limit // 4
        _check(source, session, rows_bytes)
        if not kernel.is_precomputed:
            return FactorProducts(source, session, rows_bytes), plan
        given = MatrixKernel(source, session, rows_bytes)
        if not source.is_in_memory:
            check_symmetric_products(given)
        check_psd(given.times, given.diagonal())
        return given, plan
    found = plan_products(source, count, settings.dtype, place, limit)
    _check(source, session, found.rows)
    made = KernelProducts(
        kernel, source, session, settings.dtype, held=found.held, points=found.points, rows_bytes=found.rows
    )
    return made, found.plan


def _of_factor(
    source: RowSource, settings: ComponentsSettings, session: Session, watch: Watch, plan: Plan
) -> PrincipalComponents:
    rows_bytes = settings.memory_limit and settings.memory_limit // 4
    _check(source, session, rows_bytes)
    found = factor_components(RowBlocks(source, session, rows_bytes), settings.n_components)
    vectors = with_signs(found.vectors)
    # The axes turn with their vectors, so that a row's coordinates have the signs of the vectors that are shown.
    signs = np.where((vectors * found.vectors).sum(axis=0) < 0, -1.0, 1.0)
    values = np.where(np.abs(vectors).max(axis=0) > 0, found.values, 0.0)
    watch.stage("pass").record({"iteration": 1, "residual": float(found.residuals.max()), "largest": float(values[0])})
    weights = found.axes * np.where(values > 0, signs, 0.0)
    residuals = handed_out(found.values, values, found.residuals)
    result = _result(Outcome.SOLVED, 1, residuals, settings, watch, plan)
    return PrincipalComponents(values, vectors, weights, found.mean @ weights, True, residuals, result)


def _check(source: RowSource, session: Session, rows_bytes: int | None) -> None:
    """Raise InputError for the first value that is not finite, of rows that scikit-learn has not checked."""
    if not source.is_in_memory:
        RowBlocks(source, session, rows_bytes, once=True).map(require_finite)


def _result(
    outcome: Outcome, n_iter: int, residuals: Matrix, settings: ComponentsSettings, watch: Watch, plan: Plan
) -> Result:
    proven = float(residuals.max())
    # `not <=` and not `>`, for NaN.
    if outcome.converged and not proven <= settings.tol:
        outcome = Outcome.STALLED if np.isfinite(proven) else Outcome.NUMERICAL_ERROR
    return Result(
        outcome, n_iter, watch.history, {"total": watch.seconds}, peak_rss(), plan=plan.as_dict(), remedy=REMEDIES[outcome],
        proven=proven, asked=settings.tol, measure="residual",
    )  # fmt: skip


# Memory plan of kernel principal components: how much of K is held, how many rows ready at a time.

BLOCKS_AT_WORK = 6
"""Arrays (n, b) that the eigenpair search holds outside its space: images, residuals, their factors."""
FEWEST_POINTS = 4096
"""Rows that are ready at a time at least: with fewer, a product takes too many passes."""
WORKER_HELD = 0.6
"""Share of a worker's memory for tiles: Dask spills, and so forgets tiles, from three fifths on."""
FEWER = "raise memory_limit, take fewer components, or use dtype='float32'"


@dataclass(frozen=True)
class ProductsPlan:
    """Memory plan of K's products.

    held: bytes of K that a process keeps; points: rows ready at a time; rows: bytes of rows that a process may keep or
    read at a time, None where they are in it.
    """

    plan: Plan
    held: int
    points: int
    rows: int | None


def plan_products(source: RowSource, count: int, dtype: str, place: Place, memory_limit: int | None) -> ProductsPlan:
    """Plan eigenpairs by products of K of these rows.

    All rows are ready at a time where a half of what there is holds them; what is left holds tiles of K.

    MemoryBudgetError where the least does not fit.
    """
    n, d, size, block = source.n, source.n_features, np.dtype(dtype).itemsize, block_size(count)
    allowed = place.allowed(memory_limit) or int(MEMORY_SHARE * machine_memory())
    search = _search(source, count)
    bounds = tile_bounds(n, source.row_bytes)
    tallest = max(stop - start for start, stop in bounds)
    products = {
        "sums of products": (place.threads + 2 + len(bounds).bit_length()) * 8 * n * (block + 1),
        "vectors": (8 + size) * n * (block + 1),
        "tiles being computed": place.threads * size * tallest * (TILE_COLUMNS + d + 2),
        "kernel of the start": 5 * 8 * min(LANDMARKS, n // 8) ** 2,
    }
    # A stored row is read and kept apart; one that is in this process is the user's own. Prepared ones are another copy.
    of_rows = 0 if source.is_in_place and not place.distributed else -(-n // place.processes) * source.row_bytes
    row = (0 if source.is_in_place and not place.distributed else source.row_bytes) + (d + 2) * size
    prepared = 2 * 8 * min(n, POINTS_AT_A_TIME) * d
    fixed = PROCESS_BASE + sum(products.values()) + prepared + (0 if place.distributed else sum(search.values()))
    left = allowed - fixed
    # A third where not all fit: tiles of K in the rest are not computed again.
    points = n if row * n <= left // 2 else max(min(n, FEWEST_POINTS), left // 3 // row)
    a_pass = (5 * tallest + 2 * source.rows_per_chunk) * source.row_bytes  # what `RowBlocks` asks for
    reading = max(a_pass, min(of_rows, left // 4)) if of_rows else 0
    share = WORKER_HELD if place.distributed else 1.0
    held = min(
        held_bytes(n, source.row_bytes, dtype) // place.processes + 1, int(share * (left - reading - row * points))
    )
    items = {
        **products,
        "points of the kernel": row * points + prepared,
        "rows": reading,
        "kernel matrix": max(0, held),
    }
    if not place.distributed:
        items |= search
    plan = Plan(
        placement="memory" if held * place.processes >= held_bytes(n, source.row_bytes, dtype) else "recomputed",
        processes=place.processes,
        threads=place.threads,
        base=PROCESS_BASE,
        items={name: size for name, size in items.items() if size},
        disk={},
        limit=allowed,
        tasks_per_iteration=place.processes if place.distributed else 0,
        shape={"n": n, "dtype": dtype, "points": points, "held": max(0, held)},
        remedy=FEWER,
        own_bytes=PROCESS_BASE + sum(search.values()) if place.distributed else 0,
    )
    place.checked(plan, memory_limit)
    if place.distributed:
        check_size(search, memory_limit, FEWER)
    return ProductsPlan(plan, max(0, held), int(points), int(reading) or None)


def plan_search(source: RowSource, count: int, place: Place, memory_limit: int | None, more: dict[str, int]) -> Plan:
    """Plan the search alone in this process, for a given K or a factor, with `more` bytes by name."""
    allowed = memory_limit or int(MEMORY_SHARE * machine_memory())
    items = {**_search(source, count), **more}
    plan = Plan("memory", 1, place.threads, PROCESS_BASE, items, {}, allowed, shape={"n": source.n}, remedy=FEWER)
    return replace(plan.validate(), processes=place.processes)


def _search(source: RowSource, count: int) -> dict[str, int]:
    """Return the bytes that the search for eigenpairs holds in this process, by name."""
    n, block = source.n, block_size(count)
    return {
        "X, read from its file": source.own_bytes,
        "Krylov space": 2 * 8 * n * space_columns(n, block),
        "blocks of vectors": BLOCKS_AT_WORK * 8 * n * block,
    }


# Settings of `KernelPCA`.


@dataclass(frozen=True)
class ComponentsSettings(Settings):
    """Settings of kernel principal components: their number, the kernel, the tolerance."""

    n_components: Annotated[int, Integer(1), "Components."] = 2
    kernel: Annotated[
        Any, KERNEL, "As scikit-learn calls it.", InPython(Either(KERNEL, KERNEL_FUNCTION))
    ] = "rbf"  # fmt: skip
    gamma: Annotated[float | str | None, Either(Real(above=0), Word("scale", "auto"), NotGiven()), "Of the kernel."] = (
        "scale"
    )
    degree: Annotated[float, Real(least=0), "Of the polynomial kernel."] = 3
    coef0: Annotated[float, Real(), "Of the polynomial and sigmoid kernels."] = 1.0
    standardize: Standardize = "auto"
    tol: Annotated[float, Real(least=0), "Residual to end at, of the largest eigenvalue."] = 1e-6
    max_iter: Annotated[int, Integer(1), "Most products with the kernel matrix."] = 100
    holdout: Annotated[float, SHARE_HELD_OUT, "0: the quality is not measured; nothing is held out for it."] = 0.1
    dtype: Annotated[str, Word("float64", "float32"), "Of the kernel matrix."] = "float64"
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".'] = None

    in_python = {**EVERYWHERE, "kernel_params": (None, DICTIONARY)}
