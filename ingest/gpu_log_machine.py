"""Of which machine is a log of a GPU monitor?

Asked when all files are read: by the log's own words, the UUIDs of its GPUs, its name and that of its folder, or because the run has one
machine that they can be of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .gpu_log import MOST_GPUS, Gpu, GpuLogs, Log, Placed
from .gpu_log_name import HOW_TO_NAME, dashed_host, documented_host, has_host, named_host
from .gpu_log_units import number_gpus, store_devices
from .gpu_names import model, plain
from .limits import NODES_PER_FILE
from .registry import UNKNOWN_HOST, one_name


def place_logs(logs: GpuLogs) -> None:
    """The machine of every log and the numbers of its GPUs there, each with a note of what it was told by."""
    named = _named_apart(logs)
    for log in logs.logs:
        if not log.rows:
            continue
        logs.registry.begin_file()
        hosts: dict[str | None, list[Gpu]] = {}
        for gpu in log.gpus.values():
            hosts.setdefault(gpu.host, []).append(gpu)
        with logs.store.transaction():
            for host, gpus in hosts.items():
                node = _node(logs, log, host, gpus, named=named)
                number_gpus(logs.store, log, node, gpus)
                logs.placed.append(Placed(log, node, gpus))
                store_devices(logs.store, node, gpus)
        if log.beyond:
            text = f"Lines of GPUs beyond the first {MOST_GPUS:,}, or of machines beyond the first {NODES_PER_FILE:,}, were left out."
            logs.store.note("warning", "too_many_devices", text, count=log.beyond, source=log.source, file=log.file)


def _machines(logs: GpuLogs) -> dict[int, str]:
    """Machines that the run's other files name, or that have something of them."""
    rows = logs.store.connection.execute("SELECT id, hostname FROM node ORDER BY id").fetchall()
    return dict(rows)


def _named_apart(logs: GpuLogs) -> bool:
    """Whether words behind a dash in the names of logs (nvidia-smi-WORD.csv) are those of machines: two such logs are of different ones,
    or there is nothing but one log. Else they may say what a log is of."""
    first: Log | None = None
    read = [log for log in logs.logs if log.rows]
    if len(read) == 1 and not _machines(logs):
        return True
    for log in read:
        if (host := dashed_host(log.path.name)) is None:
            continue
        if first is None:
            first = log
        elif host != dashed_host(first.path.name) and _apart(logs, log, list(log.gpus.values()), _alone(first)):
            return True
    return False


def _alone(log: Log) -> Placed:
    """A log as if its GPUs were those of a machine of its own."""
    return Placed(log, -1, [replace(gpu, unit=place if gpu.index is None else gpu.index) for place, gpu in enumerate(log.gpus.values())])


def _node(logs: GpuLogs, log: Log, host: str | None, gpus: Sequence[Gpu], *, named: bool) -> int:
    known = _machines(logs)

    def note(text: str) -> None:
        logs.store.note("info", "machine_joined", text, count=len(gpus), source=log.source, file=log.file)

    if host is not None:
        same = [number for number, hostname in known.items() if hostname == host]
        short = [number for number, hostname in known.items() if one_name(host, hostname)]
        if same or len(short) != 1:
            return same[0] if same else logs.registry.node(host)
        if host != known[short[0]]:
            note(f"{host} of the log is taken for {known[short[0]]}: one is the other without its domain.")
        return short[0]
    if len(found := _by_uuid(logs, gpus)) == 1:
        (number,) = found
        note(f"The log names no machine; it is of {known[number]}: the UUIDs of its GPUs are the same.")
        return number
    if (by_file := _by_file(logs, log, known, dashed=named)) is not None:
        return by_file
    alone = [number for number in known if not decided(logs, number)]
    if len(alone) == 1 and (why := _fits(logs, alone[0], gpus, len(gpus))):
        text = f"The log names no machine; it is taken to be of {known[alone[0]]}, the only machine of the run: {why}."
        note(text)
        logs.guessed.add(log.source)
        return alone[0]
    for placed in logs.placed:
        if known[placed.node].startswith(UNKNOWN_HOST) and _overlap(log, placed.log) and _equal(logs, log, gpus, placed):
            note(f"The log has the values of {placed.log.file} at the same times: they are of one machine.")
            return placed.node
    for place in range(1, len(logs.logs) + len(known) + 2):
        name = UNKNOWN_HOST if place == 1 else f"{UNKNOWN_HOST} {place}"
        number = logs.registry.node(name)
        if number not in known or (decided(logs, number) and not _excludes(logs, number, log, gpus)):
            break
    if alone:
        several = f"the run has {len(alone)} machines" if len(alone) > 1 else f"its GPUs are not those of {known[alone[0]]}"
        text = f"The log names no machine, and {several}: it is shown as {name}. {HOW_TO_NAME}"
        logs.store.note("warning", "machine_unknown", text, source=log.source, file=log.file)
    elif place > 1 and number not in known:
        text = f"The log names no machine, and it is not of that of the other logs: it is shown as {name}. {HOW_TO_NAME}"
        logs.store.note("warning", "machine_unknown", text, source=log.source, file=log.file)
    return number


