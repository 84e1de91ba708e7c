"""Which GPU of a log is the one that a process counts as its first, where it sees only some of the machine's (CUDA_VISIBLE_DEVICES)?

A monitor numbers all GPUs of the machine, a process those that it sees. Told where a GPU that a trace has busy is idle in the log under the
same number: by the only other GPU of the log that is busy then, or whose utilisation follows the trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from .clock_offset import LEAST_CORRELATION, LEAST_MARGIN, LEAST_SAMPLES, LEAST_SPREAD, Activity, Series, series_of
from .gpu_activity import MOST_SAMPLES, busy_before, device_activity
from .gpu_log import Gpu, Placed
from .gpu_log_units import store_devices
from .gpu_names import model, plain
from .source_rows import Sources

_IDLE: Final = 1.0
"""Percent; a GPU that is never above it is idle."""
_BUSY_SHARE: Final = 0.2
"""So much of the time before a sample has a GPU to be busy for the sample to count."""
_FEW: Final = 3
"""Of fewer samples in the time of the trace it is asked, too, that the GPU is idle in the whole log."""
_LIKE: Final = 0.5
"""A GPU of the log that fits is on average busy for this part at least of the time in which the trace's is: a monitor that looks at a GPU
tells more than the share of its kernels, not less."""


@dataclass(slots=True)
class _Found:
    """``unit``: the log's number of a GPU that the trace has busy; ``alike``: those of the log's GPUs that fit it."""

    unit: int
    alike: list[int]
    tied: bool
    """Whether the times of trace and log are known to be of one time."""


def number_visible(run: Sources) -> None:
    """Give the GPUs of placed logs the numbers that the processes of their machine have for them, with a note; where these cannot be told,
    numbers of their own, with a warning. GPUs that were told by UUID stay."""
    for node in sorted({placed.node for placed in run.logs.placed}):
        here = [placed for placed in run.logs.placed if placed.node == node]
        loose = _loose(here)
        traced = run.store.frame(
            "SELECT DISTINCT device FROM device_event WHERE node = ? AND device IS NOT NULL AND kind <> 'sync' ORDER BY 1", [node]
        ).to_series()
        found: dict[int, tuple[_Found, Placed]] = {}
        for unit in traced.to_list():
            for placed in here:
                if unit not in found and (one := _contradiction(run, placed, unit, loose)) is not None:
                    found[unit] = (one, placed)
        _settle(run, node, here, set(traced.to_list()), found)


def _contradiction(run: Sources, placed: Placed, unit: int, loose: Set[str | None]) -> _Found | None:
    """The GPU of a log that is idle while the trace has that of the same number busy; None where nothing is wrong, or cannot be told."""
    mine = next((gpu for gpu in placed.gpus if gpu.unit == unit), None)
    if mine is None or not _movable(mine, loose):
        return None
    first, last = run.store.frame(
        "SELECT min(start_ns), max(start_ns + duration_ns) FROM device_event WHERE node = ? AND device = ? AND kind <> 'sync'",
        [placed.node, unit],
    ).row(0)
    # A temporary table is of the connection alone.
    highest, inside, samples = run.store.connection.execute(
        "SELECT max(value), max(value) FILTER (time_ns BETWEEN ? AND ?), count(*) FROM log_sample"
        " WHERE log = ? AND gpu = ? AND metric = 'gpu_utilization' AND isfinite(value)",
        [first, last, placed.log.source, mine.number],
    ).fetchall()[0]
    idle = samples >= _FEW and highest <= _IDLE
    log = placed.log
    apart = log.first_ns is None or log.last_ns is None or log.first_ns > last or log.last_ns < first
    shown = log.zoned and inside is not None and inside <= _IDLE
    if not (idle or shown) or (apart and log.zoned):
        return None
    activity = device_activity(run.store, placed.node, unit)
    if activity is None:
        return None
    series = _series(run, placed)
    seen = 0 if apart or unit not in series else int(_busy(series[unit], activity)[1].sum())
    if not apart and seen < (1 if idle else _FEW):
        return None
    names = {gpu.unit: model(gpu.name) for gpu in placed.gpus if gpu.name}
    (name,) = run.store.frame('SELECT any_value(name) FROM device WHERE node = ? AND "index" = ?', [placed.node, unit]).row(0)
    others = {
        number: one for number, one in series.items() if number != unit and (not name or names.get(number, model(name)) == model(name))
    }
    if apart:  # of another time zone, which is told later
        return _Found(unit, [number for number, one in others.items() if len(one.value) and one.value.mean() > 5 * _IDLE], tied=False)
    return _Found(unit, _alike(others, activity), tied=True)


def _loose(here: list[Placed]) -> set[str | None]:
    """UUIDs that logs alone tell: of a GPU that another log numbered, and no tracer."""
    return {plain(gpu.uuid) for placed in here for gpu in placed.gpus if not gpu.by_uuid} - {None}


def _movable(gpu: Gpu, loose: Set[str | None]) -> bool:
    return not gpu.by_uuid or plain(gpu.uuid) in loose


def _series(run: Sources, placed: Placed) -> dict[int, Series]:
    """The utilisation of every GPU of a log by its number."""
    rows = run.store.connection.sql(
        "SELECT gpu, time_ns, value FROM log_sample WHERE log = ? AND metric = 'gpu_utilization' AND isfinite(value)"
        f" ORDER BY time_ns LIMIT {MOST_SAMPLES}",
        params=[placed.log.source],
    ).pl()
    units = {gpu.number: gpu.unit for gpu in placed.gpus}
    return {
        units[number]: series_of(part["time_ns"].to_numpy(), part["value"].to_numpy())
        for (number,), part in rows.partition_by("gpu", as_dict=True).items()
        if number in units
    }


def _busy(series: Series, activity: Activity) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The busy share before each sample, and whether it is known and high."""
    share, known = busy_before(activity, series.time_ns, series.window_ns)
    return share, known & (share >= _BUSY_SHARE)


