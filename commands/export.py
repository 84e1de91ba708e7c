"""The command `postrun export`: parses options, writes the run, prints a summary."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..messages import echo, echo_line
from .parts import CONFIG, VERBOSITY, option, print_json, progress_line, with_options
from .report_options import MODE, REDACT, STORE_OPTIONS

if TYPE_CHECKING:
    from ..export.counts import Counts

FORMATS = ("perfetto", "chrome", "parquet", "csv")
EXPORT_OPTIONS = [
    option("--format", "-f", "kind", type=click.Choice(FORMATS, case_sensitive=False), required=True, envvar="POSTRUN_EXPORT_FORMAT",
           help="perfetto: a trace for ui.perfetto.dev; chrome: JSON for chrome://tracing and other viewers; parquet, csv: a folder with a "
           "file per table."),
    option("--output", "-o", type=click.Path(path_type=Path), required=True, envvar="POSTRUN_EXPORT_OUTPUT", metavar="OUT",
           help="File to write (compressed if its name ends in .gz), or the folder for parquet and csv. Replaces an earlier export."),
    option("--csv-raw", is_flag=True, envvar="POSTRUN_EXPORT_CSV_RAW",
           help="Keep texts of CSV files unchanged, including those that a spreadsheet would run as formulas."),
    REDACT,
    MODE,
    option("--json", "as_json", is_flag=True, help="Print what was written as JSON on standard output."),
]  # fmt: skip


@click.command(short_help="Write the whole run for Perfetto, Chrome's viewer or data frames.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@with_options(EXPORT_OPTIONS, [CONFIG], STORE_OPTIONS, VERBOSITY)
def export(
    sources: tuple[str, ...], kind: str, output: Path, csv_raw: bool, as_json: bool, quiet: bool, verbose: bool, **of_store: Any
) -> None:
    """Write all events, arrows and counters of a run for other tools.

    SOURCE is what `postrun report` reads: a trace file, a folder, a run store, or a URL of any of them.
    """
    from ..export.write import check, write
    from ..ingest import ingest, summary

    if csv_raw and kind != "csv":
        raise UsageError(f"--csv-raw is for --format csv, not {kind}")
    check(sources, kind, output)
    with (
        progress_line(quiet, verbose) as progress,
        ingest(sources, progress=progress, **of_store) as store,
    ):
        progress("writing", None)
        counts = write(store, kind, output, progress, csv_raw=csv_raw)
        progress("", None)
        # The other tool cannot report gaps in the files.
        notes = [note for note in summary(store)["notes"] if note["severity"] != "info"]
        warnings = [f"{note['file']}: {note['message']}" if note["file"] else note["message"] for note in notes]
    if as_json:
        print_json({"output": str(output), "format": kind, **asdict(counts), "warnings": warnings})
    elif not quiet:
        echo_line(f"{output}: {_counts_text(counts)}")
        if counts.shifted_ns:
            echo_line(f"note: times of this run begin below 0; {counts.shifted_ns} ns were added to each", err=True)
        if counts.cut:
            echo_line(f"note: {_plural(counts.cut, 'event')} would end before the start or too late for a trace, and were cut", err=True)
        if not counts.rows and not counts.slices and not counts.values:
            echo("note: nothing in this run has a time that could be drawn", err=True)
        for message in warnings:
            echo_line(f"note: {message}", err=True)


def _counts_text(counts: Counts) -> str:
    if counts.rows:
        return f"{len(counts.rows)} tables, " + _plural(sum(counts.rows.values()), "row")
    parts = [
        _plural(counts.slices, "event"), _plural(counts.arrows, "arrow"), _plural(counts.values, "counter value"),
        _plural(counts.tracks + counts.lanes, "track"),
    ]  # fmt: skip
    return ", ".join(parts)


def _plural(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")
