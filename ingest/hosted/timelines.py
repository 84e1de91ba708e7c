"""Reads the hosted profiler's framework timelines: Chrome-trace arrays of steps, modules and operators -> ``annotation``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from ..store.hosted_names import machine_of, node_label
from ..store.registry import ReadResult, Registry
from ..store.texts import storable

if TYPE_CHECKING:
    import polars as pl

    from ..store.store import Store
    from ..store.tables import Severity

_TIMELINES: Final = ("pythontimeline.json", "model_timeline.json", "horovod_timeline.json", "smdataparallel_timeline.json")
# Files of Horovod itself have no start time and any name.
_RAW_HOROVOD: Final = re.compile(rb'"name"\s*:\s*"(CYCLE_START|NEGOTIATE_[A-Z_]+)"')
_BASE: Final = "start_time_since_epoch_in_micros"
# Members of ``args`` that are kept as JSON in ``annotation.arguments``: the settings of data loaders.
_SETTINGS: Final = ("num_workers", "pin_memory", "worker_id", "prefetch_factor")


def recognizes_pevents(head: bytes, name: str) -> bool:
    """Return whether a file is a framework timeline of the hosted profiler or Horovod."""
    if head.lstrip()[:1] not in (b"[", b""):
        return False
    if _RAW_HOROVOD.search(head):
        return True
    base = PurePosixPath(name).name
    named = base.endswith(_TIMELINES) or (base.endswith(".json") and "pevents" in PurePosixPath(name).parts)
    return (named and re.match(r"\d+_[^_]+_", base) is not None) or _BASE.encode() in head


def stable_tid(node: str, phase: str) -> int:
    """Return a thread id below 2^47 for the events of a node and phase without one."""
    return int.from_bytes(hashlib.blake2b(f"{node}_0{phase}".encode(), digest_size=8).digest()) >> 17


def read_pevents(store: Store, path: Path, source_id: int, registry: Registry) -> ReadResult:
    """Store the events of a timeline as annotations with a phase; value = step number.

    Start = the event's microseconds + the last declared base, exactly. Phases are the names declared for the file's pids, which hold for
    later events ("Unknown" before the first). B and E events pair as a stack per phase. ``ingest_note`` counts losses and repairs: begins
    without end, ends without begin, missing and negative durations, cut-off text. A file without a base counts from 0 (``relative``).
    """
    result, events, texts = read_events(store, path, source_id)
    if events is not None:
        append_events(store, registry, events, texts, storable(path.name), source_id)
    return result


def read_events(store: Store, path: Path, source_id: int) -> tuple[ReadResult, pl.DataFrame | None, list[str]]:
    """Return the result of :func:`read_pevents`, the events or None, and the texts.

    Only notes are stored.
    """
    import polars as pl

    from ..chrome_trace.inflate import Inflate
    from ..chrome_trace.notes import TRUNCATING, note_defects
    from ..chrome_trace.scan import Arg, TraceScan, text_id
    from ..store.time_limits import ABSURD_TIME, LONGEST_NS, possible_times

    inflate = Inflate(path, max_unpacked=store.max_unpacked)
    scan = TraceScan(
        args={
            "pid": Arg("os_pid", "int"),
            "thread_id": Arg("thread", "int"),
            "tid": Arg("arg_tid", "int"),
            "step_num": Arg("value", "int"),
            **{key: Arg(key, "int") for key in _SETTINGS},
        }
    )
    frames: list[pl.DataFrame] = []
    texts: list[str] = []
    metadata: list[tuple[int, dict[str, Any]]] = []

    def keep() -> None:
        batch = scan.take()
        frames.append(pl.DataFrame(batch.events))
        texts.extend(batch.strings)
        metadata.extend(batch.metadata)

    for chunk in inflate:
        scan.feed(chunk)
        keep()
    scan.finish()
    keep()
    raw_events = pl.concat(frames)

    def note(severity: Severity, code: str, message: str, count: int) -> None:
        if count:
            store.note(severity, code, message, count=count, source=source_id, file=path.name)

    defects = [*inflate.defects, *scan.defects]
    note_defects(store, source_id, path.name, defects)
    partial = any(defect.code in TRUNCATING for defect in defects)
    bases, phases, impossible = _declarations(metadata)
    note("warning", "absurd_time", "Start times that are of no possible day were left out.", impossible)
    if raw_events.height and not bases:
        note("warning", "relative_times", "The file declares no start time; its times count from 0.", 1)
    if not_shown := sum(count for (ph, _), count in scan.event_counts.items() if ph not in ("X", "B", "E", "M")):
        note("info", "not_shown", "Instant, counter and other events without a duration are not shown.", not_shown)

    pids = raw_events["pid"].unique(maintain_order=True)
    lanes = pl.DataFrame(
        {"pid": pids, "lane": [None if pid is None else texts[i] if (i := text_id(pid)) is not None else str(pid) for pid in pids]},
        schema={"pid": pl.Int64, "lane": pl.String},
    )
    raw_events, read = possible_times(raw_events), raw_events.height
    events = _with_declarations(raw_events.join(lanes, on="pid", how="left", nulls_equal=True).sort("ordinal"), bases, phases)
    events, unclosed, stray = _closed(events)
    note("warning", "unclosed_begin", "Ranges that begin and never end were left out.", unclosed)
    note("info", "stray_end", "Ends of ranges that never began were left out.", stray)
    missing = events.filter(pl.col("duration_ns").is_null()).height
    note("warning", "no_duration", "Complete events without a duration were left out.", missing)
    negative = events.filter(pl.col("duration_ns") < 0).height
    note("warning", "negative_duration", "Events that end before they start were left out.", negative)
    events = events.filter(pl.col("duration_ns") >= 0)
    possible = possible_times(events)
    note(*ABSURD_TIME, read - raw_events.height + events.height - possible.height)
    events = possible
    ready = _ready_ranks(events, texts)
    text = "Marks of Horovod that say when a rank was ready for a collective are no ranges; they are not shown."
    note("info", "rank_ready", text, ready.height)
    events = events.join(ready, on="ordinal", how="anti")
    absurd = events.filter(pl.col("duration_ns") > LONGEST_NS).height
    text = "Ranges last longer than seven days, which cannot be right: the clock of their writer jumped. They are shown as they stand."
    note("warning", "absurd_duration", text, absurd)
    if events.is_empty():
        note("info", "no_events", "The file holds no event with a duration.", 1)
        return ReadResult(0, None, None, relative=not bases, partial=partial), None, texts
    first, last = events.select(pl.col("start_ns").min(), (pl.col("start_ns") + pl.col("duration_ns")).max().alias("end")).row(0)
    return ReadResult(events.height, first, last, relative=not bases, partial=partial), events, texts


def _ready_ranks(events: pl.DataFrame, texts: Sequence[str]) -> pl.DataFrame:
    """Return the ordinals of Horovod's marks: events of duration 0 named by a rank."""
    import polars as pl

    used = events["name"].unique().drop_nulls().to_list()
    numbers = [i for i in used if texts[i].isascii() and texts[i].isdecimal()]
    if not any(texts[i].startswith("NEGOTIATE_") for i in used):
        numbers = []
    of_no_duration = (pl.col("phase") == ord("X")) & (pl.col("duration_ns") == 0)
    return events.filter(of_no_duration & pl.col("name").is_in(numbers)).select("ordinal")


