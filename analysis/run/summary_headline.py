"""Headline of a report: the utilization, the largest losses, and what else is known of the run.

The pattern is "[metric] [value]; [largest losses] [share] ([location])", in at most two sentences of large type. The losses are those of
the findings, on the base of the recommended actions; without findings, the largest part of the time that is not computation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ..causes.program import program_words
from ..device.time_breakdown import WORTH_NAMING_PERCENT, only_copied
from ..framework.host_records import host_records
from ..report.device import DeviceTime
from ..report.first_page import Action, Actions
from ..report.rules import SMALL_PERCENT, Finding
from ..report.steps import Steps
from ..report.work_details import RecompilesDetails
from ..toolkit import wording
from .actions import BASES, saving_words, worth
from .code_coverage import before_profile_percent, unattributed
from .losses import loss
from .summary_data import SummaryData, brief_percent
from .summary_steps import data_loading, loading_basis, longest_step, profiled_left_out, spread, uneven_processes
from .summary_warnings import CUT, UNREAD, missing_part

_UNEVEN_POINTS: Final = 3.0  # percentage points between ranks from which the headline names them
_FAR: Final = 3.0  # longest step / median step from which the headline of a run without GPU activity names the step
_MOST_LOSSES: Final = 2
_MUCH_MORE: Final = 2.0  # loss / loss of its cause from which the headline names both
_MISSING: Final = {CUT: "A file was cut off: what followed is missing.", UNREAD: "What could not be read was left out."}


def headline(data: SummaryData) -> str:
    """Write the sentences of the headline, depending on the recorded data."""
    missing = missing_part(data.report.run, data.report.data_quality)
    traced = len(data.report.processes) if data.traced is None else data.traced
    records = host_records(data.report.python_profile, data.report.framework.collectives)
    cpu = data.cpu_mean
    cpu_sentence = f"CPU utilization averaged {brief_percent(cpu)}." if cpu is not None else ""
    if data.span_ns or data.gpu_samples:
        sentences = _of_gpus(data)
    elif records and not data.report.steps.steps:
        sentences = [*records, f"No GPU activity and no steps were recorded; {_traced(traced)}."]
        sentences += [cpu_sentence, _MISSING[missing] if missing else ""]
    elif missing and data.report.processes:
        sentences = [f"No GPU activity in what could be read: {missing}.", *_of_host_steps(data)]
    elif traced or data.report.steps.steps:
        sentences = [f"No GPU activity was recorded; {_traced(traced)}."]
        if not data.report.steps.steps and cpu is not None:
            sentences.append(f"CPU utilization averaged {brief_percent(cpu)}, and no steps were recorded.")
        sentences += _of_host_steps(data)
    elif cpu is not None:
        sentences = [cpu_sentence, "Nothing was recorded of a GPU, and no steps."]
    elif data.report.system_usage.nodes:
        sentences = ["Nothing was recorded of a GPU, and no steps: there are only system metrics."]
    elif logged := next((rule.details for rule in data.report.rules if isinstance(rule.details, RecompilesDetails)), None):
        sentences = [_of_log(logged)]
    else:
        sentences = ["No GPU activity, no steps and no utilization in this run: there is nothing to time."]
    return " ".join(sentence for sentence in [_apart(data.apart_ns), *sentences, _little(data.report.findings)] if sentence)


def _apart(apart_ns: int) -> str:
    return f"The files are from different times ({wording.duration(apart_ns)} apart): report each file on its own." if apart_ns else ""


def _traced(processes: int) -> str:
    return f"{wording.plural(processes, 'process was', 'processes were')} traced"


def _of_log(details: RecompilesDetails) -> str:
    """Describe a log of torch.compile without a profile."""
    text = f"torch.compile logged {wording.plural(details.logged_compilations, 'compilation')}"
    if details.logged_recompilations:
        text += f" ({wording.plural(details.logged_recompilations, 'recompilation')})"
    return f"{text}, which took {wording.duration(details.logged_ns)}; no profile shows the cost."


def _little(findings: Sequence[Finding]) -> str:
    """Report that every finding is worth little; empty without a finding."""
    worths = [finding.cost_percent if finding.saving_percent is None else finding.saving_percent for finding in findings]
    if not worths or any(percent is None or percent >= SMALL_PERCENT for percent in worths):
        return ""
    return f"No finding is worth {wording.whole_percent(SMALL_PERCENT)} of the time or more."


def _of_gpus(data: SummaryData) -> list[str]:
    """Describe a run with device work or samples of utilization."""
    before = before_profile_percent(data.breakdown, data.report.steps.outside or ())
    steps = [] if data.span_ns else [_step_sentence(data.report.steps)]
    return [
        _utilization(data),
        *([_program_sentence(data)] if data.inference and data.main_iterations else []),
        _losses(data) or _largest_loss(data),
        *steps,
        "" if data.inference else data.report.steps.trend or "",
        unattributed(data.report.module_coverage, before),
    ]


def _utilization(data: SummaryData) -> str:
    """State the utilization: the mean of the samples, else the busy share."""
    mean, active, duration = data.gpu_mean, data.report.system_usage.gpu_active, data.report.job_statistics.duration_ns
    if active is not None and active.active == 0 and not active.derived and not data.span_ns:
        return "No GPU was active in any sample."
    if mean is not None:
        part = data.sampled_part_ns("gpu")
        over = f"the {wording.duration(duration)} job" if duration else "the samples"
        over = over if part is None else f"{wording.duration(part)} of samples"
        return f"{data.gpus} averaged {brief_percent(mean)} utilization over {over}."
    if not data.span_ns:
        return ""
    were = "were" if data.gpus == "GPUs" else "was"
    return f"{data.gpus} {were} busy {brief_percent(data.busy_percent)} of the {wording.duration(data.window_ns)} profile window."


def _losses(data: SummaryData) -> str:
    """List the largest losses of the actions, in their order.

    A finding and those that it explains are partly the same loss: the cause is named, and with it the largest of them if that is
    much larger.
    """
    actions = data.report.actions
    if actions is None or not actions.base:
        return ""
    findings = {finding.rank: finding for finding in data.report.findings}
    rules = {rule.rule: rule for rule in data.report.rules}
    nouns = {row.finding: loss(findings[row.finding], rules.get(row.rule)) for row in actions.rows}
    named = [(cause, row) for cause, row in _families(actions) if (worth(row) or 0.0) >= SMALL_PERCENT][:_MOST_LOSSES]
    texts: list[str] = []
    for cause, row in named:
        of = "" if texts else f" {BASES[actions.base]}"
        shares = [_share(cause) + of] if cause.base is None else []
        if row is not cause and (not shares or (worth(row) or 0.0) > _MUCH_MORE * (worth(cause) or 0.0)):
            shares.append(f"with {nouns[row.finding]}, {_share(row)}{'' if shares else of}")
        texts.append(f"{nouns[cause.finding]} ({'; '.join(shares)})")
    if not texts:
        return ""
    avoidable = "avoidable " if all(row.percent is not None for _, row in named) else ""
    subject = f"The largest {avoidable}losses are" if len(texts) > 1 else f"The largest {avoidable}loss is"
    return f"{subject} {' and '.join(texts)}."


def _families(actions: Actions) -> Iterator[tuple[Action, Action]]:
    """Yield each unexplained action, and the largest of it and those that it explains.

    Actions that are not on the common base are left out."""
    rules = {row.rule for row in actions.rows}
    families: list[list[Action]] = []
    for row in actions.rows:
        if row.partly in rules and families:
            families[-1].append(row)
        else:
            families.append([row])
    for family in families:
        if comparable := [row for row in family if row.base is None]:
            yield family[0], max(comparable, key=lambda row: worth(row) or 0.0)


def _share(row: Action) -> str:
    return brief_percent(row.cost_percent or 0.0) if row.percent is None else saving_words(row)


def _of_host_steps(data: SummaryData) -> list[str]:
    loading = _loading_loss(data)
    named = loading[1] if loading is not None and loading[0] >= WORTH_NAMING_PERCENT else ""
    losses, steps = _losses(data), data.report.steps
    return [losses, _step_sentence(steps), _slow_sentence(steps), "" if losses else named, steps.trend or ""]


def _program_sentence(data: SummaryData) -> str:
    """Name an inference with its iterations."""
    kind, words = data.main_iterations, program_words(data.report.program, base=False)
    assert kind is not None
    rate = f", at {wording.count(round(kind.tokens_per_s))} tokens per second" if kind.tokens_per_s is not None else ""
    name = "An iteration" if kind.kind == "forward" else f"A {kind.kind} iteration"
    return f"{name} took {wording.duration(kind.median_ns)} (median of {wording.count(kind.count)}){rate}, in {words}."


def _largest_loss(data: SummaryData) -> str:
    """Name the largest of exposed communication, copies and data loading, if large."""
    exposed, copied = data.exposed_communication_percent, only_copied(data.breakdown)
    window = "of the GPU time in the profile window"
    losses = [
        (exposed, f"Exposed communication takes {brief_percent(exposed)} {window}{_by_rank(data.breakdown)}."),
        (copied, f"Exposed copies and memsets take {brief_percent(copied)} {window}."),
    ]
    if not data.inference and (loading := _loading_loss(data)) is not None:
        losses.append(loading)
    percent, sentence = max(losses, key=lambda candidate: candidate[0])
    return sentence if percent >= WORTH_NAMING_PERCENT else ""


def _loading_loss(data: SummaryData) -> tuple[float, str] | None:
    """Return data loading's share of the steps and its sentence, or None."""
    loading = data_loading(data.report.steps)
    if not data.loader_recorded or loading is None or not loading.total_ns:
        return None
    return loading.percent, f"Data loading takes {brief_percent(loading.percent)} of the mean step{loading_basis(data.report.steps)}."


