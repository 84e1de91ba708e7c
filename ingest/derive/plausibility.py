"""Warns if files cannot be of one run, by their ranks, world sizes and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from ..store.registry import UNKNOWN_HOST, ReadResult
from ..store.result import CaptureResult, TraceResult
from ..store.store import Store

LONGEST_PAUSE_NS: Final = 86_400 * 10**9  # between the end of a file's events and the start of those of the next file of a run
_STRANGE_PAUSE_NS: Final = 3_600 * 10**9  # after it, files without a common machine or process are probably of another run

# The machines and processes that recorded before and after a time; times that count from an anchor are excluded.
_SIDES: Final = """
    SELECT DISTINCT node, process, start_ns > $1 AS later FROM (
        SELECT node, process, start_ns FROM annotation UNION ALL SELECT node, process, start_ns FROM host_event
        UNION ALL SELECT node, process, start_ns FROM device_event UNION ALL SELECT node, process, start_ns FROM python_window
        UNION ALL SELECT node, NULL, time_ns FROM sample
    ) WHERE start_ns >= 1000000000000000000
"""


def note_several_runs(store: Store, results: Iterable[ReadResult]) -> None:
    """Warn, with the evidence, if the files cannot be of one run.

    Evidence is a rank of several processes, more than one world size, and pauses beyond ``LONGEST_PAUSE_NS`` between files with absolute
    times. A pause of more than an hour counts if the files before and after it have machines and pids, none in common, and no rank: that
    may still be one run, and the warning says so. Pauses between files of one process, as a profiler writes them cycle by cycle, do not
    count. Call it before ranks are guessed.
    """
    spans: dict[tuple[bool, int], tuple[int, int]] = {}
    processes: set[int] = set()
    for position, result in enumerate(results):
        key = (False, position)
        if isinstance(result, TraceResult | CaptureResult) and result.process is not None:
            key = (True, result.process)
            processes.add(result.process)
        if result.first_ns is not None and result.last_ns is not None and not result.relative:
            first, last = spans.get(key, (result.first_ns, result.last_ns))
            spans[key] = (min(first, result.first_ns), max(last, result.last_ns))
    rows = store.connection.execute("SELECT rank, world_size FROM process WHERE id IN (SELECT unnest(?))", [sorted(processes)]).fetchall()
    sizes = sorted({size for _, size in rows if size is not None})
    world_sizes = f"world sizes are {', '.join(map(str, sizes))}" if len(sizes) > 1 else ""
    repeated_rank = _repeated_rank(Counter(rank for rank, _ in rows if rank is not None))
    if evidence := list(filter(None, (repeated_rank, world_sizes, _pause(spans)))):
        text = f"The files cannot all be of one run: {'; '.join(evidence)}. Their figures are mixed here; give the files of one run."
        store.note("warning", "several_runs", text, count=len(spans) or len(processes))
    elif strangers := _strangers(store, spans):
        text = f"The files may not be of one run: {strangers}. If they are not, their figures are mixed here; give the files of one run."
        store.note("warning", "several_runs", text, count=len(spans))


def _repeated_rank(ranks: Counter[int]) -> str:
    """Name the rank of the largest number of processes if there are several."""
    repeated = {rank: count for rank, count in sorted(ranks.items()) if count > 1}
    if not repeated:
        return ""
    rank = max(repeated, key=lambda rank: repeated[rank])
    others = f" ({len(repeated)} ranks occur more than once)" if len(repeated) > 1 else ""
    return f"rank {rank} occurs {repeated[rank]} times{others}"


def _pause(spans: Mapping[tuple[bool, int], tuple[int, int]]) -> str:
    """Name the longest pause between files if it is too long for one run."""
    longest = _longest_pause(spans)[0]
    days = longest // LONGEST_PAUSE_NS
    if longest <= LONGEST_PAUSE_NS:
        return ""
    return f"up to {days:,} days lie between one file and the next" if days > 1 else "more than a day lies between one file and the next"


def _longest_pause(spans: Mapping[tuple[bool, int], tuple[int, int]]) -> tuple[int, int]:
    """Return the length of the longest pause between files, and its start."""
    longest, began, end = 0, 0, None
    for first, last in sorted(spans.values()):
        if end is not None and first - end > longest:
            longest, began = first - end, end
        end = last if end is None else max(end, last)
    return longest, began


def _strangers(store: Store, spans: Mapping[tuple[bool, int], tuple[int, int]]) -> str:
    """Name the machines before and after a long pause if they have nothing in common."""
    longest, began = _longest_pause(spans)
    if longest <= _STRANGE_PAUSE_NS:
        return ""
    hosts = dict(store.connection.execute("SELECT id, hostname FROM node").fetchall())
    known = {process: facts for process, *facts in store.connection.execute("SELECT id, pid, rank FROM process").fetchall()}
    sides: tuple[set[str], set[str]] = (set(), set())
    pids: tuple[set[int], set[int]] = (set(), set())
    for node, process, later in store.connection.execute(_SIDES, [began]).fetchall():
        host = hosts.get(node)
        if not host or host.startswith(UNKNOWN_HOST):
            return ""
        sides[later].add(host)
        if process is not None:
            pid, rank = known[process]
            if pid is None or rank is not None:
                return ""
            pids[later].add(pid)
    if not all(pids) or sides[0] & sides[1] or pids[0] & pids[1]:
        return ""
    before, after = (f"{min(side)}{f' and {len(side) - 1} more' if len(side) > 1 else ''}" for side in sides)
    hours = f"{longest / _STRANGE_PAUSE_NS:.1f}"
    return f"{hours} hours lie between what {before} and what {after} recorded, which have no machine, process or rank in common"
