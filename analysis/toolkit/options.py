"""Options of an analysis without those of the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """top: rows in "top k" tables and figures. histograms: annotation base names to draw (none: the ones that take longest).
    histograms_if_present: a name among them without any range is left out. generated_at_ns: time shown as the report's creation (None:
    now). name: shown instead of the run's own name. peaks: of the GPUs, instead of the published ones: "bf16" -> TFLOPS, "memory" ->
    GB/s. price_per_gpu_hour: amount and currency, such as (2.5, "USD"); without it the report has no cost."""

    top: int = 15
    histograms: tuple[str, ...] = ()
    histograms_if_present: bool = False
    generated_at_ns: int | None = None
    name: str | None = None
    peaks: Mapping[str, float] = field(default_factory=dict)
    price_per_gpu_hour: tuple[float, str] | None = None
