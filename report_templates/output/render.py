"""Report -> files. A child process writes the PDF, this process the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...analysis.report.model import Report
from ...errors import UsageError
from ..blocks import Only, Texts
from ..text.formats import capitalized
from ..text.glyphs import Printed
from ..text.look import Look
from .output_folder import OutputFolder
from .pdf import Printer, PrinterHere, checked_paper

if TYPE_CHECKING:
    from ...analysis.timeline.model import Timeline
    from .section_list import Context

FORMATS = ("html", "pdf", "json")  # default
PLACES: Final[dict[str, str]] = {
    "html": "report.html", "pdf": "report.pdf", "json": "report.json", "md": "report.md", "junit": "report.junit.xml",
    "rule-json": "profiler-reports",
}  # fmt: skip
"""Format -> its file in the output folder, or folder."""


def check_formats(formats: Sequence[str], paper: str) -> str:
    """Return WeasyPrint's name of the page size. Raise UsageError for unknown words."""
    if unknown := [word for word in formats if word not in PLACES]:
        raise UsageError(f"{', '.join(unknown)} is not a report format; choose from {', '.join(PLACES)}")
    return checked_paper(paper)


def render(
    report: Report,
    out_dir: Path,
    formats: Sequence[str] = FORMATS,
    *,
    paper: str = "A4",
    pdf_timeout_s: float = 120,
    printer: Printer | PrinterHere | None = None,
    progress: Callable[[str, float | None], None] | None = None,
    timeline: Timeline | None = None,
    look: Look | None = None,
    notes: list[str] | None = None,
) -> dict[str, Path]:
    """Write the files of ``formats`` to ``out_dir``; return format -> file, or folder.

    Equal reports give equal bytes. The HTML is one file that loads nothing; the PDF has report.json attached. Files are replaced when all
    their successors are complete, and belong to one report even if two runs write to the same folder. ``paper``: "A4" or "Letter".
    ``printer``: a process for the PDF that was started earlier and is used up, or this process, without a time limit. ``timeline``: the
    events that HTML and PDF draw; without it they have no such section. ``look``: their sections, theme, title, and logo; report.json
    always contains everything. ``notes`` receives what the reader of the PDF should know.

    UsageError for an unknown format or paper. RenderError if the PDF fails or takes longer than ``pdf_timeout_s`` seconds: the other files
    are written, ``written`` of the error lists them, and an older report.pdf is removed, because it is that of another run.
    """
    sheet = check_formats(formats, paper)
    tell = progress or (lambda text, fraction: None)
    targets = {kind: Path(out_dir) / place for kind, place in PLACES.items() if kind in formats}
    with OutputFolder(Path(out_dir), targets, printer) as output:
        if targets.keys() & {"html", "pdf"}:
            from .pages import page
            from .section_list import context

            content = context(report, tell, timeline, look)
            if output.printer is not None:
                tell("printing", None)
                text, noted = _pdf_page(content, sheet)
                output.start_pdf(text, report.generator.generated_at_ns, PLACES["json"])
                if notes is not None and noted:
                    notes.append(noted)
            if "html" in targets:
                output.stage("html", page(content, "html").encode("utf-8", "replace"))
        # A lone surrogate in a name cannot be UTF-8; its escape is the same text in JSON.
        data = report.to_json().encode("utf-8", "backslashreplace")
        output.attach(data)
        if "json" in targets:
            output.stage("json", data)
        if "md" in targets:
            from .markdown import markdown

            output.stage("md", markdown(report))
        if "junit" in targets:
            from .junit import junit

            output.stage("junit", junit(report))
        if output.printer is not None:
            tell("printing", None)
        with output.replace(pdf_timeout_s) as written:
            if "rule-json" in targets:
                written["rule-json"] = targets["rule-json"]
                _put_rules(report, output.scratch / "rule.json", targets["rule-json"])
    return {kind: written[kind] for kind in targets}


def _pdf_page(content: Context, paper: str) -> tuple[str, str | None]:
    """Fill the page of the PDF, and return it with the note on missing glyphs.

    The section Data quality contains the note.
    """
    from .pages import page

    printed = Printed()
    text = page(content, "pdf", paper=paper, printed=printed)
    section = next((section for section in content.sections if section.id == "data-quality"), None)
    if printed.note and section is not None:
        section.add(Only("pdf", Texts("more", f"{capitalized(printed.note)}.")))
        text = page(content, "pdf", paper=paper)
    return text, printed.note


def _put_rules(report: Report, staged: Path, folder: Path) -> None:
    """Write a file per rule; remove the files of an earlier report that have none."""
    from .rule_json import ours, rule_files

    files = rule_files(report)
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        staged.write_bytes(data)
        staged.replace(folder / name)
    for path in folder.glob("*.json"):
        if path.name not in files and path.is_file() and ours(path.read_bytes()):
            path.unlink()
