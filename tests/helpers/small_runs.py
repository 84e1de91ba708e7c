"""Small runs below a folder, and the tasks that report them."""

from __future__ import annotations

import shutil
from pathlib import Path

from postrun.ingest.object_store.objects import ObjectInfo
from postrun.ingest.object_store.open import open_objects
from postrun.nightly.discover import fingerprint, found_runs
from postrun.nightly.model import FoundRun, ReportOptions, Task
from postrun.simulate import Problems, write_demo

AT_NS = 1_772_000_000_000_000_000


def write_run(folder: Path, seed: int = 1, *, steps: int = 3, hosted: bool = False) -> Path:
    """Write a simulated run of one GPU; ``hosted``: with the hosted profiler's files."""
    write_demo(folder, seed=seed, steps=steps, problems=Problems(straggler_rank=None), nodes=1, gpus_per_node=1)
    if not hosted:
        shutil.rmtree(folder / "profiler-output")
    return folder


def found_below(source: str) -> list[FoundRun]:
    return list(found_runs(open_objects(source).list(), now_ns=2**62, settle_ns=0))


def task_of(
    run: FoundRun, source: str, out: str, *, attempt: int = 1, formats: tuple[str, ...] = ("html", "json"), **options: object
) -> Task:
    return Task(run, source, out, ReportOptions(formats=formats, **options), AT_NS, attempt)  # type: ignore[arg-type]


def made_up(run_id: str, objects: tuple[ObjectInfo, ...]) -> FoundRun:
    return FoundRun(run_id, "traces", objects, True, fingerprint(objects))
