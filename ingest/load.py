"""Files of one run -> run store: find them, read each with its reader, then derive the rows that depend on all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .. import modes
from ..errors import PostrunError, UsageError
from ..option_values import redactions
from .checksum import Checksums
from .discover import InputFile, find_files
from .joining.statements import Stated, stated_by
from .not_read import nothing_usable
from .object_store.urls import is_url
from .python_profiles.window import window_of
from .reading import Progress, Reading, gives_events
from .store.format_names import END_MARKER, PYTHON_BESIDE, PYTHON_STATS, PYTHON_TREE, RUN_STORE, TIMELINE
from .store.limits import unpacked_limit
from .store.reader_failures import step
from .store.registry import ReadResult
from .store.store import Store
from .store.texts import storable

if TYPE_CHECKING:
    from .fetch import Fetched
    from .partial import Partials

_EVENT_TABLES: Final = ("device_event", "host_event", "annotation", "step", "sample", "python_profile", "compilation")


def ingest(
    paths: Sequence[str | Path],
    store_path: str | Path | None = None,
    *,
    progress: Progress | None = None,
    name: str | None = None,
    memory_limit: str = "600MB",
    threads: int | None = None,
    max_unpacked: str | None = None,
    redact: Iterable[str] = (),
    linked: Iterable[str] = (),
    same: Iterable[Sequence[str | Path]] = (),
    clock_offsets: Mapping[str, int] | None = None,
) -> Store:
    """Return the files and folders of one run as an open run store.

    The store is at ``store_path``, or in a temporary file that closing it removes. A single run store is copied: see :mod:`.store.foreign`.
    Secrets are masked; ``redact`` selects kinds of conceal.KINDS that are redacted also.
    ``progress`` is called with the current activity and the fraction done (None: unknown). ``name``: of the run, instead of the one in its
    files. Damage of a file is noted in ``ingest_note``, never raised.
    ``max_unpacked``: how much a compressed file may unpack to, such as "50GB" (None: 20 GB or 200 times its size, whichever is larger).
    The URL of an object store represents the objects below it, which are first copied to a temporary folder.
    ``same``: groups of files of one node. ``clock_offsets``: nanoseconds to add to the times of a file. Both name files by path,
    or by the end of it that no other file of the run has.
    Links that lead out of a folder are left out, except to ``linked``, real paths of files.
    Raises InputError if a path does not exist or no usable file is found, UsageError for a run store among other files, and for a
    statement about a file that is not read.
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    if not paths or "" in paths:
        problem = "an empty path was given (a variable that is not set?)" if paths else "nothing given"
        raise UsageError(f"{problem}; give trace files, a folder, a URL or a run store")
    target = Path(store_path) if store_path is not None else None
    report = progress or (lambda text, fraction: None)
    options: dict[str, Any] = {"memory_limit": memory_limit, "threads": threads, "max_unpacked": max_unpacked}
    redact = redactions(redact if isinstance(redact, str) else list(redact))
    stated = stated_by(same, clock_offsets or {})
    ingest_files = partial(_ingest_files, target=target, report=report, name=name, redact=redact, options=options)
    with modes.umask_for(modes.current()) if target is not None else nullcontext():
        if not any(is_url(path) for path in paths):
            return ingest_files(paths, stated=stated, linked=linked)
        from .fetch import fetch

        return _ingest_copies(fetch(paths, report), ingest_files, stated)


def _ingest_copies(fetched: Fetched, ingest_files: Callable[..., Store], stated: Stated) -> Store:
    """Ingest local copies of objects; stored texts and error messages name the URLs."""

    def settle(store: Store) -> None:
        for local, url in fetched.moves():
            store.connection.execute("UPDATE source SET path = replace(path, ?, ?)", [local, url])
            store.connection.execute("UPDATE ingest_note SET message = replace(message, ?, ?)", [local, url])
        for object_name, reason in fetched.left_out:
            store.note("warning", "not_readable", f"The object was left out: {reason}.", file=storable(object_name))

    try:
        store = ingest_files(fetched.paths, settle=settle, stated=stated.renamed(fetched.local_name))
        if store.copied_from is not None:
            store.copied_from = fetched.with_urls(store.copied_from)
        return store
    except PostrunError as error:
        error.args = tuple(fetched.with_urls(part) if isinstance(part, str) else part for part in error.args)
        raise
    finally:
        fetched.folder.cleanup()


def _ingest_files(
    paths: Sequence[str | Path],
    *,
    target: Path | None,
    report: Progress,
    name: str | None,
    redact: Iterable[str],
    options: dict[str, Any],
    stated: Stated,
    linked: Iterable[str] = (),
    settle: Callable[[Store], None] | None = None,
) -> Store:
    from .store.conceal import conceal

    report("looking at the files", None)
    files = find_files(paths, exclude=target, linked=linked)
    for file in files:
        if file.by_path and file.format is not None and file.format.name == RUN_STORE:
            if len(files) > 1 or target is not None:
                raise UsageError(f"{file.path} is a run store already; give it alone (postrun report {file.path})")
            if stated:
                raise UsageError(f"{file.path} is a run store already; use --same and --clock-offset when you make it (postrun ingest)")
            report("reading the run store", None)
            with ExitStack() as until_masked:
                store = until_masked.enter_context(Store.open(file.path, **options))
                conceal(store, redact)
                until_masked.pop_all()
            return store
    return load(files, paths, target, progress=report, name=name, redact=redact, settle=settle, stated=stated, **options)


