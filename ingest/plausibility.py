"""Can the files be of one run at all, by their ranks, world sizes and times?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from .capture import CaptureResult
from .kineto import TraceResult
from .registry import ReadResult
from .store import Store

LONGEST_PAUSE_NS: Final = 86_400 * 10**9
"""Files of one run have at most this much between the end of what one records and the start of the next."""


def note_several_runs(store: Store, results: Iterable[ReadResult]) -> None:
    """A warning with the evidence, where the files cannot be of one run.

    Evidence is a rank that several processes have, more than one world size, and pauses beyond ``LONGEST_PAUSE_NS`` between files with
    absolute times. Files of one process, as a profiler writes them cycle by cycle, are none, whatever is between them. To be asked
    while the ranks are those that the files say, not guessed ones.
    """
    spans: dict[tuple[bool, int], tuple[int, int]] = {}
    processes: set[int] = set()
    for position, result in enumerate(results):
        if isinstance(result, TraceResult | CaptureResult) and result.process is not None:
            key = (True, result.process)
            processes.add(result.process)
        else:
            key = (False, position)
        if result.first_ns is not None and result.last_ns is not None and not result.relative:
            first, last = spans.get(key, (result.first_ns, result.last_ns))
            spans[key] = (min(first, result.first_ns), max(last, result.last_ns))
    known = {process: said for process, *said in store.connection.execute("SELECT id, rank, world_size FROM process").fetchall()}
    said = [known[process] for process in sorted(processes)]
    evidence = [
        text
        for text in (
            _ranks(Counter(rank for rank, _ in said if rank is not None)),
            _world_sizes({size for _, size in said if size is not None}),
            _pause(spans),
        )
        if text
    ]
    if evidence:
        text = f"The files cannot all be of one run: {'; '.join(evidence)}. Their figures are mixed here; give the files of one run."
        store.note("warning", "several_runs", text, count=len(spans) or len(processes))


def _ranks(ranks: Counter[int]) -> str:
    """The rank that most processes have, where that is more than one."""
    repeated = {rank: count for rank, count in sorted(ranks.items()) if count > 1}
    if not repeated:
        return ""
    rank = max(repeated, key=lambda rank: repeated[rank])
    others = f" ({len(repeated)} ranks occur more than once)" if len(repeated) > 1 else ""
    return f"rank {rank} occurs {repeated[rank]} times{others}"


def _world_sizes(sizes: set[int]) -> str:
    return f"world sizes are {', '.join(map(str, sorted(sizes)))}" if len(sizes) > 1 else ""


def _pause(spans: Mapping[tuple[bool, int], tuple[int, int]]) -> str:
    """The longest time in which no file records anything, between the first and the last, where it is too long for one run."""
    longest, end = 0, None
    for first, last in sorted(spans.values()):
        if end is not None:
            longest = max(longest, first - end)
        end = last if end is None else max(end, last)
    days = longest // LONGEST_PAUSE_NS
    if longest <= LONGEST_PAUSE_NS:
        return ""
    return f"up to {days:,} days lie between one file and the next" if days > 1 else "more than a day lies between one file and the next"
