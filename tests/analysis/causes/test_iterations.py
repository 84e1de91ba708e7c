"""Iterations of inference engines, worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis.causes.iterations import MOST, between_iterations, iterations
from postrun.analysis.report.causes import Iteration, IterationKind
from postrun.ingest.store import Store

MakeStore = Callable[..., Store]
Rows = list[dict[str, Any]]


def step(name: str, start: int, end: int, side: str = "host", **more: Any) -> dict[str, Any]:
    return {"side": side, "name": name, "start_ns": start, "duration_ns": end - start, **more}


def launch(name: str, start: int) -> dict[str, Any]:
    return {"kind": "launch", "name": name, "start_ns": start, "duration_ns": 1}


def kernel(start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": "k", "start_ns": start, "duration_ns": end - start, **more}


VLLM = [{"kind": "python", "name": "vllm/v1/worker/gpu_worker.py(1): f", "start_ns": 0, "duration_ns": 1}]


def test_iterations_of_sglang(make_store: MakeStore) -> None:
    """Read a prefill of 1,000 tokens and three decodes of 4 requests."""
    store = make_store(
        annotation=[
            step("step[EXTEND bs=4 toks=1000]", 0, 400),
            step("step[DECODE bs=4]", 500, 600),
            step("step[DECODE bs=4]", 620, 700),
            step("step[DECODE bs=4]", 700, 760),
        ],
        host_event=[launch("cudaLaunchKernel", 10), launch("cudaGraphLaunch", 510), launch("cudaGraphLaunch", 640)],
        device_event=[kernel(0, 450), kernel(400, 475, stream=8), kernel(500, 600), kernel(620, 650), kernel(700, 900)],
    )
    known = iterations(store)
    assert known.rows == (
        Iteration("host-0", 0, "prefill", 0, 400, None, 4, 1000, False, 95.0),  # 475 of the 500 ns to the next one
        Iteration("host-0", 0, "decode", 500, 100, 100, 4, 4, True, pytest.approx(100 * 100 / 120)),  # type: ignore[arg-type]
        Iteration("host-0", 0, "decode", 620, 80, 20, 4, 4, True, 37.5),
        Iteration("host-0", 0, "decode", 700, 60, 0, 4, 4, False, 100.0),
    )
    prefill, decode = known.kinds
    assert prefill == IterationKind("prefill", 1, 400.0, 400.0, 4.0, 1000.0, 2e9, None, 0.0, 95.0)
    assert (decode.count, decode.median_ns, decode.p90_ns, decode.batch, decode.tokens, decode.gap_ns) == (3, 80.0, 96.0, 4.0, 4.0, 20.0)
    assert decode.tokens_per_s == pytest.approx(12e9 / (120 + 80 + 60))
    assert decode.graph_percent == pytest.approx(200 / 3)
    assert decode.busy_percent == pytest.approx(100 * (100 + 30 + 60) / 260)


@pytest.mark.parametrize(
    ("name", "kind", "batch", "tokens"),
    [
        ("execute_context_1(888)_generation_0(0)", "prefill", 1, 888),
        ("execute_context_0(0)_generation_32(32)", "decode", 32, 32),
        ("execute_context_2(512)_generation_30(30)", "mixed", 32, 542),
        ("execute_context_0(0)_generation_0(0)", "forward", 0, 0),
        ("execute_new_1_cached_3", "mixed", 4, None),
        ("execute_new_0_cached_3", "decode", 3, None),
        ("step[EXTEND bs=15 toks=15360]", "prefill", 15, 15360),
        ("step[EXTEND bs=2 toks=12 c_sqsq=80 c_sqsk=120 c_sk=20]", "prefill", 2, 12),
        ("step[MIXED bs=9]", "mixed", 9, None),
        ("step[TARGET_VERIFY bs=4]", "decode", 4, None),
        ("step[DRAFT_EXTEND bs=4]", "forward", 4, None),
        ("[Executor] _forward_step 7: 2 ctx reqs, 30 gen reqs", "mixed", 32, None),
        ("[Executor] _forward_step 7: 2 ctx reqs, 900 ctx tokens, 30 gen reqs", "mixed", 32, 930),
        ("[Executor] _forward_step: 0 ctx reqs, 30 gen reqs", "decode", 30, 30),
        ("prefill[bs=2 tok=16384]", "prefill", 2, 16384),
        ("decode[bs=64]", "decode", 64, 64),
        ("execute_diffusion_step", "denoise", None, None),
        ("denoising step", "denoise", None, None),
        ("## denoise ##", "denoise", None, None),
        ("execute_model", "forward", None, None),
        ("ProfilerStep#7", "forward", None, None),
    ],
)
def test_the_name_of_an_iteration(make_store: MakeStore, name: str, kind: str, batch: int | None, tokens: int | None) -> None:
    (row,) = iterations(make_store(annotation=[step(name, 0, 10)], host_event=VLLM)).rows
    assert (row.kind, row.batch, row.tokens, row.graph, row.busy_percent) == (kind, batch, tokens, None, None)


def test_the_range_of_the_engine_counts_before_those_inside_of_it(make_store: MakeStore) -> None:
    inner = [step("execute_model", 1, 9), step("## Call CompiledFxGraph fabc ##", 2, 5), step("denoise", 3, 4)]
    (row,) = iterations(make_store(annotation=[step("decode[bs=1]", 0, 10), *inner])).rows
    assert row.kind == "decode"


def test_an_iteration_within_another_one_counts_once(make_store: MakeStore) -> None:
    nested = [step("step[DECODE bs=4]", 0, 100), step("step[DECODE bs=4]", 10, 90, tid=2), step("step[DECODE bs=4]", 200, 250)]
    known = iterations(make_store(annotation=nested))
    assert [(row.start_ns, row.duration_ns, row.gap_ns) for row in known.rows] == [(0, 100, None), (200, 50, 100)]
    assert known.kinds[0].tokens_per_s == 8e9 / (200 + 50)


def test_other_ranges_between_those_of_the_engine_do_not_count(make_store: MakeStore) -> None:
    ranges = [step("step[DECODE bs=4]", 0, 10), step("execute_model", 20, 30), step("step[DECODE bs=4]", 40, 50)]
    known = iterations(make_store(annotation=ranges))
    assert [(row.kind, row.start_ns, row.gap_ns) for row in known.rows] == [("decode", 0, None), ("decode", 40, 30)]


def test_only_an_engine_schedules_between_its_iterations(make_store: MakeStore) -> None:
    of_engine = between_iterations(make_store(annotation=[step("step[DECODE bs=4]", 0, 10), step("step[DECODE bs=4]", 40, 50)]))
    assert of_engine.rows() == [(0, 10, 40)]
    assert between_iterations(make_store(annotation=[step("decode[bs=4]", 0, 10), step("decode[bs=4]", 40, 50)])).is_empty()


def test_ranges_of_a_device_count_where_the_host_has_none(make_store: MakeStore) -> None:
    twice = [step("step[DECODE bs=1]", at, at + 5, "device", device=0, stream=stream) for at, stream in ((0, 7), (10, 7), (1, 8))]
    assert [row.start_ns for row in iterations(make_store(annotation=twice)).rows] == [0, 10]
    assert [row.start_ns for row in iterations(make_store(annotation=[*twice, step("step[DECODE bs=1]", 2, 3)])).rows] == [2]


def test_names_that_other_programs_use_count_in_an_inference_alone(make_store: MakeStore) -> None:
    calls = [step("## Call CompiledFxGraph fabc ##", at, at + 5) for at in (0, 10)]
    assert [row.kind for row in iterations(make_store(annotation=calls, host_event=VLLM)).rows] == ["forward", "forward"]
    backward = [{"kind": "operator", "name": "CompiledFunctionBackward", "start_ns": 0, "duration_ns": 1}]
    assert iterations(make_store(annotation=calls, host_event=backward)).rows == ()
    assert iterations(make_store(annotation=[step("denoise", 0, 5), step("execute_model", 5, 9)])).rows == ()


def test_the_list_is_bounded_and_the_figures_are_not(make_store: MakeStore) -> None:
    known = iterations(make_store(annotation=[step("decode[bs=1]", 10 * at, 10 * at + 5) for at in range(MOST + 20)]))
    assert len(known.rows) == MOST
    assert known.kinds[0].count == MOST + 20


def test_each_process_has_its_own_gaps(make_store: MakeStore) -> None:
    store = make_store(
        processes=[{"id": 0, "node": 0, "pid": 1, "rank": 0}, {"id": 1, "node": 0, "pid": 2, "rank": 1}],
        annotation=[step("decode[bs=1]", at, at + 5, process=process) for process, at in ((0, 0), (1, 2), (0, 10), (1, 20))],
    )
    assert [(row.rank, row.start_ns, row.gap_ns) for row in iterations(store).rows] == [(0, 0, None), (1, 2, None), (0, 10, 5), (1, 20, 13)]


def test_runs_without_iterations(make_store: MakeStore) -> None:
    assert iterations(make_store()) == iterations(make_store(annotation=[step("ProfilerStep#1", 0, 5)]))
