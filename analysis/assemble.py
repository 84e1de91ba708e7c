"""How do the single analyses become one Report?"""

from __future__ import annotations

import dataclasses
import time
from importlib import metadata
from typing import Any, Final

from .. import __version__
from ..ingest.store import Store
from . import run_info
from .activity import activity
from .annotations import annotation_groups
from .framework import framework
from .idle import idle
from .job_statistics import job_statistics
from .kernels import categories, kernels
from .launches import launches
from .memory_operations import memory_operations
from .options import Options
from .precision import precision
from .python_profile import python_profile
from .report import Generator, Report
from .steps import steps
from .summary import summary
from .system_usage import system_usage
from .time_breakdown import time_breakdown, whole_devices

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
    found_steps = steps(store)
    job = job_statistics(store)
    usage = system_usage(store)
    return Report(
        generator=_generator(options),
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
            loader_recorded=_loader_recorded(store),
            notes=notes,
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
        activity=activity(store),
        memory_operations=memory_operations(store),
        launches=launches(store, top=options.top),
        idle=idle(store),
        steps=found_steps,
        annotations=annotation_groups(store, options),
        framework=framework(store),
        python_profile=python_profile(store),
        rules=(),
        findings=(),
        data_quality=notes,
        options=_plain(options),
    )


def _generator(options: Options) -> Generator:
    made = time.time_ns() if options.generated_at_ns is None else options.generated_at_ns
    return Generator("postrun", __version__, made, {library: metadata.version(library) for library in _LIBRARIES})


def _loader_recorded(store: Store) -> bool:
    found: bool = store.frame("SELECT EXISTS (FROM host_event WHERE kind = 'loader') AS found").item()
    return found


def _plain(options: Options) -> dict[str, Any]:
    """Options as report.json shows them; the time of making stands in ``generator``."""
    return {key: value for key, value in dataclasses.asdict(options).items() if key != "generated_at_ns"}
