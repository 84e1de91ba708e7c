"""Matrix units of devices: their precisions below FP32, and their speed-up at peak.

Sources, all public: precisions by compute capability from the CUDA C++ Programming Guide (tensor core input types by compute capability)
and the data sheets and architecture papers of NVIDIA's Volta, Turing, Ampere, Ada, Hopper and Blackwell; matrix cores from AMD's papers
on CDNA 1 to 4. GeForce GTX 16xx and the small Turing boards (T400 to T2000, MX450, MX550) have compute capability 7.5 and no tensor
cores. AMD's gfx90a (MI200 series), gfx908 (MI100) and gfx900/906 (none) all report 9.0, so only their names tell them apart; gfx942
(MI300 series) reports 9.4, gfx950 (MI350 series) 9.5.

Peaks are dense TFLOPS of the data sheets (published figures with sparsity halved) of the form factor in the name: FP32 outside of the
tensor cores for NVIDIA, with the matrix cores (which also run FP32 products) for AMD. Only the ratio of two peaks of one device is used,
which the clock of a variant does not change.
"""

from __future__ import annotations

import re
from typing import Final

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


# Pattern of a product's name, precisions of its matrix units, and TFLOPS by precision if the data sheet is clear.
_Model = tuple[re.Pattern[str], tuple[str, ...], dict[str, float]]


def _model(pattern: str, units: tuple[str, ...], **peaks: float) -> _Model:
    return re.compile(pattern, re.IGNORECASE), units, peaks


# The first that fits counts.
_MODELS: Final = (
    _model(r"\bGTX ?\d{3,4}|\bMX ?[45]50\b|\bT(400|500|550|600|1000|1200|2000)\b", ()),
    _model(r"\bP(4|40|100)\b|\bK[248]0\b|\bM[46]0\b", ()),
    _model(r"\bV100.*PCIE", ("FP16",), FP32=14, FP16=112),
    _model(r"\bV100S", ("FP16",), FP32=16.4, FP16=130),
    _model(r"\bV100", ("FP16",), FP32=15.7, FP16=125),
    _model(r"\bT4\b", ("FP16",), FP32=8.1, FP16=65),
    _model(r"\bTITAN V\b|\bRTX ?20\d\d|\bTITAN RTX|\bQuadro RTX", ("FP16",)),
    _model(r"\bA[18]00\b", _AMPERE, FP32=19.5, TF32=156, BF16=312, FP16=312),
    _model(r"\bA30\b", _AMPERE, FP32=10.3, TF32=82, BF16=165, FP16=165),
    _model(r"\bA40\b", _AMPERE, FP32=37.4, TF32=74.8, BF16=149.7, FP16=149.7),
    _model(r"\bA10\b", _AMPERE, FP32=31.2, TF32=62.5, BF16=125, FP16=125),
    _model(r"\bA10G\b|\bA16\b|\bA2\b|\bRTX ?30\d\d|\bRTX A\d{4}", _AMPERE),
    _model(r"\bL40S\b", _HOPPER, FP32=91.6, TF32=183, BF16=362, FP16=362, FP8=733),
    _model(r"\bL4\b", _HOPPER, FP32=30.3, TF32=60, BF16=121, FP16=121, FP8=242.5),
    _model(r"\bL40\b|\bL20\b|\bRTX ?40\d\d|\bRTX \d{4} Ada", _HOPPER),
    _model(r"\bH100.*NVL|\bH200.*NVL", _HOPPER, FP32=60, TF32=417.5, BF16=835.5, FP16=835.5, FP8=1670.5),
    _model(r"\bH[18]00.*PCIE", _HOPPER, FP32=51, TF32=378, BF16=756, FP16=756, FP8=1513),
    _model(r"\bH20\b", _HOPPER, FP32=44, TF32=74, BF16=148, FP16=148, FP8=296),
    _model(r"\bG?H(100|200|800)\b", _HOPPER, FP32=67, TF32=494.7, BF16=989.4, FP16=989.4, FP8=1978.9),
    _model(r"\bGB200\b", _BLACKWELL, FP32=80, TF32=1250, BF16=2500, FP16=2500, FP8=5000, FP4=10000),
    _model(r"\bB200\b", _BLACKWELL, FP32=75, TF32=1100, BF16=2250, FP16=2250, FP8=4500, FP4=9000),
    _model(r"\bG?B(100|300)\b|\bRTX ?50\d\d|\bRTX PRO \d{4} Blackwell", _BLACKWELL),
    _model(r"\bMI100\b", ("BF16", "FP16"), FP32=46.1, BF16=92.3, FP16=184.6),
    _model(r"\bMI250X\b", ("BF16", "FP16"), FP32=95.7, BF16=383, FP16=383),
    _model(r"\bMI250\b", ("BF16", "FP16"), FP32=90.5, BF16=362.1, FP16=362.1),
    _model(r"\bMI210\b", ("BF16", "FP16"), FP32=45.3, BF16=181, FP16=181),
    _model(r"\bMI3(00|25)X\b", _HOPPER, FP32=163.4, TF32=653.7, BF16=1307.4, FP16=1307.4, FP8=2614.9),
    _model(r"\bMI3(00A|08X)\b", _HOPPER),
    _model(r"\bMI35[05]X\b", ("BF16", "FP16", "FP8", "FP4")),
)


def matrix_units(device: Device) -> tuple[str, ...] | None:
    """Return the precisions below FP32 of the matrix units, or None if unknown."""
    if model := _find(device.name):
        return model[1]
    table = {"NVIDIA": _NVIDIA, "AMD": _AMD}.get(device.vendor or "", {})
    return table.get(device.compute_capability or "")


def speed_up(device: Device, precisions: tuple[str, ...]) -> tuple[str, float] | None:
    """Return the fastest of ``precisions`` and its ratio to FP32; None if unknown."""
    model = _find(device.name)
    peaks = model[2] if model else {}
    best = max((precision for precision in precisions if precision in peaks), key=lambda precision: peaks[precision], default=None)
    return None if best is None or "FP32" not in peaks else (best, peaks[best] / peaks["FP32"])


def _find(name: str | None) -> _Model | None:
    return next((model for model in _MODELS if name and model[0].search(name)), None)
