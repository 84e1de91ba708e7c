"""The words of `postrun compare`."""

from __future__ import annotations

import click

from .errors import UsageError


@click.command
def compare() -> None:
    """Tell what changed from one run to another."""
    raise UsageError("not part of this version yet")
