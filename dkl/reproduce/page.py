"""Write the pages of stored records: `python -m dkl.reproduce.page [FOLDER]`, by default benchmarks/papers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from dkl.reproduce.overview import overview
from dkl.reproduce.registry import ITEMS
from dkl.reproduce.tables import markdown

FOLDER = Path("benchmarks/papers")


def pages(folder: Path) -> dict[Path, str]:
    """Return the text of each page of the records in `folder`, and of the page of all papers next to it."""
    records = {item.name: folder / f"{item.name}.json" for item in ITEMS.values()}
    found = {
        path.with_suffix(".md"): markdown(ITEMS[name], json.loads(path.read_text(encoding="utf-8")))
        for name, path in records.items()
        if path.exists()
    }
    return found | {folder.with_suffix(".md"): overview(list(ITEMS.values()), folder)}


if __name__ == "__main__":
    for written, text in pages(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER).items():
        written.write_text(text, encoding="utf-8")
