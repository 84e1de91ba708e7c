"""Sections -> one page of HTML, for the browser or for the PDF."""

from __future__ import annotations

import base64
import hashlib
import math
import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ..blocks import Figure, Section, coded
from ..blocks.spans import Clock
from ..figures.donut import Sector
from ..figures.palette import MEANINGS, themed
from ..figures.svg import left_anchored
from ..text.formats import clip, count, glued, moment, printable
from ..text.glyphs import Printed
from ..text.look import TITLE
from . import grid
from .chapters import Chapter, chapters
from .font_faces import with_fonts
from .pdf_tables import BAR, pdf_layout, room_of
from .styles import TEMPLATES, asset

if TYPE_CHECKING:  # it loads all sections, which the page of all runs does not need
    from ...analysis.timeline.model import Timeline
    from ..figures.marks import Mark
    from .section_list import Context

_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=_)(?=[^_])")
_TURNING: Final = frozenset(("R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI", "FSI", "PDF", "PDI"))  # UAX #9, table 4
_EXACT: Final = 10**6  # the fraction of a larger number decides no order
_TOOLTIP: Final = re.compile(r"<title>[^<]*</title>")
_OF_PAGE: Final = ("numbers.js", "report.js", "brush.js", "tooltip.js")
_OF_TIMELINE: Final = tuple(
    f"timeline/{name}.js"
    for name in ("kinds", "words", "data", "parts", "rows", "painting", "views", "selection", "search", "input", "links", "start")
)


def page(context: Context, target: str, *, paper: str = "A4", printed: Printed | None = None) -> str:
    """Fill the page of a report for "html" or "pdf".

    HTML has inline figures in the colors of the theme, full tables, and the script; the PDF has images in light colors and capped tables.
    Links to omitted sections become plain text. ``printed`` receives the characters that a PDF cannot show.
    """
    parts = [part for section in context.sections for part in (section, *section.parts, *section.facts.get("sections", ()))]
    ordered = chapters(context.sections, timeline_first=target == "html")
    anchors = {"summary", *(part.id for part in parts), *(chapter.id for chapter in ordered)}
    text = filled(
        "report.html.j2",
        context.report,
        context.summary,
        ordered,
        target,
        paper=paper,
        clock=_clock(context),
        dashboard=context.dashboard if target == "html" or context.look.dashboard else None,
        printed=printed,
        anchors=anchors,
        look=context.look,
        title=context.look.title or TITLE,
    )
    return _without_dead_links(text) if context.look.left_out or target == "pdf" else text


def _clock(context: Context) -> Clock | None:
    """Return the time of the timeline; None without one."""
    timeline = next((section.facts["data"] for section in context.sections if "data" in section.facts and section.id == "timeline"), None)
    return None if timeline is None else Clock(timeline.origin_ns, timeline.span_ns)


def _without_dead_links(text: str) -> str:
    """Replace links to missing ids by their text. Scripts and styles are in the head."""
    head, end, body = text.partition("</head>")
    ids = {""} | set(re.findall(r'\sid="([^"]*)"', body))

    def kept(match: re.Match[str]) -> str:
        if match[2] in ids:
            return match[0]
        named = re.search(r'\sclass="[^"]*"', match[1] + match[3])
        return f"<span{named[0] if named else ''}>{match[4]}</span>"

    body = re.sub(r' More in <a href="#([^"]*)">[^<]*</a>\.', lambda match: match[0] if match[1] in ids else "", body)
    return head + end + re.sub(r'<a\b([^>]*)\shref="#([^"]*)"([^>]*)>(.*?)</a>', kept, body, flags=re.DOTALL)


