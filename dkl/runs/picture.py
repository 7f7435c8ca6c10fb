"""A run's picture: what its learner draws, as a file that appears whole."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dkl.estimators.common import drawing
from dkl.runs.kind import RunKind
from dkl.runs.lazy import Lazy
from dkl.stores.run import RunStore


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def draw_picture(kind: RunKind[Any, Any], run: RunStore, inputs: Lazy[Any], path: Path) -> Path:
    """The picture of a complete run at `path`, of the kind that its suffix names; InputError without matplotlib."""
    drawing.check_matplotlib("--picture")
    return drawing.save(kind.picture(run, inputs), path)
