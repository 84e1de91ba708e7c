"""Devices of recorded processes: the numbers that a process counts -> GPUs of the node, with their facts -> ``device``.

A process counts the CUDA devices that it sees from 0 (CUDA_VISIBLE_DEVICES), the node's driver counts all GPUs; samples have the driver's
numbers. UUIDs match them; without UUIDs equal numbers are taken for one device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ..store.devices import MOST_DEVICES, vendor_of
from ..store.gpu_names import plain
from ..store.store import Store

FACT: Final = re.compile(r"(cuda|gpu)\.(\d{1,4})\.(\w{1,40})")

Facts = dict[int, dict[str, str]]


@dataclass(slots=True)
class _User:
    """The devices of one process, as it counts them."""

    process: int
    pid: int
    order: tuple[int, int]
    facts: Facts = field(default_factory=dict)
    visible: dict[int, int] = field(default_factory=dict)  # the driver's numbers by the process's own
    used: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Machine:
    gpus: Facts = field(default_factory=dict)
    users: dict[int, _User] = field(default_factory=dict)


class CaptureDevices:
    """The devices of one run: :meth:`add` each file, then :meth:`settle`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._machines: dict[int, _Machine] = {}

    def add(self, node: int, process: int, pid: int, rank: int | None, metadata: Mapping[str, str], used: Collection[int]) -> None:
        """Add a file of ``process``: metadata, and numbers of devices in its events."""
        machine = self._machines.setdefault(node, _Machine())
        order = (2**31 if rank is None else rank, pid)
        user = machine.users.setdefault(process, _User(process, pid, order))
        user.used.update(used)
        for key, value in metadata.items():
            match = FACT.fullmatch(key)
            if match and int(match[2]) < MOST_DEVICES and value:
                facts = machine.gpus if match[1] == "gpu" else user.facts
                facts.setdefault(int(match[2]), {}).setdefault(match[3], value)
                if match[3] == "visible_index" and (index := _number(value, MOST_DEVICES)) is not None:
                    user.visible.setdefault(index, int(match[2]))

    def settle(self) -> None:
        """Renumber the devices of every process as the node does, and store them."""
        for node, machine in self._machines.items():
            users = sorted((user for user in machine.users.values() if user.facts or user.used), key=lambda user: user.order)
            numbers = _numbers(machine.gpus, users)
            moved = 0
            for user in users:
                moves = {index: numbers[user.process, index] for index in user.used if numbers[user.process, index] != index}
                moved += len(moves)
                self._move(user.process, moves)
            self._write(node, machine.gpus, ((numbers[user.process, index], user, index) for user in users for index in _all(user)))
            self._note(node, machine.gpus, users, moved)
            self._note_divided(machine.gpus, users, numbers)

    def _move(self, process: int, moves: Mapping[int, int]) -> None:
        """Give the devices of all sources of a process the numbers of the node."""
        for old, new in moves.items():
            alias = "INSERT INTO device_alias SELECT source_id, ?, ? FROM source_map WHERE process = ?"
            self.store.connection.execute(alias, [old, new, process])

    def _write(self, node: int, gpus: Facts, devices: Iterable[tuple[int, _User, int]]) -> None:
        stated: Facts = {}
        for number, user, index in devices:
            stated[number] = user.facts.get(index, {}) | stated.get(number, {})
        rows = {number: gpus.get(number, {}) | stated.get(number, {}) for number in sorted({*gpus, *stated})}
        parent = _parent_finder(gpus)
        execute = self.store.connection.execute
        known = {number for (number,) in execute('SELECT "index" FROM device WHERE node = ?', [node]).fetchall()}
        for number, facts in rows.items():
            name = facts.get("name")
            row = {
                "uuid": facts.get("uuid") if parent(_uuid(facts)) is None else re.sub("^GPU-", "MIG-", facts["uuid"]),
                "name": name,
                "memory_bytes": _number(facts.get("memory_bytes"), 2**63),
                "sm_count": _number(facts.get("sm_count"), 2**31),
                "compute_capability": facts.get("compute_capability"),
                "vendor": vendor_of(name),
            }
            if number not in known:
                self.store.insert("device", {"node": node, "index": number, **row})
            else:
                changes = ", ".join(f"{column} = coalesce({column}, ?)" for column in row)
                execute(f'UPDATE device SET {changes} WHERE node = ? AND "index" = ?', [*row.values(), node, number])
        if gpus:
            execute("UPDATE node SET gpus = greatest(gpus, ?) WHERE id = ?", [len(gpus), node])

    def _note(self, node: int, gpus: Facts, users: list[_User], moved: int) -> None:
        if moved:
            text = "Devices are numbered as the machine does, not as each process does that sees only some of them; they were told by UUID."
            self.store.note("info", "device_renumbered", text, count=moved)
        known = [(user, index) for user in users for index in user.used if index not in user.visible]
        unnamed = [(user, index) for user, index in known if not _uuid(user.facts.get(index))]
        shared = len({index for _, index in unnamed}) < len(unnamed)
        if unnamed and (shared or (gpus and len(gpus) > 1)):
            text = "The UUIDs of some devices are not known; equal numbers are taken for one device, of all processes and of the samples."
            self.store.note("warning", "device_by_number", text, count=len(unnamed))

    def _note_divided(self, gpus: Facts, users: list[_User], numbers: Mapping[tuple[int, int], int]) -> None:
        parent = _parent_finder(gpus)
        parts: dict[int, set[int]] = {}
        for user in users:
            for index in user.used:
                if (gpu := parent(_uuid(user.facts.get(index)))) is not None:
                    parts.setdefault(gpu, set()).add(numbers[user.process, index])
        for gpu, devices in sorted(parts.items()):
            listed = [str(device) for device in sorted(devices)]
            are = f"device {listed[0]} is a part" if len(listed) == 1 else f"devices {', '.join(listed[:-1])} and {listed[-1]} are parts"
            text = f"GPU {gpu} is divided (MIG): {are} of it. What was sampled of GPU {gpu} is of the whole GPU."
            self.store.note("info", "gpu_divided", text, count=len(devices))


