"""In which evaluation window of a rule does an event lie?"""

from __future__ import annotations

from typing import Final

import polars as pl

from .base import Parameters
from .run_data import RunData

_MINUTE_NS: Final = 60_000_000_000


def window_of(run: RunData, starts: pl.Series, parameters: Parameters) -> pl.Series:
    """The evaluation window in which each event starts, by the times of its starts in ns.

    Windows are half open and count from the first sample's full minute; in a run without samples from the first event's.
    """
    first = starts.min()
    origin = run.samples.origin_ns or (first // _MINUTE_NS * _MINUTE_NS if isinstance(first, int) else 0)
    length = max(1, round(parameters["scan_interval_us"] * 1000))
    windows: pl.Series = (starts - origin) // length
    return windows
