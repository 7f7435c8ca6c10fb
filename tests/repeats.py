"""Cases beyond those that each property is tested by already: left out of plain `pytest`, run by `pytest -m exhaustive`."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def but_for(further: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """All cases, those in `further` marked as exhaustive."""
    return [pytest.param(case, marks=pytest.mark.exhaustive) if case in further else case for case in cases]
