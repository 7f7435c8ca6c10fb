"""Output of `dkl verify`: numbers as reported and as recomputed, their difference and the tolerance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dkl.errors import StoreError, printable
from dkl.runs.echo import echo
from dkl.stores.run import RunStore

QUALITY = "quality"
ALTERNATIVE = "quality of the alternative"
"""Names of the number on held-out data, and of the plainest alternative's."""


@dataclass(frozen=True)
class Comparison:
    """A reported number and the same recomputed.

    A bound may be larger than it need be, and the claim holds all the same: then the recomputed value counts against
    the report only where it lies `above` it (gaps) or `below` it (eigenvalues).

    quiet: shown only where it differs.
    """

    name: str
    reported: float
    recomputed: float
    allowed: float
    counts: str = "both"
    quiet: bool = False

    @property
    def apart(self) -> float:
        """Return how far the recomputed number is off in the direction that counts; NaN if either is NaN."""
        difference = self.recomputed - self.reported
        return {"both": abs(difference), "above": difference, "below": -difference}[self.counts]

    @property
    def agrees(self) -> bool:
        """Return whether the recomputed number is within the tolerance; False for NaN."""
        return self.apart <= self.allowed


def named(comparisons: Iterable[Comparison], which: str, *, quiet: bool = False) -> Iterator[Comparison]:
    """Yield one output's comparisons, `which` added to their names, as " of target 2"; quiet: all are."""
    for one in comparisons:
        yield replace(one, name=one.name + which, quiet=one.quiet or quiet)


@np.errstate(all="ignore")  # what damaged numbers overflow to agrees with nothing, which says enough
def compare(run: RunStore, comparisons: Iterable[Comparison]) -> None:
    """Print all; StoreError names those that differ."""
    wrong, hidden = [], 0
    echo(f"{printable(run.name)}\n  {'':<32}{'reported':>20}{'recomputed':>20}{'apart':>12}{'allowed':>12}")
    is_quality_recomputed = False
    for one in comparisons:
        is_quality_recomputed |= one.name == QUALITY
        if not one.agrees:
            wrong.append(one.name)
        if one.quiet and one.agrees:
            hidden += 1
            continue
        apart = abs(one.recomputed - one.reported)
        echo(f"  {one.name:<32}{one.reported:>20.12g}{one.recomputed:>20.12g}{apart:>12.2g}{one.allowed:>12.2g}")
    if run.report().get("quality") is not None and not is_quality_recomputed:
        echo("  not recomputed: quality, as this run keeps no model of the data that was not held out")
    if hidden:
        echo(f"  and {hidden} numbers more that agree")
    if wrong:
        raise StoreError(
            "the report is not what the stored result gives", where=run.name, got=f"other {', '.join(wrong)}"
        )
    echo("  they agree")
