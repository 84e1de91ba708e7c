"""HostPauses: the idle time of devices during garbage collection and checkpoints, worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from judging import Judged, rules_of
from pipeline_jobs import NAMES, Shape, pipeline_job
from postrun.analysis import Options
from postrun.analysis.causes.pauses import CHECKPOINT, GARBAGE, host_pauses
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
MS = 1_000_000


def judged(store: Store, **settings: float) -> Judged:
    chosen = {f"HostPauses_{name}": value for name, value in settings.items()}
    return rules_of(store, Options(generated_at_ns=0, selection=select(["HostPauses"], settings=chosen)))


def kernels(*times: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"kind": "kernel", "name": "forward", "start_ns": start * MS, "duration_ns": (end - start) * MS} for start, end in times]


def frame(name: str, start: int, end: int) -> dict[str, Any]:
    return {"kind": "python", "name": name, "start_ns": start * MS, "duration_ns": (end - start) * MS}


def test_idle_time_in_a_pause_counts(make_store: MakeStore) -> None:
    # 100 ms with a gap from 40 to 60; garbage is collected from 30 to 55, so that 15 ms of the gap are in the pause.
    store = make_store(names=NAMES, device_event=kernels((0, 40), (60, 100)), host_event=[frame("gc.collect", 30, 55)])
    result = judged(store)
    (rule,), (finding,) = result.rules, result.findings
    assert (rule.verdict, rule.triggered, rule.datapoints) == ("IssuesFound", 1, 1)
    details = plain_details(rule)
    assert (details["idle_ns"], details["idle_percent"]) == (15 * MS, 15.0)
    assert [(pause["name"], pause["kind"], pause["count"], pause["time_ns"], pause["idle_ns"]) for pause in details["pauses"]] == [
        ("gc.collect", GARBAGE, 1, 25 * MS, 15 * MS)
    ]
    assert (finding.cost_ns, finding.saving_ns, finding.saving_kind) == (15 * MS, 15 * MS, "upper_bound")
    assert judged(store, threshold=15).rules[0].verdict == "NoIssuesFound"
    assert judged(store, threshold=14).rules[0].verdict == "IssuesFound"


def test_without_a_name_nothing_is_accused(make_store: MakeStore) -> None:
    store = make_store(names=NAMES, device_event=kernels((0, 40), (60, 100)), host_event=[frame("train.py(3): step", 0, 100)])
    (rule,) = judged(store).rules
    assert (rule.verdict, rule.reason) == (
        "NotEvaluated", "no range or function in this run is named as garbage collection or as a checkpoint",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gc", GARBAGE), ("gc.collect", GARBAGE), ("<built-in function collect>", GARBAGE), ("garbage_collect", GARBAGE),
        ("train.py(30): save_checkpoint", CHECKPOINT), ("torch/serialization.py(900): save", CHECKPOINT), ("dcp.save", CHECKPOINT),
        ("torch/utils/checkpoint.py(400): checkpoint", None), ("CheckpointFunction", None), ("aten::gcd", None), ("agc_norm", None),
        ("aten::_save_for_backward", None), ("collect", None),
    ],
)  # fmt: skip
def test_names_of_pauses(make_store: MakeStore, name: str, kind: str | None) -> None:
    store = make_store(names=NAMES, device_event=kernels((0, 40)), host_event=[frame(name, 0, 10)])
    assert host_pauses(store)["kind"].to_list() == ([] if kind is None else [kind])


def test_the_wait_of_the_other_ranks_is_predicted(make_store: MakeStore) -> None:
    # In the third step rank 0 of a data-parallel job collects garbage for 300 ms; the other rank waits for it.
    tables = pipeline_job(Shape(1, 2, noise=0.001), 1)
    begin = next(row["host_start_ns"] for row in tables["step"] if (row["process"], row["index"]) == (0, 3))
    late = 300 * MS
    for row in tables["device_event"]:
        waiting = row["process"] == 1 and row["start_ns"] < begin + late and row["name"].startswith("nccl") and row["start_ns"] > begin
        if row["start_ns"] >= begin and (row["process"] == 0 or row["name"] == "optimizer"):
            row["start_ns"] += late
        elif waiting:
            row["duration_ns"] += late
        elif row["start_ns"] > begin + 250 * MS:
            row["start_ns"] += late
    for row in tables["step"]:
        if row["index"] >= 3:
            shift = late if row["index"] > 3 else 0
            row["host_start_ns"] += shift
            row["device_start_ns"] += shift
            row["device_duration_ns"] += late - shift
            row["host_duration_ns"] += late - shift
    tables["host_event"] = [{"process": 0, "kind": "python", "name": "gc.collect", "start_ns": begin - 25_000, "duration_ns": late}]
    store = make_store(**tables)
    (finding,) = judged(store).findings
    # The idle time is 300 ms of two devices, 5.3% of their time; the loss of the other rank also counts.
    assert [found.rule for found in judged(store, threshold=8).findings] == ["HostPauses"]
    end = max(row["start_ns"] + row["duration_ns"] for row in tables["device_event"])
    assert finding.saving_kind == "predicted"
    assert finding.saving_percent == pytest.approx(100 * late / end, rel=0.1)
