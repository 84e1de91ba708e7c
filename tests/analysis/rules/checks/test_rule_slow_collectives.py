"""Bus bandwidth of process groups against their links and equal groups: figures worked out on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.causes.collectives import collectives
from postrun.analysis.report import Finding, RuleResult
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
US = 1000
MS = 1_000_000
H100 = "NVIDIA H100 80GB HBM3"
NAMES = {"AllReduce": ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "unknown", "communication")}
ELEMENTS = 100_000_000  # floats: 400 MB; bus bandwidth of two ranks = 400 MB / transfer


def store_of(
    make_store: MakeStore,
    *transfers_us: Sequence[int],
    model: str | None = H100,
    elements: int = ELEMENTS,
    waits_us: int = 0,
    known: int = 2,
    barrier_us: int = 0,
    **record: Any,
) -> Store:
    """Return groups of two ranks on a node of 8 GPUs.

    ``transfers_us``: of the collectives of each group. The first rank of each group waits for the second one by ``waits_us``;
    ``known``: ranks of a group in the run. ``barrier_us``: how long all other ranks wait for rank 1 in a small collective of all ranks,
    100 ms after each of the others."""
    events, records, processes = [], [], []
    for group, transfers in enumerate(transfers_us):
        for rank in (2 * group, 2 * group + 1)[:known]:
            processes.append({"id": rank, "node": 0, "pid": 100 + rank, "rank": rank})
            for number, transfer in enumerate(transfers):
                correlation = 1000 * rank + number + 1
                end = (number + 1) * 200 * MS
                start = end - transfer * US - (0 if rank % 2 else waits_us * US)
                events.append(
                    {
                        "kind": "kernel", "name": "AllReduce", "process": rank, "device": rank, "stream": 20, "start_ns": start,
                        "duration_ns": end - start, "correlation": correlation,
                    }
                )  # fmt: skip
                records.append(
                    {
                        "node": 0, "process": rank, "on_device": True, "start_ns": start, "duration_ns": end - start,
                        "correlation": correlation, "operation": "allreduce", "element_type": "Float",
                        "in_elements": elements, "out_elements": elements,
                        "group_name": f"dp{group}", "group_description": "DATA_PARALLEL_GROUP",
                        "group_ranks": str([2 * group, 2 * group + 1]), "group_size": 2, **record,
                    }
                )  # fmt: skip
    everyone = [process["rank"] for process in processes] if barrier_us else []
    for rank in everyone:
        for number in range(len(transfers_us[0])):
            correlation = 1000 * rank + 500 + number
            end = (number + 1) * 200 * MS + 100 * MS
            start = end - 100 * US - (0 if rank == 1 else barrier_us * US)
            times = {"process": rank, "start_ns": start, "duration_ns": end - start, "correlation": correlation}
            events.append({"kind": "kernel", "name": "AllReduce", "device": rank, "stream": 21, **times})
            records.append(
                {
                    "node": 0, "on_device": True, "operation": "allreduce", "element_type": "Float", "in_elements": 1, "out_elements": 1,
                    "group_name": "all", "group_description": "WORLD", "group_ranks": str(everyone), "group_size": len(everyone), **times,
                }
            )  # fmt: skip
    devices = [{"node": 0, "index": index, "name": model} for index in range(8)]
    return make_store(names=NAMES, processes=processes, device=devices, device_event=events, collective=records)


def judged(store: Store, **settings: float) -> tuple[RuleResult, Finding | None]:
    chosen = {f"SlowCollectives_{name}": value for name, value in settings.items()}
    report = rules_of(store, Options(generated_at_ns=0, selection=select(["SlowCollectives"], settings=chosen)))
    return report.rules[0], report.findings[0] if report.findings else None


def test_far_below_the_link(make_store: MakeStore) -> None:
    # 400 MB in 4 ms: 100 GB/s, 22.2% of the 450 GB/s of NVLink
    result, finding = judged(store_of(make_store, [4000] * 12))
    assert (result.verdict, result.triggered, result.datapoints) == ("IssuesFound", 1, 1)
    assert result.finding == (
        "All-reduce of 381 MiB in DATA_PARALLEL_GROUP dp0 [0, 1] (2 ranks on 1 node) reaches 100 GB/s, 22.2% of the 450 GB/s of its NVLink"
        " (threshold 40%), and is slow in 12 of 12 collectives."
    )
    (group,) = plain_details(result)["groups"]
    assert group["bus_gb_per_s"] == pytest.approx(100)
    assert (group["link"], group["link_gb_per_s"], group["peers_gb_per_s"], group["slow_by_link"]) == ("NVLink", 450, None, 12)
    assert result.recommendation is not None
    assert "`NCCL_DEBUG=INFO`" in result.recommendation
    assert "`nvidia-smi nvlink -s`" in result.recommendation
    assert finding is not None
    # All of it is exposed on two ranks: 2 x 12 x 4 ms; at 450 GB/s it would take 2/9 of that.
    assert (finding.cost_ns, finding.saving_ns, finding.saving_kind) == (96 * MS, pytest.approx(96 * MS * 7 / 9, abs=20), "upper_bound")


def test_waits_for_ranks_of_a_slow_group_are_explained(make_store: MakeStore) -> None:
    """Ranks 0 and 1 are slow: 2 x 12 transfers of 4 ms.

    Then all wait for rank 1 for 3 ms. Ranks 2 and 3 do so because of the slow group: 2 x 12 x 3 ms. Rank 0 belongs to it."""
    fast = [1333] * 12
    result, _ = judged(store_of(make_store, [4000] * 12, fast, barrier_us=3000))
    assert plain_details(result)["explained_ns"] == 2 * 12 * 4 * MS + 2 * 12 * 3 * MS
    result, _ = judged(store_of(make_store, fast, [4000] * 12, barrier_us=3000))  # they wait for a rank of the other group
    assert plain_details(result)["explained_ns"] == 2 * 12 * 4 * MS


def test_far_below_equal_groups(make_store: MakeStore) -> None:
    # Nobody knows the links of this GPU, but three groups reach 300 GB/s (1.333 ms) and one 150 GB/s (2.667 ms): half of it.
    fast = [1333] * 12
    result, finding = judged(store_of(make_store, fast, [2666] * 12, fast, fast, model="NVIDIA Unheard-of 1"))
    assert (result.verdict, result.triggered, result.datapoints) == ("IssuesFound", 1, 4)
    assert "dp1 [2, 3]" in str(result.finding)
    assert "50.0% of the 300 GB/s of 3 equal groups (threshold 70%), and is slow in 12 of 12 collectives." in str(result.finding)
    assert finding is not None
    assert (finding.cost_ns, finding.saving_ns, finding.saving_kind) == (24 * 2666 * US, pytest.approx(24 * 1333 * US, abs=30), "predicted")


def test_short_collectives_are_compared_with_equal_groups_only(make_store: MakeStore) -> None:
    # 8 MB take NVLink 18 µs, so that latency bounds them. The other groups need 40 µs for them, one 400 µs: 20 GB/s of 200.
    fast = [40] * 12
    result, _ = judged(store_of(make_store, fast, [400] * 12, fast, elements=2_000_000))
    assert (result.verdict, result.triggered, result.datapoints) == ("IssuesFound", 1, 3)
    assert "10.0% of the 200 GB/s of 2 equal groups (threshold 70%), and is slow in 12 of 12 collectives." in str(result.finding)
    assert plain_details(result)["groups"][0]["link_gb_per_s"] is None
    assert judged(store_of(make_store, [400] * 12, elements=2_000_000))[0].verdict == "NotEvaluated"


def test_waiting_is_no_part_of_a_transfer(make_store: MakeStore) -> None:
    # 400 MB in 1.333 ms after a wait of 50 ms
    result, _ = judged(store_of(make_store, [1333] * 12, waits_us=50_000))
    assert result.verdict == "NoIssuesFound"
    assert plain_details(result)["groups"][0]["bus_gb_per_s"] == pytest.approx(300, rel=0.001)


def test_some_slow_collectives_are_no_slow_group(make_store: MakeStore) -> None:
    assert judged(store_of(make_store, [4000] * 10 + [1333] * 2))[0].verdict == "NoIssuesFound"
    assert judged(store_of(make_store, [4000] * 11 + [1333]))[0].verdict == "IssuesFound"
    # Of 7 to 10 collectives, all have to be slow.
    assert judged(store_of(make_store, [4000] * 9 + [1333]))[0].verdict == "NoIssuesFound"
    assert judged(store_of(make_store, [4000] * 7))[0].verdict == "IssuesFound"
    assert judged(store_of(make_store, [4000] * 12), link_threshold=22)[0].verdict == "NoIssuesFound"


def test_advice_for_amd(make_store: MakeStore) -> None:
    # two MI300X have one link of 64 GB/s: 400 MB in 40 ms are 10 GB/s
    result, _ = judged(store_of(make_store, [40_000] * 12, model="AMD Instinct MI300X"))
    assert "15.6% of the 64.0 GB/s of its xGMI" in str(result.finding)
    assert "rocm-smi" in str(result.recommendation)
    assert "nvidia-smi" not in str(result.recommendation)


@pytest.mark.parametrize(
    ("transfers", "more", "reason"),
    [
        ([[4000] * 12], {"known": 1}, "only one rank has collectives, and their time contains the wait for the others"),
        ([[4000] * 6], {}, "6 of at least 7 large collectives of a group needed"),
        # 400 kB take NVLink below a microsecond: latency
        ([[4000] * 12], {"elements": 100_000}, "no large collective whose size and group are recorded"),
        ([[4000] * 12], {"group_size": 4, "group_ranks": None}, "no large collective whose size and group are recorded"),
        ([[4000] * 12], {"model": None}, "no link of known bandwidth, and no second group of the same kind to compare with"),
    ],
)  # fmt: skip
def test_not_evaluated(make_store: MakeStore, transfers: list[list[int]], more: dict[str, Any], reason: str) -> None:
    result, finding = judged(store_of(make_store, *transfers, **more))
    assert (result.verdict, finding) == ("NotEvaluated", None)
    assert str(result.reason).startswith(reason)


def test_the_link_between_different_gpus_is_unknown(make_store: MakeStore) -> None:
    store = store_of(make_store, [4000] * 12)
    store.connection.execute("UPDATE device SET name = 'NVIDIA A100-SXM4-80GB' WHERE \"index\" = 1")
    result, _ = judged(store)
    assert str(result.reason).startswith("no link of known bandwidth")


def test_advice_for_pcie(make_store: MakeStore) -> None:
    # 400 MB in 20 ms are 20 GB/s of 64
    result, _ = judged(store_of(make_store, [20_000] * 12, model="NVIDIA H100 PCIe"))
    assert "31.2% of the 64.0 GB/s of its PCIe" in str(result.finding)
    assert "--query-gpu=pcie.link.gen.current,pcie.link.width.current" in str(result.recommendation)
    assert "nvlink" not in str(result.recommendation)


def test_the_bandwidth_of_a_group_is_that_of_the_section(make_store: MakeStore) -> None:
    # 12 times 400 MB in 9 x 4 and 3 x 8 ms: 4.8 GB in 60 ms are 80 GB/s; the median would be 100.
    store = store_of(make_store, [4000] * 9 + [8000] * 3)
    result, _ = judged(store)
    (row,), _ = collectives(store)
    assert plain_details(result)["groups"][0]["bus_gb_per_s"] == pytest.approx(80)
    assert row.bus_gb_per_s == pytest.approx(80)
    assert "reaches 80.0 GB/s" in str(result.finding)


def test_the_section_on_collectives_has_the_expected_bandwidth(make_store: MakeStore) -> None:
    (row,), _ = collectives(store_of(make_store, [4000] * 12))
    assert (row.bus_gb_per_s, row.expected_bus_gb_per_s) == (pytest.approx(100), 450)
    (row,), _ = collectives(store_of(make_store, [4000] * 12, model="NVIDIA Unheard-of 1"))
    assert row.expected_bus_gb_per_s is None
    # One rank of two: its bandwidth is a lower bound, and the node of the other one is unknown.
    (row,), _ = collectives(store_of(make_store, [4000] * 12, known=1))
    assert (row.at_least, row.expected_bus_gb_per_s) == (True, None)