def _declarations(metadata: Iterable[tuple[int, dict[str, Any]]]) -> tuple[list[tuple[int, int]], list[tuple[int, str, str]], int]:
    """Return the bases and phases with their ordinals, and the impossible bases."""
    from ..store.time_limits import EARLIEST_NS, LATEST_NS

    impossible = 0
    bases: dict[int, int] = {}
    phases: dict[tuple[int, str], str] = {}
    for ordinal, event in metadata:
        arguments = event.get("args")
        if event.get("name") != "process_name" or not isinstance(arguments, dict):
            continue
        base = arguments.get(_BASE)
        if base is not None:
            try:
                base_ns = int(base) * 1000
            except (TypeError, ValueError, OverflowError):
                continue
            if EARLIEST_NS <= base_ns <= LATEST_NS:
                bases[ordinal] = base_ns
            else:
                impossible += 1
        elif "name" in arguments:
            phases[ordinal, str(event.get("pid"))] = str(arguments["name"])
    return list(bases.items()), [(ordinal, pid, phase) for (ordinal, pid), phase in phases.items()], impossible


def _with_declarations(events: pl.DataFrame, bases: Sequence[tuple[int, int]], phases: Sequence[tuple[int, str, str]]) -> pl.DataFrame:
    """Add the base to start times, and the phase as column ``declared``.

    ``events`` are sorted by ordinal. Events before the first declared base use that one.
    """
    import polars as pl

    base = pl.DataFrame(bases, schema={"ordinal": pl.Int64, "base_ns": pl.Int64}, orient="row")
    phase = pl.DataFrame(phases, schema={"ordinal": pl.Int64, "lane": pl.String, "declared": pl.String}, orient="row")
    first_base = bases[0][1] if bases else 0
    return (
        events.join_asof(base, on="ordinal")
        .join_asof(phase, on="ordinal", by="lane", check_sortedness=False)
        .with_columns(
            start_ns=pl.col("start_ns") + pl.col("base_ns").fill_null(first_base), declared=pl.col("declared").fill_null("Unknown")
        )
        .drop("base_ns")
    )


