"""Three clusters with heavy tails, as ordinary tables have them: some rows are far from all others."""

import numpy as np


def tailed_rows(seed, n=300):
    """(X (n, 5), y (n,)): deviates of Student's t with 1.5 degrees of freedom about three centers."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return 6 * np.eye(5)[y] + rng.standard_t(1.5, (n, 5)), y
