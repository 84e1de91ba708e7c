"""First page of a report: sections of a report -> headline, subtitle, figures and tiles, warnings, caveats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ..causes.program import TRAINING, program_words
from ..report.run import Device, Node, Summary
from ..steps.step_time import main_steps
from ..toolkit import wording
from ..toolkit.labels import UNKNOWN_HOST, short_model
from .summary_data import SummaryData
from .summary_headline import headline
from .summary_tiles import figures, tiles
from .summary_warnings import caveats, data_state, warnings

_MEMORY: Final = re.compile(r"\b(\d{1,4}) ?GB\b")  # in the name of a device


def summary(data: SummaryData) -> Summary:
    """Write the first page."""
    run, notes = data.report.run, data.report.data_quality
    ranks = sorted({process.rank for process in data.report.processes if process.rank is not None})
    listed = figures(data)
    steps = {(step.again, step.index) for step in main_steps(data.report.steps.steps) if step.on_device}
    profiled = None if not steps or data.main_iterations is not None else len(steps)
    return Summary(
        headline(data),
        _subtitle(data, len(ranks)),
        tiles(data, listed),
        warnings(run, notes),
        listed,
        caveats(run, ranks, profiled, data.window_ns),
    )


def _subtitle(data: SummaryData, ranks: int) -> str:
    """Join what is known of machines, framework, duration, status, and data."""
    run, duration = data.report.run, data.report.job_statistics.duration_ns
    if duration is None and run.started_at_ns is not None and run.ended_at_ns is not None:
        duration = run.ended_at_ns - run.started_at_ns
    parts = [
        _machines(data.report.nodes, [device for device in data.report.devices if device.used]),
        run.framework,
        words if (words := program_words(data.report.program, base=False)) != TRAINING else None,
        wording.duration(duration) if duration and not (data.apart_ns or data.report.job_statistics.apart_ns) else None,
        run.status if run.status != "unknown" else None,
        f"data: {data_state(run, data.report.data_quality, ranks)}" if run.sources or data.report.processes else None,
    ]
    return " · ".join(part for part in parts if part)


def _machines(nodes: Sequence[Node], used: Sequence[Device]) -> str:
    """Word used GPUs and nodes: "8 × H100 80GB, 2 nodes", "1 node"."""
    if not nodes:
        return ""
    machines = wording.plural(len(nodes), "node")
    if not used:
        return machines
    models = Counter(_model(device.name) for device in used)
    model = next(iter(models)) if len(models) == 1 else None
    gpus = f"{len(used)} × {model}" if model else wording.plural(len(used), "GPU")
    if all(node.hostname.startswith(UNKNOWN_HOST) for node in nodes):  # the number of machines is not known either
        return gpus
    return f"{gpus}, {machines}"


def _model(name: str | None) -> str | None:
    """Return model and memory of a device by its name: "H100 80GB"."""
    model = short_model(name)
    memory = _MEMORY.search(name or "")
    return f"{model} {memory[1]}GB" if model and memory and memory[0] not in model else model
