"""How do the single analyses become one Report?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final

from .. import __version__
from ..ingest.store import MEASURED, Store
from . import run_info
from .activity import activity
from .allocator_memory import allocator_memory
from .annotations import annotation_groups
from .collectives import collectives, communication_kernels
from .counters import counters
from .framework import framework
from .gpu_memory import gpu_memory
from .idle import idle
from .job_statistics import job_statistics
from .kernels import categories, kernels
from .launch_configurations import launch_configurations
from .launch_queue import launch_queue
from .launches import launches
from .memory_operations import memory_operations
from .operators import attribution, operators
from .options import Options
from .places import Places
from .precision import precision
from .python_profile import python_profile
from .rank_comparison import rank_comparison
from .report import Generator, Report, RuleResult, Steps
from .rules.engine import evaluate
from .rules.run_data import RunData
from .rules.samples import Samples
from .rules.selection import Selection, select
from .slow_steps import slow_steps
from .step_breakdown import step_breakdown
from .step_ranges import LOADING
from .step_times import step_times
from .steps import steps
from .summary import summary
from .system_usage import system_usage
from .time_breakdown import time_breakdown, whole_devices
from .utilisation import derived_utilisation

# Libraries whose version can change a figure.
_LIBRARIES: Final = ("duckdb", "polars", "pyarrow")


def assemble(store: Store, options: Options) -> Report:
    """All analyses of ``store``; see :func:`postrun.analysis.analyze`."""
    run = run_info.run(store, name=options.name)
    nodes, devices, processes = run_info.nodes(store), run_info.devices(store), run_info.processes(store)
    notes = run_info.data_quality(store)
    breakdown = time_breakdown(store)
    devices_whole = whole_devices(store, breakdown)
    found_kernels = kernels(store, devices_whole)
    found_precision = precision(found_kernels)
    found_steps, times = steps(store), step_times(store)
    job = job_statistics(store)
    derived = derived_utilisation(store)
    usage = system_usage(store, derived)
    found_activity, found_memory = activity(store), memory_operations(store)
    found_launches, found_idle = launches(store, top=options.top), idle(store)
    attributed = attribution(store)
    found_annotations, found_framework = annotation_groups(store, options), framework(store, attributed)
    communication = communication_kernels(store)
    selection = options.selection or select()
    rules, findings = evaluate(
        RunData(
            store=store,
            places=Places(store),
            samples=Samples(store, derived),
            nodes=nodes,
            devices=devices,
            processes=processes,
            job=job,
            usage=usage,
            breakdown=breakdown,
            whole_devices=devices_whole,
            kernels=found_kernels,
            precision=found_precision,
            activity=found_activity,
            memory_operations=found_memory,
            launches=found_launches,
            idle=found_idle,
            steps=found_steps,
            annotations=found_annotations,
            framework=found_framework,
            top=options.top,
        ),
        selection,
    )
    return Report(
        generator=generator(options),
        run=run,
        summary=summary(
            run=run,
            nodes=nodes,
            devices=devices,
            processes=processes,
            job=job,
            usage=usage,
            breakdown=devices_whole,
            precision=found_precision,
            steps=found_steps,
            loader_recorded=_loader_recorded(store, found_steps),
            notes=notes,
            traced=_traced(store),
            named_loading_ns=sum(part.total_ns for part in found_framework.step_parts if part.name == "data loading"),
        ),
        nodes=nodes,
        devices=devices,
        processes=processes,
        job_statistics=job,
        system_usage=usage,
        time_breakdown=breakdown,
        kernels=found_kernels,
        categories=categories(found_kernels),
        precision=found_precision,
        activity=found_activity,
        memory_operations=found_memory,
        launches=found_launches,
        idle=found_idle,
        steps=found_steps,
        annotations=found_annotations,
        framework=found_framework,
        python_profile=python_profile(store),
        rules=rules,
        findings=findings,
        data_quality=notes,
        options=_plain(options, selection, rules),
        counters=counters(store),
        step_breakdown=step_breakdown(store, times),
        rank_comparison=rank_comparison(store, _straggler_threshold(rules), times, communication),
        slow_steps=slow_steps(store, times),
        collectives=collectives(store, communication),
        launch_configurations=launch_configurations(store),
        operators=operators(store, attributed),
        launch_queue=launch_queue(store),
        gpu_memory=gpu_memory(store),
        allocator_memory=allocator_memory(store),
    )


def generator(options: Options) -> Generator:
    """Who makes a report, when, and with what."""
    made = time.time_ns() if options.generated_at_ns is None else options.generated_at_ns
    return Generator("postrun", __version__, made, {library: metadata.version(library) for library in _LIBRARIES})


def _loader_recorded(store: Store, found: Steps) -> bool:
    if any(part.annotated and LOADING in part.mean_ns for part in found.parts):
        return True
    recorded: bool = store.frame("SELECT EXISTS (FROM host_event WHERE kind = 'loader') AS found").item()
    return recorded


def _straggler_threshold(rules: Sequence[RuleResult]) -> float | None:
    return next((rule.parameters["threshold"] for rule in rules if rule.rule == "StragglerRank" and "threshold" in rule.parameters), None)


def _plain(options: Options, selection: Selection, rules: Sequence[RuleResult]) -> dict[str, Any]:
    """Options as report.json shows them; the time of making stands in ``generator``, all parameters in ``rules``."""
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
    }


def _traced(store: Store) -> int:
    """Of how many processes there is an event."""
    tables = ("annotation", "host_event", "device_event", "python_profile", "step")
    found = " UNION ".join(f"SELECT process FROM {table}" for table in tables)
    counted = f"SELECT unit FROM sample WHERE NOT ({MEASURED})"
    return int(store.frame(f"SELECT count(*) FROM ({found} UNION {counted}) AS t(process) WHERE process IS NOT NULL").item())
