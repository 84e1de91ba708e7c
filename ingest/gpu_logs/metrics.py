"""The metrics that are read from the logs of GPU monitors, and the limits of their values and times."""

from __future__ import annotations

from typing import Final

UTILIZATION: Final = "gpu_utilization"
USED: Final = "gpu_memory_used_bytes"
TOTAL: Final = "gpu_memory_total_bytes"
PERCENT: Final = "gpu_memory_used_percent"
FREE: Final = "gpu_memory_free_bytes"
RESERVED: Final = "gpu_memory_reserved_bytes"  # by the driver; only used to compute the total, not stored
# Highest possible values.
LIMITS: Final = {
    USED: 2.0**50, TOTAL: 2.0**50, FREE: 2.0**50, RESERVED: 2.0**50, "gpu_power": 1e5, "gpu_sm_clock": 1e5, "gpu_throttle_reasons": 2.0**53,
}  # fmt: skip
PERCENT_LIMIT: Final = 100.0
YEAR_2001_US: Final = 978_307_200 * 10**6
YEAR_2200_US: Final = 7_258_118_400 * 10**6
