"""The style of a page: the files of templates/ as they are for the browser, and as one sheet for the PDF."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import Final

TEMPLATES: Final = Path(__file__).parents[1] / "templates"
_ROOMS: Final = (12, 6)  # columns of a row of the grid: of the page and of half of it


@cache
def asset(*names: str) -> str:
    """Join the texts of these files of templates/."""
    return "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in names)


def pdf_style() -> str:
    """Return the style for paper, with light colors instead of variables.

    Widths are classes: WeasyPrint computes the style of an element with an attribute ``style``, and of everything in it, by itself.
    """
    screen = asset("style.css")
    # WeasyPrint would resolve each variable again for every cell.
    colors = dict(re.findall(r"--([\w-]+): (#\w+);", screen[: screen.index("@media")]))
    style = re.sub(r"@(?:media|container)[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", screen[screen.index("}") + 1 :])
    tables = "".join(f".w{percent} {{ width: {percent}%; }}" for percent in range(1, 101))
    # Rounded down: more than 100% would move a block to the next row.
    cells = "".join(
        f".c{columns}-{room} {{ width: {math.floor(10000 * columns / room) / 100}%; }}" for room in _ROOMS for columns in range(1, room + 1)
    )
    return re.sub(r"var\(--([\w-]+)\)", lambda match: colors[match[1]], style) + asset("pdf.css") + tables + cells
