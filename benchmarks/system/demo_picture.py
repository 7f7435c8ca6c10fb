"""Draw README's picture, in light and dark: `python -m benchmarks.system.demo_picture [FOLDER]`, by default dkl/guide.

Digits before and after learning from the pairs of `dkl demo`: the first two principal components of the rows, and of the learned kernel.
The title has the AUC of the pairs held out, next to that by distances of the rows. Writes digits-light.png and digits-dark.png.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA

import dkl
from dkl.datasets import load

PAPER = {"light": ("#ffffff", "#1f2328"), "dark": ("#0d1117", "#e6edf3")}
"""Background and ink of each picture: those of the pages where it is shown."""


def main() -> None:
    """Fit the demo's problem once and draw it twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[2] / "dkl" / "guide")
    asked = parser.parse_args()
    digits = load("digits")
    pairs = dkl.Pairs.from_labels(digits.y, random_state=0)
    learner = dkl.PairwiseKernelLearner(gamma=10.0, target_gap=1e-3, random_state=0).fit(digits.X, pairs=pairs)
    quality = learner.result_.quality
    assert quality is not None
    title = f"{quality.measure}: by the learned kernel {quality.value:.3f}, by {quality.alternative} {quality.alternative_value:.3f}"
    components = PCA(2).fit_transform
    maps = {f"{len(digits.X):,} digits": components(digits.X), "the learned kernel": components(learner.factor_)}
    for name, (background, ink) in PAPER.items():
        draw(asked.folder / f"digits-{name}.png", maps, digits.y, title, background, ink)


def draw(path: Path, maps: dict[str, NDArray], y: NDArray, title: str, background: str, ink: str) -> None:
    """Write one picture: a panel a map, each class named in its middle."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(maps), figsize=(10, 4.2), layout="constrained", facecolor=background)
    figure.suptitle(title, color=ink, fontsize=12)
    for ax, (name, rows) in zip(axes, maps.items(), strict=True):
        ax.set(xticks=[], yticks=[], facecolor=background)
        ax.set_title(name, color=ink, fontsize=11)
        ax.spines[:].set_color(ink)
        for digit in np.unique(y):
            color = pyplot.cm.tab10(int(digit))
            own = rows[y == digit]
            ax.scatter(*own.T, s=5, color=color, alpha=0.6, linewidths=0)
            middle = np.median(own, axis=0)
            ax.text(*middle, str(digit), color=ink, fontsize=13, fontweight="bold", ha="center", va="center")
    figure.savefig(path, dpi=100, facecolor=background)
    pyplot.close(figure)


if __name__ == "__main__":
    matplotlib.use("Agg")
    main()
