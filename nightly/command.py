"""The words of `postrun nightly`."""

from __future__ import annotations

import click

from ..errors import UsageError


@click.command
def nightly() -> None:
    """Report every new or changed run below a folder or in an object store."""
    raise UsageError("not part of this version yet")
