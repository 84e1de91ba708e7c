"""The command `postrun nightly prune`: parses options, shows or removes reports."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError, UsageError
from ..ingest.object_store.objects import MOST_LEFT_OUT
from ..ingest.object_store.urls import is_url
from ..messages import echo_line
from ..nightly import options as words
from .nightly import FAMILY
from .parts import Number, option, parsed, print_json, with_options
from .report_options import size_of

if TYPE_CHECKING:
    from ..nightly.model import Row
    from ..nightly.prune import Plan, Removal

PRUNE_OPTIONS = [
    option("--older-than", callback=parsed(lambda text: words.moment(text, time.time_ns())), metavar="TIME",
            help="Remove the reports of runs that ended before: 90d (ago; also m, h, w), or 2026-08-01."),
    option("--keep", type=Number(1, 10_000_000), metavar="N", help="Remove the reports of all but the N newest runs of each family."),
    option("--gone-from", metavar="SOURCE", help="Remove and forget runs whose files are no longer at SOURCE of `postrun nightly`."),
    option("--most", callback=size_of, metavar="SIZE", help="Remove the oldest reports until all together have at most this size."),
    option("--superseded", is_flag=True, help="Remove reports that a newer one of the same run replaced."),
    option("--ticketed", is_flag=True, help="Also remove reports that a ticket, sent or waiting, links to."),
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
    from ..ingest.object_store.open import open_objects
    from ..nightly import outbox
    from ..nightly import prune as pruning
    from ..nightly.index import Book
    from ..nightly.places import INDEX_FILES, RUNS

    if not any(options[name] for name in ("older_than", "keep", "gone_from", "most", "superseded")):
        raise UsageError("nothing is named; give --older-than, --keep, --gone-from, --most or --superseded")
    if not is_url(out) and not Path(out).exists():
        raise InputError(f"{out}: no such folder; check the path")
    output = open_objects(out, links=False, side="out")
    book = Book()
    rows = book.known(output)
    for line in book.refused:
        echo_line(f"note: {line}", err=True)
    if not rows and output.head(INDEX_FILES[0]) is None:
        raise InputError(f"{out}: no run is reported there; give the --out of `postrun nightly`")
    policy = pruning.Policy(
        options["older_than"],
        options["keep"],
        _gone(options["gone_from"], out, rows) if options["gone_from"] else frozenset(),
        options["most"],
        options["superseded"],
        options["ticketed"],
        frozenset() if options["ticketed"] else outbox.runs_waiting(output),
    )
    planned = pruning.plan(rows, pruning.reports_of(output.list(f"{RUNS}/"), rows), policy, options["families"])
    removed: list[Removal] = []
    try:
        for removal in pruning.remove(output, planned.removals) if options["delete"] else planned.removals:
            removed.append(removal)
    finally:  # an error of the store must not hide what was removed before it
        _print(removed, planned, options["most"], options["delete"], as_json)


def _print(removed: Sequence[Removal], plan: Plan, most: int | None, delete: bool, as_json: bool) -> None:
    from ..analysis.toolkit.wording import plural

    if as_json:
        print_json({
            "deleted": delete,
            "bytes": sum(removal.bytes for removal in removed),
            "runs": [
                {"id": removal.row.id, "why": removal.why, "files": len(removal.files), "bytes": removal.bytes} for removal in removed
            ],
            "kept_for_tickets": list(plan.kept),
            "left_bytes": plan.left,
        })  # fmt: skip
        return
    for removal in removed:
        echo_line(f"{removal.row.id}: {plural(len(removal.files), 'file')}, {removal.bytes / 1e6:.1f} MB: {removal.why}")
    if plan.kept:
        it = "it" if len(plan.kept) == 1 else "them"
        kept = plural(len(plan.kept), "run")
        echo_line(f"note: {kept} kept: a ticket, sent or waiting, links to {it}; --ticketed removes {it} too", err=True)
    if most is not None and plan.left > most:
        echo_line(f"note: {plan.left / 1e6:.1f} MB remain, more than the {most / 1e6:.1f} MB of --most", err=True)
    if delete and removed:
        echo_line("note: the next `postrun nightly`, or one with --index-only, takes them out of the index", err=True)
    done = "removed" if delete else "would be removed; --delete does it"
    echo_line(f"{sum(removal.bytes for removal in removed) / 1e6:.1f} MB of {plural(len(removed), 'run')} {done}")


def _gone(source: str, out: str, rows: Mapping[str, Row]) -> frozenset[str]:
    """Return the runs of the index that the source no longer has.

    A run is not gone if the listing left out what may belong to it. InputError if the source has no run of the index."""
    from ..ingest.object_store.open import open_objects
    from ..nightly import night as nights
    from ..nightly import run_night as course
    from ..nightly.model import ReportOptions
    from ..nightly.night import Wanted

    source_place, out_place = course.places_of(source, out)
    wanted = Wanted(source_place, out_place, ReportOptions(), time.time_ns(), 0, run_stores=True)
    objects = open_objects(source_place, links=False, side="source")
    night = nights.plan(objects, open_objects(out_place, links=False, side="out"), wanted, rows)
    if not night.runs_found:
        raise InputError(f"{source}: no run found, so nothing is taken for gone; check the path, and that its storage is mounted")
    unseen = [line.partition(": ")[0] for line in night.not_read]
    if len(objects.left_out) >= MOST_LEFT_OUT or "" in unseen:
        raise InputError(f"{source}: too much cannot be read there to know what is gone; see `postrun nightly --dry-run --json`")
    gone = frozenset(run for run in night.gone if not any(_shares(run, path) for path in unseen))
    if rows and not rows.keys() - gone:
        raise InputError(f"{source}: has none of the runs in {out}, so nothing is taken for gone; give the SOURCE of `postrun nightly`")
    return gone


def _shares(run_id: str, path: str) -> bool:
    """Decide whether a path that was not read may contain files of a run."""
    run, path = f"{run_id}/", f"{path.rstrip('/')}/"
    return run_id == "." or run.startswith(path) or path.startswith(run)
