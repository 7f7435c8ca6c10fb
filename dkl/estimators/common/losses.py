"""The losses of Li et al. 2009, Table 2, for the settings of every learner that has one. Imports nothing large."""

from __future__ import annotations

from dkl.estimators.common.rules import Instance, Word

TRIPLET_LOSSES = ("log", "lmnn", "linear")
PAIR_LOSSES = ("itml", "hoi")
LOSS_NAME = Word(*TRIPLET_LOSSES, *PAIR_LOSSES)
LOSS_OBJECT = Instance(
    lambda value: all(callable(getattr(value, name, None)) for name in ("value", "first", "second")),
    "an object with value, first and second",
)
