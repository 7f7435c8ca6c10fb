"""Fit of kernel principal components: of a factor by its covariance, of other kernels by products."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernels.kernel_checks import check_psd, check_symmetric_products
from dkl.blocks.kernels.kernel_products import FactorProducts, KernelProducts, MatrixKernel
from dkl.blocks.memory.execution_limits import Place
from dkl.blocks.memory.plan import Plan
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_checks import require_finite
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.estimators.kpca.plan import plan_products, plan_search
from dkl.estimators.kpca.settings import ComponentsSettings
from dkl.linalg.eigen.principal_coordinates import with_signs
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.problems.kernel_components import (
    CentredKernel,
    factor_components,
    handed_out,
    inverse_roots,
    nystroem_start,
    random_start,
    residuals_of,
    rounding,
)
from dkl.resources import peak_rss
from dkl.solvers.leading_eigenpairs import block_size, leading_eigenpairs
from dkl.solvers.result import Outcome, Result, remedies
from dkl.solvers.watch import Watch

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
        if settings.n_components <= d <= min(n, MOST_COLUMNS):
            covariances = {"covariances": (place.threads + COVARIANCES) * 8 * d * d}
            plan = plan_search(source, settings.n_components, place, settings.memory_limit, covariances)
            return _of_factor(source, settings, session, watch, plan)
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
    scale = source.n * float(np.abs(operator.means).max())
    roots = inverse_roots(values, rounding(values, source.n, scale, settings.dtype))
    weights = vectors * roots
    weights -= weights.mean(axis=0)
    offset = operator.means @ weights
    if isinstance(products, FactorProducts):
        weights = products.transposed_times(weights)
        offset = offset + products.shift @ weights  # of rows that are not shifted
    if isinstance(products, KernelProducts):
        products.forget()
    values = np.where(roots > 0, values, 0.0)
    residuals = handed_out(found.values, values, found.residuals)
    if settings.dtype != "float64" and isinstance(products, KernelProducts) and found.outcome.converged:
        exact = KernelProducts(
            kernel,
            source,
            session,
            points=max(1, products.points // 2),
            rows_bytes=settings.memory_limit and settings.memory_limit // 4,
        )
        residuals = residuals_of(CentredKernel(exact), values, vectors)
    result = _result(found.outcome, found.n_iter, residuals, settings, watch, plan)
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
    if outcome.converged and not proven <= settings.tol:
        outcome = Outcome.STALLED if np.isfinite(proven) else Outcome.NUMERICAL_ERROR
    return Result(
        outcome, n_iter, watch.history, {"total": watch.seconds}, peak_rss(), plan=plan.as_dict(), remedy=REMEDIES[outcome],
        proven=proven, asked=settings.tol, measure="residual",
    )  # fmt: skip
