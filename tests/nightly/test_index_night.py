"""A real night finds the regression of one family, and nothing in the other family."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result
from postrun.cli import main
from postrun.simulate import Problems, job
from postrun.simulate.changes import Changes
from postrun.simulate.kineto_writer import write_trace
from postrun.simulate.training_run import simulate

pytestmark = pytest.mark.slow


def add(folder: Path, family: str, day: int, changes: Changes = Changes()) -> None:  # noqa: B008  (it is frozen)
    """A run of one GPU on that day."""
    path = folder / family / f"2026-10-{day:02}"
    path.mkdir(parents=True)
    start = job.WINDOW_START + day * 86_400 * 10**9
    problems = Problems(straggler_rank=None)
    (rank,) = simulate(start=start, first_step=10, seed=day, steps=3, problems=problems, nodes=1, gpus_per_node=1, changes=changes)
    write_trace(path, rank, world_size=1, gpus_per_node=1, job_name=family)
    (path / "job.json").write_text(json.dumps({"name": f"{family}-2026-10-{day:02}", "status": "completed"}))


def night(source: Path, *more: str) -> Result:
    options = ["--engine", "none", "--format", "json", "--settle", "0", "--rules", "StepOutlier"]
    words = ["nightly", str(source), "--out", str(source.parent / "out"), *options, *more]
    return CliRunner().invoke(main, words)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two families of four nights, and report the first ones."""
    folder = tmp_path_factory.mktemp("nights") / "source"
    for day in range(1, 5):
        for family in ("gpt-7b", "bert"):
            add(folder, family, day)
    first = night(folder, "--fail-on", "regression")
    assert first.exit_code == 0, first.output
    return folder


def step_time(report: Path) -> float:
    """Return the median time from step to step, each the median of the ranks.

    A step ends with its device work.
    """
    data = json.loads(report.read_text())["steps"]["steps"]
    ends = {(one["rank"], one["index"]): one["start_ns"] + one["duration_ns"] for one in data if one["on_device"]}
    results: dict[int, list[int]] = {}
    for (rank, index), end in ends.items():
        if (rank, index - 1) in ends:
            results.setdefault(index, []).append(end - ends[rank, index - 1])
    return statistics.median(statistics.median(one) for one in results.values())


def test_a_planted_regression_is_found_in_the_next_night(source: Path) -> None:
    add(source, "gpt-7b", 5, Changes(fp32_matrix=True))
    add(source, "bert", 5)
    done = night(source, "--fail-on", "regression", "--json")
    assert done.exit_code == 3, done.output
    summary = json.loads(done.stdout)
    assert [(one["id"], one["family"]) for one in summary["regressions"]] == [("gpt-7b/2026-10-05", "gpt-7b")]
    assert done.stderr.count("regression of gpt-7b in gpt-7b/2026-10-05") == 1
    out = source.parent / "out"
    table = pl.read_parquet(out / "index.parquet")
    marked = table.filter(pl.col("step_mark") == "regression").row(0, named=True)
    assert marked["id"] == "gpt-7b/2026-10-05"
    # The increase follows from the reports.
    steps = {row["id"]: step_time(out / row["folder"] / "report.json") for row in table.iter_rows(named=True)}
    before = sorted(steps[f"gpt-7b/2026-10-0{day}"] for day in range(1, 5))
    base = (before[1] + before[2]) / 2
    assert marked["step_change_percent"] == pytest.approx(100 * (steps["gpt-7b/2026-10-05"] / base - 1), rel=1e-6)
    assert marked["step_change_percent"] > 40
    page = (out / "index.html").read_text()
    assert "The worst is gpt-7b/2026-10-05: " in page[page.index('class="headline"') : page.index('class="tiles"')]
    findings = page[page.index('id="findings-title"') : page.index('id="families-title"')]
    assert findings.index("Regressions") < findings.index("gpt-7b/2026-10-05")
    assert "bert/2026-10-05" not in page[page.index('id="regressions"') : page.index('id="families-title"')].split('id="failed"')[0].split(
        'id="new-issues"'
    )[0]  # fmt: skip

    # Reported once, by the night that reported the run; the index keeps it until another run follows.
    again = night(source, "--fail-on", "regression", "--json")
    assert (again.exit_code, json.loads(again.stdout)["regressions"]) == (0, [])
    assert night(source, "--index-only", "--fail-on", "regression").exit_code == 3
    assert night(source, "--index-only", "--fail-on", "regression", "--regression-threshold", "500").exit_code == 0


def test_a_regression_that_is_not_in_the_newest_run_of_a_backlog_alarms_once(tmp_path: Path) -> None:
    """The third last run is slower, and more than 36 hours older than the last."""
    for day in range(1, 7):
        add(tmp_path / "source", "gpt-7b", day, Changes(fp32_matrix=day == 4))
        if day == 1:  # what ended before the first report is history
            assert night(tmp_path / "source").exit_code == 0
            (marker,) = (tmp_path / "out").glob("runs/**/done.json")
            row = json.loads(marker.read_text())
            marker.write_text(json.dumps(row | {"reported_at_ns": row["started_ns"] + row["duration_ns"]}))
            (tmp_path / "out" / "index.parquet").unlink()
            assert night(tmp_path / "source", "--index-only").exit_code == 0
    done = night(tmp_path / "source", "--fail-on", "regression", "--json")
    assert done.exit_code == 3, done.output
    assert [one["id"] for one in json.loads(done.stdout)["regressions"]] == ["gpt-7b/2026-10-04"]
    findings = json.loads((tmp_path / "out" / "index.json").read_text())["findings"]
    assert [one["id"] for one in findings if one["kind"] == "regression"] == ["gpt-7b/2026-10-04"]
    again = night(tmp_path / "source", "--fail-on", "regression", "--force", "--json")
    assert (again.exit_code, json.loads(again.stdout)["regressions"]) == (0, [])


def test_the_words_of_families_and_regressions(source: Path) -> None:
    assert night(source, "--index-only", "--family", "(gpt)|(bert)", "--regression-history", "5").exit_code == 0
    families = {one["name"] for one in json.loads((source.parent / "out" / "index.json").read_text())["families"]}
    assert families == {"gpt", "bert"}
    for words, message in (
        (("--family", "("), "not a regular expression"),
        (("--regression-threshold", "-1"), "--regression-threshold"),
        (("--regression-history", "2"), "whole number from 3 to 50"),
        (("--new-issue-history", "0"), "whole number from 1 to 50"),
    ):
        done = night(source, "--index-only", *words)
        assert done.exit_code == 2, done.output
        assert message in done.stderr
