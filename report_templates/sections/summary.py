"""The first page: headline, tiles, the strip of the job or the split of the GPU time, recommended actions, a line on rules and on data."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from markupsafe import Markup

from ...analysis.report.device import DeviceTime
from ...analysis.report.first_page import JobPhase, JobStrip
from ...analysis.report.model import Report
from ...analysis.run.summary_data import profile_window
from ...analysis.run.summary_warnings import note_counts
from ..blocks import Block, Figure, Only, Section, Texts, say
from ..blocks.spans import Span
from ..figures.job_strip import NARROW, Phase, job_strip
from ..figures.marks import Mark
from ..figures.time_split import time_split
from ..text import labels
from ..text.formats import (
    UNKNOWN,
    capitalized,
    count,
    duration,
    first_sentences,
    glued,
    numbered,
    percent,
    plural,
)  # fmt: skip
from ..text.signs import ERROR, FINE, INFORMATION, ISSUE, NOT_EVALUATED
from .actions import action_rows, savings_head
from .run_marks import dip_label, time_marks
from .time_breakdown import PARTS, part_times
from .verdicts import ABSENT, FIRST, Judged, judged

_HEADLINE: Final = 2  # sentences in large type
_ALIKE: Final = 3.0  # percentage points; ranks whose shares differ from the medians by less are one row
_MOST_ROWS: Final = 6  # of the split of the GPU time
_WORDS: Final = {ISSUE: ("issue", "issues"), ERROR: ("error", "errors"), FINE: ("passed",) * 2, INFORMATION: ("informational",) * 2}
_METRICS: Final = {"gpu": "GPU utilization", "cpu": "CPU utilization"}


def summary(report: Report, *, rules: bool = True) -> Section:
    """Make the first page. ``rules``: whether the report has that section."""
    headline, further = first_sentences(numbered(glued(report.summary.headline)), _HEADLINE)
    section = Section("summary", "Summary", say("{}", headline))
    verdicts = judged(report)
    section.facts["further"] = further
    section.facts["tiles"] = [tile for tile in report.summary.tiles if tile.value != UNKNOWN]
    section.facts["caveats"] = [glued(caveat) for caveat in report.summary.caveats]
    section.facts["actions"] = action_rows(report, verdicts)[:FIRST]
    section.facts["saves"], section.facts["note"] = savings_head(report.actions, FIRST)
    section.facts["more"] = max(0, len(report.findings) - FIRST)
    section.facts["nothing"] = None if report.findings else _nothing(verdicts)
    section.facts["counted"] = _counted(verdicts, rules=rules) if verdicts else None
    section.facts["data"] = _data(report)
    section.add(*(_strip(report, verdicts) if report.job_strip is not None else _split(report)))
    return section


def _nothing(verdicts: Sequence[Judged]) -> str | None:
    """Write the text that replaces missing findings."""
    if not verdicts:
        return None
    if any(verdict.kind == ISSUE for verdict in verdicts):
        return "The rules found issues without a cost in time."
    passed = sum(verdict.kind == FINE for verdict in verdicts)
    able = passed + sum(verdict.kind == NOT_EVALUATED for verdict in verdicts)
    if not passed:
        return "No rule could evaluate the run."
    if passed == able:
        return f"No issues found; {plural(passed, 'rule')} evaluated the run."
    return f"No issues found, but only {count(passed)} of {plural(able, 'rule')} had enough data."


# -- lines on rules and data -----------------------------------------------------------------------------------------------


def _counted(verdicts: Sequence[Judged], *, rules: bool) -> Markup:
    """Write "Rules: 5 issues, 11 passed, 2 informational", each with a link."""
    items = []
    for kind, (noun, nouns) in _WORDS.items():
        same = [verdict for verdict in verdicts if verdict.kind == kind]
        if same:
            text = f"{count(len(same))}\u00a0{noun if len(same) == 1 else nouns}"
            items.append(_linked(text, same[0].anchor if kind == ISSUE else "rules", rules))
    if absent := sum(verdict.kind == NOT_EVALUATED for verdict in verdicts):
        items.append(_linked(f"{count(absent)}\u00a0not\u00a0evaluated", ABSENT, rules))
    return say("{} {}", _linked("Rules:", "rules", rules), Markup(", ").join(items))


def _linked(text: str, anchor: str, linked: bool) -> Markup:
    return Markup('<a href="#{}">{}</a>').format(anchor, text) if linked else Markup("{}").format(text)


def _data(report: Report) -> str | None:
    """Write one line on the files that were read."""
    read = [source for source in report.run.sources if source.format != "unknown"]
    if not read:
        return None
    events = plural(sum(source.events for source in read), "record")
    notes = ", ".join(note_counts(report.data_quality)) or "nothing was repaired or dropped"
    return f"{plural(len(read), 'file')}, {events}; {notes}."


# -- the job, or the profile window ----------------------------------------------------------------------------------------


def _strip(report: Report, verdicts: Sequence[Judged]) -> list[Block | Only]:
    """Draw the job."""
    strip = report.job_strip
    assert strip is not None
    start = strip.start_ns
    phases = [
        Phase(phase.name, duration(phase.end_ns - phase.start_ns), phase.start_ns - start, phase.end_ns - start, phase.name == "idle tail")
        for phase in strip.phases
    ]
    marks = list(_marks(report, strip))
    times = [at - start for at in strip.time_ns]
    drawn = Figure(
        "summary-strip",
        job_strip(strip.end_ns - start, phases, times, strip.utilization, marks),
        _strip_alt(strip),
        _caption(strip, report, verdicts),
        small=job_strip(strip.end_ns - start, phases, times, strip.utilization, marks, width=NARROW),
    )
    return [drawn, Only("html", Texts("spans", _spans(strip)))]


def _spans(strip: JobStrip) -> list[tuple[str, Span]]:
    """Return the marks of the strip, with their spans in the timeline."""
    spans = [(f"dip at {duration(dip.start_ns - strip.start_ns)}", Span(dip.start_ns, dip.end_ns)) for dip in strip.dips]
    spans += [(phase.name, Span(phase.start_ns, phase.end_ns)) for phase in strip.phases if phase.rule is not None]
    if strip.window_start_ns is not None and strip.window_end_ns is not None:
        spans.append(("profile window", Span(strip.window_start_ns, strip.window_end_ns)))
    return spans


def _marks(report: Report, strip: JobStrip) -> Iterator[Mark]:
    """Yield the marks of all figures over time.

    Of a dip without room for its causes, the time remains.
    """
    dips = iter(_dips(strip))
    for mark in time_marks(report, strip.start_ns):
        if mark.kind == "dip":
            label, more = next(dips)
            mark = dataclasses.replace(mark, label=label, more=more)
        yield mark


def _dips(strip: JobStrip) -> list[tuple[str, str]]:
    return [dip_label(dip, number, len(strip.dips), strip.start_ns) for number, dip in enumerate(strip.dips, 1)]


def _strip_alt(strip: JobStrip) -> str:
    phases = ", ".join(f"{phase.name} {duration(phase.end_ns - phase.start_ns)}" for phase in strip.phases)
    dips = [label + more for label, more in _dips(strip)]
    return "; ".join(part for part in (f"Phases of the job: {phases}" if phases else "The job over time", *dips) if part)


def _caption(strip: JobStrip, report: Report, verdicts: Sequence[Judged]) -> Markup:
    """Write what the strip shows, and link the rules that explain it."""
    anchors = {verdict.rule.rule: verdict.anchor for verdict in reversed(verdicts)}
    texts = []
    if strip.metric is not None:
        units = sum(len({*heat.units}) for heat in report.system_usage.heat if heat.metric == strip.metric)
        noun = "GPU" if strip.metric == "gpu" else "core"
        of = f", mean of {plural(units, noun)}" if units > 1 else ""
        texts.append(say("{} over the job{}.", _METRICS[strip.metric], of))
    texts += [_phase(phase, anchors) for phase in strip.phases if phase.rule is not None]
    for dip in strip.dips:
        linked = Markup(", ").join(_rule(rule, anchors) for rule in dip.rules)
        cause = Markup("; ").join(part for part in (linked, Markup("{}").format(glued(", ".join(dip.evidence)))) if part)
        at = duration(dip.start_ns - strip.start_ns)
        length = duration(dip.end_ns - dip.start_ns)
        why = say("explained by {}", cause) if cause else Markup("unexplained")
        texts.append(say("The dip at {}, {} long, is {}.", at, length, why))
    if strip.dip_count > len(strip.dips):
        texts.append(say("{} more dips are shorter.", count(strip.dip_count - len(strip.dips))))
    return Markup(" ").join(texts)


def _phase(phase: JobPhase, anchors: dict[str, str]) -> Markup:
    length = duration(phase.end_ns - phase.start_ns)
    return say("{} of {}: {}.", capitalized(phase.name), length, _rule(phase.rule or "", anchors))


def _rule(rule: str, anchors: dict[str, str]) -> Markup:
    return Markup('<a href="#{}">{}</a>').format(anchors[rule], rule) if rule in anchors else Markup("{}").format(rule)


def _split(report: Report) -> Iterator[Block | Only]:
    """Draw the GPU time by part, with ranks that are alike as one row."""
    devices = [device for device in report.time_breakdown if device.span_ns]
    if not devices:
        return
    rows, left_out = alike(devices)
    alt = "; ".join(
        f"{label or 'the GPU'}: " + ", ".join(f"{percent(value)} {part.name}" for part, value in zip(PARTS, values, strict=True))
        for label, values in rows
    )
    more = f" {count(left_out)} more differ from the median." if left_out else ""
    caption = say("GPU time in the {} profile window by activity.{}", duration(profile_window(devices)[0]), more)
    yield Figure("summary-time", time_split(PARTS, rows), alt, caption, small=time_split(PARTS, rows, width=NARROW))


def alike(devices: Sequence[DeviceTime]) -> tuple[list[tuple[str, list[float]]], int]:
    """Collapse the devices near the median into one row; list the others.

    Returns rows of a label and the percentages of the parts, those that differ most first, and the number of rows left out."""
    shares = [[device.of_span(time) for time in part_times(device)] for device in devices]
    if len(devices) == 1:
        return [("", shares[0])], 0
    middle = [statistics.median(values) for values in zip(*shares, strict=True)]
    far = [max(abs(value - median) for value, median in zip(values, middle, strict=True)) for values in shares]
    near = [number for number, distance in enumerate(far) if distance < _ALIKE]
    if len(near) < 2:
        near = []
    others = sorted((number for number in range(len(devices)) if number not in near), key=lambda number: -far[number])
    room = _MOST_ROWS - bool(near)
    rows = [(_device(devices[number]), shares[number]) for number in others[:room]]
    if near:
        spans = sum(devices[number].span_ns for number in near)
        times = zip(*(part_times(devices[number]) for number in near), strict=True)
        noun = "rank" if all(device.rank is not None for device in devices) else "GPU"
        text = f"{plural(len(near), noun)} alike" if others else f"all {plural(len(near), noun)} alike"
        rows.append((text, [100 * sum(part) / spans for part in times]))
    return rows, max(0, len(others) - room)


def _device(device: DeviceTime) -> str:
    return labels.device(device.node, device.rank, device.device)