def _parts(facts: Mapping[str, str]) -> list[str]:
    return [text.strip() for text in facts.get("mig_devices", "").split(",") if plain(text)]


def _parent_finder(gpus: Facts) -> Callable[[str | None], int | None]:
    """Return a function from the UUID of a device to the divided GPU it is a part of.

    It returns None for other devices. If the driver lists no parts of the only divided GPU, UUIDs that it does not know are of its parts.
    """
    listed = {plain(text): number for number, facts in gpus.items() for text in _parts(facts)}
    entire = {_uuid(facts) for facts in gpus.values()}
    divided = [number for number, facts in gpus.items() if facts.get("mig") == "1"]
    silent = divided[0] if len(divided) == 1 and not _parts(gpus[divided[0]]) and None not in entire else None

    def gpu(uuid: str | None) -> int | None:
        return None if uuid is None or uuid in entire else listed.get(uuid, silent)

    return gpu


def _numbers(gpus: Facts, users: Collection[_User]) -> dict[tuple[int, int], int]:
    """Return the node's number of each device of each process.

    It is that of the driver for the UUID, else the one that is visible to the process, else its own. UUIDs that the driver does not list
    keep the process's number if it is free, else get the next one. The first part of a divided GPU (MIG) has the GPU's number.
    """
    by_uuid = {uuid: number for number, facts in sorted(gpus.items(), reverse=True) if (uuid := _uuid(facts))}
    parent = _parent_finder(gpus)
    pairs = [(user, index, _uuid(user.facts.get(index))) for user in users for index in sorted(_all(user))]
    result = {}
    divided: set[int] = set()
    taken = set(by_uuid.values())
    for user, index, uuid in pairs:
        if uuid is None:
            result[user.process, index] = user.visible.get(index, index)
            taken.add(result[user.process, index])
    for user, index, uuid in pairs:
        if uuid is not None:
            if uuid not in by_uuid:
                gpu = parent(uuid)
                if gpu is not None and gpu not in divided:
                    by_uuid[uuid] = gpu
                    divided.add(gpu)
                else:
                    by_uuid[uuid] = index if index not in taken else next(n for n in range(len(taken) + 1) if n not in taken)
                taken.add(by_uuid[uuid])
            result[user.process, index] = by_uuid[uuid]
    return result


def _all(user: _User) -> set[int]:
    return user.used | user.facts.keys()


def _uuid(facts: Mapping[str, str] | None) -> str | None:
    return plain((facts or {}).get("uuid"))


def _number(text: str | None, limit: int) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 20 and int(text) < limit else None
