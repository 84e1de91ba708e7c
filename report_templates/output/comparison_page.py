"""Which sections does a comparison have, and how do they become files?"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from ... import modes, temporary
from ...analysis.report.comparison import Comparison
from ...errors import RenderError, UsageError
from ..blocks import Section
from ..comparing.alike import alike
from ..comparing.kernels import kernels
from ..comparing.launches import launches
from ..comparing.memory import memory
from ..comparing.precision import precision
from ..comparing.reading import reading
from ..comparing.steps import steps
from ..comparing.summary import summary
from ..comparing.time import time
from ..comparing.utilisation import utilisation
from ..comparing.verdicts import verdicts
from ..figures import plots
from .lock import exclusive
from .pages import filled
from .pdf import Job, Printer, checked_paper

SECTIONS: Final[tuple[Callable[[Comparison], Section], ...]] = (
    alike, steps, time, kernels, precision, memory, launches, utilisation, verdicts, reading,
)  # fmt: skip
PLACES: Final[dict[str, str]] = {"html": "comparison.html", "pdf": "comparison.pdf", "json": "comparison.json"}
FORMATS: Final = tuple(PLACES)


def pages(made: Comparison, target: str, *, paper: str = "A4") -> str:
    """The page of a comparison for "html" or "pdf"."""
    return _filled(made, *_sections(made), target, paper)


def _sections(made: Comparison) -> tuple[Section, tuple[Section, ...]]:
    with plots.settings():
        found = []
        for number, build in enumerate(SECTIONS, 1):
            section = build(made)
            section.number = number
            found.append(section)
        return summary(made), tuple(found)


def title(made: Comparison) -> str:
    """Both runs' names; what was given for them, where the names are the same."""
    names = [made.base.name, made.new.name]
    if names[0] != names[1]:
        return " → ".join(names)
    given = [Path(side.given) if side.given else None for side in (made.base, made.new)]
    shorter = [path.parent.name if path and path.name == "report.json" else path.name if path else "" for path in given]
    return f"{names[0]}: {' → '.join(shorter)}" if all(shorter) and shorter[0] != shorter[1] else names[0]


def _filled(made: Comparison, first: Section, sections: Sequence[Section], target: str, paper: str) -> str:
    called = title(made)
    anchors = {section.id for section in sections} | {"summary"}
    return filled("comparison.html.j2", made, first, sections, target, paper=paper, data_name=PLACES["json"], anchors=anchors, title=called)


def render_comparison(
    made: Comparison,
    out_dir: Path,
    formats: Sequence[str] = FORMATS,
    *,
    paper: str = "A4",
    pdf_timeout_s: float = 120,
    printer: Printer | None = None,
) -> dict[str, Path]:
    """Write comparison.html, .pdf and .json to ``out_dir``; format -> file. As with :func:`.render.render` equal comparisons give equal
    bytes, a file is replaced when its successor is whole, and a RenderError names what was written without the PDF."""
    if unknown := [word for word in formats if word not in PLACES]:
        raise UsageError(f"{', '.join(unknown)} is no format of a comparison; choose from {','.join(PLACES)}")
    sheet = checked_paper(paper)
    out_dir = Path(out_dir)
    staged: dict[str, Path] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(modes.umask_for(modes.current()))
        out_dir.mkdir(parents=True, exist_ok=True)
        scratch = Path(stack.enter_context(temporary.Folder(out_dir, prefix=".postrun-")))

        def stage(kind: str, data: bytes) -> None:
            """Write next to the target, to be moved there later: a reader sees the old file or the new one."""
            staged[kind] = scratch / PLACES[kind]
            staged[kind].write_bytes(data)

        first, sections = _sections(made) if {"html", "pdf"} & set(formats) else (None, ())
        # A lone surrogate in a name cannot be UTF-8; its escape is the same text in JSON.
        data = made.to_json().encode("utf-8", "backslashreplace")
        if "pdf" in formats and first is not None:
            printer = printer or stack.enter_context(Printer())
            (scratch / "page.html").write_text(_filled(made, first, sections, "pdf", sheet), encoding="utf-8", errors="replace")
            (scratch / "attached.json").write_bytes(data)
            page, attached, printed = (str(scratch / name) for name in ("page.html", "attached.json", "printed.pdf"))
            printer.start(Job(page, attached, printed, made.generator.generated_at_ns, PLACES["json"]))
            printer.attach()
        if "html" in formats and first is not None:
            stage("html", _filled(made, first, sections, "html", sheet).encode("utf-8", "replace"))
        if "json" in formats:
            stage("json", data)
        reason = None
        if "pdf" in formats and printer is not None:
            reason = printer.finish(pdf_timeout_s)
            if reason is None and not (scratch / "printed.pdf").is_file():
                reason = "the PDF process left no file"
            if reason is None:
                staged["pdf"] = scratch / "printed.pdf"
        with exclusive(out_dir):
            if reason is not None:
                (out_dir / PLACES["pdf"]).unlink(missing_ok=True)
            written = {kind: file.replace(out_dir / PLACES[kind]) for kind, file in staged.items()}
        if reason is not None:
            kept = ", ".join(str(path) for path in written.values())
            raise RenderError(f"no PDF: {reason}" + (f"; written: {kept}" if kept else ""), written)
    return {kind: written[kind] for kind in PLACES if kind in written}
