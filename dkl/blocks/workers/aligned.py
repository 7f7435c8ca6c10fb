"""Values whose arrays are aligned in whatever process they arrive.

What comes over a network may lie at any address: NumPy and compiled loops then take other paths, and the last bits differ from
those of the process that sent it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from typing import SupportsIndex

ALIGNMENT = 16
"""Alignment in bytes, as malloc gives it."""


class AlignedValue:
    """`value`, to be sent to another process: there its buffers are copied, but only those that are not aligned."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        from distributed.protocol import pickle  # which knows classes of a user's session

        # Buffers are kept apart from the pickle, and so are not copied here; before protocol 5, which Dask does without
        # in places, they are within it, and arrays made of them have new memory.
        buffers: list[Any] = []
        options = {"buffer_callback": buffers.append} if int(protocol) >= 5 else {}
        return _received, (pickle.dumps(self.value, **options), *buffers)


def _received(pickled: bytes, *buffers: object) -> AlignedValue:
    """Unpickle the value where it arrives, with aligned buffers."""
    from distributed.protocol import pickle

    return AlignedValue(pickle.loads(pickled, buffers=[_aligned(buffer) for buffer in buffers]))


def _aligned(buffer: Any) -> Any:
    """Return the buffer, or a copy of it if it is not aligned."""
    raw = np.frombuffer(buffer, dtype=np.uint8)
    return raw.copy() if raw.ctypes.data % ALIGNMENT else buffer
