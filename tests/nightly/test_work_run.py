"""A run of a night is reported as by `postrun report`, with a row of the same figures, and every failure has a reason."""

from __future__ import annotations

import dataclasses
import json
import shutil
import statistics
import tempfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pool_tasks
import postrun
import pytest
import small_runs as small
from postrun.analysis import Options, analyze
from postrun.analysis.timeline.model import CAP
from postrun.analysis.timeline.timelines import timeline_for
from postrun.errors import InputError
from postrun.ingest import ingest
from postrun.ingest.object_store import objects as stores
from postrun.ingest.object_store.objects import ChangedError
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import engines, places, work
from postrun.nightly.gpu_hours import column
from postrun.nightly.model import FoundRun, Row, row_of
from postrun.nightly.worker_process import WorkerDied
from postrun.simulate import Problems, write_demo


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    small.write_run(folder / "team" / "first", 1)
    return folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def remote(source: Path) -> str:
    """The same run in an object store in memory."""
    url = f"memory://{source.name}/in"
    store = open_objects(url)
    for path in source.rglob("*"):
        if path.is_file():
            store.write(path.relative_to(source).as_posix(), path)
    return url


def only(folder: str | Path) -> FoundRun:
    (run,) = small.found_below(str(folder))
    return run


def reported(folder: str | Path, out: str | Path, **more: Any) -> Row:
    return work.report_run(small.task_of(only(folder), str(folder), str(out), **more))


@pytest.mark.slow
def test_the_files_are_those_of_a_report_of_the_folder(source: Path, tmp_path: Path, temporary: Path) -> None:
    row = reported(source, tmp_path / "out")
    with ingest([source / "team" / "first"], threads=1) as store:
        report = analyze(store, Options(generated_at_ns=small.AT_NS))
        drawn = timeline_for(store, report, ("html",), CAP)
    expected = postrun.render(report, tmp_path / "expected", ("html", "json"), timeline=drawn)
    assert row.state == "reported"
    assert row.written == ("report.html", "report.json")
    assert row.folder is not None
    for path in expected.values():
        alike = (tmp_path / "out" / row.folder / path.name).read_bytes() == path.read_bytes()
        assert alike, path.name
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_the_pdf_printed_here_is_that_of_a_process_page_after_page(source: Path, tmp_path: Path) -> None:
    task = small.task_of(only(source), str(source), "", formats=("pdf",), sections=("kernels", "steps"), timeline_events=0)
    pages = []
    for attempt in (1, 1, 2):
        again = dataclasses.replace(task, out=str(tmp_path / str(len(pages))), attempt=attempt)
        row = work.report_run(again)
        assert (row.state, row.written, row.attempts, row.warnings) == ("reported", ("report.pdf",), attempt, ())
        pages.append((tmp_path / str(len(pages)) / str(row.folder) / "report.pdf").read_bytes())
    assert pages[0].startswith(b"%PDF-")
    assert pages[0] == pages[1] == pages[2]


