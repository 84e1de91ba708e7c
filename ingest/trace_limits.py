"""Which times, durations and device numbers of a trace can be right?"""

from __future__ import annotations

from typing import Final

YEAR_2001_NS: Final = 978_307_200 * 10**9
"""Times before are taken to count from an unknown moment, not from the Unix epoch."""
EARLIEST_NS: Final = -(2**61)
LATEST_NS: Final = 2**62
"""Starts before and beyond are damage (2**62 is a day of 2116); what lies between can be subtracted, also after a base time was added."""
LONGEST_NS: Final = 7 * 86_400 * 10**9
"""Longer durations (236 years have been seen) are defects of the profiler."""
ROUNDING_NS: Final = 1_000
"""Negative durations down to this come from rounding to microseconds."""
HIGHEST_DEVICE: Final = 1024
"""A pid below this may be the index of a device."""
