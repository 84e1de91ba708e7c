"""HostPreprocessing: the work of a loader in the training process by line and by operator, worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from judging import Judged, rules_of
from postrun.analysis import Options
from postrun.analysis.rules.engine.selection import select
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
MS = 1_000_000
NEXT = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def judged(store: Store, **settings: float) -> Judged:
    chosen = {f"HostPreprocessing_{name}": value for name, value in settings.items()}
    return rules_of(store, Options(generated_at_ns=0, selection=select(["HostPreprocessing"], settings=chosen)))


def event(kind: str, name: str, start: int, end: int, tid: int = 1) -> dict[str, Any]:
    return {"kind": kind, "name": name, "tid": tid, "start_ns": start * MS, "duration_ns": (end - start) * MS}


DEVICE = [event("kernel", "forward", 0, 40), event("kernel", "forward", 80, 100)]
for row in DEVICE:
    del row["tid"]
STACKS = [
    event("loader", NEXT, 30, 80),
    event("python", "torch/utils/data/dataloader.py(700): __next__", 31, 80),
    event("python", "data.py(12): __getitem__", 32, 72),
    event("python", "PIL/Image.py(900): resize", 33, 63),
    event("operator", "aten::div", 64, 70),
    event("python", "data.py(30): collate", 73, 79),
    event("operator", "aten::stack", 74, 78),
    event("operator", "aten::cat", 75, 77),
]


def test_the_innermost_line_of_the_program_gets_the_time(make_store: MakeStore) -> None:
    # The device has no work from 40 to 80, all of it within the loader's call of 50 ms. Lines: 40 ms (80%) and 6 ms (12%) of it.
    result = judged(make_store(device_event=DEVICE, host_event=STACKS))
    (rule,), (finding,) = result.rules, result.findings
    assert (rule.verdict, rule.triggered, rule.datapoints) == ("IssuesFound", 1, 2)
    assert rule.finding == (
        "Devices have no work for 40.0 ms while their processes load data, 40.0% of the GPU time in the profile window (threshold 5%)."
        " `data.py(12): __getitem__` takes 40.0 ms in 1 call, 80.0% of the loading. The profiler recorded Python"
        " frames, which slows the host and makes these times longer."
    )
    details = plain_details(rule)
    assert [(row["what"], row["line"], row["calls"], row["time_ns"], row["percent"]) for row in details["rows"]] == [
        ("data.py(12): __getitem__", True, 1, 40 * MS, 80.0), ("data.py(30): collate", True, 1, 6 * MS, 12.0),
    ]  # fmt: skip
    assert (details["loading_ns"], details["known_percent"], details["waited_ns"]) == (50 * MS, 92.0, 40 * MS)
    # Of the 40 ms without work, 80% are due to the line.
    assert (finding.cost_ns, finding.saving_ns, finding.saving_kind) == (32 * MS, 32 * MS, "upper_bound")
    assert "`data.py(12): __getitem__`" in (rule.recommendation or "")
    assert judged(make_store(device_event=DEVICE, host_event=STACKS), threshold=40).rules[0].verdict == "NoIssuesFound"


def test_without_stacks_the_outermost_operator_gets_the_time(make_store: MakeStore) -> None:
    rows = [
        event("loader", NEXT, 40, 80), event("operator", "aten::to", 41, 61), event("operator", "aten::copy_", 42, 60),
        event("operator", "aten::stack", 62, 66), event("operator", "aten::cat", 63, 65),
        event("operator", "aten::to", 5, 10), event("operator", "aten::to", 42, 79, tid=2),
    ]  # fmt: skip
    (rule,) = judged(make_store(device_event=DEVICE, host_event=rows)).rules
    assert [(row["what"], row["line"], row["time_ns"]) for row in plain_details(rule)["rows"]] == [
        ("aten::to", False, 20 * MS), ("aten::stack", False, 4 * MS),
    ]  # fmt: skip
    assert "The operator `aten::to` takes 20.0 ms in 1 call, 50.0% of the loading." in (rule.finding or "")


@pytest.mark.parametrize(
    ("inside", "reason"),
    [
        ([], "the trace shows the waits for data, and nothing of what prepares it"),
        ([event("operator", "aten::empty", 41, 42)],
         "the trace shows 2.5% of what ran in the loader, and no line or operator takes 20% of it"),
    ],
)  # fmt: skip
def test_a_wait_for_loader_processes_accuses_nothing(make_store: MakeStore, inside: list[dict[str, Any]], reason: str) -> None:
    (rule,) = judged(make_store(device_event=DEVICE, host_event=[event("loader", NEXT, 40, 80), *inside])).rules
    assert (rule.verdict, rule.reason) == ("NotEvaluated", reason)
    assert "--stacks" in (rule.capture or "")


def test_without_a_device_the_steps_wait(make_store: MakeStore) -> None:
    # Two steps of 100 ms, half of each in the loader; its line takes 80% of that.
    steps = [{"node": 0, "process": 0, "index": n, "host_start_ns": n * 100 * MS, "host_duration_ns": 100 * MS} for n in range(2)]
    rows = [event(kind, name, start + n, end + n) for n in (0, 100) for kind, name, start, end in (
        ("loader", NEXT, 0, 50), ("python", "data.py(12): __getitem__", 5, 45),
    )]  # fmt: skip
    (rule,), (finding,) = (lambda all: (all.rules, all.findings))(judged(make_store(step=steps, host_event=rows)))
    assert (rule.finding or "").startswith("Steps wait for 100 ms while their processes load data, 50.0% of the time of the steps")
    assert (finding.cost_ns, finding.base) == (80 * MS, "time of the steps")