def _closed(events: pl.DataFrame) -> tuple[pl.DataFrame, int, int]:
    """Return complete events, and the numbers of unclosed begins and of stray ends.

    A pair has the name, phase and start of the begin event, and the arguments of the end event, or else of the begin event.
    """
    import polars as pl

    marks = events.filter(pl.col("phase") != ord("X")).select("ordinal", lane=pl.col("lane"), opens=pl.col("phase") == ord("B"))
    complete = events.filter(pl.col("phase") == ord("X"))
    if marks.is_empty():
        return complete, 0, 0
    pairs = pair_begin_end(marks)
    begins = events.join(pairs, left_on="ordinal", right_on="begin", how="inner")
    ends = events.select(pl.all().name.prefix("end_"))
    joined = begins.join(ends, left_on="end", right_on="end_ordinal", how="inner")
    args = ("os_pid", "thread", "arg_tid", "value", *_SETTINGS)
    joined = joined.with_columns(
        pl.col("end_start_ns").sub(pl.col("start_ns")).alias("duration_ns"),
        *(pl.coalesce(f"end_{name}", name).alias(name) for name in args),
    ).select(complete.columns)
    opened = marks.filter(pl.col("opens")).height
    return pl.concat([complete, joined]), opened - pairs.height, marks.height - opened - pairs.height


def pair_begin_end(marks: pl.DataFrame) -> pl.DataFrame:
    """Pair begin and end marks as a stack per lane: an end closes the last open begin.

    ``marks``: ordinal, lane, opens (true: begin). Returns columns ``begin`` and ``end``, the ordinals of each pair, in order of the ends.
    """
    import polars as pl

    # The running sum of +1 and -1 reaches a new minimum below zero exactly at the ends that find the stack empty. Without these it
    # is the depth of the stack, and on one level of one lane begins and ends alternate.
    step = pl.when("opens").then(1).otherwise(-1)
    ordered = marks.sort("ordinal")
    floor = ordered.with_columns(total=step.cum_sum().over("lane", order_by="ordinal")).with_columns(
        floor=pl.min_horizontal(pl.col("total").cum_min().over("lane", order_by="ordinal"), 0)
    )
    kept = floor.filter(pl.col("opens") | (pl.col("floor") == pl.col("floor").shift(1, fill_value=0).over("lane", order_by="ordinal")))
    levels = kept.with_columns(depth=step.cum_sum().over("lane", order_by="ordinal")).with_columns(
        level=pl.when("opens").then(pl.col("depth")).otherwise(pl.col("depth") + 1)
    )
    partners = levels.with_columns(begin=pl.col("ordinal").shift(1).over("lane", "level", order_by="ordinal"))
    return partners.filter(~pl.col("opens")).select("begin", end=pl.col("ordinal")).sort("end")


