"""Rates, roof, utilization and energy: hand-made traces with the results worked out on paper.

The GPU computes 100 TFLOP/s in BF16 and TF32, 10 TFLOP/s in FP32, and moves 1 TB/s.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from postrun.analysis.efficiency.call_shapes import call_shapes
from postrun.analysis.efficiency.efficiency import device_peaks, efficiency
from postrun.analysis.efficiency.energy import step_energy
from postrun.analysis.efficiency.measured_time import STEPS, MeasuredTime, measured_time
from postrun.analysis.efficiency.operator_work import operator_work
from postrun.analysis.report.efficiency import DevicePeaks, Efficiency, OperatorWork
from postrun.analysis.report.load import _value
from postrun.analysis.report.model import plain
from postrun.analysis.steps.data import StepData
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
Row = dict[str, Any]

PEAKS = DevicePeaks("GPU", "GPU", {"bf16": 1e14, "tf32": 1e14, "fp32": 1e13}, 1e12, None, "paper")
TYPES = {"bf16": "c10::BFloat16", "fp32": "float"}
US = 1000
NODE = "autograd::engine::evaluate_function: "
NO_SITES = pl.DataFrame(schema={"site": pl.UInt32, "module": pl.String, "line": pl.String})


class Trace:
    """A host that calls operators one after another, each with one kernel."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Row]] = {"signature": [], "host_event": [], "device_event": []}
        self.names: dict[str, tuple[str, str, str]] = {}
        self.at = 0

    def call(self, operator: str, dims: list[Any], kernel_ns: int, *, kind: str = "bf16", concrete: Any = None, **columns: Any) -> None:
        kernel = columns.pop("kernel", "k")
        number = len(self.tables["signature"])
        texts = {"input_dims": dims, "input_types": [TYPES[kind] if size else "Scalar" for size in dims], "concrete_inputs": concrete}
        self.tables["signature"].append({"id": number, **{name: None if v is None else json.dumps(v) for name, v in texts.items()}})
        event = {"kind": "operator", "name": operator, "start_ns": self.at, "duration_ns": 90, "signature": number, **columns}
        launch = {"kind": "launch", "name": "cudaLaunchKernel", "start_ns": self.at + 10, "duration_ns": 1, "correlation": number + 1}
        self.tables["host_event"] += [event, launch]
        self.tables["device_event"].append(
            {"kind": "kernel", "name": kernel, "start_ns": 10**6 + self.at, "duration_ns": kernel_ns, "correlation": number + 1}
        )
        self.at += 100

    def store(self, make_store: MakeStore, **tables: Any) -> Store:
        return make_store(names=self.names, **self.tables, **tables)


def result(store: Store, peaks: dict[int | None, DevicePeaks] | None = None) -> Efficiency:
    measured = measured_time(store, StepData(store))
    owned = operator_work(store, measured.launching)
    return efficiency(store, owned, call_shapes(store, owned), measured, {0: PEAKS} if peaks is None else peaks, NO_SITES)


def only(report: Efficiency) -> OperatorWork:
    (row,) = report.operators
    return row


SQUARE = [[1000, 1000], [1000, 1000]]  # 2e9 FLOP: 20 µs in BF16; 6 MB: 6 µs
SKINNY = [[1, 1000], [1000, 1000]]  # 2e6 FLOP: 20 ns; 2.004 MB: 2.004 µs


def test_a_product_limited_by_its_flops(make_store: MakeStore) -> None:
    trace = Trace()
    trace.call("aten::mm", SQUARE, 25 * US)
    trace.call("aten::mm", SQUARE, 55 * US)
    row = only(result(trace.store(make_store)))
    assert (row.input_dims, row.input_types, row.calls, row.device_ns) == (SQUARE, ["c10::BFloat16"] * 2, 2, 80 * US)
    assert (row.flop_per_call, row.model_flop_per_call, row.bytes_per_call) == (2 * 10**9, 2 * 10**9, 6 * 10**6)
    assert (row.tflops, row.gb_per_s, row.intensity) == (pytest.approx(50), pytest.approx(150), pytest.approx(1000 / 3))
    assert (row.percent_of_roof, row.bound, row.lost_ns) == (pytest.approx(50), "compute", 40 * US)


