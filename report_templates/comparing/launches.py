"""Section "Launches and gaps" of a comparison: launch calls, host time, latency, and causes of gaps."""

from __future__ import annotations

from ...analysis.report.comparison import Comparison, Measure
from ..blocks import Section, say
from ..blocks.tables import Cell, Col, table
from ..text.formats import UNKNOWN, duration
from . import words


def launches(made: Comparison) -> Section:
    if not made.launches and not made.idle:
        return Section("launches", "Launches and gaps", say("No launches in both runs."))
    unit = words.per(made.basis)
    calls = next((one for one in made.launches if one.unit == "count"), None)
    latency = next((one for one in made.launches if one.name.startswith("launch latency")), None)
    told = [f"{_value(calls, calls.base)} launch calls {unit} before, {_value(calls, calls.new)} now"] if calls else []
    if latency is not None:
        told.append(f"median launch latency {_value(latency, latency.base)} before, {_value(latency, latency.new)} now")
    found = Section("launches", "Launches and gaps", say("{}.", "; ".join(told) or "Gaps before the work of the streams, by cause"))
    found.add(
        table(
            "launches-table",
            f"Launches; calls and host time {unit}",
            made.launches,
            Col("Figure", lambda row: Cell(row.name), kind="name"),
            Col("Base", lambda row: Cell(_value(row, row.base)), kind="number"),
            Col("New", lambda row: Cell(_value(row, row.new)), kind="number"),
            Col("Change", lambda row: row.change_percent, words.change),
            words.VERDICT,
            sortable=False,
            note="These have no known spread: the verdict follows from the threshold alone.",
        ),
        table(
            "launches-idle",
            f"Gaps before the work of the streams {unit}, by cause",
            made.idle,
            Col("Cause", lambda row: Cell(row.name), kind="name"),
            *words.AMOUNT,
            words.VERDICT,
            sortable=False,
            note="Streams of a device count each. Host wait: the launch ended after the work before it on the stream did.",
        ),
    )
    return found


def _value(measure: Measure, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return words.number(value).text if measure.unit == "count" else duration(value)
