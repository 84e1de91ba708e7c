"""Kernels, categories and precision of a store made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis.device.kernels import kernel_sums, kernels
from postrun.analysis.device.time_breakdown import time_breakdown
from postrun.analysis.efficiency.kernel_classes import categories, kernel_groups, precision
from postrun.analysis.efficiency.operator_work import operator_work
from postrun.ingest.store import Store

NAMES = {
    "void gemm_bf16<int>()": ("gemm_bf16", "BF16", "GEMM"),
    "sgemm": ("sgemm", "FP32", "GEMM"),
    "add": ("add", "FP32", "elementwise"),
    "mystery": ("mystery", "unknown", "other"),
}


def kernel(name: str, start: int, duration: int, device: int = 0) -> dict[str, Any]:
    return {"kind": "kernel", "name": name, "start_ns": start, "duration_ns": duration, "device": device}


@pytest.fixture
def store(make_store: Callable[..., Store]) -> Store:
    return make_store(
        names=NAMES,
        device_event=[
            kernel("void gemm_bf16<int>()", 0, 30),
            kernel("void gemm_bf16<int>()", 40, 10, device=1),
            kernel("sgemm", 30, 40),
            kernel("add", 90, 10),
            kernel("add", 60, 0, device=1),
            kernel("mystery", 80, 10),
            kernel("unclassified", 70, 20, device=1),
            {"kind": "memcpy", "name": "Memcpy HtoD", "start_ns": 0, "duration_ns": 1000},
        ],
    )


def test_kernels_are_merged_over_devices_longest_first(store: Store) -> None:
    # Spans: device 0 is 0..1000 (the copy), device 1 is 40..90; kernel time is 30 + 10 + 40 + 10 + 0 + 10 + 20 = 120.
    result = kernels(kernel_sums(store), time_breakdown(store))
    assert [(k.short_name, k.count, k.total_ns, k.min_ns, k.mean_ns, k.max_ns) for k in result] == [
        ("sgemm", 1, 40, 40, 40.0, 40),
        ("gemm_bf16", 2, 40, 10, 20.0, 30),
        ("unclassified", 1, 20, 20, 20.0, 20),
        ("add", 2, 10, 0, 5.0, 10),
        ("mystery", 1, 10, 10, 10.0, 10),
    ]
    assert [(k.category, k.precision) for k in result] == [
        ("GEMM", "FP32"),
        ("GEMM", "BF16"),
        ("other", "unknown"),
        ("elementwise", "FP32"),
        ("other", "unknown"),
    ]
    assert sum(k.share_of_kernel_time for k in result) == pytest.approx(100)
    assert result[0].share_of_kernel_time == pytest.approx(100 * 40 / 120)
    assert result[0].share_of_profile == pytest.approx(100 * 40 / (1000 + 50))


def test_categories_and_precision_sum_to_the_kernel_time(store: Store) -> None:
    result = kernel_groups(store, operator_work(store), kernel_sums(store))
    assert [(s.name, s.total_ns, s.count) for s in categories(result)] == [("GEMM", 80, 3), ("other", 30, 2), ("elementwise", 10, 2)]
    by_precision = precision(result)
    assert [(s.name, s.total_ns, s.count) for s in by_precision.shares] == [("FP32", 50, 3), ("BF16", 40, 2), ("unknown", 30, 2)]
    assert sum(s.percent for s in by_precision.shares) == pytest.approx(100)
    assert [(s.name, s.total_ns, s.percent) for s in by_precision.matrix] == [("BF16", 40, 50.0), ("FP32", 40, 50.0)]


def test_nothing_is_nothing(make_store: Callable[..., Store]) -> None:
    store = make_store()
    assert kernels(kernel_sums(store), ()) == ()
    result = kernel_groups(store, operator_work(store), kernel_sums(store))
    assert result == ()
    assert categories(result) == ()
    assert precision(result).shares == precision(result).matrix == ()
