"""Section "Timeline": the timeline of the page, and strips for readers without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from markupsafe import Markup

from ...analysis.timeline.model import Timeline, View
from ..blocks import Figure, Only, Section, say, spread
from ..figures.gantt import KINDS, Row, gantt
from ..figures.marks import Mark
from ..figures.svg import SMALL
from ..text.formats import count, duration, plural

_ROWS: Final = 12
_LONGEST: Final = 34
_FILLS: Final = 0.9
_MOST_GAPS: Final = 200  # Drawn of one strip
_HEADING: Final = {
    "whole": "Whole run",
    "devices": "While devices were recorded",
    "typical": "A typical step",
    "slowest": "The slowest step",
}
_STRIPS: Final = {
    "whole": "the whole run",
    "devices": "the time in which devices were recorded",
    "typical": "a typical step",
    "slowest": "the slowest step",
}
_ORIGIN: Final = {"whole": "the start of the run", "devices": "the start of the recording"}


def timeline(data: Timeline, marks: Sequence[Mark] = (), apart_ns: int = 0) -> Section:
    """Make the section, which is one sentence without events.

    ``marks``: in ns since the origin of the timeline. ``apart_ns``: the longest time between files that are not of one run.
    """
    if not len(data.events.track) and not data.lines:
        return Section(
            "timeline",
            "Timeline",
            say("No event has a time to be drawn: record the run with --gpu, or read the Kineto traces of its processes."),
        )
    extent = say(" {}", data.shown) if data.shown else Markup("")
    # Steps are events of the timeline only; no file contains them.
    steps = ", the steps among them," if any(track.kind == "steps" for track in data.tracks) else ""
    what = f"{plural(data.events_total, 'event')}{steps}"
    if not data.events_total:
        what = f"No event, but {plural(len(data.lines), 'line')} of samples"
    lead = say("{} over {}.{}", what, duration(data.span_ns), extent)
    if apart_ns:
        lead += say(" The files are from different times: up to {} of it lies between one file and the next.", duration(apart_ns))
    section = Section("timeline", "Timeline", lead, facts={"data": data, "marks": marks})
    order = {key: place for place, key in enumerate(_HEADING)}
    shades = " Paler: partly covered. Bottom edge: communication during other work."
    for view in sorted(data.views, key=lambda one: order.get(one.key, len(order))):
        strips = _strips(data, view, shades, marks)
        shades = "" if strips else shades
        # The whole run and two steps are enough on paper.
        section.add(Only("html", strips) if strips and view.key == "devices" else strips)
    named = [words for key, words in _STRIPS.items() if key in section.figures]
    section.facts["strips"] = f"Strips of {', '.join(named[:-1])}{' and ' * (len(named) > 1)}{named[-1]}" if named else ""
    return section


def _strips(timeline: Timeline, view: View, shades: str, marks: Sequence[Mark]) -> Figure | None:
    """Draw the strips of a view, with the marks that begin or end within it.

    ``shades``: what its shades mean, or "".
    """
    complete = view.key == "whole" or view.track is None
    rows, total = _of_run(timeline, view) if complete else _of_step(timeline, view)
    if not rows:
        return None
    heading = _HEADING.get(view.key, "A stretch")
    # The label does not repeat the heading.
    label = view.label.removeprefix("the whole run, ").replace(": the slowest", "").replace(": typical", "")
    names = ", ".join(row.label for row in rows)
    more = say(" {} of {} tracks are drawn.", count(len(rows)), count(total)) if total > len(rows) else Markup("")
    if any(row.gaps for row in rows):
        more = say(" Hatched: nothing was recorded then, which is not idle.") + more
    caption = say(
        "{}: {}. {}{}{}",
        heading,
        label,
        f"Time counts from {_ORIGIN.get(view.key, 'where the strip begins')}.",
        shades,
        more,
    )
    within = [mark for mark in marks if any(view.start_ns < at < view.end_ns for at in (mark.start, mark.end))]
    draw = partial(gantt, rows, view.start_ns, view.end_ns, origin=view.start_ns, marks=within)
    return Figure(f"timeline-{view.key}", draw(), f"{heading}: {label}; tracks: {names}", caption, small=draw(width=SMALL))


def _path(timeline: Timeline, track: int) -> list[int]:
    """Return the track and its ancestors, the outermost last."""
    path = [track]
    while (above := timeline.tracks[path[-1]].parent) is not None:
        path.append(above)
    return path


def _of_run(timeline: Timeline, view: View) -> tuple[list[Row], int]:
    """Return the steps of one process, and a strip per device of all its streams."""
    children: dict[int, list[int]] = {}
    for number, track in enumerate(timeline.tracks):
        if track.kind == "stream" and track.parent is not None:
            children.setdefault(track.parent, []).append(number)
    devices = [(device, [number for number in streams if _any(timeline, number)]) for device, streams in children.items()]
    devices = [(device, streams) for device, streams in devices if streams]
    first = next((i for i, track in enumerate(timeline.tracks) if track.kind == "steps" and _any(timeline, i)), None)
    rows = [] if first is None else [_row(timeline, "Steps", [first], view)]
    busy = {device: sum(int(timeline.events.duration_ns[_of(timeline, one)].sum()) for one in streams) for device, streams in devices}
    chosen = spread(devices, _ROWS - len(rows), lambda one: busy[one[0]])
    rows += [_row(timeline, _device_label(timeline, device), streams, view) for device, streams in chosen]
    total = len(devices) + (first is not None)
    if not devices:
        threads = [i for i, track in enumerate(timeline.tracks) if track.kind in ("thread", "annotations") and _any(timeline, i)]
        rows += [_row(timeline, timeline.tracks[one].label, [one], view, lane=0) for one in threads[: _ROWS - len(rows)]]
        total += len(threads)
    return rows, total


def _device_label(timeline: Timeline, device: int) -> str:
    """Return the label of the device, after that of its node if there are several."""
    above = _path(timeline, device)
    nodes = sum(track.kind == "node" for track in timeline.tracks)
    words = [timeline.tracks[one].label for one in reversed(above) if timeline.tracks[one].kind == "node" and nodes > 1]
    return " ".join([*words, timeline.tracks[device].label.removesuffix(" device")])


def _of_step(timeline: Timeline, view: View) -> tuple[list[Row], int]:
    """Return the strips of the step's process, and the number of its tracks."""
    assert view.track is not None
    process = next((one for one in _path(timeline, view.track) if timeline.tracks[one].kind == "process"), _path(timeline, view.track)[-1])
    below = [number for number in range(len(timeline.tracks)) if process in _path(timeline, number)]
    by_kind = {
        kind: [number for number in below if timeline.tracks[number].kind == kind and _within(timeline, number, view).any()]
        for kind in ("steps", "annotations", "stream", "thread")
    }
    total = sum(map(len, by_kind.values()))
    rows = [
        _row(timeline, _label(timeline, one), [one], view, lane=_lane(timeline, one, view))
        for kind in ("steps", "annotations")
        for one in by_kind[kind][:1]
    ]
    for line in timeline.lines:
        if line.track in below and line.unit == "percent" and timeline.tracks[line.track].kind == "utilization":
            near = (line.time_ns >= view.start_ns) & (line.time_ns <= view.end_ns)
            if near.sum() >= 3:
                total += 1
                rows.append(
                    Row(
                        timeline.tracks[line.track].label,
                        line.time_ns.astype(float),
                        line.mean.astype(float),
                        np.zeros(0, np.int64),
                        level=True,
                    )
                )
            break
    rows += [_row(timeline, _stream_label(timeline, one), [one], view) for one in _busiest(timeline, by_kind["stream"], 6, view)]
    for thread in _busiest(timeline, by_kind["thread"], _ROWS - len(rows) if len(rows) < _ROWS else 0, view)[:3]:
        rows.append(_row(timeline, timeline.tracks[thread].label, [thread], view, lane=0))
        calls = _row(timeline, "its launch calls", [thread], view, meanings=("launch", "sync"))
        if len(calls.start) and rows[-1].kind.tolist() != calls.kind.tolist():
            rows.append(calls)
    return rows[:_ROWS], max(total, len(rows[:_ROWS]))


