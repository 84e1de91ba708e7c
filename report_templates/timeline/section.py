"""What ran when? The timeline of the page, and the strips that also stand where no script runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from markupsafe import Markup

from ...analysis.timeline.model import Timeline, View
from ..blocks import Figure, Section, say, spread
from ..figures.gantt import KINDS, Row, gantt
from ..text.formats import count, duration, plural
from .encode import encode

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


def timeline(given: Timeline) -> Section:
    """The section. Without an event it is a sentence."""
    if not len(given.events.track) and not given.lines:
        return Section(
            "timeline",
            "Timeline",
            say("No event has a time to be drawn: record the run with --gpu, or read the Kineto traces of its processes."),
        )
    shown = say(" {}", given.shown) if given.shown else Markup("")
    what = f"{plural(given.events_total, 'event')}{_derived(given)}"
    if not given.events_total:
        what = f"No event, but {plural(len(given.lines), 'line')} of samples"
    lead = say("{} over {}.{}", what, duration(given.span_ns), shown)
    made = Section("timeline", "Timeline", lead, facts={"data": Markup(encode(given))})
    order = {key: place for place, key in enumerate(_HEADING)}
    for view in sorted(given.views, key=lambda one: order.get(one.key, len(order))):
        made.add(_strips(given, view))
    named = [words for key, words in _STRIPS.items() if key in made.figures]
    made.facts["strips"] = f"Strips of {', '.join(named[:-1])}{' and ' * (len(named) > 1)}{named[-1]}" if named else ""
    return made


def _derived(given: Timeline) -> str:
    """That steps, which no file has as events of their own, are among the events."""
    return ", the steps among them," if any(track.kind == "steps" for track in given.tracks) else ""


def _strips(given: Timeline, view: View) -> Figure | None:
    whole = view.key == "whole" or view.track is None
    rows, total = _of_run(given, view) if whole else _of_step(given, view)
    if not rows:
        return None
    heading = _HEADING.get(view.key, "A stretch")
    # What the heading says already is not said again.
    said = view.label.removeprefix("the whole run, ").replace(": the slowest", "").replace(": typical", "")
    names = ", ".join(row.label for row in rows)
    more = say(" {} of {} tracks are drawn.", count(len(rows)), count(total)) if total > len(rows) else Markup("")
    if any(row.gaps for row in rows):
        more = say(" Hatched: nothing was recorded then, which is not idle.") + more
    caption = say(
        "{}: {}. Pale: only part of that moment is covered; communication beside other work is at the lower edge. {}{}",
        heading,
        said,
        f"Time counts from {_ORIGIN.get(view.key, 'where the strip begins')}.",
        more,
    )
    drawn = gantt(rows, view.start_ns, view.end_ns, origin=view.start_ns)
    return Figure(f"timeline-{view.key}", drawn, f"{heading}: {said}; tracks: {names}", caption)


def _path(given: Timeline, track: int) -> list[int]:
    """The track and those above it, the outermost last."""
    found = [track]
    while (above := given.tracks[found[-1]].parent) is not None:
        found.append(above)
    return found


def _of_run(given: Timeline, view: View) -> tuple[list[Row], int]:
    """Steps of one process, then every device: all its streams as one strip."""
    children: dict[int, list[int]] = {}
    for number, track in enumerate(given.tracks):
        if track.kind == "stream" and track.parent is not None:
            children.setdefault(track.parent, []).append(number)
    devices = [(device, [number for number in streams if _any(given, number)]) for device, streams in children.items()]
    devices = [(device, streams) for device, streams in devices if streams]
    first = next((i for i, track in enumerate(given.tracks) if track.kind == "steps" and _any(given, i)), None)
    rows = [] if first is None else [_row(given, "Steps", [first], view)]
    busy = {device: sum(int(given.events.duration_ns[_of(given, one)].sum()) for one in streams) for device, streams in devices}
    chosen = spread(devices, _ROWS - len(rows), lambda one: busy[one[0]])
    rows += [_row(given, _device_label(given, device), streams, view) for device, streams in chosen]
    total = len(devices) + (first is not None)
    if not devices:
        threads = [i for i, track in enumerate(given.tracks) if track.kind in ("thread", "annotations") and _any(given, i)]
        rows += [_row(given, given.tracks[one].label, [one], view, lane=0) for one in threads[: _ROWS - len(rows)]]
        total += len(threads)
    return rows, total


def _device_label(given: Timeline, device: int) -> str:
    """The device, and its process and node where there are several."""
    above = _path(given, device)
    nodes = sum(track.kind == "node" for track in given.tracks)
    words = [given.tracks[one].label for one in reversed(above) if given.tracks[one].kind == "node" and nodes > 1]
    return " ".join([*words, given.tracks[device].label.removesuffix(" device")])


def _of_step(given: Timeline, view: View) -> tuple[list[Row], int]:
    """The process of the step: its steps, annotations and utilisation, its busiest streams, its busiest threads."""
    assert view.track is not None
    process = next((one for one in _path(given, view.track) if given.tracks[one].kind == "process"), _path(given, view.track)[-1])
    below = [number for number in range(len(given.tracks)) if process in _path(given, number)]
    by_kind = {
        kind: [number for number in below if given.tracks[number].kind == kind and _within(given, number, view).any()]
        for kind in ("steps", "annotations", "stream", "thread")
    }
    total = sum(map(len, by_kind.values()))
    rows = [
        _row(given, _label(given, one), [one], view, lane=_lane(given, one, view))
        for kind in ("steps", "annotations")
        for one in by_kind[kind][:1]
    ]
    for line in given.lines:
        if line.track in below and line.unit == "percent" and given.tracks[line.track].kind == "utilisation":
            near = (line.time_ns >= view.start_ns) & (line.time_ns <= view.end_ns)
            if near.sum() >= 3:
                total += 1
                rows.append(
                    Row(
                        given.tracks[line.track].label,
                        line.time_ns.astype(float),
                        line.mean.astype(float),
                        np.zeros(0, np.int64),
                        level=True,
                    )
                )
            break
    rows += [_row(given, _stream_label(given, one), [one], view) for one in _busiest(given, by_kind["stream"], 6, view)]
    for one in _busiest(given, by_kind["thread"], _ROWS - len(rows) if len(rows) < _ROWS else 0, view)[:3]:
        rows.append(_row(given, given.tracks[one].label, [one], view, lane=0))
        calls = _row(given, "its launch calls", [one], view, meanings=("launch", "sync"))
        if len(calls.start) and rows[-1].kind.tolist() != calls.kind.tolist():
            rows.append(calls)
    return rows[:_ROWS], max(total, len(rows[:_ROWS]))


def _label(given: Timeline, track: int) -> str:
    found = given.tracks[track]
    return found.narrow if found.narrow and len(found.label) > _LONGEST else found.label


def _stream_label(given: Timeline, stream: int) -> str:
    parent = given.tracks[stream].parent
    device = "" if parent is None else given.tracks[parent].label.removesuffix(" device")
    return f"{device} {given.tracks[stream].label}".strip()


def _busiest(given: Timeline, tracks: Sequence[int], most: int, view: View) -> list[int]:
    weight = {one: int(given.events.duration_ns[_of(given, one)][_within(given, one, view)].sum()) for one in tracks}
    return sorted(sorted(tracks, key=lambda one: (-weight[one], one))[:most])


def _of(given: Timeline, track: int) -> slice:
    low, high = np.searchsorted(given.events.track, [track, track + 1])
    return slice(int(low), int(high))


def _lane(given: Timeline, track: int, view: View) -> int:
    """The outermost level of the track that tells more than that one range, the annotated step itself, fills the stretch."""
    part, inside = _of(given, track), _within(given, track, view)
    lanes, start = given.events.lane[part][inside], given.events.start_ns[part][inside]
    outer = lanes == 0
    covered = np.minimum(start + given.events.duration_ns[part][inside], view.end_ns) - np.maximum(start, view.start_ns)
    fills = outer.sum() == 1 and covered[outer][0] >= _FILLS * (view.end_ns - view.start_ns)
    return int(fills and bool((lanes == 1).any()))


def _any(given: Timeline, track: int) -> bool:
    return len(given.events.track[_of(given, track)]) > 0


def _within(given: Timeline, track: int, view: View) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    part = _of(given, track)
    start = given.events.start_ns[part]
    inside: np.ndarray[tuple[int], np.dtype[np.bool_]] = (start < view.end_ns) & (start + given.events.duration_ns[part] > view.start_ns)
    return inside


def _row(
    given: Timeline, label: str, tracks: Sequence[int], view: View, *, lane: int | None = None, meanings: Sequence[str] | None = None
) -> Row:
    """One strip of these tracks. ``lane``: only what lies within so many others; ``meanings``: only these."""
    events = given.events
    index = np.concatenate([np.arange(_of(given, one).start, _of(given, one).stop)[_within(given, one, view)] for one in tracks])
    if lane is not None:
        index = index[events.lane[index] == lane]
    known = np.array(
        [KINDS.index(name.meaning) if name.meaning in KINDS else KINDS.index("merged") for name in given.names] or [0], np.int64
    )
    kind = known[events.name[index]]
    if meanings is not None:
        wanted = np.isin(kind, [KINDS.index(word) for word in meanings])
        index, kind = index[wanted], kind[wanted]
    order = np.argsort(events.start_ns[index], kind="stable")
    index, kind = index[order], kind[order]
    start = events.start_ns[index].astype(float)
    names = [given.names[number].short for number in events.name[index].tolist()] if len(index) <= 2000 else []
    return Row(label, start, start + events.duration_ns[index], kind, names, gaps=_gaps(given, tracks, view))


def _gaps(given: Timeline, tracks: Sequence[int], view: View) -> list[tuple[float, float]]:
    """When nothing was recorded of the process of these tracks. Samples, steps and annotations can come from elsewhere."""
    if given.tracks[tracks[0]].kind not in ("stream", "thread"):
        return []
    above = set(_path(given, tracks[0]))
    found = [(gap.start_ns, gap.end_ns) for gap in given.gaps if gap.track in above]
    return [(float(start), float(end)) for start, end in found if start < view.end_ns and end > view.start_ns][:_MOST_GAPS]
