"""Inputs that are read when they are first asked for: a run of pairs is resumed after their files are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """Value of `read`, read at the first call; after `release` it is read again when called."""

    def __init__(self, read: Callable[[], T], value: T | None = None) -> None:
        self._read, self._value = read, value

    def __call__(self) -> T:
        """Return the value, read if it is not held."""
        if self._value is None:
            self._value = self._read()
        return self._value

    def release(self) -> None:
        """Release the value, so that its memory is free."""
        self._value = None