def _alike(others: Mapping[int, Series], activity: Activity) -> list[int]:
    """Which GPUs of a log are as busy as a GPU of a trace; of several the one whose utilisation alone follows it."""
    fits, follows = [], {}
    for number, series in others.items():
        share, busy = _busy(series, activity)
        if not busy.any() or series.value[busy].mean() < _LIKE * 100 * share[busy].mean():
            continue
        fits.append(number)
        known = busy_before(activity, series.time_ns, series.window_ns)[1]
        value, share = series.value[known] / 100, share[known]
        tells = len(value) >= LEAST_SAMPLES and share.std() >= LEAST_SPREAD and value.std() > 0
        follows[number] = float(np.corrcoef(value, share)[0, 1]) if tells else 0.0
    if len(fits) > 1:
        best, second = sorted(follows.values(), reverse=True)[:2]
        if best >= LEAST_CORRELATION and second <= best - LEAST_MARGIN:
            return [number for number in fits if follows[number] == best]
    return fits


def _settle(run: Sources, node: int, here: list[Placed], traced: set[int], found: Mapping[int, tuple[_Found, Placed]]) -> None:
    free = max([*traced, *(gpu.unit for placed in here for gpu in placed.gpus)], default=0) + 1
    numbers: dict[int, int] = {}
    claims = [one.alike[0] for one, _ in found.values() if len(one.alike) == 1]
    for unit, (one, placed) in found.items():
        clear = len(one.alike) == 1 and one.alike[0] not in traced and claims.count(one.alike[0]) == 1
        if clear:
            other = one.alike[0]
            numbers[other], numbers[unit] = unit, other
            text = (
                f"GPU {unit} of the trace is GPU {other} of the log: the trace has it busy, the log has its own GPU {unit} at 0 %, and of"
                f" the others GPU {other} alone fits. CUDA_VISIBLE_DEVICES lets a process number the GPUs that it sees. GPU {other} of the"
                f" log is shown as GPU {unit}, and its GPU {unit} as GPU {other}."
            )
            run.store.note("info", "device_renumbered", text, source=placed.log.source, file=placed.log.file)
        elif one.tied:
            numbers[unit], free = free, free + 1
            how = f"{len(one.alike)} others fit" if len(one.alike) > 1 else "no other one fits"
            text = (
                f"The trace has GPU {unit} busy, the log has it at 0 %, and which GPU of the log it is cannot be told ({how}): its process"
                f" may see other GPUs (CUDA_VISIBLE_DEVICES). GPU {unit} of the log is shown as GPU {numbers[unit]}, apart from the"
                " process."
            )
            run.store.note("warning", "device_contradicted", text, source=placed.log.source, file=placed.log.file)
    if not numbers:
        return
    loose = _loose(here)
    for unit, uuid in run.store.frame('SELECT "index", uuid FROM device WHERE node = ?', [node]).rows():
        if unit in numbers and plain(uuid) in loose:
            run.store.connection.execute('UPDATE device SET uuid = NULL WHERE node = ? AND "index" = ?', [node, unit])
    for placed in here:
        for gpu in placed.gpus:
            if _movable(gpu, loose):
                gpu.unit = numbers.get(gpu.unit, gpu.unit)
        store_devices(run.store, node, placed.gpus)
