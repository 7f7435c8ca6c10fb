"""What holds of the seconds of any fit: its stages, its total and its history are by one clock."""

from __future__ import annotations

from typing import Any


def check_seconds(seconds: dict[str, float], history: list[dict[str, Any]]) -> None:
    """Check that stages, which do not overlap, and rows of the history lie within the total; some runs keep rows without seconds."""
    stages = {name: value for name, value in seconds.items() if name != "total"}
    assert min([*stages.values(), 0.0]) == 0 < seconds["total"], seconds
    assert sum(stages.values()) <= seconds["total"] * (1 + 1e-12), seconds
    latest = max((row.get("seconds", 0.0) for row in history), default=0.0)
    assert latest <= seconds["total"], (latest, seconds)
