"""The report of one run of a night: fetch, load, analyze, render, upload, and write the done-marker last.

:func:`report_run` is the unit of work that every engine runs: it needs only its task, and repeating it has the same result.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from .. import modes, temporary
from ..analysis.compare.utilization import sampled_mean
from ..analysis.report.model import Report
from ..analysis.steps.step_time import main_steps, step_times
from ..errors import InputError, PostrunError, RenderError, database_problem
from ..garbage import collected_rarely
from ..ingest.not_read import FORMATS_READ
from ..ingest.object_store.objects import ChangedError, Objects, ObjectStoreError
from ..ingest.object_store.open import open_objects
from ..ingest.object_store.sides import Side
from ..ingest.object_store.urls import is_url
from ..ingest.store.files import check_finished
from ..report_templates.output.render import PLACES
from ..version import REPORT, __version__
from . import gpu_hours, hard_limit, places, reasons
from .discover import fingerprint
from .done_markers import marker
from .model import FoundRun, Row, Task

if TYPE_CHECKING:
    from ..analysis.rules.engine.selection import Selection
    from ..ingest.store.store import Store
    from ..report_templates.output.pdf import Printer, PrinterHere

LOG: Final = "postrun.log"  # next to the report after an error: the error with all tracebacks
_FETCHED_AT_ONCE: Final = 8
_TIMES: Final = 2  # how often a changing run is read before it is left to the next night
_SHARE_OF_DISK: Final = 0.9
_PDF_TIMEOUT_S: Final = 300.0
_TYPES: Final = {
    ".html": "text/html; charset=utf-8", ".json": "application/json", ".log": "text/plain; charset=utf-8", ".pdf": "application/pdf",
    ".md": "text/markdown; charset=utf-8", ".xml": "application/xml",
}  # fmt: skip


Prepare = Callable[[Task, Objects, Path], tuple[Path, Callable[[], "Store"]]]
"""Provides the input of a run in a folder: the run's path there, and a function that opens its store. Errors of that function name this
path."""


def report_run(task: Task, prepare: Prepare | None = None) -> Row:
    """Report a run and return its row; the report and the done-marker exist then.

    A run that cannot be reported has the state "failed", a reason, and no done-marker; LOG with the traceback is where the report would be.
    Raise ObjectStoreError if the store fails or the run is being written (ChangedError): another attempt may succeed. From the second
    attempt on the PDF is printed by a process of its own, which its libraries may end. ``prepare``: creates the run's store, instead of
    from its files.

    If objects change or disappear while they are read, the run is read again in its new state, and its row has the new fingerprint."""
    modes.set_umask(task.options.mode)  # not undone: this is a process of the nightly, or one of its workers
    modes.of_session(task.options.mode)
    for left in reversed(range(_TIMES)):
        try:
            return _reported(task, prepare or _prepare_all)
        except ChangedError:
            if not left or prepare is not None:
                raise
        task = dataclasses.replace(task, run=_as_it_is(task.run, source_of(task)))
    raise AssertionError


def _reported(task: Task, prepare: Prepare) -> Row:
    began = time.monotonic()
    out = opened(task.out)
    folder = places.report_folder(task.run, task.options)
    row = Row(
        id=task.run.id, state="failed", kind=task.run.kind, fingerprint=task.run.fingerprint,
        options=places.options_digest(task.options), bytes=task.run.bytes, files=len(task.run.objects), attempts=task.attempt,
        report_version=REPORT, postrun=__version__, tickets=task.tickets, night=task.night,
    )  # fmt: skip
    try:
        with collected_rarely(), workplace() as work:
            report, problem = _make_report(task, work, prepare)
            written = _upload(out, folder, work / "out")
            _renew(out, places.latest_folder(task.run.id), work / "out")
    except ObjectStoreError:
        raise
    except Exception as error:
        if _log(task, out, folder):
            row = dataclasses.replace(row, folder=folder, written=(LOG,))
        reason, ours = _reason(error, f"{folder}/{LOG}"), _is_of_machine(error)
        return dataclasses.replace(row, reason=reason, of_machine=ours, seconds=time.monotonic() - began, reported_at_ns=time.time_ns())
    finally:
        gc.collect()  # the cyclic garbage of this run must not burden the next
    reported = dataclasses.replace(
        row, state="reported", folder=folder, written=written, seconds=time.monotonic() - began, reported_at_ns=time.time_ns(),
        **figures(report),
    )  # fmt: skip
    if problem is not None:
        reported = dataclasses.replace(reported, warnings=(*reported.warnings, problem))
    out.write(places.done(task.run.id), marker(reported), content_type=_TYPES[".json"])
    return reported


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """Provide a temporary folder."""
    try:
        folder = temporary.Folder()
    except OSError as error:
        raise InputError(f"no temporary folder can be made ({error.strerror or error}); set TMPDIR to a folder with space") from error
    with folder as path:
        yield Path(path)


@lru_cache(8)
def opened(url: str, *, links: bool = True, side: Side = "out") -> Objects:
    """Open a store or a folder, whose connections are kept from run to run."""
    return open_objects(url, links=links, side=side)


def source_of(task: Task) -> Objects:
    """Return the run's source. Links below a local source are not followed."""
    return opened(task.source, links=False, side="source")