def load(
    files: list[InputFile],
    paths: Sequence[str | Path],
    target: Path | None = None,
    *,
    partials: Partials | None = None,
    progress: Progress | None = None,
    name: str | None = None,
    memory_limit: str = "600MB",
    threads: int | None = None,
    max_unpacked: str | None = None,
    redact: Iterable[str] = (),
    settle: Callable[[Store], None] | None = None,
    stated: Stated | None = None,
) -> Store:
    """Load files that :func:`.find_files` found at ``paths``; see :func:`ingest`.

    ``partials``: contents of files that were read before, which are not opened again. ``settle`` changes the store before its secrets are
    masked.
    """
    from .store.conceal import conceal
    from .store.result import CaptureResult

    report = progress or (lambda text, fraction: None)
    unpacked_limit(0, max_unpacked)
    if not any(gives_events(file) for file in files):
        raise nothing_usable(paths, files, [])
    limits: dict[str, Any] = {"memory_limit": memory_limit, "threads": threads}
    store = Store.create(target, **limits) if target is not None else Store.temporary(**limits)
    store.max_unpacked = max_unpacked
    try:
        results = _read_all(store, files, [Path(path) for path in paths], report, name, partials, stated or Stated())
        if not any(result.events or (isinstance(result, CaptureResult) and result.job) for result in results):
            query = "SELECT file, message FROM ingest_note WHERE severity <> 'info' AND code <> 'unknown_format'"
            raise nothing_usable(paths, files, store.connection.execute(query).fetchall())
        if settle is not None:
            settle(store)
        conceal(store, redact)
        store.settle_views()
        store.checkpoint()
    except BaseException as error:
        store.close()
        if target is not None:
            store.remove()
        if failure := _failed_write(error):
            raise failure from error
        raise
    return store


def _failed_write(error: BaseException) -> Exception | None:
    """Return the IOException behind a commit or checkpoint that could not be written."""
    import duckdb

    if not isinstance(error, duckdb.Error) or isinstance(error, duckdb.IOException):
        return None
    text = str(error).partition("\n")[0]
    start = text.find("Could not write file")
    return duckdb.IOException(text[start:]) if start >= 0 else None


def summary(store: Store) -> dict[str, Any]:
    """Return the run, rows per table, files by format, and notes; ready for JSON."""
    run = store.frame("SELECT name, status, started_ns, ended_ns FROM run")
    return {
        "run": run.row(0, named=True) if run.height else {},
        "rows": {table: store.frame(f"SELECT count(*) AS n FROM {table}").item() for table in _EVENT_TABLES},
        "sources": dict(store.frame("SELECT format, count(*) AS n FROM source GROUP BY format ORDER BY format").iter_rows()),
        "notes": store.frame('SELECT file, severity, code, message, "count" FROM ingest_note ORDER BY ALL').to_dicts(),
    }


def _label(file: InputFile) -> str:
    """Return the part of a path that distinguishes files with the same contents."""
    format = None if file.format is None else file.format.name
    if format in (PYTHON_STATS, PYTHON_TREE):
        return "/".join(file.path.parts[-3:-1]) if window_of(file.path).start_ns is not None else ""
    if format == PYTHON_BESIDE:  # has the same contents for many profiles
        return str(file.path)
    return file.path.name if format == TIMELINE else ""


def _read_all(
    store: Store, files: list[InputFile], paths: list[Path], report: Progress, name: str | None, partials: Partials | None, stated: Stated
) -> list[ReadResult]:
    """Read every file, then derive; return the results of the readers."""
    from .derive.finish import classify_kernels, demangle_kernels, ranks_by_order
    from .derive.limit_rows import limit_rows
    from .derive.plausibility import note_several_runs
    from .derive.steps import derive_steps
    from .store.result import CaptureResult, TraceResult
    from .store.run_row import agreed_metadata, common_metadata, latest_metadata, name_of, write_run

    run = Reading(store, files, report, partials, stated)
    known = partials.checksums(files) if partials is not None else None
    with Checksums([(file.path, file.bytes if file.readable else None, _label(file)) for file in files], known) as checksums:
        run.read(checksums)
        run.write_sources(checksums)
    limit_rows(store)
    report("deriving steps", 0.95)
    with step(store, "training steps"):
        derive_steps(store)
    with step(store, "names of kernels"):
        demangle_kernels(store)
    with step(store, "precision and category of kernels"):
        classify_kernels(store)
    results = [result for _, result in sorted(run.results.items())]
    traces = [result for result in results if isinstance(result, TraceResult)]
    parts = [(result.session, result.number, result.metadata) for result in results if isinstance(result, CaptureResult)]
    recorded = agreed_metadata(latest_metadata(parts))
    imported = recorded.pop("framework", None)  # by the recorded programs
    jobs = run.captures.jobs
    with step(store, "whether all files are of one run"):
        note_several_runs(store, results)
    with step(store, "ranks by the order of files"):
        ranks_by_order(store, [process for trace in traces if trace.events for process in trace.processes])
    write_run(
        store,
        results,
        job={**jobs.information(), **run.job, **({"name": name} if name else {})},
        name=name_of(paths),
        framework=next((trace.framework for trace in traces if trace.framework), None) or imported,
        metadata=common_metadata(trace.metadata for trace in traces if trace.events) | recorded | jobs.metadata(),
        times=jobs.times(),
        ended=jobs.ended or any(file.format is not None and file.format.name == END_MARKER for file in files),
    )
    report("loaded", 1.0)
    return results
