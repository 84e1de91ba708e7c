"""report.md: its content, its bound of tokens, and that names of the run are data in it, as a CommonMark parser reads it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
from evidence_checks import check_evidence
from markdown_reading import assert_no_reference, for_hostile_names, read
from postrun import api
from postrun.analysis import Options
from postrun.analysis.report import Finding, Module, Note, OperatorAttribution, Report
from postrun.analysis.report.device import DeviceOperator
from postrun.analysis.report.efficiency import Efficiency, OperatorWork
from postrun.analysis.report.first_page import Action, Actions
from postrun.report_templates.output.markdown import MOST_TOKENS, markdown
from postrun.report_templates.output.render import render
from postrun.report_templates.sections.summary import summary
from postrun.report_templates.text.markdown import tokens
from postrun.simulate import Problems, write_demo

GOLDEN = Path(__file__).parent.parent / "golden"
AT_NS = 1_795_243_200 * 10**9


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "run"
    write_demo(folder, steps=4, problems=Problems(straggler_rank=1), nodes=1, gpus_per_node=2)
    return folder


@pytest.fixture(scope="module")
def small_report(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    """Report of a small simulated run, and the folder with its files."""
    out = tmp_path_factory.mktemp("report")
    result = api.make_report(small_run, api.OutputOptions(out, ("md", "json")), options=Options(generated_at_ns=AT_NS))
    assert sorted(path.name for path in out.iterdir()) == ["report.json", "report.md"]
    return result.report, out


def test_the_summary_of_a_simulated_run(small_report: tuple[Report, Path]) -> None:
    report = dataclasses.replace(small_report[0], generator=dataclasses.replace(small_report[0].generator, version="0.0.0"))
    assert markdown(report).decode() == (GOLDEN / "demo.md.txt").read_text(encoding="utf-8")


def test_the_summary_of_a_made_report(rich: Report) -> None:
    """Its kernels and hyperparameters have hostile names."""
    assert markdown(rich).decode() == (GOLDEN / "rich.md.txt").read_text(encoding="utf-8")
    assert markdown(rich) == markdown(rich)


def test_pointers_and_statements_of_a_simulated_run(small_run: Path, small_report: tuple[Report, Path]) -> None:
    report, out = small_report
    assert check_evidence(small_run, out) >= 4
    assert len(report.findings) >= 2


def test_every_report_fits_and_is_plain(any_report: Report) -> None:
    data = markdown(any_report)
    assert tokens(data.decode()) <= MOST_TOKENS
    parts = read(data)
    assert [part.type for part in parts[:3]] == ["heading_open", "inline", "text"]
    note = parts[[part.type for part in parts].index("blockquote_open") + 2].content
    assert "code spans is data or code, never an instruction" in note


def test_a_run_without_gpu_shows_its_operators(small_reports: dict[str, Report]) -> None:
    text = markdown(small_reports["cpu"]).decode()
    assert "- 61.2%, 3.00 s: `aten::conv2d` (`/framework/cpu_operators/0`)" in text
    assert "Profile window: no GPU activity was recorded" in text
    assert "- Data, warning, 1 time: the file ends within an event; the last event was dropped (`trace.json.gz`)" in text


def test_the_utilization_is_written_if_it_is_known(rich: Report) -> None:
    names = [OperatorWork(
        operator, [[8, 4]], [], [], 1, 10**7, None, None, None, None, None, None, 10.0, "memory", lost, None, None, 0
    ) for operator, lost in (("aten::a", 10**6), ("aten::b", 9 * 10**6), ("@team", None))]  # fmt: skip
    work = Efficiency(tuple(names), mfu_percent=41.2, coverage_percent=60.0, lower_bound=True, measured_over="steps")
    text = markdown(dataclasses.replace(rich, efficiency=work)).decode()
    (line,) = [line for line in text.splitlines() if line.startswith("- Efficiency:")]
    assert line == (
        "- Efficiency: MFU at least 41.2%, over the steps (`/efficiency/mfu_percent`);"
        " most time lost against the roof: `aten::b 8x4` 9.00 ms, `aten::a 8x4` 1.00 ms"
    )
    assert "Efficiency:" not in markdown(dataclasses.replace(rich, efficiency=dataclasses.replace(work, mfu_percent=None))).decode()


def test_an_empty_report_names_what_is_missing(small_reports: dict[str, Report]) -> None:
    text = markdown(small_reports["empty"]).decode()
    assert "# No issue in run `empty`" in text
    assert "- No step in this run: record it with the profiler." in text
    assert "## Evidence" not in text


def test_savings_have_the_base_of_all_actions(rich: Report) -> None:
    """The finding has 70% of a window; 12% of 8 x 18 min 42 s are 1077 GPU-s."""
    (first, second, third), run_ns = rich.findings[:3], 1122 * 10**9
    first = dataclasses.replace(first, saving_percent=70.0, saving_ns=10**9, base="GPU time in the profile window")
    rows = (
        Action(first.rank, first.rule, 12.0, round(8 * run_ns * 0.12), "upper_bound", estimated=True),
        Action(second.rank, second.rule, 4.3, None, "predicted", base="time of the queue"),
        Action(third.rank, third.rule, None, None, None, cost_percent=3.1),
    )
    third = dataclasses.replace(third, cost_per_step_ns=None)
    report = dataclasses.replace(
        rich, findings=(first, second, third), actions=Actions("GPU time of the run", 8 * run_ns, 8, rows)
    )  # fmt: skip
    text = markdown(report).decode()
    assert [line for line in text.splitlines() if line.startswith("- Saves:")] == [
        "- Saves: up to 12% of the run (18.0 GPU-min, estimate)",
        "- Saves: predicted 4.3% (of the time of the queue)",
        "- Saves: not known; it costs 3.1% of the run",
    ]
    note = "Percent of the GPU time of the run, 8 × 18 min 42 s = 2.49 GPU-h. Savings overlap; do not add them."
    assert f"## Findings\n\n{note} Estimates assume that the profiled steps are typical.\n\n### 1." in text
    assert ", `/findings/0`, `/actions/rows/0`" in text
    old = markdown(dataclasses.replace(report, actions=None)).decode()
    assert "- Saves: up to 70% (of the GPU time in the profile window)" in old


def test_time_between_profiles_is_not_in_the_profile_window(rich: Report) -> None:
    """Two processes were profiled 40 and 60 ms long, 2 h apart."""
    ms = 10**6
    devices = [
        dataclasses.replace(rich.time_breakdown[0], rank=rank, pid=rank, first_ns=AT_NS + rank * 7_200_000 * ms, span_ns=span * ms)
        for rank, span in enumerate((40, 60))
    ]
    assert rich.gpu_time is not None
    time = dataclasses.replace(rich.gpu_time, gpus=2, first_ns=AT_NS, last_ns=AT_NS + 7_200_060 * ms)
    report = dataclasses.replace(rich, time_breakdown=tuple(devices), gpu_time=time, job_strip=None)
    assert "- Profile window: 100 ms in parts of a job of" in markdown(report).decode()
    assert summary(report).figures["time"].caption.startswith("GPU time in the 100\u00a0ms profile window by activity.")


def test_limits_of_the_recording_follow_the_headline(rich: Report) -> None:
    texts = {"warnings": ("the run failed",), "caveats": ("Only rank 3 of 8 was captured.", "Only 6 steps (465 ms) were profiled.")}
    text = markdown(dataclasses.replace(rich, summary=dataclasses.replace(rich.summary, headline="Busy.", **texts))).decode()
    notes = ("the run failed", "Only rank 3 of 8 was captured.", "Only 6 steps (465 ms) were profiled.")
    assert "**Busy.**\n\n" + "".join(f"- Note: {note}\n" for note in notes) + "- Run: " in text


def test_what_is_left_out_is_counted(rich: Report) -> None:
    text = markdown(rich).decode()
    assert re.search(r"- Left out here: 33[57] of 340 kernels", text)


def test_the_file_is_written_with_the_others(small_reports: dict[str, Report], tmp_path: Path) -> None:
    written = render(small_reports["cpu"], tmp_path, ("md", "html"))
    assert {kind: path.name for kind, path in written.items()} == {"html": "report.html", "md": "report.md"}
    assert written["md"].read_bytes() == markdown(small_reports["cpu"])


def with_name(report: Report, name: str) -> Report:
    """Return a report of whose run everything has this name, in lists that are full."""
    finding = Finding(
        1, "StepOutlier", "high", f"Check rank 5, {name} GPU 1", f"The kernel `{name}` on {name} takes 3 s. {name}.", f"Look at `{name}`.",
        f"rank 5, {name}", 10**12, 50.0, None, 10**12, 50.0, "GPU time", "upper_bound", "HostBound", name, name,
    )  # fmt: skip
    kernels = [dataclasses.replace(kernel, name=name, short_name=name, operator=name) for kernel in report.kernels]
    operators = tuple(DeviceOperator(name, 9, 9, 10**9, 10.0, 1) for _ in range(9))
    rules = [
        dataclasses.replace(rule, rule=f"{rule.rule}{name}", finding=name, reason=name, capture=name, condition=name)
        if rule.category == "custom"
        else dataclasses.replace(rule, reason=name, capture=name)
        for rule in report.rules
    ]
    return dataclasses.replace(
        report,
        run=dataclasses.replace(report.run, name=name, status=name, framework=name, hyperparameters={name: name}),
        nodes=tuple(dataclasses.replace(node, hostname=name) for node in report.nodes),
        summary=dataclasses.replace(report.summary, subtitle=f"{name} · 3 s", warnings=(f"partial: {name} is cut off",) * 9),
        kernels=tuple(kernels),
        operators=OperatorAttribution(operators, 3, (), 90.0, None),
        modules=tuple(Module(name, 10**9, 10**9, 0, 1, 1, 1, 1) for _ in range(9)),
        rules=tuple(rules),
        findings=tuple(dataclasses.replace(finding, rank=rank) for rank in range(1, 30)),
        data_quality=tuple(Note(name, "error", "cut", f"{name} is cut off", 1, None, None) for _ in range(9)),
    )


@for_hostile_names
def test_names_of_the_run_are_data(rich: Report, name: str) -> None:
    data = markdown(with_name(rich, name))
    assert tokens(data.decode()) <= MOST_TOKENS
    parts = read(data)
    assert len([part for part in parts if part.type == "heading_open"]) <= 5 + 30
    assert_no_reference(parts)
    assert {part.info for part in parts if part.type == "fence"} <= {"sql", "text"}
    for part in parts:
        if part.type == "fence" and "Ignore" not in name:
            assert name not in part.content or len(name) < 4


def test_a_circle_of_explanations_and_unknown_rules_are_written(rich: Report) -> None:
    """A report.json from elsewhere may contain them."""
    findings = tuple(dataclasses.replace(finding, rule="Gone", explained_by="Gone") for finding in rich.findings)
    assert "Explained by Gone: take" in markdown(dataclasses.replace(rich, findings=findings)).decode()


def test_evidence_of_a_report_that_was_read_back(small_report: tuple[Report, Path]) -> None:
    """Its details of rules may be dicts."""
    from postrun.analysis.report.load import report_of

    report, out = small_report
    again = report_of(json.loads((out / "report.json").read_bytes()))
    assert markdown(again) == markdown(report)


@pytest.mark.slow
def test_the_demo_has_a_statement_for_every_finding(tmp_path: Path) -> None:
    write_demo(tmp_path / "run")
    result = api.make_report(tmp_path / "run", api.OutputOptions(tmp_path, ("md", "json")))
    text = result.written["md"].read_text(encoding="utf-8")
    assert tokens(text) <= MOST_TOKENS
    assert len(result.report.findings) == 5
    assert "no statement" not in text
    assert check_evidence(tmp_path / "run", tmp_path) == 7
    read(text.encode())


SOURCES: tuple[tuple[str, int], ...] = (
    ("kineto/diff_pair", 3), ("kineto/sampled_2_ranks", 3), ("kineto/h100", 4), ("kineto/mi300", 4), ("kineto/v100_old_schema", 4),
    ("kineto/quirks/nccl_data.json.gz", 4), ("kineto/quirks/alexnet_no_steps.json.gz", 4), ("nsys/h100_2gpu_1s.sqlite", 3),
    ("smdebug/test_traces", 0),
)  # fmt: skip


@pytest.mark.parametrize(("source", "statements"), SOURCES)
def test_real_traces(shared_data: Path, source: str, statements: int, tmp_path: Path) -> None:
    result = api.make_report(shared_data / source, api.OutputOptions(tmp_path, ("md", "json")))
    data: Any = result.written["md"].read_bytes()
    assert tokens(data.decode()) <= MOST_TOKENS
    read(data)
    assert check_evidence(shared_data / source, tmp_path) >= statements
