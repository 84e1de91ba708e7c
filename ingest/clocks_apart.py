"""By how much are the clocks of two tracers apart that recorded the same work of one process?

Both have times of the epoch, and one of them is wrong, or they are some milliseconds apart. The work is told by the durations of kernels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final

from .clock_offset import SECOND, Offset, told
from .relative_clocks import shift
from .same_work import LEAST_ROWS, contradicted, same_rows
from .source_rows import Clock, SourceRows, Sources, operators, processes, tracer_pairs
from .store_tables import Severity

_SPREAD_NS: Final = 10**6
"""Nine tenths of the differences lie this near to their median."""
_LEAST_NS: Final = 1000
"""Nothing is shifted by less."""
_MOST_KERNELS: Final = 2_000_000
_KEYS: Final = ("duration_ns", "(n.text, duration_ns // 1000)")
"""What a kernel is told by: its duration to the nanosecond, else its name and its duration to the microsecond."""


def settle_apart(run: Sources) -> None:
    """Shift the tracer that knows fewer operators to the clock of the other, where both have the same kernels at a constant distance: of
    one process, or of two that nothing else ties, as where one is that of a container."""
    pairs = [(one, other) for one, other in tracer_pairs(run) if not one.result.relative and not other.result.relative]
    worked = {source.id: processes(run, source, "device_event") for pair in pairs for source in pair}
    bound: set[int] = set()
    for one, other in pairs:
        if common := worked[one.id] & worked[other.id]:
            bound |= {one.id, other.id}
            if not any(same_rows(run, one, other, process, process) for process in sorted(common)):
                counts = [sum(operators(run, source, process) for process in common) for source in (one, other)]
                moves, stays = (one, other) if counts[0] < counts[1] else (other, one)
                found = _offset(run, moves, stays, common, common)
                if found is not None and abs(found.shift_ns) > max(_LEAST_NS, 2 * found.uncertainty_ns):
                    _shift(run, moves, stays, found, "the same process")
    _settle_strangers(run, pairs, worked, bound)


def _settle_strangers(
    run: Sources, pairs: Sequence[tuple[SourceRows, SourceRows]], worked: Mapping[int, set[int]], bound: set[int]
) -> None:
    """Files without a process in common, each with one that did the work of one of the other's, and of no other."""
    known: dict[str, set[int]] = {}
    for source in run.sources:
        known.setdefault(source.format, set()).update(worked.get(source.id, ()))
    found: dict[tuple[int, int], tuple[Offset, SourceRows, SourceRows]] = {}
    for one, other in pairs:
        # A process with fewer kernels has no offset (work_offset), whatever it did.
        alone = [_busy(run, source) & worked[source.id] - known[beside.format] for source, beside in ((one, other), (other, one))]
        for mine, theirs in product(*map(sorted, alone)):
            swapped = operators(run, one, mine) > operators(run, other, theirs)
            moves, stays, first, second = (other, one, theirs, mine) if swapped else (one, other, mine, theirs)
            if moves.id in bound or contradicted(run, mine, theirs) or same_rows(run, one, other, mine, theirs):
                continue
            offset = _offset(run, moves, stays, {first}, {second})
            # What is not the same to the nanosecond then could not be told to be one process.
            if offset is not None and offset.uncertainty_ns <= 1:
                found[first, second] = (offset, moves, stays)
    partners = Counter(process for pair in found for process in pair)
    for (first, second), (offset, moves, stays) in found.items():
        if partners[first] == partners[second] == 1 and moves.id not in bound:
            bound |= {moves.id}
            _shift(run, moves, stays, offset, "a process")


def _busy(run: Sources, source: SourceRows) -> set[int]:
    """The processes of a source with at least ``LEAST_ROWS`` kernels."""
    first, last = source.rows.get("device_event", (0, 0))
    query = (
        "SELECT process FROM device_event WHERE rowid >= ? AND rowid < ? AND kind = 'kernel' AND process IS NOT NULL"
        f" GROUP BY process HAVING count(*) >= {LEAST_ROWS}"
    )
    return set(run.store.frame(query, [first, last]).to_series().to_list())


