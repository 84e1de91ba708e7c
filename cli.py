"""The words of the command line: parses them, calls the four parts, prints, sets the exit code."""

from __future__ import annotations

import click


@click.group()
def main() -> None:
    """Report on a finished training job."""
