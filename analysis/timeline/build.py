"""Timeline of a run: store and report -> tracks, events, lines and views that the interactive timeline shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from ...ingest.store.store import Store
from ..machine.utilization import derived_utilization
from ..report.model import Report
from ..steps.data import StepData
from ..toolkit.places import Places
from ..toolkit.wording import count, duration, percent, plural
from .events import DEVICE, HOST, KEYS, MEANINGS, NONE, PLACES, SOURCE, events, facts, pairs, places, registered, steps_of
from .gaps import gaps, recordings, stretch, unrecorded_ns
from .lanes import Columns, assign_lanes
from .lines import Drawn, lines
from .merge import Merged
from .model import CAP, Events, Line, Name, Timeline
from .reduction import Reduction
from .steps import steps_around
from .tracks import Tree
from .views import Stretch, views

_YEAR: Final = 365 * 86_400 * 10**9  # ns; smaller times do not count from the epoch
_STEP: Final = MEANINGS.index("step")
_UNNAMED: Final = "(no name)"


def timeline(store: Store, report: Report, *, cap: int = CAP) -> Timeline | None:
    """Return the timeline of a run with at most ``cap`` events; None if it is empty.

    If there are more events, neighbors are merged. ``report``: the report of the run; its steps and slow steps determine where the timeline
    opens.
    """
    timed = steps_of(store)
    keys = places(store, timed)
    drawn = lines(store, derived_utilization(store))
    remarks: list[str] = []
    clock = _Clock(keys)
    drawn = clock.lines(drawn, remarks)
    if keys.is_empty() and not drawn:
        return None
    keys = clock.moved(keys, remarks)
    origin, end = _extent(keys, drawn, report.job_statistics.ended_at_ns)
    keys = keys.with_columns(pl.col("moved") - origin)
    span = end - origin
    tree = Tree(store, keys.select(KEYS).rows(), drawn)
    process_of = {track: process for (_, _, process, _, _), track in tree.of.items()}
    track = pl.Series([tree.of[PLACES[place], *rest] for place, *rest in keys.select(KEYS).iter_rows()], dtype=pl.Int32)
    source = np.zeros(len(tree.tracks), np.int8)
    source[track.to_numpy()] = np.array(SOURCE, np.int8)[keys["place"].to_numpy()]
    moved = clock.steps(timed, origin)
    recorded = recordings(store, dict(keys.select("process", "moved").rows()))
    everyone = set(keys.filter(pl.col("place") <= PLACES.index("thread"))["process"]) <= set(recorded)
    unrecorded = unrecorded_ns(recorded, everyone, span)
    on_devices = keys.filter(pl.col("place") == PLACES.index("stream"))
    ran = (_integer(on_devices["first"].min()) - origin, _integer(on_devices["end"].max()) - origin) if len(on_devices) else None
    stretches = views(
        report.steps.steps,
        report.slow_steps,
        StepData(store).walled,
        moved,
        Places(store),
        lambda node, process: tree.of.get(("steps", node, process, NONE, NONE)),
        span,
        unrecorded,
        ran,
    )
    recording = partial(stretch, recorded, process_of)
    reduction, crowded, heights = Reduction(cap, stretches, recording), 0, np.zeros(len(tree.tracks), np.int64)
    for part in events(store, timed, keys.select(*KEYS, "events", "moved").with_columns(track=track)):
        crowded += assign_lanes(part)
        np.maximum.at(heights, part["track"], part["lane"] + np.int64(1))
        reduction.add(part)
    tracks = tuple(replace(track, lanes=int(heights[number])) for number, track in enumerate(tree.tracks))
    left_out = []
    if crowded:
        left_out = [f"Left out: {plural(crowded, 'event')} that happened at the same time as a thousand others of the same track."]
    ordered, merged = reduction.merged()
    total = reduction.total + crowded
    remarks = [*_merged_words(reduction, merged, stretches), *left_out, *remarks]
    kept = _kept(ordered, merged, source)
    del ordered
    alone = kept.filter(pl.col("count") == 1).select("index", "source", "row")
    known, texts = facts(store, alone)
    kept = kept.join(known, on=["source", "row"], how="left", maintain_order="left")
    names, number = _names(store, kept, timed)
    partner = _partners(store, kept, alone)
    return Timeline(
        origin_ns=origin,
        span_ns=span,
        tracks=tracks,
        names=names,
        events=Events(
            track=kept["track"].to_numpy().astype(np.int32),
            start_ns=kept["start"].to_numpy().astype(np.int64),
            duration_ns=kept["duration"].to_numpy().astype(np.int64),
            name=number.to_numpy().astype(np.int32),
            lane=kept["lane"].to_numpy().astype(np.int16),
            partner=partner,
            detail=kept["detail"].fill_null(-1).to_numpy().astype(np.int32),
            correlation=kept["correlation"].fill_null(-1).to_numpy().astype(np.int64),
            step=steps_around(kept, partner, moved, process_of),
        ),
        details=texts,
        lines=tuple(_line(line, tree.line[id(line)], origin) for line in sorted(drawn, key=lambda line: tree.line[id(line)])),
        views=tuple(stretch.view for stretch in stretches),
        events_total=total,
        shown=" ".join(remarks) or None,
        gaps=gaps(recorded, tree.process, span),
    )


class _Clock:
    """Moves times to a common zero: times since the epoch and times from any other origin in one run have none of their own."""

    def __init__(self, keys: pl.DataFrame) -> None:
        starts = keys.group_by("process").agg(pl.col("first").min(), pl.col("last").max()).sort("process")
        relative = starts.filter(pl.col("last") < _YEAR)
        absolute = starts.filter(pl.col("last") >= _YEAR)
        self._absolute = None if starts.is_empty() else not absolute.is_empty()
        mixed = not relative.is_empty() and not absolute.is_empty()
        self._relative: list[int] = relative["process"].to_list() if mixed else []
        self._shift = _integer(absolute["first"].min()) - _integer(relative["first"].min()) if mixed else 0

    def _far(self) -> pl.Expr:
        return (
            pl.when(pl.col("process").fill_null(NONE).is_in(self._relative))
            .then(pl.lit(self._shift, pl.Int64))
            .otherwise(pl.lit(0, pl.Int64))
        )

    def moved(self, keys: pl.DataFrame, remarks: list[str]) -> pl.DataFrame:
        """Add ``moved``, the offset of the times; apply it to ``first`` and ``end``."""
        if self._relative:
            remarks.append(
                f"The times of {plural(len(self._relative), 'process', 'processes')} are not those of the others' clock; they are shown"
                " as if they had begun with the first of the others."
            )
        return keys.with_columns(moved=self._far()).with_columns(pl.col("first") + pl.col("moved"), pl.col("end") + pl.col("moved"))

    def steps(self, timed: pl.DataFrame, origin: int) -> pl.DataFrame:
        """Add times from the origin to the steps; ``start`` stays as it is.

        Columns: ``shown_ns``, ``begin``, ``end``, and ``host_begin``, ``host_end`` of the host's range. Unknown nodes and processes are as
        in the events.
        """
        keys = [pl.col(key).cast(pl.Int64).fill_null(NONE) for key in ("node", "process")]
        times = ("shown_ns", "begin", "end", "host_begin", "host_end")
        named = timed.with_columns(
            shown_ns="start", host_begin="host_start_ns", host_end=pl.col("host_start_ns") + pl.col("host_duration_ns")
        )
        return named.with_columns(*(pl.col(time) + self._far() - origin for time in times)).with_columns(*keys)

    def lines(self, drawn: list[Drawn], remarks: list[str]) -> list[Drawn]:
        lasts = [_integer(line.points["time_ns"].max()) for line in drawn]
        absolute = any(last >= _YEAR for last in lasts) if self._absolute is None else self._absolute
        kept = [line for line, last in zip(drawn, lasts, strict=True) if (last >= _YEAR) == absolute]
        if len(kept) < len(drawn):
            remarks.append(f"Left out: {plural(len(drawn) - len(kept), 'line')} of samples whose times are not those of the events' clock.")
        return kept


def _extent(keys: pl.DataFrame, drawn: Sequence[Drawn], ended: int | None) -> tuple[int, int]:
    """Return the first and last time.

    The last stretch of a line can contain the end of the job, which is the last time then."""
    firsts = [keys["first"].min(), *(line.points["time_ns"].min() for line in drawn)]
    lasts = [keys["end"].max(), *(line.points["time_ns"].max() for line in drawn)]
    first, last = min(_integer(time) for time in firsts if time is not None), max(_integer(time) for time in lasts if time is not None)
    stretch = max((_integer(line.points["time_ns"].diff().max()) for line in drawn if len(line.points) > 1), default=0)
    return first, ended if ended is not None and 0 < ended - last <= stretch else last


def _integer(value: object) -> int:
    assert isinstance(value, int)
    return value


def _kept(ordered: Columns, merged: Merged, source: npt.NDArray[np.int8]) -> pl.DataFrame:
    """Return the remaining events by track and start, with ``count`` of the members."""
    columns = {column: ordered[column][merged.first] for column in ("row", "track", "lane", "start")}
    return (
        pl.DataFrame({**columns, "source": source[columns["track"]], "count": merged.count, "duration": merged.duration_ns})
        .sort("track", "start", "lane", maintain_order=True)
        .with_row_index("index")
    )


def _merged_words(events: Reduction, merged: Merged, stretches: Sequence[Stretch]) -> list[str]:
    if merged.width_ns is None:
        return []
    total, whole_time = events.total, events.whole_ns
    several = merged.count > 1
    members, time = int(merged.count[several].sum()), int(merged.duration_ns[several].sum())
    single = int((~several).sum())
    share = percent(100 * time / whole_time) if whole_time else "none"
    remarks = [
        f"Of {plural(total, 'event')} {count(single)} are shown one by one; {count(members)} that are shorter than"
        f" {duration(merged.width_ns)} ({share} of the time of all events) are merged with neighbors of their lane"
        f" into {count(int(several.sum()))}."
    ]
    steps = [stretch for stretch in stretches if stretch.view.track is not None]
    if steps and merged.level is not None:
        which = ["slowest"] if merged.level == 1 or len(steps) == 1 else ["slowest", "typical"]
        remarks.append(f"In the {' and the '.join(which)} step nothing is merged.")
    elif steps:
        remarks.append("In the slowest step, too: it has more events than a timeline holds.")
    if merged.dropped:
        time = whole_time - int(merged.duration_ns.sum())
        share = percent(100 * time / whole_time) if whole_time else "none"
        remarks.append(f"Left out: {plural(merged.dropped, 'event')}, the shortest ({share} of the time).")
    return remarks


def _names(store: Store, kept: pl.DataFrame, timed: pl.DataFrame) -> tuple[tuple[Name, ...], pl.Series]:
    """Return the distinct names, those of merged events last, and each event's index."""
    single = pl.col("count") == 1
    used = kept.filter(single).select("name", "meaning").unique()
    wanted = used.filter(pl.col("meaning") != _STEP).select("name").unique()
    with registered(store, "used", wanted) as cursor:
        texts = cursor.sql("SELECT id::BIGINT AS name, text, short FROM name SEMI JOIN used ON used.name = name.id").pl()
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
    joined = (
        kept.select("name", "meaning", "count")
        .join(numbers, on=["name", "meaning"], how="left", maintain_order="left")
        .select("number", "count")
        .join(merged, on="count", how="left", maintain_order="left")
    )
    return tuple(names), joined.select(pl.when(single).then("number").otherwise("together").alias("number"))["number"]


def _partners(store: Store, kept: pl.DataFrame, alone: pl.DataFrame) -> npt.NDArray[np.int32]:
    partner = np.full(kept.height, -1, np.int32)
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
