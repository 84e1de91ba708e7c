"""Matrix units of devices: their precisions below FP32, and their speed-up at peak.

Sources, all public: precisions by compute capability from the CUDA C++ Programming Guide (tensor core input types by compute capability)
and the data sheets and architecture papers of NVIDIA's Volta, Turing, Ampere, Ada, Hopper and Blackwell; matrix cores from AMD's papers
on CDNA 1 to 4. GeForce GTX 16xx and the small Turing boards (T400 to T2000, MX450, MX550) have compute capability 7.5 and no tensor
cores. AMD's gfx90a (MI200 series), gfx908 (MI100) and gfx900/906 (none) all report 9.0, so only their names tell them apart; gfx942
(MI300 series) reports 9.4, gfx950 (MI350 series) 9.5.

Peaks are those of ``analysis/device/gpu_products.py``. Only the ratio of two peaks of one device is used.
"""

from __future__ import annotations

import re
from typing import Final

from ...device.gpu_products import product_of
from ...report.run import Device

ORDER: Final = ("TF32", "BF16", "FP16", "FP8", "FP4")

_AMPERE: Final = ("TF32", "BF16", "FP16")
_HOPPER: Final = (*_AMPERE, "FP8")
_BLACKWELL: Final = (*_HOPPER, "FP4")

_NVIDIA: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("3.0", "3.2", "3.5", "3.7", "5.0", "5.2", "5.3", "6.0", "6.1", "6.2"), ()),
    **dict.fromkeys(("7.0", "7.2", "7.5"), ("FP16",)),
    **dict.fromkeys(("8.0", "8.6", "8.7"), _AMPERE),
    **dict.fromkeys(("8.9", "9.0"), _HOPPER),
    **dict.fromkeys(("10.0", "10.3", "11.0", "12.0", "12.1"), _BLACKWELL),
}
_AMD: Final[dict[str, tuple[str, ...]]] = {"9.4": ("TF32", "BF16", "FP16", "FP8"), "9.5": ("BF16", "FP16", "FP8", "FP4")}


def _model(pattern: str, units: tuple[str, ...]) -> tuple[re.Pattern[str], tuple[str, ...]]:
    return re.compile(pattern, re.IGNORECASE), units


# Pattern of a product's name, and the precisions of its matrix units. The first that fits counts.
_MODELS: Final = (
    _model(r"\bGTX ?\d{3,4}|\bMX ?[45]50\b|\bT(400|500|550|600|1000|1200|2000)\b", ()),
    _model(r"\bP(4|40|100)\b|\bK[248]0\b|\bM[46]0\b", ()),
    _model(r"\bV100|\bT4\b|\bTITAN V\b|\bRTX ?20\d\d|\bTITAN RTX|\bQuadro RTX", ("FP16",)),
    _model(r"\bA(100|800|30|40|10|10G|16|2)\b|\bRTX ?30\d\d|\bRTX A\d{4}", _AMPERE),
    _model(r"\bL(4|20|40|40S)\b|\bRTX ?40\d\d|\bRTX \d{4} Ada|\bG?H(20|100|200|800)\b", _HOPPER),
    _model(r"\bG?B[123]00\b|\bRTX ?50\d\d|\bRTX PRO \d{4} Blackwell", _BLACKWELL),
    _model(r"\bMI(100|210|250X?)\b", ("BF16", "FP16")),
    _model(r"\bMI3(00X|00A|08X|25X)\b", _HOPPER),
    _model(r"\bMI35[05]X\b", ("BF16", "FP16", "FP8", "FP4")),
)


def matrix_units(device: Device) -> tuple[str, ...] | None:
    """Return the precisions below FP32 of the matrix units, or None if unknown."""
    for pattern, units in _MODELS:
        if device.name and pattern.search(device.name):
            return units
    table = {"NVIDIA": _NVIDIA, "AMD": _AMD}.get(device.vendor or "", {})
    return table.get(device.compute_capability or "")


def speed_up(device: Device, precisions: tuple[str, ...]) -> tuple[str, float] | None:
    """Return the fastest of ``precisions`` and its ratio to FP32; None if unknown."""
    product = product_of(device.name, device.memory_bytes, device.sm_count, device.compute_capability)
    peaks = {name.upper(): peak for name, peak in product.tflops.items()} if product else {}
    best = max((precision for precision in precisions if precision in peaks), key=lambda precision: peaks[precision], default=None)
    return None if best is None or "FP32" not in peaks else (best, peaks[best] / peaks["FP32"])
