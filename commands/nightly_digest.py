"""The command `postrun nightly digest`: parses options, writes the digest of a week."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from .. import modes, option_values
from ..errors import InputError, UsageError
from ..ingest.object_store.urls import is_url
from ..messages import echo_line
from ..nightly import options as words
from .nightly import BASE_URL, COMPARISON, settings_of
from .parts import option, parsed, print_json, with_options
from .report_options import BRAND, GENERATED_AT, MODE, PRICE, chosen_look


def _week(text: str) -> Any:
    from ..nightly.weeks import week

    return week(text)


_moment = parsed(lambda text: words.moment(text, time.time_ns()))
DIGEST_OPTIONS = [
    option("--week", callback=parsed(_week), metavar="WEEK", help="ISO week, such as 2026-W48 (default: the last one that is over)."),
    option("--since", callback=_moment, metavar="TIME",
            help="Instead of a week, jobs that ended since: 2026-11-20, 2026-11-20T06:00 (UTC), or 36h (ago)."),
    option("--until", callback=_moment, metavar="TIME", help="Jobs that ended before (default: now)."),
    option("--by", default="team", show_default=True, metavar="LABEL", help="Label of job.json by which GPU-hours are grouped."),
    PRICE,
    BASE_URL,
    *COMPARISON,
    *BRAND,
    MODE,
    GENERATED_AT,
    option("--json", "as_json", is_flag=True, help="Print digest.json on standard output."),
]  # fmt: skip


@click.command("nightly digest", short_help="Write the digest of a week from the reports of nights.")
@click.argument("out", metavar="OUT")
@with_options(DIGEST_OPTIONS)
def nightly_digest(out: str, as_json: bool, **options: Any) -> None:
    """Write the digest of a week below OUT, the --out of `postrun nightly`.

    digest.html, digest.json and digest.md contain the GPU-hours of the jobs that ended in the week, by cause, by team and by family, the
    time without GPU activity, and what became worse. Reads the index; reports nothing.
    """
    from importlib.metadata import version

    from ..ingest.object_store.open import open_objects
    from ..nightly import digest_files, digest_text, summary, weeks
    from ..nightly.digest import digest
    from ..nightly.index import Book

    if not options["by"].strip():
        raise UsageError("--by names no label; give one of job.json, such as team")
    generated = option_values.generated_at(options["generated_at"])
    now = generated if generated is not None else time.time_ns()
    period = weeks.period(options["week"], options["since"], options["until"], now)
    settings, look = settings_of(options), chosen_look(options)
    if not is_url(out) and not Path(out).exists():
        raise InputError(f"{out}: no such folder; check the path")
    output = open_objects(out, side="out")
    book = Book()
    rows = book.known(output)
    for line in book.refused:
        echo_line(f"note: {line}", err=True)
    if not rows:
        raise InputError(f"{out}: no run is reported there; give the --out of `postrun nightly`")
    written = digest(rows.values(), period, settings, now, options["by"], options["price_per_gpu_hour"], options["base_url"])
    digest_files.write(output, written, look)
    mode = modes.current()
    for line in (*summary.narrower(out, digest_files.HTML, mode), *summary.closed(out, mode)):
        echo_line(f"note: {line}", err=True)
    if as_json:
        print_json(digest_files.data(written, version("postrun")))
        return
    echo_line(digest_text.headline(written).replace("\u00a0", " "))
    echo_line(output.place(digest_files.HTML))