def _prepare_all(task: Task, source: Objects, work: Path) -> tuple[Path, Callable[[], Store]]:
    """Prepare all files of the run."""
    from ..ingest import ingest

    path = fetch(task, source, work)
    return path, partial(ingest, [path], linked=linked(task), **task.options.of_store)


def _make_report(task: Task, work: Path, prepare: Prepare) -> tuple[Report, str | None]:
    """Write the report below ``work``/out; return it, and why there is no PDF."""
    from .. import api
    from ..analysis import Options

    options = task.options
    output = api.OutputOptions(
        work / "out", options.formats, options.paper, task.options.look, options.timeline_events, pdf_timeout_s=_PDF_TIMEOUT_S
    )
    try:
        result = api.make_report(
            _opened_run(task, work, prepare), output, selection=_selection(task, work),
            options=Options(
                top=options.top, generated_at_ns=task.generated_at_ns, peaks=dict(options.peaks),
                price_per_gpu_hour=options.price_per_gpu_hour,
            ),
            printer=_printer_here() if task.attempt == 1 and "pdf" in options.formats else None,
        )  # fmt: skip
    except RenderError as error:
        (work / "out" / LOG).write_text(_written(traceback.format_exc(), task), encoding="utf-8", errors="replace")
        return error.report, _written(str(error).partition("; written:")[0], task)
    return result.report, None


@contextlib.contextmanager
def _opened_run(task: Task, work: Path, prepare: Prepare) -> Iterator[Store]:
    """Open the run's store. Raise ChangedError if the source changes meanwhile."""
    source = source_of(task)
    path, load = prepare(task, source, work)
    name = _source_name(task, source)
    try:
        with load() as store:
            store.connection.execute("UPDATE source SET path = replace(path, ?, ?)", [str(path), name])
            yield store
    except PostrunError as error:
        check_unchanged(task, source)
        raise InputError(str(error).replace(str(path), name)) from error
    check_unchanged(task, source)


@lru_cache(1)
def _printer_here() -> Printer | PrinterHere:
    from ..report_templates.output.pdf import PrinterHere

    return PrinterHere()


def _selection(task: Task, work: Path) -> Selection:
    from ..analysis.rules.engine import choose as rule_options

    options = task.options
    texts = [
        rule_options.RuleText(str(_rule_file(rule.code, Path(file), work / f"rule-{number}")), rule.kind, dict(rule.values))
        for number, (rule, file) in enumerate(zip(options.custom_rules, options.custom_files, strict=True))
    ]
    custom = rule_options.custom_rules(texts, options.rule_timeout)
    selection, _ = rule_options.chosen(
        rule_options.names(options.rules),
        "service" if options.preset == "service" else "documented",
        settings=rule_options.settings(options.settings, custom),
        of_file={},
        custom_rules=custom,
    )
    return selection


def _rule_file(code: bytes, file: Path, folder: Path) -> Path:
    """Return the file of a custom rule, or a copy if this machine has no such file."""
    with contextlib.suppress(OSError):
        if file.read_bytes() == code:
            return file
    folder.mkdir()
    copy = folder / file.name
    copy.write_bytes(code)
    return copy


