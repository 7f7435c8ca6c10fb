"""Histograms of oriented gradients of 28 x 28 images, at three scales: 2,172 features.

In the spirit of S. Maji, J. Malik, Fast and accurate digit classification, Tech. Rep. UCB/EECS-2009-159, 2009: local
histograms of twelve orientations in overlapping cells of several sizes. The construction is ours. Gradients are central
differences, known on the 26 x 26 pixels inside, which three grids of cells cover from edge to edge:

    12 x 12 cells of 4 x 4 pixels, 2 apart;    6 x 6 cells of 6 x 6 pixels, 4 apart;    the whole

181 cells of 12 orientations: as many features as Machart et al. (2011, table 1) state. Whether theirs are the same
cells is not known.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
SIDE, INNER, ORIENTATIONS = 28, 26, 12
GRIDS = ((4, 2), (6, 4), (26, 1))
"""Pixels of a cell's side, and pixels from one cell to the next, of each grid."""
N_FEATURES = ORIENTATIONS * sum(((INNER - size) // step + 1) ** 2 for size, step in GRIDS)
BATCH = 1000


def oriented_gradients(images: NDArray[Any]) -> Floats:
    """Return the features (n, 2172) of images (n, 784) with values from 0 to 255."""
    out = np.empty((len(images), N_FEATURES), np.float32)
    sums = cell_sums()
    # In batches: the planes of all images would be 24 times the images.
    for lo in range(0, len(images), BATCH):
        planes = orientation_planes(images[lo : lo + BATCH].reshape(-1, SIDE, SIDE))
        histograms = (planes.reshape(-1, INNER * INNER) @ sums).reshape(len(planes), ORIENTATIONS, -1)
        out[lo : lo + BATCH] = normalized(histograms)
    return out


def orientation_planes(images: NDArray[Any]) -> Floats:
    """Return (t, 12, 676): the length of each pixel's gradient, shared between the two orientations next to its own."""
    pixels = images.astype(np.float32) / 255
    across = (pixels[:, 1:-1, 2:] - pixels[:, 1:-1, :-2]).reshape(len(pixels), -1)
    down = (pixels[:, 2:, 1:-1] - pixels[:, :-2, 1:-1]).reshape(len(pixels), -1)
    place = np.arctan2(down, across) * np.float32(ORIENTATIONS / (2 * np.pi))
    lower = np.floor(place)
    share, length = place - lower, np.hypot(across, down)
    # Angles are cyclic: the orientation after the last is the first.
    first = lower.astype(np.int64) % ORIENTATIONS
    planes = np.zeros((len(pixels), ORIENTATIONS, INNER * INNER), np.float32)
    for plane, part in ((first, (1 - share) * length), ((first + 1) % ORIENTATIONS, share * length)):
        np.put_along_axis(planes, plane[:, None], np.take_along_axis(planes, plane[:, None], 1) + part[:, None], 1)
    return planes


def cell_sums() -> Floats:
    """Return (676, 181): 1 at the pixels that a cell adds up, else 0."""
    columns = []
    for size, step in GRIDS:
        starts = range(0, INNER - size + 1, step)
        for top in starts:
            for left in starts:
                mask = np.zeros((INNER, INNER), np.float32)
                mask[top : top + size, left : left + size] = 1
                columns.append(mask.ravel())
    return np.stack(columns, axis=1)


def normalized(histograms: Floats) -> Floats:
    """Return (t, 2172) of histograms (t, 12, 181): square roots, those of a grid of length 1, so that inner products compare shares."""
    roots = np.sqrt(histograms)
    parts, lo = [], 0
    for size, step in GRIDS:
        hi = lo + ((INNER - size) // step + 1) ** 2
        part = roots[:, :, lo:hi].reshape(len(roots), -1)
        # An image without a gradient, such as an empty one, stays 0.
        parts.append(part / np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-6))
        lo = hi
    return np.concatenate(parts, axis=1)
