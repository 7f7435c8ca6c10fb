"""The losses of Li et al. 2009, Table 2, for the settings of learners. Imports nothing large."""

from __future__ import annotations

from dkl.estimators.base.rules import Instance, Real, Word

TRIPLET_LOSSES = ("log", "lmnn", "hinge", "linear")
PAIR_LOSSES = ("itml", "hoi", "hoi_hinge")
HINGES = ("hinge", "hoi_hinge")
"""Losses with a corner, which "lmnn" and "hoi" smooth."""
LOSS_PARAMETERS = {"lmnn": ("t",), "hoi": ("t",), "itml": ("upper", "lower")}
"""Names that `loss_params` may hold, by loss."""
PARAMETER_RULES = {"t": Real(above=-3, below=1), "upper": Real(above=0), "lower": Real(above=0)}
LOSS_NAME = Word(*TRIPLET_LOSSES, *PAIR_LOSSES)
SMOOTH_LOSS_NAME = Word(*(name for name in (*TRIPLET_LOSSES, *PAIR_LOSSES) if name not in HINGES))
LOSS_OBJECT = Instance(
    lambda value: all(callable(getattr(value, name, None)) for name in ("value", "first", "second")),
    "an object with value, first and second",
)