@pytest.mark.parametrize(
    ("kernel_ns", "percent", "bound", "lost"),
    [
        (4000, 50.1, "memory", 1996),
        (10_000, 20.04, "memory", 7996),
        (20_000, 10.02, "neither", 17_996),
        (5000, 40.08, "latency", 2996),
        (1000, 200.4, "cache", None),
    ],
)
def test_a_product_limited_by_its_bytes(make_store: MakeStore, kernel_ns: int, percent: float, bound: str, lost: int | None) -> None:
    trace = Trace()
    trace.call("aten::mm", SKINNY, kernel_ns)
    row = only(result(trace.store(make_store)))
    assert (row.percent_of_roof, row.bound, row.roof, row.lost_ns) == (pytest.approx(percent), bound, "memory", lost)


def test_work_beyond_a_peak_is_unknown(make_store: MakeStore) -> None:
    trace = Trace()
    trace.call("aten::mm", SQUARE, 19 * US)
    row = only(result(trace.store(make_store)))
    assert (row.flop_per_call, row.tflops, row.gb_per_s, row.percent_of_roof, row.bound) == (2 * 10**9, None, None, None, "unknown")


@pytest.mark.parametrize(("precision", "percent"), [("FP32", 80.0), ("TF32", 8.0), ("unknown", 8.0)])
def test_products_of_fp32_run_in_tf32_unless_a_kernel_shows_otherwise(make_store: MakeStore, precision: str, percent: float) -> None:
    trace = Trace()
    trace.names["k"] = ("k", precision, "GEMM")
    trace.call("aten::mm", SQUARE, 250 * US, kind="fp32")
    assert only(result(trace.store(make_store))).percent_of_roof == pytest.approx(percent)


@pytest.mark.parametrize(
    ("copy", "percent", "bound"),
    [
        ("Memcpy HtoD (Pinned -> Device)", None, "unknown"),
        ("Memcpy PtoP", None, "unknown"),
        ("Memcpy DtoD (Device -> Device)", 40.0, "memory"),
    ],
)
def test_only_copies_within_the_device_have_the_roof_of_its_memory(
    make_store: MakeStore, copy: str, percent: float | None, bound: str
) -> None:
    trace = Trace()
    trace.call("aten::copy_", [[1000, 1000], [1000, 1000], []], 10 * US, kernel=copy)  # 2 MB read, 2 MB written: 4 µs
    trace.tables["device_event"][0]["kind"] = "memcpy"
    row = only(result(trace.store(make_store)))
    assert (row.percent_of_roof, row.bound) == (percent and pytest.approx(percent), bound)
    assert (row.lost_ns is None) is (percent is None)
    assert row.gb_per_s == pytest.approx(400)


def test_without_peaks_the_rates_are_known(make_store: MakeStore) -> None:
    trace = Trace()
    trace.call("aten::mm", SQUARE, 50 * US)
    trace.call("aten::unknown", [[5]], 10)
    report = result(trace.store(make_store), {})
    row, unknown = report.operators
    assert (row.tflops, row.percent_of_roof, row.bound, row.lost_ns) == (pytest.approx(40), None, "unknown", None)
    assert (unknown.flop_per_call, unknown.bytes_per_call, unknown.bound) == (None, None, "unknown")
    assert report.mfu_percent is None
    assert "--peak" in (report.no_mfu or "")
    assert report.coverage_percent == 100


@pytest.mark.parametrize(
    ("operator", "estimate", "flop"),
    [
        ("triton_tem_fused_addmm_relu_3", 2e9, 2 * 10**9),
        ("triton_tem_fused_addmm_relu_3", 0.0, None),
        ("triton_tem_fused_addmm_relu_3", 1e300, None),
        ("triton_tem_fused_flex_attention_0", 2e9, None),  # skips blocks of the mask
        ("triton_poi_fused_relu_1", 2e9, None),  # of the product before it
    ],
)
def test_products_of_a_compiler_have_its_estimate(make_store: MakeStore, operator: str, estimate: float, flop: int | None) -> None:
    # Bias, factors and result; 25 µs for 20 µs of work.
    trace = Trace()
    trace.call(operator, [[1000, 1000]] * 3, 25 * US)
    trace.tables["signature"][0]["kernel_flop"] = estimate
    report = result(trace.store(make_store))
    row = only(report)
    assert (row.flop_per_call, row.model_flop_per_call, row.bytes_per_call, row.percent_of_roof) == (flop, flop, None, None)
    assert row.tflops == (flop and pytest.approx(80))
    assert report.mfu_percent == (flop and pytest.approx(80))


