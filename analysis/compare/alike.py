"""Circumstances in which two runs differ, apart from their measurements: two Reports -> Differences, with what each rules out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from ..report.comparison import Difference
from ..report.model import Report
from ..steps.step_time import main_steps
from ..toolkit import wording
from ..toolkit.labels import UNKNOWN_HOST, short_model

_AMOUNT_OF_WORK: Final = re.compile(r"batch|sequence|seq_len|seqlen|accumulat|micro|layers|hidden|parameters|image_?size|resolution", re.I)
_LONGER: Final = 1.1  # captured time of one run / of the other from which the comparison names it
RECORDING: Final = "recording"
GPU: Final = "GPU model"
WORLD: Final = "world size"
ACTIVITY: Final = "GPU activity"
HYPERPARAMETER: Final = "hyperparameter "  # begins the name of a difference
_RECORDED: Final = {True: "recorded", False: "none recorded"}


def differences(base: Report, new: Report) -> tuple[Difference, ...]:
    """List the runs' differences, those that limit the conclusions first."""

    def differing(name: str, value: Callable[[Report], object], limits: str | None = None) -> Iterator[Difference]:
        before, after = value(base), value(new)
        if before and after and before != after:  # an unknown value is not a difference
            yield Difference(name, str(before), str(after), limits)

    rows = [
        *_same_files(base, new),
        *differing(GPU, _models, "times and kernel names follow the GPU: a change need not come from the code"),
        *differing(WORLD, lambda r: r.run.world_size, "work and communication are divided among another number of ranks"),
        *differing("nodes", _nodes, "communication takes other ways between another number of nodes"),
        *differing("GPUs used", lambda r: str(sum(d.used for d in r.devices)), "totals are of another number of GPUs"),
        *differing(ACTIVITY, lambda r: _RECORDED[bool(r.time_breakdown)], "what ran on GPUs is known of one run only: it is not compared"),
        *differing("captured ranks", _ranks, "ranks may do different work: what is seen is not of the same ones"),
        *_partial(base, new),
        *differing("kind of steps", _kind, "a step of one run is not what a step of the other is"),
        *differing("processor cores per node", _cores, "time on the host follows the processor"),
        *differing("instance type", lambda r: r.run.instance_type, "machines of another type differ in more than their GPUs"),
        *_hyperparameters(base, new),
        *differing("framework", lambda r: r.run.framework),
        *differing("precision of most matrix work", lambda r: r.precision.matrix[0].name if r.precision.matrix else None),
        *differing("steps captured", lambda r: wording.count(len(main_steps(r.steps.steps)))),
        *_spans(base, new),
        *differing("rules' preset", lambda r: str(r.options.get("preset"))),
        *differing("version of postrun", lambda r: r.generator.version, "figures of different versions may be defined differently"),
    ]
    return tuple(sorted(rows, key=lambda row: row.limits is None))


def _same_files(base: Report, new: Report) -> Iterator[Difference]:
    """Yield a difference if both reports were made from the same bytes."""
    files = recording(base)
    if files and files == recording(new):
        limits = "both sides are one recording: there is no change to find"
        yield Difference(RECORDING, wording.plural(len(files), "file"), "the same", limits)


def recording(report: Report) -> tuple[str, ...]:
    """Return the hashes of the files of a recording; empty if one is not known."""
    hashes = sorted(source.sha256 or "" for source in report.run.sources if source.events)
    return () if "" in hashes else tuple(hashes)


def _models(report: Report) -> str | None:
    names = sorted({device.name for device in report.devices if device.used and device.name})
    return ", ".join(names) or None


def short_models(report: Report) -> str | None:
    """Word the GPU models, in short if they are known: "A100, V100 and H100"."""
    names = sorted({short_model(d.name) or d.name for d in report.devices if d.used and d.name})
    return " and ".join(names) or None


def _nodes(report: Report) -> str | None:
    hosts = {node.hostname for node in report.nodes}
    return str(len(hosts)) if hosts and not any(host.startswith(UNKNOWN_HOST) for host in hosts) else None


def _ranks(report: Report) -> str | None:
    ranks = sorted(
        {d.rank for d in report.time_breakdown if d.rank is not None} or {p.rank for p in report.processes if p.rank is not None}
    )
    if not ranks:
        return None
    world = report.run.world_size
    if world is not None and len(ranks) == world:
        return "all"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(wording.number_runs(ranks))}{f' of {world}' if world is not None else ''}"


def _partial(base: Report, new: Report) -> Iterator[Difference]:
    states = [report.run.status for report in (base, new)]
    if "partial" in states:
        yield Difference("capture", states[0], states[1], "a trace was cut off or damaged: its totals end where it ends")
    elif states[0] != states[1] and "unknown" not in states:
        yield Difference("how the job ended", states[0], states[1], None)


def _kind(report: Report) -> str | None:
    steps = main_steps(report.steps.steps)
    if not steps:
        return None
    return f"{steps[0].phase or 'without a phase'}, timed on the {'GPU' if steps[0].on_device else 'host'}"


def _cores(report: Report) -> str | None:
    counts = {node.cores for node in report.nodes if node.cores}
    return ", ".join(map(str, sorted(counts))) or None


def _hyperparameters(base: Report, new: Report) -> Iterator[Difference]:
    first, second = base.run.hyperparameters, new.run.hyperparameters
    if not first or not second:
        return
    for name in sorted(first.keys() | second.keys()):
        values = [side.get(name, "not set") for side in (first, second)]
        if values[0] != values[1]:
            work = bool(_AMOUNT_OF_WORK.search(name))
            yield Difference(f"{HYPERPARAMETER}{name}", values[0], values[1], "a step does another amount of work" if work else None)


def _spans(base: Report, new: Report) -> Iterator[Difference]:
    spans = [max((d.span_ns for d in report.time_breakdown), default=0) for report in (base, new)]
    if all(spans) and max(spans) > _LONGER * min(spans):
        yield Difference("time captured on a GPU", wording.duration(spans[0]), wording.duration(spans[1]), None)
