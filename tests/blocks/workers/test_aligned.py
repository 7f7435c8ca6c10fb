"""Values that are sent keep their numbers, and their arrays are aligned where they arrive."""

from dataclasses import dataclass

import numpy as np
import pytest
from distributed.protocol import pickle

from dkl.blocks.session import ALIGNMENT, AlignedValue


@dataclass(frozen=True)
class Pair:
    small: np.ndarray
    large: np.ndarray


@pytest.mark.parametrize("offset", [0, 1, 8])
def test_arrays_are_aligned_wherever_their_bytes_arrive(offset):
    given = Pair(np.arange(5), np.linspace(0, 1, 4000))
    buffers = []
    header = pickle.dumps(AlignedValue(given), buffer_callback=buffers.append)
    arrived = []
    for buffer in buffers:
        bytes_ = np.frombuffer(buffer, dtype=np.uint8)
        raw = np.empty(len(bytes_) + 2 * ALIGNMENT, dtype=np.uint8)
        first = -raw.ctypes.data % ALIGNMENT + offset
        raw[first : first + len(bytes_)] = bytes_
        arrived.append(memoryview(raw[first : first + len(bytes_)]))
    found = pickle.loads(header, buffers=arrived).value
    for name in ("small", "large"):
        values = getattr(found, name)
        assert values.ctypes.data % ALIGNMENT == 0 and values.flags.aligned
        np.testing.assert_array_equal(values, getattr(given, name))


def test_what_is_aligned_is_not_copied():
    large = np.zeros(4000)
    assert large.ctypes.data % ALIGNMENT == 0
    buffers = []
    header = pickle.dumps(AlignedValue(large), buffer_callback=buffers.append)
    assert np.shares_memory(pickle.loads(header, buffers=buffers).value, large)


@pytest.mark.parametrize("protocol", [4, 5])
def test_classes_of_a_session_are_sent(protocol):
    class Own:
        numbers = np.arange(3000.0)

    found = pickle.loads(pickle.dumps(AlignedValue(Own()), protocol=protocol)).value.numbers
    np.testing.assert_array_equal(found, Own.numbers)
    assert found.ctypes.data % ALIGNMENT == 0