def _offset(run: Sources, moves: SourceRows, stays: SourceRows, mine: set[int], theirs: set[int]) -> Offset | None:
    return next((found for key in _KEYS if (found := work_offset(run, moves, stays, mine, theirs, key)) is not None), None)


def _shift(run: Sources, moves: SourceRows, stays: SourceRows, found: Offset, whose: str) -> None:
    shift(run, moves, found.shift_ns)
    within = f"{found.evidence}, +/- {told(found.uncertainty_ns)[1:]}"
    run.clocks[moves.id] = Clock(found.shift_ns, within)
    text = (
        f"The clocks of {moves.file} and {stays.file} are {told(found.shift_ns)[1:]} apart: both have the same device work of {whose}."
        f" Times of {moves.file} were shifted by {told(found.shift_ns)} to those of {stays.file} ({within})."
    )
    severity: Severity = "warning" if abs(found.shift_ns) >= SECOND else "info"
    run.store.note(severity, "clock_shifted", text, source=moves.id, file=moves.file)


def work_offset(run: Sources, one: SourceRows, other: SourceRows, mine: set[int], theirs: set[int], key: str) -> Offset | None:
    """What is to be added to the times of ``one`` so that its kernels of processes stand where ``other`` has those of the same ones, or of
    one other: by three in a row with the same ``key`` that each source has exactly once. None where these are fewer than half of the
    kernels in the time of both, or than ``LEAST_ROWS``, or their distances differ. Work that repeats itself is never the same."""
    who = "process" if mine == theirs else "0"
    which = [", ".join(map(str, sorted(ids))) for ids in (mine, theirs)]
    chains = [
        f"""
        SELECT key, min(start_ns) AS start_ns FROM (
            SELECT start_ns, hash({who}, device, what, lead(what) OVER here, lead(what, 2) OVER here) AS key FROM (
                SELECT process, device, start_ns, {key} AS what FROM device_event JOIN name AS n ON n.id = name
                WHERE device_event.rowid >= {first} AND device_event.rowid < {last} AND kind = 'kernel' AND process IN ({ids})
                LIMIT {_MOST_KERNELS})
            WINDOW here AS (PARTITION BY process, device ORDER BY start_ns))
        GROUP BY key HAVING count(*) = 1
        """
        for ids, (first, last) in zip(which, (source.rows["device_event"] for source in (one, other)), strict=True)
    ]
    same, middle, spread = run.store.frame(
        f"""
        WITH apart AS (SELECT b.start_ns - a.start_ns AS ns FROM ({chains[0]}) AS a JOIN ({chains[1]}) AS b USING (key)),
        middle AS (SELECT quantile_disc(ns, 0.5) AS ns FROM apart)
        SELECT count(*), any_value(middle.ns), quantile_disc(abs(apart.ns - middle.ns), 0.9) FROM apart, middle
        """
    ).row(0)
    if same < LEAST_ROWS or spread > _SPREAD_NS:
        return None
    if 2 * same < min(_kernels(run, (one, other), which, middle), _kernels(run, (other, one), which[::-1], -middle)):
        return None
    return Offset(middle, max(spread, 1), f"{same:,} kernels in a row have the same durations")


def _kernels(run: Sources, sources: tuple[SourceRows, SourceRows], which: Sequence[str], by: int) -> int:
    """How many kernels of the first source lie in the time of the second's, when its times are shifted. ``which``: processes of each."""
    (first, last), (begin, end) = (source.rows["device_event"] for source in sources)
    query = f"""
        SELECT count(*) FROM device_event, (
            SELECT min(start_ns) AS first, max(start_ns) AS last FROM device_event
            WHERE rowid >= {begin} AND rowid < {end} AND kind = 'kernel' AND process IN ({which[1]})) AS span
        WHERE device_event.rowid >= {first} AND device_event.rowid < {last} AND kind = 'kernel' AND process IN ({which[0]})
            AND start_ns + {by} BETWEEN span.first AND span.last
        """
    return int(run.store.frame(query).item())