def _label(timeline: Timeline, track: int) -> str:
    entry = timeline.tracks[track]
    return entry.narrow if entry.narrow and len(entry.label) > _LONGEST else entry.label


def _stream_label(timeline: Timeline, stream: int) -> str:
    parent = timeline.tracks[stream].parent
    device = "" if parent is None else timeline.tracks[parent].label.removesuffix(" device")
    return f"{device} {timeline.tracks[stream].label}".strip()


def _busiest(timeline: Timeline, tracks: Sequence[int], most: int, view: View) -> list[int]:
    weight = {one: int(timeline.events.duration_ns[_of(timeline, one)][_within(timeline, one, view)].sum()) for one in tracks}
    return sorted(sorted(tracks, key=lambda one: (-weight[one], one))[:most])


def _of(timeline: Timeline, track: int) -> slice:
    low, high = np.searchsorted(timeline.events.track, np.array([track, track + 1], np.int32))  # of the column's type, to not convert it
    return slice(int(low), int(high))


def _lane(timeline: Timeline, track: int, view: View) -> int:
    """Return 1 if one range at level 0, the annotated step, fills the strip, else 0."""
    part, inside = _of(timeline, track), _within(timeline, track, view)
    lanes, start = timeline.events.lane[part][inside], timeline.events.start_ns[part][inside]
    outer = lanes == 0
    covered = np.minimum(start + timeline.events.duration_ns[part][inside], view.end_ns) - np.maximum(start, view.start_ns)
    fills = outer.sum() == 1 and covered[outer][0] >= _FILLS * (view.end_ns - view.start_ns)
    return int(fills and bool((lanes == 1).any()))


