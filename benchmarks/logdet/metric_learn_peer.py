"""metric-learn's learners on one draw, in an environment of its own: `OLD_PYTHON benchmarks/logdet/metric_learn_peer.py NAME DRAW.npz [K]`.

metric-learn 0.7 needs a scikit-learn below 1.3, so it can't stand beside this package: `logdet_accuracy.py --metric-learn OLD_PYTHON`
and `truncated_metrics.py` start this file there. `DRAW.npz` holds X, y (labelled rows) and Z, wanted (held-out ones); K: the
components, all by default. Prints {"error": %, "seconds": of CPU}.
"""

from __future__ import annotations

import json
import sys
import time
import warnings

import numpy as np
from metric_learn import LMNN, ITML_Supervised
from sklearn.neighbors import KNeighborsClassifier

LEARNERS = {"ITML": lambda k: ITML_Supervised(random_state=0), "LMNN": lambda k: LMNN(n_components=k, random_state=0)}
"""At their defaults, but for the components, which ITML always has all of."""


def main() -> None:
    """Fit, transform and classify by the nearest labelled row."""
    name, path, *k = sys.argv[1:]
    draw = np.load(path)
    warnings.simplefilter("ignore")
    start = time.process_time()
    model = LEARNERS[name](int(k[0]) if k else None).fit(draw["X"], draw["y"])
    seconds = time.process_time() - start
    nearest = KNeighborsClassifier(1).fit(model.transform(draw["X"]), draw["y"])
    error = 100.0 * (1.0 - nearest.score(model.transform(draw["Z"]), draw["wanted"]))
    print(json.dumps({"error": error, "seconds": seconds}))


if __name__ == "__main__":
    main()