def _by_file(logs: GpuLogs, log: Log, known: dict[int, str], *, dashed: bool) -> int | None:
    """The machine that the name of the file, or of its folder, names; ``dashed``: also by a word behind a dash."""

    def note(text: str) -> None:
        logs.store.note("info", "machine_joined", text, source=log.source, file=log.file)

    host = documented_host(log.path.name)
    if host is not None:  # nothing else in the name, nor the folder's, counts then
        same = [number for number, hostname in known.items() if not hostname.startswith(UNKNOWN_HOST) and one_name(host, hostname)]
        if len(same) == 1:
            note(f"The log names no machine; it is of {known[same[0]]}: the name of the file or its folder says so.")
            return same[0]
    for name in (log.path.name, log.path.parent.name) if host is None else ():
        tokens = {number for number, hostname in known.items() if has_host(name, hostname)}
        if len(tokens) == 1:
            (number,) = tokens
            note(f"The log names no machine; it is of {known[number]}: the name of the file or its folder says so.")
            return number
    host = host or named_host(log.path)
    if dashed and host is None and all(hostname.startswith(UNKNOWN_HOST) or decided(logs, number) for number, hostname in known.items()):
        host = dashed_host(log.path.name)
    if host is None:
        return None
    of = "file" if host in log.path.name else "folder"
    note(f"The log names no machine; {host} is taken from the name of the {of}.")
    return logs.registry.node(host)


def _by_uuid(logs: GpuLogs, gpus: Sequence[Gpu]) -> set[int]:
    mine = {plain(gpu.uuid) for gpu in gpus} - {None}
    if not mine:
        return set()
    rows = logs.store.connection.execute("SELECT DISTINCT node, uuid FROM device WHERE uuid IS NOT NULL").fetchall()
    return {node for node, uuid in rows if plain(uuid) in mine}


def decided(logs: GpuLogs, node: int) -> bool:
    """Whether only logs tell of a machine: that it is none of the others was asked when they were placed."""
    if not any(placed.node == node for placed in logs.placed):
        return False
    return not any(
        logs.store.connection.execute(f"SELECT 1 FROM {table} WHERE node = ? LIMIT 1", [node]).fetchall()
        for table in ("process", "sample", "device_event")
    )


