"""Text as a terminal may show it: control characters of file names, class names and columns are written as escapes."""

from __future__ import annotations

import re

_CONTROL = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters but for tabs and line feeds, marks that turn the direction of text, and bytes that are no text."""
_IN_LINES, _IN_A_LINE = re.compile(f"[{_CONTROL}]"), re.compile(rf"[\t\n{_CONTROL}]")


def printable(text: str, *, lines: bool = False) -> str:
    r"""Return text with its control characters escaped as Python writes them; `lines`: but for tabs and ends of lines.

    >>> print(printable("a\x1b[2J\n.csv"))
    a\x1b[2J\n.csv
    """
    return (_IN_LINES if lines else _IN_A_LINE).sub(lambda found: found[0].encode("unicode_escape").decode(), text)
