"""GPU products by name and form factor -> published peaks, memory, multiprocessors and links.

A product is the board that the vendor publishes figures for: an H100 SXM5 and an H100 PCIe differ by a third. Names are those that traces,
NVML and ROCm print; a pattern has to match the complete name without the vendor, so that slices (MIG), virtual GPUs, laptop and regional
variants are not taken for the board. Where a run records the memory or the multiprocessors, these have to agree with the product.

Peaks are dense tensor-core (matrix-core) rates in TFLOPS by the type of the inputs, with FP32 accumulation; published rates with sparsity
are halved. FP32 is the rate outside of the tensor cores for NVIDIA, that of the matrix cores for AMD. A rate that no data sheet of the
vendor states, or that its documents state differently, is left out: a type or a product that is not here is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from ...ingest.store.gpu_names import model

TYPES: Final = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8")
"""Types of inputs that have a peak."""

NVLINK: Final = "NVLink"
XGMI: Final = "xGMI"
PCIE: Final = "PCIe"

Topology = Literal["switch", "board", "cube", "mesh", "ring"]


@dataclass(frozen=True, slots=True)
class GpuLink:
    """The link of a GPU to the other GPUs of its node, in GB/s (10^9 bytes) of one direction.

    ``topology``: switch: any group has all links; board: so on nodes of more than four GPUs, on others in pairs; cube: in groups of 8 or
    16; mesh: ``gb_per_s`` is of the link between two GPUs, one of seven; ring: of the one link that a ring uses."""

    kind: str
    gb_per_s: float
    topology: Topology = "switch"

    @property
    def total_gb_per_s(self) -> float | None:
        """All links of the GPU together, in one direction; None if unknown."""
        return {"mesh": 7 * self.gb_per_s, "ring": None}.get(self.topology, self.gb_per_s)


@dataclass(frozen=True, slots=True)
class GpuProduct:
    """A board, or one of its dies if each is a device of its own.

    ``pattern``: of the complete name, in lower case, without the vendor. ``tflops``: by type (TYPES). ``gb_per_s``: of the memory.
    ``memory_gib``: as the board is sold. ``sm_count``: multiprocessors (compute units). ``host_gb_per_s``: of PCIe to the host, in one
    direction. ``source``: the document that states the figures."""

    name: str
    pattern: str
    source: str
    tflops: dict[str, float] = field(default_factory=dict)
    gb_per_s: float | None = None
    memory_gib: float | None = None
    sm_count: int | None = None
    link: GpuLink | None = None
    host_gb_per_s: int | None = None
    vendor: str = "NVIDIA"
    compute_capability: str | None = None


def _tensor(fp16: float, **others: float) -> dict[str, float]:
    """Peaks of a GPU whose tensor cores run BF16 as fast as FP16."""
    return {"bf16": fp16, "fp16": fp16, **others}


_GEN3: Final = GpuLink(PCIE, 16)  # x16, 32 GB/s in both directions
_GEN4: Final = GpuLink(PCIE, 32)  # x16, 64 GB/s in both directions
_GEN5: Final = GpuLink(PCIE, 64)  # x16, 128 GB/s in both directions

_V100_SHEET: Final = "NVIDIA Tesla V100 data sheet (2020)"
_A100_SHEET: Final = "NVIDIA A100 data sheet (2021)"
_H100_PAPER: Final = "NVIDIA H100 Tensor Core GPU Architecture whitepaper (2022)"
_H100_SHEET: Final = "NVIDIA H100 data sheet (2024)"
_H200_SHEET: Final = "NVIDIA H200 data sheet (2024)"
_GH200_SHEET: Final = "NVIDIA GH200 data sheet (2024)"
_GA102_PAPER: Final = "NVIDIA Ampere GA102 GPU Architecture whitepaper (2021)"
_ADA_PAPER: Final = "NVIDIA Ada GPU Architecture whitepaper (2023)"
_ADA_PRO_PAPER: Final = "NVIDIA Ada Lovelace professional GPU architecture whitepaper (2023)"
_RTX_BLACKWELL_PAPER: Final = "NVIDIA RTX Blackwell GPU Architecture whitepaper (2025)"

_A100: Final = _tensor(312, fp64=19.5, fp32=19.5, tf32=156, int8=624)
_H100_SXM: Final = _tensor(989.4, fp64=67, fp32=67, tf32=494.7, fp8=1978.9, int8=1978.9)
_H100_PCIE: Final = _tensor(756, fp64=51, fp32=51, tf32=378, fp8=1513, int8=1513)
_HOPPER_NVL: Final = _tensor(835.5, fp64=60, fp32=60, tf32=417.5, fp8=1670.5, int8=1670.5)

_NVIDIA: Final = (
    # Pascal and Volta. P100 has no tensor cores. V100-SXM3, V100-DGXS and V100-FHHL have other clocks and no complete data sheet.
    GpuProduct(
        "P100 SXM2", "p100-sxm2-16gb", "NVIDIA Tesla P100 data sheet (2016)", {"fp64": 5.3, "fp32": 10.6, "fp16": 21.2}, 732, 16, 56,
        None, 16,
    ),
    GpuProduct(
        "P100 PCIe", "p100-pcie-16gb", "NVIDIA Tesla P100 data sheet (2016)", {"fp64": 4.7, "fp32": 9.3, "fp16": 18.7}, 732, 16, 56,
        _GEN3, 16,
    ),
    GpuProduct(
        "V100 SXM2 16GB", "v100-sxm2-16gb", _V100_SHEET, {"fp64": 7.8, "fp32": 15.7, "fp16": 125}, 900, 16, 80,
        GpuLink(NVLINK, 150, "cube"), 16,
    ),
    GpuProduct(
        "V100 SXM2 32GB", "v100-sxm2-32gb", _V100_SHEET, {"fp64": 7.8, "fp32": 15.7, "fp16": 125}, 900, 32, 80,
        GpuLink(NVLINK, 150, "cube"), 16,
    ),
    GpuProduct("V100 PCIe 16GB", "v100-pcie-16gb", _V100_SHEET, {"fp64": 7, "fp32": 14, "fp16": 112}, 900, 16, 80, _GEN3, 16),
    GpuProduct("V100 PCIe 32GB", "v100-pcie-32gb", _V100_SHEET, {"fp64": 7, "fp32": 14, "fp16": 112}, 900, 32, 80, _GEN3, 16),
    GpuProduct("V100S PCIe", "v100s-pcie-32gb", _V100_SHEET, {"fp64": 8.2, "fp32": 16.4, "fp16": 130}, 1134, 32, 80, _GEN3, 16),
    GpuProduct("V100, form unknown", r"v100(-.*)?", _V100_SHEET, host_gb_per_s=16),
    GpuProduct(
        "T4", "t4", "NVIDIA Turing GPU Architecture whitepaper (2018)", {"fp32": 8.1, "fp16": 65, "int8": 130}, 320, 16, 40, _GEN3, 16
    ),
    # Ampere
    GpuProduct("A100 SXM4 40GB", "a100-sxm4-40gb", _A100_SHEET, _A100, 1555, 40, 108, GpuLink(NVLINK, 300, "board"), 32),
    GpuProduct("A100 SXM4 80GB", "a100-sxm4-80gb", _A100_SHEET, _A100, 2039, 80, 108, GpuLink(NVLINK, 300, "board"), 32),
    GpuProduct("A100 PCIe 40GB", "a100-pcie-40gb", _A100_SHEET, _A100, 1555, 40, 108, _GEN4, 32),
    GpuProduct("A100 PCIe 80GB", "a100 80gb pcie", _A100_SHEET, _A100, 1935, 80, 108, _GEN4, 32),
    # Both forms compute alike; those with 40 GB have the same memory.
    GpuProduct("A100 40GB (SXM or PCIe)", r"a100(-pg509-200)?", _A100_SHEET, _A100, 1555, 40, 108, None, 32),
    GpuProduct("A100 80GB (SXM or PCIe)", "a100", _A100_SHEET, _A100, None, 80, 108, None, 32),
    GpuProduct("A100, form unknown", "a100", _A100_SHEET, host_gb_per_s=32),
    GpuProduct(
        "A800 SXM4 80GB", "a800-sxm4-80gb", "NVIDIA A800 data sheet (2022)", _A100, 2039, 80, 108, GpuLink(NVLINK, 200, "board"), 32
    ),
    GpuProduct("A800 PCIe 80GB", "a800 80gb pcie", "NVIDIA A800 data sheet (2022)", _A100, 1935, 80, 108, _GEN4, 32),
    GpuProduct(
        "A30", "a30", "NVIDIA A30 data sheet (2021)", _tensor(165, fp64=10.3, fp32=10.3, tf32=82, int8=330), 933, 24, 56, None, 32
    ),
    GpuProduct("A40", "a40", "NVIDIA A40 data sheet (2021)", _tensor(149.7, fp32=37.4, tf32=74.8, int8=299.3), 696, 48, 84, None, 32),
    GpuProduct("A10", "a10", "NVIDIA A10 data sheet (2021)", _tensor(125, fp32=31.2, tf32=62.5, int8=250), 600, 24, 72, _GEN4, 32),
    # For the FP32 of the A10G, documents differ. It has half of the lanes of the A10's link.
    GpuProduct("A10G", "a10g", "NVIDIA A10G data sheet (2021)", _tensor(70, tf32=35, int8=140), 600, 24, 80),
    GpuProduct("RTX A6000", "rtx a6000", _GA102_PAPER, _tensor(154.8, fp32=38.7, tf32=77.4, int8=309.7), 768, 48, 84),
    GpuProduct("RTX 3090", "geforce rtx 3090", _GA102_PAPER, _tensor(71, fp32=35.6, tf32=35.6, int8=284), 936, 24, 82),
    # Ada
    GpuProduct("L4", "l4", "NVIDIA L4 data sheet (2023)", _tensor(121, fp32=30.3, tf32=60, fp8=242.5, int8=242.5), 300, 24, 58, _GEN4, 32),
    GpuProduct(
        "L40", "l40", "NVIDIA L40 data sheet (2023)", _tensor(181.05, fp32=90.5, tf32=90.5, fp8=362, int8=362), 864, 48, 142, _GEN4, 32
    ),
    GpuProduct(
        "L40S", "l40s", "NVIDIA L40S data sheet (2023)", _tensor(362.05, fp32=91.6, tf32=183, fp8=733, int8=733), 864, 48, 142, _GEN4, 32
    ),
    GpuProduct(
        "RTX 6000 Ada", "rtx 6000 ada generation", _ADA_PRO_PAPER, _tensor(364.2, fp32=91.1, tf32=182.1, fp8=728.5, int8=728.5),
        960, 48, 142,
    ),
    GpuProduct(
        "RTX 4090", "geforce rtx 4090", _ADA_PAPER, _tensor(165.2, fp32=82.6, tf32=82.6, fp8=330.3, int8=660.6), 1008, 24, 128
    ),
    GpuProduct("RTX 4080", "geforce rtx 4080", _ADA_PAPER, _tensor(97.5, fp32=48.7, tf32=48.7, fp8=194.9, int8=389.9), 716.8, 16, 76),
    # Hopper. The H20 has no data sheet that the vendor publishes.
    # "NVIDIA H100" alone names all forms: the multiprocessors and the memory tell them apart.
    GpuProduct(
        "H100 SXM5", r"h100( 80gb hbm3)?|h100[- ]sxm5?([- ]80gb)?", _H100_PAPER, _H100_SXM, 3352, 80, 132, GpuLink(NVLINK, 450, "board"), 64
    ),
    GpuProduct("H100 PCIe", r"h100|h100[- ]pcie([- ]80gb)?", _H100_PAPER, _H100_PCIE, 2039, 80, 114, _GEN5, 64),
    GpuProduct("H100 NVL", r"h100( nvl)?", _H100_SHEET, _HOPPER_NVL, 3900, 94, 132, None, 64),  # no trace shows which cards a bridge joins
    GpuProduct("H100, form unknown", "h100", _H100_SHEET, host_gb_per_s=64),
    GpuProduct(
        "H800 SXM5", "h800", "NVIDIA H800 data sheet (2023)", {**_H100_SXM, "fp64": 1}, 3352, 80, 132, GpuLink(NVLINK, 200, "board"), 64
    ),
    GpuProduct("H800 PCIe", "h800 pcie", "NVIDIA H800 data sheet (2023)", {**_H100_PCIE, "fp64": 0.8}, 2039, 80, 114, _GEN5, 64),
    GpuProduct("H20", r"h20([ -].*)?", "NVIDIA H20 product brief (2023)", link=GpuLink(NVLINK, 450, "board"), host_gb_per_s=64),
    GpuProduct("H200 SXM", r"h200|h200[- ]sxm[- ]?(141gb)?", _H200_SHEET, _H100_SXM, 4800, 141, 132, GpuLink(NVLINK, 450, "board"), 64),
    GpuProduct("H200 NVL", "h200 nvl", _H200_SHEET, _HOPPER_NVL, 4800, 141, 132, None, 64),
    GpuProduct("GH200 96GB", "gh200 (120|480)gb", _GH200_SHEET, _H100_SXM, 4000, 96, 132),
    GpuProduct("GH200 144GB", "gh200 144g hbm3e", _GH200_SHEET, _H100_SXM, 4900, 144, 132),
    # Blackwell. For the FP4 and INT8 of the B300, documents differ; the GB300 is published per rack alone.
    GpuProduct(
        "B200", "b200", "NVIDIA DGX B200 and HGX B200 data sheets (2024)",
        _tensor(2250, fp64=37, fp32=75, tf32=1125, fp8=4500, fp4=9000, int8=4500), 8000, 180, 148, GpuLink(NVLINK, 900),
    ),
    GpuProduct(
        "B300", r"b300( .*)?", "NVIDIA HGX B300 data sheet (2025)", _tensor(2250, fp32=75, tf32=1125, fp8=4500), 8000, None, None,
        GpuLink(NVLINK, 900),
    ),
    GpuProduct(
        "GB200", "gb200", "NVIDIA GB200 NVL72 data sheet (2024)",
        _tensor(2500, fp64=40, fp32=80, tf32=1250, fp8=5000, fp4=10000, int8=5000), 8000, 186, None, GpuLink(NVLINK, 900),
    ),
    GpuProduct("GB300", "gb300", "NVIDIA GB300 NVL72 data sheet (2025)", link=GpuLink(NVLINK, 900)),
    GpuProduct(
        "RTX 5090", "geforce rtx 5090", _RTX_BLACKWELL_PAPER,
        _tensor(209.5, fp32=104.8, tf32=104.8, fp8=419, fp4=1676, int8=838), 1792, 32, 170,
    ),
    GpuProduct(
        "RTX PRO 6000 Blackwell Workstation", "rtx pro 6000 blackwell workstation edition",
        "NVIDIA RTX Blackwell PRO GPU Architecture whitepaper (2025)",
        _tensor(503.8, fp32=126, tf32=251.9, fp8=1007.6, fp4=2015.2, int8=1007.6), 1792, 96, 188,
    ),
)  # fmt: skip

_AMD: Final = (
    GpuProduct(
        "MI100", "instinct mi100", "AMD Instinct MI100 data sheet (2020)",
        {"fp32": 46.1, "bf16": 92.3, "fp16": 184.6, "int8": 184.6}, 1228.8, 32, 120, compute_capability="9.0",
    ),
    GpuProduct(
        "MI210", "instinct mi210", "AMD Instinct MI210 data sheet (2022)", _tensor(181, fp64=45.3, fp32=45.3, int8=181), 1638.4, 64, 104,
        compute_capability="9.0",
    ),
    # Each of the two dies of an MI250 and MI250X is a device; the data sheets state the sum of both.
    GpuProduct(
        "MI250 (one of two dies)", r"instinct mi250( \(mcm\) oam.*)?|instinct mi250x ?/ ?mi250", "AMD Instinct MI250 data sheet (2021)",
        _tensor(181.05, fp64=45.25, fp32=45.25, int8=181.05), 1638.4, 64, 104, GpuLink(XGMI, 50, "ring"), compute_capability="9.0",
    ),
    GpuProduct(
        "MI250X (one of two dies)", r"instinct mi250x( ?/ ?mi250| \(mcm\) oam.*)?", "AMD Instinct MI250X data sheet (2021)",
        _tensor(191.5, fp64=47.85, fp32=47.85, int8=191.5), 1638.4, 64, 110, GpuLink(XGMI, 50, "ring"), compute_capability="9.0",
    ),
    GpuProduct(
        "MI250 or MI250X", r"instinct mi250x ?/ ?mi250", "AMD Instinct MI250 data sheet (2021)", link=GpuLink(XGMI, 50, "ring")
    ),
    GpuProduct(
        "MI300A", "instinct mi300a", "AMD Instinct MI300A data sheet (2023)",
        _tensor(980.6, fp64=122.6, fp32=122.6, tf32=490.3, fp8=1961.2, int8=1961.2), 5300, 128, 228, compute_capability="9.4",
    ),
    GpuProduct(
        "MI300X", r"instinct mi300x( vf| oam)?", "AMD Instinct MI300X data sheet (2023)",
        _tensor(1307.4, fp64=163.4, fp32=163.4, tf32=653.7, fp8=2614.9, int8=2614.9), 5325, 192, 304, GpuLink(XGMI, 64, "mesh"), 64,
        compute_capability="9.4",
    ),
    GpuProduct(
        "MI325X", r"instinct mi325x( vf| oam)?", "AMD Instinct MI325X data sheet (2024)",
        _tensor(1307.4, fp64=163.4, fp32=163.4, tf32=653.7, fp8=2614.9, int8=2614.9), 6000, 256, 304, GpuLink(XGMI, 64, "mesh"), 64,
        compute_capability="9.4",
    ),
    GpuProduct(
        "MI350X", r"instinct mi350x( vf| oam)?", "AMD CDNA 4 Architecture whitepaper (2025)",
        _tensor(2306.9, fp64=72.1, fp32=144.2, fp8=4613.7, fp4=9227.5, int8=4613.7), 8000, 288, 256, GpuLink(XGMI, 76.8, "mesh"), 64,
        compute_capability="9.5",
    ),
    GpuProduct(
        "MI355X", r"instinct mi355x( vf| oam)?", "AMD CDNA 4 Architecture whitepaper (2025)",
        _tensor(2516.6, fp64=78.6, fp32=157.3, fp8=5033.2, fp4=10066.3, int8=5033.2), 8000, 288, 256, GpuLink(XGMI, 76.8, "mesh"), 64,
        compute_capability="9.5",
    ),
)  # fmt: skip

PRODUCTS: Final = tuple(
    replace(product, vendor=vendor) for vendor, products in (("NVIDIA", _NVIDIA), ("AMD", _AMD)) for product in products
)

_UNNAMED: Final = "AMD Radeon Graphics"  # ROCm prints this for a board that it has no marketing name for
_MEMORY_SHARE: Final = (0.88, 1.03)  # of the memory as sold: drivers keep a part, ECC takes a sixteenth


def product_of(
    name: str | None, memory_bytes: int | None = None, sm_count: int | None = None, compute_capability: str | None = None
) -> GpuProduct | None:
    """Return the product of a device, or None if it is unknown.

    ``name``: as the trace prints it. ``memory_bytes``, ``sm_count``, ``compute_capability``: None if the run does not record them; values
    that differ from those of the product (a slice of a GPU, another board of the same name) make it unknown."""
    if not name:
        return None
    if name == _UNNAMED:
        if memory_bytes is None or sm_count is None or compute_capability is None:
            return None
        rows = [product for product in PRODUCTS if product.vendor == "AMD" and product.compute_capability == compute_capability]
    else:
        text = re.sub(r"\s+", " ", re.sub(r"^amd\s+", "", model(name)))
        rows = [product for product in PRODUCTS if re.fullmatch(product.pattern, text)]
    rows = [product for product in rows if _agrees(product, memory_bytes, sm_count)]
    return _common([product for product in rows if product.tflops]) or next((product for product in rows if not product.tflops), None)


def _agrees(product: GpuProduct, memory_bytes: int | None, sm_count: int | None) -> bool:
    """Whether nothing that the run records contradicts the product."""
    if sm_count is not None and product.sm_count is not None and sm_count != product.sm_count:
        return False
    if memory_bytes is None or product.memory_gib is None:
        return True
    low, high = _MEMORY_SHARE
    return low <= memory_bytes / (product.memory_gib * 2**30) <= high


def _common(rows: Sequence[GpuProduct]) -> GpuProduct | None:
    """Return what the products share; None if their figures differ."""
    if len({(row.gb_per_s, round(row.tflops["fp16"])) for row in rows}) != 1:
        return None
    first = rows[0]
    return first if len(rows) == 1 else replace(first, name=" or ".join(row.name for row in rows), link=None)
