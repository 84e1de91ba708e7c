"""The report of a run without a GPU is right to the number; `postrun demo` records and reports such a run.

``data/small_training`` is a recording of :mod:`postrun.commands.example_training`, made with `postrun record`. The tests
compute its figures from the rows of a second reader (helpers/prt_reader.py).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from postrun import native
from postrun.analysis import Options, analyze
from postrun.analysis.report import Report
from postrun.analysis.rules.engine.selection import select
from postrun.api import IngestOptions, OutputOptions
from postrun.commands import demo as demo_recording
from postrun.commands.demo import NotRecordedError, record_example
from postrun.commands.example_training import STALL_S, STALLED_STEP, STEPS
from postrun.commands.report import ReportPlan
from postrun.ingest import ingest
from prt_reader import read
from rule_details import plain_details

pytestmark = pytest.mark.skipif(not native.available(), reason="recordings are read and made by the C library, which was not built")

FOLDER = Path(__file__).parent.parent / "data" / "small_training"
GOLDEN = FOLDER / "report.json"
PARTS = ("data loading", "forward", "backward", "optimizer")
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def tables() -> dict[str, Rows]:
    """The rows of both files, those of the recorder and those of the training."""
    pair: dict[str, Rows] = {}
    for file in sorted((FOLDER / "run").glob("*.prt")):
        for table, rows in read(file.read_bytes()).items():
            pair.setdefault(table, []).extend(rows)
    return pair


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    before = Path.cwd()
    os.chdir(FOLDER)  # the report names the files as they were given
    try:
        with ingest(["run"]) as store:
            return analyze(store, Options(generated_at_ns=0))
    finally:
        os.chdir(before)


def ranges(tables: dict[str, Rows], name: str) -> Rows:
    return sorted((row for row in tables["annotation"] if row["name"] == name), key=lambda row: row["start_ns"])


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-6, abs=3)


def test_steps(report: Report, tables: dict[str, Rows]) -> None:
    steps = ranges(tables, "step")
    lengths = [float(row["duration_ns"]) for row in steps]
    [group] = report.steps.groups
    assert [row["value"] for row in steps] == list(range(STEPS)) == [step.index for step in report.steps.steps]
    assert [step.duration_ns for step in report.steps.steps] == [near(length) for length in lengths]
    assert (group.quantiles.count, group.on_device) == (STEPS, False)
    assert group.quantiles.p50 == near(statistics.median(lengths))
    assert group.quantiles.mean == near(statistics.fmean(lengths))
    assert group.quantiles.std == near(statistics.pstdev(lengths))
    assert lengths.index(max(lengths)) == STALLED_STEP == group.slowest[0].index
    assert max(lengths) > STALL_S * 1e9


def test_parts_of_the_average_step(report: Report, tables: dict[str, Rows]) -> None:
    steps = ranges(tables, "step")
    complete = float(
        steps[-1]["start_ns"] + steps[-1]["duration_ns"] - steps[0]["start_ns"]
    )  # a step reaches from the end of the one before
    sums = {name: float(sum(row["duration_ns"] for row in ranges(tables, name))) for name in PARTS}
    [parts] = report.steps.parts
    assert parts.annotated
    assert list(parts.mean_ns) == ["data_loader", "forward", "backward", "optimizer", "other"]
    assert parts.mean_step_ns == near(complete / STEPS)
    for key, name in zip(parts.mean_ns, PARTS, strict=False):
        assert parts.mean_ns[key] == near(sums[name] / STEPS)
    assert parts.mean_ns["other"] == pytest.approx((complete - sum(sums.values())) / STEPS, rel=1e-4)
    share = 100 * sums["data loading"] / complete
    tile = next(tile for tile in report.summary.tiles if tile.key == "data_loading")
    assert tile.number == near(share)
    assert "The largest avoidable loss is waiting for data (up to " in report.summary.headline


def test_goodput(report: Report, tables: dict[str, Rows]) -> None:
    goodput, job = report.goodput, report.job_statistics
    assert goodput is not None
    assert job.started_at_ns is not None
    assert job.ended_at_ns is not None
    # A step reaches from the end of the one before, and loads data within its range.
    starts = [row["start_ns"] for row in ranges(tables, "step")]
    ends = [row["start_ns"] + row["duration_ns"] for row in ranges(tables, "step")]
    loads = [row["duration_ns"] for row in ranges(tables, "data loading")]
    works = [end - start - load for start, end, load in zip([starts[0], *ends[:-1]], ends, loads, strict=True)]
    low, median, high = statistics.quantiles(works, n=4, method="inclusive")
    slow = [work for work in works if work > high + 1.5 * (high - low)]
    times = {part.name: part.time_ns for part in goodput.parts}
    assert sum(time or 0 for time in times.values()) == goodput.wall_ns == job.ended_at_ns - job.started_at_ns
    expected = {
        "initialization": starts[0] - job.started_at_ns, "productive": sum(works) - sum(slow) + len(slow) * median,
        "slow_excess": sum(slow) - len(slow) * median, "data_wait": sum(loads), "checkpoint": None, "evaluation": None, "lost_steps": 0,
        "restart_gap": 0, "between_steps": 0, "tail": job.ended_at_ns - ends[-1], "not_recorded": 0,
    }  # fmt: skip
    assert times == {name: None if time is None else pytest.approx(float(time), abs=STEPS) for name, time in expected.items()}
    assert goodput.percent == pytest.approx(100 * (times["productive"] or 0) / goodput.wall_ns)


def test_the_planted_step_is_named_with_its_cause(report: Report, tables: dict[str, Rows]) -> None:
    lengths = [float(row["duration_ns"]) for row in ranges(tables, "step")]
    limit = statistics.fmean(lengths) + 5 * statistics.pstdev(lengths)
    [rule] = [rule for rule in report.rules if rule.rule == "StepOutlier"]
    assert rule.violations == sum(length > limit for length in lengths) >= 1
    slow = plain_details(rule)["slowest"][0]
    typical = sorted(range(STEPS), key=lambda i: lengths[i])[(STEPS - 1) // 2]
    loading = ranges(tables, "data loading")
    extra = float(loading[STALLED_STEP]["duration_ns"] - loading[typical]["duration_ns"])
    assert (slow["index"], slow["active"][0]["name"]) == (STALLED_STEP, "data loading")
    assert slow["active"][0]["extra_ns"] == near(extra)
    assert (rule.finding or "").endswith(
        f"The longest, step {STALLED_STEP}, took {max(lengths) / 1e6:.0f} ms: data loading in it took {extra / 1e6:.0f} ms longer than in a"
        " typical step."
    )
    tile = next(tile for tile in report.summary.tiles if tile.key == "longest_step")
    assert tile.number == near(max(lengths))
    assert tile.detail == f"step {STALLED_STEP}, {max(lengths) / statistics.median(lengths):.1f} times the median"


def test_counters(report: Report, tables: dict[str, Rows]) -> None:
    assert [series.name for series in report.counters] == ["accuracy", "loss"]
    for series in report.counters:
        rows = sorted((row for row in tables["counter"] if row["name"] == series.name), key=lambda row: row["time_ns"])
        values = [row["value"] for row in rows]
        assert (series.values, series.not_finite, series.first, series.last) == (STEPS, 0, values[0], values[-1])
        assert (series.min, series.max, list(series.mean)) == (min(values), max(values), values)
        assert list(series.low) == list(series.high) == values
        assert [time - int(rows[0]["time_ns"]) for time in series.time_ns] == [
            near(float(row["time_ns"] - rows[0]["time_ns"])) for row in rows
        ]
    assert report.counters[1].last is not None
    assert report.counters[1].last < 0.1 < 2 < (report.counters[1].first or 0)  # it learns


def test_figures_of_the_machine(report: Report, tables: dict[str, Rows]) -> None:
    cores: dict[Any, list[float]] = {}
    for row in tables["metric"]:
        if row["metric"] == "cpu_utilization" and row["unit"] is not None and row["unit"] >= 0:
            cores.setdefault(row["time_ns"], []).append(row["value"])
    assert [tile.key for tile in report.summary.tiles] == ["cpu_utilization", "step_time", "data_loading", "longest_step"]
    tiles = {tile.key: tile for tile in report.summary.figures}
    assert tiles["cpu_utilization"].number == pytest.approx(statistics.fmean(map(statistics.fmean, cores.values())))
    assert tiles["main_memory"].number == max(row["value"] for row in tables["metric"] if row["metric"] == "memory_used_percent")
    metrics = {series.metric: len(series.time_ns) for series in report.system_usage.series}
    assert set(metrics) == {"cpu", "io_wait", "cpu_memory", "network", "disk_read", "disk_write"}
    assert metrics["cpu"] == len(cores)


def test_what_was_run(report: Report) -> None:
    assert (report.run.name, report.run.status) == ("small training", "completed")
    assert report.run.hyperparameters == {"batch_size": "512", "learning_rate": "0.05"}
    assert report.run.metadata["job.command"] == "python -m postrun.example_training"  # its module then
    assert not any(key.startswith("clock") for key in report.run.metadata)
    assert len(report.processes) == 1  # the recorder is none


def test_the_report_is_as_it_was(report: Report) -> None:
    """The report equals the stored one.

    After an intended change: POSTRUN_UPDATE_GOLDEN=1 python -m pytest tests/commands/test_recorded_training.py, and review it.
    """
    report_json = report.to_dict()
    report_json["generator"] = None  # versions
    for series in report_json["system_usage"]["series"] + report_json["system_usage"]["heat"]:
        series.update(time_ns=len(series["time_ns"]), values=None, mean=None, low=None, high=None)
    for series in report_json["counters"]:
        series.update(time_ns=len(series["time_ns"]), mean=None, low=None, high=None)
    report_json["job_strip"].update(time_ns=len(report_json["job_strip"]["time_ns"]), utilization=None)
    report_json["steps"]["steps"] = report_json["steps"]["steps"][:3]
    text = json.dumps(_rounded(report_json), ensure_ascii=False, indent=1) + "\n"
    if os.environ.get("POSTRUN_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


# -- the demo ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_demo_records_and_reports_a_training(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POSTRUN_")}
    command = [sys.executable, "-P", "-m", "postrun", "demo", "-o", "demo", "--format", "html,json", "--name", "mine"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    simulated, recorded = (json.loads((tmp_path / "demo" / place / "report.json").read_bytes()) for place in (".", "recorded"))
    assert (simulated["run"]["name"], recorded["run"]["name"]) == ("mine", demo_recording.NAME)
    assert simulated["run"]["labels"] == {"simulated": "true"}
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    sample = readme.partition("$ postrun report traces/ -o report\n")[2].partition("report/report.html\n")[0]
    assert done.stdout.startswith(sample), "what the README shows is what the simulated run says"
    assert sample.count("\n") == 5
    for line in ("demo/report.html", "demo/recorded/report.json"):
        assert line in done.stdout.splitlines()
    assert recorded["run"]["status"] == "completed"
    assert [step["index"] for step in recorded["steps"]["steps"]] == list(range(STEPS))
    slow = recorded["steps"]["steps"][STALLED_STEP]
    assert slow["duration_ns"] >= STALL_S * 1e9
    assert list(recorded["steps"]["parts"][0]["mean_ns"]) == ["data_loader", "forward", "backward", "optimizer", "other"]
    assert {series["name"]: series["values"] for series in recorded["counters"]} == {"accuracy": STEPS, "loss": STEPS}
    assert {series["metric"] for series in recorded["system_usage"]["series"]} >= {"cpu", "cpu_memory"}
    assert recorded["run"]["hyperparameters"]["batch_size"] == "512"
    page = (tmp_path / "demo" / "recorded" / "report.html").read_text(encoding="utf-8")
    assert 'id="annotations-counter-1"' in page
    assert "Longest step" in page


def test_an_earlier_demo_is_replaced_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_recording, "_LIMIT_S", 0.0)  # the recording itself is not the point
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(NotRecordedError, match="is not of an earlier demo; choose another folder"):
        record_example(tmp_path / "mine", seed=1)
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"
    for _ in range(2):
        with pytest.raises(NotRecordedError, match="had not ended after 0 s"):
            record_example(tmp_path / "demo", seed=1)
        (tmp_path / "demo" / "old.prt").touch()
    with pytest.raises(NotRecordedError, match="had not ended"):
        record_example(tmp_path / "demo", seed=1)
    assert not (tmp_path / "demo" / "old.prt").exists()


def test_what_keeps_it_from_recording_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(native, "_native", None)
    plan = ReportPlan(OutputOptions(tmp_path, ("json",)), select(), Options(), IngestOptions())
    demo_recording._report_recorded(plan, 1, quiet=False, verbose=False)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no training was recorded on this machine: recording needs the C library" in captured.err
    demo_recording._report_recorded(plan, 1, quiet=True, verbose=False)
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "recorded").exists()


def test_a_training_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such luck >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(NotRecordedError, match=r"the small training failed \(no such luck\)"):
        record_example(tmp_path / "run", seed=1)
