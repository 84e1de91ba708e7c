"""GPUs that a trace lists or uses -> rows of ``device``."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from .gpu_names import model, plain
from .store import Store

MOST_DEVICES: Final = 1024  # Entries of deviceProperties; a list with more is damaged, and the rest is not stored

_VENDORS: Final = (
    ("NVIDIA", r"nvidia|tesla|geforce|quadro|\brtx\b|\bgtx\b|titan|\b[ABHV]\d{2,3}\b|\bGH200\b|\bGB[23]00\b"),
    ("AMD", r"\bamd\b|radeon|instinct|\bMI\d{2,3}|gfx\d"),
    ("Intel", r"intel|\bxe\b|ponte vecchio|gaudi|\bHL-\d"),
    ("Meta", r"mtia"),
)


def vendor_of(name: str | None) -> str | None:
    """Return the vendor of a GPU, guessed from its product name, or None."""
    for vendor, pattern in _VENDORS:
        if name and re.search(pattern, name, re.IGNORECASE):
            return vendor
    return None


def device_names(members: Mapping[str, Any], used: Collection[int] = ()) -> dict[int, str]:
    """Return product names by device index, from the trace's ``deviceProperties``."""
    return {index: name for index, entry in _properties(members, used) if isinstance(name := entry.get("name"), str)}


def add_devices(store: Store, node: int, members: Mapping[str, Any], used: Collection[int]) -> bool:
    """Store the devices that a trace of ``node`` lists or uses; fill in missing facts.

    If the only device listed is not the only device used, the two are taken for one: a process that sees one device of several lists it as
    0, while its events have the number of the node. Returns whether that was done.
    """
    listed: dict[int, dict[str, Any]] = {}
    for index, entry in _properties(members, used):
        if index in listed:
            continue
        name = entry.get("name")
        major, minor = _int(entry.get("computeMajor")), _int(entry.get("computeMinor"))
        listed[index] = {
            "uuid": entry["uuid"] if isinstance(entry.get("uuid"), str) else None,
            "name": name if isinstance(name, str) else None,
            "memory_bytes": _int(entry.get("totalGlobalMem")),
            "sm_count": _int(entry.get("numSms"), 2**31),
            "compute_capability": None if major is None or minor is None else f"{major}.{minor}",
            "vendor": vendor_of(name if isinstance(name, str) else None),
        }
    store_devices(store, node, listed)
    _store_used(store, node, sorted(set(used) - set(listed))[:MOST_DEVICES])
    return _renumbered(members, used)


def store_devices(store: Store, node: int, devices: Mapping[int, Mapping[str, Any]]) -> None:
    """Store devices of a node by index with their facts, or complete them.

    Facts are columns except node and index. A stored device keeps its facts, and the missing ones are filled in, unless UUID or name show
    that the facts are of another GPU. The traces of all ranks list all GPUs of their node, so a device is changed only if it lacks a fact.
    """
    rows = store.frame("SELECT * EXCLUDE (node) FROM device WHERE node = ?", [node]).rows(named=True) if devices else ()
    stored = {row["index"]: row for row in rows}
    for index, facts in devices.items():
        row = stored.get(index)
        if row is None:
            store.insert("device", {"node": node, "index": index, **facts})
            continue
        known, stated = (plain(row["uuid"]), model(row["name"] or "")), (plain(facts.get("uuid")), model(facts.get("name") or ""))
        missing = {column: value for column, value in facts.items() if value is not None and row[column] is None}
        if not missing or any(value and new and value != new for value, new in zip(known, stated, strict=True)):
            continue
        changes = ", ".join(f"{column} = ?" for column in missing)
        store.connection.execute(f'UPDATE device SET {changes} WHERE node = ? AND "index" = ?', [*missing.values(), node, index])


def _store_used(store: Store, node: int, indices: list[int]) -> None:
    """Store the devices that the store does not have, without facts."""
    import pyarrow as pa

    known = {index for (index,) in store.connection.execute('SELECT "index" FROM device WHERE node = ?', [node]).fetchall()}
    if fresh := [index for index in indices if index not in known]:
        store.append("device", pa.table({"node": pa.array([node] * len(fresh), pa.int32()), "index": pa.array(fresh, pa.int32())}))


def _renumbered(members: Mapping[str, Any], used: Collection[int]) -> bool:
    listed = [index for index, _ in _listed(members)]
    return len(listed) == 1 and len(used) == 1 and listed[0] not in used


def _properties(members: Mapping[str, Any], used: Collection[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for index, entry in _listed(members):
        yield (next(iter(used)) if _renumbered(members, used) else index), entry


def _listed(members: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    entries = members.get("deviceProperties")
    some = [entry for entry in entries[:MOST_DEVICES] if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [(index, entry) for entry in some if (index := _int(entry.get("id"), 2**31)) is not None]


def _int(value: object, limit: int = 2**63) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit else None
