"""Comparison -> its sections -> comparison.html and .pdf, and the other files of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ...analysis.report.comparison import Comparison
from ...errors import UsageError
from ..blocks import Section
from ..comparing.kernels import kernels
from ..comparing.operators import operators
from ..comparing.steps import steps
from ..comparing.summary import summary
from ..comparing.tables import alike, launches, memory, precision, reading, utilization, verdicts
from ..comparing.time import time
from ..comparing.words import sources
from ..text.glyphs import Printed
from ..text.look import Look
from .chapters import Plan, chapters
from .comparison_junit import junit
from .comparison_markdown import markdown
from .output_folder import OutputFolder
from .pages import filled
from .pdf import Printer, checked_paper

SECTIONS: Final[tuple[Callable[[Comparison], Section], ...]] = (
    alike, steps, time, kernels, operators, precision, memory, launches, utilization, verdicts, reading,
)  # fmt: skip
_CHAPTERS: Final[Plan] = (
    ("causes", "Where the time changed", ("time", "kernels", "operators")),
    ("others", "Further comparisons", ("steps", "precision", "memory", "launches", "utilization", "verdicts")),
    ("run-facts", "Appendix", ("alike", "reading")),
)
_OF_DIFFERENT_PROGRAMS: Final[Plan] = (("causes", "Times of both runs", _CHAPTERS[0][2]), *_CHAPTERS[1:])
_OPEN: Final = frozenset({"causes"})
TITLE: Final = "Comparison"
PLACES: Final[dict[str, str]] = {
    "html": "comparison.html", "pdf": "comparison.pdf", "json": "comparison.json", "md": "comparison.md",
    "junit": "comparison.junit.xml",
}  # fmt: skip
FORMATS: Final = ("html", "pdf", "json")  # default


def pages(comparison: Comparison, target: str, *, paper: str = "A4", look: Look | None = None) -> str:
    """Fill the page of a comparison for "html" or "pdf"."""
    return _filled(comparison, *_sections(comparison), target, paper, look or Look())


def _sections(comparison: Comparison) -> tuple[Section, tuple[Section, ...]]:
    sections = tuple(build(comparison) for build in SECTIONS)
    return summary(comparison), sections


def run_names(comparison: Comparison) -> str:
    """Return the names of both runs, or their paths if the names are equal."""
    base, new = comparison.base.name, comparison.new.name
    if base != new:
        return f"{base} → {new}"
    paths = sources(comparison)
    return f"{base}: {' → '.join(paths)}" if paths else base


def _filled(
    comparison: Comparison, first: Section, sections: Sequence[Section], target: str, paper: str, look: Look,
    printed: Printed | None = None,
) -> str:  # fmt: skip
    different = comparison.different_programs
    ordered = chapters(sections, plan=_OF_DIFFERENT_PROGRAMS if different else _CHAPTERS, opened=() if different else _OPEN)
    anchors = {"summary", *(section.id for section in sections), *(chapter.id for chapter in ordered)}
    return filled(
        "comparison.html.j2", comparison, first, ordered, target, paper=paper, data_name=PLACES["json"], styles=("comparison.css",),
        printed=printed, anchors=anchors, look=look, title=look.title or TITLE, names=run_names(comparison),
    )  # fmt: skip


def render_comparison(
    comparison: Comparison,
    out_dir: Path,
    formats: Sequence[str] = FORMATS,
    *,
    paper: str = "A4",
    pdf_timeout_s: float = 120,
    printer: Printer | None = None,
    look: Look | None = None,
    notes: list[str] | None = None,
) -> dict[str, Path]:
    """Write the files of a comparison to ``out_dir``; return format -> file.

    Equal comparisons give equal bytes. Files are replaced and RenderError is raised as in :func:`.render.render`. ``look``: theme, title,
    and logo. ``notes`` receives what the reader of the PDF should know.
    """
    if unknown := [word for word in formats if word not in PLACES]:
        raise UsageError(f"{', '.join(unknown)} is not a format of a comparison; choose from {','.join(PLACES)}")
    sheet, look = checked_paper(paper), look or Look()
    targets = {kind: Path(out_dir) / place for kind, place in PLACES.items() if kind in formats}
    with OutputFolder(Path(out_dir), targets, printer) as output:
        # A lone surrogate in a name cannot be UTF-8; its escape is the same text in JSON.
        data = comparison.to_json().encode("utf-8", "backslashreplace")
        if targets.keys() & {"html", "pdf"}:
            first, sections = _sections(comparison)
            if output.printer is not None:
                printed = Printed()
                text = _filled(comparison, first, sections, "pdf", sheet, look, printed)
                output.start_pdf(text, comparison.generator.generated_at_ns, PLACES["json"])
                if notes is not None and printed.note:
                    notes.append(printed.note)
            output.attach(data)
            if "html" in targets:
                output.stage("html", _filled(comparison, first, sections, "html", sheet, look).encode("utf-8", "replace"))
        if "json" in targets:
            output.stage("json", data)
        if "md" in targets:
            output.stage("md", markdown(comparison))
        if "junit" in targets:
            output.stage("junit", junit(comparison))
        with output.replace(pdf_timeout_s) as written:
            pass
    return {kind: written[kind] for kind in targets}
