"""The longest gaps of every device, with the work around them, the host's activity at that time, and the cause.

A gap is divided where the launch call of the work that ends it returned (:mod:`..device.idle`). Of the longer part the cause is named: what
the host did instead of launching, or how long the launched work waited. A cause needs an event of the trace; without one the sentence names
the missing record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import polars as pl

from ...ingest.store.store import Store
from ..device.device_gaps import LISTED, DeviceGaps, IdleDevice
from ..device.idle import KERNEL_WAIT_NS
from ..report.causes import Gap
from ..steps.loading_names import DATA_LOADING
from ..toolkit.intervals import sweep_length, union
from ..toolkit.wording import duration
from .pauses import COMPILATION_NAMES

MOST: Final = 200  # gaps of a run that are listed, the longest

# Classes of host events in the order in which they claim a moment; each has the sentence's words.
_CLASSES: Final = {
    "profiler overhead": "the profiler's own work",
    "garbage collection": "garbage collection",
    "synchronization": "a blocking call",
    "allocation": "the allocation or release of memory",
    "compilation": "compilation or the loading of code",
    "data loader": "the data loader",
    "runtime call": "a runtime call",
    "code": "",
}
_GARBAGE: Final = r"(?i)\bgc\.collect\b|\bgc_collect\b|garbage.collect"
_ALLOCATION: Final = r"(?i)^(cuda|hip|cu|ze)\w*(malloc|free|memalloc|hostalloc|hostregister|memcreate|memmap|memunmap|memrelease)"
_COPY: Final = "(?i)^(cuda|hip|cu)memcpy"
# A copy between host and device whose call returned after its end, or after the host memory, which is not pinned, was read.
_BLOCKS: Final = "d.kind = 'memcpy' AND d.copy_kind <> 'DtoD' AND (d.pageable OR d.start_ns + d.duration_ns <= t.\"end\")"
# Compilation, and code that the driver loads at its first use. Names of compiled regions are not compilation.
_COMPILATION: Final = (
    rf"{COMPILATION_NAMES}|nvrtc|^cu(da)?(module|library)(load|get)|^hipmoduleload|module loading|function loading|driver.*compiler"
)
_COMMON: Final = {
    "process": pl.Int32,
    "tid": pl.Int64,
    "kind": pl.String,
    "text": pl.String,
    "start": pl.Int64,
    "end": pl.Int64,
    "blocks": pl.Boolean,
}


class Site(Protocol):
    """A module path and a source line (file:line), None if unknown."""

    @property
    def module(self) -> str | None: ...

    @property
    def line(self) -> str | None: ...


Code = Callable[[pl.DataFrame], Sequence[Site | None]]


def gaps(store: Store, device_gaps: DeviceGaps, code: Code | None = None) -> tuple[Gap, ...]:
    """Return the gaps above 1% of a device's span, and at least its ten longest.

    They are sorted by length, and at most :data:`MOST`. ``code``: returns the code of stretches
    (process, tid, start, ns)."""
    devices: list[IdleDevice] = []
    parts = []
    for of_group, longest in device_gaps.longest():
        if longest.is_empty():
            continue
        spans = pl.DataFrame(
            [(d.row, d.span_ns, len(devices) + i) for i, d in enumerate(of_group)], orient="row", schema=["row", "span", "at"]
        )
        rows = longest.join(spans.cast({"row": pl.Int32}), on="row").with_columns(length=pl.col("end") - pl.col("start"))
        rows = rows.sort("row", "length", "start", descending=[False, True, False])
        first = pl.int_range(pl.len()).over("row") < LISTED
        parts.append(rows.filter(first | (100 * pl.col("length") > pl.col("span"))).drop("row", "number", "number_before"))
        devices += of_group
    listed = pl.concat(parts) if parts else pl.DataFrame()
    if listed.is_empty():
        return ()
    listed = listed.sort("length", "at", "start", descending=[True, False, False]).head(MOST).with_row_index("gap")
    listed = _with_launch(store, listed).with_columns(host_end=pl.col("ready").fill_null(pl.col("start")))
    before_all = _first_launch(store, listed)
    activity = _Activity(store, listed)
    ids = {i for column in ("name", "name_before") for i in listed[column].drop_nulls()}
    until_launch = listed.select("process", "start", tid="launch_tid", ns=pl.coalesce("ready", "end") - pl.col("start"))
    sites = [None] * len(listed) if code is None else code(until_launch)
    names = dict(store.frame(f"SELECT id, coalesce(short, text) FROM name WHERE id IN ({', '.join(map(str, ids)) or 'NULL'})").rows())
    result = []
    for row, site in zip(listed.iter_rows(named=True), sites, strict=True):
        device = devices[row["at"]]
        after, previous = names.get(row["name"]), names.get(row["name_before"])
        kind, cause, frame = _cause(row, after or "the next work", activity, before_all)
        result.append(
            Gap(
                node=device.node,
                rank=device.rank,
                device=device.device or 0,
                start_ns=row["start"],
                duration_ns=row["length"],
                cause=cause,
                before=previous,
                after=after,
                frame=frame,
                kind=kind,
                host_ns=None if row["ready"] is None else row["ready"] - row["start"],
                stream_before=row["stream_before"],
                stream_after=row["stream"],
                module=site.module if site else None,
                source_line=site.line if site else None,
            )
        )
    return tuple(result)


def _with_launch(store: Store, listed: pl.DataFrame) -> pl.DataFrame:
    """Add the thread of the launch call of the work that ends each gap."""
    numbers = ", ".join(map(str, listed["correlation"].drop_nulls().unique())) or "NULL"
    calls = store.frame(f"""
        SELECT process, correlation, start_ns, tid AS launch_tid FROM host_event WHERE kind = 'launch' AND correlation IN ({numbers})
    """)
    first = calls.sort("start_ns", "launch_tid", nulls_last=True).unique(["process", "correlation"], keep="first").drop("start_ns")
    return listed.join(first, on=["process", "correlation"], how="left")


def _first_launch(store: Store, listed: pl.DataFrame) -> dict[int, tuple[int, int]]:
    """Return start and correlation of the first launch of each process."""
    unknown = listed.filter(pl.col("ready").is_null())["process"].drop_nulls().unique()
    if unknown.is_empty():
        return {}
    rows = store.frame(f"""
        SELECT process, min(start_ns), min(correlation) FILTER (correlation > 0) FROM host_event
        WHERE kind = 'launch' AND process IN ({", ".join(map(str, unknown))}) GROUP BY process
    """).rows()
    return {process: (start, number) for process, start, number in rows}


class _Activity:
    """The host's events in the parts of the gaps in which the work was not launched."""

    def __init__(self, store: Store, listed: pl.DataFrame) -> None:
        waits = listed.filter(pl.col("host_end") > pl.col("start")).select("gap", "process", "launch_tid", begin="start", finish="host_end")
        inside = _host_events(store, waits).with_columns(
            mine=(pl.col("tid") == pl.col("launch_tid")).fill_null(False),
            inner=pl.min_horizontal("end", "finish") - pl.max_horizontal("start", "begin"),
        )
        of_launch = inside.filter("mine")
        self._times = {True: self._claimed(of_launch), False: self._claimed(inside)}
        self._longest = {True: self._longest_events(of_launch), False: self._longest_events(inside)}
        self._frames = self._innermost(inside) | self._innermost(of_launch)
        drains = of_launch.filter(pl.col("class") == "synchronization", pl.col("start") < pl.col("begin"))
        self._drains = dict(_first_of_gap(drains.sort("start", "text")).select("gap", "text").iter_rows())

    @staticmethod
    def _claimed(inside: pl.DataFrame) -> dict[int, dict[str, int]]:
        """Return the time of each class by gap; a moment belongs to the first class."""
        if inside.is_empty():
            return {}
        clipped = inside.select(
            "gap",
            start=pl.max_horizontal("start", "begin"),
            end=pl.min_horizontal("end", "finish"),
            **{name: pl.col("class") == name for name in _CLASSES},
        )
        times: dict[int, dict[str, int]] = {}
        for row in sweep_length(clipped, ["gap"], list(_CLASSES)).iter_rows(named=True):
            name = next(name for name in _CLASSES if row[name])
            of_gap = times.setdefault(row["gap"], {})
            of_gap[name] = of_gap.get(name, 0) + row["length"]
        return times

    @staticmethod
    def _longest_events(inside: pl.DataFrame) -> dict[tuple[int, str], str]:
        """Return the event with the longest time in each gap, by gap and class."""
        ordered = inside.sort("inner", "text", descending=[True, False]).unique(["gap", "class"], keep="first", maintain_order=True)
        return {(gap, name): text for gap, name, text in ordered.select("gap", "class", "text").iter_rows()}

    @staticmethod
    def _innermost(inside: pl.DataFrame) -> dict[int, tuple[str, str]]:
        """Return kind and name of the innermost code that covers half of each wait."""
        code = inside.filter(
            pl.col("kind").is_in(["python", "operator", "range", "loader"]),
            2 * pl.col("inner") >= pl.col("finish") - pl.col("begin"),
            ~pl.col("text").str.starts_with("<built-in"),
        )
        ordered = _first_of_gap(code.sort(pl.col("end") - pl.col("start"), "text", "kind"))
        return {gap: (kind, text) for gap, kind, text in ordered.select("gap", "kind", "text").iter_rows()}

    def main(self, gap: int, host_ns: int) -> tuple[str, int, bool]:
        """Return the largest class, its time, and whether on the launching thread.

        The class is "nothing recorded" if no event covers the larger part."""
        for mine in (True, False):
            times = self._times[mine].get(gap, {})
            rest = host_ns - sum(times.values())
            name = max(times, key=lambda one: times[one], default="")
            if name and times[name] >= rest:
                return name, times[name], mine
        return "nothing recorded", host_ns - sum(self._times[False].get(gap, {}).values()), False

    def longest(self, gap: int, name: str, mine: bool) -> str:
        """Return the event of a class with the longest time in the gap."""
        return self._longest[mine][gap, name]

    def frame(self, gap: int) -> tuple[str, str] | None:
        """Return kind and name of the innermost code, if possible of the launching thread."""
        return self._frames.get(gap)

    def drained_by(self, gap: int) -> str | None:
        """Return the blocking call that was open on the launching thread before."""
        return self._drains.get(gap)