@pytest.mark.slow
def test_the_row_says_what_was_simulated_and_what_the_report_says(tmp_path: Path) -> None:
    problems = Problems(straggler_rank=None)
    truth = write_demo(tmp_path / "in", seed=3, steps=3, problems=problems, nodes=1, gpus_per_node=2)
    row = reported(tmp_path / "in", tmp_path / "out", formats=("json",))
    data = json.loads((tmp_path / "out" / str(row.folder) / "report.json").read_bytes())
    run = only(tmp_path / "in")
    assert (row.id, row.kind) == (".", "hosted")
    assert row.folder == places.report_folder(run, small.task_of(run, "", "", formats=("json",)).options)
    assert (row.name, row.status, row.labels) == ("gpt-350m-ddp (simulated)", "completed", {"simulated": "true"})
    assert (row.nodes, row.ranks, row.gpus, row.gpu_name) == (1, 2, 2, "NVIDIA H100 80GB HBM3")
    assert row.bytes == sum(path.stat().st_size for path in (tmp_path / "in").rglob("*") if path.suffix in (".json", ".gz", ".ts"))
    exposed = 100 * sum(rank.exposed_communication_ns for rank in truth.ranks) / sum(rank.span_ns for rank in truth.ranks)
    assert row.exposed_communication_percent == pytest.approx(exposed)
    steps = sorted(ns for rank in truth.ranks for ns in rank.device_step_ns)
    assert row.steps == len(steps)
    # From the end of one step's device work to that of the next, by number the median of both ranks; then the median.
    ends = {(one["rank"], one["index"]): one["start_ns"] + one["duration_ns"] for one in data["steps"]["steps"] if one["on_device"]}
    periods: dict[int, list[int]] = {}
    for (rank, index), end in ends.items():
        if (rank, index - 1) in ends:
            periods.setdefault(index, []).append(end - ends[rank, index - 1])
    assert len(periods) == 2
    assert row.step_median_ns == pytest.approx(statistics.median(statistics.median(one) for one in periods.values()), abs=1)
    assert row.gpu_busy_percent == pytest.approx(100 * sum(one.busy_ns for one in truth.ranks) / sum(one.span_ns for one in truth.ranks))
    assert row.gpu_busy_percent == pytest.approx(next(one["number"] for one in data["summary"]["figures"] if one["key"] == "gpu_busy"))
    assert row.gpu_active_derived is False
    assert row.gpu_active_percent == pytest.approx(data["system_usage"]["gpu_active"]["active_percent"])
    lines = [json.loads(line) for path in (tmp_path / "in").rglob("*.algo-1.json") for line in path.read_text().splitlines()]
    used = [one["Value"] for one in lines if one["Dimension"] == "GPUUtilization"]
    assert row.gpu_utilization_percent == pytest.approx(statistics.mean(used), rel=0.01)  # the report's curve has 400 points at most
    allocated = 2 * data["job_statistics"]["duration_ns"]
    times = {part["name"]: part["time_ns"] for part in data["goodput"]["parts"]}
    assert row.allocated_ns == allocated == sum(getattr(row, column(name)) or 0 for name in times)
    for name, time in times.items():
        assert (getattr(row, column(name)) is None) == (time is None)
        assert time is None or abs(getattr(row, column(name)) - time * 2 / data["goodput"]["ranks"]) <= 1
    assert row.sampled_ns == pytest.approx(allocated, rel=0.01)
    # Stretches of the job in which every sample is 0 are less than all samples of 0.
    assert row.inactive_ns == pytest.approx(allocated * sum(value == 0 for value in used) / len(used), rel=0.1)
    assert row.gpu_memory_percent is None  # the simulated profiler records the memory controller
    assert row.duration_ns == data["job_statistics"]["duration_ns"]
    assert row.started_ns == data["run"]["started_at_ns"]
    assert row.headline == data["summary"]["headline"]
    assert row.verdicts == {one["rule"]: one["verdict"] for one in data["rules"]}


@pytest.mark.slow
def test_the_marker_holds_the_row_and_a_second_time_gives_the_same(source: Path, tmp_path: Path) -> None:
    first = reported(source, tmp_path, formats=("json",))
    held = row_of(json.loads((tmp_path / places.done("team/first")).read_bytes()))
    assert held == first
    files = {path: path.read_bytes() for path in (tmp_path / str(first.folder)).iterdir()}
    second = reported(source, tmp_path, formats=("json",))
    assert {path: path.read_bytes() for path in (tmp_path / str(second.folder)).iterdir()} == files
    assert dataclasses.replace(second, seconds=None, reported_at_ns=None) == dataclasses.replace(first, seconds=None, reported_at_ns=None)


@pytest.mark.slow
def test_a_run_of_an_object_store_is_named_by_its_place_there(source: Path, remote: str, tmp_path: Path, temporary: Path) -> None:
    row = reported(remote, remote.removesuffix("in") + "out")
    out = open_objects(remote.removesuffix("in") + "out")
    text = out.read(f"{row.folder}/report.json").decode()
    assert [one["path"] for one in json.loads(text)["run"]["sources"]] == [f"{remote}/{one.path}" for one in only(remote).objects]
    assert str(temporary) not in text + out.read(f"{row.folder}/report.html").decode()
    assert list(temporary.iterdir()) == []
    here = reported(source, tmp_path / "out", formats=("json",))
    assert (row.headline, row.step_median_ns, row.verdicts) == (here.headline, here.step_median_ns, here.verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "store"])
