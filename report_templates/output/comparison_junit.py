"""Comparison -> JUnit XML for CI systems: a test case per verdict, with a regression as a failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...analysis.compare.basis import ADDED, GROWN, SAME, UNDECIDED
from ...analysis.compare.changes import copy_label, host_parts_alone
from ...analysis.compare.parts import host_name
from ...analysis.compare.steps import SLOWER
from ...analysis.compare.verdict import CANNOT_SAY, DIFFERENT_PROGRAMS
from ...analysis.compare.verdicts import BROKEN
from ...analysis.report.comparison import Amount, Comparison, VerdictChange
from ..comparing import words
from ..text import labels
from ..text.formats import duration, threshold_text
from ..text.signs import ERROR as FAILED_RULE
from ..text.signs import NOT_EVALUATED
from .junit import ERROR, FAILURE, OUTPUT, SKIPPED, Case, document, lines

_LONGER: Final = (GROWN, ADDED)
_TOO_FEW: Final = "too few steps or base runs to compute the noise"


def junit(comparison: Comparison) -> bytes:
    """Return comparison.junit.xml; equal comparisons give equal bytes.

    The time of a run that is slower, times that grew or were added, GPU memory that grew, and new issues are failures. An undecided or
    uncompared time or rule is skipped. A rule that failed in the new run is an error.
    """
    cases = (*_time(comparison), *_parts(comparison), *_kernels(comparison), *_memory(comparison))
    if comparison.different_programs:
        cases = tuple(Case(case.group, case.name, SKIPPED, DIFFERENT_PROGRAMS) for case in cases)
    properties = {
        "base": comparison.base.name,
        "new": comparison.new.name,
        "verdict": comparison.verdict,
        "headline": comparison.headline,
        "threshold": threshold_text(comparison.threshold_percent),
    }
    rules = [_rule(rule, different=comparison.different_programs) for rule in comparison.rules]
    return document("postrun compare", (*cases, *rules), properties, comparison.generator)


def _time(comparison: Comparison) -> Iterator[Case]:
    text = comparison.judgment.text if comparison.judgment is not None else ""
    if comparison.verdict == SLOWER:
        yield Case("compare.time", "time", FAILURE, comparison.headline, SLOWER, text)
    elif comparison.verdict == CANNOT_SAY:
        yield Case("compare.time", "time", SKIPPED, comparison.headline)
    else:
        yield Case("compare.time", "time", OUTPUT, text=comparison.headline)


def _parts(comparison: Comparison) -> Iterator[Case]:
    for part in (*comparison.parts, *host_parts_alone(comparison)):
        if part.base_ns or part.new_ns:
            name = host_name(part.name)
            text = _text(comparison, ("part", "host part", "data loading"), name)
            yield _case("compare.parts", name, part.state, text, _limits(part, words.least(comparison)))


def _kernels(comparison: Comparison) -> Iterator[Case]:
    """Yield a case per category, and one as ``--fail-on kernels``."""
    for category in comparison.categories:
        label = labels.category(category.name)
        times = f"{duration(category.base_ns)} before, {duration(category.new_ns)} now {words.per(comparison.basis)}"
        yield _case("compare.categories", label, category.state, f"{label}: {times}", _limits(category, words.least(comparison)))
    if comparison.kernels:
        longer = [kernel for kernel in comparison.kernels if kernel.state in _LONGER]
        texts = [_text(comparison, ("kernel",), kernel.short_name) for kernel in longer]
        open_ = UNDECIDED if any(kernel.state == UNDECIDED for kernel in comparison.kernels) else SAME
        yield _case("compare.kernels", "kernels", longer[0].state if longer else open_, texts[0] if texts else "", lines(*texts))


def _memory(comparison: Comparison) -> Iterator[Case]:
    for copies in comparison.memory_operations:
        label = copy_label(copies)
        yield _case("compare.memory", label, copies.state, _text(comparison, ("memory operation",), label), "")
    if (peak := comparison.gpu_memory) is not None:
        if peak.base is None or peak.new is None:
            yield Case("compare.memory", "GPU memory", SKIPPED, "one run has no samples of GPU memory")
        else:
            yield _case("compare.memory", "GPU memory", peak.state, _text(comparison, ("gpu memory",), peak.name), "")


def _case(group: str, name: str, state: str, message: str, text: str) -> Case:
    """Make the case of a time by its state."""
    if state in _LONGER:
        return Case(group, name, FAILURE, message, state, text)
    return Case(group, name, SKIPPED, _TOO_FEW) if state == UNDECIDED else Case(group, name)


def _limits(part: Amount, least: str) -> str:
    return lines(f"Threshold: {least}", f"Noise: ±{duration(part.noise_ns)}" if part.noise_ns else None)


def _text(comparison: Comparison, areas: tuple[str, ...], name: str) -> str:
    """Return the words of a change in the list of the first page."""
    return next((change.text for change in comparison.changes if change.area in areas and change.name == name), "")


def _rule(rule: VerdictChange, *, different: bool) -> Case:
    group, name, finding = "compare.rules", rule.rule, rule.new_finding or ""
    if rule.new == FAILED_RULE:
        return Case(group, name, ERROR, finding or "the rule failed", rule.new)
    if rule.outcome == BROKEN:
        unsure = "Its time did not change beyond noise and threshold." if rule.measure_same else None
        return Case(group, name, FAILURE, finding or "a new issue", rule.new or "", lines(unsure, _before(rule)))
    if rule.outcome == SAME and rule.new == NOT_EVALUATED:
        return Case(group, name, SKIPPED, finding or "not evaluated")
    if rule.outcome not in (SAME, "mended"):
        why = DIFFERENT_PROGRAMS if different else "a verdict is missing, or parameters or base runs differ"
        return Case(group, name, SKIPPED, why)
    return Case(group, name, OUTPUT, text=f"{name} only informs; it finds no issue in any run.") if rule.informs else Case(group, name)


def _before(rule: VerdictChange) -> str | None:
    return f"Before: {rule.base_finding}" if rule.base_finding else None
