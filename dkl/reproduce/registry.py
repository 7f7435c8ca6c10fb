"""All tables and figures that `dkl reproduce` recomputes, by name."""

from __future__ import annotations

from dkl.errors import InputError
from dkl.reproduce import admm, admm_seconds, onk, slkl, sqlp, trin
from dkl.reproduce.driver import missing
from dkl.reproduce.item import Effort, Item

ITEMS: dict[str, Item] = {
    item.name: item for family in (admm, admm_seconds, slkl, onk, trin, sqlp) for item in family.ITEMS
}


def chosen(name: str) -> list[Item]:
    """Return the item of this name, or all for "all". Raises InputError for an unknown name."""
    if name == "all":
        return list(ITEMS.values())
    if name not in ITEMS:
        raise InputError(
            "no such table or figure", where="dkl reproduce", got=repr(name), wanted=", ".join((*ITEMS, "all"))
        )
    return [ITEMS[name]]


def contents() -> str:
    """List the items: name, paper, place, whether the data are here, what it asks."""
    lines = [f"{'name':<15}{'paper':<9}{'place':<10}{'data':<24}shows"]
    for item in ITEMS.values():
        absent, quick = (missing(item, Effort(quick=quick)) for quick in (False, True))
        here = "here" if not absent else "for --quick alone" if not quick else f"{len(absent)} missing"
        lines.append(f"{item.name:<15}{item.paper:<9}{item.place:<10}{here:<24}{item.asks}")
    return "\n".join(lines)
