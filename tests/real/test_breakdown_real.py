"""Reports of real traces: device time equals a slow plain-Python reference and published figures, and no advice contradicts a figure."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from contradictions import contradictions
from postrun.analysis import Options, analyze
from postrun.analysis.report import Report
from postrun.analysis.report.schema import schema
from postrun.ingest import ingest

AT_NOON = Options(generated_at_ns=1_795_262_400_000_000_000)

FIGURES = (
    "events", "span_ns", "busy_ns", "idle_ns", "computation_ns", "communication_ns", "exposed_communication_ns", "memory_ns",
    "exposed_memory_ns",
)  # fmt: skip
TRACES = (
    "h100/Falconsai_nsfw_image_detection__1016002.json.gz",
    "h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "v100_ddp/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "v100_old_schema/resnet50_num_workers_0.json.gz",
    "diff_pair/a100_rank3_of_8.json.gz",
    "diff_pair/v100_rank1_of_2.json.gz",
    "quirks/alexnet_no_steps.json.gz",
    "quirks/distributed_info_not_found.json.gz",
    "quirks/event_sync_trace.json.gz",
    "quirks/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "quirks/nccl_data.json.gz",
    "quirks/rank_non_gpu.json.gz",
    "sampled_2_ranks/sampled_rank-0.json.gz",
    "sampled_2_ranks/sampled_rank-1.json.gz",
)


@pytest.fixture(scope="module")
def kineto(shared_data: Path) -> Path:
    folder = shared_data / "kineto"
    if not (folder / "expected.json").is_file():
        pytest.skip(f"no reference figures: {folder / 'expected.json'} is no file")
    return folder


@pytest.fixture(scope="module")
def expected(kineto: Path) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((kineto / "expected.json").read_text(encoding="utf-8"))
    return figures


@pytest.fixture(params=TRACES)
def trace(request: pytest.FixtureRequest, kineto: Path, report_of: Callable[[Path], Report]) -> tuple[str, Report]:
    return request.param, report_of(kineto / request.param)


def test_every_reference_figure_has_a_test(expected: dict[str, Any]) -> None:
    assert set(expected) == set(TRACES)


def test_device_time_is_equal_to_the_nanosecond(trace: tuple[str, Report], expected: dict[str, Any]) -> None:
    name, report = trace
    assert [str(device.device) for device in report.time_breakdown] == sorted(expected[name], key=int)
    for device in report.time_breakdown:
        reference = expected[name][str(device.device)]
        assert {figure: getattr(device, figure) for figure in FIGURES} == {figure: reference[figure] for figure in FIGURES}
        assert device.kernel_total_ns == reference["kernel_total_ns"]
        parts = device.computation_ns + device.exposed_communication_ns + device.exposed_memory_ns + device.idle_ns
        assert parts == device.span_ns


def test_kernels_are_equal(trace: tuple[str, Report], expected: dict[str, Any]) -> None:
    name, report = trace
    references = list(expected[name].values())
    assert sum(kernel.count for kernel in report.kernels) == sum(r["kernel_count"] for r in references)
    assert sum(kernel.total_ns for kernel in report.kernels) == sum(r["kernel_total_ns"] for r in references)
    if len(references) == 1:
        top = [{"name": kernel.name[:120], "count": kernel.count, "total_ns": kernel.total_ns} for kernel in report.kernels[:5]]
        assert top == references[0]["top_kernels"]
        assert len(report.kernels) == references[0]["kernel_names"]
    for shares in (report.precision.shares, report.categories):
        assert sum(share.total_ns for share in shares) == sum(r["kernel_total_ns"] for r in references)


def test_memory_operations_are_equal(trace: tuple[str, Report], expected: dict[str, Any]) -> None:
    name, report = trace
    wanted: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for reference in expected[name].values():
        for kind, figures in reference["memory_operations"].items():
            for i, figure in enumerate(("count", "total_ns", "bytes")):
                wanted[kind][i] += figures[figure]
    actual: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for operation in report.memory_operations:
        for i, value in enumerate((operation.count, operation.total_ns, operation.total_bytes or 0)):
            actual[operation.kind][i] += value
    assert actual == wanted


def test_other_sections_agree_with_the_breakdown(trace: tuple[str, Report]) -> None:
    _, report = trace
    by_activity = {share.name: share for share in report.activity.shares}
    assert sum(share.count for kind, share in by_activity.items() if kind != "sync") == sum(d.events for d in report.time_breakdown)
    assert "kernel" not in by_activity or by_activity["kernel"].total_ns == sum(d.kernel_total_ns for d in report.time_breakdown)
    launches = report.launches
    assert launches.pairs + launches.graph_runs + launches.runs_without_launch == sum(d.events for d in report.time_breakdown)
    assert launches.pairs == launches.negative + (launches.latency.count if launches.latency else 0)
    for device in report.time_breakdown:
        gaps = [i for i in report.idle if (i.rank, i.device) == (device.rank, device.device)]
        assert all(gap.host_wait_ns + gap.kernel_wait_ns + gap.other_ns <= device.span_ns for gap in gaps)


def test_no_advice_contradicts_a_figure(trace: tuple[str, Report]) -> None:
    _, report = trace
    assert list(contradictions(report)) == []


def test_the_report_validates(trace: tuple[str, Report]) -> None:
    _, report = trace
    jsonschema.validate(json.loads(report.to_json()), schema())


@pytest.mark.parametrize("names", [("diff_pair/a100_rank3_of_8",), ("quirks/nccl_data", "quirks/alexnet_no_steps")])
def test_the_report_is_the_same_again_and_from_another_store(kineto: Path, names: tuple[str, ...]) -> None:
    reports = []
    for analyses in (2, 1):
        with ingest([kineto / f"{name}.json.gz" for name in names]) as store:
            reports += [analyze(store, AT_NOON).to_json() for _ in range(analyses)]
    assert reports[0] == reports[1] == reports[2]


@pytest.mark.parametrize("trace", [trace for trace in TRACES if trace.startswith(("h100", "mi300"))], indirect=True)
def test_linked_busy_time_is_what_another_tool_published(trace: tuple[str, Report], kineto: Path) -> None:
    """The published tables count only events with a launch, in float64 microseconds."""
    name, report = trace
    with (kineto / name.replace(".json.gz", ".gpu_timeline.csv")).open(encoding="utf-8", newline="") as text:
        published = {row["type"]: float(row["time ms"]) * 1_000_000 for row in csv.DictReader(text)}
    (device,) = report.time_breakdown
    assert device.linked_busy_ns == pytest.approx(published["busy_time"], abs=20)
