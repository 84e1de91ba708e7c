"""Which kernels, and which kinds of kernels, took more or less time?"""

from __future__ import annotations

from collections import Counter

from ...analysis.compare_basis import SMALLEST_PERCENT
from ...analysis.comparison import Comparison, KernelChange
from ..blocks import BARS, Cell, Column, Figure, Section, Table, meaning_of, say, table, word
from ..figures.axes import time_unit
from ..figures.diverging_bars import Effect, diverging_bars
from ..formats import plural
from . import words


def kernels(made: Comparison) -> Section:
    if not made.kernels:
        return Section("kernels", "Kernels", say("No kernels in both runs: there is nothing to compare."))
    states = Counter(one.state for one in made.kernels)
    counts = ", ".join(
        f"{states[name]} {word}"
        for name, word in (("grown", "grew"), ("shrunk", "shrank"), ("added", "were added"), ("vanished", "vanished"))
        if states[name]
    )
    unit = words.per(made.basis)
    lead = say(
        "Of {} {}.",
        plural(len(made.kernels), "kernel"),
        f"{counts}, beyond spread and threshold" if counts else "none changed beyond spread and threshold",
    )
    found = Section("kernels", "Kernels", lead)
    found.add(_figure(made, unit), _table(made, unit), _categories(made, unit))
    return found


def _figure(made: Comparison, unit: str) -> Figure | None:
    shown = [one for one in made.kernels if one.state != "same"][:BARS]
    if not shown:
        return None
    scale = time_unit(max(abs(one.effect_ns) for one in shown))
    rows = [Effect(one.short_name, meaning_of(one.category), one.effect_ns / scale.nanoseconds, _beside(one)) for one in shown]
    alt = f"Largest effects of kernels {unit}: " + ", ".join(f"{one.short_name[:50]} {_beside(one)}" for one in shown[:5])
    more = sum(one.state != "same" for one in made.kernels) - len(shown)
    caption = say(
        "Effect of each kernel {}, largest first{}. To the right: more time than in base.",
        unit,
        f"; {plural(more, 'smaller one')} not drawn" if more else "",
    )
    return Figure("kernels-effects", diverging_bars(rows, scale.name), alt, caption)


def _beside(one: KernelChange) -> str:
    told = {"added": "added", "vanished": "vanished"}.get(one.state) or words.ratio(one.base_ns, one.new_ns)
    return f"{words.signed(one.effect_ns)} · {told}"


def _table(made: Comparison, unit: str) -> Table | None:
    return table(
        "kernels-table",
        f"Every kernel, largest effect {unit} first",
        [
            Column("Kernel", "name"),
            Column("Category", html_only=True),
            Column("Verdict"),
            Column("Effect", "number"),
            Column("Change", "number"),
            Column("Base", "number"),
            Column("New", "number"),
            Column("Runs, base", "number", html_only=True),
            Column("Runs, new", "number", html_only=True),
            Column("Mean, base", "number"),
            Column("Mean, new", "number"),
            Column("Precision", html_only=True),
            Column("Met by", html_only=True),
            Column("Full name", "full", html_only=True),
        ],
        [
            [
                word(one.short_name, full=_names(one), limit=72),
                word(one.category),
                words.judged(one.state, large=_large(one, made)),
                words.effect(one.effect_ns),
                words.change(one.change_percent),
                words.time(one.base_ns) if one.base_names else words.time(None),
                words.time(one.new_ns) if one.new_names else words.time(None),
                words.number(one.base_count),
                words.number(one.new_count),
                words.time(one.base_mean_ns),
                words.time(one.new_mean_ns),
                word(_precision(one)),
                word(one.matched or "in one run only"),
                word(_names(one), limit=400),
            ]
            for one in made.kernels
        ],
        pdf_rows=15,
        note=f"Base, New and Effect are sums {unit}; Mean is of one run of the kernel. Kernels whose full names differ meet by short name"
        " and category.",
    )


def _large(one: KernelChange, made: Comparison) -> bool:
    whole = made.whole.base_ns if made.whole else 0.0
    return abs(one.change_percent or 0.0) >= made.threshold_percent and abs(one.effect_ns) >= whole * SMALLEST_PERCENT / 100


def _names(one: KernelChange) -> str:
    return " | ".join(dict.fromkeys([*one.new_names, *one.base_names]))


def _precision(one: KernelChange) -> str:
    known = list(dict.fromkeys(name for name in (one.base_precision, one.new_precision) if name))
    return " → ".join(known)


def _categories(made: Comparison, unit: str) -> Table | None:
    return table(
        "kernels-categories",
        f"Categories of kernels {unit}",
        [
            Column("Category", "name"),
            Column("Base", "number"),
            Column("New", "number"),
            Column("Effect", "number"),
            Column("Change", "number"),
            Column("Runs, base", "number"),
            Column("Runs, new", "number"),
            Column("Verdict"),
        ],
        [
            [
                Cell(one.name),
                words.time(one.base_ns),
                words.time(one.new_ns),
                words.effect(one.effect_ns),
                words.change(one.change_percent),
                words.number(one.base_count),
                words.number(one.new_count),
                words.state(one.state),
            ]
            for one in made.categories
        ],
    )
