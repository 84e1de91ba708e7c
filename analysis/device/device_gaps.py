"""The idle gaps of every device inside its profile, with the event that ended each gap and when it was launched.

A gap is between two events (kernels, copies, memsets) of a device, over all its streams and processes: from the latest end so far to the
next start. The event that starts first ends the gap. The gap is divided at the end of its launch call (:mod:`.idle`): up to there the
device had nothing to run, because the host was not there yet. The time between two profiles of a schedule with several cycles is not a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.intervals import first_of
from ..toolkit.labels import place
from ..toolkit.places import Places, batches, one_of
from ..toolkit.windows import windows, with_window
from .idle import launch_calls, ready

# Device events that are held in memory at once; a run of more is read in groups of devices (one device is never divided).
ROWS_AT_ONCE: Final = 1_000_000
LISTED: Final = 10  # longest gaps of a device that are looked at, however short


@dataclass(frozen=True, slots=True)
class IdleDevice:
    """A device of a profile. ``row``: its number in its group. ``processes``: ids of those that used it; rank and pid are None if there
    are several. ``span_ns``: first start to last end, added up over the profiles; ``linked``: events whose launch call is in the
    trace."""

    row: int
    node: str
    rank: int | None
    pid: int | None
    device: int | None
    processes: tuple[int | None, ...]
    first_ns: int
    last_ns: int
    span_ns: int
    idle_ns: int
    events: int
    linked: int

    @property
    def label(self) -> str:
        """ "rank 5, node-1 GPU 3" """
        return place(self.node, self.rank, self.device)

    @property
    def order(self) -> tuple[str, bool, int, bool, int, int]:
        """Sort key: host name, rank, pid and device; unknown values last."""
        return (self.node, self.rank is None, self.rank or 0, self.pid is None, self.pid or 0, self.device or 0)


@dataclass(frozen=True, slots=True)
class GapGroup:
    """Some devices and their gaps. ``condition``: SQL that is true for their rows of ``device_event AS e``.

    ``gaps``: row (of the device), start, end; of the event that ends the gap: process, kernel (whether it is one), name, duration, and
    ``ready``, the end of its launch call within the gap (null if the trace does not have it). ``longest``: those of each device above 1%
    of its span, and at least its ten longest, with more about the work around them.
    """

    devices: tuple[IdleDevice, ...]
    gaps: pl.DataFrame
    longest: pl.DataFrame
    condition: str
    keys: pl.DataFrame
    """Number of each device by its ids: columns node, device, row."""

    def host_waits(self) -> pl.DataFrame:
        """Return the parts of the gaps in which the work was not launched yet."""
        return self.gaps.filter(pl.col("ready") > pl.col("start")).with_columns(end="ready")

    def rows(self) -> pl.DataFrame:
        """Return the processes of each device: columns row and process."""
        pairs = [(device.row, process) for device in self.devices for process in device.processes]
        return pl.DataFrame(pairs, schema={"row": pl.Int32, "process": pl.Int32}, orient="row")


class DeviceGaps:
    """The gaps of a run, computed at first use, and kept for the next rule: in memory, or of several groups in files next to the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: list[GapGroup] | None = None
        self._folder: Path | None = None

    def groups(self) -> Iterator[GapGroup]:
        """Yield all devices with kernels, copies or memsets, a million events at a time."""
        if self._kept is None:
            yield from self._computed()
        elif len(self._kept) == 1:
            yield self._kept[0]
        else:
            for number, group in enumerate(self._kept):
                yield replace(group, gaps=pl.read_ipc(self._file(number)))

    def _computed(self) -> Iterator[GapGroup]:
        groups = _device_groups(self._store)
        places = Places(self._store)
        kept = []
        for number, users in enumerate(groups):
            group = _gaps(self._store, users, places)
            yield group
            if len(groups) > 1:
                group.gaps.write_ipc(self._file(number), compression="lz4")
                group = replace(group, gaps=group.gaps.clear())
            kept.append(group)
        self._kept = kept

    def _file(self, number: int) -> Path:
        if self._folder is None:
            self._folder = Path(mkdtemp(prefix="gaps-", dir=self._store.private_folder()))
        return self._folder / f"{number}.arrow"

    def longest(self) -> list[tuple[tuple[IdleDevice, ...], pl.DataFrame]]:
        """Return the devices and the longest gaps of every group."""
        return [(group.devices, group.longest) for group in self._kept or self.groups()]


def _device_groups(store: Store) -> list[pl.DataFrame]:
    """Divide devices into groups: node, device, processes, n."""
    if not store.has_rows("device_event"):
        return []
    counted = store.frame("""
        SELECT node, device, list_sort(list(DISTINCT process)) || CASE WHEN bool_or(process IS NULL) THEN [NULL] ELSE [] END AS processes,
               count(*) AS n
        FROM device_run GROUP BY node, device ORDER BY node, device
    """)
    return [counted[group] for group in batches(enumerate(counted["n"]), ROWS_AT_ONCE)]


