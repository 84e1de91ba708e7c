"""Square of pairs, with their distances as brightness, and as numbers if there is room."""

from __future__ import annotations

from collections.abc import Sequence

from ..text.formats import clip
from . import svg
from .palette import BRIGHTNESS, INK, MUTED

NUMBERED = 16  # rows at most for a number in each field
_TOP, _FIELD, _LARGEST = 34.0, 36.0, 400.0
_NUMBER = 25.0  # width of a field with a number
_LEVELS = len(BRIGHTNESS)
# On dark and on light fields; the fields have the same colors in both themes.
_LIGHT, _DARK = "#fefefe", "#101010"


def matrix(labels: Sequence[str], values: Sequence[Sequence[float | None]], what: str, *, width: float = svg.WIDE) -> str:
    """Return SVG text. ``values[row][column]`` is from 0 to 1, or None."""
    count = len(labels)
    names, widest = svg.column((f"{number}: {clip(label, 24)}" for number, label in enumerate(labels, 1)), 32, min(220.0, 0.36 * width))
    left = 10 + widest
    cell = min(_FIELD, _LARGEST / count, (width - left) / count)
    every = 1 if cell >= 14 else -(-14 // int(max(cell, 1)))
    body = _scale(what, width)
    fields: dict[int, list[str]] = {}
    numbers = []
    for row, line in enumerate(values[:count]):
        y = _TOP + row * cell
        if row % every == 0:
            body.append(svg.text(left - 6, y + cell / 2 + 4, names[row], anchor="end"))
            body.append(svg.text(left + (row + 0.5) * cell, _TOP - 6, str(row + 1), anchor="middle", fill=MUTED, size=10))
        for column, value in enumerate(line[:count]):
            if value is None:
                continue
            level = min(_LEVELS - 1, int(min(max(value, 0.0), 1.0) * _LEVELS))
            x = left + column * cell
            fields.setdefault(level, []).append(
                f"M{svg.number(x)} {svg.number(y)}h{svg.number(cell)}v{svg.number(cell)}h-{svg.number(cell)}z"
            )
            if count <= NUMBERED and row != column and cell >= _NUMBER:
                ink = _LIGHT if level < _LEVELS / 2 else _DARK
                numbers.append(svg.text(x + cell / 2, y + cell / 2 + 4, f"{value:.2f}", anchor="middle", fill=ink, size=10))
    body += [svg.path("".join(parts), BRIGHTNESS[level]) for level, parts in sorted(fields.items())]
    side = cell * count
    read = "".join("---" if value is None else f"{100 * value:03.0f}" for line in values[:count] for value in line[:count])
    over = svg.rect(left, _TOP, side, side, "none", title=what, data=f' pointer-events="all" data-matrix="{read}"')
    return svg.document(width, _TOP + side + 6, [*body, *numbers, over])


def _scale(what: str, width: float) -> list[str]:
    """Draw the scale of the brightness at the upper right corner."""
    body = [
        svg.text(width - 148, 11, f"{what} 0", anchor="end", fill=INK, size=10),
        svg.text(width - 2, 11, "1", anchor="end", fill=INK, size=10),
    ]
    wide = 128 / _LEVELS
    for level, color in enumerate(BRIGHTNESS):
        body.append(svg.rect(width - 142 + level * wide, 3, wide + 0.2, 9, color))
    return body
