"""Section "Where the time went" of a comparison: the parts of the device time and of the step on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ...analysis.compare.parts import host_name
from ...analysis.report.comparison import Amount, Comparison, DevicePair
from ..blocks import Figure, Section, say
from ..blocks.tables import Cell, Col, Table, table
from ..figures.axes import time_unit
from ..figures.before_after import Pair, before_after
from ..text.formats import capitalized, duration, plural
from . import words

_MEANINGS: Final = {
    "computation": "computation", "exposed communication": "communication", "exposed memory operations": "memory", "idle": "idle",
    "kernel": "computation", "memcpy": "memory", "memset": "memory", "communication": "communication", "runtime": "host",
    "data_loader": "loading", "cpu_op": "operator",
}  # fmt: skip
_COLUMNS: Final[tuple[Col[Amount], ...]] = (Col("Part", lambda part: host_name(part.name), kind="name"), *words.AMOUNT, words.VERDICT)


def time(made: Comparison) -> Section:
    if made.whole is None:
        return _on_the_host(made)
    whole = f"{duration(made.whole.base_ns)} before, {duration(made.whole.new_ns)} now"
    unit = words.per(made.basis)
    told = _told(made.parts)
    lead = say("A GPU's span {}: {}. {}.", unit, whole, told)
    if made.basis.unit == "second":
        lead = say(
            "Times are divided by the span of the GPUs, not by steps ({}). {}.",
            made.basis.why,
            told,
        )
    found = Section("time", "Where the time went", lead)
    found.add(
        parts_figure("time-parts", made),
        table(
            "time-table",
            f"Parts of the time {unit}",
            (*made.parts, *([made.whole] if made.basis.unit == "step" else []), *made.within),
            *_COLUMNS,
            sortable=False,
            note="The first four add up to the span. Communication and memory operations are told with what ran beside them. Over"
            f" {_units(made)}.",
        ),
        host_figure("time-step", made),
        _host_table(made),
        _devices(made.devices, unit),
    )
    return found


def _on_the_host(made: Comparison) -> Section:
    """Of runs of which at least one recorded nothing of GPUs."""
    if not made.host_parts:
        return Section("time", "Where the time went", say("No GPU activity in both runs: their time cannot be divided."))
    found = Section("time", "Where the time went", say("The average step on the host. {}.", _told(made.host_parts)))
    found.add(host_figure("time-step", made), _host_table(made))
    return found


def _told(parts: Sequence[Amount]) -> str:
    def listed(states: Callable[[str], bool]) -> str:
        those = sorted((part for part in parts if states(part.state)), key=lambda part: -abs(part.effect_ns))
        return ", ".join(f"{host_name(part.name)} {words.signed(part.effect_ns)}" for part in those)

    moved, undecided = listed(lambda state: state not in ("same", "undecided")), listed(lambda state: state == "undecided")
    told = [f"Changed: {moved}"] if moved else []
    told += [f"Too few steps to tell: {undecided}"] if undecided else []
    return ". ".join(told) or "No part changed beyond spread and threshold"


def _host_table(made: Comparison) -> Table | None:
    return table(
        "time-host",
        "What the average step was spent on",
        made.host_parts,
        *_COLUMNS,
        sortable=False,
        note="Each class gets what the ones before it left of a step's wall time.",
    )


def _units(made: Comparison) -> str:
    if made.basis.unit == "step":
        return f"{plural(round(made.basis.base), 'step')} of a process in base, {plural(round(made.basis.new), 'step')} in new"
    return f"{duration(made.basis.base * 1e9)} of GPU time in base, {duration(made.basis.new * 1e9)} in new"


def parts_figure(id: str, made: Comparison) -> Figure | None:
    """The parts of the devices' time in both runs."""
    unit = words.per(made.basis)
    caption = say("Time {} of a GPU. Above, lighter: base; below: new, with the change. The parts add up to the span of the GPUs.", unit)
    return _figure(id, made.parts, f"Time {unit}", caption)


def host_figure(id: str, made: Comparison) -> Figure | None:
    """What the average step of both runs was spent on."""
    shown = [one for one in made.host_parts if max(one.base_ns, one.new_ns) > 0][:12]
    caption = say("Wall time of the average step, each class getting what the ones before it left. Above, lighter: base; below: new.")
    return _figure(id, shown, "Average step", caption)


def _figure(id: str, parts: Sequence[Amount], what: str, caption: object) -> Figure | None:
    if not parts:
        return None
    unit = time_unit(max(max(one.base_ns, one.new_ns) for one in parts))
    pairs = [
        Pair(host_name(one.name), _MEANINGS.get(one.name, "other"), one.base_ns / unit.nanoseconds, one.new_ns / unit.nanoseconds,
             words.ratio(one.base_ns, one.new_ns) if one.state not in ("same", "undecided") and one.base_ns else "")
        for one in parts
    ]  # fmt: skip
    alt = f"{what}: " + ", ".join(f"{host_name(one.name)} {duration(one.base_ns)} before and {duration(one.new_ns)} now" for one in parts)
    return Figure(id, before_after(pairs, unit.name, ("base", "new")), alt, say("{}", caption))


def _devices(devices: Sequence[DevicePair], unit: str) -> Table | None:
    if len(devices) < 2:
        return None

    def effect_ns(part: int, device: DevicePair) -> float:
        return device.parts[part].effect_ns

    return table(
        "time-devices",
        f"Effect on each device {unit}",
        devices,
        Col("Device", lambda device: Cell(device.name), kind="name"),
        *(Col(capitalized(part.name), partial(effect_ns, i), words.effect) for i, part in enumerate(devices[0].parts)),
        Col("Span", lambda device: sum(part.effect_ns for part in device.parts), words.effect),
        Col("Model", lambda device: device.new_device, html_only=True),
    )
