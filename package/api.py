"""Reports from Python: one run's traces -> a Report, or the files of a report.

:func:`make_report` is the one use case behind ``postrun report``, ``postrun demo``, each run of ``postrun nightly`` and Python programs.
:func:`analyze` stops at the Report and writes no files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import analysis, ingest
from .analysis import Options
from .analysis.report.model import Report
from .analysis.rules.engine.bounds import LIMIT_S
from .analysis.rules.engine.config import Attached
from .analysis.rules.engine.config import selection as select_rules
from .analysis.rules.engine.selection import Selection
from .analysis.rules.evidence.base import Preset
from .analysis.timeline import timelines
from .errors import RenderError, UsageError
from .ingest.store.store import Store
from .report_templates.output.pdf import Printer, PrinterHere
from .report_templates.output.render import FORMATS, PLACES, check_formats, render
from .report_templates.text.look import Look

__all__ = ["IngestOptions", "OutputOptions", "ReportResult", "analyze", "make_report"]

Source = str | Path | Sequence[str | Path] | Store | AbstractContextManager[Store]


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How trace files become a run store. An open Store ignores these options, and refuses ``same`` and ``clock_offsets``.

    ``memory_limit`` ("2GB") and ``threads`` (None: all cores) bound the database. ``max_unpacked`` ("50GB") bounds the unpacked size of a
    compressed file; None: 20 GB or 200 times its size. ``redact``: any of "hosts", "users", "paths" and "command".
    ``same``: groups of files of one node; ``clock_offsets``: nanoseconds to add to the times of a file. Both name files by path or its end.
    """

    memory_limit: str = "600MB"
    threads: int | None = None
    max_unpacked: str | None = None
    redact: tuple[str, ...] = ()
    same: Sequence[Sequence[str | Path]] = ()
    clock_offsets: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Which files of a report are written, and how they look.

    ``folder`` is created if it does not exist. ``formats``: any of html, pdf, json, md, junit and rule-json. ``paper``: "A4" or "Letter".
    ``look``: sections, theme, title and logo. ``timeline_events``: events that the timeline draws at most; 0 leaves it out.
    ``pdf_timeout_s``: seconds that the PDF may take. Raises UsageError for an unknown format or paper.
    """

    folder: str | Path = Path("postrun-report")
    formats: Sequence[str] = FORMATS
    paper: str = "A4"
    look: Look = field(default_factory=Look)
    timeline_events: int = 300_000
    pdf_timeout_s: float = 120

    def __post_init__(self) -> None:
        if isinstance(self.formats, str):
            raise UsageError(f"formats: {self.formats!r} is not a list; write it like ['html', 'json']")
        if self.timeline_events < 0:
            raise UsageError(f"timeline_events: {self.timeline_events} is negative; 0 leaves the timeline out")
        check_formats(self.formats, self.paper)

    @property
    def drawn_events(self) -> int:
        """Events of the timeline at most; 0 if its section is left out."""
        return 0 if "timeline" in self.look.left_out else self.timeline_events


@dataclass(frozen=True, slots=True)
class ReportResult:
    """A report and its files.

    ``written``: format -> file, or folder for rule-json. ``stale``: files of other formats that an earlier report left in the folder.
    ``notes``: what the reader of the files should know, such as characters that the fonts of the PDF lack.
    """

    report: Report
    written: Mapping[str, Path]
    stale: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def make_report(
    source: Source,
    output: OutputOptions | str | Path = OutputOptions(),
    *,
    selection: Selection | None = None,
    options: Options = Options(),  # noqa: B008  (frozen)
    ingest_options: IngestOptions = IngestOptions(),
    progress: Callable[[str, float | None], None] | None = None,
    printer: Printer | PrinterHere | None = None,
) -> ReportResult:
    """Analyze one run and write its report.

    ``source``: a trace file, a folder, a URL, a list of these, the file of a run store, an open Store (left open), or a context manager
    that yields a Store (left before the files are written). ``output``: the folder, or more with OutputOptions. ``selection``: the rules,
    from ``rule_configs.selection``; None runs every rule. ``progress`` receives each stage and the fraction done (None: not known).
    ``printer``: prints the PDF instead of a new child process.

    All I/O: reads ``source`` (a URL over the network), keeps a run store in a temporary folder unless ``source`` is one, starts a child
    process for the PDF, and writes files in ``output.folder`` only. Prints nothing. Restores what it changes in the process: the umask
    while it writes, and SIGALRM while a rule file runs in the main thread.

    Raises postrun.errors.PostrunError: InputError for ``source``, UsageError for options, RenderError if the PDF fails. The other files
    are written then, and the error has them as ``written`` and the Report as ``report``.
    """
    if selection is not None and not isinstance(selection, Selection):
        raise UsageError("selection: give what rule_configs.selection(rules) returns")
    if not isinstance(output, OutputOptions):
        output = OutputOptions(output)
    tell = progress or (lambda text, fraction: None)
    with ExitStack() as stack:
        if printer is None and "pdf" in output.formats:
            printer = stack.enter_context(Printer())  # loads WeasyPrint while the traces are read
        with _store(source, ingest_options, progress) as store, store.unchanged():
            tell("analyzing", None)
            report = analysis.analyze(store, dataclasses.replace(options, selection=selection))
            tell("drawing", None)
            timeline = timelines.timeline_for(store, report, output.formats, output.drawn_events)
        folder = Path(output.folder)
        notes: list[str] = []
        try:
            written = render(
                report, folder, output.formats, paper=output.paper, pdf_timeout_s=output.pdf_timeout_s, printer=printer,
                progress=progress, timeline=timeline, look=output.look, notes=notes,
            )  # fmt: skip
        except RenderError as error:
            error.report = report
            raise
    stale = [folder / file for kind, file in PLACES.items() if kind not in written and (folder / file).exists()]
    return ReportResult(report, written, tuple(stale), tuple(notes))


def analyze(
    source: Source,
    rules: Sequence[Attached] | None = None,
    *,
    preset: Preset = "documented",
    settings: Mapping[str, Any] | None = None,
    name: str | None = None,
    top: int = 15,
    histograms: Sequence[str] = (),
    generated_at_ns: int | None = None,
    memory_limit: str = "600MB",
    threads: int | None = None,
    max_unpacked: str | None = None,
    rule_timeout: float = LIMIT_S,
    peaks: Mapping[str, float] | None = None,
    same: Sequence[Sequence[str | Path]] = (),
    clock_offsets: Mapping[str, int] | None = None,
) -> Report:
    """Analyze one run without writing files; ``source`` as in :func:`make_report`.

    ``rules``: objects of ``rule_configs``, ``ProfilerRule`` objects, names, classes derived from ``postrun.Rule`` or objects of them;
    None runs every rule, as the command line does; an empty list none. ``preset``: "documented" or "service", whose defaults apply to
    rules that do not carry their values. ``settings``: "LowGPUUtilization_patience" -> value, over everything. ``name``: of the run in
    the report. ``top``, ``histograms``, ``generated_at_ns``, ``peaks``: see :class:`postrun.analysis.Options`. ``memory_limit``,
    ``threads``, ``max_unpacked``, ``same``, ``clock_offsets``: see :class:`IngestOptions`. ``rule_timeout``: seconds that a rule file may
    take to load, and then to evaluate.

    Raises postrun.errors.PostrunError: UsageError for rules and parameters, before anything is read; InputError for the source.
    """
    chosen = select_rules(rules, preset=preset, settings=settings, rule_timeout=rule_timeout)
    options = Options(
        top=top, histograms=tuple(histograms), generated_at_ns=generated_at_ns, name=name, peaks=peaks or {}, selection=chosen
    )
    with _store(source, IngestOptions(memory_limit, threads, max_unpacked, (), same, clock_offsets or {})) as store:
        return analysis.analyze(store, options)


def _store(
    source: Source, options: IngestOptions, progress: Callable[[str, float | None], None] | None = None
) -> AbstractContextManager[Store]:
    """Open the run store of ``source``; a store that the caller opened stays open."""
    opened = isinstance(source, Store | AbstractContextManager) and not isinstance(source, Path)  # Path is one before Python 3.13
    if opened and (options.same or options.clock_offsets):
        raise UsageError("same and clock_offsets hold for files that are read; give them to ingest() when you make the store")
    if isinstance(source, Store):
        return nullcontext(source)
    if isinstance(source, AbstractContextManager) and not isinstance(source, Path):
        return source
    paths = [source] if isinstance(source, str | Path) else list(source)
    return ingest.ingest(
        paths, progress=progress, memory_limit=options.memory_limit, threads=options.threads, max_unpacked=options.max_unpacked,
        redact=options.redact, same=options.same, clock_offsets=options.clock_offsets,
    )  # fmt: skip