def filled(
    template: str,
    report: Any,
    summary: Section,
    chapters: Sequence[Chapter | Section],
    target: str,
    *,
    paper: str = "A4",
    clock: Clock | None = None,
    dashboard: Section | None = None,
    data_name: str = "report.json",
    styles: tuple[str, ...] = (),
    printed: Printed | None = None,
    **more: Any,
) -> str:
    """Fill ``template`` with the style and script of a report.

    The style of the PDF is :func:`.styles.pdf_style`; its page sets the size. ``report``: has a ``generator``; ``clock``: of its timeline,
    whose style and script the page then has; ``data_name``: the file with all data; ``styles``: further files of templates/ for HTML;
    ``printed``: as of :func:`page`; ``more``: other names of the template.
    """
    printed = printed or Printed()
    more_of = target == "html" and clock is not None
    text = _rendered(
        template,
        style=asset("style.css", "interaction.css", *styles, *["timeline.css"] * more_of)
        if target == "html"
        else f"@page {{ size: {paper}; }}",
        script=_script(*_OF_PAGE, *_OF_TIMELINE * more_of),
        report=report,
        summary=summary,
        chapters=chapters,
        dashboard=dashboard,
        target=target,
        clock=clock,
        created=datetime.fromtimestamp(report.generator.generated_at_ns // 1_000_000_000, UTC).isoformat(),
        picture=_inline if target == "html" else partial(_image, printed),
        data_name=data_name,
        **more,
    )
    return with_fonts(text) if target == "html" else printed.text(text)


def rendered(template: str, *, style: str, script: str, **names: Any) -> str:
    """Fill ``template`` for a browser, with the fonts of the page.

    The page contains the digest that lets only ``script`` run.
    """
    return with_fonts(_rendered(template, style=style, script=script, **names))


def _rendered(template: str, *, style: str, script: str, **names: Any) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return _environment().get_template(template).render(style=Markup(style), script=Markup(script), script_digest=digest, **names)


@cache
def _script(*names: str) -> str:
    """Join scripts, without indentation and comments of whole lines.

    They see each other's names, and the page sees none of them.
    """
    lines = (line.strip() for line in asset(*names).splitlines())
    kept = "\n".join(line for line in lines if line and not line.startswith("//"))
    return f'"use strict";\n(() => {{\n{kept}\n}})();\n'


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.globals.update(bar=_bar, count=count, grid=grid.rows, moment=moment, pdf_layout=pdf_layout, room_of=room_of, swatch=_swatch)
    environment.filters.update(camel=_camel, clip=clip, coded=coded, encoded=_encoded, glued=glued, isolated=_isolated, sort_key=_sort_key)
    return environment


def _printable(value: Any) -> Any:
    return printable(value) if type(value) is str else value


def _isolated(text: str | Markup) -> str | Markup:
    """Keep a text that turns the direction of writing from turning what is next to it."""
    turns = not text.isascii() and any(unicodedata.bidirectional(one) in _TURNING for one in text)
    return Markup("<bdi>{}</bdi>").format(_printable(text)) if turns else text


def _sort_key(value: float | str) -> float | str:
    """Shorten a number to the seven digits that an order needs."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return round(value) if abs(value) >= _EXACT else float(f"{value:.7g}")


def _inline(figure: Figure) -> Markup:
    """Return the SVG itself, in the colors that style.css defines for both themes."""
    drawing = themed(figure.svg).removeprefix("<svg")
    return Markup('<svg role="img" aria-label="{}"{}').format(printable(figure.alt), Markup(drawing))


def _image(printed: Printed, figure: Figure) -> Markup:
    """Return an image of the SVG, which WeasyPrint lays out faster than inline SVG."""
    data = base64.b64encode(printed.text(left_anchored(_TOOLTIP.sub("", figure.svg))).encode()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(data, printable(figure.alt))


def _camel(text: str | Markup) -> Markup:
    """Let a name break between its words: CPU|Bottleneck, GPU|Memory|Increase."""
    return Markup(_WORDS.sub("<wbr>", str(escape(_printable(text)))))


def _encoded(timeline: Timeline, marks: Sequence[Mark]) -> Markup:
    """Encode the events; not earlier, so that the PDF, which has none, starts sooner."""
    from ..timeline.encode import encode

    return Markup(encode(timeline, marks))


def _swatch(sector: Sector) -> Markup:
    return Markup('<span class="swatch m-{} s{}"></span>').format(sector.meaning, round(sector.shade * 100))


def _bar(sector: Sector, room: float | None) -> str:
    """Return the style of a cell with a bar.

    ``room``: width of the cell in the PDF, which resolves no variables, in characters; None in HTML.
    """
    if room is None:
        return f"--p:{sector.percent / 100:.3g}"
    end = f"{sector.percent * BAR / room:.3g}%"
    return f"background-image:linear-gradient(90deg,{MEANINGS[sector.meaning]} {end},transparent {end})"
