"""The machine of each log of a GPU monitor: as the user states, by host name, UUIDs of GPUs, or file name, else a machine without a name.

Logs that name no machine share one, unless they contradict it: another GPU of the same number, or other values at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...errors import UsageError
from ..gpu_logs.host_name import HOW_TO_NAME, documented_host, has_host, named_host
from ..gpu_logs.rows import MOST_GPUS, Gpu, Log, Placed
from ..store.gpu_names import model, plain
from ..store.limits import NODES_PER_FILE
from ..store.registry import UNKNOWN_HOST, is_same_host
from .log_devices import number_gpus, store_devices
from .merge import merge
from .same_machine import a_file_of
from .sources import Sources

_LEAST_BUSY_SAMPLES = 3  # a monitor can miss the activity with fewer
_IDLE_PERCENT = 1.0


def place_logs(run: Sources, stated: Mapping[int, int]) -> None:
    """Assign every log a machine and GPU numbers. ``stated``: machines by source."""
    logs = run.logs
    stated = dict(stated)
    for log in logs.logs:
        if not log.rows:
            continue
        logs.registry.begin_file()
        hosts: dict[str | None, list[Gpu]] = {}
        for gpu in log.gpus.values():
            hosts.setdefault(gpu.host, []).append(gpu)
        group = next((group for group in run.statements.same if log.source in group), None)
        if group is not None and len(hosts) > 1:
            raise UsageError(f"--same {log.file}: the log has lines of {len(hosts)} machines; name files of one machine")
        with logs.store.transaction():
            for host, gpus in hosts.items():
                node = _stated(run, log, gpus, stated[log.source]) if log.source in stated else _node(run, log, host, gpus)
                stated |= dict.fromkeys(group or (), node)
                number_gpus(logs.store, log, node, gpus)
                logs.placed.append(Placed(log, node, gpus))
                store_devices(logs.store, node, gpus)
        if log.beyond:
            text = f"Lines of GPUs beyond the first {MOST_GPUS:,}, or of machines beyond the first {NODES_PER_FILE:,}, were left out."
            logs.store.note("warning", "too_many_devices", text, count=log.beyond, source=log.source, file=log.file)


def _machines(run: Sources) -> dict[int, str]:
    return dict(run.store.connection.execute("SELECT id, hostname FROM node ORDER BY id").fetchall())


def _stated(run: Sources, log: Log, gpus: Sequence[Gpu], node: int) -> int:
    if (why := _different_gpu(run, node, gpus)) is not None:
        raise UsageError(f"--same {log.file}: {why}; it is of another machine")
    text = f"The log is of {_machines(run)[node]}, as stated with --same."
    run.store.note("info", "machine_joined", text, count=len(gpus), source=log.source, file=log.file)
    return node


def _node(run: Sources, log: Log, host: str | None, gpus: Sequence[Gpu]) -> int:
    known = _machines(run)
    same_gpus = _by_uuid(run, gpus)

    def note(text: str, count: int = 1) -> None:
        run.store.note("info", "machine_joined", text, count=count, source=log.source, file=log.file)

    if host is not None:
        node = _named(run, host, known, note)
        for nameless in [number for number in same_gpus if known[number].startswith(UNKNOWN_HOST)]:
            merge(run, nameless, node)
            note(f"Files that name no machine are of {host}: the UUIDs of their GPUs are those of the log.")
        return node
    if len(same_gpus) == 1:
        (node,) = same_gpus
        note(f"The log names no machine; it is of {known[node]}: the UUIDs of its GPUs are the same.", len(gpus))
        return node
    if (in_name := _in_name(log, known)) is not None:
        note(f"The log names no machine; it is of {known[in_name]}: the name of the file or its folder says so.")
        return in_name
    if (host := named_host(log.path)) is not None:
        note(f"The log names no machine; {host} is taken from the name of the {'file' if host in log.path.name else 'folder'}.")
        return run.logs.registry.node(host)
    return _nameless(run, log, gpus, known)


def _named(run: Sources, host: str, known: Mapping[int, str], note: Callable[[str], None]) -> int:
    """Return the machine with a name, or the only one with this name without domain."""
    short = [node for node, hostname in known.items() if is_same_host(host, hostname)]
    if host in known.values() or len(short) != 1:
        return run.logs.registry.node(host)
    note(f"{host} of the log is taken for {known[short[0]]}: one is the other without its domain.")
    return short[0]


def _in_name(log: Log, known: Mapping[int, str]) -> int | None:
    """Return the only machine whose name is in the name of the file or the folder.

    In nvidia-smi.HOST.csv only HOST counts.
    """
    if (host := documented_host(log.path.name)) is not None:
        matches = [[node for node, name in known.items() if not name.startswith(UNKNOWN_HOST) and is_same_host(host, name)]]
    else:
        texts = (log.path.name, log.path.parent.name)
        matches = [[node for node, name in known.items() if has_host(text, name)] for text in texts]
    return next((nodes[0] for nodes in matches if len(nodes) == 1), None)


def _by_uuid(run: Sources, gpus: Sequence[Gpu]) -> set[int]:
    uuids = {plain(gpu.uuid) for gpu in gpus} - {None}
    rows = run.store.connection.execute("SELECT DISTINCT node, uuid FROM device WHERE uuid IS NOT NULL").fetchall()
    return {node for node, uuid in rows if plain(uuid) in uuids}


def _nameless(run: Sources, log: Log, gpus: Sequence[Gpu], known: Mapping[int, str]) -> int:
    """Return the first machine without a name that fits the log, else a new one."""
    only_logs = {placed.node for placed in run.logs.placed}
    nameless = [node for node, name in known.items() if name.startswith(UNKNOWN_HOST)]
    traced = [node for node in nameless if node not in only_logs]
    for node in nameless:
        if (node in traced and len(traced) > 1) or _different_gpu(run, node, gpus) is not None:
            continue
        agreements = {placed.log.file: _same_values(run, log, gpus, placed) for placed in run.logs.placed if placed.node == node}
        if False in agreements.values():
            continue
        if equal := [file for file, equal in agreements.items() if equal]:
            text = f"The log has the values of {equal[0]} at the same times: they are of one machine."
            run.store.note("info", "machine_joined", text, count=len(gpus), source=log.source, file=log.file)
        return node
    name = next(
        name
        for place in range(1, len(known) + 2)
        if (name := f"{UNKNOWN_HOST} {place}" if place > 1 else UNKNOWN_HOST) not in known.values()
    )
    if known:
        example = a_file_of(run, [node for node in known if _different_gpu(run, node, gpus) is None]) or "FILE"
        text = (
            f"The log names no machine and is shown as {name}. If it is of the machine of another file, say so, such as"
            f" --same {log.file},{example}. {HOW_TO_NAME}"
        )
        run.store.note("warning", "machine_unknown", text, source=log.source, file=log.file)
    return run.logs.registry.node(name)


def _different_gpu(run: Sources, node: int, gpus: Sequence[Gpu]) -> str | None:
    """Name a GPU number that is another GPU, by UUID or model, in the log, or None."""
    rows = run.store.frame('SELECT "index", uuid, name FROM device WHERE node = ?', [node]).rows()
    numbers = {plain(uuid): index for index, uuid, _ in rows if plain(uuid)}
    devices = {index: (uuid, name) for index, uuid, name in rows}
    for position, gpu in enumerate(gpus):
        uuid, name = devices.get(position if gpu.index is None else gpu.index, (None, None))
        if plain(gpu.uuid) in numbers:  # known under any number
            continue
        if plain(gpu.uuid) and plain(uuid):
            return f"GPU {gpu.index} is {gpu.uuid}, and {uuid} in other files"
        if name and gpu.name and model(name) != model(gpu.name):
            return f"GPU {gpu.index} is a {gpu.name}, and a {name} in other files"
    return None


def _same_values(run: Sources, log: Log, gpus: Sequence[Gpu], placed: Placed) -> bool | None:
    """Return whether logs have the same values at the same times; None if no overlap.

    Values in different units differ in the last digits. At least half of the shorter log must be in the other one.
    """
    theirs = {gpu.unit: gpu.number for gpu in placed.gpus}
    units = [(gpu.number, place if gpu.index is None else gpu.index) for place, gpu in enumerate(gpus)]
    pairs = ", ".join(f"({number}, {theirs[unit]})" for number, unit in units if unit in theirs)
    if not pairs:
        return None
    overlapping, common, different = run.store.connection.execute(
        f"""
        WITH mine AS (
            SELECT theirs AS gpu, metric, time_ns, value FROM log_sample JOIN (VALUES {pairs}) AS pair(gpu, theirs) USING (gpu)
            WHERE log = $log
        ), other AS (SELECT gpu, metric, time_ns, value FROM log_sample WHERE log = $other),
        a AS (SELECT gpu, metric, min(time_ns) AS first, max(time_ns) AS last FROM mine GROUP BY ALL),
        b AS (SELECT gpu, metric, min(time_ns) AS first, max(time_ns) AS last FROM other GROUP BY ALL),
        pairs AS (
            SELECT abs(a.value - b.value) > 1e-6 * abs(b.value) AS different FROM mine AS a JOIN other AS b USING (gpu, metric, time_ns)
        )
        SELECT EXISTS (FROM a JOIN b USING (gpu, metric) WHERE a.first <= b.last AND b.first <= a.last),
            (SELECT count(*) FROM pairs), (SELECT count(*) FROM pairs WHERE different)
        """,
        {"log": log.source, "other": placed.log.source},
    ).fetchall()[0]
    return None if not overlapping else not different and common >= 0.5 * min(log.rows, placed.log.rows)


def note_numbers(run: Sources) -> None:
    """Warn of GPUs that work in a trace and are idle in a log: numbers may differ."""
    rows = run.store.frame(
        f"""
        SELECT w.node, n.hostname, w.device FROM (
            SELECT node, device, min(start_ns) AS first, max(start_ns + duration_ns) AS last FROM device_event
            WHERE device IS NOT NULL AND kind <> 'sync' GROUP BY ALL) AS w
        JOIN sample AS s ON s.node = w.node AND s.unit = w.device AND s.metric = 'gpu_utilization' AND s.time_ns BETWEEN w.first AND w.last
        JOIN node AS n ON n.id = w.node
        GROUP BY ALL HAVING count(*) >= {_LEAST_BUSY_SAMPLES} AND max(s.value) <= {_IDLE_PERCENT} ORDER BY 1, 3
        """
    ).rows()
    by_uuid = {(placed.node, gpu.unit) for placed in run.logs.placed for gpu in placed.gpus if gpu.by_uuid}
    of_logs = {(placed.node, gpu.unit): placed.log for placed in run.logs.placed for gpu in placed.gpus}
    for node, hostname, device in rows:
        if (node, device) in of_logs and (node, device) not in by_uuid:
            log = of_logs[node, device]
            text = (
                f"The trace has work on GPU {device} of {hostname}, and the log has that GPU at 0%. A process that sees only some GPUs"
                " (CUDA_VISIBLE_DEVICES) numbers them differently; no file states which is which. Samples keep the number of the log."
            )
            run.store.note("warning", "device_contradicted", text, source=log.source, file=log.file)
