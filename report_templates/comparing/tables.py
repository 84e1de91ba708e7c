"""The sections of a comparison that consist of tables, except those of times and kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...analysis.compare.changes import decided
from ...analysis.report.comparison import Comparison, Measure, MemoryChange, VerdictChange
from ..blocks import Figure, Section, Texts, plain, say
from ..blocks.tables import Cell, Col, table
from ..figures.before_after import Pair, before_after
from ..text.formats import UNKNOWN, bandwidth, capitalized, duration, percent, plural, points, size, threshold_text
from ..text.signs import SIGNS, kind_of
from . import words

_SAMPLED_OVER: Final = {
    "steps": "from the beginning of the first step to the end of the last",
    "profile": "over the spans of the GPUs",
    "run": "over all samples",
}
_ONE_LINE: Final = 46  # letters
MOVED: Final = ("broken", "mended")  # outcomes of rules that changed their verdict
_ORDER: Final = (*MOVED, "other", "same")
_DEFINITIONS: Final = (
    (
        "Steps",
        "Slower or faster where a rank-sum test (Mann and Whitney) finds it at a level of 1% and the medians differ by the threshold.",
    ),
    (
        "Parts",
        "Where the effect is at least the threshold, in percent of a step. The span, idle time and communication must also change by their"
        " noise: 2.58 standard errors of the mean step, or less if the shift of the steps is more certain. With fewer than five times from"
        " step to step they are undecided.",
    ),
    (
        "Within ±",
        "The effect is smaller than its noise: the spread of the steps causes such a change in more than 1 of 100 comparisons of equal"
        " runs. With more steps, the noise is smaller.",
    ),
    (
        "Kernels",
        "Where the effect is at least the threshold in percent of the kernel and 0.2% of a step, and the mean moved by more than the"
        " shortest and longest run allow, or the number of runs changed. Communication must also change by its noise.",
    ),
    ("Copies", "Where bytes and time changed by the threshold, or the time alone by 10%, and the effect is 0.2% of a step."),
    ("Effect", "New minus base. Times of all processes are divided by the steps of all processes."),
)

_BASE_RUNS: Final = (
    "Base runs",
    "The noise of each time is at least the repeatability limit of the base runs: √2 times their standard deviation, times Student's t"
    " (99%). A time that a base run lacks is undecided.",
)
_NO_SPREAD: Final = "These have no known spread: the verdict follows from the threshold alone."
_SPREAD: Final = "The verdict follows from the threshold and the spread of the base runs."


def alike(comparison: Comparison) -> Section:
    """Make "The two runs": the runs, and the circumstances in which they differ."""
    limits = [difference for difference in comparison.differences if difference.limits]
    if limits:
        lead = say("{} this comparison.", plural(len(limits), "difference limits", "differences limit"))
    elif comparison.differences:
        lead = say(
            "No difference limits this comparison; {} taken into account.", plural(len(comparison.differences), "other is", "others are")
        )
    else:
        lead = say("The reports show no difference between the runs apart from their measurements.")
    sources = words.sources(comparison) or ("", "")
    runs = table(
        "alike-runs",
        "The runs",
        (
            ("base", comparison.base, sources[0]),
            *(("base run", side, side.given or "") for side in comparison.baselines),
            ("new", comparison.new, sources[1]),
        ),
        Col("Side", lambda pair: pair[0], kind="name"),
        Col("Run", lambda pair: pair[1].name, limit=60),
        Col("Source", lambda pair: pair[2], limit=60, when=any(sources), pdf_only=True),
        Col("Description", lambda pair: pair[1].subtitle),
        Col("Status", lambda pair: pair[1].status),
        Col("Read from", lambda pair: pair[1].given or pair[1].read_from, limit=80, html_only=True),
        Col("Headline of its report", lambda pair: pair[1].headline, limit=240),
        sortable=False,
    )
    differences = table(
        "alike-differences",
        "Differences apart from the measurements",
        comparison.differences,
        Col("Circumstance", lambda row: Cell(row.name), kind="name"),
        Col("Base", lambda row: row.base),
        Col("New", lambda row: row.new),
        Col("Limit of the conclusions", lambda row: capitalized(row.limits) if row.limits else UNKNOWN, limit=160),
        sortable=False,
        pdf_rows=30,
    )
    return Section("alike", "The two runs", lead, (runs, differences))


def precision(comparison: Comparison) -> Section:
    """Make "Precision": the arithmetic of the matrix work in both runs."""
    rows = comparison.precision
    if not rows:
        return Section("precision", "Precision", say("No matrix kernels in both runs."))
    changes = ", ".join(f"{row.name} from {percent(row.base_percent)} to {percent(row.new_percent)}" for row in rows if decided(row))
    lead = say("{} of the time in matrix kernels.", changes) if changes else say("The matrix work runs in the same precision as before.")
    if comparison.different_programs:
        lead = say("Shares of the time in matrix kernels, of different work.")
    pairs = [Pair(row.name, "computation" if row.name != "unknown" else "other", row.base_percent, row.new_percent, "") for row in rows]
    alt = "Matrix kernels by precision: " + ", ".join(
        f"{row.name} {percent(row.base_percent)} before and {percent(row.new_percent)} now" for row in rows
    )
    caption = say("Percent of the time in GEMM, attention and convolution kernels. Above, lighter: base; below: new.")
    shares = table(
        "precision-table",
        "Matrix kernels by precision",
        rows,
        Col("Precision", lambda row: Cell(row.name), kind="name"),
        Col("Time, base", lambda row: row.base_percent, words.share),
        Col("Time, new", lambda row: row.new_percent, words.share),
        Col("Runs, base", lambda row: row.base_count_percent, words.share),
        Col("Runs, new", lambda row: row.new_count_percent, words.share),
        words.verdict(comparison),
        note=None
        if comparison.different_programs
        else "A share changed where those of time and of runs moved by at least five percentage points alike.",
    )
    figure = Figure("precision-shares", before_after(pairs, "%", ("base", "new")), alt, caption)
    return Section("precision", "Precision", lead, (figure, shares))


def memory(comparison: Comparison) -> Section:
    """Make "Memory operations": copies and memsets that changed, and GPU memory."""
    operations, peak = comparison.memory_operations, comparison.gpu_memory
    if not operations and peak is None:
        return Section("memory", "Memory operations", say("No copies, memsets or samples of GPU memory in both runs."))

    def name(row: MemoryChange) -> str:
        return f"{row.kind} {row.memory}" if row.memory else row.kind

    unit = words.per(comparison.basis)
    changes = ", ".join(f"{name(row)} {words.signed(row.effect_ns)}" for row in operations if decided(row))
    lead = f"Changed {unit}: {changes}." if changes else "No kind of copies changed."
    if comparison.different_programs:
        lead = f"Copies and memsets {unit} of both runs."
    if peak is not None:
        lead += f" Highest sample of GPU memory: {percent(peak.base)} before, {percent(peak.new)} now."
    copies = words.changes_table(
        "memory-table",
        f"Copies and memsets {unit}",
        words.worst_first(operations),
        Col("Kind", lambda row: Cell(name(row)), kind="name"),
        *words.amount_columns(comparison, operations, lambda _: "memory"),
        words.verdict(comparison),
        Col("Count, base", lambda row: row.base_count, words.number),
        Col("Count, new", lambda row: row.new_count, words.number),
        Col("Bytes, base", lambda row: row.base_bytes, words.known(size), html_only=True),
        Col("Bytes, new", lambda row: row.new_bytes, words.known(size), html_only=True),
        Col("Bandwidth, base", lambda row: row.base_gb_per_s, words.known(bandwidth), html_only=True),
        Col("Bandwidth, new", lambda row: row.new_gb_per_s, words.known(bandwidth), html_only=True),
    )
    return Section("memory", "Memory operations", say("{}", lead), [copies])


def launches(comparison: Comparison) -> Section:
    """Make "Launches and gaps": calls, host time, latency, and causes of gaps."""
    if not comparison.launches and not comparison.idle:
        return Section("launches", "Launches and gaps", say("No launches in both runs."))

    def write(measure: Measure, value: float | None) -> str:
        if value is None:
            return UNKNOWN
        return words.number(value).text if measure.unit == "count" else duration(value)

    unit = words.per(comparison.basis)
    calls = next((row for row in comparison.launches if row.unit == "count"), None)
    latency = next((row for row in comparison.launches if row.name.startswith("launch latency")), None)
    clauses = [f"{write(calls, calls.base)} launch calls {unit} before, {write(calls, calls.new)} now"] if calls else []
    if latency is not None:
        clauses.append(f"median launch latency {write(latency, latency.base)} before, {write(latency, latency.new)} now")
    measures = table(
        "launches-table",
        f"Launches; calls and host time {unit}",
        comparison.launches,
        Col("Figure", lambda row: Cell(row.name), kind="name"),
        Col("Base", lambda row: Cell(write(row, row.base)), kind="number"),
        Col("New", lambda row: Cell(write(row, row.new)), kind="number"),
        Col("Change", lambda row: row.change_percent, words.change, when=not comparison.different_programs),
        words.verdict(comparison),
        sortable=False,
        note=None if comparison.different_programs else _SPREAD if comparison.baselines else _NO_SPREAD,
    )
    gaps = words.changes_table(
        "launches-idle",
        f"Gaps before the work of the streams {unit}, by cause",
        words.worst_first(comparison.idle),
        Col("Cause", lambda row: Cell(row.name), kind="name"),
        *words.amount_columns(comparison, comparison.idle, lambda _: "idle"),
        words.verdict(comparison, words.least(comparison)),
        sortable=False,
        note="Streams of a device count each. Host wait: the launch ended after the work before it on the stream did.",
    )
    lead = say("{}.", "; ".join(clauses) or "Gaps before the work of the streams, by cause")
    return Section("launches", "Launches and gaps", lead, (measures, gaps))


def utilization(comparison: Comparison) -> Section:
    """Make "Sampled utilization": means of GPUs and processors in both runs."""
    over, means = _SAMPLED_OVER[comparison.sampling.over], comparison.sampling.means
    sampled = [
        f"{row.name} {percent(row.base_percent)} before, {percent(row.new_percent)} now ({points(row.difference_points)})"
        for row in means
        if row.absent is None
    ]
    sentences = [f"Means {over}: {'; '.join(sampled)}."] if sampled else []
    for why in dict.fromkeys(row.absent for row in means if row.absent is not None):
        sentences.append(f"{', '.join(row.name for row in means if row.absent == why)}: {why}.")
    rows = table(
        "utilization-table",
        f"Means {over}",
        means,
        Col("Metric", lambda row: Cell(row.name), kind="name"),
        Col("Base", lambda row: row.base_percent, words.share),
        Col("New", lambda row: row.new_percent, words.share),
        Col("Difference", lambda row: row.difference_points, words.known(points)),
        sortable=False,
        note="Every machine that was sampled counts the same. No verdict follows from these: samplers see all that ran on a machine.",
    )
    lead = " ".join(sentences) or "No samples of GPUs or processors in both runs."
    return Section("utilization", "Sampled utilization", say("{}", lead), [rows])


def verdicts(comparison: Comparison) -> Section:
    """Make "Rules": the verdicts of both runs."""
    if not comparison.rules:
        return Section("verdicts", "All rules", say("No rule ran for either run."))

    def listed(outcomes: Sequence[str], *, unsure: bool = False) -> str:
        return ", ".join(row.rule for row in comparison.rules if row.outcome in outcomes and row.measure_same == unsure)

    names = {
        "New issues": listed(["broken"]),
        "Fixed": listed(["mended"]),
        "Across their thresholds, although their time did not change beyond noise and threshold": listed(MOVED, unsure=True),
    }
    sentences = [f"{label}: {rules}." for label, rules in names.items() if rules]
    rows = table(
        "verdicts-table",
        "Verdicts of both runs",
        sorted(comparison.rules, key=lambda rule: _ORDER.index(rule.outcome)),
        *rule_columns(every=True),
        pdf_rows=len(comparison.rules),
    )
    return Section("verdicts", "All rules", say("{}", " ".join(sentences) or "No rule went from passed to issue, or back."), [rows])


def rule_columns(*, every: bool) -> tuple[Col[VerdictChange], ...]:
    """Make the columns of rules in both runs.

    ``every``: for the table of all rules, which has a line per rule in the PDF and the findings of both runs in HTML.
    """
    return (
        Col("Rule", lambda rule: Cell(rule.rule, camel=True), kind="name"),
        Col("Base", lambda rule: _verdict(rule.base, informs=rule.informs)),
        Col("New", lambda rule: _verdict(rule.new, informs=rule.informs)),
        Col("Outcome", _outcome),
        Col("Finding of the new run", lambda rule: plain(rule.new_finding), limit=200, html_only=True),
        Col("Finding of the new run", lambda rule: plain(rule.new_finding), limit=_ONE_LINE if every else 200, pdf_only=True),
        Col("Finding of the base run", lambda rule: plain(rule.base_finding), limit=200, html_only=True, when=every),
    )


def _verdict(verdict: str | None, *, informs: bool) -> Cell:
    if verdict is None:
        return Cell(UNKNOWN)
    sign = SIGNS[kind_of(verdict, informs=informs)]
    return Cell(sign.text, mark=sign.mark)


def _outcome(change: VerdictChange) -> Cell:
    if change.parameters_differ:
        return Cell("– other parameters", mark="v-none")
    if change.outcome == "other":
        return Cell("– not comparable", mark="v-none")
    if change.measure_same:
        side = "below" if change.outcome == "mended" else "above"
        return Cell(f"≈ {side} its threshold now", mark="v-none")
    return Cell("= same", mark="v-none") if change.outcome == "same" else words.state(change.outcome)


def reading(comparison: Comparison) -> Section:
    """Make "How to read this": the conditions for a change."""
    lead = say("A change is beyond the spread of both runs and at least the threshold of {}.", threshold_text(comparison.threshold_percent))
    if comparison.different_programs:
        lead = say("The runs execute different programs: their times are next to each other, and no difference counts as a change.")
        return Section("reading", "How to read this", lead, [Texts("definitions", [_DEFINITIONS[-1]])])
    definitions = [
        *_DEFINITIONS,
        (
            "Below the threshold",
            f"The effect on a part is smaller than {words.least(comparison)}, however large"
            " it is in percent of the part. Other tables: the threshold in percent of the row.",
        ),
    ]
    if comparison.baselines:
        definitions.append(_BASE_RUNS)
    if comparison.basis.unit == "second" and comparison.whole is not None:
        definitions.append(("Per second", f"Times are divided by seconds of the GPUs' span, because: {comparison.basis.why}."))
    return Section("reading", "How to read this", lead, [Texts("definitions", definitions)])
