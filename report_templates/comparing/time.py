"""Section "Parts of the time" of a comparison: the parts of the device time and of the step on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...analysis.compare.changes import scarce
from ...analysis.compare.parts import host_name
from ...analysis.report.comparison import Amount, Comparison, DevicePair
from ..blocks import Figure, Section, say
from ..blocks.tables import Cell, Col, Table, table
from ..figures.axes import time_unit
from ..figures.before_after import Pair, before_after
from ..text.formats import capitalized, duration, plural
from . import words


def time(comparison: Comparison) -> Section:
    on_the_host = (host_figure("time-step", comparison), _host_table(comparison))
    if comparison.whole is None and not comparison.host_parts:
        return Section("time", "Parts of the time", say("No GPU activity in both runs: their time cannot be divided."))
    if comparison.whole is None:
        lead = say("The average step on the host.{}", _changes(comparison, comparison.host_parts))
        return Section("time", "Parts of the time", lead, on_the_host)
    span = f"{duration(comparison.whole.base_ns)} before, {duration(comparison.whole.new_ns)} now"
    basis, unit = comparison.basis, words.per(comparison.basis)
    over = f"{duration(basis.base * 1e9)} of GPU time in base, {duration(basis.new * 1e9)} in new"
    if basis.unit == "step":
        over = f"{plural(round(basis.base), 'step')} of a process in base, {plural(round(basis.new), 'step')} in new"
    elif basis.unit == "range":
        over = f"{plural(round(basis.base), 'range')} in base, {plural(round(basis.new), 'range')} in new"
    changes = _changes(comparison, comparison.parts)
    lead = say("A GPU's span {} (mean): {}.{}", unit, span, changes)
    if basis.unit == "second":
        lead = say("Times are divided by the span of the GPUs, not by steps ({}).{}", basis.why, changes)
    elif basis.unit == "work":
        lead = say("Times are for the same work, by the counts of the {} of both runs.{}", basis.name, changes)
    parts = words.worst_first(filter(_any, comparison.parts))
    rows = (*parts, *([comparison.whole] if basis.unit != "second" else []), *filter(_any, comparison.within))
    blocks = (
        parts_figure("time-parts", comparison),
        table(
            "time-table",
            f"Parts of the time {unit}",
            rows,
            *_columns(comparison, rows),
            sortable=False,
            note="Computation, idle and exposed times add up to the span. Communication and memory operations include the time that"
            f" computation hides. Over {over}.",
        ),
        *on_the_host,
        _devices(comparison.devices, unit),
    )
    return Section("time", "Parts of the time", lead, blocks)


def _any(part: Amount) -> bool:
    """Return whether a run has any time of the part."""
    return max(part.base_ns, part.new_ns) > 0


def _columns(comparison: Comparison, parts: Sequence[Amount]) -> tuple[Col[Amount], ...]:
    return (
        Col("Part", lambda part: host_name(part.name), kind="name"),
        *words.amount_columns(comparison, parts, lambda part: words.meaning(part.name)),
        words.verdict(comparison, words.least(comparison)),
    )


def _changes(comparison: Comparison, parts: Sequence[Amount]) -> str:
    """Word the parts that changed, with a space before; empty for different programs."""
    if comparison.different_programs:
        return ""
    ordered = words.worst_first(parts)

    def listed(states: Callable[[str], bool]) -> str:
        return ", ".join(f"{host_name(part.name)} {words.signed(part.effect_ns)}" for part in ordered if states(part.state))

    moved, undecided = listed(lambda state: state not in ("same", "undecided")), listed(lambda state: state == "undecided")
    sentences = [f"Changed: {moved}"] if moved else []
    sentences += [f"Too few {scarce(comparison)} to tell: {undecided}"] if undecided else []
    return f" {'. '.join(sentences) or 'No part changed beyond spread and threshold'}."


def _host_table(comparison: Comparison) -> Table | None:
    return words.changes_table(
        "time-host",
        "Parts of the average step",
        words.worst_first(comparison.host_parts),
        *_columns(comparison, comparison.host_parts),
        sortable=False,
        note="Each class counts only the time that the classes before it leave.",
    )


def parts_figure(id: str, comparison: Comparison) -> Figure | None:
    """Draw the parts of the devices' time in both runs."""
    unit, parts = words.per(comparison.basis), [part for part in comparison.parts if _any(part)]
    change = "" if comparison.different_programs else ", with the change"
    caption = say("Time {} of a GPU. Above, lighter: base; below: new{}. The parts add up to the span of the GPUs.", unit, change)
    return _figure(id, parts, f"Time {unit}", caption, changes=not comparison.different_programs)


def host_figure(id: str, comparison: Comparison) -> Figure | None:
    """Draw the parts of the average step on the host in both runs."""
    parts = [part for part in comparison.host_parts if _any(part)][:12]
    caption = say("Wall time of the average step. Above, lighter: base; below: new.")
    return _figure(id, parts, "Average step", caption, changes=not comparison.different_programs)


def _figure(id: str, parts: Sequence[Amount], what: str, caption: object, *, changes: bool) -> Figure | None:
    """Draw the parts. ``changes``: with those that are known to be real in percent."""
    if not parts:
        return None
    unit = time_unit(max(max(part.base_ns, part.new_ns) for part in parts))
    pairs = [
        Pair(host_name(part.name), words.meaning(part.name), part.base_ns / unit.nanoseconds, part.new_ns / unit.nanoseconds,
             words.ratio(part.base_ns, part.new_ns) if changes and part.state not in ("same", "undecided") and part.base_ns else "")
        for part in parts
    ]  # fmt: skip
    alt = f"{what}: " + ", ".join(
        f"{host_name(part.name)} {duration(part.base_ns)} before and {duration(part.new_ns)} now" for part in parts
    )
    return Figure(id, before_after(pairs, unit.name, ("base", "new")), alt, say("{}", caption))


def _devices(devices: Sequence[DevicePair], unit: str) -> Table | None:
    if len(devices) < 2:
        return None

    def effect_ns(part: int, device: DevicePair) -> float:
        return device.parts[part].effect_ns

    def span_ns(device: DevicePair) -> float:
        return sum(part.effect_ns for part in device.parts)

    return table(
        "time-devices",
        f"Effect on each device {unit}",
        sorted(devices, key=lambda device: -abs(span_ns(device))),
        Col("Device", lambda device: Cell(device.name), kind="name"),
        *(
            Col(capitalized(part.name), partial(effect_ns, i), words.effect, when=any(round(effect_ns(i, device)) for device in devices))
            for i, part in enumerate(devices[0].parts)
        ),
        Col("Span", span_ns, words.effect),
        Col("Model", lambda device: device.new_device, html_only=True),
    )
