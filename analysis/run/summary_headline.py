"""Headline of a report: GPU activity and its largest loss, or what is known of a run without GPU activity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..causes.program import program_words
from ..device.time_breakdown import WORTH_NAMING_PERCENT, only_copied
from ..framework.host_records import host_records
from ..report.device import DeviceTime
from ..report.rules import SMALL_PERCENT, Finding
from ..report.steps import Steps
from ..report.work_details import RecompilesDetails
from ..toolkit import wording
from .code_coverage import unattributed
from .summary_data import SummaryData, median_range
from .summary_steps import data_loading, loading_basis, longest_step, profiled_left_out, spread, uneven_processes
from .summary_warnings import CUT, UNREAD, missing_part

_UNEVEN_POINTS: Final = 3.0  # percentage points between ranks from which the headline names them
_FAR: Final = 3.0  # longest step / median step from which the headline of a run without GPU activity names the step
_WINDOW: Final = 1.5  # job / profiled time above which the profile is a window of the job
_MISSING: Final = {CUT: "A file was cut off: what followed is missing.", UNREAD: "What could not be read was left out."}


def headline(data: SummaryData) -> str:
    """Write the sentences of the headline, depending on the recorded data."""
    missing = missing_part(data.report.run, data.report.data_quality)
    traced = len(data.report.processes) if data.traced is None else data.traced
    records = host_records(data.report.python_profile, data.report.framework.collectives)
    cpu = data.samples("cpu")
    if data.span_ns:
        sentences = _of_gpu_activity(data)
    elif data.gpu_samples:
        sentences = _of_gpu_samples(data)
    elif records and not data.report.steps.steps:
        sentences = [*records, f"No GPU activity and no steps in this run, {wording.plural(traced, 'process', 'processes')} traced."]
        sentences += [f"CPU utilization was {median_range(cpu)} (median of the samples)."] if cpu else []
        sentences += [_MISSING[missing]] if missing else []
    elif missing and data.report.processes:
        sentences = [f"No GPU activity in what could be read: {missing}.", *_of_host_steps(data)]
    elif traced or data.report.steps.steps:
        sentences = [f"No GPU activity in this run, {wording.plural(traced, 'process', 'processes')} traced."]
        if not data.report.steps.steps and cpu:
            sentences.append(f"CPU utilization was {median_range(cpu)} (median of the samples), and no steps were recorded.")
        sentences += _of_host_steps(data)
    elif cpu:
        sentences = [f"CPU utilization was {median_range(cpu)} (median of the samples).", "Nothing was recorded of a GPU, and no steps."]
    elif data.report.system_usage.nodes:
        sentences = ["Nothing was recorded of a GPU, and no steps: there are only system metrics."]
    elif logged := next((rule.details for rule in data.report.rules if isinstance(rule.details, RecompilesDetails)), None):
        sentences = [_of_log(logged)]
    else:
        sentences = ["No GPU activity, no steps and no utilization in this run: there is nothing to time."]
    return " ".join(sentence for sentence in [*sentences, _little(data.report.findings)] if sentence)


def _of_log(details: RecompilesDetails) -> str:
    """Describe a log of torch.compile without a profile."""
    text = f"torch.compile logged {wording.plural(details.logged_compilations, 'compilation')}"
    if details.logged_recompilations:
        text += f" ({wording.plural(details.logged_recompilations, 'recompilation')})"
    return f"{text}, which took {wording.duration(details.logged_ns)}; no profile shows the cost."


def _little(findings: Sequence[Finding]) -> str:
    """Report that every finding is worth little; empty without a finding."""
    worth = [finding.cost_percent if finding.saving_percent is None else finding.saving_percent for finding in findings]
    if not worth or any(percent is None or percent >= SMALL_PERCENT for percent in worth):
        return ""
    return f"No finding is worth {wording.whole_percent(SMALL_PERCENT)} of the time or more."


def _of_gpu_activity(data: SummaryData) -> list[str]:
    several = len(data.breakdown) > 1
    profiled = max(device.first_ns + device.span_ns for device in data.breakdown) - min(device.first_ns for device in data.breakdown)
    # A window of a longer job must not read as the job.
    window = data.report.job_statistics.duration_ns is not None and data.report.job_statistics.duration_ns > _WINDOW * profiled
    time = f"the {wording.duration(profiled)} that were profiled" if window else "the time"
    sentences = [
        f"{'GPUs were' if several else 'The GPU was'} busy {wording.whole_percent(data.busy_percent)} of {time}.",
        *([_program_sentence(data)] if data.inference else []),
        _largest_loss(data),
        "" if data.inference else data.report.steps.trend or "",
        unattributed(data.report.module_coverage),
    ]
    active = data.report.system_usage.gpu_active
    if window and active is not None and not active.derived:
        # Samples are of all GPUs of the machines, also of those without device work.
        they = "they were" if several else "it was" if len(data.report.devices) <= 1 else "the GPUs were"
        sentences.append(f"Over the whole job {they} active in {wording.percent(active.active_percent)} of the samples.")
    return sentences


def _of_gpu_samples(data: SummaryData) -> list[str]:
    active = data.report.system_usage.gpu_active
    idle = active is not None and active.active == 0
    utilization = f"GPU utilization was {median_range(data.gpu_samples)} (median of the samples)."
    return ["No GPU was active in any sample." if idle else utilization, _step_sentence(data.report.steps), data.report.steps.trend or ""]


def _of_host_steps(data: SummaryData) -> list[str]:
    loading = _loading_loss(data)
    named = loading[1] if loading is not None and loading[0] >= WORTH_NAMING_PERCENT else ""
    return [_step_sentence(data.report.steps), _slow_sentence(data.report.steps), named, data.report.steps.trend or ""]


def _program_sentence(data: SummaryData) -> str:
    """Name an inference, with its iterations if they are known."""
    kind, words = data.main_iterations, program_words(data.report.program, base=False)
    if kind is None:
        return f"The program is {words}."
    rate = f", at {wording.count(round(kind.tokens_per_s))} tokens per second" if kind.tokens_per_s is not None else ""
    name = "An iteration" if kind.kind == "forward" else f"A {kind.kind} iteration"
    return f"{name} took {wording.duration(kind.median_ns)} (median of {wording.count(kind.count)}){rate}, in {words}."


def _largest_loss(data: SummaryData) -> str:
    """Name the largest of exposed communication, copies and data loading, if large."""
    they = "they" if len(data.breakdown) > 1 else "it"
    exposed, copied = data.exposed_communication_percent, only_copied(data.breakdown)
    waits = f"{they} only waited for communication{_by_rank(data.breakdown)}"
    losses = [
        (exposed, f"For {wording.whole_percent(exposed)} of the time {waits}."),
        (copied, f"For {wording.whole_percent(copied)} of the time {they} only copied or set memory."),
    ]
    if not data.inference and (loading := _loading_loss(data)) is not None:
        losses.append(loading)
    percent, sentence = max(losses, key=lambda loss: loss[0])
    return sentence if percent >= WORTH_NAMING_PERCENT else ""


def _loading_loss(data: SummaryData) -> tuple[float, str] | None:
    """Return data loading's share of the steps and its sentence, or None."""
    loading = data_loading(data.report.steps)
    if not data.loader_recorded or loading is None or not loading.total_ns:
        return None
    return loading.percent, f"{wording.whole_percent(loading.percent)} of a step went to data loading{loading_basis(data.report.steps)}."


def _by_rank(breakdown: Sequence[DeviceTime]) -> str:
    """Word the spread: ", from 10% on rank 5 to 19% on rank 2"; empty if small."""
    ranked = sorted((d.exposed_communication_percent, d.rank) for d in breakdown if d.span_ns and d.rank is not None)
    if len(ranked) < 2 or ranked[-1][0] - ranked[0][0] < _UNEVEN_POINTS:
        return ""
    (low, least), (high, most) = ranked[0], ranked[-1]
    return f", from {wording.whole_percent(low)} on rank {least} to {wording.whole_percent(high)} on rank {most}"


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
    return f"The longest{which} took {wording.duration(longest.step.duration_ns)}, {wording.significant(longest.ratio)} times as long."
