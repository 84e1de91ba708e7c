"""Episodes of regressions: the regressions of comparable runs, in order of time -> those that alarm, one per episode.

A regression belongs to an episode of its figure if one of the comparable runs right before it does, as many as ``Settings.fine_runs``. It
alarms if it begins an episode, or is worse than the last alarm of its episode by more than the limit of the figure. index.parquet keeps the
episodes: a regression that no night announced, such as one of the history or of other limits, must not silence the next.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .history import Finding, Settings

Key = tuple[str, str | None]
"""The id of a run, and a figure."""
Episodes = Mapping[Key, tuple[float, str]]
"""The regressions of all episodes: the change of the last alarm, and the id of the night that announces it."""


def key(finding: Finding) -> Key:
    return finding.id, finding.metric


def change(finding: Finding) -> float:
    return abs(finding.change_percent or 0.0)


def begun(
    marked: Iterable[tuple[Finding, Collection[str]]], new: Collection[Key], known: Episodes, settings: Settings, night: str
) -> tuple[set[Key], Episodes]:
    """Return the regressions that alarm, and all episodes.

    ``marked``: regressions in order of time, each with the runs right before it that have one of its figure. ``new``: those that may alarm.
    ``night``: announces the alarms."""
    limits: dict[str | None, float] = {metric.key: metric.limit for metric in settings.metrics}
    episodes, alarms = dict(known), set[Key]()
    for finding, before in marked:
        if (this := key(finding)) not in new or this in known:
            continue
        levels = [episodes[run_id, finding.metric] for run_id in before if (run_id, finding.metric) in episodes]
        level = max(levels, default=None)
        if level is None or change(finding) > level[0] + limits[finding.metric]:
            alarms.add(this)
            level = change(finding), night
        episodes[this] = level
    return alarms, episodes


def encoded(episodes: Episodes) -> str:
    return json.dumps([[*one, *episodes[one]] for one in sorted(episodes, key=str)])


def decoded(text: str) -> dict[Key, tuple[float, str]]:
    """Return the episodes of a text; none if no night could have written it."""
    try:
        return {(str(run_id), str(metric)): (float(level), str(night)) for run_id, metric, level, night in json.loads(text)}
    except (ValueError, TypeError, RecursionError):
        return {}