# -- the run's files -------------------------------------------------------------------------------------------------------


def fetch(task: Task, source: Objects, work: Path) -> Path:
    """Provide the run's objects below a folder named like the run, or its store.

    A local run is linked, a local run store is copied: a user who can write to the source cannot replace it while it is read."""
    run = task.run
    name = PurePosixPath(task.source.rstrip("/") if run.id == "." else run.id).name or "run"
    root = work / "source" / name
    single = run.kind == "store"
    targets = {one: root if single else root / one.path.removeprefix(f"{run.id}/") for one in run.objects}
    if is_url(task.source) or single:
        free = shutil.disk_usage(work).free
        if run.bytes > free * _SHARE_OF_DISK:
            verb = "downloaded" if is_url(task.source) else "copied"
            raise InputError(
                f"{_source_name(task, source)}: {run.bytes / 1e6:.0f} MB are to be {verb}, but only"
                f" {free / 1e6:.0f} MB are free in {tempfile.gettempdir()}; set TMPDIR to a folder with more space"
            )
    try:
        for folder in {target.parent for target in targets.values()}:
            folder.mkdir(parents=True, exist_ok=True)
        if single and not is_url(task.source):
            [real] = linked(task)
            check_finished(Path(real), _source_name(task, source))
        if not is_url(task.source) and not single:
            for (file, target), real in zip(targets.items(), linked(task), strict=True):
                if os.path.realpath(real) != real:
                    raise ChangedError(f"{source.place(file.path)}: became a link after it was listed; the next night reports the run")
                target.symlink_to(real)
        elif len(targets) == 1:
            source.download(*targets.copy().popitem())
        else:
            with ThreadPoolExecutor(_FETCHED_AT_ONCE) as threads:
                # The first of several errors is raised.
                for _ in threads.map(source.download, targets.keys(), targets.values()):
                    pass
    except ObjectStoreError:
        raise
    except OSError as error:
        raise InputError(
            f"{_source_name(task, source)}: cannot be stored in {tempfile.gettempdir()} ({error.strerror or error});"
            " set TMPDIR to another folder"
        ) from error
    return root


def linked(task: Task) -> tuple[str, ...]:
    """Return the real paths of a local run's files, in order; empty for a URL."""
    if is_url(task.source):
        return ()
    root = os.path.realpath(task.source)
    return tuple(os.path.join(root, one.path) for one in task.run.objects)  # noqa: PTH118 - as realpath gives it


def check_unchanged(task: Task, source: Objects) -> None:
    """Raise ChangedError if a linked file is no longer the one that was listed."""
    for file in () if is_url(task.source) else task.run.objects:
        now = source.head(file.path)
        if now is None or (now.size, now.etag) != (file.size, file.etag):
            raise ChangedError(f"{source.place(file.path)}: changed while it was read; the next night reports the run")


def _as_it_is(run: FoundRun, source: Objects) -> FoundRun:
    """Return the run in its present state. Raise ChangedError if all is gone."""
    with ThreadPoolExecutor(_FETCHED_AT_ONCE) as threads:
        objects = tuple(one for one in threads.map(source.head, [one.path for one in run.objects]) if one is not None)
    if not objects:
        raise ChangedError(f"{source.place(run.objects[0].path)}: removed since it was listed, with all other files of the run")
    return dataclasses.replace(run, objects=objects, fingerprint=fingerprint(objects))


def _source_name(task: Task, source: Objects) -> str:
    return source.url if task.run.id == "." else source.place(task.run.id)


def _upload(out: Objects, folder: str, made_files: Path) -> tuple[str, ...]:
    """Upload all files below a folder; return their paths relative to it."""
    files = sorted(path for path in made_files.rglob("*") if path.is_file())
    for path in files:
        out.write(f"{folder}/{path.relative_to(made_files).as_posix()}", path, content_type=_TYPES.get(path.suffix))
    return tuple(path.relative_to(made_files).as_posix() for path in files)


