"""The guide's pages, which are the Markdown files of `dkl/guide`."""

from __future__ import annotations

import re
from importlib import resources

from dkl.errors import InputError

TOPICS = ("learners", "files", "commands", "quality", "scale", "reproducibility", "safety", "papers")
"""Pages in the order in which they are listed."""


def contents() -> str:
    """List the topics, each with its page's title."""
    titles = {topic: _text(topic).partition("\n")[0].partition(": ")[2] for topic in TOPICS}
    return "\n".join(f"{topic:<17}{title}" for topic, title in titles.items())


def page(topic: str) -> str:
    """Return a page for a terminal: its Markdown with the text of links in place of the links.

    Raises InputError for a topic that does not exist.
    """
    if topic not in TOPICS:
        raise InputError("no such topic", where="guide", got=topic, wanted=", ".join(TOPICS))
    return re.sub(r"\[([^\]]+)\]\([^)\s]+\)", r"\1", _text(topic)).rstrip("\n")


def _text(topic: str) -> str:
    return (resources.files("dkl") / "guide" / f"{topic}.md").read_text(encoding="utf-8")
