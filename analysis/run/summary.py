"""First page of a report: sections of a report -> headline, subtitle, five tiles, warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ..causes.program import program_words
from ..report.run import Device, Node, Summary
from ..toolkit import wording
from ..toolkit.labels import short_model
from .summary_data import SummaryData
from .summary_headline import headline
from .summary_tiles import tiles
from .summary_warnings import warnings

_UNKNOWN_HOST: Final = "unknown host"  # the readers' name of nodes that no file names


def summary(data: SummaryData) -> Summary:
    """Write the first page."""
    return Summary(headline(data), _subtitle(data), tiles(data), warnings(data.report.run, data.report.data_quality))


def _subtitle(data: SummaryData) -> str:
    """Join the known parts: "2 nodes x 4 H100 · PyTorch 2.13 · 18 min 42 s"."""
    run, duration = data.report.run, data.report.job_statistics.duration_ns
    if duration is None and run.started_at_ns is not None and run.ended_at_ns is not None:
        duration = run.ended_at_ns - run.started_at_ns
    ranks = {process.rank for process in data.report.processes if process.rank is not None}
    parts = [
        _machines(data.report.nodes, [device for device in data.report.devices if device.used]),
        f"{len(ranks)} of {wording.count(run.world_size)} ranks" if ranks and run.world_size and len(ranks) < run.world_size else None,
        run.framework,
        program_words(data.report.program, base=False) if data.report.program else None,
        wording.duration(duration) if duration else None,
    ]
    return " · ".join(part for part in parts if part)


def _machines(nodes: Sequence[Node], used: Sequence[Device]) -> str:
    """Word nodes and used GPUs: "2 nodes x 4 H100", "3 GPUs on 2 nodes"."""
    if not nodes:
        return ""
    machines = wording.plural(len(nodes), "node")
    if not used:
        return machines
    models = {short_model(device.name) for device in used}
    model = models.pop() if len(models) == 1 else None
    gpus = f"{len(used)} {model or ('GPU' if len(used) == 1 else 'GPUs')}"
    if all(node.hostname.startswith(_UNKNOWN_HOST) for node in nodes):  # the number of machines is not known either
        return f"{gpus}, host unknown"
    per_node = Counter(device.node for device in used)
    counts = set(per_node.values())
    if len(per_node) == len(nodes) and len(counts) == 1:
        n = counts.pop()
        return f"{machines} x {n} {model or ('GPU' if n == 1 else 'GPUs')}"
    return f"{gpus} on {machines}"
