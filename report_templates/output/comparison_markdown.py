"""Comparison -> comparison.md: the verdict and its reasons for the comment on a pull request, in at most 2,000 tokens.

The text is written from the largest extent to the smallest, until it fits; what is left out is stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ...analysis.compare.basis import SAME, UNDECIDED
from ...analysis.compare.changes import decided, host_parts_alone, scarce
from ...analysis.compare.parts import host_name
from ...analysis.compare.programs import PROGRAM
from ...analysis.compare.verdicts import BROKEN
from ...analysis.report.comparison import Amount, Change, Comparison, Side, VerdictChange
from ..comparing import words
from ..comparing.tables import MOVED
from ..text import labels
from ..text.formats import UNKNOWN, capitalized, count, duration, moment, percent, plural, signed_percent, threshold_text
from ..text.markdown import NOTE, Prose, bullets, code, columns, rule_name, tokens, unglued
from .run_names import comparison_names

MOST_TOKENS: Final = 2000
_HEADLINE: Final = 400  # characters of the headline and of its details, at least
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Extent:
    """How much is written: rows of a list, characters of a text and of a name."""

    rows: int
    text: int
    name: int


# The largest first. A comparison of runs with nothing but long words and emoji fits with the last one.
_EXTENTS: Final = (
    _Extent(8, 400, 72),
    _Extent(6, 300, 56),
    _Extent(5, 240, 48),
    _Extent(4, 200, 48),
    _Extent(3, 160, 40),
    _Extent(2, 120, 32),
    _Extent(1, 80, 24),
    _Extent(1, 60, 12),
)


def markdown(comparison: Comparison) -> bytes:
    """Return comparison.md; equal comparisons give equal bytes."""
    prose = Prose(comparison_names(comparison))
    for extent in _EXTENTS:
        text = _Page(comparison, prose, extent).text()
        if tokens(text) <= MOST_TOKENS:
            break
    return text.encode("utf-8", "backslashreplace")


class _Page:
    """The text of one extent."""

    def __init__(self, comparison: Comparison, prose: Prose, extent: _Extent) -> None:
        self._comparison, self._prose, self._extent = comparison, prose, extent
        self._left: list[str] = []

    def text(self) -> str:
        parts = [*self._head()]
        if self._comparison.different_programs:
            parts += self._percentages()
        else:
            parts += [*self._changes(), *self._parts(), *self._pieces(), *self._rules()]
        return unglued("\n\n".join([*parts, *self._unknown()])) + "\n"

    def _say(self, text: str, longest: int = 0) -> str:
        return self._prose(words.with_minus_signs(text), max(longest, self._extent.text), self._extent.name)

    def _data(self, text: str) -> str:
        """Write a text that names of the run can be anywhere in."""
        return code(text, self._extent.text)

    def _name(self, text: str) -> str:
        return code(text, self._extent.name)

    def _rows(self, rows: Sequence[T], noun: str, nouns: str | None = None) -> Sequence[T]:
        """Return the first rows of a list; note how many are left out."""
        most = self._extent.rows
        if len(rows) > most:
            self._left.append(f"{count(len(rows) - most)} of {plural(len(rows), noun, nouns)}")
        return rows[:most]

    # -- verdict -------------------------------------------------------------------------------------------------------------

    def _head(self) -> Iterator[str]:
        comparison = self._comparison
        yield f"**{self._say(comparison.headline, _HEADLINE)}**"
        if comparison.details:
            yield self._say(comparison.details, _HEADLINE)
        yield f"> {NOTE}"
        writer = f"{comparison.generator.name} {comparison.generator.version}, {moment(comparison.generator.generated_at_ns)}"
        interval = self._interval()
        yield bullets([
            f"Base: {self._side(comparison.base)}",
            *(f"Base run: {self._side(side)}" for side in self._rows(comparison.baselines, "further base run")),
            f"New: {self._side(comparison.new)}",
            f"Verdict: {comparison.verdict}{interval}",
            f"Threshold: {threshold_text(comparison.threshold_percent)}, for a part of the time in percent of the whole",
            f"Written by: {self._say(writer)}",
        ])  # fmt: skip

    def _side(self, side: Side) -> str:
        source = f" from {self._name(side.given)}" if side.given else ""
        return f"{self._name(side.name)}{source}: {self._data(side.subtitle)}"

    def _interval(self) -> str:
        verdict = self._comparison.judgment
        if verdict is None or verdict.percent is None or verdict.low_percent is None or verdict.high_percent is None:
            return ""
        change, low, high = (signed_percent(value) for value in (verdict.percent, verdict.low_percent, verdict.high_percent))
        return self._say(f", {change} ({low} to {high})")

    # -- changes -------------------------------------------------------------------------------------------------------------

    def _changes(self) -> Iterator[str]:
        noise = self._noises()
        times = [change for change in self._comparison.changes if change.area != "step" and change.effect_ns is not None]
        others = [change for change in self._comparison.changes if change.area != "verdict" and change.effect_ns is None]
        for title, noun, sign in (("Slower, worst first", "slower time", 1), ("Faster", "faster time", -1)):
            listed = sorted(
                (change for change in times if (change.effect_ns or 0.0) * sign > 0), key=lambda one: -abs(one.effect_ns or 0.0)
            )
            if listed:
                yield f"## {title}"
                yield bullets(self._change(change, noise) for change in self._rows(listed, noun))
        if others:
            yield "## Also changed"
            yield bullets(self._say(change.text) for change in self._rows(others, "other change"))

    def _noises(self) -> dict[tuple[str, str], float]:
        comparison = self._comparison
        rows = [*(("part", part.name, part) for part in comparison.parts)]
        rows += [(area, host_name(part.name), part) for part in comparison.host_parts for area in ("data loading", "host part")]
        known = {(area, name): part.noise_ns for area, name, part in rows if part.noise_ns}
        return known | {("kernel", kernel.short_name): kernel.noise_ns for kernel in comparison.kernels if kernel.noise_ns}

    def _change(self, change: Change, noises: dict[tuple[str, str], float]) -> str:
        noise = noises.get((change.area, change.name))
        kernel = "Kernel " if change.area == "kernel" else ""
        return f"{kernel}{self._say(change.text)}" + (f" Noise: ±{duration(noise)}." if noise else "")

    # -- where the time changed ----------------------------------------------------------------------------------------------

    def _parts(self) -> Iterator[str]:
        """Write the parts of the GPU time as a table, or those of the host as a list."""
        comparison, unit = self._comparison, words.per(self._comparison.basis)
        parts = [part for part in words.worst_first(comparison.parts) if part.base_ns or part.new_ns]
        span = [comparison.whole] if comparison.whole is not None and comparison.basis.unit != "second" else []
        if parts:
            yield "## Where the time changed"
            yield f"GPU time {self._say(unit)}: base, new, effect, and whether it changed. The parts add up to the span."
            yield columns([self._columns(part) for part in (*parts, *span)])
        elif host := [part for part in words.worst_first(comparison.host_parts) if part.base_ns or part.new_ns]:
            yield "## Where the time changed"
            yield "The average step on the host:"
            yield bullets(
                f"{self._name(host_name(part.name))}: {self._amount(part)}, {self._state(part)}" for part in self._rows(host, "part")
            )

    def _columns(self, part: Amount) -> tuple[str, ...]:
        effect = words.effect(part.effect_ns).text
        return capitalized(part.name), duration(part.base_ns), duration(part.new_ns), effect, self._state(part)

    def _state(self, part: Amount) -> str:
        return words.amount_state(part, words.least(self._comparison)).text

    def _amount(self, row: Amount) -> str:
        noise = f", noise ±{duration(row.noise_ns)}" if row.noise_ns and row.state != SAME else ""
        return f"{words.signed(row.effect_ns)} ({duration(row.base_ns)} → {duration(row.new_ns)}{noise})"

    def _pieces(self) -> Iterator[str]:
        """Write categories, operators, their calls, gaps and ranks that changed."""
        comparison = self._comparison

        def listed(title: str, rows: Sequence[Amount], name: Callable[[Amount], str], *nouns: str) -> Iterator[str]:
            moved = [row for row in words.worst_first(rows) if decided(row)]
            if moved:
                yield f"{title}: " + "; ".join(f"{name(row)} {self._amount(row)}" for row in self._rows(moved, *nouns))

        calls = list(filter(decided, comparison.operator_calls))
        ranks = sorted((sum(part.effect_ns for part in device.parts), device.name) for device in comparison.devices)
        items = [
            *listed("Categories of kernels", comparison.categories, lambda row: labels.category(row.name), "category", "categories"),
            *listed("Operators", comparison.operators, lambda row: self._name(row.name), "operator"),
            *listed("Communication and copies with their hidden time", comparison.within, lambda row: row.name, "part"),
            *listed("Gaps of the streams by cause", comparison.idle, lambda row: row.name, "cause"),
        ]
        if calls:
            texts = [
                f"{self._name(row.operator)}{f' in {self._name(row.module)}' if row.module else ''} {words.signed(row.effect_ns)}"
                f" ({', '.join(row.reasons)})"
                for row in self._rows(calls, "call", )
            ]  # fmt: skip
            items.append(f"Operator calls: {'; '.join(texts)}")
        if comparison.changes and len(ranks) > 1:
            least, most = (f"{words.signed(effect_ns)} on {self._name(name)}" for effect_ns, name in (ranks[0], ranks[-1]))
            items.append(f"Devices: from {least} to {most}")
        if items:
            yield bullets(items)

    def _percentages(self) -> Iterator[str]:
        """Write what compares between different programs."""
        if rows := self._comparison.percentages:
            yield "## Percentages that compare"
            yield bullets(
                f"{self._say(capitalized(row.name))}: {percent(row.base_percent)} → {percent(row.new_percent)} of {row.of}"
                for row in self._rows(rows, "percentage")
            )

    # -- rules ---------------------------------------------------------------------------------------------------------------

    def _rules(self) -> Iterator[str]:
        moved = sorted((rule for rule in self._comparison.rules if rule.outcome in MOVED), key=lambda rule: MOVED.index(rule.outcome))
        if moved:
            yield "## Rules"
            yield bullets(self._rule(rule) for rule in self._rows(moved, "rule"))

    def _rule(self, rule: VerdictChange) -> str:
        name = rule_name(rule.rule, self._extent.name)
        finding = f": {self._data(rule.new_finding)}" if rule.new_finding else "."
        if rule.measure_same:
            side = "above" if rule.outcome == BROKEN else "below"
            return f"{name} is {side} its threshold now, but its time did not change beyond noise and threshold{finding}"
        return f"{name} {'finds a new issue' if rule.outcome == BROKEN else 'is fixed'}{finding}"

    # -- what is not known -------------------------------------------------------------------------------------------------

    def _unknown(self) -> Iterator[str]:
        comparison = self._comparison
        limits = [row for row in comparison.differences if row.limits and row.name != PROGRAM]
        items = [
            f"{self._say(capitalized(row.name))}: {self._name(row.base)} before, {self._name(row.new)} now."
            f" {self._say(f'{capitalized(row.limits or UNKNOWN)}.')}"
            for row in self._rows(limits, "difference")
        ]
        if not comparison.different_programs:
            items += [*self._undecided(), *self._not_compared()]
        if not comparison.baselines:
            items.append("How much equal runs differ: there is one base run.")
        if self._left:
            items.append(f"Left out here: {', '.join(self._left)}; all are in `comparison.json`.")
        if items:
            yield "## What is not known"
            yield bullets(items)

    def _undecided(self) -> Iterator[str]:
        comparison = self._comparison
        parts = [host_name(part.name) for part in (*comparison.parts, *host_parts_alone(comparison)) if part.state == UNDECIDED]
        parts += [kernel.short_name for kernel in comparison.kernels if kernel.state == UNDECIDED]
        if parts:
            names = ", ".join(self._name(name) for name in self._rows(parts, "undecided time"))
            yield f"Whether these changed, because the {scarce(comparison)} are too few to compute their noise: {names}."
        if comparison.basis.unit == "second" and comparison.parts:
            yield f"How much work both runs did. Times are per second of GPU time ({self._say(comparison.basis.why or UNKNOWN)})."

    def _not_compared(self) -> Iterator[str]:
        """Name the rules whose verdicts differ without a comparison."""
        rules = [rule for rule in self._comparison.rules if rule.outcome == "other"]
        if rules:
            names = ", ".join(rule_name(rule.rule, self._extent.name) for rule in self._rows(rules, "rule"))
            yield f"Whether these rules changed, because a verdict is missing, or parameters or base runs differ: {names}."
