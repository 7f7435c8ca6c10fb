"""The one way to standard output and standard error of commands."""

from __future__ import annotations

import click

from dkl._printable import printable


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text, which may be several lines, without control characters of names in it; err: on standard error."""
    click.echo(printable(str(text), lines=True), err=err, nl=nl)
