"""UnfusedAttention: chains of attention by the sizes of their inputs, and the least time of a fused kernel, worked out on paper."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from judging import Judged, rules_of
from postrun.analysis import Options
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
US = 1_000
HALF = "c10::Half"
SCORES = [96, 1000, 1000]  # 8 sequences of 12 heads
# Operator, sizes, time of its kernel in µs; the kernels run one after the other.
Calls = list[tuple[str, list[Any], int]]
ATTENTION: Calls = [
    ("aten::bmm", [[96, 1000, 64], [96, 64, 1000]], 400),
    ("aten::mul", [[8, 12, 1000, 1000], []], 300),
    ("aten::add", [[8, 12, 1000, 1000], [1, 1, 1000, 1000], []], 320),
    ("aten::_softmax", [[8, 12, 1000, 1000], [], []], 380),
    ("aten::bmm", [SCORES, [96, 1000, 64]], 350),
]
MLP: Calls = [("aten::mm", [[8000, 768], [768, 3072]], 250)]


def judged(store: Store, **settings: float) -> Judged:
    chosen = {f"UnfusedAttention_{name}": value for name, value in settings.items()}
    peaks = {"fp16": 1000.0, "memory": 2000.0}
    return rules_of(store, Options(generated_at_ns=0, selection=select(["UnfusedAttention"], settings=chosen), peaks=peaks))


def rows_of(calls: Calls, **names: Any) -> dict[str, Any]:
    signatures, host, device, now = [], [], [], 0
    for number, (operator, dims, time) in enumerate(calls):
        types = [HALF if size else "Scalar" for size in dims]
        values = ["" if size else "-1" for size in dims]
        signatures.append(
            {"id": number, "input_dims": json.dumps(dims), "input_types": json.dumps(types), "concrete_inputs": json.dumps(values)}
        )
        host.append({"kind": "operator", "name": operator, "start_ns": now, "duration_ns": 10 * US, "signature": number})
        host.append({"kind": "launch", "name": "cudaLaunchKernel", "start_ns": now + US, "duration_ns": US, "correlation": number + 1})
        device.append({"kind": "kernel", "name": "kernel", "start_ns": now + 5 * US, "duration_ns": time * US, "correlation": number + 1})
        now += time * US
    return {"signature": signatures, "host_event": host, "device_event": device, **names}


def test_a_chain_against_one_fused_kernel(make_store: MakeStore) -> None:
    # 1750 us of 2000 us. Fused: 2 x 96 x 10^6 x 128 FLOP at 10^15 FLOP/s are 24.576 us; 4 x 96 x 64000 x 2 bytes at 2 TB/s as well.
    result = judged(make_store(**rows_of(ATTENTION + MLP)))
    (rule,), (finding,) = result.rules, result.findings
    assert rule.verdict == "IssuesFound"
    assert (finding.cost_ns, finding.saving_ns, finding.saving_kind) == (1_750_000 - 24_576, 1_750_000 - 24_576, "upper_bound")
    (chain,) = plain_details(rule)["chains"]
    figures = ("batch", "queries", "keys", "width", "type", "calls", "time_ns", "products_ns", "softmax_ns", "between_ns", "fused_ns")
    assert [chain[name] for name in figures] == [
        96, 1000, 1000, 64, "fp16", 1, 1750 * US, 750 * US, 380 * US, 620 * US, 24_576,
    ]  # fmt: skip
    assert "scaled_dot_product_attention(query, key, value" in str(finding.recommendation)
    assert judged(make_store(**rows_of(ATTENTION + MLP)), threshold=86.3).rules[0].verdict == "NoIssuesFound"


def test_the_backward_belongs_to_the_chain(make_store: MakeStore) -> None:
    backward: Calls = [
        ("aten::bmm", [[96, 1000, 1000], [96, 1000, 64]], 10),
        ("aten::bmm", [[96, 1000, 64], [96, 64, 1000]], 20),
        ("aten::_softmax_backward_data", [[8, 12, 1000, 1000], [8, 12, 1000, 1000], [], []], 30),
        ("aten::bmm", [[96, 64, 1000], [96, 1000, 1000]], 40),
    ]
    (chain,) = plain_details(judged(make_store(**rows_of(ATTENTION + backward))).rules[0])["chains"]
    # 2.5 times the operations at least take longer than twice the bytes.
    assert (chain["products_ns"], chain["softmax_ns"], chain["fused_ns"]) == (820 * US, 410 * US, round(24_576 * 3.5))


def test_grouped_queries_are_rows_of_one_product(make_store: MakeStore) -> None:
    """8 sequences of 3 key heads with 4 query heads each: 24 products of 4000 rows.

    The sizes of the fused kernel are those of the scores, 96 x 1000 x 1000."""
    grouped: Calls = [
        ("aten::bmm", [[24, 4000, 64], [24, 64, 1000]], 400),
        ("aten::_softmax", [[8, 3, 4, 1000, 1000], [], []], 380),
        ("aten::bmm", [[24, 4000, 1000], [24, 1000, 64]], 350),
        ("aten::bmm", [[24, 1000, 4000], [24, 4000, 64]], 70),  # gradient of the values
    ]
    (chain,) = plain_details(judged(make_store(**rows_of(grouped + MLP))).rules[0])["chains"]
    assert [chain[name] for name in ("batch", "queries", "keys", "width", "calls")] == [96, 1000, 1000, 64, 1]
    assert (chain["products_ns"], chain["softmax_ns"], chain["fused_ns"]) == (820 * US, 380 * US, 24_576)


def test_the_fused_softmax_of_megatron(make_store: MakeStore) -> None:
    calls: Calls = [
        ("aten::baddbmm", [SCORES, [96, 1000, 64], [96, 64, 1000], [], []], 400),
        ("ScaledUpperTriangMaskedSoftmax", [SCORES, []], 380),
        ("aten::bmm", [SCORES, [96, 1000, 64]], 350),
        ("ScaledUpperTriangMaskedSoftmaxBackward", [SCORES], 300),
    ]
    (chain,) = plain_details(judged(make_store(**rows_of(calls + MLP))).rules[0])["chains"]
    assert (chain["products_ns"], chain["softmax_ns"]) == (750 * US, 680 * US)


@pytest.mark.parametrize(
    "calls",
    [
        ATTENTION[:4] + MLP,  # nothing takes the scores: a router, a pooling or a sampler
        ATTENTION[1:] + MLP,  # nothing makes them
        [("aten::_softmax", [[8000, 50000], [], []], 500), ("aten::mm", [[8000, 768], [768, 50000]], 500)],  # a classifier
        [*ATTENTION[:3], ("aten::_softmax", [[8, 12, 1000, 999], [], []], 380), *ATTENTION[4:]],  # other sizes
        [("aten::_scaled_dot_product_flash_attention", [[8, 12, 1000, 64]] * 3, 900)],
    ],
)
def test_what_is_no_chain(make_store: MakeStore, calls: Calls) -> None:
    result = judged(make_store(**rows_of(calls)))
    assert (result.rules[0].verdict, plain_details(result.rules[0])["chains"]) == ("NoIssuesFound", [])


def test_equal_width_and_length(make_store: MakeStore) -> None:
    """With as many keys as a head is wide, the two products have equal sizes."""
    square = [[96, 64, 64], [96, 64, 64]]
    calls: Calls = [("aten::bmm", square, 400), ("aten::_softmax", [[8, 12, 64, 64], [], []], 300), ("aten::bmm", square, 400)]
    (chain,) = plain_details(judged(make_store(**rows_of(calls))).rules[0])["chains"]
    assert (chain["products_ns"], chain["width"]) == (800 * US, 64)
    assert plain_details(judged(make_store(**rows_of(calls[:2]))).rules[0])["chains"] == []


def test_the_math_form_of_the_call(make_store: MakeStore) -> None:
    rows = rows_of(ATTENTION)
    around = {"kind": "operator", "name": "aten::_scaled_dot_product_attention_math", "start_ns": 0, "duration_ns": 1_750 * US}
    rows["host_event"].append(around)
    (finding,) = judged(make_store(**rows)).findings
    assert "is called already" in str(finding.recommendation)


def test_a_gpu_without_known_peaks(make_store: MakeStore) -> None:
    selection = select(["UnfusedAttention"], settings={})
    result = rules_of(make_store(**rows_of(ATTENTION + MLP)), Options(generated_at_ns=0, selection=selection))
    (finding,) = result.findings
    assert (finding.cost_ns, finding.saving_ns) == (1000 * US, None)
    assert str(result.rules[0].finding).startswith("Softmax, scale and mask of attention that is not fused take 1.00 ms")


def test_without_sizes(make_store: MakeStore) -> None:
    rows = rows_of(ATTENTION)
    del rows["signature"]
    for event in rows["host_event"]:
        event.pop("signature", None)
    assert judged(make_store(**rows)).rules[0].verdict == "NotEvaluated"


def test_the_module_of_the_chain(make_store: MakeStore) -> None:
    rows = rows_of(ATTENTION + MLP)
    for number, (start, end) in enumerate([(0, 1740), (1741, 2000)]):
        name = f"nn.Module: {('Attention_3', 'Linear_0')[number]}"
        rows["host_event"].append({"kind": "python", "name": name, "start_ns": start * US, "duration_ns": (end - start) * US, "tid": 1})
    for event in rows["host_event"]:
        event["tid"] = 1
    result = judged(make_store(**rows))
    assert plain_details(result.rules[0])["chains"][0]["module"] == "Attention_3"
    assert str(result.rules[0].finding).endswith("Most of it is in `Attention_3`.")


@pytest.mark.parametrize(("gelu", "explained"), [(400, True), (600, False)])
def test_it_explains_chains_of_elementwise_kernels_that_are_mostly_its_own(make_store: MakeStore, gelu: int, explained: bool) -> None:
    """Scale, mask and softmax take 1000 us, another chain twice ``gelu``."""
    activation: Calls = [("aten::mul", [[8, 1000, 3072], []], gelu), ("aten::tanh", [[8, 1000, 3072]], gelu)]
    rows = rows_of(ATTENTION + MLP + activation)
    names = {}
    for event, (operator, _, _) in zip(rows["device_event"], ATTENTION + MLP + activation, strict=True):
        event["name"] = "gemm" if "mm" in operator else f"void at::native::vectorized_elementwise_kernel<4, {operator}>"
        names[event["name"]] = (event["name"], "FP16", "GEMM" if "mm" in operator else "elementwise")
    selection = select(["UnfusedAttention", "UnfusedElementwise"], settings={})
    peaks = {"fp16": 1000.0, "memory": 2000.0}
    findings = rules_of(make_store(names=names, **rows), Options(generated_at_ns=0, selection=selection, peaks=peaks)).findings
    causes = {finding.rule: finding.explained_by for finding in findings}
    assert causes == {"UnfusedAttention": None, "UnfusedElementwise": "UnfusedAttention" if explained else None}
