"""The words of `postrun attach`."""

from __future__ import annotations

import click

from ..errors import UsageError


@click.command
def attach() -> None:
    """Put a report on a ticket."""
    raise UsageError("not part of this version yet")
