"""The files of a digest: a digest -> digest.html, digest.json, and digest.md for mails and chats."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any, Final

from ..ingest.object_store.objects import Objects
from ..report_templates.text.formats import clip, percent
from ..report_templates.text.look import Look
from ..report_templates.text.markdown import Prose, bullets, code, columns, escaped, visible
from . import digest_text as texts
from .addresses import PATH
from .digest import NO_CAUSE, Digest, Hours, Job
from .digest_page import digest_page, link

HTML, JSON, MARKDOWN = FILES = ("digest.html", "digest.json", "digest.md")
ARCHIVE: Final = "digests"
INDEX: Final = "index.html"
LAYOUT: Final = "postrun.digest/1"
_MOST: Final = 10_000  # jobs, groups or families in digest.json
_MOST_ROWS: Final = 12  # of a table in Markdown
_NAME: Final = 32  # characters of a name there
_MOST_LINES: Final = 5


def write(out: Objects, digest: Digest, look: Look | None = None) -> None:
    """Write the three files of the last digest; those of a week also to the archive."""
    _write(out, digest, look, FILES)
    if (week := digest.period.week) is not None:
        below = digest if digest.base_url else replace(digest, base_url=f"../{PATH}")
        _write(out, below, look, tuple(f"{ARCHIVE}/{week}{file.removeprefix('digest')}" for file in FILES))


def _write(out: Objects, digest: Digest, look: Look | None, names: Sequence[str]) -> None:
    installed = version("postrun")
    html, data_file, text_file = names
    folder, _, data_name = data_file.rpartition("/")
    page = digest_page(digest, installed, look, data_file=data_name, index=f"{'../' if folder else ''}{INDEX}")
    out.write(html, page.encode("utf-8", "replace"), content_type="text/html; charset=utf-8")
    text = json.dumps(data(digest, installed), ensure_ascii=False, indent=1)
    out.write(data_file, f"{text}\n".encode("utf-8", "backslashreplace"), content_type="application/json")
    out.write(text_file, markdown(digest).encode("utf-8", "replace"), content_type="text/markdown; charset=utf-8")


# -- JSON ------------------------------------------------------------------------------------------------------------------


def data(digest: Digest, installed: str) -> dict[str, Any]:
    """Return digest.json; times are in GPU-ns."""
    period = digest.period
    return {
        "layout": LAYOUT,
        "generator": {"name": "postrun", "version": installed, "generated_at_ns": digest.generated_at_ns},
        "period": {"week": period.week, "since_ns": period.since_ns, "until_ns": period.until_ns},
        "headline": texts.headline(digest).replace("\u00a0", " "),
        "notes": texts.notes(digest),
        "total": _hours(digest.total),
        "before": _hours(digest.before),
        "without_gpu_hours": digest.unmeasured,
        "without_report": digest.failed,
        "by": digest.by,
        "groups_total": len(digest.groups),
        "groups": [{"name": group.name, **_hours(group)} for group in digest.groups[:_MOST]],
        "families_total": len(digest.families),
        "families": [{"name": group.name, **_hours(group)} for group in digest.families[:_MOST]],
        "jobs_total": len(digest.jobs),
        "jobs": [_job(digest, job) for job in digest.jobs[:_MOST]],
        "change_points": [asdict(change) for change in digest.changes],
        "regressions": [asdict(finding) for finding in digest.regressions],
    }


def _hours(group: Hours) -> dict[str, Any]:
    return {
        "jobs": group.jobs,
        "allocated_ns": group.allocated_ns,
        "causes_ns": dict(group.causes),
        "visible_ns": {cause: time for cause, time in group.visible.items() if cause != NO_CAUSE},
        "lost_ns": group.lost_ns,
        "sampled_ns": group.sampled_ns,
        "inactive_ns": group.inactive_ns,
        "priced_ns": group.priced_ns,
        "costs": {currency: sum(costs.values()) for currency, costs in group.costs.items()},
    }


def _job(digest: Digest, job: Job) -> dict[str, Any]:
    values: Mapping[str, Any] = {
        "id": job.row.id,
        "family": job.family,
        "label": job.label,
        "allocated_ns": job.allocated_ns,
        "causes_ns": dict(job.causes),
        "lost_ns": job.lost_ns,
        "sampled_ns": job.sampled_ns,
        "inactive_ns": job.inactive_ns,
        "report": link(digest, job.row),
    }
    return {name: value for name, value in values.items() if value is not None}


# -- Markdown --------------------------------------------------------------------------------------------------------------


def markdown(digest: Digest) -> str:
    """Return the digest as Markdown, short enough for a mail or a chat.

    Its parts have the order of the page."""
    period = digest.period
    days = f" ({period.days})" if period.week else ""
    parts = [f"# {period.title}{days}", escaped(texts.headline(digest))]
    if digest.jobs:
        parts += ["## GPU-hours by cause", _causes(digest)]
        parts += [f"## GPU-hours by {code(digest.by)}", _table(digest, texts.groups(digest, digest.groups, "more"))]
        parts += ["## Allocated, no activity", escaped(texts.inactivity(digest))]
    if lost := texts.most_lost(digest)[:_MOST_LINES]:
        those = [
            f"{code(job.row.id)}: {amount} of {hours} GPU-hours; {escaped(cause)} of the loss" for job, hours, amount, _, cause in lost
        ]
        parts += ["## Jobs that lost the most", bullets(those)]
    lines, rest = texts.worse(digest)
    if lines:
        rest += max(0, len(lines) - _MOST_LINES)
        named = [f"{code(run_id)} ({code(family)}): {escaped(text)}" for run_id, family, text in lines[:_MOST_LINES]]
        parts += ["## Became worse", bullets([*named, *[f"{rest} more"] * bool(rest)])]
    if digest.jobs:
        parts += ["## GPU-hours by family", _table(digest, texts.groups(digest, digest.families, "more"))]
    if noted := texts.notes(digest):
        parts += ["## Notes", bullets(map(Prose(()), noted))]
    return "\n\n".join(parts) + "\n"


def _causes(digest: Digest) -> str:
    total = texts.groups(digest, (), "")[-1]
    rows = [(cause.label, cause.hours, cause.visible, percent(cause.share), cause.cost) for cause in texts.causes(digest)]
    table = [("Cause", "GPU-hours", "Visible in", "Share"), *(row[:4] for row in rows), ("Total", total.hours, "", "100%")]
    return columns(_with_costs(digest, table, [*(row[4] for row in rows), total.cost]))


def _with_costs(digest: Digest, rows: Sequence[tuple[str, ...]], costs: Sequence[str]) -> list[tuple[str, ...]]:
    """Append the column of the costs if they have one currency; ``rows`` has a head."""
    currency = digest.total.currency
    head = f"Cost, {_plain(currency or '')}"
    return list(rows) if currency is None else [(*row, cost) for row, cost in zip(rows, (head, *costs), strict=True)]


def _table(digest: Digest, groups: list[texts.Group]) -> str:
    *rows, total = groups
    left = len(rows) - _MOST_ROWS
    some = [*rows[:_MOST_ROWS], total]
    listed = [("Name", "GPU-hours", "Productive", "Lost"), *((_plain(row.name), row.hours, row.productive, row.lost) for row in some)]
    table = columns(_with_costs(digest, listed, [row.cost for row in some]))
    return table if left <= 0 else f"{table}\n\n{left} more in {JSON}."


def _plain(name: str) -> str:
    """Return a name for a line of a code block."""
    return clip(visible(name), _NAME).replace("`", "'")
