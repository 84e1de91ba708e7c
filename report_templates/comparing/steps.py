"""Section "Step times" of a comparison: both distributions of step times, and the shift between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...analysis.report.comparison import Comparison, StepComparison
from ..blocks import Figure, Section, say
from ..blocks.tables import Cell, Col, table
from ..figures.histogram import Bins, histogram
from ..text.formats import capitalized, count, duration, percent, percent_of, signed_percent, significant
from . import words

_MEASURES: Final = {"from step to step": "time from step to step", "device": "GPU work of a step", "host": "time of a step on the host"}
_ROWS: Final = {"from step to step": "Step to step", "device": "GPU work", "host": "On the host"}
_QUANTILES: Final = (
    ("p5", "p5"),
    ("p25", "p25"),
    ("median", "p50"),
    ("p75", "p75"),
    ("p95", "p95"),
    ("longest", "max"),
)


def steps(comparison: Comparison) -> Section:
    if comparison.steps is None:
        return Section("steps", "Step times", say("Steps cannot be compared: {}.", comparison.steps_absent))
    rows: list[tuple[str, float, float, Callable[[float], Cell]]] = []
    for measured in filter(None, (comparison.steps, comparison.device_steps)):
        name, base, new = _ROWS[measured.measure], measured.base, measured.new
        rows.append((f"{name}, steps", base.count, new.count, words.number))
        rows += [(f"{name}, {label}", getattr(base, field), getattr(new, field), words.time) for label, field in _QUANTILES]
    lead = say("{}", words.with_minus_signs(f"{comparison.steps.text} {_test(comparison.steps)}"))
    same = not comparison.different_programs
    blocks = (
        distributions("steps-distribution", comparison.steps),
        table(
            "steps-quantiles",
            "Step times of both runs",
            rows,
            Col("Figure", lambda row: row[0], kind="name"),
            Col("Base", lambda row: row[3](row[1]), kind="number"),
            Col("New", lambda row: row[3](row[2]), kind="number"),
            Col("Effect", lambda row: words.effect(row[2] - row[1]) if row[3] is words.time else None, kind="number", when=same),
            Col(
                "Change",
                lambda row: words.change(percent_of(row[2] - row[1], row[1])) if row[3] is words.time else None,
                kind="number",
                when=same,
            ),
            sortable=False,
            pdf_rows=14,
            note=_note(comparison.steps),
        ),
    )
    return Section("steps", "Step times", lead, blocks)


def _test(steps: StepComparison) -> str:
    if steps.p_value is None or steps.shift_percent is None or steps.shift_low_percent is None or steps.shift_high_percent is None:
        return ""
    low, high = (signed_percent(value) for value in (steps.shift_low_percent, steps.shift_high_percent))
    chance = "p\u00a0<\u00a00.0001" if steps.p_value < 0.0001 else f"p\u00a0=\u00a0{significant(steps.p_value)}"
    return f"The shift is {signed_percent(steps.shift_percent)}, with 99% confidence between {low} and {high} (rank-sum test: {chance})."


def _note(steps: StepComparison) -> str:
    if steps.measure == "from step to step":
        meant = "Time from step to step: from the end of the GPU work of one step to that of the next."
    elif steps.measure == "device":
        meant = "GPU work of a step: from the start of its first to the end of its last kernel or copy."
    else:
        meant = "Steps are timed on the host."
    likelier = percent(100 * steps.likelier)
    return (
        f"{meant} One value per step, the median over the processes. A step of new is longer than one of base in {likelier} of all pairs."
    )


def distributions(id: str, steps: StepComparison) -> Figure:
    """Draw both distributions, one above the other, over one axis."""
    rows = [
        Bins(f"base: {count(steps.base.count)} steps", steps.edges, steps.base_counts, steps.base.p50, steps.base_beyond),
        Bins(f"new: {count(steps.new.count)} steps", steps.edges, steps.new_counts, steps.new.p50, steps.new_beyond),
    ]
    alt = (
        f"Distribution of the {_MEASURES[steps.measure]}: base median {duration(steps.base.p50)}, p95 {duration(steps.base.p95)}; "
        f"new median {duration(steps.new.p50)}, p95 {duration(steps.new.p95)}"
    )
    name, medians = capitalized(_MEASURES[steps.measure]), (duration(steps.base.p50), duration(steps.new.p50))
    caption = say("{}, both runs over one axis. The dashed lines are the medians: {} and {}.", name, *medians)
    return Figure(id, histogram(rows, "computation", "steps"), alt, caption)
