"""The parameters of a classifier that a run's folder can hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from dkl.estimators.svc.fit import SVCSettings
from dkl.estimators.svc.learner import OptimalNeighborhoodSVC


@dataclass(frozen=True)
class SVCRunSettings:
    """kernel: a name, or several. checkpoint_every: rounds of a solver, or "auto": by time."""

    C: float = 1.0
    rho: float = 100.0
    kernel: str | list[str] = "rbf"
    gamma: float | str = "scale"
    degree: float = 3
    coef0: float = 0.0
    solver: str = "accelerated"
    multi_class: str = "ovo"
    class_weight: str | None = None
    tol: float = 1e-6
    max_iter: int = 10_000
    dtype: str = "float64"
    memory_limit: int | None = None
    work_dir: str | None = None
    checkpoint_every: int | str = "auto"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def kernel_names(self) -> list[str]:
        return [self.kernel] if isinstance(self.kernel, str) else list(self.kernel)

    @property
    def machines(self) -> SVCSettings:
        """What the solvers are told of it."""
        return SVCSettings(
            self.solver, self.multi_class, self.tol, self.max_iter, self.dtype, self.memory_limit, self.work_dir
        )

    def estimator(self, **more: Any) -> OptimalNeighborhoodSVC:
        chosen = {name: value for name, value in asdict(self).items() if name not in ("checkpoint_every", "work_dir")}
        return OptimalNeighborhoodSVC(**chosen, **more)