def _renew(out: Objects, folder: str, made_files: Path) -> None:
    """Replace the files of ``latest``; remove those that the new report lacks."""
    written = _upload(out, folder, made_files)
    rules = PLACES["rule-json"] + "/"
    for file in list(out.list(f"{folder}/")):
        name = file.path.removeprefix(f"{folder}/")
        # Another run may have its own folder below.
        ours = name in (*PLACES.values(), LOG) or (name.startswith(rules) and "/" not in name.removeprefix(rules))
        if ours and name not in written:
            out.delete(file.path)


# -- results ----------------------------------------------------------------------------------------------------------


def _is_of_machine(error: Exception) -> bool:
    """Decide whether the machine lacked disk, memory or a writable folder."""
    if hard_limit.explained(error) is not None:
        return False
    return isinstance(error, MemoryError | OSError) or (type(error).__name__ == "IOException" and database_problem(error) is not None)


def _reason(error: Exception, log: str) -> str:
    if isinstance(error, PostrunError):
        return str(error).partition(FORMATS_READ)[0]
    if (limit := hard_limit.explained(error)) is not None:
        return limit
    if (problem := database_problem(error)) is not None:
        return problem
    kind = type(error).__name__
    first_line = (str(error).splitlines() or [""])[0][:500]
    if isinstance(error, MemoryError):
        return f"there is not enough memory for it ({first_line or kind}); give it more, or fewer at a time"
    if isinstance(error, OSError):
        return f"{error.filename or tempfile.gettempdir()}: {error.strerror or first_line}; set TMPDIR to a folder with more space"
    return f"{reasons.INTERNAL}{kind}: {first_line}; all of it stands in {log}"


def _log(task: Task, out: Objects, folder: str) -> bool:
    """Upload the log of the current exception; print it if that fails."""
    text = _written(traceback.format_exc(), task)
    try:
        out.write(f"{folder}/{LOG}", text.encode("utf-8", "replace"), content_type=_TYPES[".log"])
    except (InputError, OSError):
        print(text, flush=True)  # noqa: T201 - the output of a worker, which the pool reads
        return False
    return True


def _written(text: str, task: Task) -> str:
    """Return a text of the report's folder; unchanged without --redact."""
    redact = task.options.redact
    return reasons.written(text, task.run, task.source, task.out, redact) if redact else text


def figures(report: Report) -> dict[str, Any]:
    """Return a report's fields of a Row (docs/definitions.md), None if unknown."""
    tiles = {tile.key: tile.number for tile in report.summary.figures}
    used = [device for device in report.devices if device.used]
    ranks = {process.rank for process in report.processes if process.rank is not None}
    steps = main_steps(report.steps.steps)
    active = report.system_usage.gpu_active
    memory = [usage.max for usage in report.system_usage.nodes if usage.metric == "gpu_memory" and "controller" not in usage.unit]
    models = Counter(device.name for device in used if device.name)
    return {
        "name": report.run.name,
        "labels": dict(report.run.labels),
        "status": report.run.status,
        "started_ns": None if report.run.relative_times else report.run.started_at_ns,
        "duration_ns": report.job_statistics.duration_ns,
        "nodes": len(report.nodes) or None,
        "ranks": report.run.world_size or len(ranks) or None,
        "gpus": len(used) or None,
        "gpu_name": ", ".join(sorted(models)) or None,
        "headline": report.summary.headline,
        "gpu_busy_percent": tiles.get("gpu_busy") if any(device.span_ns for device in report.time_breakdown) else None,
        "gpu_active_percent": active.active_percent if active is not None else None,
        "gpu_active_derived": active.derived if active is not None else None,
        "gpu_utilization_percent": sampled_mean(report, "gpu"),
        "steps": len(steps) or None,
        "step_median_ns": round(times.median_ns) if (times := step_times(report.steps)) else None,
        "exposed_communication_percent": tiles.get("exposed_communication"),
        "gpu_memory_percent": max(memory, default=None),
        "iteration_median_ns": None if (iteration := tiles.get("iteration_time")) is None else round(iteration),
        "mfu_percent": tiles.get("mfu"),
        "data_loading_percent": tiles.get("data_loading"),
        "gpu_memory_peak_bytes": max((row.peak for row in report.allocator_memory or ()), default=None),
        **gpu_hours.columns(report),
        "verdicts": {result.rule: result.verdict for result in report.rules},
        "warnings": report.summary.warnings,
    }
