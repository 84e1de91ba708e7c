"""Numbers the GPUs of a log as their machine does, and stores them as devices."""

from __future__ import annotations

from collections.abc import Sequence

from ..gpu_logs.rows import MOST_GPUS, Gpu, Log
from ..store.devices import vendor_of
from ..store.gpu_names import plain
from ..store.store import Store


def number_gpus(store: Store, log: Log, node: int, gpus: Sequence[Gpu]) -> None:
    """Set the machine's number of every GPU by UUID, else index, else bus order."""
    rows = store.connection.execute('SELECT "index", uuid FROM device WHERE node = ? AND uuid IS NOT NULL', [node]).fetchall()
    by_uuid = {plain(uuid): index for index, uuid in rows if plain(uuid)}
    free = iter(range(MOST_GPUS * 2))
    taken = {by_uuid[key] for gpu in gpus if (key := plain(gpu.uuid)) in by_uuid} | {gpu.index for gpu in gpus if gpu.index is not None}
    ordered = sorted(gpus, key=lambda gpu: (gpu.bus is None, (gpu.bus or "").lower(), gpu.number))
    moved = guessed = 0
    for gpu in ordered:
        known = by_uuid.get(plain(gpu.uuid))
        if known is not None:
            moved += gpu.index is not None and gpu.index != known
            gpu.unit, gpu.by_uuid = known, True
        elif gpu.index is not None:
            gpu.unit = gpu.index
        else:
            gpu.unit = next(number for number in free if number not in taken)
            guessed += len(gpus) > 1
    if moved:
        text = "GPUs are numbered as in the other files of the run, not as in the log; they were told by UUID."
        store.note("info", "device_renumbered", text, count=moved, source=log.source, file=log.file)
    if guessed:
        text = "The log does not number its GPUs: they were numbered in the order of their bus addresses, else of their lines. Log index."
        store.note("info", "device_numbered", text, count=guessed, source=log.source, file=log.file)


def store_devices(store: Store, node: int, gpus: Sequence[Gpu]) -> None:
    """Add missing devices for the GPUs of a log, and missing facts to the others."""
    execute = store.connection.execute
    known = {index for (index,) in execute('SELECT "index" FROM device WHERE node = ?', [node]).fetchall()}
    for gpu in gpus:
        facts = {"uuid": gpu.uuid, "name": gpu.name, "vendor": vendor_of(gpu.name) or "NVIDIA"}
        if gpu.unit in known:
            changes = ", ".join(f"{column} = coalesce({column}, ?)" for column in facts)
            execute(f'UPDATE device SET {changes} WHERE node = ? AND "index" = ?', [*facts.values(), node, gpu.unit])
        else:
            store.insert("device", {"node": node, "index": gpu.unit, **facts})
            known.add(gpu.unit)
    execute("UPDATE node SET gpus = greatest(gpus, ?) WHERE id = ?", [len({gpu.unit for gpu in gpus}), node])
