"""When did what happen, on which machine, process, device, stream and thread? What the interactive timeline shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ..ingest.store import Store
from .places import Places
from .report import Report
from .timeline_data import CAP, Events, Line, Name, Timeline
from .timeline_events import DEVICE, HOST, MEANINGS, NONE, details, events, pairs, steps_of
from .timeline_lanes import with_lanes
from .timeline_lines import Drawn, lines
from .timeline_merge import Merged, merge
from .timeline_tracks import KEYS, Tree
from .timeline_views import Stretch, views
from .utilisation import derived_utilisation
from .wording import count, duration, percent, plural

_YEAR: Final = 365 * 86_400 * 10**9
"""Times before this are no times since the epoch."""
_STEP: Final = MEANINGS.index("step")
_UNNAMED: Final = "(no name)"


def timeline(store: Store, report: Report, *, cap: int = CAP) -> Timeline | None:
    """The timeline of a run with at most ``cap`` events, neighbours merged where there are more; None where there is nothing to show.

    ``report``: of the same run; its steps say where the timeline opens.
    """
    timed = steps_of(store)
    found = events(store, timed)
    drawn = lines(store, derived_utilisation(store))
    said: list[str] = []
    clock = _Clock(found)
    drawn = clock.lines(drawn, said)
    if found.is_empty() and not drawn:
        return None
    found = clock.events(found, said)
    origin, end = _extent(found, drawn)
    found = found.with_columns(pl.col("start") - origin)
    tree = Tree(store, found.select(KEYS).unique().rows(), drawn)
    placed = with_lanes(tree.events(found))
    heights: dict[int, int] = dict(placed.group_by("track").agg(pl.col("lane").max().cast(pl.Int32) + 1).rows())
    tracks = tuple(replace(track, lanes=heights.get(number, 0)) for number, track in enumerate(tree.tracks))
    moved = clock.steps(timed, origin)
    places = Places(store)
    stretches = views(
        report.steps.steps, moved, places, lambda node, process: tree.of.get(("steps", node, process, NONE, NONE)), end - origin
    )
    crowded = placed.filter(pl.col("lane") < 0)
    ordered = _by_lane(placed.filter(pl.col("lane") >= 0))
    merged = _merge(ordered, stretches, cap)
    kept = _kept(ordered, merged)
    said = [*_merged_words(ordered, merged, stretches), *_crowded_words(crowded), *said]
    names, number = _names(store, kept, timed)
    known, texts = details(store, kept.filter(pl.col("count") == 1).select("source", "row"))
    detail = kept.join(known, on=["source", "row"], how="left", maintain_order="left")["detail"].fill_null(-1)
    return Timeline(
        origin_ns=origin,
        span_ns=end - origin,
        tracks=tracks,
        names=names,
        events=Events(
            track=kept["track"].to_numpy().astype(np.int32),
            start_ns=kept["start"].to_numpy().astype(np.int64),
            duration_ns=kept["duration"].to_numpy().astype(np.int64),
            name=number.to_numpy().astype(np.int32),
            lane=kept["lane"].to_numpy().astype(np.int16),
            partner=_partners(store, kept),
            detail=detail.to_numpy().astype(np.int32),
        ),
        details=texts,
        lines=tuple(_line(line, tree.line[id(line)], origin) for line in sorted(drawn, key=lambda line: tree.line[id(line)])),
        views=tuple(stretch.view for stretch in stretches),
        events_total=found.height,
        shown=" ".join(said) or None,
    )


class _Clock:
    """Times since the epoch and times from any other origin in one run have no common zero: the others are moved to where it begins."""

    def __init__(self, found: pl.DataFrame) -> None:
        starts = found.group_by("process").agg(first=pl.col("start").min(), last=pl.col("start").max()).sort("process")
        relative = starts.filter(pl.col("last") < _YEAR)
        absolute = starts.filter(pl.col("last") >= _YEAR)
        self._absolute = None if starts.is_empty() else not absolute.is_empty()
        mixed = not relative.is_empty() and not absolute.is_empty()
        self._relative: list[int] = relative["process"].to_list() if mixed else []
        self._shift = _integer(absolute["first"].min()) - _integer(relative["first"].min()) if mixed else 0

    def _moved(self, *columns: str) -> list[pl.Expr]:
        far = pl.col("process").fill_null(NONE).is_in(self._relative)
        return [pl.when(far).then(pl.col(column) + self._shift).otherwise(pl.col(column)).alias(column) for column in columns]

    def events(self, found: pl.DataFrame, said: list[str]) -> pl.DataFrame:
        if not self._relative:
            return found
        said.append(
            f"The times of {plural(len(self._relative), 'process', 'processes')} are not those of the others' clock; they are shown as if"
            " they had begun with the first of the others."
        )
        return found.with_columns(self._moved("start"))

    def steps(self, timed: pl.DataFrame, origin: int) -> pl.DataFrame:
        """``shown_ns``, ``begin`` and ``end`` from the origin; ``start`` as it is. Unknown nodes and processes as in the events."""
        keys = [pl.col(key).cast(pl.Int64).fill_null(NONE) for key in ("node", "process")]
        times = ("shown_ns", "begin", "end")
        moved = timed.with_columns(shown_ns="start").with_columns(self._moved(*times))
        return moved.with_columns(*(pl.col(time) - origin for time in times), *keys)

    def lines(self, drawn: list[Drawn], said: list[str]) -> list[Drawn]:
        lasts = [_integer(line.points["time_ns"].max()) for line in drawn]
        absolute = any(last >= _YEAR for last in lasts) if self._absolute is None else self._absolute
        kept = [line for line, last in zip(drawn, lasts, strict=True) if (last >= _YEAR) == absolute]
        if len(kept) < len(drawn):
            said.append(f"Left out: {plural(len(drawn) - len(kept), 'line')} of samples whose times are not those of the events' clock.")
        return kept


def _extent(found: pl.DataFrame, drawn: Sequence[Drawn]) -> tuple[int, int]:
    firsts = [found["start"].min(), *(line.points["time_ns"].min() for line in drawn)]
    lasts = [(found["start"] + found["duration"]).max(), *(line.points["time_ns"].max() for line in drawn)]
    return min(_integer(time) for time in firsts if time is not None), max(_integer(time) for time in lasts if time is not None)


def _integer(value: object) -> int:
    assert isinstance(value, int)
    return value


def _merge(ordered: pl.DataFrame, stretches: Sequence[Stretch], cap: int) -> Merged:
    lane = _lane(ordered)
    start, length = ordered["start"].to_numpy(), ordered["duration"].to_numpy()
    whole: list[npt.NDArray[np.bool_]] = []
    if len(ordered) > cap:
        steps = [stretch for stretch in stretches if stretch.view.key != "whole"]
        for chosen in (steps, steps[:1]):
            if chosen:
                inside = pl.any_horizontal(_inside(stretch) for stretch in chosen)
                whole.append(ordered.select(inside.alias("inside"))["inside"].to_numpy())
    return merge(lane, start, length, whole, cap)


def _lane(events: pl.DataFrame) -> npt.NDArray[np.int64]:
    """A number per lane of the run, in order of track and lane."""
    return (events["track"].cast(pl.Int64) * 32_768 + events["lane"].cast(pl.Int64)).to_numpy()


def _by_lane(placed: pl.DataFrame) -> pl.DataFrame:
    """``placed``, which is sorted by track and start, by track, lane and start."""
    lane = _lane(placed)
    return placed if (np.diff(lane) >= 0).all() else placed[np.argsort(lane, kind="stable")]


def _inside(stretch: Stretch) -> pl.Expr:
    return (pl.col("start") < stretch.last_ns) & (pl.col("start") + pl.col("duration") >= stretch.first_ns)


def _kept(ordered: pl.DataFrame, merged: Merged) -> pl.DataFrame:
    """The events that remain, by track and start, with ``count``: of how many each is made."""
    return (
        ordered[merged.first]
        .with_columns(count=pl.Series(merged.count), duration=pl.Series(merged.duration_ns))
        .sort("track", "start", "lane", maintain_order=True)
        .with_row_index("index")
    )


def _merged_words(ordered: pl.DataFrame, merged: Merged, stretches: Sequence[Stretch]) -> list[str]:
    if merged.width_ns is None:
        return []
    total, whole_time = ordered.height, int(ordered["duration"].sum())
    many = merged.count > 1
    members, time = int(merged.count[many].sum()), int(merged.duration_ns[many].sum())
    single = int((~many).sum())
    share = percent(100 * time / whole_time) if whole_time else "none"
    said = [
        f"Of {plural(total, 'event')} {count(single)} are shown one by one; {count(members)} that are shorter than"
        f" {duration(merged.width_ns)} ({share} of the time of all events) are merged with neighbours of their lane"
        f" into {count(int(many.sum()))}."
    ]
    steps = [stretch for stretch in stretches if stretch.view.key != "whole"]
    if steps and merged.level is not None:
        which = ["slowest"] if merged.level == 1 or len(steps) == 1 else ["slowest", "typical"]
        said.append(f"In the {' and the '.join(which)} step nothing is merged.")
    elif steps:
        said.append("In the slowest step, too: it has more events than a timeline holds.")
    if merged.dropped:
        time = whole_time - int(merged.duration_ns.sum())
        share = percent(100 * time / whole_time) if whole_time else "none"
        said.append(f"Left out: {plural(merged.dropped, 'event')}, the shortest ({share} of the time).")
    return said


def _crowded_words(crowded: pl.DataFrame) -> list[str]:
    if crowded.is_empty():
        return []
    return [f"Left out: {plural(crowded.height, 'event')} that happened at the same time as a thousand others of the same track."]


def _names(store: Store, kept: pl.DataFrame, timed: pl.DataFrame) -> tuple[tuple[Name, ...], pl.Series]:
    """The distinct names by text and meaning, then those of merged events, and the number of each event's."""
    single = pl.col("count") == 1
    used = kept.filter(single).select("name", "meaning").unique()
    cursor = store.connection.cursor()
    cursor.register("used", used.filter(pl.col("meaning") != _STEP).select("name").unique().to_arrow())
    try:
        texts = cursor.sql("SELECT id::BIGINT AS name, text, short FROM name SEMI JOIN used ON used.name = name.id").pl()
    finally:
        cursor.unregister("used")
    numbered = "step " + pl.col("number").cast(pl.String)
    steps = timed.select(name=pl.col("row").cast(pl.Int64), text=pl.coalesce(pl.col("phase") + " " + numbered, numbered))
    is_step = pl.col("meaning") == _STEP
    others = used.filter(~is_step).join(texts, on="name", how="left")
    ranges = used.filter(is_step).join(steps, on="name", how="left").with_columns(short=pl.lit(None, pl.String))
    named = pl.concat([others, ranges], how="diagonal").with_columns(pl.col("text").fill_null(_UNNAMED))
    distinct = named.select("text", "meaning").unique().sort("text", "meaning").with_row_index("number")
    shorts = named.group_by("text", "meaning").agg(pl.col("short").max())
    listed = distinct.join(shorts, on=["text", "meaning"], how="left", maintain_order="left").rows(named=True)
    names = [Name(row["text"], row["short"] or row["text"], MEANINGS[row["meaning"]]) for row in listed]
    counts = kept.filter(~single)["count"].unique().sort()
    names += [Name(f"{count(many)} events", f"{count(many)} events", "merged") for many in counts]
    numbers = named.join(distinct, on=["text", "meaning"]).select("name", "meaning", pl.col("number").cast(pl.Int64))
    merged = pl.DataFrame({"count": counts, "together": pl.int_range(distinct.height, distinct.height + len(counts), eager=True)})
    joined = kept.join(numbers, on=["name", "meaning"], how="left", maintain_order="left").join(
        merged, on="count", how="left", maintain_order="left"
    )
    return tuple(names), joined.select(pl.when(single).then("number").otherwise("together").alias("number"))["number"]


def _partners(store: Store, kept: pl.DataFrame) -> npt.NDArray[np.int32]:
    partner = np.full(kept.height, -1, np.int32)
    alone = kept.filter(pl.col("count") == 1)
    runs = alone.filter(pl.col("source") == DEVICE).select("index", run="row")
    calls = alone.filter(pl.col("source") == HOST).select(call="index", launch="row")
    linked = pairs(store, alone).join(runs, on="run").join(calls, on="launch")
    partner[linked["index"].to_numpy()] = linked["call"].to_numpy()
    first = linked.filter("first")
    partner[first["call"].to_numpy()] = first["index"].to_numpy()
    return partner


def _line(line: Drawn, track: int, origin: int) -> Line:
    mean, low, high = (line.points[column].to_numpy().astype(np.float32) for column in ("mean", "low", "high"))
    return Line(track, line.unit, (line.points["time_ns"] - origin).to_numpy().astype(np.int64), mean, low, high)
