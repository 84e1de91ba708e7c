"""Elements of SVG, each as text, and the width of text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape, unescape
from typing import Final

from ..text.fonts import MONO_FAMILIES, SANS_FAMILIES, variable_faces
from ..text.formats import clip, length_of, printable
from ..text.widths import widths
from .palette import INK

# Attribute of every figure's root; palette.themed removes it, because an HTML page names further fonts.
SHARED: Final = f'font-family="{SANS_FAMILIES}"'
_ANCHORED: Final = re.compile(r'<text x="([^"]*)" y="([^"]*)" text-anchor="(middle|end)"([^>]*)>([^<]*)</text>')
_FEWEST: Final = 6  # letters
_EDGE: Final = 1.0  # width of the edge of a pale field; smaller ones have none
WIDE: Final = 720.0  # of a figure over the whole page
THIRD: Final = 229.0  # of small multiples, three next to each other
SMALL: Final = 340.0  # of a drawing for a narrow screen
NARROW: Final = 416.0  # of a figure next to its table; in the PDF its letters are as large as those of a wide one


def number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def document(width: float, height: float, body: list[str], *, left: float = 0.0) -> str:
    """Return the SVG of a figure. ``left``: space left of x = 0, as for an axis."""
    box = f"{number(0.0 - left)} 0 {number(width)} {number(height)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{number(width)}" height="{number(height)}" viewBox="{box}" '
        f'{SHARED} font-size="11">' + "".join(body) + "</svg>"
    )


def rect(
    x: float,
    y: float,
    width: float,
    height: float,
    fill: str,
    *,
    opacity: float = 1.0,
    edge: bool = True,
    title: str | None = None,
    data: str = "",
) -> str:
    """Draw a rectangle. ``data``: as of :func:`path`.

    ``edge``: a pale one has an edge in its full color, so that it stands out from the paper."""
    tail = f"><title>{text_of(title)}</title></rect>" if title else "/>"
    faded = f' fill-opacity="{number(opacity)}"' if opacity < 1 else ""
    if faded and edge and min(width, height) > _EDGE:
        faded += f' stroke="{fill}"'
    return f'<rect x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}" fill="{fill}"{faded}{data}{tail}'


def text(
    x: float,
    y: float,
    content: str,
    *,
    anchor: str = "start",
    fill: str = INK,
    size: float = 11,
    bold: bool = False,
    code: bool = False,
    more: tuple[str, str] | None = None,
) -> str:
    """Write a text.

    ``code``: a name of code. ``more``: a second text and its color, right after the first.
    """
    extra = (f' font-size="{number(size)}"' if size != 11 else "") + (' font-weight="bold"' if bold else "")
    extra += f' font-family="{MONO_FAMILIES}"' if code else ""
    behind = f' <tspan fill="{more[1]}">{text_of(more[0])}</tspan>' if more else ""
    at = f'x="{number(x)}" y="{number(y)}"' + (f' text-anchor="{anchor}"' if anchor != "start" else "")
    return f'<text {at} fill="{fill}"{extra}>{text_of(content)}{behind}</text>'


def line(x1: float, y1: float, x2: float, y2: float, stroke: str, *, dashes: str | None = None) -> str:
    ends = f'x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}"'
    return f'<line {ends} stroke="{stroke}"' + (f' stroke-dasharray="{dashes}"/>' if dashes else "/>")


def circle(x: float, y: float, radius: float, fill: str, stroke: str, *, opacity: float = 1.0, title: str | None = None) -> str:
    faded = f' fill-opacity="{number(opacity)}"' if opacity < 1 else ""
    tail = f"><title>{text_of(title)}</title></circle>" if title else "/>"
    return f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" fill="{fill}" stroke="{stroke}"{faded}{tail}'


def path(d: str, fill: str, *, opacity: float = 1.0, stroke: str | None = None, title: str | None = None, data: object = "") -> str:
    """Draw a field. ``data``: an attribute from which tooltip.js reads values."""
    faded = f' fill-opacity="{number(opacity)}"' if opacity < 1 else ""
    edge = f' stroke="{stroke}" stroke-width="1.5"' if stroke else ""
    tail = f"><title>{text_of(title)}</title></path>" if title else "/>"
    return f'<path d="{d}" fill="{fill}"{faded}{edge}{data}{tail}'


@dataclass(frozen=True, slots=True)
class Axes:
    """How tooltip.js reads a curve: the values at pixel 0 of x and y, and per pixel. ``form``: of x, "{} s"; ``unit``: of y."""

    x: float
    per_x: float
    y: float
    per_y: float
    form: str
    unit: str = ""

    def __str__(self) -> str:
        numbers = " ".join(f"{value:.7g}" for value in (self.x, self.per_x, self.y, self.per_y))
        return f' data-axes="{numbers} {text_of(self.form)}"' + (f' data-unit="{text_of(self.unit)}"' if self.unit else "")


def curve(
    points: Iterable[tuple[float, float]],
    stroke: str,
    width: float,
    *,
    dashes: str | None = None,
    title: str | None = None,
    axes: Axes | None = None,
) -> str:
    """Draw a line through ``points``, with a decimal per coordinate."""
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    drawn = f'<path d="{shape(points)}" fill="none" stroke="{stroke}" stroke-width="{number(width)}" stroke-linejoin="round"{dashed}'
    tail = f"><title>{text_of(title)}</title></path>" if title else "/>"
    return f"{drawn}{axes or ''}{tail}"


def shape(points: Iterable[tuple[float, float]]) -> str:
    """Return the data of a path; points within level parts are left out."""
    kept: list[tuple[str, str]] = []
    for x, y in ((f"{x:.1f}", f"{y:.1f}") for x, y in points):
        if len(kept) > 1 and kept[-1][1] == y == kept[-2][1]:
            kept[-1] = (x, y)
        else:
            kept.append((x, y))
    return "M" + "".join(f"{x} {y} " for x, y in kept).replace(".0 ", " ")[:-1]


def left_anchored(svg: str) -> str:
    """Let texts begin at their ``x``, computed from their widths.

    WeasyPrint makes an object of its own of each text that ends there or is centered. Texts of several parts or outside of ASCII stay as
    they are, and all texts if the fonts are missing, because widths are estimates then.
    """
    if not variable_faces():
        return svg

    def moved(match: re.Match[str]) -> str:
        x, y, anchor, rest, content = match.groups()
        plain = unescape(content)
        if not plain.isascii():
            return match[0]
        size = re.search(r'font-size="([\d.]+)"', rest)
        width = width_of(plain, float(size[1]) if size else 11, bold="bold" in rest, code="Mono" in rest)
        return f'<text x="{number(float(x) - (width if anchor == "end" else width / 2))}" y="{y}"{rest}>{content}</text>'

    return _ANCHORED.sub(moved, svg)


def text_of(content: str) -> str:
    """Escape a text, with its quotation marks: no attribute occurs in it."""
    return escape(printable(content))


def width_of(content: str, size: float = 11, *, bold: bool = False, code: bool = False) -> float:
    """Return the width of text. ``code``: in the font for names of code."""
    return sum(map(widths(bold=bold, code=code).__getitem__, content)) * size


def fitted(content: str, room: float, size: float = 11, *, bold: bool = False) -> str:
    """Remove the middle of text that is wider than ``room``; keep a few letters."""
    result = content = printable(content)
    length = length_of(content)
    while length > _FEWEST and width_of(result, size, bold=bold) > room:
        # The first guess may still be too wide: letters are not of equal width.
        length = max(_FEWEST, min(length - 1, int(length * room / width_of(result, size, bold=bold))))
        result = clip(content, length)
    return result


def column(labels: Iterable[str], letters: int, room: float, size: float = 11) -> tuple[list[str], float]:
    """Shorten labels to ``letters`` and ``room``; also return the largest width."""
    names = [fitted(clip(label, letters), room, size) for label in labels]
    return names, max((width_of(label, size) for label in names), default=0.0)
