"""Peaks of a device: the table of products, and the values that a user sets instead (``--peak``)."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any, Final

from ...errors import UsageError
from ..device.gpu_products import TYPES, product_of
from ..report.efficiency import DevicePeaks

MEMORY: Final = "memory"
LINK: Final = "link"
_NAMES: Final = (*TYPES, MEMORY, LINK)
_LARGEST: Final = 1e9  # TFLOPS or GB/s; a larger one has another unit
_OVERRIDDEN: Final = "set with --peak"


def checked_peaks(values: Mapping[str, Any]) -> dict[str, float]:
    """Check peaks that a user sets: a type -> TFLOPS, memory and link -> GB/s.

    Raise UsageError for an unknown name and for a value that is not a positive number."""
    if not isinstance(values, Mapping):
        raise UsageError(f"peaks: {values!r} is not a mapping; write it like {{'bf16': 989}}")
    peaks: dict[str, float] = {}
    for key, value in values.items():
        name = str(key).strip().lower()
        if name not in _NAMES:
            near = difflib.get_close_matches(name, _NAMES, n=1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise UsageError(f"{key!r} has no peak{meant}; choose from {', '.join(_NAMES)}")
        unit = "GB/s" if name in (MEMORY, LINK) else "TFLOPS"
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if isinstance(value, bool) or not 0 < number <= _LARGEST:
            raise UsageError(f"the peak of {name} is {value!r}; it must be a positive number of {unit}")
        if name in peaks:
            raise UsageError(f"{name} has two peaks; state one")
        peaks[name] = number
    return peaks


def peaks_of(
    name: str | None,
    memory_bytes: int | None = None,
    sm_count: int | None = None,
    compute_capability: str | None = None,
    *,
    overrides: Mapping[str, float] | None = None,
) -> DevicePeaks | None:
    """Return the peaks of a device, None if unknown.

    The first arguments are those of :func:`product_of`. ``overrides``: the result of :func:`checked_peaks`. They replace published
    figures; a GPU without a known product has no others."""
    product = product_of(name, memory_bytes, sm_count, compute_capability)
    if product is not None and not product.tflops:
        product = None
    overrides = overrides or {}
    if product is None and not overrides:
        return None
    tflops = {**(product.tflops if product else {}), **{key: value for key, value in overrides.items() if key in TYPES}}
    link = product.link.total_gb_per_s if product and product.link else None
    return DevicePeaks(
        device_name=name or "",
        product=product.name if product else name or "unknown GPU",
        flop_per_s={key: tflops[key] * 1e12 for key in TYPES if key in tflops},
        bytes_per_s=_bytes(overrides.get(MEMORY, product.gb_per_s if product else None)),
        link_bytes_per_s=_bytes(overrides.get(LINK, link)),
        source="; ".join([*([product.source] if product else []), *([_OVERRIDDEN] if overrides else [])]),
        overridden=tuple(key for key in _NAMES if key in overrides),
    )


def _bytes(gb_per_s: float | None) -> float | None:
    return None if gb_per_s is None else gb_per_s * 1e9
