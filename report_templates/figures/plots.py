"""Figures by Matplotlib: fixed axes, few elements, text as text, and the same bytes for the same data.

Fixed rectangles instead of a layout engine, own tick labels instead of a formatter that parses mathematics, and no clip paths make a figure
three times as fast and half as large as the defaults (measured).
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ..text.formats import NARROW_SPACE, printable
from .axes import nice_ticks
from .palette import GRID, INK, MUTED
from .svg import SHARED

WIDTH: Final = 720
_SETTINGS: Final = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "svg.fonttype": "none",
    "svg.hashsalt": "postrun",
    "path.simplify": True,
    "text.parse_math": False,
    "axes.unicode_minus": True,
}
_METADATA = re.compile(r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_GROUP_ID = re.compile(r'<g id="[^"]*"')
_LONG_NUMBER = re.compile(r"(?<=[\s\"(,LM])(-?\d+\.\d{2})\d+")
_PATH = re.compile(r' d="[^"]*"')
_PATH_NUMBER = re.compile(r"(\d\.\d)\d+")
_TAG = re.compile(r"<[^>]*>")
_BLANK = re.compile(r">\s+<")
# Attributes and elements without effect: the font of the root, a rotation by zero, empty groups.
_IDLE = re.compile(r" font-family: 'DejaVu Sans';| transform=\"rotate\(-0 [^\"]*\"|<g/>")


@contextmanager
def settings() -> Iterator[None]:
    """Apply the drawing settings of all figures; restore Matplotlib's own afterwards."""
    with matplotlib.rc_context(cast(Any, _SETTINGS)), warnings.catch_warnings():
        # A node's name may contain a character that DejaVu lacks; the viewer's own font shows it.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


class Plot:
    """A figure of WIDTH x ``height`` units (1 unit = 1 CSS pixel)."""

    def __init__(self, height: float) -> None:
        self.height = height
        self.figure = Figure(figsize=(WIDTH / 72, self.height / 72), dpi=72)
        self.figure.patch.set_visible(False)
        FigureCanvasSVG(self.figure)

    def axes(self, left: float, top: float, right: float, bottom: float) -> Axes:
        """Add axes with these margins, without frame, ticks, or background."""
        rectangle = (left / WIDTH, bottom / self.height, (WIDTH - left - right) / WIDTH, (self.height - top - bottom) / self.height)
        axes = self.figure.add_axes(rectangle)
        axes.patch.set_visible(False)
        for side in axes.spines.values():
            side.set_visible(False)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(NullLocator())
            axis.set_major_locator(NullLocator())
        axes.tick_params(length=0, pad=5, labelsize=10, labelcolor=MUTED, color=GRID)
        axes.set_axisbelow(True)
        return axes

    def text(self, x: float, y: float, content: str, *, anchor: str = "left", color: str = INK, size: float = 10) -> None:
        """Add text; ``x`` and ``y`` of its baseline count from the upper left corner."""
        self.figure.text(
            x / WIDTH, 1 - y / self.height, printable(content), ha=anchor, va="baseline", color=color, fontsize=size, parse_math=False
        )

    def svg(self) -> str:
        """Return the SVG without metadata and unused ids; two decimals, one in paths."""
        buffer = io.StringIO()
        self.figure.canvas.print_svg(buffer, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})  # type: ignore[attr-defined]
        text = buffer.getvalue()
        text = _COMMENT.sub("", _METADATA.sub("", text[text.index("<svg") :]))
        text = _PATH.sub(lambda path: _PATH_NUMBER.sub(r"\1", path[0]), text)
        text = _TAG.sub(lambda tag: _LONG_NUMBER.sub(r"\1", _GROUP_ID.sub("<g", tag[0])).replace("\n", ""), text)
        text = _IDLE.sub("", _BLANK.sub("><", text)).strip()
        root = f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" xmlns="http://www.w3.org/2000/svg" {SHARED} '
        box = f'width="{WIDTH}" height="{self.height:g}" viewBox="0 0 {WIDTH} {self.height:g}" stroke-linejoin="round">'
        return root + box + text[text.index(">") + 1 :]


def ticks_x(axes: Axes, low: float, high: float, labels: Sequence[tuple[float, str]]) -> None:
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator([tick for tick, _ in labels]))
    axes.set_xticklabels([label for _, label in labels])


def ticks_y(axes: Axes, low: float, high: float) -> None:
    """Draw at most 5 ticks and the grid."""
    axes.set_ylim(low, high)
    chosen = nice_ticks(low, high, 4)
    axes.yaxis.set_major_locator(FixedLocator(chosen))
    axes.set_yticklabels([f"{tick:,.0f}".replace(",", NARROW_SPACE) if abs(tick) >= 1000 else f"{tick:g}" for tick in chosen])
    axes.grid(axis="y", color=GRID, linewidth=0.8)
