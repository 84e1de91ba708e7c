"""Regressions that are new since the last index: the runs of the last index and of this one -> findings, each of them once.

A writer of the index announces the runs of its own night and of nights that ended before they could. Runs of nights that still work count
in neither index: such a night announces them, and what they change in the comparison of other runs, when it writes the index itself.
index.parquet names these nights. Of the runs of an episode (episodes.py), only those that alarm are announced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from . import episodes, table
from .families import family_of
from .history import NIGHT_NS, Finding, Settings, besides_history, in_order, rank, regressions

if TYPE_CHECKING:
    from .model import Row

_NOBODY: Final = frozenset[str]()


@dataclass(frozen=True, slots=True)
class Turn:
    """``mine``: ids of the nights whose runs are announced now. ``others``: returns the ids of the nights that still work."""

    mine: frozenset[str] = _NOBODY
    others: Callable[[], frozenset[str]] = lambda: _NOBODY


@dataclass(frozen=True, slots=True)
class News:
    """``regressions``: the new ones; ``alarms``: those that are announced. ``waiting``: nights that announce their runs later.
    ``first_report_ns``: when the first of all reports was made."""

    regressions: tuple[Finding, ...]
    alarms: tuple[Finding, ...]
    waiting: frozenset[str]
    first_report_ns: int | None
    episodes: episodes.Episodes


def news(last: table.Kept, rows: Mapping[str, Row], runs: pl.DataFrame, settings: Settings, turn: Turn) -> News:
    """Return what is new in the done-markers.

    ``rows``: of the markers. ``runs``: the table of the index. Only families with new or changed runs are compared. Other settings than in
    the last index are not news. Neither is history: the runs that ended more than 36 hours before the first report, except the newest."""
    before = {run_id: row for run_id, (_, row) in last.markers.items()}
    waiting = turn.others() - ({row.night for row in before.values()} - last.waiting)
    after = {run_id: row for run_id, row in rows.items() if row.state == "reported" and row.night not in waiting}
    unannounced = turn.mine | (last.waiting if before else waiting)  # without an index, the runs of other nights are not news
    known = before or after
    old = {run_id: row for run_id, row in known.items() if run_id in after and row.night not in unannounced}
    families = dict(runs.select("id", "family").iter_rows())
    changed = {families[run_id] for run_id, row in after.items() if (earlier := old.get(run_id)) is not row and earlier != row}
    now = runs.filter(pl.col("family").is_in(sorted(changed)) & pl.col("id").is_in(sorted(after)))
    marked = {episodes.key(one) for one in _regressions(old, families, rows, changed, settings)}
    in_time = in_order(now, settings)
    new = [one for one, _ in in_time if episodes.key(one) not in marked]
    times = [row.reported_at_ns for row in known.values()]
    first_report_ns = min((time for time in [last.first_report_ns, *times] if time is not None), default=None)
    if new and first_report_ns is not None:
        counted = besides_history(runs.filter(pl.col("id").is_in(sorted(after))), first_report_ns - NIGHT_NS)
        new = [one for one in new if one.id in counted]
    same = {run_id for run_id, row in before.items() if run_id in rows and rows[run_id].fingerprint == row.fingerprint}
    announced = {this: alarm for this, alarm in last.episodes.items() if this[0] in same and alarm[1] not in turn.mine}
    alarms, continued = episodes.begun(in_time, {episodes.key(one) for one in new}, announced, settings, min(turn.mine, default=""))
    new.sort(key=rank)
    return News(tuple(new), tuple(one for one in new if episodes.key(one) in alarms), waiting, first_report_ns, continued)


def _regressions(
    old: Mapping[str, Row], families: Mapping[str, str], rows: Mapping[str, Row], changed: set[str], settings: Settings
) -> Sequence[Finding]:
    """Return the regressions among the runs before, in these families."""
    chosen, names = [], []
    for run_id, row in old.items():
        same = rows.get(run_id) is row
        family = families[run_id] if same else table.valid(family_of(row.name, row.id, row.labels, settings.patterns))
        if family in changed:
            chosen.append(row)
            names.append(family)
    return regressions(table.frame(chosen, family=pl.Series(names, dtype=pl.String)), settings) if chosen else ()