def _by_rank(breakdown: Sequence[DeviceTime]) -> str:
    """Word the spread: " (10% on rank 5, 19% on rank 2)"; empty if small."""
    ranked = sorted((d.exposed_communication_percent, d.rank) for d in breakdown if d.span_ns and d.rank is not None)
    if len(ranked) < 2 or ranked[-1][0] - ranked[0][0] < _UNEVEN_POINTS:
        return ""
    (low, least), (high, most) = ranked[0], ranked[-1]
    return f" ({wording.whole_percent(low)} on rank {least}, {wording.whole_percent(high)} on rank {most})"


def _step_sentence(steps: Steps) -> str:
    times = spread(steps)
    if times is None:
        return ""
    if times.count == 1:
        return f"The only step took {wording.duration(times.p50)}."
    if processes := uneven_processes(steps):
        (low, fast), (high, slow) = processes
        return f"A step took {wording.duration(low)} on {fast} to {wording.duration(high)} on {slow} (medians)."
    return f"A step took {wording.duration(times.p50)} (median of {wording.count(times.count)})."


def _slow_sentence(steps: Steps) -> str:
    """Name the longest step if it took several times the median."""
    longest = longest_step(steps)
    if longest is None or longest.ratio < _FAR:
        return ""
    if profiled_left_out(steps):
        which = f" of those without a profiler, {longest.name},"
    elif longest.step.profiled:
        which = f", {longest.name}, in which {longest.step.profiled} was on,"
    else:
        which = f", {longest.name},"
    return f"The longest{which} took {wording.duration(longest.ns)}, {wording.significant(longest.ratio)} times as long."
