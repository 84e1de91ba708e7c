"""Tests that a run has one report, whether torch.profiler traced it or the capture library recorded it: real traces as recordings.

Against the same trace with only the events that a recording has, all of the report is equal except the name of the file and its format.
Against the complete trace, all about devices is equal: operators, Python functions and the profiler's own overhead are not recorded.
Figures that need operators are left out.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kineto_to_prt import CALLS, DEVICE, RANGES, STEP, convert, document
from postrun.analysis import Options, analyze
from postrun.ingest import ingest

HOST = "unknown host"  # as a machine is called that no file names
TRACES = (
    "quirks/alexnet_no_steps",
    "quirks/event_sync_trace",
    "quirks/mi250_minitoy_train_ROCm6_2_kineto",
    "h100/Falconsai_nsfw_image_detection__1016002",
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005",
    "mi300/gaunernst_bert-small-uncased__1016001",
    "sampled_2_ranks",
)
# Names of the file, of its format and of facts that only a trace contains.
OF_THE_FILE = (
    "run.name",
    "run.framework",
    "run.metadata",
    "run.sources",
    "summary.subtitle",
    "summary.warnings",
    "data_quality",
    "processes",
)
# Sections and rules about devices, their launches and synchronization only.
OF_DEVICES = (
    "nodes",
    "devices",
    "time_breakdown",
    "kernels",
    "activity",
    "memory_operations",
    "launches",
    "idle",
)
DEVICE_RULES = (
    "ExposedCommunication", "PageableCopies", "ShortKernels", "StragglerRank", "LowGPUUtilization", "LoadBalancing",
    "SyncBound",
)  # fmt: skip


# Of no recording: which operator a call was made in, by which SyncBound lists calls; the shapes that operators were given; of AMD's
# copies, which host memory; sizes and groups of collectives, which `record_param_comms` has.
NOT_RECORDED = re.compile(r"details\.(calls|collectives)\b.*")
FORMATS = re.compile(r"annotations\.groups\[\d+\]\.formats\[\d+\]")
SITE = re.compile(r" Most of it is in `[^`]*`( \(`[^`]*`\))?\.")  # by operators and frames
SLOWED = " The profiler recorded Python frames, which slows the host and makes these times longer."
OF_OPERATORS = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs", "Sequence number", "Fwd thread id")
OF_KINETO = ("est. achieved occupancy %", "blocks per SM")  # of kernels
# Of kernels: known by the operator that launched them, or by Kineto's estimate. The equal report of the same events has them as well.
BY_OPERATOR = ("operator", "shape", "module", "category", "precision", "percent_of_roof", "occupancy_percent")
NEITHER = " (Host -> Device)"


def is_recorded(event: dict[str, Any]) -> bool:
    category = str(event.get("cat")).lower()
    return category in DEVICE | dict.fromkeys(CALLS | RANGES) or (
        category in {"cpu_op", "operator"} and bool(STEP.fullmatch(event["name"]))
    )


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every figure and text with its place."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        yield f"{path} (count)", len(value)
        for i, inner in enumerate(value):
            yield from flat(inner, f"{path}[{i}]")
    else:
        yield path, value


def differences(ours: Any, theirs: Any, *, complete: bool = False) -> dict[str, Any]:
    """Return what differs: (ours, theirs) by key; float sums depend on the row order."""
    actual, expected = dict(flat(ours)), dict(flat(theirs))
    differing = {}
    for key in actual.keys() | expected.keys():
        pair = actual.get(key, "absent"), expected.get(key, "absent")
        floats = all(isinstance(value, float) for value in pair)
        left_out = key.startswith(OF_THE_FILE) or FORMATS.fullmatch(key) or (complete and NOT_RECORDED.fullmatch(key))
        if not left_out and not (math.isclose(*pair, rel_tol=1e-12) if floats else pair[0] == pair[1]):
            differing[key] = pair
    return differing


def report(files: list[Path]) -> dict[str, Any]:
    with ingest(files) as store:
        return dataclasses.asdict(analyze(store, Options(generated_at_ns=0)))


@pytest.fixture(scope="module", params=TRACES)
def traces(request: pytest.FixtureRequest, shared_data: Path) -> list[Path]:
    path = shared_data / "kineto" / request.param
    return sorted(path.glob("*.json.gz")) if path.is_dir() else [path.with_name(f"{path.name}.json.gz")]


def recorded(traces: list[Path], folder: Path) -> dict[str, Any]:
    for number, trace in enumerate(traces):
        (folder / f"{number}.prt").write_bytes(convert(document(trace), host=document(trace).get("host_name", HOST), seed=number))
    return report(sorted(folder.glob("*.prt")))


@pytest.fixture(scope="module")
def ours(traces: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    for trace in traces:
        if not trace.is_file():
            pytest.skip(f"no real trace: {trace} is no file")
    return recorded(traces, tmp_path_factory.mktemp("recorded"))


def test_all_of_the_report_is_equal(traces: list[Path], ours: dict[str, Any], tmp_path: Path) -> None:
    for trace in traces:
        part = document(trace)
        part["traceEvents"] = [one for one in part["traceEvents"] if one.get("ph") == "X" and is_recorded(one)]
        for event in part["traceEvents"]:
            event["args"] = {key: value for key, value in event.get("args", {}).items() if key not in OF_OPERATORS + OF_KINETO}
        text = json.dumps(part, default=lambda number: f"<{number}>").replace(NEITHER, "")
        (tmp_path / trace.name.removesuffix(".gz")).write_text(re.sub(r'"<([0-9.E+-]+)>"', r"\1", text))  # numbers as they are
    assert differences(ours, report(sorted(tmp_path.iterdir()))) == {}
    assert len(dict(flat(ours))) > 1000


def test_what_is_told_of_devices_is_equal_to_the_whole_trace(traces: list[Path], ours: dict[str, Any]) -> None:
    theirs = report(traces)
    for full_report in (ours, theirs):
        full_report["kernels"] = [
            {key: value for key, value in kernel.items() if key not in BY_OPERATOR} for kernel in full_report["kernels"]
        ]
    for section in OF_DEVICES:
        assert differences(ours[section], theirs[section]) == {}, section
    steps = [{key: value for key, value in run["steps"].items() if key not in {"parts"}} for run in (ours, theirs)]
    assert differences(*steps) == {}
    rules = [{rule["rule"]: rule for rule in one["rules"] if rule["rule"] in DEVICE_RULES} for one in (ours, theirs)]
    assert rules[0].keys() == rules[1].keys()
    for name, rule in rules[1].items():
        rule["finding"] = rule["finding"] and SITE.sub("", rule["finding"]).replace(SLOWED, "")  # a recording has no frames
        if name == "ExposedCommunication":  # its advice names the collectives by their operators
            assert bool(rule.pop("recommendation")) == bool(rules[0][name].pop("recommendation"))
        if name == "StragglerRank" and "process group" in (rules[0][name]["capture"] or ""):  # only operators name the groups
            assert rules[0][name]["verdict"] == "NotEvaluated"
            continue
        assert differences(rules[0][name], rule, complete=True) == {}, name
    assert len(rules[0]) == len(DEVICE_RULES)