def test_a_run_that_changed_is_read_as_it_is_now_or_left_to_the_next_night(
    source: Path, remote: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = remote
    if kind == "folder":
        shutil.copytree(source, tmp_path / "in")
        path = str(tmp_path / "in")
    run = only(path)
    store = open_objects(path)
    store.write(run.objects[0].path, b"{}")
    with monkeypatch.context() as restless:
        restless.setattr(work, "_as_it_is", lambda run, source: run)
        with pytest.raises(ChangedError, match="team/first"):
            work.report_run(small.task_of(run, path, str(tmp_path / "out")))
    assert not (tmp_path / "out" / "runs").exists()

    row = work.report_run(small.task_of(run, path, str(tmp_path / "out"), formats=("json",)))
    assert (row.state, row.fingerprint) == ("reported", only(path).fingerprint)
    assert row.fingerprint != run.fingerprint
    store.delete(run.objects[0].path)
    row = work.report_run(small.task_of(run, path, str(tmp_path / "out"), formats=("json",)))
    assert (row.state, row.fingerprint, row.files) == ("reported", only(path).fingerprint, len(run.objects) - 1)
    for info in run.objects:
        store.delete(info.path)
    with pytest.raises(ChangedError, match="removed since it was listed"):
        work.report_run(small.task_of(run, path, str(tmp_path / "out"), formats=("json",)))


@pytest.mark.parametrize("where", ["folder", "store"])
def test_what_is_no_trace_fails_with_the_place_of_the_file(tmp_path: Path, temporary: Path, where: str) -> None:
    path = str(tmp_path / "in") if where == "folder" else "memory://no-trace/in"
    store = open_objects(path)
    store.write("bad/rank_0.trace.json", b"this is no trace")
    row = reported(path, tmp_path / "out")
    assert row.state == "failed"
    assert row.reason is not None
    assert f"{path}/bad" in row.reason
    assert str(temporary) not in row.reason
    assert not (tmp_path / "out" / places.done("bad")).exists()


@pytest.mark.parametrize(
    ("error", "message", "of_machine"),
    [
        (ZeroDivisionError("of ours"), "internal error: ZeroDivisionError: of ours; all of it stands in runs/team/first/", False),
        (MemoryError(), "not enough memory", True),
        (OSError(28, "No space left on device"), "No space left on device; set TMPDIR", True),
        (duckdb.IOException("IO Error: could not write: No space left"), "cannot read or write its file", True),
        (InputError("a reason"), "a reason", False),
    ],
)
def test_errors_become_reasons_and_the_traceback_is_kept(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path, error: Exception, message: str, of_machine: bool
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("postrun.analysis.analyze", fail)
    row = reported(source, tmp_path / "out")
    assert row.state == "failed"
    assert message in (row.reason or "")
    assert row.of_machine == of_machine
    assert not (tmp_path / "out" / places.done("team/first")).exists()
    (log,) = (tmp_path / "out").rglob(work.LOG)
    assert f"runs/team/first/{row.fingerprint[:16]}-" in log.as_posix()
    assert "in fail" in log.read_text(encoding="utf-8")
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_without_its_pdf_a_report_still_counts_and_says_so(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def start(self, _: object) -> None: ...
        def attach(self) -> None: ...
        def finish(self, _: float) -> str:
            return "the libraries are not there; try this"

    monkeypatch.setattr(work, "_printer_here", Broken)
    row = reported(source, tmp_path, formats=("html", "pdf", "json"))
    assert (row.state, row.written) == ("reported", (work.LOG, "report.html", "report.json"))
    assert row.warnings[-1] == "no PDF: the libraries are not there; try this"
    assert row == row_of(json.loads((tmp_path / places.done("team/first")).read_bytes()))


def test_what_does_not_fit_the_disk_is_not_downloaded(remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10_000, 0, 10_000))
    row = reported(remote, tmp_path / "out")
    assert row.state == "failed"
    assert "set TMPDIR to a folder with more space" in (row.reason or "")


@pytest.mark.slow
def test_a_store_that_fails_while_the_report_is_written_is_no_fault_of_the_run(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    target.write_text("a file", encoding="utf-8")
    with pytest.raises(stores.ObjectStoreError):
        reported(source, target)


def test_options_choose_rules_and_formats(source: Path, tmp_path: Path) -> None:
    chosen = {"rules": ("HostBound", "StepOutlier"), "settings": (("StepOutlier_stddev", "9"),), "preset": "service"}
    row = reported(source, tmp_path, formats=("md", "junit", "rule-json"), **chosen)
    assert set(row.verdicts) == {"HostBound", "StepOutlier"}
    assert row.written[-2:] == ("report.junit.xml", "report.md")
    assert all(path.startswith("profiler-reports/") for path in row.written[:-2])


@pytest.mark.slow
def test_in_worker_processes_a_poison_run_costs_itself_alone(source: Path, tmp_path: Path) -> None:
    task = small.task_of(only(source), str(source), str(tmp_path), formats=("json",))
    with engines.executor("processes", workers=2, timeout_s=120, memory_bytes=2_000_000_000) as executor:
        report: Callable[..., Any] = work.report_run
        futures = [executor.submit(report, task), executor.submit(pool_tasks.crash), executor.submit(report, task)]
        rows = [futures[0].result(), futures[2].result()]
    assert isinstance(futures[1].exception(), WorkerDied)
    assert [row.state for row in rows] == ["reported", "reported"]
