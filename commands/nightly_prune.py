"""The command `postrun nightly prune`: parses options, shows or removes reports."""

from __future__ import annotations

import time
from typing import Any

import click

from ..errors import UsageError
from ..messages import echo_line
from ..nightly import options as words
from .nightly import FAMILY
from .parts import Number, option, parsed, print_json, with_options
from .report_options import size_of

PRUNE_OPTIONS = [
    option("--older-than", callback=parsed(lambda text: words.moment(text, time.time_ns())), metavar="TIME",
            help="Remove the reports of runs that began before: 90d (ago; also m, h, w), or 2026-08-01."),
    option("--keep", type=Number(1, 10_000_000), metavar="N", help="Remove the reports of all but the N newest runs of each family."),
    option("--gone-from", metavar="SOURCE", help="Remove and forget runs whose files are no longer at SOURCE of `postrun nightly`."),
    option("--most", callback=size_of, metavar="SIZE", help="Remove the oldest reports until all together have at most this size."),
    option("--superseded", is_flag=True, help="Remove reports that a newer one of the same run replaced."),
    option("--ticketed", is_flag=True, help="Also remove reports that a ticket links to."),
    FAMILY,
    option("--delete", is_flag=True, help="Remove; without it, only list what would be removed."),
    option("--json", "as_json", is_flag=True, help="Print the list as JSON on standard output."),
]  # fmt: skip


@click.command("nightly prune", short_help="Remove old reports of nights.")
@click.argument("out", metavar="OUT")
@with_options(PRUNE_OPTIONS)
def nightly_prune(out: str, as_json: bool, **options: Any) -> None:
    """List or remove reports below OUT, the --out of `postrun nightly`.

    Nothing is removed without --delete. Runs keep their figures in the index and are not reported again; their done.json stays.
    """
    from ..analysis.toolkit.wording import plural
    from ..ingest.object_store.open import open_objects
    from ..nightly import prune as pruning
    from ..nightly.history import Settings
    from ..nightly.index import Book
    from ..nightly.places import RUNS

    if not any(options[name] for name in ("older_than", "keep", "gone_from", "most", "superseded")):
        raise UsageError("nothing is named; give --older-than, --keep, --gone-from, --most or --superseded")
    output = open_objects(out, side="out")
    book = Book(Settings(patterns=options["families"]))
    rows = book.known(output)
    policy = pruning.Policy(
        options["older_than"],
        options["keep"],
        _gone(options["gone_from"], out, rows) if options["gone_from"] else frozenset(),
        options["most"],
        options["superseded"],
        options["ticketed"],
    )
    planned = pruning.plan(rows, pruning.reports_of(output.list(f"{RUNS}/"), rows), policy, options["families"])
    removed = list(pruning.remove(output, planned.removals)) if options["delete"] else list(planned.removals)
    if options["delete"] and removed:
        book.write(output, book.known(output))
    if as_json:
        print_json({
            "deleted": options["delete"],
            "bytes": sum(removal.bytes for removal in removed),
            "runs": [
                {"id": removal.row.id, "why": removal.why, "files": len(removal.files), "bytes": removal.bytes} for removal in removed
            ],
            "kept_for_tickets": list(planned.kept),
        })  # fmt: skip
        return
    for removal in removed:
        echo_line(f"{removal.row.id}: {plural(len(removal.files), 'file')}, {removal.bytes / 1e6:.1f} MB: {removal.why}")
    if planned.kept:
        echo_line(
            f"note: {plural(len(planned.kept), 'report')} kept because of a ticket with a link to it; --ticketed removes them too", err=True
        )
    done = "removed" if options["delete"] else "would be removed; --delete does it"
    echo_line(f"{sum(removal.bytes for removal in removed) / 1e6:.1f} MB of {plural(len(removed), 'run')} {done}")


def _gone(source: str, out: str, rows: Any) -> frozenset[str]:
    """Return the runs of the index that the source no longer has."""
    from ..ingest.object_store.open import open_objects
    from ..nightly import night as nights
    from ..nightly import run_night as course
    from ..nightly.model import ReportOptions
    from ..nightly.night import Wanted

    source_place, out_place = course.places_of(source, out)
    wanted = Wanted(source_place, out_place, ReportOptions(), time.time_ns(), 0, run_stores=True)
    source_objects, out_objects = open_objects(source_place, links=False, side="source"), open_objects(out_place, side="out")
    return frozenset(nights.plan(source_objects, out_objects, wanted, rows).gone)