def append_events(store: Store, registry: Registry, events: pl.DataFrame, texts: Sequence[str], name: str, source_id: int) -> None:
    """Store the events of a file as annotations of their machine and processes."""
    import polars as pl

    from ..chrome_trace.scan import text_id

    hostname, number = machine_of(name)
    label = node_label(name) or None
    node = registry.node(hostname)
    pids = events["os_pid"].unique().sort().to_list()
    writer_pid, rank = _writer(store, label, number, events)
    with store.transaction():
        ids = [registry.process(node, writer_pid if pid is None else pid, rank=rank, label=label, source=source_id) for pid in pids]
    processes = pl.DataFrame({"os_pid": pids, "process": ids}, schema={"os_pid": pl.Int64, "process": pl.Int32})
    names = events["name"].unique().drop_nulls()
    name_ids = pl.DataFrame(
        {"name": names, "name_id": store.name_ids([texts[i] for i in names])}, schema={"name": pl.Int32, "name_id": pl.Int32}
    )
    declared = events["declared"].unique().sort()
    lanes = pl.DataFrame(
        {
            "declared": declared,
            "phase_name": store.name_ids(declared.to_list()),  # for events without a name
            "phase_tid": [stable_tid(label or hostname, phase) for phase in declared],
        },
        schema={"declared": pl.String, "phase_name": pl.Int32, "phase_tid": pl.Int64},
    )
    # The number of a tid that is a text differs between files; the stable one is the same in all.
    worded = {
        tid: stable_tid(label or hostname, texts[i]) for tid in events["tid"].unique().drop_nulls() if (i := text_id(tid)) is not None
    }
    on_device = pl.col("declared").str.extract(r"^gpu_functions-dev:(\d+)$", 1).cast(pl.Int32)
    settings = pl.struct(
        *(pl.col(key) for key in _SETTINGS if key != "pin_memory"), pl.col("pin_memory").cast(pl.Boolean)
    ).struct.json_encode()
    rows = (
        events.join(processes, on="os_pid", how="left", nulls_equal=True)
        .join(name_ids, on="name", how="left")
        .join(lanes, on="declared", how="left")
        .select(
            pl.lit(node, pl.Int32).alias("node"),
            "process",
            pl.coalesce("thread", "arg_tid", pl.col("tid").replace(worded), "phase_tid").alias("tid"),
            pl.when(on_device.is_null()).then(pl.lit("host")).otherwise(pl.lit("device")).alias("side"),
            on_device.alias("device"),
            pl.coalesce("name_id", "phase_name").alias("name"),
            "value",
            "start_ns",
            "duration_ns",
            pl.col("declared").alias("phase"),
            pl.lit(True).alias("complete"),
            pl.when(pl.any_horizontal(pl.col(_SETTINGS).is_not_null())).then(settings).alias("arguments"),
        )
        .sort("start_ns", "duration_ns")
    )
    store.append("annotation", rows, source=source_id)


def _writer(store: Store, label: str | None, number: int | None, events: pl.DataFrame) -> tuple[int | None, int | None]:
    """Return pid and rank of the writing process from the number in the file's name.

    It is a pid, or under Horovod the rank: then the steps, which only the training process writes, have another pid in this or an
    earlier file.
    """
    import polars as pl

    steps = events.filter(pl.col("declared").str.starts_with("Step:"))["os_pid"].drop_nulls()
    if number is None:
        return (int(steps[0]) if len(steps) else None), None
    if len(steps):
        return int(steps[0]), (None if number in steps else number)
    known = store.connection.execute(
        "SELECT pid FROM process WHERE label = ? AND rank = ? AND pid IS NOT NULL ORDER BY id LIMIT 1", [label, number]
    ).fetchall()
    return (int(known[0][0]), number) if known else (number, None)