def _first_of_gap(ordered: pl.DataFrame) -> pl.DataFrame:
    return ordered.unique("gap", keep="first", maintain_order=True)


def _host_events(store: Store, waits: pl.DataFrame) -> pl.DataFrame:
    """Return ``waits`` with the host events and ranges that overlap them."""
    if waits.is_empty():
        return waits.join(pl.DataFrame(schema={**_COMMON, "class": pl.String}), on="process")
    stretches = union(waits.select("process", start="begin", end="finish"), ["process"]).with_row_index("stretch")
    values = ", ".join(f"({stretch}, {process}, {start}, {end})" for stretch, process, start, end in stretches.iter_rows())
    inside = "e.start_ns < w.finish AND e.start_ns + e.duration_ns > w.begin"
    events = store.frame(f"""
        WITH w(stretch, process, begin, finish) AS (VALUES {values})
        SELECT DISTINCT t.* EXCLUDE (name, correlation), n.text, t.kind = 'launch' AND regexp_matches(n.text, '{_COPY}')
            AND EXISTS (FROM device_event AS d WHERE d.process = t.process AND d.correlation = t.correlation AND {_BLOCKS}) AS blocks
        FROM (
            SELECT w.stretch, e.process, e.tid, e.kind::VARCHAR AS kind, e.start_ns AS start, e.start_ns + e.duration_ns AS "end", e.name,
                e.correlation
            FROM host_event AS e JOIN w ON e.process = w.process AND {inside}
            UNION ALL
            SELECT w.stretch, e.process, e.tid, 'range', e.start_ns, e.start_ns + e.duration_ns, e.name, NULL
            FROM annotation AS e JOIN w ON e.process = w.process AND {inside}
            WHERE e.side = 'host' AND e.complete IS NOT FALSE AND NOT EXISTS (FROM step AS s WHERE s.process = e.process
                AND s.host_start_ns = e.start_ns AND s.host_duration_ns = e.duration_ns)
        ) AS t JOIN name AS n ON n.id = t.name
    """)
    text, kind = pl.col("text"), pl.col("kind")
    call = kind.is_in(["launch", "call", "overhead"])
    name = (
        pl.when(text.str.contains(_COMPILATION)).then(pl.lit("compilation"))
        .when(kind == "overhead").then(pl.lit("profiler overhead"))
        .when(text.str.contains(_GARBAGE)).then(pl.lit("garbage collection"))
        .when((kind == "sync") | pl.col("blocks")).then(pl.lit("synchronization"))
        .when(call & text.str.contains(_ALLOCATION)).then(pl.lit("allocation"))
        .when((kind == "loader") | ((kind == "range") & text.str.contains(DATA_LOADING))).then(pl.lit("data loader"))
        .when(call).then(pl.lit("runtime call"))
        .otherwise(pl.lit("code"))
    )  # fmt: skip
    classified = events.select(
        pl.col("stretch").cast(pl.UInt32), *(pl.col(name) for name in _COMMON if name != "process"), name.alias("class")
    )
    # Of one process only the waits of different devices overlap, so a stretch has few of them.
    stretch = waits.sort("begin").join_asof(
        stretches.select("process", "stretch", first="start").sort("first"),
        left_on="begin",
        right_on="first",
        by="process",
        check_sortedness=False,
    )
    return stretch.join(classified, on="stretch").filter(pl.col("start") < pl.col("finish"), pl.col("end") > pl.col("begin"))


