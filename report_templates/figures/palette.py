"""Which colour means what, in every figure of the report?

Figures are drawn in these literal light colours, which is what the PDF shows. For HTML, :func:`themed` turns each into the CSS variable of
the same name, which style.css defines for the light and the dark theme. So every colour is written exactly once, and all differ.
"""

from __future__ import annotations

import re
from typing import Final

# Okabe-Ito, one meaning each through the whole report; idle and other are neutral greys.
MEANINGS: Final[dict[str, str]] = {
    "computation": "#0072b2",
    "communication": "#d55e00",
    "memory": "#e69f00",
    "idle": "#ccd1d6",
    "sync": "#cc79a7",
    "host": "#009e73",
    "loading": "#f0e442",
    "operator": "#56b4e9",
    "other": "#8c959f",
}
# Text on a field of that colour.
ON: Final[dict[str, str]] = {name: "#fffffe" if name == "computation" else "#1b1f25" if name == "idle" else "#111418" for name in MEANINGS}

INK: Final = "#1b1f24"
MUTED: Final = "#57606a"
GRID: Final = "#d8dee4"
PAPER: Final = "#ffffff"

# Lines that are told apart by process or node, not by meaning; drawn with direct labels.
LINES: Final = ("#0073b3", "#d45d00", "#009d72", "#b85f92", "#a87400", "#3d8fbf")

VARIABLES: Final[dict[str, str]] = {
    **{colour: f"var(--{name})" for name, colour in MEANINGS.items()},
    "#fffffe": "var(--on-computation)",
    "#1b1f25": "var(--on-idle)",
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{colour: f"var(--line-{number})" for number, colour in enumerate(LINES, 1)},
}

_TAG = re.compile(r"<[^>]*>")
_PAINT = re.compile(r"\b(fill|stroke)(: ?|=\")(#[0-9a-f]{6})")
_ID = re.compile(r"(\bid=\"|url\(#|href=\"#)")
_ROOT_ONLY = re.compile(r' xmlns(?::\w+)?="[^"]*"| font-family="[^"]*"')

# Steps of opacity of sectors of one meaning: as many as a ring has, all different, and those of neighbours far apart.
SHADES: Final = (1.0, 0.73, 0.46, 0.82, 0.55, 0.37, 0.91, 0.64, 0.32)


def themed(svg: str, name: str) -> str:
    """``svg`` for inlining in HTML: colours as CSS variables, ids made unique by ``name``, no namespaces, and the page's own font.

    Only tags are touched, never the text between them, which may come from a trace.
    """

    def recolour(found: re.Match[str]) -> str:
        return f"{found[1]}{found[2]}{VARIABLES.get(found[3], found[3])}"

    def tag(found: re.Match[str]) -> str:
        return _ID.sub(rf"\g<1>{name}-", _PAINT.sub(recolour, _ROOT_ONLY.sub("", found[0])))

    return _TAG.sub(tag, svg)
