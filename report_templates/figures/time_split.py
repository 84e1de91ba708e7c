"""The GPU time of some rows by part, as bars of equal length with their shares in them."""

from __future__ import annotations

from collections.abc import Sequence

from ..text.formats import percent
from . import svg
from .palette import INK, MEANINGS, ON, PAPER
from .stacked_bars import Part

WIDTH = 720.0
NARROW = 340.0
_ROW = 22.0
_BAR = 18.0
_SIZE = 10.0
_LABEL = 0.36  # of the width, at most
_LEGEND = 16.0


def time_split(parts: Sequence[Part], rows: Sequence[tuple[str, Sequence[float]]], *, width: float = WIDTH) -> str:
    """Return SVG text of rows: a label, which may be empty, and a percentage per part."""
    used = [i for i in range(len(parts)) if any(values[i] > 0 for _, values in rows)]
    labels, widest = svg.column((label for label, _ in rows), 40, _LABEL * width)
    left = widest + 8 if widest else 0.0
    body, y = _legend([parts[i] for i in used], width)
    for label, (_, values) in zip(labels, rows, strict=True):
        if label:
            body.append(svg.text(left - 8, y + 13, label, anchor="end", fill=INK))
        x, scale = left, (width - left) / max(sum(values), 1e-9)
        for i in used:
            part, wide = parts[i], values[i] * scale
            if wide <= 0:
                continue
            text = percent(values[i])
            body.append(svg.rect(x, y, wide, _BAR, MEANINGS[part.meaning], title=f"{part.name}: {text}"))
            body += [svg.rect(x - 0.5, y, 1, _BAR, PAPER)] if x > left else []
            if svg.width_of(text, _SIZE) + 6 < wide:
                body.append(svg.text(x + wide / 2, y + 13, text, anchor="middle", fill=ON[part.meaning], size=_SIZE))
            x += wide
        y += _ROW
    return svg.document(width, y, body)


def _legend(parts: Sequence[Part], width: float) -> tuple[list[str], float]:
    """Draw a square and a name per part; return also the y below them."""
    body: list[str] = []
    x, y = 0.0, 0.0
    for part in parts:
        wide = 13 + svg.width_of(part.name, _SIZE) + 14
        if x and x + wide - 14 > width:
            x, y = 0.0, y + _LEGEND
        body.append(svg.rect(x, y + 2, 9, 9, MEANINGS[part.meaning]))
        body.append(svg.text(x + 13, y + 10, part.name, fill=INK, size=_SIZE))
        x += wide
    return body, y + _LEGEND + 2