def _gaps(store: Store, users: pl.DataFrame, places: Places) -> GapGroup:
    users = users.with_columns(row=pl.int_range(pl.len(), dtype=pl.Int32), shared=pl.col("processes").list.len() > 1)
    condition = _condition(users)
    events = _in_profiles(store, _events(store, users, condition)).sort(
        "row", "start", "end", "launched", "process", "name", nulls_last=True
    )
    start, end, before = pl.col("start"), pl.col("end"), pl.col("before")
    spans = (
        events.group_by("row", "window")
        .agg(start.min(), end.max(), events=pl.len(), linked=pl.col("launched").count())
        .group_by("row")
        .agg(pl.col("events", "linked").sum(), first_ns=start.min(), last_ns=end.max(), span_ns=(end - start).sum())
    )
    numbered = events.with_row_index("number")
    gaps = (
        numbered.with_columns(before=end.cum_max().shift(1).over("row", "window"))
        .filter(start > before)
        .select("number", "row", "process", "kernel", "name", "launched", start=before, end=start, duration=end - start)
        .with_columns(ready())
    )
    idle = gaps.group_by("row").agg(idle_ns=(end - start).sum())
    rows = users.join(spans, on="row").join(idle, on="row", how="left").with_columns(pl.col("idle_ns").fill_null(0))
    return GapGroup(
        tuple(_device(row, places) for row in rows.sort("row").iter_rows(named=True)),
        gaps.drop("number", "launched"),
        _longest(numbered, gaps, spans),
        condition,
        users.select("node", "device", "row"),
    )


def _longest(events: pl.DataFrame, gaps: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the longest gaps of each device, with the work around them.

    Columns: row, process, start, ready, end, launched; ``name``, ``stream``, ``correlation`` of the work that ends the gap; ``number``, its
    place among the events; ``name_before``, ``stream_before``, ``correlation_before`` of the work that ended last. Without gaps it has no
    columns."""
    if gaps.is_empty():
        return pl.DataFrame()
    length = pl.col("end") - pl.col("start")
    tenth = gaps.group_by("row").agg(tenth=length.top_k(LISTED).min())
    limits = spans.join(tenth, on="row").select("row", least=pl.min_horizontal("tenth", pl.col("span_ns") // 100 + 1))
    long = gaps.join(limits, on="row").filter(length >= pl.col("least")).drop("least", "kernel", "name", "duration")
    after = events.select(pl.col("name", "stream", "correlation").gather(long["number"]))
    ends = events.join(long.select("row", end="start"), on=["row", "end"], how="semi")
    last = ends.group_by("row", "end").agg(
        pl.col("name", "stream", "correlation").sort_by("number").last().name.suffix("_before"),
        pl.col("number").max().alias("number_before"),
    )
    return long.hstack(after).join(last, left_on=["row", "start"], right_on=["row", "end"], how="left")


def _device(row: dict[str, Any], places: Places) -> IdleDevice:
    processes: Sequence[int | None] = row["processes"]
    return IdleDevice(
        **places.process(None if row["shared"] else processes[0], row["node"])._asdict(),
        **{key: row[key] for key in ("row", "device", "first_ns", "last_ns", "span_ns", "idle_ns", "events", "linked")},
        processes=tuple(processes),
    )


def _condition(users: pl.DataFrame) -> str:
    parts = []
    for node, device in users.group_by("node", maintain_order=True).agg("device").iter_rows():
        parts.append(f"(e.node IS NOT DISTINCT FROM {'NULL' if node is None else node} AND {one_of('e.device', device)})")
    return f"({' OR '.join(parts)})"


def _events(store: Store, users: pl.DataFrame, condition: str) -> pl.DataFrame:
    processes = ", ".join(str(p) for p in sorted(set(users["processes"].explode().drop_nulls()))) or "NULL"
    events = store.frame(f"""
        SELECT e.node, e.device, e.process, e.start_ns AS start, e.end_ns AS "end", e.kernel, e.name, e.stream,
            e.correlation AS number
        FROM device_run AS e WHERE {condition}
    """)
    calls = launch_calls(store, f"e.process IN ({processes})")
    events = events.with_columns(launched=calls["end"].gather(first_of(events, calls, ["process"], ["start", "end"])))
    events = events.rename({"number": "correlation"})
    return events.join(users.select("node", "device", "row", "shared"), on=["node", "device"], nulls_equal=True)


def _in_profiles(store: Store, events: pl.DataFrame) -> pl.DataFrame:
    """Add the ``window`` in which each event starts."""
    shared = events.filter("shared")
    if shared.is_empty():
        return with_window(events, windows(store, "process"))
    alone = with_window(events.filter(~pl.col("shared")), windows(store, "process"))
    return pl.concat([alone, with_window(shared, windows(store, "node")).select(alone.columns)])
