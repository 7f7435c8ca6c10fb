"""Rules for kernels, for the settings of every learner that has one. Imports nothing large."""

from __future__ import annotations

from dkl.estimators.base.rules import Instance, ListOf, Word

KERNEL_NAMES = (
    *("additive_chi2", "chi2", "cosine", "laplacian", "linear", "poly", "polynomial", "precomputed", "rbf"),
    "sigmoid",
)
"""scikit-learn's kernel names, and "precomputed"; a test holds them equal."""

KERNEL = Word(*KERNEL_NAMES)
NAMED_KERNELS = ListOf(Word(*(name for name in KERNEL_NAMES if name != "precomputed")))
"""Rule for kernels to be combined, as a run's folder holds them."""
KERNEL_FUNCTION = Instance(callable, "a function")
KERNEL_KEYS = {"kernel", "gamma", "degree", "coef0", "kernel_params"}
"""Keys of a dictionary that describes a kernel with its own parameters."""


def _is_combined(value: object) -> bool:
    """Return whether `value` is a list of kernels: names, functions, or dictionaries of KERNEL_KEYS."""
    if not isinstance(value, (list, tuple)) or not value:
        return False

    def is_kernel(item: object) -> bool:
        return callable(item) or (KERNEL.accepts(item) and item != "precomputed")

    return all(
        is_kernel(item) or (isinstance(item, dict) and set(item) <= KERNEL_KEYS and is_kernel(item.get("kernel")))
        for item in value
    )


KERNEL_LIST = Instance(_is_combined, "a list of kernels, each a name, a function or a dictionary")
