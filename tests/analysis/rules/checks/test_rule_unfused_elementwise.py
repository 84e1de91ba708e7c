"""Time that fusing chains of elementwise kernels could save: figures worked out on paper and by a plain loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.report import Report
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>"
FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::BinaryOpListAlphaFunctor>"
NAMES = {
    ADD: ("add", "FP32", "elementwise"),
    SUM: ("sum", "FP32", "reduction"),
    FOREACH: ("foreach", "FP32", "elementwise"),
    "triton_poi_fused_add_0": ("triton_poi_fused_add_0", "unknown", "elementwise"),
    "gemm": ("gemm", "FP32", "GEMM"),
}
KERNELS = tuple(NAMES)


def run(start: int, end: int, name: str = ADD, **more: Any) -> dict[str, Any]:
    return {"kind": "kernel", "name": name, "start_ns": start, "duration_ns": end - start, **more}


def judged(store: Store, *rules: str, **settings: float) -> Report:
    chosen = {f"UnfusedElementwise_{name}": value for name, value in settings.items()}
    return rules_of(store, Options(generated_at_ns=0, selection=select([*rules, "UnfusedElementwise"], settings=chosen)))


def devices(report: Report) -> list[tuple[int, ...]]:
    rows = plain_details(report.rules[0])["devices"]
    return [(row["chains"], row["kernels"], row["time_ns"], row["extra_ns"]) for row in rows]


def test_a_chain_ends_with_any_other_kernel_of_its_stream(make_store: Callable[..., Store]) -> None:
    # add 10, sum 20 | gemm | add 30 | foreach | add 5, add 5 | triton | add 7; a copy and another stream do not end a chain.
    events = [
        run(0, 10), run(10, 12, "gemm", stream=9), {"kind": "memset", "name": "Memset", "start_ns": 12, "duration_ns": 1}, run(13, 33, SUM),
        run(40, 50, "gemm"), run(50, 80), run(80, 82, FOREACH), run(90, 95), run(95, 100), run(100, 110, "triton_poi_fused_add_0"),
        run(110, 117), run(199, 200, "gemm"),
    ]  # fmt: skip
    report = judged(make_store(names=NAMES, device_event=events), threshold=7.4)
    assert devices(report) == [(2, 4, 40, 15)]
    (finding,) = report.findings
    assert (finding.cost_ns, finding.saving_ns, finding.saving_percent, finding.saving_kind) == (15, 15, 7.5, "upper_bound")
    kernels = plain_details(report.rules[0])["kernels"]
    assert [(row["name"], row["count"], row["time_ns"]) for row in kernels] == [("add", 3, 20), ("sum", 1, 20)]
    assert judged(make_store(names=NAMES, device_event=events), threshold=7.5).rules[0].verdict == "NoIssuesFound"


def test_normalization_and_softmax_are_in_chains(make_store: Callable[..., Store]) -> None:
    """A chain of 45 ns exceeds its longest kernel by 25.

    add 10, norm 20, softmax 15 | gemm | norm 30 alone: 75 ns can be fused."""
    norm, softmax = "void at::native::vectorized_layer_norm_kernel<float>", "void at::native::softmax_warp_forward<float>"
    names = NAMES | {norm: ("norm", "FP32", "normalisation"), softmax: ("softmax", "FP32", "softmax")}
    events = [run(0, 10), run(10, 30, norm), run(30, 45, softmax), run(45, 60, "gemm"), run(60, 90, norm)]
    report = judged(make_store(names=names, device_event=events))
    assert devices(report) == [(1, 3, 45, 25)]
    assert plain_details(report.rules[0])["devices"][0]["fusible_ns"] == 75


@pytest.mark.parametrize(
    "norm", ["void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1>", "void cudnn::ops::bn_bw_1C11_kernel_new<float>",
             "MIOpenBatchNormFwdTrainSpatial"],
)  # fmt: skip
def test_batch_normalization_of_a_library_is_fused_with_what_follows(make_store: Callable[..., Store], norm: str) -> None:
    names = NAMES | {norm: ("norm", "FP32", "normalisation")}
    events = [run(0, 40, "gemm"), run(40, 60, norm), run(60, 70), run(70, 100, "gemm")]
    assert devices(judged(make_store(names=names, device_event=events))) == [(1, 2, 30, 10)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=st.lists(st.tuples(st.sampled_from(KERNELS), st.integers(0, 9), st.sampled_from([7, 8])), min_size=1, max_size=30))
def test_chains_are_those_of_a_plain_loop(make_store: Callable[..., Store], runs: list[tuple[str, int, int]]) -> None:
    events, at = [], 0
    for name, length, stream in runs:
        events.append(run(at, at + length, name, stream=stream))
        at += length + 1
    chains: list[list[int]] = []
    for stream in (7, 8):
        chain: list[int] = []
        for name, length, of in runs:
            if of != stream:
                continue
            if name in (ADD, SUM):
                chain.append(length)
            else:
                chains.append(chain)
                chain = []
        chains.append(chain)
    chains = [chain for chain in chains if len(chain) > 1]
    expected = (len(chains), sum(map(len, chains)), sum(map(sum, chains)), sum(sum(chain) - max(chain) for chain in chains))
    report = judged(make_store(names=NAMES, device_event=events))
    if not any(name in (ADD, SUM) for name, _, _ in runs):
        assert report.rules[0].verdict == "NotEvaluated"
    else:
        assert devices(report) == [expected]


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ((), "`torch.compile(model)`"),
        (("Torch-Compiled Region: 0/0",), "graph_breaks"),
        (("step[DECODE bs=4 toks=4]",), "--enable-torch-compile"),
        (("DeepSpeedEngine.forward",), "engine.compile()"),
    ],
)
def test_advice_is_in_the_words_of_the_program(make_store: Callable[..., Store], ranges: tuple[str, ...], words: str) -> None:
    annotations = [{"side": "host", "name": name, "start_ns": 0, "duration_ns": 1} for name in ranges]
    operator = [{"kind": "operator", "name": "aten::mm", "start_ns": 0, "duration_ns": 1}]
    store = make_store(names=NAMES, device_event=[run(0, 50), run(50, 100)], annotation=annotations, host_event=operator)
    assert words in (judged(store).findings[0].recommendation or "")


def test_kernels_of_other_frameworks_are_not_evaluated(make_store: Callable[..., Store]) -> None:
    report = judged(make_store(names=NAMES, device_event=[run(0, 10, "triton_poi_fused_add_0"), run(10, 20, "gemm")]))
    assert report.rules[0].verdict == "NotEvaluated"
    assert "PyTorch's eager operators" in (report.rules[0].reason or "")