def test_calls_of_equal_sizes_and_other_work_are_apart(make_store: MakeStore) -> None:
    # A 1 x 1 convolution of 8 x 8 images with stride 1 and 2: 64 and 16 outputs.
    trace = Trace()
    for stride in (1, 2):
        concrete = ["", "", "", f"[{stride}, {stride}]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
        dims = [[1, 4, 8, 8], [16, 4, 1, 1], [], [], [], [], [], [], []]
        trace.call("aten::convolution", dims, 10 * stride, concrete=concrete)
    assert [row.flop_per_call for row in result(trace.store(make_store)).operators] == [2 * 16 * 16 * 4, 2 * 64 * 16 * 4]


def test_a_run_of_the_cpu_alone_has_flops(make_store: MakeStore) -> None:
    trace = Trace()
    trace.call("aten::mm", SQUARE, 0)
    del trace.tables["device_event"]
    report = result(trace.store(make_store), {})
    row = only(report)
    assert (row.calls, row.device_ns, row.flop_per_call) == (1, 0, 2 * 10**9)
    assert (row.tflops, row.gb_per_s, row.percent_of_roof, row.bound, row.lost_ns) == (None, None, None, "unknown", None)
    assert (report.mfu_percent, report.coverage_percent) == (None, None)
    assert report.no_mfu


def test_packed_sequences_of_unknown_lengths_have_bounds(make_store: MakeStore) -> None:
    """24 tokens in 3 sequences of at most 12: 3 * 8**2 or 2 * 12**2 pairs.

    A pair of one of 8 heads of 4 takes 2 * (4 + 4) operations."""
    trace = Trace()
    dims = [[24, 8, 4], [24, 2, 4], [24, 2, 4], [4], [4], [], [], [], [], [], [], []]
    concrete = ["", "", "", "", "", "12", "12", "0.", "0.5", "True", "-1", "-1"]
    trace.call("flash_attn::_flash_attn_varlen_forward", dims, 100 * US, concrete=concrete)
    report = result(trace.store(make_store))
    row = only(report)
    assert (row.flop_per_call, row.model_flop_per_call, row.tflops) == (None, None, None)
    assert row.flop_per_call_bounds == (3 * 8**2 * 8 * 16, 2 * 12**2 * 8 * 16)
    assert _value(json.loads(json.dumps(plain(report))), Efficiency, "efficiency") == report
    trace = Trace()
    trace.call("aten::mm", SQUARE, 10)
    assert only(result(trace.store(make_store))).flop_per_call_bounds is None


@pytest.mark.parametrize("dims", [[[-1, 5], [5, 5]], [[10**30, 5], [5, 5]], [[[5], 5], [5, 5]], [["x"], None], []])
def test_sizes_that_no_tensor_has_are_unknown(make_store: MakeStore, dims: list[Any]) -> None:
    trace = Trace()
    trace.call("aten::mm", dims, 10)
    row = only(result(trace.store(make_store)))
    assert (row.device_ns, row.flop_per_call, row.tflops, row.bound) == (10, None, None, "unknown")
    assert row.input_dims == dims


@pytest.mark.parametrize(
    "text", ["[[NaN, 5], [5, 5]]", "[[-Infinity]]", "[[1e999, 5]]", "[" * 999 + "]" * 999, '[{"a":' * 9 + "0" + "}]" * 9, "{}", "["]
)
def test_inputs_that_no_report_can_contain_are_left_out(make_store: MakeStore, text: str) -> None:
    trace = Trace()
    trace.call("aten::mm", SQUARE, 10)
    trace.tables["signature"][0]["input_dims"] = text
    report = result(trace.store(make_store))
    assert (only(report).input_dims, only(report).flop_per_call) == ([], None)
    json.dumps(plain(report), allow_nan=False)


def step(number: int) -> Row:
    """A step of 100 µs on the host and on the device, which works 1 ms later."""
    return {
        "node": 0, "process": 0, "index": number, "host_start_ns": 100 * US * number, "host_duration_ns": 100 * US,
        "device_start_ns": 10**6 + 100 * US * number, "device_duration_ns": 100 * US, "device_events": 1,
    }  # fmt: skip


def test_utilization_of_the_steps(make_store: MakeStore) -> None:
    # Two steps. The start of the first is not known. In the second: a product of 20 µs at the peak, the same again in a backward node
    # of a checkpoint, and a kernel of a product without sizes. Matrix kernels take 25 + 25 + 50 µs, half of it with known FLOPs.
    trace = Trace()
    trace.names["unknown gemm"] = ("gemm", "BF16", "GEMM")
    trace.call("aten::mm", SQUARE, 25 * US)
    trace.at = 120 * US
    trace.call("aten::mm", SQUARE, 25 * US)
    node = {"kind": "operator", "name": NODE + "CheckpointFunctionBackward", "sequence": 1, "forward_thread": 1}
    trace.tables["host_event"].append({**node, "start_ns": trace.at, "duration_ns": 150})
    trace.call("aten::mm", SQUARE, 25 * US, sequence=9, forward_thread=0)
    trace.at += 100
    trace.call("custom::mm", [[5]], 50 * US, kernel="unknown gemm")
    report = result(trace.store(make_store, step=[step(0), step(1)]))
    assert (report.mfu_percent, report.hfu_percent) == (pytest.approx(20), pytest.approx(40))
    assert (report.coverage_percent, report.lower_bound, report.measured_over) == (pytest.approx(50), True, "steps")


def test_almost_no_known_flops_are_no_utilization(make_store: MakeStore) -> None:
    # Of 10 ms of matrix kernels, the FLOPs of 90 or of 110 µs are known: 0.9 or 1.1%.
    def utilization(known_us: int) -> Efficiency:
        trace = Trace()
        trace.names["unknown gemm"] = ("gemm", "BF16", "GEMM")
        trace.call("aten::mm", SQUARE, known_us * US)
        trace.at = known_us * US
        trace.call("custom::mm", [[5]], (10_000 - known_us) * US, kernel="unknown gemm")
        return result(trace.store(make_store))

    little, enough = utilization(90), utilization(110)
    assert (little.mfu_percent, little.hfu_percent, little.lower_bound) == (None, None, False)
    assert little.coverage_percent == pytest.approx(0.9)
    assert "less than 1%" in (little.no_mfu or "")
    assert enough.mfu_percent == pytest.approx(100 * 20 / 10_000, rel=0.01)
    assert enough.lower_bound


def test_utilization_without_steps_is_that_of_the_profile(make_store: MakeStore) -> None:
    # Two products of 40 µs one after another: 20 of each 40 µs at the peak. The second GPU of the process halves it.
    trace = Trace()
    trace.call("aten::mm", SQUARE, 40 * US)
    trace.at = 40 * US
    trace.call("aten::mm", SQUARE, 40 * US)
    report = result(trace.store(make_store))
    assert (report.mfu_percent, report.measured_over) == (pytest.approx(50), "profile window")
    trace.tables["device_event"][1]["device"] = 1
    assert result(trace.store(make_store)).mfu_percent == pytest.approx(25)


def test_utilization_of_two_gpus_of_two_processes(make_store: MakeStore) -> None:
    # The second step of each process takes 100 µs. One computes 20 µs of work at the peak in it, the other 40 µs: 60 of 200 µs.
    trace = Trace()
    trace.at = 120 * US
    trace.call("aten::mm", SQUARE, 30 * US)
    trace.call("aten::mm", SQUARE, 30 * US, process=1)
    trace.call("aten::mm", SQUARE, 30 * US, process=1)
    for host, device in zip(trace.tables["host_event"][3::2], trace.tables["device_event"][1:], strict=False):
        host["process"] = device["process"] = 1
    steps = [{**step(number), "process": process} for process in (0, 1) for number in (0, 1)]
    store = trace.store(make_store, step=steps, process=[{"id": 0, "node": 0}, {"id": 1, "node": 0}])
    report = result(store, {0: PEAKS, 1: PEAKS})
    assert (report.mfu_percent, report.hfu_percent, report.coverage_percent) == (pytest.approx(30), pytest.approx(30), 100)
    assert result(store, {0: PEAKS}).mfu_percent is None  # the peaks of one GPU are unknown


def test_types_count_against_their_own_peaks(make_store: MakeStore) -> None:
    # 20 µs in BF16 at its peak and 200 µs in FP32 at its own, in 1 ms.
    trace = Trace()
    trace.names["k"] = ("k", "FP32", "GEMM")
    trace.call("aten::mm", SQUARE, 400 * US)
    trace.at = 400 * US
    trace.call("aten::mm", SQUARE, 600 * US, kind="fp32")
    assert result(trace.store(make_store)).mfu_percent == pytest.approx(22)


def test_peaks_of_the_devices_of_a_process(make_store: MakeStore) -> None:
    devices = [{"node": 0, "index": 0, "name": "NVIDIA H100 80GB HBM3"}, {"node": 0, "index": 1, "name": "NVIDIA L4"}]
    store = make_store(device=devices)
    assert device_peaks(store, pl.DataFrame({"process": [0], "device": [0]}))[0].product == "H100 SXM5"
    assert device_peaks(store, pl.DataFrame({"process": [0, 0], "device": [0, 1]})) == {}
    assert device_peaks(store, pl.DataFrame({"process": [0], "device": [7]})) == {}


SECOND = 10**9


def power(*samples: tuple[float, float]) -> list[Row]:
    return [{"node": 0, "metric": "gpu_power", "unit": 0, "time_ns": int(at * SECOND), "value": watts} for at, watts in samples]


def measured(start: float, end: float, steps: int) -> MeasuredTime:
    times = {"process": [0], "start": [int(start * SECOND)], "end": [int(end * SECOND)]}
    return MeasuredTime(STEPS, None, pl.DataFrame(times, schema_overrides={"process": pl.Int32}), steps)


WORK = pl.DataFrame({"process": [0], "device": [0]}, schema_overrides={"process": pl.Int32, "device": pl.Int32})


def test_energy_of_steps(make_store: MakeStore) -> None:
    # 100 W rise to 200 W in the first second. From 0.5 s: 175 W x 0.5 s, then 200 W x 0.5 s.
    store = make_store(sample=power((0, 100), (1, 200), (2, 200)))
    energy = step_energy(store, WORK, measured(0.5, 1.5, 2), 3e12)
    assert energy is not None
    assert (energy.joules, energy.mean_watts) == (pytest.approx(187.5), pytest.approx(187.5))
    assert (energy.joules_per_step, energy.joules_per_tflop) == (pytest.approx(93.75), pytest.approx(62.5))


@pytest.mark.parametrize("window", [(3.0, 9.0), (10.5, 12.0), (-1.0, 1.0)])
def test_energy_is_unknown_where_no_samples_are(make_store: MakeStore, window: tuple[float, float]) -> None:
    store = make_store(sample=power((0, 100), (1, 100), (2, 100), (10, 100), (11, 100)))
    assert step_energy(store, WORK, measured(*window, 1), None) is None
    two = pl.concat([WORK, WORK.with_columns(device=pl.lit(1, pl.Int32))])
    assert step_energy(store, WORK, measured(0, 2, 1), None) is not None
    assert step_energy(store, two, measured(0, 2, 1), None) is None


def test_report_json_reads_back(make_store: MakeStore) -> None:
    trace = Trace()
    trace.call("aten::mm", SQUARE, 50 * US)
    trace.call("aten::cat", [[[5], [7]], []], 10)
    report = result(trace.store(make_store))
    data = json.loads(json.dumps(plain(report)))
    assert _value(data, Efficiency, "efficiency") == report
    data["operators"][0]["bound"] = "fast"
    with pytest.raises(ValueError, match="bound"):
        _value(data, Efficiency, "efficiency")
