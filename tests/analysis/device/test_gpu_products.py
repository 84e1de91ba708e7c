"""GPU products: figures against clocks and architectures, names of traces, slices and variants."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.device.gpu_products import PRODUCTS, TYPES, GpuProduct, product_of

GIB = 2**30

# Name as a trace prints it -> TFLOPS of FP16 or BF16, GB/s of the memory, multiprocessors, boost clock in MHz, and dense FLOP per clock of
# one multiprocessor in FP16 with FP32 accumulation (architecture papers: 1024 of V100, T4 and the full Ampere and Ada rate, 512 where
# GeForce has half of it, 2048 of A100, 4096 of Hopper; AMD CDNA 1 and 2 1024, CDNA 3 2048, CDNA 4 4096).
BOARDS = [
    ("Tesla V100-SXM2-16GB", 125, 900, 80, 1530, 1024),
    ("Tesla V100-SXM2-32GB", 125, 900, 80, 1530, 1024),
    ("Tesla V100-PCIE-16GB", 112, 900, 80, 1380, 1024),
    ("Tesla V100S-PCIE-32GB", 130, 1134, 80, 1597, 1024),
    ("Tesla T4", 65, 320, 40, 1590, 1024),
    ("NVIDIA A100-SXM4-40GB", 312, 1555, 108, 1410, 2048),
    ("A100-SXM4-40GB", 312, 1555, 108, 1410, 2048),
    ("NVIDIA A100-SXM4-80GB", 312, 2039, 108, 1410, 2048),
    ("NVIDIA A100-PCIE-40GB", 312, 1555, 108, 1410, 2048),
    ("NVIDIA A100 80GB PCIe", 312, 1935, 108, 1410, 2048),
    ("NVIDIA A800-SXM4-80GB", 312, 2039, 108, 1410, 2048),
    ("NVIDIA A30", 165, 933, 56, 1440, 2048),
    ("NVIDIA A40", 149.7, 696, 84, 1740, 1024),
    ("NVIDIA A10", 125, 600, 72, 1695, 1024),
    ("NVIDIA A10G", 70, 600, 80, 1710, 512),
    ("NVIDIA RTX A6000", 154.8, 768, 84, 1800, 1024),
    ("NVIDIA GeForce RTX 3090", 71, 936, 82, 1695, 512),
    ("NVIDIA L4", 121, 300, 58, 2040, 1024),
    ("NVIDIA L40S", 362.05, 864, 142, 2520, 1024),
    ("NVIDIA RTX 6000 Ada Generation", 364.2, 960, 142, 2505, 1024),
    ("NVIDIA GeForce RTX 4090", 165.2, 1008, 128, 2520, 512),
    ("NVIDIA GeForce RTX 4080", 97.5, 716.8, 76, 2505, 512),
    ("NVIDIA H100 80GB HBM3", 989.4, 3352, 132, 1830, 4096),
    ("NVIDIA H100 PCIe", 756, 2039, 114, 1620, 4096),
    ("NVIDIA H100 NVL", 835.5, 3900, 132, 1545, 4096),
    ("NVIDIA H800", 989.4, 3352, 132, 1830, 4096),
    ("NVIDIA H200", 989.4, 4800, 132, 1830, 4096),
    ("NVIDIA H200 NVL", 835.5, 4800, 132, 1545, 4096),
    ("NVIDIA GH200 480GB", 989.4, 4000, 132, 1830, 4096),
    ("NVIDIA B200", 2250, 8000, 148, 1850, 8192),
    ("NVIDIA GeForce RTX 5090", 209.5, 1792, 170, 2407, 512),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 503.8, 1792, 188, 2617, 1024),
    ("AMD Instinct MI100", 184.6, 1228.8, 120, 1502, 1024),
    ("AMD Instinct MI210", 181, 1638.4, 104, 1700, 1024),
    ("AMD Instinct MI250", 181.05, 1638.4, 104, 1700, 1024),
    ("AMD Instinct MI250X", 191.5, 1638.4, 110, 1700, 1024),
    ("AMD Instinct MI300A", 980.6, 5300, 228, 2100, 2048),
    ("AMD Instinct MI300X", 1307.4, 5325, 304, 2100, 2048),
    ("AMD Instinct MI300X VF", 1307.4, 5325, 304, 2100, 2048),
    ("AMD Instinct MI325X", 1307.4, 6000, 304, 2100, 2048),
    ("AMD Instinct MI350X", 2306.9, 8000, 256, 2200, 4096),
    ("AMD Instinct MI355X", 2516.6, 8000, 256, 2400, 4096),
]


@pytest.mark.parametrize(("name", "fp16", "memory", "units", "mhz", "per_clock"), BOARDS)
def test_figures_follow_from_clock_and_architecture(name: str, fp16: float, memory: float, units: int, mhz: int, per_clock: int) -> None:
    product = product_of(name, None, units)
    assert product is not None
    assert (product.tflops["fp16"], product.gb_per_s, product.sm_count) == (fp16, memory, units)
    assert units * mhz * per_clock / 1e6 == pytest.approx(fp16, rel=0.03)


@pytest.mark.parametrize("product", [product for product in PRODUCTS if product.tflops], ids=lambda product: product.name)
def test_rates_of_types_are_those_of_the_hardware(product: GpuProduct) -> None:
    """Check that inputs of half the width are multiplied twice as fast.

    MI100 and GeForce are the exceptions."""
    peaks = product.tflops
    assert set(peaks) <= set(TYPES)
    assert product.source
    assert re.search(r"\(20\d\d\)$", product.source)
    if product.name == "MI100":
        assert peaks["bf16"] == peaks["fp16"] / 2
    elif "bf16" in peaks:
        assert peaks["bf16"] == peaks["fp16"]
    if "tf32" in peaks:
        assert peaks["tf32"] == pytest.approx(peaks["fp16"] / 2, rel=0.015)
    if "fp8" in peaks:
        assert peaks["fp8"] == pytest.approx(2 * peaks["fp16"], rel=0.02)
    if "fp4" in peaks:
        assert peaks["fp4"] == pytest.approx((4 if "RTX 5090" in product.name else 2) * peaks["fp8"], rel=0.01)


def test_forms_that_the_figures_tell_apart() -> None:
    def name(*arguments: object) -> str | None:
        product = product_of(*arguments)  # type: ignore[arg-type]
        return product.name if product and product.tflops else None

    assert name("NVIDIA H100") is None
    assert name("NVIDIA H100", None, 132) is None  # SXM or NVL
    assert name("NVIDIA H100", 84942979072, 132) == "H100 SXM5"
    assert name("NVIDIA H100", 84942979072, 114) == "H100 PCIe"
    assert name("NVIDIA H100", 94 * GIB, 132) == "H100 NVL"
    assert name("NVIDIA H100", 64 * GIB, 132) is None
    assert name("NVIDIA A100") is None
    assert name("NVIDIA A100-PG509-200", 42505273344, 108) == "A100 40GB (SXM or PCIe)"
    assert name("AMD Instinct MI250X / MI250") is None
    assert name("AMD Instinct MI250X / MI250", 68702699520, 110) == "MI250X (one of two dies)"
    # ROCm without a marketing name: memory, compute units and architecture decide
    assert name("AMD Radeon Graphics", 68702699520, 104, "9.0") == "MI210 or MI250 (one of two dies)"
    assert name("AMD Radeon Graphics", 206158430208, 304, "9.4") == "MI300X"
    assert name("AMD Radeon Graphics", 274877906944, 304, "9.4") == "MI325X"
    assert name("AMD Radeon Graphics", 309237645312, 256, "9.5") is None  # MI350X or MI355X, which differ in the clock
    assert name("AMD Radeon Graphics", 206158430208, 304) is None


@pytest.mark.parametrize(
    ("name", "memory", "units"),
    [
        (None, None, None), ("", None, None), ("NVIDIA Whatever 9000", None, None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * GIB, 16),
        ("NVIDIA H100 80GB HBM3", 10 * GIB, 16),  # a slice with the name of the board
        ("NVIDIA H100 80GB HBM3", 80 * GIB, 60),
        ("NVIDIA A100-SXM4-40GB", 80 * GIB, 108),
        ("AMD Instinct MI300X", 192 * GIB, 38),  # a partition of one die
        ("GRID A100-10C", None, None), ("NVIDIA A40-48Q", None, None), ("NVIDIA L40S-24Q", None, None),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None, None), ("NVIDIA GeForce RTX 4090 D", None, None),
        ("NVIDIA GeForce RTX 5090 D", None, None), ("Quadro RTX 6000", None, None), ("NVIDIA GeForce RTX 3090 Ti", None, None),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", None, None),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", None, None),
        ("NVIDIA A100-SXM-64GB", 64 * GIB, 124), ("AMD Instinct MI308X", None, None), ("AMD Instinct MI250X2", None, None),
        ("NVIDIA H100" + " " * 9999 + "PCIex", None, None), ("NVIDIA H100 PCIe\n\x00", None, None),
    ],
)  # fmt: skip
def test_slices_virtual_gpus_and_other_boards_are_unknown(name: str | None, memory: int | None, units: int | None) -> None:
    assert product_of(name, memory, units) is None


@pytest.mark.parametrize("name", ["NVIDIA H20", "NVIDIA H20-3e", "NVIDIA GB300", "NVIDIA H100", "Tesla V100-DGXS-32GB"])
def test_boards_without_published_figures_have_no_peaks(name: str) -> None:
    product = product_of(name)
    assert product is not None
    assert (product.tflops, product.gb_per_s) == ({}, None)


NAMES = st.sampled_from([name for name, *_ in BOARDS])


@given(NAMES, st.sampled_from(["", "NVIDIA ", "Tesla ", "NVIDIA Tesla "]), st.booleans(), st.integers(1, 3))
def test_case_spaces_and_the_vendor_do_not_matter(name: str, vendor: str, upper: bool, spaces: int) -> None:
    text = name if name.startswith("AMD") else vendor + re.sub("^(NVIDIA|Tesla) ", "", name)
    text = (" " * spaces).join(text.upper().split(" ") if upper else text.split(" "))
    assert product_of(text) == product_of(name)


@given(NAMES, st.text(min_size=1).filter(lambda text: text.strip()))
def test_more_text_is_another_board(name: str, text: str) -> None:
    longer, known = product_of(name + text), product_of(name)
    assert longer is None or longer != known or text.strip().lower() in ("vf", "oam")


@given(NAMES, st.integers(-(2**70), 2**70), st.integers(-(2**70), 2**70))
def test_absurd_figures_of_a_device_make_it_unknown(name: str, memory: int, units: int) -> None:
    product = product_of(name, memory, units)
    if product is not None and product.tflops:
        assert product.sm_count in (None, units)
        assert product.memory_gib is None or 0.88 <= memory / (product.memory_gib * GIB) <= 1.03


def test_the_table_of_the_documents_is_that_of_the_code() -> None:
    text = (Path(__file__).parents[3] / "docs" / "definitions.md").read_text(encoding="utf-8")
    rows = [line for line in text.partition("## Peaks of GPUs\n")[2].partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    expected = [product for product in PRODUCTS if product.tflops]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [product.name for product in expected]
    for row, product in zip(rows, expected, strict=True):
        link = product.link.total_gb_per_s if product.link else None
        figures = [*(product.tflops.get(key) for key in TYPES), product.gb_per_s, link, product.sm_count]
        cells = ["" if figure is None else f"{figure:.10g}" for figure in figures]
        assert row.strip("| ").split(" | ")[1:] == [cell or "—" for cell in cells] + [product.source]
