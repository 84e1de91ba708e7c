"""``postrun ingest``: trace files -> a run store on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..messages import echo_line
from .parts import CONFIG, VERBOSITY, option, print_json, progress_line, with_options
from .report_options import MODE, REDACT, STORE_OPTIONS


@click.command(short_help="Load a run into a store (DuckDB) to report or query later.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@option("--output", "-o", type=click.Path(dir_okay=False, path_type=Path), default=Path("run.duckdb"), show_default=True,
         help="Run store to write; an existing file is replaced.")  # fmt: skip
@option("--name", help="Name of the run.")
@option("--json", "as_json", is_flag=True, help="Print a summary as JSON on standard output.")
@with_options([REDACT, MODE], [CONFIG], STORE_OPTIONS, VERBOSITY)
def ingest(
    sources: tuple[str, ...], output: Path, name: str | None, as_json: bool, quiet: bool, verbose: bool, **of_store: Any
) -> None:  # fmt: skip
    """Load SOURCE... into a run store (a DuckDB file);
    `postrun report run.duckdb` continues from there."""
    from ..ingest import ingest as load
    from ..ingest import summary

    with (
        progress_line(quiet, verbose) as progress,
        load(sources, output, progress=progress, name=name, **of_store) as store,
    ):
        loaded = summary(store)
    if as_json:
        print_json({"store": str(output), **loaded})
    elif not quiet:
        counts = ", ".join(f"{count} {table.replace('_', ' ')}s" for table, count in loaded["rows"].items() if count)
        echo_line(f"{output}: {counts or 'nothing'}")
        for note in loaded["notes"]:
            echo_line(f"  {note['severity']}: {note['message']}", err=True)
