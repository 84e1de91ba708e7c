"""How alike are two runs, beside what they measured, and what may therefore not be concluded from a comparison?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ..report.comparison import Difference
from ..report.model import Report, Step
from ..steps.steps import main_steps
from ..toolkit import wording
from ..toolkit.labels import UNKNOWN_HOST, short_model

_AMOUNT_OF_WORK: Final = re.compile(r"batch|sequence|seq_len|seqlen|accumulat|micro|layers|hidden|parameters|image_?size|resolution", re.I)
_LONGER: Final = 1.1
GPU: Final = "GPU model"
WORLD: Final = "world size"
ACTIVITY: Final = "GPU activity"


def differences(base: Report, new: Report) -> tuple[Difference, ...]:
    """In which circumstances the runs differ; those that limit the conclusions first."""
    found = [
        _same_files(base, new),
        _told(GPU, [_models(r) for r in (base, new)], limits="times and kernel names follow the GPU: a change need not come from the code"),
        _told(
            WORLD,
            [str(r.run.world_size) if r.run.world_size is not None else None for r in (base, new)],
            limits="work and communication are divided among another number of ranks",
        ),
        _told("nodes", [_nodes(r) for r in (base, new)], limits="communication takes other ways between another number of nodes"),
        _told("GPUs used", [str(sum(d.used for d in r.devices)) for r in (base, new)], limits="totals are of another number of GPUs"),
        _told(
            ACTIVITY,
            ["recorded" if r.time_breakdown else "none recorded" for r in (base, new)],
            limits="what ran on GPUs is known of one run only: it is not compared",
        ),
        _told(
            "captured ranks", [_ranks(r) for r in (base, new)], limits="ranks may do different work: what is seen is not of the same ones"
        ),
        *_partial(base, new),
        _told(
            "kind of steps",
            [_kind(main_steps(r.steps.steps)) for r in (base, new)],
            limits="a step of one run is not what a step of the other is",
        ),
        _told("processor cores per node", [_cores(r) for r in (base, new)], limits="time on the host follows the processor"),
        _told(
            "instance type", [r.run.instance_type for r in (base, new)], limits="machines of another type differ in more than their GPUs"
        ),
        *_hyperparameters(base, new),
        _told("framework", [r.run.framework for r in (base, new)], limits=None),
        _told(
            "precision of most matrix work", [r.precision.matrix[0].name if r.precision.matrix else None for r in (base, new)], limits=None
        ),
        _told("steps captured", [wording.count(len(main_steps(r.steps.steps))) for r in (base, new)], limits=None),
        *_spans(base, new),
        _told("rules' preset", [str(r.options.get("preset")) for r in (base, new)], limits=None),
        _told(
            "version of postrun",
            [r.generator.version for r in (base, new)],
            limits="figures of different versions may be defined differently",
        ),
    ]
    kept = [one for one in found if one is not None]
    return tuple(sorted(kept, key=lambda one: one.limits is None))


def _same_files(base: Report, new: Report) -> Difference | None:
    """Where both sides were read from the same bytes."""
    hashes = [sorted(source.sha256 or "" for source in report.run.sources if source.events) for report in (base, new)]
    if not hashes[0] or "" in hashes[0] or hashes[0] != hashes[1]:
        return None
    files = wording.plural(len(hashes[0]), "file")
    return Difference("recording", files, "the same", "both sides are one recording: there is no change to find")


def _told(name: str, values: Sequence[str | None], *, limits: str | None) -> Difference | None:
    """A difference of what is known of both; what one run does not tell is no difference."""
    base, new = values
    if base == new or not base or not new:
        return None
    return Difference(name, base, new, limits)


def _models(report: Report) -> str | None:
    names = sorted({device.name for device in report.devices if device.used and device.name})
    return ", ".join(names) or None


def short_models(report: Report) -> str | None:
    """The same for a sentence: A100, V100 and H100; in full where nothing in a name is that of a model."""
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
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {_listed(ranks)}{f' of {world}' if world is not None else ''}"


def _listed(numbers: Sequence[int]) -> str:
    """0, 1, 2, 5 as "0 to 2, 5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low} to {high}" if high > low + 1 else f"{low}, {high}" for low, high in parts)


def _partial(base: Report, new: Report) -> Iterable[Difference]:
    states = [report.run.status for report in (base, new)]
    if "partial" in states:
        yield Difference("capture", states[0], states[1], "a trace was cut off or damaged: its totals end where it ends")
    elif states[0] != states[1] and "unknown" not in states:
        yield Difference("how the job ended", states[0], states[1], None)


def _kind(steps: Sequence[Step]) -> str | None:
    if not steps:
        return None
    return f"{steps[0].phase or 'without a phase'}, timed on the {'GPU' if steps[0].on_device else 'host'}"


def _cores(report: Report) -> str | None:
    counts = {node.cores for node in report.nodes if node.cores}
    return ", ".join(map(str, sorted(counts))) or None


def _hyperparameters(base: Report, new: Report) -> Iterable[Difference]:
    first, second = base.run.hyperparameters, new.run.hyperparameters
    if not first or not second:
        return
    for name in sorted(first.keys() | second.keys()):
        values = [side.get(name, "not set") for side in (first, second)]
        if values[0] != values[1]:
            work = bool(_AMOUNT_OF_WORK.search(name))
            yield Difference(f"hyperparameter {name}", values[0], values[1], "a step does another amount of work" if work else None)


def _spans(base: Report, new: Report) -> Iterable[Difference]:
    spans = [max((d.span_ns for d in report.time_breakdown), default=0) for report in (base, new)]
    if all(spans) and max(spans) > _LONGER * min(spans):
        yield Difference("time captured on a GPU", wording.duration(spans[0]), wording.duration(spans[1]), None)
