"""Checks of a cluster's workers: versions must be those of this process, and processors had better be."""

from __future__ import annotations

import logging
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dkl.errors import InputError
from dkl.linalg.one_blas_thread import blas_controller

if TYPE_CHECKING:
    from distributed import Client

ALIKE = ("dkl", "numpy", "scipy", "zarr", "numba", "scikit-learn")
"""Packages that workers compute, read and write with; other versions may differ in bits or formats."""
ANSWER_SECONDS = 10.0
"""Seconds that workers have to report their versions and processors."""
LOG = logging.getLogger("dkl")
_asked: WeakKeyDictionary[Client, set[str]] = WeakKeyDictionary()
"""Addresses of workers that were asked what they are, by client."""


def check_versions(client: Any) -> None:
    """Raise InputError for a worker with another Python or package than here; Dask asks it."""
    here = _versions()
    for address, found in sorted(client.get_versions(packages=list(ALIKE))["workers"].items()):
        there = found["packages"]
        python = ".".join(str(there["python"]).split(".")[:2])
        for name, got, wanted in [("Python", python, here["python"]), *((one, there[one], here[one]) for one in ALIKE)]:
            if got != wanted:
                raise InputError(
                    f"another {name} than here",
                    where=f"worker {address}",
                    got=got or "none",
                    wanted=wanted,
                    remedy=f"install {name} {wanted} there, or run where it has {name} {got}",
                )


def require_alike(client: Client, workers: Sequence[str]) -> None:
    """Refuse workers with other versions than here, and note processors of other kinds; of each worker and client once.

    A worker that gives no answer is not judged: the fit finds out. Raises InputError as `check_versions`.
    """
    asked = _asked.setdefault(client, set())
    fresh = [worker for worker in workers if worker not in asked]
    if not fresh:
        return
    try:
        # By Dask's own coroutine, which alone takes a time limit: a worker may hang.
        found = client.sync(client._run, machine, workers=fresh, on_error="return", callback_timeout=ANSWER_SECONDS)
    except (OSError, TimeoutError):
        return
    here = machine()
    if any(
        isinstance(one, ImportError) or getattr(one, "versions", here.versions) != here.versions
        for one in found.values()
    ):
        check_versions(client)
    asked.update(fresh)
    kinds = {address: one.kernels for address, one in found.items() if isinstance(one, WorkerMachine)}
    other = {address: kind for address, kind in kinds.items() if kind != here.kernels}
    if other:
        address = min(other)
        LOG.warning(
            "processors of other kinds on %d of %d workers (BLAS for %s at %s, for %s here): last bits may differ from run to run",
            len(other), len(kinds), other[address], address, here.kernels,
        )  # fmt: skip


@dataclass(frozen=True)
class WorkerMachine:
    """Versions by package, and BLAS' kernels for the processor: the last bits of results depend on both."""

    versions: Mapping[str, str | None]
    kernels: str


def machine() -> WorkerMachine:
    """Return what computes here; runs on workers, too."""
    kernels = {str(one.get("architecture", "")) for one in blas_controller().info() if one["user_api"] == "blas"}
    return WorkerMachine(_versions(), ", ".join(sorted(filter(None, kernels))) or platform.machine())


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in ALIKE:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