def _cause(row: dict[str, Any], after: str, activity: _Activity, before_all: dict[int, tuple[int, int]]) -> tuple[str, str, str | None]:
    """Return class, sentence and host frame of a gap."""
    if row["ready"] is None:
        return _unknown(row, after, before_all)
    host, waited = row["ready"] - row["start"], row["end"] - row["ready"]
    frame = activity.frame(row["gap"])
    name = frame[1] if frame else None
    if host >= waited:
        return *_late(row["gap"], host, after, activity, frame), name
    if row["correlation"] is not None and row["correlation"] == row["correlation_before"]:
        return "graph", f"`{after}` and the work before it belong to one graph launch.", name
    if waited < KERNEL_WAIT_NS:
        return "launch delay", f"`{after}` began {duration(waited)} after its launch call.", name
    text = f"`{after}` was launched {duration(row['end'] - row['launched'])} before it began."
    if row["stream"] is not None and row["stream_before"] is not None and row["stream"] != row["stream_before"]:
        text += f" Stream {row['stream_before']} ran last, so that stream {row['stream']} may have waited for it."
    return "launched and waiting", f"{text} The trace does not record the cause of the wait.", name


def _late(gap: int, host: int, after: str, activity: _Activity, frame: tuple[str, str] | None) -> tuple[str, str]:
    """Return class and sentence of a gap in which the host had not launched the work."""
    kind, time, mine = activity.main(gap, host)
    start = f"The host had not launched `{after}`"
    drained = activity.drained_by(gap)
    ended = f" `{drained}` had blocked the host until the device was idle." if drained else ""
    share = duration(host) if duration(time) == duration(host) else f"{duration(time)} of {duration(host)}"
    if kind == "nothing recorded":
        return kind, f"{start}: the trace records no activity of the host for {share}.{ended}"
    if kind != "code":
        return kind, f"{start}: it spent {share} in {_CLASSES[kind]}, mostly `{activity.longest(gap, kind, mine)}`.{ended}"
    if frame is None:
        return "operators", f"{start}: it ran operators or Python functions for {share}.{ended}"
    label = {"python": "Python", "operator": "operator", "range": "annotated range", "loader": "data loader"}[frame[0]]
    return label, f"{start}: it ran `{frame[1]}` for {share}.{ended}"


def _unknown(row: dict[str, Any], after: str, before_all: dict[int, tuple[int, int]]) -> tuple[str, str, str | None]:
    start, number = before_all.get(row["process"], (None, None))
    early = start is not None and row["end"] <= start
    if early or (number is not None and row["correlation"] and row["correlation"] < number):
        text = f"`{after}` was launched before the first launch of the profile. Work that the profile does not contain may have run."
        return "launched before the profile", text, None
    return "unknown", f"The launch call of `{after}` is not in the trace.", None
