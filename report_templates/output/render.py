"""How does a Report become files? The PDF is written by a process beside this one, everything else here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ... import modes, temporary
from ...analysis.report.model import Report
from ...analysis.timeline.model import Timeline
from ...errors import RenderError, UsageError
from ..text.look import Look
from .lock import exclusive
from .pdf import Job, Printer, PrinterHere, checked_paper

FORMATS = ("html", "pdf", "json")  # What is written where nothing else is asked for
PLACES: Final[dict[str, str]] = {
    "html": "report.html", "pdf": "report.pdf", "json": "report.json", "junit": "report.junit.xml", "rule-json": "profiler-reports",
}  # fmt: skip
"""Every format -> its file in the output folder, or folder."""


def check_formats(formats: Sequence[str], paper: str) -> str:
    """Return the page size as WeasyPrint writes it. Raise UsageError for an unknown format or paper."""
    if unknown := [word for word in formats if word not in PLACES]:
        raise UsageError(f"{', '.join(unknown)} is no report format; choose from {', '.join(PLACES)}")
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
) -> dict[str, Path]:
    """Write the files of ``formats`` (PLACES) to ``out_dir``; format -> file, or folder.

    Equal reports give equal bytes. The HTML is one file without any address to load from; the PDF has report.json attached. ``paper``: "A4"
    or "Letter". Files are replaced when all their successors are whole, and are of one report even if two runs write to the same folder.
    RenderError if the PDF fails or takes longer than ``pdf_timeout_s`` seconds: the others are written, and ``written`` of the error names
    them; an older report.pdf is removed, because it would be that of another run. UsageError for an unknown format or paper. ``printer``: a
    process for the PDF that was started earlier, so that it was ready by now, which is used up; or this process, without a time limit.
    ``timeline``: the events that HTML and PDF draw; without it they have no section of that name. ``look``: which sections they show, in
    which theme, under whose title and logo; report.json is always whole.
    """
    sheet = check_formats(formats, paper)
    tell = progress or (lambda text, fraction: None)
    out_dir = Path(out_dir)
    targets = {kind: out_dir / place for kind, place in PLACES.items() if kind in formats}
    staged: dict[str, Path] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(modes.umask_for(modes.current()))
        out_dir.mkdir(parents=True, exist_ok=True)
        scratch = Path(stack.enter_context(temporary.Folder(out_dir, prefix=".postrun-")))
        if "pdf" not in targets:
            printer = None
        elif printer is None:
            printer = stack.enter_context(Printer())
        if targets.keys() & {"html", "pdf"}:
            from .context import context
            from .pages import page

            shown = context(report, tell, timeline, look)
            if printer is not None:
                tell("printing", None)
                (scratch / "page.html").write_text(page(shown, "pdf", paper=sheet), encoding="utf-8", errors="replace")
                made_at = report.generator.generated_at_ns
                printer.start(Job(str(scratch / "page.html"), str(scratch / "attached.json"), str(scratch / "report.pdf"), made_at))
            if "html" in targets:
                staged["html"] = _stage(page(shown, "html").encode("utf-8", "replace"), scratch / "report.html")
        # A lone surrogate in a name cannot be UTF-8; its escape is the same text in JSON.
        data = report.to_json().encode("utf-8", "backslashreplace")
        if printer is not None:
            (scratch / "attached.json").write_bytes(data)
            printer.attach()
        if "json" in targets:
            staged["json"] = _stage(data, scratch / "report.json")
        if "junit" in targets:
            from .junit import junit

            staged["junit"] = _stage(junit(report), scratch / "report.junit.xml")
        reason = None
        if printer is not None:
            tell("printing", None)
            reason = printer.finish(pdf_timeout_s)
            if reason is None and not (scratch / "report.pdf").is_file():
                reason = "the PDF process left no file"
            if reason is None:
                staged["pdf"] = scratch / "report.pdf"
        with exclusive(out_dir):
            if reason is not None:
                targets["pdf"].unlink(missing_ok=True)
            written = {kind: file.replace(targets[kind]) for kind, file in staged.items()}
            if "rule-json" in targets:
                _put_rules(report, scratch, targets["rule-json"])
                written["rule-json"] = targets["rule-json"]
        if reason is not None:
            kept = ", ".join(str(path) for path in written.values())
            raise RenderError(f"no PDF: {reason}" + (f"; written: {kept}" if kept else ""), written)
    return {kind: written[kind] for kind in targets}


def _stage(data: bytes, file: Path) -> Path:
    """Write next to the target, to be moved there later: a reader sees the old file or the new one."""
    file.write_bytes(data)
    return file


def _put_rules(report: Report, scratch: Path, folder: Path) -> None:
    """A file per rule in ``folder``. Files of an earlier report of ours that have no successor are removed; other files stay."""
    from .rule_json import ours, rule_files

    files = rule_files(report)
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        _stage(data, scratch / "rule.json").replace(folder / name)
    for path in folder.glob("*.json"):
        if path.name not in files and path.is_file() and ours(path.read_bytes()):
            path.unlink()
