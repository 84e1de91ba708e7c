"""Sparkline of one number from run to run; shapes repeat the meaning of the colors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from .svg import number, text_of

WIDTH: Final = 300
HEIGHT: Final = 84
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 66, 14, 14
_LINE: Final = 12.0
_LEAST: Final = 0.1  # least range, as a share of its middle, so that noise stays small


@dataclass(frozen=True, slots=True)
class Dot:
    """A run. ``kind``: "plain", "other" (not comparable, next to the line), or the change against the runs before it. ``changed``: whether
    the level changed at this run."""

    y: float
    kind: Literal["plain", "other", "regression", "improvement"]
    changed: bool = False


def trend(dots: Sequence[Dot], form: Callable[[float], str]) -> str:
    """Return SVG text in the colors of the page. ``form``: of the numbers.

    The line joins comparable runs. A dashed line is before a run at which the level changed. A triangle that points up is a regression, one
    that points down an improvement, a ring a run that is not comparable, and the large dot the newest run.
    """
    values = [dot.y for dot in dots]
    low, high = min(values), max(values)
    middle, span = (low + high) / 2, max(high - low, _LEAST * abs(high + low) / 2) or 1.0
    bottom = middle - span / 2
    wide = WIDTH - _LEFT - _RIGHT

    def x(i: float) -> float:
        return _LEFT + wide * i / max(1, len(dots) - 1)

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (value - bottom) / span

    body = [_rule(y(high))]
    if low != high:
        body.append(_rule(y(low)))
    body += [_border(x(i - 0.5)) for i, dot in enumerate(dots) if dot.changed and i]
    line = [(x(i), y(dot.y)) for i, dot in enumerate(dots) if dot.kind != "other"]
    if len(line) > 1:
        body.append('<path class="t-line" d="M' + "L".join(f"{number(px)} {number(py)}" for px, py in line) + '"/>')
    newest = max((i for i, dot in enumerate(dots) if dot.kind != "other"), default=len(dots) - 1)
    for i, dot in enumerate(dots):
        body.append(_mark(x(i), y(dot.y), dot.kind, newest=i == newest))
    ends = [(form(high), y(high)), (form(low), y(low))]
    if ends[0][0] == ends[1][0]:
        ends = [(ends[0][0], (ends[0][1] + ends[1][1]) / 2)]
    elif (missing := _LINE - (ends[1][1] - ends[0][1])) > 0:  # overlapping numbers move apart
        ends = [(ends[0][0], ends[0][1] - missing / 2), (ends[1][0], ends[1][1] + missing / 2)]
    body += [f'<text x="{number(WIDTH - _RIGHT + 10)}" y="{number(at + 4)}">{text_of(label)}</text>' for label, at in ends]
    return f'<svg class="trend" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">' + "".join(body) + "</svg>"


def _rule(y: float) -> str:
    return f'<path class="t-rule" d="M{_LEFT} {number(y)}H{WIDTH - _RIGHT + 5}"/>'


def _border(x: float) -> str:
    return f'<path class="t-change" d="M{number(x)} 2V{HEIGHT - 2}"/>'


def _mark(x: float, y: float, kind: str, *, newest: bool) -> str:
    if kind == "regression":
        return f'<path class="t-worse" d="M{number(x)} {number(y - 7)}l6 11h-12z"/>'
    if kind == "improvement":
        return f'<path class="t-better" d="M{number(x)} {number(y + 7)}l6 -11h-12z"/>'
    if kind == "other":
        return f'<circle class="t-other" cx="{number(x)}" cy="{number(y)}" r="2.5"/>'
    return f'<circle class="t-dot" cx="{number(x)}" cy="{number(y)}" r="{3.5 if newest else 1.5}"/>'
