"""How is the plain data of a rule read when any of it may be missing? What is not there, or no number, is None, or an empty list."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ...analysis.report import Report, RuleResult
from .. import labels
from ..blocks import Cell, Figure, Table, word
from ..figures.histogram import Bins
from ..formats import UNKNOWN, clip, duration, percent

Row = Mapping[str, Any]
Blocks = Sequence[Figure | Table | None]

_NEARLY: Final = 0.01
_SMALL: Final = 0.05
_NOTHING: Final[Row] = {}


@dataclass(frozen=True, slots=True)
class Shown:
    """A rule, the id of its section, and when the run began (its times are told from then on)."""

    id: str
    rule: RuleResult
    start_ns: int

    @property
    def details(self) -> Row:
        return self.rule.details if isinstance(self.rule.details, Mapping) else _NOTHING

    @property
    def issue(self) -> bool:
        return self.rule.verdict == "IssuesFound"

    def parameter(self, name: str) -> float | None:
        """The effective value of a parameter that is a number."""
        return number(self.rule.parameters, name)

    def after(self, ns: float | None) -> Cell:
        """A moment as time since the run began."""
        return Cell(UNKNOWN) if ns is None else Cell(duration(max(0.0, ns - self.start_ns)), sort=ns)


def shown(report: Report, rule: RuleResult, id: str) -> Shown:
    return Shown(id, rule, report.run.started_at_ns or 0)


def rows(data: Row, key: str) -> list[Row]:
    """The dicts of a list."""
    found = data.get(key)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list | tuple) else []


def part(data: Row, key: str) -> Row:
    found = data.get(key)
    return found if isinstance(found, Mapping) else _NOTHING


def number(data: Row, key: str) -> float | None:
    found = data.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
        return None
    return found


def whole(data: Row, key: str) -> int | None:
    found = number(data, key)
    return None if found is None else int(found)


def text(data: Row, key: str) -> str | None:
    found = data.get(key)
    return found if isinstance(found, str) else None


def numbers(data: Row, key: str) -> list[float]:
    """A list of numbers; empty where it holds anything else."""
    found = data.get(key)
    if not isinstance(found, list | tuple):
        return []
    if any(isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item) for item in found):
        return []
    return list(found)


def place(row: Row) -> str:
    """ "rank 3 · node-0 GPU 3", or the process where no device is named."""
    node, rank, device = text(row, "node") or "unknown host", whole(row, "rank"), whole(row, "device")
    if device is None:
        return labels.process(node, rank, whole(row, "pid"), clip(text(row, "phase") or "", 24) or None)
    return labels.device(node, rank, device)


def where(row: Row) -> Cell:
    """The cell that names a device or a process; sorted by its number."""
    device, rank = whole(row, "device"), whole(row, "rank")
    return Cell(place(row), sort=rank if rank is not None else device)


def name(row: Row, *, full: str | None = None) -> Cell:
    return word(text(row, "name"), full=full, limit=72)


def truth(data: Row, key: str) -> bool:
    return data.get(key) is True


def listed(data: Row, key: str, most: int = 6) -> str | None:
    """The texts of a list, in a row."""
    found = data.get(key)
    texts = [clip(item, 30) for item in found if isinstance(item, str)] if isinstance(found, list | tuple) else []
    return ", ".join(texts[:most]) or None


def answer(data: Row, key: str, yes: str, no: str) -> Cell:
    """A truth that may not be known."""
    return Cell(yes if data.get(key) is True else no if data.get(key) is False else UNKNOWN)


def marked(issue: bool, word: str = "over") -> Cell:
    """Whether this row is over the threshold, or outside of both."""
    return Cell(f"✕ {word}", mark="v-issue") if issue else Cell("within")


def bins(data: Row, key: str, label: str, mark: float | None, limit: float | None = None) -> Bins | None:
    """A histogram of durations, if it is one."""
    found = part(data, key)
    edges, counts = numbers(found, "edges"), [int(count) for count in numbers(found, "counts")]
    if len(edges) != len(counts) + 1 or not sum(counts) or edges[0] < 0 or sorted(edges) != edges:
        return None
    logarithmic = truth(found, "logarithmic") and edges[0] > 0
    return Bins(label, edges, counts, mark, whole(found, "beyond") or 0, logarithmic, limit)


def narrow(drawn: Bins) -> bool:
    """Whether all values lie within one percent: one block, of which nothing is to be seen."""
    return not drawn.beyond and drawn.edges[-1] - drawn.edges[0] < _NEARLY * drawn.edges[-1]


def share(found: float | None) -> str:
    """A percentage that may lie below zero."""
    return percent(0.0 if found is not None and abs(found) < _SMALL else found)


def points(found: float | None) -> str:
    """A difference of percentages."""
    if found is None:
        return UNKNOWN
    return f"{0.0 if abs(found) < _SMALL else found:.1f}\u00a0points".replace("-", "−")
