"""Sites of the kernels of graphs: a replay has no operators, but its kernels ran one by one before the capture, or in another trace.

The kernels of a replay, by name, grid and block, in the order in which they ran, are looked up as a whole in the kernels that were launched
one by one. If the sequence occurs several times, a kernel has a site only if all occurrences agree. A sequence that does not occur has the
sites of the launches of a capture, if it ran on one stream and the capture has as many launches; so have all captures of this length.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from ...ingest.store.store import Store

_MOST_SEQUENCES: Final = 64  # distinct ones that are looked up, those with the longest time first
_MOST_OCCURRENCES: Final = 32
_LEAST_KERNELS: Final = 2
_FIRST_CHARACTER: Final = 0xE000  # behind the surrogates, which no text may have
_MOST_KEYS: Final = 0x10FFFF - _FIRST_CHARACTER


_CAPTURED: Final = """
    SELECT l.process, l.tid, l.start_ns AS time, c.start_ns AS capture
    FROM (FROM host_event AS e WHERE e.kind = 'launch' AND {condition} AND e.name IN (
        SELECT id FROM name WHERE regexp_matches(text, '^(cu|cuda|hip)(Ext|Module)?Launch(Cooperative)?Kernel'))
    ) AS l
    ASOF JOIN (
        SELECT e.process, e.tid, e.start_ns, contains(n.text, 'Begin') AS begins FROM host_event AS e JOIN name AS n ON n.id = e.name
        WHERE e.kind = 'call' AND {condition} AND regexp_matches(n.text, '^(cu|cuda|hip)Stream(Begin|End)Capture')
    ) AS c ON c.process = l.process AND c.tid = l.tid AND c.start_ns <= l.start_ns
    WHERE c.begins ORDER BY l.process, l.tid, l.start_ns
"""


def captured_launches(store: Store, condition: str) -> pl.DataFrame:
    """Return the launches of kernels within captures, in order.

    ``condition``: of SQL, on ``e.process``. Columns: process, tid, time, ``capture`` (its start)."""
    return store.frame(_CAPTURED.format(condition=condition))


def replayed_sites(work: pl.DataFrame, replay: pl.Series, sites: pl.Series, captured: pl.DataFrame | None = None) -> pl.Series:
    """Return the site of each kernel of a replay, null for all else and if unknown.

    ``work``: process, device, stream, kind, start, duration (ns), ``key`` (of name, grid and block), a row per kernel, copy or memset.
    ``replay``: the number of the graph launch of each row, or null. ``sites``: of each row by its launch. ``captured``: as of
    :func:`captured_launches`, with ``site``."""
    result = np.zeros(work.height, np.uint32)  # 0: unknown
    rows = work.select("process", "device", "stream", "start", "duration", key=pl.col("key").rank("dense")).with_row_index("row")
    rows = rows.with_columns(replay=replay, site=sites).filter(work["kind"].cast(pl.String) == "kernel")
    if not rows.height or not replay.count() or int(rows.select(pl.col("key").max()).item()) > _MOST_KEYS:
        return pl.Series([None], dtype=pl.UInt32).new_from_index(0, work.height)
    rows = rows.sort("process", "device", "start", "row", nulls_last=True)
    known = [_Sequence(part) for part in rows.filter(pl.col("replay").is_null()).partition_by("process", "device", maintain_order=True)]
    sites_by_text: dict[str, np.ndarray | None] = {}
    replays = rows.filter(pl.col("replay").is_not_null()).partition_by("process", "device", "replay", maintain_order=True)
    for part in sorted(replays, key=lambda part: -int(part["duration"].sum())):
        sequence = _Sequence(part)
        if sequence.text not in sites_by_text:
            if len(sites_by_text) == _MOST_SEQUENCES:
                continue
            agreed = _agreed(sequence.text, known)
            if agreed is None and part["stream"].n_unique() == 1:
                agreed = _of_captures(part, captured)
            sites_by_text[sequence.text] = agreed
        values = sites_by_text[sequence.text]
        if values is not None:
            result[sequence.rows] = values
    return pl.Series(result).replace(0, None).cast(pl.UInt32)


def _of_captures(part: pl.DataFrame, captured: pl.DataFrame | None) -> np.ndarray | None:
    """Return the sites that all captures with as many launches as kernels have."""
    if captured is None or part.height < _LEAST_KERNELS:
        return None
    by = ["process", "tid", "capture"]
    long = captured.filter(pl.col("process") == part["process"][0], pl.len().over(by) == part.height)
    agreed: np.ndarray | None = None
    for capture in long.partition_by(by, maintain_order=True)[:_MOST_OCCURRENCES]:
        here = capture["site"].fill_null(0).to_numpy()
        agreed = here if agreed is None else np.where(agreed == here, agreed, 0)
    return agreed


class _Sequence:
    """Kernels in order: a character of ``text`` per kernel, and their rows and sites."""

    def __init__(self, part: pl.DataFrame) -> None:
        characters = part["key"].to_numpy().astype(np.uint32) + np.uint32(_FIRST_CHARACTER)
        self.text = characters.astype("<u4").tobytes().decode("utf-32-le")
        self.rows = part["row"].to_numpy()
        self.sites = part["site"].fill_null(0).to_numpy()


def _agreed(text: str, known: list[_Sequence]) -> np.ndarray | None:
    """Return the sites that all occurrences of a sequence have; 0 if they differ."""
    if len(text) < _LEAST_KERNELS:
        return None
    agreed: np.ndarray | None = None
    occurrences = 0
    for sequence in known:
        at = sequence.text.find(text)
        while at >= 0 and occurrences < _MOST_OCCURRENCES:
            here = sequence.sites[at : at + len(text)]
            agreed = here.copy() if agreed is None else np.where(agreed == here, agreed, 0)
            occurrences += 1
            at = sequence.text.find(text, at + len(text))
    return agreed
