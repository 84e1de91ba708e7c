"""Reads structured logs of torch.compile (TORCH_TRACE) -> `compilation`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...errors import InputError
from ..chrome_trace.notes import TRUNCATING, note_defects
from ..store.identity import Facts, Identity, identify
from ..store.registry import ReadResult
from ..store.schema import STORED
from ..store.texts import storable
from ..store.values import MOST_ROWS
from .compilations import MOST, Compilation, Compilations
from .entries import LONGEST_LINE, Entries

if TYPE_CHECKING:
    from ..store.identity import Placement
    from ..store.registry import Registry
    from ..store.store import Store
    from ..store.tables import Severity

_NOTES: Final[dict[str, tuple[Severity, str, str]]] = {
    "not_json": ("warning", "not_json", "Entries without valid JSON, such as one that a killed process did not finish, were left out."),
    "too_long": ("warning", "too_long", f"Lines of more than {LONGEST_LINE >> 20} MiB were left out."),
    "no_id": ("warning", "odd_entries", "Entries without the id of a compilation were left out."),
    "other_process": ("warning", "odd_entries", "Entries of another process than the first one were left out."),
    "no_time": ("warning", "odd_entries", "Compilations whose start or duration is unknown count without a time."),
    "left_out": ("warning", "limit_reached", f"The log has more than {MOST:,} compilations, the limit; the others were left out."),
    "unfinished": ("info", "unfinished", "Compilations that the log does not end have no time."),
}


def read_torch_trace(
    store: Store, registry: Registry, placement: Placement, path: Path, source: int, progress: Callable[[float], None]
) -> ReadResult:
    """Store the compilations of one log; note its damage.

    Raises InputError if it has no entry."""
    entries, compilations = Entries(path, store.max_unpacked), Compilations()
    for entry in entries:
        compilations.add(entry)
        progress(entries.part)
    file, defects = storable(path.name), entries.inflate.defects
    note_defects(store, source, file, defects)
    rows = compilations.close()
    if not entries.headers:
        raise InputError(f"{path}: has no entry of a log of torch.compile; give the file that TORCH_TRACE=FOLDER wrote, unchanged")
    counts = entries.counts + compilations.counts + Counter(unfinished=sum(not row.finished for row in rows))
    room = max(0, MOST_ROWS["compilation"] - int(store.frame("SELECT count(*) FROM compilation").item()))
    counts["left_out"] += max(0, len(rows) - room)
    for kind, count in counts.items():
        if count:
            severity, code, text = _NOTES[kind]
            store.note(severity, code, text, count=count, source=source, file=file)
    if not rows:
        text = "The log has entries of PyTorch and no compilation of torch.compile."
        store.note("info", "no_compilation", text, source=source, file=file)
    partial = bool(counts["not_json"]) or any(defect.code in TRUNCATING for defect in defects)
    return _store(store, registry, placement, path, source, compilations, rows[:room], partial=partial)


def _store(
    store: Store,
    registry: Registry,
    placement: Placement,
    path: Path,
    source: int,
    compilations: Compilations,
    rows: list[Compilation],
    *,
    partial: bool,
) -> ReadResult:
    import polars as pl

    if not rows:
        return ReadResult(0, None, None, partial=partial)
    times = [(row.start_ns, row.start_ns + (row.duration_ns or 0)) for row in rows if row.start_ns is not None]
    first, last = min((start for start, _ in times), default=None), max((end for _, end in times), default=None)
    identity = dataclasses.replace(identify({}, path, compilations.pid), hostname=None)
    if compilations.rank is not None:
        identity = dataclasses.replace(identity, rank=compilations.rank)
    node, process = _owner(store, registry, placement, identity, first or 0, last or 0, source, storable(path.name))
    kinds = {"INTEGER": pl.Int32, "BIGINT": pl.Int64, "VARCHAR": pl.String, "BOOLEAN": pl.Boolean}
    owned = {"node": node, "process": process, "source": source}
    schema = {column: kinds[kind] for column, kind in STORED["compilation"].items()}
    store.append("compilation", pl.DataFrame([owned | dataclasses.asdict(row) for row in rows], schema=schema))
    return ReadResult(len(rows), first, last, partial=partial)


def _owner(
    store: Store, registry: Registry, placement: Placement, identity: Identity, first: int, last: int, source: int, label: str
) -> tuple[int, int]:
    """Return node and process of a log, which names no node.

    It is of the only known process with its process id, whose rank does not contradict; else of a new one."""
    if identity.pid is not None:
        nodes = store.frame(
            "SELECT DISTINCT node FROM process WHERE pid = ? AND (rank IS NULL OR rank = coalesce(?, rank))",
            [identity.pid, identity.rank],
        )
        if len(nodes) == 1:
            node = int(nodes.item())
            return node, registry.process(node, identity.pid, rank=identity.rank, label=label, source=source)
    return placement.assign(identity, Facts({}, frozenset(), first, last), source, label)
