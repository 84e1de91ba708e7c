"""Names that a report has from the run, as opposed to words of postrun: they are untrusted wherever a text contains them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from ...analysis.compare.alike import GPU, HYPERPARAMETER
from ...analysis.report.comparison import Comparison
from ...analysis.report.model import Report
from ...analysis.toolkit.labels import UNKNOWN_HOST, short_model


def run_names(report: Report) -> Iterator[str]:
    """Yield the names of hosts, files, kernels, modules, ranges and settings."""
    for text in _names(report):
        if text and not text.startswith(UNKNOWN_HOST):
            yield text


def _names(report: Report) -> Iterator[str | None]:
    run, framework = report.run, report.framework
    yield from (run.name, run.framework, run.instance_type, *run.resources)
    for pairs in (run.hyperparameters, run.labels, run.metadata):
        yield from (*pairs, *pairs.values())
    for path in (*(source.path for source in run.sources), *(note.file for note in report.data_quality)):
        yield from (path, PurePath(path).name) if path else ()
    for node in report.nodes:
        yield node.hostname
    for device in report.devices:
        yield from (device.node, device.name, short_model(device.name), device.uuid)
    for process in report.processes:
        yield from (process.node, process.label)
    for kernel in report.kernels:
        yield from (kernel.name, kernel.short_name, kernel.operator)
    for operator in report.operators.rows if report.operators else ():
        yield operator.name
    for rows in (framework.cpu_operators, framework.gpu_operators, framework.collectives, framework.phases):
        yield from (row.name for row in rows)
    for collective in report.collectives:
        yield from (collective.group, collective.group_description)
    for annotation in report.annotations.groups:
        yield from (annotation.name, annotation.phase)
    for steps in report.steps.groups:
        yield from (steps.node, steps.phase)
    for parts in report.steps.parts:
        yield from (*parts.mean_ns, *parts.loading_names) if parts.annotated else ()
    for module in (*report.modules, *report.module_kinds):
        yield module.path
    for line in report.source_lines:
        yield from (line.line, line.function)
    for gap in report.gaps:
        yield from (gap.before, gap.after, gap.frame)
    for finding in report.findings:
        yield from (finding.module, finding.source_line)
    for group in report.python_profile.groups:
        for row in group.rows:
            yield from (row.function, row.short)


def comparison_names(comparison: Comparison) -> Iterator[str]:
    """Yield the names of both runs in the sentences of a comparison."""
    for text in _names_compared(comparison):
        if text and not text.startswith(UNKNOWN_HOST):
            yield text


def _names_compared(comparison: Comparison) -> Iterator[str | None]:
    for side in (comparison.base, *comparison.baselines, comparison.new):
        yield from (side.name, side.given)
    for difference in comparison.differences:
        if difference.name.startswith(HYPERPARAMETER):
            yield difference.name.removeprefix(HYPERPARAMETER)
        if difference.name == GPU:
            for model in (*difference.base.split(", "), *difference.new.split(", ")):
                yield from (model, short_model(model))
    for kernel in comparison.kernels:
        yield from (kernel.short_name, *kernel.base_names, *kernel.new_names)
    for row in (*comparison.operators, *comparison.host_parts):
        yield row.name
    for call in comparison.operator_calls:
        yield from (call.operator, call.module, call.base_module)
    yield comparison.basis.name
