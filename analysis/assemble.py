"""Assembly of a Report from the analysis of its sections."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any, Final

import polars as pl

from ..ingest.store.metrics import MEASURED
from ..ingest.store.store import Store
from ..version import __version__
from .causes.groups import process_groups
from .device.allocator_memory import allocator_memory
from .device.launch_queue import launch_queue
from .device.memory_operations import with_outside
from .device.operators import operators
from .device.time_breakdown import gpu_time
from .efficiency.kernel_classes import categories, category_sources
from .efficiency.module_kinds import module_kinds
from .efficiency.operator_calls import operator_calls
from .machine.counters import counters
from .machine.gpu_memory import gpu_memory
from .options import Options
from .python_profile.profile import python_profile
from .report.device import Kernel
from .report.model import Report
from .report.rules import RuleResult
from .report.run import Generator, Summary
from .report.steps import RankComparison
from .rules.engine.engine import evaluate
from .rules.engine.selection import Selection, select
from .rules.evidence.run_data import RunData
from .run import run_info
from .run.actions import actions
from .run.code_coverage import coverage_notes
from .run.goodput import goodput
from .run.job_strip import job_strip
from .run.summary import summary
from .run.summary_data import SummaryData
from .steps.breakdown import step_breakdown
from .steps.loading_ranges import loading_recorded
from .steps.ranges import LOADING
from .steps.ranks import rank_comparison
from .steps.slow import slow_steps

# Libraries whose version can change a figure.
_LIBRARIES: Final = ("duckdb", "polars", "pyarrow")


def assemble(store: Store, options: Options) -> Report:
    """Run all sections of the analysis; see :func:`postrun.analysis.analyze`."""
    with store.unchanged():
        return _report(store, options)


def _report(store: Store, options: Options) -> Report:
    data = RunData(store, options)
    times = data.step_times
    communication, communication_totals = data.collectives
    selection = options.selection or select()
    rules, findings = evaluate(data, selection)
    report = Report(
        generator=generator(options),
        run=run_info.run(store, name=options.name),
        summary=Summary("", "", (), ()),
        nodes=data.nodes,
        devices=data.devices,
        processes=data.processes,
        job_statistics=data.job,
        system_usage=data.usage,
        time_breakdown=data.breakdown,
        kernels=_kernels(data),
        categories=categories(data.kernel_groups),
        category_sources=category_sources(data.kernel_groups),
        precision=data.precision,
        activity=data.activity,
        memory_operations=with_outside(store, data.memory_operations, data.step_data.outside),
        launches=data.launches,
        idle=data.idle,
        steps=data.steps,
        annotations=data.annotations,
        framework=data.framework,
        python_profile=python_profile(store),
        rules=rules,
        findings=findings,
        data_quality=(*run_info.data_quality(store), *coverage_notes(data.code_times.coverage)),
        options=_plain(options, selection, rules),
        counters=counters(store),
        step_breakdown=step_breakdown(store, times, data.step_data),
        rank_comparison=_ranks_compared(data, rules),
        slow_steps=slow_steps(store, times, data.step_data),
        collectives=communication,
        collective_totals=communication_totals,
        roles=data.roles,
        launch_configurations=data.launch_configurations,
        operators=operators(store, data.attributed),
        launch_queue=launch_queue(store),
        gpu_memory=gpu_memory(store),
        allocator_memory=allocator_memory(store),
        program=data.program,
        iterations=data.iterations.rows,
        iteration_kinds=data.iterations.kinds,
        gaps=data.longest_gaps,
        modules=data.code_times.modules,
        module_kinds=module_kinds(data.code_times.modules),
        source_lines=data.code_times.lines,
        module_coverage=data.code_times.coverage,
        efficiency=data.efficiency,
        operator_calls=operator_calls(store, data.operator_work, data.kernel_groups, data.sites),
        gpu_time=gpu_time(store, data.whole_devices),
    )
    ranked, recommended = actions(report)
    report = replace(
        report,
        findings=ranked,
        actions=recommended,
        job_strip=job_strip(store, report),
        goodput=goodput(store, report, data.step_data, options.price_per_gpu_hour),
    )
    page = SummaryData(report, data.whole_devices, _loader_recorded(data), _traced(store))
    return replace(report, summary=summary(page))


def _kernels(data: RunData) -> tuple[Kernel, ...]:
    """Return the kernels with module, roof and their work outside of the steps."""
    kernels = data.located_kernels
    outside = data.step_data.outside
    if outside.is_empty():
        return kernels
    summed = outside.group_by("name").agg(count=pl.len(), time=(pl.col("end") - pl.col("start")).sum())
    names = data.store.frame("SELECT id AS name, text FROM name WHERE list_contains(?, id)", [summed["name"].drop_nulls().to_list()])
    known = {text: (count, time) for count, time, text in summed.join(names, on="name").select("count", "time", "text").iter_rows()}
    none = (0, 0)
    return tuple(replace(row, outside_count=known.get(row.name, none)[0], outside_ns=known.get(row.name, none)[1]) for row in kernels)


def generator(options: Options) -> Generator:
    """Describe who makes a report, when, and with what."""
    generated_at_ns = time.time_ns() if options.generated_at_ns is None else options.generated_at_ns
    return Generator("postrun", __version__, generated_at_ns, {library: metadata.version(library) for library in _LIBRARIES})


def _ranks_compared(data: RunData, rules: Sequence[RuleResult]) -> RankComparison:
    threshold = _straggler_threshold(rules)
    if len(data.step_data.ranked) < 2:
        return rank_comparison(data.store, threshold, data.step_times, data.step_data)
    roles = data.peers.roles if data.peers.pipeline else None
    known = data.peers.source != "unknown"
    numbers = process_groups(data.store).ranks
    return rank_comparison(data.store, threshold, data.step_times, data.step_data, roles, roles_known=known, numbers=numbers)


def _loader_recorded(data: RunData) -> bool:
    annotated = any(part.annotated and LOADING in part.mean_ns for part in data.steps.parts)
    return annotated or loading_recorded(data.store, data.step_data.loading)


def _straggler_threshold(rules: Sequence[RuleResult]) -> float | None:
    return next((rule.parameters["threshold"] for rule in rules if rule.rule == "StragglerRank" and "threshold" in rule.parameters), None)


def _plain(options: Options, selection: Selection, rules: Sequence[RuleResult]) -> dict[str, Any]:
    """Return the choices of the options and rules that report.json shows."""
    changed = {
        f"{result.rule}_{name}": value
        for result in rules
        if result.category != "report"
        for name, value in result.changed_parameters.items()
    }
    return {
        "top": options.top,
        "histograms": options.histograms,
        "name": options.name,
        "preset": selection.preset,
        "rules": [result.rule for result in rules],
        "parameters": changed,
        **({"peaks": dict(options.peaks)} if options.peaks else {}),
        **({"price_per_gpu_hour": list(options.price_per_gpu_hour)} if options.price_per_gpu_hour else {}),
    }


def _traced(store: Store) -> int:
    """Count the processes with at least one event."""
    tables = ("annotation", "host_event", "device_event", "python_profile", "step")
    parts = [f"SELECT process FROM {table}" for table in tables if store.has_rows(table)]
    if store.has_rows("sample"):
        parts.append(f"SELECT unit FROM sample WHERE NOT ({MEASURED})")
    if not parts:
        return 0
    return int(store.frame(f"SELECT count(DISTINCT process) FROM ({' UNION '.join(parts)}) AS t(process)").item())
