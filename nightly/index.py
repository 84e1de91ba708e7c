"""The index of all runs: done-markers -> index.parquet, index.json and index.html.

The last index.parquet is the cache of the markers: only markers with another version are read again. Nights that write the index at the
same time do not remove each other's rows: index.parquet is replaced only if it is still the one that was read before the markers were
listed, and a writer that afterward finds another one starts again.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from dataclasses import replace as replaced
from typing import Any, Final

import polars as pl

from ..ingest.object_store.objects import ObjectInfo, Objects, ObjectStoreError
from ..report_templates.text.look import Look
from . import done_markers, not_read, places, reasons, table
from . import night as nights
from .addresses import file_of, filled, path_of
from .families import family_of
from .history import Family, Finding, History, Settings, history
from .index_model import Index
from .model import Row
from .news import Turn, news

JSON_RUNS: Final = 10_000
_READ_AT_ONCE: Final = 32
_MOST_REFUSED: Final = 100  # lines about damaged markers
_TRIES: Final = 12
_OPEN_NS: Final = 7 * 86_400 * 10**9
STEPS: Final = ("step_base_ns", "step_change_percent", "step_runs", "step_mark")
ADDED: Final = ("family", table.WRITTEN_AT, *STEPS)  # columns of the index besides those of a row; the table also has its marker
HTML, JSON, PARQUET = places.INDEX_FILES


@dataclass(frozen=True, slots=True)
class Known:
    """The content of the done-markers. ``versions``: of each marker, by the id of its run. ``kept``: the index before the markers were
    listed. ``refused``: names of markers that a night could not have written; their runs are reported again."""

    rows: Mapping[str, Row]
    versions: Mapping[str, str]
    kept: table.Kept
    refused: tuple[str, ...] = ()


@dataclass(slots=True)
class Book:
    """The index of one output. ``every_run``: this night searches all runs, so that a run that it did not find and that has no report no
    longer exists. ``generated_at_ns``: the time in the files; None for now. ``redact``: as in ReportOptions; it also removes folders from
    the title. ``look``: theme, title, and logo of the page. ``base_url``: template of the addresses in it."""

    settings: Settings = field(default_factory=Settings)
    every_run: bool = False
    generated_at_ns: int | None = None
    redact: tuple[str, ...] = ()
    look: Look = field(default_factory=Look)
    base_url: str | None = None
    refused: list[str] = field(default_factory=list)
    _known: Known | None = None

    def known(self, out: Objects) -> Mapping[str, Row]:
        """Return the rows of all done-markers."""
        self._known = read_known(out, self._known)
        lines = [f"{marker}: not as postrun nightly writes it, so the run counts as not reported" for marker in self._known.refused]
        if not self._known.kept.usable:
            lines.append(f"{out.place(PARQUET)}: not as this version of postrun nightly writes it, so the next index replaces it unread")
        for line in lines:
            if line not in self.refused and len(self.refused) < _MOST_REFUSED:
                self.refused.append(line)
        return self._known.rows

    def write(
        self,
        out: Objects,
        rows: Mapping[str, Row],
        turn: Turn = Turn(),  # noqa: B008  (frozen)
        seen: not_read.Seen = not_read.Seen(),  # noqa: B008  (frozen)
    ) -> Index:
        """Write the index: the rows of :meth:`known`, changed as in ``rows``.

        ``turn``: the nights whose runs are announced after that. ``seen``: the files that this night leaves out."""
        known = self._known or read_known(out, None)
        over = {run_id: row for run_id, row in rows.items() if known.rows.get(run_id) is not row}
        new: dict[tuple[str, str | None], Finding] = {}
        dropped = set[str]()
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(random.uniform(0, 0.2 * attempt))  # else two nights stay in step
                before, known = known, read_known(out, known)
                # The result of another night is newer than this night's row of the same run.
                over = {run_id: row for run_id, row in over.items() if known.rows.get(run_id) == before.rows.get(run_id)}
            self._known = known
            index = self._written(out, known, over, turn, seen, new, dropped)
            if index is not None:
                return index
        raise ObjectStoreError(
            f"{out.place(PARQUET)}: other nights have replaced the index {_TRIES} times while it was written; call postrun nightly again"
            " with --index-only when they have ended"
        )

    def _written(
        self,
        out: Objects,
        known: Known,
        over: Mapping[str, Row],
        turn: Turn,
        seen: not_read.Seen,
        new: dict[tuple[str, str | None], Finding],
        dropped: set[str],
    ) -> Index | None:
        """Write the index once; None if another night has written one meanwhile.

        ``new`` receives the regressions to announce, ``dropped`` the runs without a report that left the index."""
        now = time.time_ns()
        indexed = dict(known.rows) | dict(over)
        noted_ns = {run_id: now for run_id in over if run_id not in known.rows}
        for run_id, (when, row) in known.kept.open.items():
            if run_id not in indexed and not self.every_run and when > now - _OPEN_NS:
                indexed[run_id], noted_ns[run_id] = row, when
        rows = [indexed[run_id] for run_id in sorted(indexed)]
        # A row gets the version of its marker only if it equals the marker; the markers of others are read again.
        markers = [known.rows.get(row.id) for row in rows]
        same = [row is marker or plain_row(row) == marker for row, marker in zip(rows, markers, strict=True)]
        versions = [known.versions.get(row.id) if equal else None for row, equal in zip(rows, same, strict=True)]
        plain = plain_table(rows, versions, [noted_ns.get(row.id) for row in rows], self.settings)
        changes = news(known.kept, known.rows, plain, self.settings, turn)
        full, past = with_history(plain, self.settings, [*new.values(), *changes.regressions])
        left_out = not_read.merged(known.kept.left_out, seen, now, now - _OPEN_NS)
        data = table.encoded(full, changes.waiting, changes.first_report_ns, changes.episodes, left_out)
        if not out.replace(PARQUET, data, known.kept.etag):
            return None
        new |= {(one.id, one.metric): one for one in changes.alarms}
        dropped |= known.kept.open.keys() - indexed.keys()
        generated = self.generated_at_ns if self.generated_at_ns is not None else now
        title = reasons.last_part(out.url) if self.redact else out.url
        index = index_of(rows, full, past, self.settings, title, generated, self.base_url, tuple(new.values()), tuple(sorted(dropped)))
        index = replaced(index, left_out=tuple(left_out))
        del full
        out.write(JSON, to_json(index), content_type="application/json")
        from .page import index_page

        page = index_page(index, self.look)
        out.write(HTML, page.encode("utf-8", "replace"), content_type="text/html; charset=utf-8")
        return index if table.is_still(out, PARQUET, data) else None


def plain_row(row: Row) -> Row:
    """Return ``row`` without the warning that the index adds to its marker."""
    if not row.warnings or not (row.warnings[-1] == nights.GONE or row.warnings[-1].startswith(nights.OUTDATED)):
        return row
    return replaced(row, warnings=row.warnings[:-1])


def read_known(out: Objects, last: Known | None) -> Known:
    """Return the rows of all done-markers; read only those in a new version."""
    kept = table.read(out, PARQUET) if last is None or _etag(out) != last.kept.etag else last.kept
    listed = {one.path: one for one in out.list(f"{places.RUNS}/") if one.path.endswith(f"/{places.DONE}")}
    rows, versions, unread, refused = dict[str, Row](), dict[str, str](), list[str](), list[str]()
    cached = {places.done(run_id): (version, plain_row(row)) for run_id, (version, row) in kept.markers.items()}
    if last is not None:
        cached |= {places.done(run_id): (last.versions[run_id], row) for run_id, row in last.rows.items() if run_id in last.versions}
    for path, file in listed.items():
        had = cached.get(path)
        if had is not None and had[0] == version_of(file):
            rows[had[1].id], versions[had[1].id] = had[1], had[0]
        else:
            unread.append(path)
    if unread:
        with ThreadPoolExecutor(_READ_AT_ONCE) as reading:
            for path, row in zip(unread, reading.map(lambda path: _marker(out, path), unread), strict=True):
                if row is not None and places.done(row.id) == path:
                    rows[row.id], versions[row.id] = _shared(row), version_of(listed[path])
                else:
                    refused.append(out.place(path))
    return Known(rows, versions, kept, tuple(refused))


def version_of(file: ObjectInfo) -> str:
    return file.etag if file.etag is not None else f"{file.size}-{file.modified_ns}"


def _etag(out: Objects) -> str | None:
    now = out.head(PARQUET)
    return None if now is None else now.etag


def _marker(out: Objects, path: str) -> Row | None:
    """Return the row of a marker; None also if it disappears meanwhile."""
    try:
        return done_markers.read_marker(out, path)
    except ObjectStoreError:
        if out.head(path) is None:
            return None
        raise


def _shared(row: Row) -> Row:
    """Keep the names that every row contains only once in memory."""
    return replaced(row, verdicts={sys.intern(rule): sys.intern(verdict) for rule, verdict in row.verdicts.items()})


def plain_table(rows: Sequence[Row], versions: Sequence[str | None], noted_ns: Sequence[int | None], settings: Settings) -> pl.DataFrame:
    """Return the table of index.parquet, without the columns of the history."""
    families = [table.valid(family_of(row.name, row.id, row.labels, settings.patterns)) for row in rows]
    return table.frame(
        rows,
        family=pl.Series(families, dtype=pl.String),
        marker=pl.Series(versions, dtype=pl.String),
        told_at_ns=pl.Series(noted_ns, dtype=pl.Int64),
    )


def with_history(plain: pl.DataFrame, settings: Settings, more: Sequence[Finding] = ()) -> tuple[pl.DataFrame, History]:
    """Return the table of index.parquet, and the history of its runs.

    ``more``: other findings to list."""
    past = history(plain, settings, more)
    steps = past.steps.select("id", *STEPS)
    full = plain.join(steps, on="id", how="left", maintain_order="left")
    return full, past


def index_of(
    rows: Sequence[Row],
    full: pl.DataFrame,
    past: History,
    settings: Settings,
    title: str,
    generated_at_ns: int,
    base_url: str | None = None,
    new: tuple[Finding, ...] = (),
    dropped: tuple[str, ...] = (),
) -> Index:
    from importlib.metadata import version

    newest = sorted(rows, key=lambda row: (row.at_ns, row.id), reverse=True)
    failed = tuple(row for row in newest if row.state == "failed")
    listed = tuple(newest[:JSON_RUNS])
    ids = {row.id for row in (*listed, *failed)} | {one.id for one in past.findings}
    some = full.select("id", *ADDED).filter(pl.col("id").is_in(sorted(ids)))
    counts = full.group_by("state").len().sort("state")
    return Index(
        generated_at_ns=generated_at_ns,
        version=version("postrun"),
        place=title,
        total=len(rows),
        states=dict(counts.iter_rows()),
        rows=listed,
        added={one.pop("id"): one for one in some.iter_rows(named=True)},
        findings=past.findings,
        failed=failed,
        families=past.families,
        families_total=past.families_total,
        alone=past.alone,
        settings=settings,
        base_url=base_url,
        new=new,
        gone=tuple(row.id for row in rows if row.warnings[-1:] == (nights.GONE,)),
        dropped=dropped,
    )


def to_json(index: Index) -> bytes:
    """Encode index.json: a run per line; keys without a value are left out."""
    head = {
        "layout": f"postrun.index/{table.VERSION}",
        "generator": {"name": "postrun", "version": index.version, "generated_at_ns": index.generated_at_ns},
        "runs_total": index.total,
        "states": dict(index.states),
        "settings": {
            "regression_threshold_percent": index.settings.threshold_percent,
            "regression_limits": {metric.key: metric.limit for metric in index.settings.metrics},
            "baseline": index.settings.baseline,
            "regression_deviations": index.settings.deviations,
            "regression_history": index.settings.history,
            "fine_runs": index.settings.fine_runs,
            "families": [pattern.pattern for pattern in index.settings.patterns],
        },
    }
    text = [json.dumps(head, ensure_ascii=False, indent=1)[:-2]]
    text.append(_part("findings", (_short(asdict(one)) for one in index.findings)))
    text.append(_part("failed", ({"id": row.id, "reason": row.reason} for row in index.failed[:JSON_RUNS])))
    text.append(_part("gone", index.gone))
    text.append(_part("dropped", index.dropped))
    text.append(_part("left_out", index.left_out))
    if (alone := index.alone_told) is not None:
        text.append(f',\n "note": {json.dumps("; ".join(alone), ensure_ascii=False)}')
    text.append(f',\n "alone_total": {len(index.alone)}')
    text.append(_part("alone", index.alone[:JSON_RUNS]))
    text.append(f',\n "families_total": {index.families_total}')
    text.append(_part("families", map(_family, index.families)))
    text.append(_part("runs", (_run(index, row) for row in index.rows)))
    return ("".join(text) + "\n}\n").encode("utf-8", "backslashreplace")


def _part(name: str, values: Iterable[Any]) -> str:
    return f',\n "{name}": [' + ",".join("\n  " + json.dumps(value, ensure_ascii=False) for value in values) + "]"


def _run(index: Index, row: Row) -> dict[str, Any]:
    url = filled(index.base_url, path_of(row, file)) if index.base_url and (file := file_of(row)) else None
    return _short(row.to_json() | dict(index.added.get(row.id, {})) | {"url": url})


def _family(family: Family) -> dict[str, Any]:
    return {
        "name": family.name,
        "runs": family.runs,
        **({} if family.currency is None else {"currency": family.currency}),
        "trends": {name: asdict(trend) for name, trend in family.trends.items()},
        "changes": [asdict(change) for change in family.changes],
        "change_points": [_short(asdict(change)) for change in family.change_points],
        "points": [_short(asdict(point)) for point in family.points],
    }


def _short(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value is not None and value != [] and value != {}}