def _any(timeline: Timeline, track: int) -> bool:
    return len(timeline.events.track[_of(timeline, track)]) > 0


def _within(timeline: Timeline, track: int, view: View) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    part = _of(timeline, track)
    start = timeline.events.start_ns[part]
    inside: np.ndarray[tuple[int], np.dtype[np.bool_]] = (start < view.end_ns) & (start + timeline.events.duration_ns[part] > view.start_ns)
    return inside


def _row(
    timeline: Timeline, label: str, tracks: Sequence[int], view: View, *, lane: int | None = None, meanings: Sequence[str] | None = None
) -> Row:
    """Make one strip of these tracks, or of one of their lanes, or of some meanings."""
    events = timeline.events
    index = np.concatenate([np.arange(_of(timeline, one).start, _of(timeline, one).stop)[_within(timeline, one, view)] for one in tracks])
    if lane is not None:
        index = index[events.lane[index] == lane]
    known = np.array(
        [KINDS.index(name.meaning) if name.meaning in KINDS else KINDS.index("merged") for name in timeline.names] or [0], np.int64
    )
    kind = known[events.name[index]]
    if meanings is not None:
        wanted = np.isin(kind, [KINDS.index(word) for word in meanings])
        index, kind = index[wanted], kind[wanted]
    order = np.argsort(events.start_ns[index], kind="stable")
    index, kind = index[order], kind[order]
    start = events.start_ns[index].astype(float)
    names = [timeline.names[number].short for number in events.name[index].tolist()] if len(index) <= 2000 else []
    return Row(label, start, start + events.duration_ns[index], kind, names, gaps=_gaps(timeline, tracks, view))


def _gaps(timeline: Timeline, tracks: Sequence[int], view: View) -> list[tuple[float, float]]:
    """Return the times without a recording of the process of these tracks."""
    # Samples, steps, and annotations can come from other sources.
    if timeline.tracks[tracks[0]].kind not in ("stream", "thread"):
        return []
    above = set(_path(timeline, tracks[0]))
    gaps = [(gap.start_ns, gap.end_ns) for gap in timeline.gaps if gap.track in above]
    return [(float(start), float(end)) for start, end in gaps if start < view.end_ns and end > view.start_ns][:_MOST_GAPS]
