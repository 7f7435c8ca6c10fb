"""Standard output and standard error of commands."""

from __future__ import annotations

import click

from dkl.printable import printable


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print text of one or more lines without the control characters of names; err: on standard error."""
    click.echo(printable(str(text), lines=True), err=err, nl=nl)
