"""The HTML page of a digest: a digest -> one self-contained page without a script."""

from __future__ import annotations

from typing import Any, Final

from ..report_templates.output import pages, styles
from ..report_templates.text.formats import clip, percent
from ..report_templates.text.look import Look
from . import digest_text as texts
from .addresses import PATH, file_of, filled, path_of
from .digest import Digest, Job
from .model import Row

TITLE: Final = "Weekly digest"


def digest_page(
    digest: Digest, version: str, look: Look | None = None, *, data_file: str = "digest.json", index: str = "index.html"
) -> str:
    """Render the page for a browser, a phone or paper; it loads nothing.

    ``data_file``, ``index``: links to the same as JSON and to the index."""
    look = look or Look()
    lines, rest = texts.worse(digest)
    causes = texts.causes(digest)
    return pages.rendered(
        "digest.html.j2",
        style=styles.asset("style.css", "index.css", "digest.css"),
        script="",
        target="html",
        look=look,
        title=look.title or TITLE,
        generator={"name": "postrun", "version": version, "generated_at_ns": digest.generated_at_ns},
        period=digest.period,
        by=clip(digest.by, 40),
        headline=texts.headline(digest),
        tiles=texts.tiles(digest),
        anchors={"causes", "groups", "inactive", "lost"} if digest.jobs else set(),
        notes=texts.notes(digest),
        jobs=bool(digest.jobs),
        bar=texts.bar(digest.total),
        causes=[(cause, percent(cause.share)) for cause in causes],
        total=texts.numbers(digest).total(digest.total.allocated_ns),
        cost=texts.groups(digest, (), "")[-1].cost if digest.total.currency and digest.jobs else None,
        currency=digest.total.currency,
        groups=texts.groups(digest, digest.groups, f"values of {clip(digest.by, 40)}"),
        families=texts.groups(digest, digest.families, "families"),
        inactivity=texts.inactivity(digest),
        inactive=[(_run(digest, job), *numbers) for job, *numbers in texts.most_inactive(digest)],
        lost=[(_run(digest, job), *numbers) for job, *numbers in texts.most_lost(digest)],
        worse=[(_named(digest, digest.links.get(run_id), run_id), clip(family, 90), text) for run_id, family, text in lines],
        rest=rest,
        data_file=data_file,
        index=index,
    )


def _run(digest: Digest, job: Job) -> dict[str, Any]:
    return {**_named(digest, job.row, job.row.id), "label": clip(job.label or "", 80)}


def _named(digest: Digest, row: Row | None, run_id: str) -> dict[str, Any]:
    return {"id": clip(run_id, 160), "href": None if row is None else link(digest, row)}


def link(digest: Digest, row: Row) -> str | None:
    """Return the address of the newest report of a run, which stays; None without one."""
    file = file_of(row)
    return filled(digest.base_url or PATH, path_of(row, file)) if file else None
