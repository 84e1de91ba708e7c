"""OverallSystemUsage: how much of every node was used. Information, never an issue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from ...report.machine import MetricUsage
from ...report.rules import FINE
from ...report.sample_details import MetricQuantiles, NodeUsage, OverallSystemUsageDetails
from ...toolkit.labels import UNKNOWN_HOST
from ...toolkit.wording import count, plural
from ..evidence.base import Outcome, Parameters, Rule, not_evaluated
from ..evidence.gpus import MOST_ROWS, RECORD
from ..evidence.run_data import RunData

_FIGURES: Final = ("network", "gpu", "cpu", "cpu_memory", "gpu_memory", "io_wait")


class OverallSystemUsage(Rule):
    """The quantiles of the section on system usage, per node, with its sentence about each."""

    name = "OverallSystemUsage"
    category = "system"
    informs = True
    needs = "System metrics: samples of GPU and CPU utilization, memory and I/O wait."
    checks = "Reports maximum, p99, p95, p50 and minimum of network, GPU, CPU, their memory and I/O wait of each node."
    condition = "never: it only informs"
    advice = "Choose an instance type that fits the resources the run uses."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        usage = [row for row in run.usage.nodes if row.metric in _FIGURES]
        if not usage:
            return not_evaluated("no system metrics and no kernel activity in this run", RECORD)
        sentences = dict(run.usage.statements)
        metrics: dict[str, list[MetricQuantiles]] = {}
        for row in usage:
            metrics.setdefault(row.node, []).append(MetricQuantiles.of(row))
        nodes = tuple(NodeUsage(node, sentences.get(node), tuple(rows)) for node, rows in metrics.items())
        details = OverallSystemUsageDetails(nodes[:MOST_ROWS], max(len(nodes) - MOST_ROWS, 0) or None)
        return Outcome(FINE, datapoints=sum(row.samples for row in usage), details=details, finding=_finding(usage, sentences))


def _finding(usage: Iterable[MetricUsage], sentences: Mapping[str, str]) -> str:
    """Return the sentence of one node, or the number of nodes of each kind."""
    nodes = {row.node for row in usage}
    if len(nodes) == 1 and sentences:
        node, sentence = next(iter(sentences.items()))
        return sentence if node == UNKNOWN_HOST else f"{node}: {sentence}"
    kinds = Counter(_kind(sentences.get(node)) for node in nodes)
    return f"{plural(len(nodes), 'machine')}: {', '.join(f'{count(number)} {kind}' for kind, number in sorted(kinds.items()))}."


def _kind(sentence: str | None) -> str:
    if sentence is None:
        return "without samples of a GPU or a processor"
    head, colon, _ = sentence.partition(":")
    if colon:
        return head[0].lower() + head[1:] if head[1].islower() else f"with {head}"
    return "without sampled GPU utilization" if sentence.startswith("No GPU") else "neither under-utilized nor well used"
