"""What does a reader learn on the first page: one sentence, five figures, and what is not as it should be?"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import polars as pl

from . import wording
from .host_records import host_records
from .precision import BELOW_FP32
from .profiled_steps import others_of
from .quantiles import quantiles
from .report import (
    ActiveTime,
    Device,
    DeviceTime,
    JobStatistics,
    MetricUsage,
    Node,
    Note,
    Precision,
    Process,
    PythonProfile,
    Run,
    Share,
    Step,
    Steps,
    Summary,
    SystemUsage,
    Tile,
)
from .rules.device_names import short_model
from .steps import main_steps
from .time_breakdown import WORTH_NAMING_PERCENT, only_copied

NOT_KNOWN: Final = "–"

# Codes of warnings that put every figure in doubt: they are said on the first page.
_URGENT: Final = frozenset({"several_runs", "checksum"})

# Codes of notes on files that broke off, and on such of which a part, or all, could not be read.
_BROKE_OFF: Final = frozenset({"truncated", "cut_stream", "corrupt_stream", "no_end", "missing_blocks"})
_NOT_READ: Final = frozenset(
    {"odd_entries", "functions_left_out", "not_readable", "unreadable", "lost_event", "too_long", "damaged", "undecodable"}
)

# Ranks that differ by at least so many percentage points are named in the headline.
_UNEVEN_POINTS: Final = 3.0

# Steps from which on an outer percentile is told.
_SEVERAL: Final = 10

# Mean time from step to step / median device time of a step from which on both are shown.
_LONGER: Final = 1.03

# The longest step / median step from which on it is named in the headline of a run without GPUs.
_FAR: Final = 3.0

# Median step of the slowest process / of the fastest above which both are named.
_UNEVEN_STEPS: Final = 1.1

_LOADED: Final = "{} of a step went to data loading{}."

# What is missing of a partial run: in a headline, as a sentence of its own, and as a warning.
_CUT: Final = "the trace was cut off"
_UNREAD: Final = "a part of it could not"
_LOST: Final = {_CUT: "A file was cut off: what followed is missing.", _UNREAD: "What could not be read was left out."}
_PARTIAL: Final = {
    _CUT: "partial: the run or a trace of it was cut off",
    _UNREAD: "partial: a part of the files could not be read",
}

# Format of the sources that the capture library wrote.
_RECORDED: Final = "postrun capture"

# What the readers call machines that no file names.
_UNKNOWN_HOST: Final = "unknown host"

# A job longer than the profile by this factor is more than what was profiled.
_WINDOW: Final = 1.5

# Unknown precision from here on is said beside the share of lower precision.
_UNKNOWN_PERCENT: Final = 5.0


def summary(
    *,
    run: Run,
    nodes: Sequence[Node],
    devices: Sequence[Device],
    processes: Sequence[Process],
    job: JobStatistics,
    usage: SystemUsage,
    breakdown: Sequence[DeviceTime],
    precision: Precision,
    steps: Steps,
    loader_recorded: bool,
    notes: Sequence[Note],
    traced: int | None = None,
    named_loading_ns: int = 0,
    profile: PythonProfile | None = None,
    collectives: Sequence[Share] = (),
) -> Summary:
    """The first page. Shares over several GPUs are sums over all of them: busy time of all / span of all.

    ``breakdown`` has one row per device. A figure that the run does not give has the value "–" and says in its second line why.
    ``loader_recorded``: whether the trace has data-loader events at all; without them a share of 0 would mean nothing. ``traced``: of how
    many processes there is an event; those that are only known to have run are not traced.
    ``named_loading_ns``: how long ranges that are named as data loading took. ``profile`` and ``collectives`` (of the framework, longest
    first) are told where there are neither steps nor a GPU.
    """
    sampled = [metric for metric in usage.nodes if metric.metric == "gpu" and not metric.derived]
    cpu = [metric for metric in usage.nodes if metric.metric == "cpu"]
    return Summary(
        headline=_headline(
            breakdown,
            steps,
            sampled,
            usage.gpu_active,
            job,
            loader_recorded=loader_recorded,
            processes=len(processes),
            traced=len(processes) if traced is None else traced,
            lost=_lost(run, notes),
            records=host_records(profile, collectives),
            cpu=cpu,
            others=len(usage.nodes) > 0,
            gpus=len(devices),
        ),
        subtitle=_subtitle(run, nodes, devices, processes, job),
        tiles=tuple(
            host or tile
            for host, tile in zip(
                _on_the_host(run, usage, steps) if not breakdown and not sampled else [None] * 5,
                [
                    _gpu_busy(breakdown, sampled),
                    _step_time(steps),
                    _exposed_communication(breakdown, steps),
                    _data_loading(steps, loader_recorded=loader_recorded, named_ns=named_loading_ns),
                    _lower_precision(precision),
                ],
                strict=True,
            )
        ),
        warnings=_warnings(run, notes),
    )


# -- the sentence ----------------------------------------------------------------------------------------------------------


def _headline(
    breakdown: Sequence[DeviceTime], steps: Steps, sampled: Sequence[MetricUsage], active: ActiveTime | None, job: JobStatistics, *,
    loader_recorded: bool, processes: int, traced: int, lost: str, records: Sequence[str], cpu: Sequence[MetricUsage], others: bool,
    gpus: int,
) -> str:  # fmt: skip
    span = sum(device.span_ns for device in breakdown)
    if span:
        busy = 100 * sum(device.busy_ns for device in breakdown) / span
        subject = "The GPU was" if len(breakdown) == 1 else "GPUs were"
        profiled = max(device.first_ns + device.span_ns for device in breakdown) - min(device.first_ns for device in breakdown)
        # A window of a longer job must not read as the job.
        window = job.duration_ns is not None and job.duration_ns > _WINDOW * profiled
        time = f"the {wording.duration(profiled)} that were profiled" if window else "the time"
        sentences = [f"{subject} busy {wording.whole_percent(busy)} of {time}.", _largest_loss(breakdown, steps, loader_recorded)]
        sentences.append(steps.trend or "")
        if window and active is not None and not active.derived:
            # Samples are of all GPUs of the machines, also of those without device work.
            they = "they were" if len(breakdown) > 1 else "it was" if gpus <= 1 else "the GPUs were"
            sentences.append(f"Over the whole job {they} active in {wording.percent(active.active_percent)} of the samples.")
    elif sampled:
        sentences = [f"GPU utilisation was {_medians(sampled)} (median of the samples).", _step_sentence(steps)]
        if active is not None and active.active == 0:
            sentences = ["No GPU was active in any sample.", _step_sentence(steps)]
        sentences.append(steps.trend or "")
    elif records and not steps.steps:
        sentences = [*records, f"No GPU activity and no steps in this run, {wording.plural(traced, 'process', 'processes')} traced."]
        sentences += [f"CPU utilisation was {_medians(cpu)} (median of the samples)."] if cpu else []
        sentences += [_LOST[lost]] if lost else []
    elif lost and processes:
        sentences = [f"No GPU activity in what could be read: {lost}.", _step_sentence(steps), _slow_sentence(steps)]
        sentences += [_loading_sentence(steps, loader_recorded=loader_recorded), steps.trend or ""]
    elif traced or steps.steps:
        sentences = [f"No GPU activity in this run, {wording.plural(traced, 'process', 'processes')} traced."]
        if not steps.steps and cpu:
            sentences.append(f"CPU utilisation was {_medians(cpu)} (median of the samples), and no steps were recorded.")
        sentences += [_step_sentence(steps), _slow_sentence(steps), _loading_sentence(steps, loader_recorded=loader_recorded)]
        sentences.append(steps.trend or "")
    elif cpu:
        sentences = [f"CPU utilisation was {_medians(cpu)} (median of the samples).", "Nothing was recorded of a GPU, and no steps."]
    elif others:
        sentences = ["Nothing was recorded of a GPU, and no steps: there are only system metrics."]
    else:
        sentences = ["No GPU activity, no steps and no utilisation in this run: there is nothing to time."]
    return " ".join(sentence for sentence in sentences if sentence)


def _lost(run: Run, notes: Iterable[Note]) -> str:
    """What of a partial run is missing, of ``_LOST``; empty of others."""
    codes = {note.code for note in notes}
    if run.status != "partial":
        return ""
    return _UNREAD if codes & _NOT_READ and not codes & _BROKE_OFF else _CUT


def _largest_loss(breakdown: Sequence[DeviceTime], steps: Steps, loader_recorded: bool) -> str:
    """The sentence on what cost most, exposed communication, exposed memory operations or data loading; empty where all are small."""
    they = "they" if len(breakdown) > 1 else "it"
    span = sum(device.span_ns for device in breakdown)
    percent = 100 * sum(device.exposed_communication_ns for device in breakdown) / span
    losses = [(percent, f"For {wording.whole_percent(percent)} of the time {they} only waited for communication{_by_rank(breakdown)}.")]
    percent = only_copied(breakdown)
    losses.append((percent, f"For {wording.whole_percent(percent)} of the time {they} only copied or set memory."))
    if loader_recorded and (loaded := _loading_percent(steps)) is not None:
        losses.append((loaded, _LOADED.format(wording.whole_percent(loaded), _basis(steps))))
    percent, sentence = max(losses, key=lambda loss: loss[0])
    return sentence if percent >= WORTH_NAMING_PERCENT else ""


def _by_rank(breakdown: Sequence[DeviceTime]) -> str:
    """How the wait for communication differs between the ranks: ", from 10 % on rank 5 to 19 % on rank 2"; empty where it hardly does."""
    ranked = sorted((100 * d.exposed_communication_ns / d.span_ns, d.rank) for d in breakdown if d.span_ns and d.rank is not None)
    if len(ranked) < 2 or ranked[-1][0] - ranked[0][0] < _UNEVEN_POINTS:
        return ""
    (low, least), (high, most) = ranked[0], ranked[-1]
    return f", from {wording.whole_percent(low)} on rank {least} to {wording.whole_percent(high)} on rank {most}"


def _step_sentence(steps: Steps) -> str:
    timed = _main_steps(steps)
    spread = quantiles(pl.Series([step.duration_ns for step in timed], dtype=pl.Int64))
    if spread is None:
        return ""
    if spread.count == 1:
        return f"The only step took {wording.duration(spread.p50)}."
    if found := _uneven(timed):
        (low, fast), (high, slow) = found
        return f"A step took {wording.duration(low)} on {fast} to {wording.duration(high)} on {slow} (medians)."
    return f"A step took {wording.duration(spread.p50)} (median of {wording.count(spread.count)})."


def _uneven(timed: Sequence[Step]) -> tuple[tuple[float, str], tuple[float, str]] | None:
    """Median step and name of the fastest and of the slowest process, of steps timed on the host, where these differ much; else None."""
    own: dict[tuple[str, int | None, int | None], list[int]] = {}
    for step in timed:
        own.setdefault((step.node, step.rank, step.pid), []).append(step.duration_ns)
    medians = {key: statistics.median(lengths) for key, lengths in own.items()}
    if len(medians) < 2 or any(step.on_device for step in timed):
        return None
    fast, slow = min(medians, key=lambda key: medians[key]), max(medians, key=lambda key: medians[key])
    if medians[slow] <= _UNEVEN_STEPS * medians[fast]:
        return None
    return (medians[fast], wording.process(*fast)), (medians[slow], wording.process(*slow))


def _slow_sentence(steps: Steps) -> str:
    """The longest step, where it took several times as long as the median; empty where it did not."""
    found = _longest(steps)
    if found is None or found[1] < _FAR:
        return ""
    longest, times, name = found
    of = f" of those without a profiler, {name}," if _left_out(steps) else f", {name}, in which {longest.profiled} was on,"
    of = of if longest.profiled or _left_out(steps) else f", {name},"
    return f"The longest{of} took {wording.duration(longest.duration_ns)}, {wording.significant(times)} times as long."


def _longest(steps: Steps) -> tuple[Step, float, str] | None:
    """The longest step of several, how many times the median it took, and its name: "step 120", "step 120 of rank 3". Of steps without a
    profiler that makes them longer, where enough remain."""
    every = _main_steps(steps)
    timed = others_of(every)
    spread = quantiles(pl.Series([step.duration_ns for step in every], dtype=pl.Int64))
    if spread is None or len(timed) < _SEVERAL or spread.p50 <= 0:
        return None
    longest = max(timed, key=lambda step: step.duration_ns)
    several = len({(step.node, step.rank, step.pid) for step in timed}) > 1
    of = f" of {wording.process(longest.node, longest.rank, longest.pid)}" if several else ""
    return longest, longest.duration_ns / spread.p50, f"{wording.step(longest.index, longest.again)}{of}"


def _left_out(steps: Steps) -> int:
    """How many steps with a profiler are no candidates for the longest."""
    timed = _main_steps(steps)
    return len(timed) - len(others_of(timed))


def _loading_sentence(steps: Steps, *, loader_recorded: bool) -> str:
    percent = _loading_percent(steps) if loader_recorded else None
    return _LOADED.format(wording.whole_percent(percent), _basis(steps)) if percent is not None and percent >= WORTH_NAMING_PERCENT else ""


def _loading_percent(steps: Steps) -> float | None:
    loading = _loading(steps)
    return 100 * loading[0] / loading[1] if loading is not None and loading[1] else None


def _medians(sampled: Sequence[MetricUsage]) -> str:
    low, high = min(metric.p50 for metric in sampled), max(metric.p50 for metric in sampled)
    if wording.whole_percent(low) == wording.whole_percent(high):
        return wording.whole_percent(low)
    return f"{low:.0f} to {high:.0f} %, depending on the node"


# -- the line below it -----------------------------------------------------------------------------------------------------


def _subtitle(run: Run, nodes: Sequence[Node], devices: Sequence[Device], processes: Sequence[Process], job: JobStatistics) -> str:
    duration = job.duration_ns
    if duration is None and run.started_at_ns is not None and run.ended_at_ns is not None:
        duration = run.ended_at_ns - run.started_at_ns
    ranks = {process.rank for process in processes if process.rank is not None}
    parts = [
        _machines(nodes, [device for device in devices if device.used]),
        f"{len(ranks)} of {wording.count(run.world_size)} ranks" if ranks and run.world_size and len(ranks) < run.world_size else None,
        run.framework,
        wording.duration(duration) if duration else None,
    ]
    return " · ".join(part for part in parts if part)


def _machines(nodes: Sequence[Node], used: Sequence[Device]) -> str:
    """Nodes and the GPUs that were used: "2 nodes x 4 H100", "3 GPUs on 2 nodes", "1 node"."""
    if not nodes:
        return ""
    machines = wording.plural(len(nodes), "node")
    if not used:
        return machines
    per_node = Counter(device.node for device in used)
    models = {short_model(device.name) for device in used}
    model = models.pop() if len(models) == 1 else None
    if all(node.hostname.startswith(_UNKNOWN_HOST) for node in nodes):  # how many machines there were is not known either
        return f"{len(used)} {model or ('GPU' if len(used) == 1 else 'GPUs')}, host unknown"
    counts = set(per_node.values())
    if len(per_node) == len(nodes) and len(counts) == 1:
        n = counts.pop()
        return f"{machines} x {n} {model or ('GPU' if n == 1 else 'GPUs')}"
    return f"{len(used)} {model or ('GPU' if len(used) == 1 else 'GPUs')} on {machines}"


# -- the tiles -------------------------------------------------------------------------------------------------------------


def _on_the_host(run: Run, usage: SystemUsage, steps: Steps) -> list[Tile | None]:
    """What stands in the place of the five figures where nothing was recorded of a GPU: processors, the longest step, memory. A recording
    of postrun says nothing of a GPU: there they stand also where they are not known."""
    cpu = [metric for metric in usage.nodes if metric.metric == "cpu"]
    memory = [metric for metric in usage.nodes if metric.metric == "cpu_memory"]
    tiles: list[Tile | None] = [None] * 5
    if any(source.format == _RECORDED for source in run.sources):
        few = f"fewer than {_SEVERAL} steps{' without a profiler' if _left_out(steps) else ''}" if steps.steps else "no steps recorded"
        tiles[0] = _unknown("cpu_utilisation", "CPU utilisation (median)", "processors were not sampled", "system-usage")
        tiles[2] = _unknown("longest_step", "longest step", few, "steps")
        tiles[4] = _unknown("main_memory", "main memory", "memory was not sampled", "system-usage")
    if cpu:
        detail = f"p95 {'up to ' if len(cpu) > 1 else ''}{wording.whole_percent(max(m.p95 for m in cpu))}"
        lowest = min(metric.p50 for metric in cpu)
        tiles[0] = Tile("cpu_utilisation", "CPU utilisation (median)", _medians(cpu), detail, "system-usage", lowest)
    if found := _longest(steps):
        longest, times, name = found
        without = ", without profiled steps" if _left_out(steps) else f", with {longest.profiled} on" if longest.profiled else ""
        detail = f"{name}, {wording.significant(times)} times the median{without}"
        tiles[2] = Tile("longest_step", "longest step", wording.duration(longest.duration_ns), detail, "steps", longest.duration_ns, "ns")
    if memory:
        most = max(memory, key=lambda metric: metric.max)
        detail = "of host memory at most" + (f", on {most.node}" if len(memory) > 1 else "")
        tiles[4] = Tile("main_memory", "main memory", wording.percent(most.max), detail, "system-usage", most.max)
    return tiles


def _gpu_busy(breakdown: Sequence[DeviceTime], sampled: Sequence[MetricUsage]) -> Tile:
    span = sum(device.span_ns for device in breakdown)
    p95 = (
        f"p95 of utilisation {'up to ' if len(sampled) > 1 else ''}{wording.whole_percent(max(m.p95 for m in sampled))}" if sampled else ""
    )
    if span:
        busy = 100 * sum(device.busy_ns for device in breakdown) / span
        detail = p95 or f"of the span of {wording.plural(len(breakdown), 'GPU')}"
        return Tile("gpu_busy", "GPU busy", wording.percent(busy), detail, "time-breakdown", busy)
    if sampled:
        lowest = min(metric.p50 for metric in sampled)
        return Tile("gpu_busy", "GPU utilisation (median)", _medians(sampled), p95, "system-usage", lowest)
    return _unknown("gpu_busy", "GPU busy", "no GPU activity recorded", "time-breakdown")


def _step_time(steps: Steps) -> Tile:
    timed = _main_steps(steps)
    spread = quantiles(pl.Series([step.duration_ns for step in timed], dtype=pl.Int64))
    if spread is None:
        return _unknown("step_time", "step time", "no steps recorded", "steps")
    if found := _uneven(timed):
        (low, fast), (high, slow) = found
        detail = f"median of {slow}, the slowest; {wording.duration(low)} on {fast}, on the host"
        return Tile("step_time", "step time", wording.duration(high), detail, "steps", high, "ns")
    if spread.count >= _SEVERAL:
        details = [f"p95 {wording.duration(spread.p95)}"]
    else:
        details = [f"median of {spread.count} steps" if spread.count > 1 else "one step"]
    if not timed[0].on_device:
        details[0] += " on the host"
    elif spread.count > 1 and (loading := _loading(steps)) and loading[1] / loading[2] > _LONGER * spread.p50:
        # The device work of a step leaves out what comes before its first launch, such as data loading.
        details += ["on the GPU", f"{wording.duration(loading[1] / loading[2])} from step to step on average"]
    return Tile("step_time", "step time", wording.duration(spread.p50), ", ".join(details), "steps", spread.p50, "ns")


def _exposed_communication(breakdown: Sequence[DeviceTime], steps: Steps) -> Tile:
    key, label, anchor = "exposed_communication", "exposed communication", "time-breakdown"
    span = sum(device.span_ns for device in breakdown)
    if not span:
        return _unknown(key, label, "no GPU activity recorded", anchor)
    if not any(device.communication_ns for device in breakdown):
        return _unknown(key, label, "no collective kernels recorded", anchor)
    exposed = sum(device.exposed_communication_ns for device in breakdown)
    # Per step and GPU: over the GPUs whose process has steps with device work.
    counts = Counter((step.node, step.rank, step.pid) for step in _main_steps(steps) if step.on_device)
    per_gpu = [(device.exposed_communication_ns, counts[device.node, device.rank, device.pid]) for device in breakdown]
    stepped = sum(n for _, n in per_gpu)
    detail = f"of the span of {wording.plural(len(breakdown), 'GPU')}"
    if stepped:
        detail = f"{wording.duration(sum(ns for ns, n in per_gpu if n) / stepped)} per step"
    return Tile(key, label, wording.percent(100 * exposed / span), detail, anchor, 100 * exposed / span)


def _data_loading(steps: Steps, *, loader_recorded: bool, named_ns: int) -> Tile:
    key, label, anchor = "data_loading", "data loading", "steps"
    loading = _loading(steps)
    if loading is None and steps.parts:
        numbers = {number for part in steps.parts for number in part.numbers}
        one = len(numbers) == 1
        traced = f"only {'step' if one else 'steps'} {wording.numbered(numbers)} {'was' if one else 'were'} traced"
        partly = {number for part in steps.parts for number in part.partly}
        more = f" (and a part of step {wording.numbered(partly)})" if partly else ""
        return _unknown(key, label, f"{traced}{more}, which {'is' if one else 'are'} not typical", anchor)
    if steps.parts_absent is not None:
        return _unknown(key, label, steps.parts_absent, anchor)
    if loading is None or not loading[1]:
        profiled = "no profiled steps" if any(step.phase for step in steps.steps) else "nothing annotated inside of the steps"
        return _unknown(key, label, profiled if steps.steps else "no steps recorded", anchor)
    if not loader_recorded:
        annotated = all(part.annotated for part in steps.parts)
        if named_ns and not annotated:
            return _unknown(key, label, f"no data-loader events; ranges named so took {wording.duration(named_ns)}", anchor)
        return _unknown(key, label, "no part of a step named as data loading" if annotated else "no data-loader events recorded", anchor)
    waited, whole, count = loading
    share = 100 * waited / whole
    return Tile(key, label, wording.percent(share), f"{wording.duration(waited / count)} per step{_basis(steps)}", anchor, share)


def _basis(steps: Steps) -> str:
    """Of which steps the parts are known, where of some only: " in the 5 steps that were traced"; empty where of all."""
    some = [part for part in steps.parts if part.typical and part.numbers]
    return f" in the {wording.plural(sum(part.steps for part in some), 'step')} that were traced" if some else ""


def _lower_precision(precision: Precision) -> Tile:
    key, label, anchor = "lower_precision", "lower precision", "precision"
    if not precision.matrix or not sum(share.total_ns for share in precision.matrix):
        return _unknown(key, label, "no matrix kernels recorded", anchor)
    unknown = sum(share.percent for share in precision.matrix if share.name == "unknown")
    if all(share.name == "unknown" for share in precision.matrix):
        return _unknown(key, label, "precision of the matrix kernels is unknown", anchor)
    # Shares are ordered by time: the first is the main one.
    low = [share for share in precision.matrix if share.name in BELOW_FP32]
    named = " and ".join(f"{wording.whole_percent(share.percent)} {share.name}" for share in low[:2]) if len(low) > 1 else ""
    parts = [f"of {wording.duration(sum(share.total_ns for share in precision.matrix))} in matrix kernels"]
    parts += [named or low[0].name] if low else []
    if unknown >= _UNKNOWN_PERCENT:
        parts.append(f"{wording.whole_percent(unknown)} unknown")
    share = float(sum(share.percent for share in low))
    return Tile(key, label, wording.percent(share), ", ".join(parts), anchor, share)


def _unknown(key: str, label: str, why: str, anchor: str) -> Tile:
    return Tile(key, label, NOT_KNOWN, why, anchor)


def _main_steps(steps: Steps) -> list[Step]:
    return main_steps(steps.steps)


def _loading(steps: Steps) -> tuple[float, float, int] | None:
    """Data loading and step time over all steps of all processes, in nanoseconds, and how many steps; None without step parts that may
    stand for all steps."""
    parts = [part for part in steps.parts if part.typical]
    if not parts:
        return None
    waited = sum(part.mean_ns.get("data_loader", 0.0) * part.steps for part in parts)
    whole = sum(part.mean_step_ns * part.steps for part in parts)
    return waited, whole, sum(part.steps for part in parts)


# -- what is not as it should be -------------------------------------------------------------------------------------------


def _warnings(run: Run, notes: Iterable[Note]) -> tuple[str, ...]:
    listed = list(notes)
    found = []
    if run.status == "partial":
        found.append(_PARTIAL[_lost(run, listed)])
    elif run.status in ("failed", "stopped"):
        found.append(f"the run {'failed' if run.status == 'failed' else 'was stopped'}")
    if run.relative_times:
        found.append("times are relative: no source has the time of day")
    found += [note.message for note in listed if note.severity == "error"][:3]
    lesser = [note for note in listed if note.severity == "warning"]
    found += [note.message for note in lesser if note.code in _URGENT]
    rest = sum(note.code not in _URGENT for note in lesser)
    if rest:
        found.append(f"{wording.plural(rest, 'warning')} of the readers: see data quality")
    return tuple(found)
