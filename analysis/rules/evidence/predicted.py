"""The predicted saving of a cause across ranks, as the cost of its finding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...causes.what_if import Gain
from ...toolkit.wording import numbered, plural, threshold_text, whole_percent
from .base import Cost
from .device_share import span_of_all, steps_of
from .run_data import RunData

_ALL: Final = 99.5  # percent of the avoidable time from which a cause explains the entire time


def predicted_cost(run: RunData, title: str, saved_percent: float, where: str | None) -> Cost:
    """Return a cost whose saving is the share of the step that a simulation predicts."""
    total = span_of_all(run)
    ns = round(total * min(max(saved_percent, 0.0), 100.0) / 100)
    steps = sum(steps_of(run).values())
    return Cost(title, ns, total, ns, ns / steps if steps else None, where, saving_kind="predicted")


def explained(gain: Gain, threshold: float) -> str:
    """Write a sentence on the part of the avoidable time that a cause explains.

    A part above 100% is the entire time: equal durations also lengthen the short stages."""
    part = 100 * gain.explained
    share = "all" if part >= _ALL else whole_percent(part)
    return f"This saving is {share} of the time that equal durations on all ranks would save (threshold {threshold_text(threshold)})."


def ranks_in_words(run: RunData, processes: Iterable[int]) -> str:
    """ "rank 6", "ranks 6 and 7", "ranks 0 to 3" """
    ranks = sorted(rank for rank in (run.places.process(process).rank for process in processes) if rank is not None)
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {numbered(ranks)}" if ranks else plural(0, "rank")
