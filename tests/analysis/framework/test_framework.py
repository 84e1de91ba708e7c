"""Phases, parts of the step, operators and collectives, computed on paper."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from operator_rows import framework, operators
from postrun.analysis.framework.framework import OTHER_OPERATORS
from postrun.analysis.report import Framework, OperatorRow, Share
from postrun.ingest.store import Store


def step(phase: str | None, start: int, duration: int, process: int = 0) -> dict[str, Any]:
    return {"node": 0, "process": process, "phase": phase, "index": 0, "host_start_ns": start, "host_duration_ns": duration}


def part(name: str, start: int, duration: int, phase: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"name": name, "phase": phase, "start_ns": start, "duration_ns": duration, "side": "host", "complete": True, **fields}


def operator(name: str, start: int, duration: int, **fields: Any) -> dict[str, Any]:
    return {"kind": "operator", "name": name, "start_ns": start, "duration_ns": duration, **fields}


def test_other_is_averaged_over_the_processes(make_store: Callable[..., Store]) -> None:
    # process 0: span 0..100, train 10 + 30, eval 20, other 40; process 1: span 0..50, train 50 (its steps overlap), other 0
    store = make_store(
        step=[
            step("TRAIN", 0, 10),
            step("TRAIN", 20, 30),
            step("EVAL", 80, 20),
            step("TRAIN", 0, 30, process=1),
            step("TRAIN", 20, 30, process=1),
        ]
    )
    assert framework(store).processes == 2
    assert framework(store).phases == (
        Share("TRAIN", 90, 4, pytest.approx((40 + 100) / 2)),
        Share("EVAL", 20, 1, pytest.approx(20 / 2)),
        Share("other", 40, 0, pytest.approx(40 / 2)),
    )


def test_steps_without_phase_and_steps_found_twice(make_store: Callable[..., Store]) -> None:
    store = make_store(step=[step(None, 0, 50), step(None, 50, 50), step(None, 0, 100, process=1), step("TRAIN", 0, 100, process=1)])
    assert framework(store).phases == (
        Share("TRAIN", 100, 1, 100.0),
        Share("other", 0, 0, 0.0),
    )


def test_parts_of_the_hosted_profiler(make_store: Callable[..., Store]) -> None:
    store = make_store(
        annotation=[
            part("net", 0, 10, "Forward"),
            part("net_conv", 2, 5, "Forward-SubModuleInternal"),  # inside of net: counted once
            part("net", 10, 20, "Backward(post-forward)"),
            part("net_conv", 25, 15, "Backward-SubModuleInternal"),
            part("DataLoaderIter::GetNext", 0, 50, "DataLoaderIter"),
            part("_init_", 0, 50, "DataLoaderIterInitialize"),  # initialization is not waiting for data
            part("net", 0, 40, "Step:ModeKeys.TRAIN"),
        ]
    )
    assert framework(store).step_parts == (
        Share("data loading", 50, 1, pytest.approx(5000 / 90)),
        Share("backward", 30, 2, pytest.approx(3000 / 90)),
        Share("forward", 10, 2, pytest.approx(1000 / 90)),
    )


def test_parts_of_pytorch(make_store: Callable[..., Store]) -> None:
    store = make_store(
        annotation=[
            part("## forward ##", 0, 10),
            part("## forward ##", 0, 99, side="device", device=0),  # its projection on the device
            part("Optimizer.step#SGD.step", 40, 10),
            part("Optimizer.zero_grad#SGD.zero_grad", 50, 5),
            part("my forward thoughts", 0, 1000),
        ],
        host_event=[
            operator("autograd::engine::evaluate_function: MmBackward0", 10, 20),
            operator("MmBackward0", 12, 10),
            operator("aten::mm_backward_helper", 12, 10),
            {"kind": "loader", "name": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "start_ns": 60, "duration_ns": 5},
        ],
    )
    assert framework(store).step_parts == (
        Share("backward", 20, 2, 40.0),
        Share("optimizer", 15, 2, 30.0),
        Share("forward", 10, 1, 20.0),
        Share("data loading", 5, 1, 10.0),
    )


def test_parts_recorded_in_other_steps_are_compared_by_the_mean_step(make_store: Callable[..., Store]) -> None:
    # Loading of 2 in each of 10 steps, forward of 5 and backward of 3 in one of them: 20, 50 and 30% of the mean step.
    steps = [{**step(None, 100 * n, 100), "index": n} for n in range(10)]
    loads = [part("DataLoader", 100 * n, 2, "DataLoaderIter") for n in range(10)]
    result = framework(make_store(step=steps, annotation=[*loads, part("forward", 410, 5), part("backward", 420, 3)]))
    assert [(one.name, one.total_ns, one.count) for one in result.step_parts] == [
        ("forward", 5, 1), ("backward", 3, 1), ("data loading", 20, 10),
    ]  # fmt: skip
    assert [one.percent for one in result.step_parts] == pytest.approx([50, 30, 20])
    assert result.notes[0] == (
        "The parts of a step were not recorded in the same steps (data loading in steps 0 to 9, forward and backward in step 4):"
        " their shares are of the mean step."
    )
    even = framework(make_store(step=steps, annotation=[*loads, part("forward", 10, 5), part("forward", 910, 5)]))
    assert [one.percent for one in even.step_parts] == pytest.approx([200 / 3, 100 / 3])  # of a forward every ninth step
    assert not any("mean step" in note for note in even.notes)
    assert (result.parts_of_mean_step, even.parts_of_mean_step) == (True, False)


def test_a_part_that_is_in_few_of_the_recorded_steps_is_of_all_of_them(make_store: Callable[..., Store]) -> None:
    # Forward of 40 and backward of 35 in each of 8 steps, the optimizer's 10 in the last one: 320, 280 and 10 of 610.
    tables: dict[str, list[dict[str, Any]]] = {
        "step": [{**step(None, 100 * n, 100), "index": n} for n in range(8)],
        "annotation": [
            *(part("forward", 100 * n + 1, 40) for n in range(8)),
            *(part("backward", 100 * n + 41, 35) for n in range(8)),
            part("Optimizer.step#SGD.step", 780, 10),
        ],
    }
    window = {"process": 0, "first_ns": 0, "last_ns": 800}
    recorded = {**window, "process_started_ns": 0, "stopped": False}
    for result in (
        framework(make_store(**tables, profile_window=[{"source": 0, **window}])),
        framework(make_store(**tables, recorded_window=[recorded])),
    ):
        assert {one.name: one.percent for one in result.step_parts} == pytest.approx(
            {"forward": 100 * 320 / 610, "backward": 100 * 280 / 610, "optimizer": 100 * 10 / 610}
        )
        assert not any("mean step" in note for note in result.notes)
    configured = framework(
        make_store(**tables, recorded_window=[recorded], run=[{"metadata": json.dumps({"profiling.detailed.recorded": "step 7"})}])
    )
    assert {one.name: one.percent for one in configured.step_parts}["optimizer"] == pytest.approx(100 * 10 / 85)


def test_small_operators_are_one_row_and_nothing_is_lost(make_store: Callable[..., Store]) -> None:
    store = make_store(
        host_event=[operator("aten::mm", 0, 900), operator("aten::add", 0, 20)],
        annotation=[part("aten::add", 0, 1, "cpu_functions")] + [part(f"tiny{k}", 0, 15, "cpu_functions") for k in range(5)],
    )
    result = framework(store)
    total = 900 + 21 + 75
    assert result.cpu_operators == (
        OperatorRow("aten::mm", 1, 900, pytest.approx(90000 / total)),
        OperatorRow("aten::add", 2, 21, pytest.approx(2100 / total)),
        OperatorRow(OTHER_OPERATORS, 5, 75, pytest.approx(7500 / total)),
    )
    assert result.operator_time == (Share("CPU operators", total, 8, 100.0),)
    assert any("inclusive" in note for note in result.notes)


def test_ranges_of_the_compiler_are_not_operators(make_store: Callable[..., Store]) -> None:
    ranges = (
        "TorchDynamo Cache Lookup", "Torch-Compiled Region", "Torch-Compiled Region: 0/1", "## Call CompiledFxGraph fabc ##",
        "_compile.compile_inner (dynamo_timed)", "Pregraph bytecode", "AOTDispatcher Runtime Wrapper Prologue",
    )  # fmt: skip
    # The nodes of autograd that run compiled code compute: 60 of 100, and a product 40.
    operators = [operator("CompiledFunction", 0, 60), operator("aten::mm", 100, 40)]
    result = framework(make_store(host_event=[*operators, *(operator(name, 200 * n, 100) for n, name in enumerate(ranges, 1))]))
    assert [(row.name, row.total_ns, row.percent) for row in result.cpu_operators] == [
        ("CompiledFunction", 60, 60.0),
        ("aten::mm", 40, 40.0),
    ]


def test_device_time_by_operator(make_store: Callable[..., Store]) -> None:
    def kernel(duration: int, external: int | None, link: int | None) -> dict[str, Any]:
        return {
            "kind": "kernel",
            "name": "k",
            "start_ns": 500,
            "duration_ns": duration,
            "external_id": external,
            "correlation": link,
        }

    def launch(start: int, correlation: int) -> dict[str, Any]:
        return {"kind": "launch", "name": "cudaLaunchKernel", "start_ns": start, "duration_ns": 1, "correlation": correlation}

    store = make_store(
        host_event=[
            operator("aten::mm", 0, 100, external_id=1),
            operator("aten::add", 100, 100, external_id=2),
            launch(50, 11),
            launch(60, 12),
            launch(150, 13),
            launch(90, 14),
        ],
        device_event=[
            kernel(300, 1, 11),
            kernel(100, 1, 12),
            kernel(200, 2, 13),
            kernel(40, 2, 14),  # launched in aten::mm: the external id is wrong
            kernel(30, 2, 2),  # no launch, and the id is the correlation
            kernel(20, 2, 99),  # no launch in the trace, but an id of its own
            kernel(10, None, None),
        ],
        annotation=[part("aten::relu", 0, 300, "gpu_functions-dev:0", side="device", device=0)],
    )
    result = framework(store)
    assert result.gpu_operators == (
        OperatorRow("aten::mm", 3, 440, pytest.approx(44000 / 960)),
        OperatorRow("aten::relu", 1, 300, pytest.approx(30000 / 960)),
        OperatorRow("aten::add", 2, 220, pytest.approx(22000 / 960)),
    )
    # 40 of 700 ns
    assert any(note.startswith("6% of the device time cannot be given to an operator") for note in result.notes)
    assert operators(store).linked_percent == pytest.approx(100 * 660 / 700)


def test_nested_calls_count_again_and_the_note_says_so(make_store: Callable[..., Store]) -> None:
    # Thread 1: linear 0..100 holds addmm 10..60, which holds copy 20..30; relu 150..170. Thread 2: add 0..40.
    # Summed 220, on the threads 160.
    store = make_store(
        host_event=[
            operator("linear", 0, 100), operator("addmm", 10, 50), operator("copy", 20, 10), operator("relu", 150, 20),
            operator("add", 0, 40, tid=2),
        ]
    )  # fmt: skip
    result = framework(store)
    assert sum(row.total_ns for row in result.cpu_operators) == 220
    [note] = result.notes
    assert note.endswith("counts nested calls again: 220 ns, while operators ran for 160 ns of the threads' time.")
    [calm] = framework(make_store(host_event=[operator("relu", 0, 20), operator("relu", 20, 20)])).notes
    assert calm.endswith("counts nested calls again.")


def test_collectives(make_store: Callable[..., Store]) -> None:
    store = make_store(
        names={
            "ncclDevKernel_AllReduce_Sum_f32(int)": ("ncclDevKernel_AllReduce_Sum_f32", "FP32", "communication"),
            "gemm": ("gemm", "FP32", "GEMM"),
        },
        device_event=[
            {"kind": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32(int)", "start_ns": 0, "duration_ns": 60},
            {"kind": "kernel", "name": "gemm", "start_ns": 0, "duration_ns": 500},
        ],
        annotation=[
            part("kAllReduce", 0, 20, "NcclManager"),
            part("4", 0, 15, "Adam_Allreduce/HorovodAllreduce_grad_0"),
            part("NEGOTIATE_ALLREDUCE", 0, 5, "some_tensor"),
            part("nccl:all_reduce", 0, 700),  # the host's call
        ],
    )
    assert framework(store).collectives == (
        Share("ncclDevKernel_AllReduce_Sum_f32", 60, 1, 60.0),
        Share("kAllReduce", 20, 1, 20.0),
        Share("rank 4 ready", 15, 1, 15.0),
        Share("NEGOTIATE_ALLREDUCE", 5, 1, 5.0),
    )


def test_notes(make_store: Callable[..., Store]) -> None:
    store = make_store(
        step=[step("TRAIN", 0, 37), step("TRAIN", 63, 37)], annotation=[part("n", 0, 29, "Forward"), part("n", 50, 71, "Backward")]
    )
    assert framework(store).notes == (
        "26% of the time from the first to the last step was spent outside of the steps.",
        "71% of forward and backward time is spent in the backward pass.",
    )
    calm = make_store(
        step=[step("TRAIN", 0, 38), step("TRAIN", 63, 37)], annotation=[part("n", 0, 30, "Forward"), part("n", 50, 70, "Backward")]
    )
    assert framework(calm).notes == ()


def test_nothing_says_what_would_help(make_store: Callable[..., Store]) -> None:
    result = framework(make_store())
    assert result == Framework((), (), (), (), (), (), (), result.absent)
    assert result.absent is not None
    assert "PyTorch profiler" in result.absent
