"""Colors and their meanings in all figures of the report.

Figures are drawn in these literal light colors, which the PDF shows. For HTML, :func:`themed` turns each into the CSS variable of the same
name, which style.css defines for the light and the dark theme. Each color is therefore written once, and all differ.
"""

from __future__ import annotations

import re
from typing import Final

from ..text.fonts import MONO_FAMILIES

# Okabe-Ito, one meaning each in the entire report; idle and other are neutral grays. Some are darker, for 3:1 against paper.
MEANINGS: Final[dict[str, str]] = {
    "computation": "#0072b2",
    "communication": "#c24e00",
    "memory": "#b87f00",
    "idle": "#8b949d",
    "sync": "#c4709f",
    "host": "#009e73",
    "loading": "#6e6600",
    "operator": "#3596d0",
    "other": "#59636e",
}
_DEEP: Final = frozenset({"computation", "communication", "loading", "other"})  # white text in the light theme
# Text on a field of that color.
ON: Final[dict[str, str]] = {name: "#fffffe" if name in _DEEP else "#1b1f25" if name == "idle" else "#111418" for name in MEANINGS}

INK: Final = "#1b1f24"
MUTED: Final = "#57606a"
GRID: Final = "#d8dee4"
PAPER: Final = "#ffffff"

# Lines of processes, nodes, and streams, which have no meaning: gray with direct labels, paler if not named; the outlier has the accent.
SERIES: Final = "#66717c"
UNNAMED: Final = "#8b949e"
ACCENT: Final = "#6a35a8"

# Shares from 0 to 1 in equal intervals, dark to light (cividis): the same in both themes.
BRIGHTNESS: Final = (
    "#002758", "#00306f", "#1a386f", "#2d416d", "#3c4a6c", "#49536c", "#555c6d", "#61656f", "#6c6d72", "#777776",
    "#828079", "#8f8a78", "#9b9476", "#a79d73", "#b5a86f", "#c2b369", "#d0be62", "#dec958", "#ebd44b", "#fbe138",
)  # fmt: skip

VARIABLES: Final[dict[str, str]] = {
    **{color: f"var(--{name})" for name, color in MEANINGS.items()},
    "#fffffe": "var(--on-computation)",
    "#1b1f25": "var(--on-idle)",
    SERIES: "var(--series)",
    UNNAMED: "var(--unnamed)",
    ACCENT: "var(--outlier)",
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
}

_PALE: Final = 0.45  # largest opacity at which ink is readable on every color but loading, in both themes

_CODE: Final = f' font-family="{MONO_FAMILIES}"'
_ROOT_ONLY = re.compile(r' (?:xmlns|font-family)="[^"]*"')
_PAINT = re.compile(r' (fill|stroke)="(#[0-9a-f]{6})"')

# Opacities of the sectors of one meaning: as many as a ring has, all different, and far apart for neighbors.
SHADES: Final = (1.0, 0.73, 0.46, 0.82, 0.55, 0.37, 0.91, 0.64, 0.32)


def ink_on(meaning: str, shade: float) -> str | None:
    """Return the color of text on a field; None if none is readable in both themes."""
    return ON[meaning] if shade == 1 else INK if shade <= _PALE else None


def themed(svg: str) -> str:
    """Prepare an SVG for HTML: variables as colors, classes as fonts, no namespace.

    Text from a trace has no quotation marks in an SVG (:func:`.svg.text_of`), so only attributes change.
    """
    head, end, body = svg.partition(">")
    body = body.replace(_CODE, ' class="code"')
    return _ROOT_ONLY.sub("", head) + end + _PAINT.sub(lambda paint: f' {paint[1]}="{VARIABLES.get(paint[2], paint[2])}"', body)