def _fits(logs: GpuLogs, node: int, gpus: Sequence[Gpu], count: int) -> str | None:
    """Why the GPUs of a log can be those of a machine; None where they cannot."""
    execute = logs.store.connection.execute
    names = dict(execute('SELECT "index", name FROM device WHERE node = ?', [node]).fetchall())
    uuids = {plain(uuid) for (uuid,) in execute("SELECT uuid FROM device WHERE node = ?", [node]).fetchall()} - {None}
    if uuids and any(plain(gpu.uuid) not in uuids for gpu in gpus if plain(gpu.uuid)):
        return None
    used = {device for (device,) in execute("SELECT DISTINCT device FROM device_event WHERE node = ?", [node]).fetchall()}
    used |= {
        unit for (unit,) in execute("SELECT DISTINCT unit FROM sample WHERE node = ? AND starts_with(metric, 'gpu_')", [node]).fetchall()
    }
    used.discard(None)
    indices = {gpu.index for gpu in gpus}
    if None not in indices and not used <= indices:
        return None
    if len(used) > count:
        return None
    alike = 0
    for gpu in gpus:
        theirs = names.get(gpu.index) if gpu.index is not None else None
        if theirs and gpu.name:
            if model(theirs) != model(gpu.name):
                return None
            alike += 1
    if alike:
        return f"its GPUs have the same names ({alike} of {len(gpus)})" if len(gpus) > 1 else "its GPU has the same name"
    return "the GPUs that the run used are among those of the log" if used else "no other file says which GPUs it has"


def _excludes(logs: GpuLogs, node: int, log: Log, gpus: Sequence[Gpu]) -> bool:
    """Whether a machine that only logs tell of is another one: the same number with another UUID, or at the same time."""
    return any(placed.node == node and _apart(logs, log, gpus, placed) for placed in logs.placed)


def _apart(logs: GpuLogs, log: Log, gpus: Sequence[Gpu], placed: Placed) -> bool:
    """Whether a log is of another machine than a placed one: the same number has another UUID, or other values at the same time."""
    theirs = {gpu.unit: plain(gpu.uuid) for gpu in placed.gpus}
    for place, gpu in enumerate(gpus):
        unit = place if gpu.index is None else gpu.index
        uuid = plain(gpu.uuid)
        if unit in theirs and uuid is not None and theirs[unit] is not None:
            if uuid != theirs[unit]:
                return True
        elif unit in theirs and _overlap(log, placed.log) and _comparable(logs, log, placed.log) and not _equal(logs, log, gpus, placed):
            return True
    return False


def _comparable(logs: GpuLogs, log: Log, other: Log) -> bool:
    """Whether two logs have a metric in common: else, as of two monitors, nothing of the one speaks against the other."""
    query = "SELECT metric FROM log_sample WHERE log = ? INTERSECT SELECT metric FROM log_sample WHERE log = ? LIMIT 1"
    return bool(logs.store.connection.execute(query, [log.source, other.source]).fetchall())


def _equal(logs: GpuLogs, log: Log, gpus: Sequence[Gpu], placed: Placed) -> bool:
    """Whether two logs are copies: at the times that both have, all values are the same, and that is most of the shorter one."""
    theirs = {gpu.unit: gpu for gpu in placed.gpus}
    units = [(gpu, place if gpu.index is None else gpu.index) for place, gpu in enumerate(gpus)]
    both = [(gpu, theirs[unit]) for gpu, unit in units if unit in theirs]
    if not both or any(None not in (uuids := {plain(one.uuid), plain(other.uuid)}) and len(uuids) > 1 for one, other in both):
        return False
    pairs = [(one.number, other.number) for one, other in both]
    common, equal = logs.store.connection.execute(
        f"""
        SELECT count(*), count(*) FILTER (abs(a.value - b.value) <= 1e-6 * abs(b.value)) FROM log_sample AS a
        JOIN (VALUES {", ".join(f"({one}, {other})" for one, other in pairs)}) AS pair(one, other) ON a.gpu = pair.one
        JOIN log_sample AS b ON b.log = ? AND b.gpu = pair.other AND b.metric = a.metric AND b.time_ns = a.time_ns
        WHERE a.log = ?
        """,
        [placed.log.source, log.source],
    ).fetchall()[0]
    return bool(common and equal == common and common >= 0.5 * min(log.rows, placed.log.rows))


def _overlap(one: Log, other: Log) -> bool:
    if one.first_ns is None or one.last_ns is None or other.first_ns is None or other.last_ns is None:
        return False
    return one.first_ns <= other.last_ns and other.first_ns <= one.last_ns
