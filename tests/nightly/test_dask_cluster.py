"""A night on a Dask cluster loses and repeats nothing when a worker is killed or a file kills its reader."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
import small_runs as small
from postrun.nightly import work
from postrun.simulate import write_demo

pytestmark = pytest.mark.slow

pytest.importorskip("distributed", reason="Dask is not installed (pip install 'postrun[dask]')")

RUNS = 12
EPOCH_US = 1_700_000_000_000_000
STARTED_S = 300.0  # of a busy machine
# A process that opens such a file dies as by a crash in a library.
POISON = """
import os, signal, sys
def look(event, given):
    if event == "open" and str(given[0]).endswith("poison.json"):
        os.kill(os.getpid(), signal.SIGSEGV)
sys.addaudithook(look)
"""


def trace(run: int, rank: int = 0, ranks: int = 1) -> str:
    """Return a trace whose run number decides its steps and their length.

    It has run + 3 steps of run + 1 ms each, with one kernel.
    """
    length = 1000 * (run + 1)
    events: list[dict[str, Any]] = []
    for step in range(run + 3):
        at = EPOCH_US + step * length
        events += [
            {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": length},
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 10, "dur": 5, "args": {"correlation": step + 1}},
            {"cat": "kernel", "name": "mm", "ts": at + 50, "dur": 20, "args": {"correlation": step + 1, "device": rank, "stream": 7}},
        ]
    metadata = {"distributedInfo": {"rank": rank, "world_size": ranks}, "host_name": "node"}
    return json.dumps({**metadata, "traceEvents": [{"ph": "X", "pid": 5 + rank, "tid": 5 + rank, **event} for event in events]})


@contextmanager
def process(*words: str, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended by its id, whatever happens."""
    with log.open("wb") as file:
        started = subprocess.Popen(
            [sys.executable, "-P", *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def wait_for(what: Any, seconds: float = STARTED_S) -> Any:
    until = time.monotonic() + seconds
    while not (actual := what()):
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)
    return actual


@contextmanager
def dask_worker(address: str, folder: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    words = [
        "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0",
        "--local-directory", str(folder / name),
    ]  # fmt: skip
    with process(*words, log=folder / f"{name}.log", PYTHONPATH=str(folder / "hook"), POLARS_MAX_THREADS="1") as started:
        yield started


class Cluster(NamedTuple):
    address: str
    workers: list[subprocess.Popen[bytes]]
    scheduler: subprocess.Popen[bytes]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Start a scheduler and two workers as processes."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(POISON)
    address_file = tmp_path / "scheduler.json"
    dask = ["-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-jupyter"]
    with ExitStack() as stack:
        scheduler = stack.enter_context(process(*dask, "--scheduler-file", str(address_file), log=tmp_path / "scheduler.log"))

        def address() -> str | None:
            try:
                return str(json.loads(address_file.read_text())["address"])
            except (OSError, ValueError):
                return None

        where = wait_for(address)
        workers = [stack.enter_context(dask_worker(where, tmp_path, f"worker{i}")) for i in range(2)]
        yield Cluster(where, workers, scheduler)


def test_a_worker_is_killed_in_the_middle_of_a_night(cluster: Cluster, tmp_path: Path) -> None:
    address, workers, _ = cluster
    source, out = tmp_path / "source", tmp_path / "out"
    for run in range(RUNS):
        (source / f"run{run:02}").mkdir(parents=True)
        (source / f"run{run:02}" / "trace.json").write_text(trace(run))
    (source / "bad").mkdir()
    (source / "bad" / "trace.poison.json").write_text(trace(1))
    # One that is read in parts.
    (source / "large").mkdir()
    for rank in range(3):
        (source / "large" / f"trace{rank}.json").write_text(trace(90, rank, 3))

    words = [
        "-m",
        "postrun.cli",
        "nightly",
        str(source),
        "--out",
        str(out),
        "--engine",
        f"dask:{address}",
        "--format",
        "json",
        "--rules",
        "StepOutlier",
        "--settle",
        "0",
    ]
    with process(*words, "--split-above", "100KB", "--json", log=tmp_path / "night.log") as night:
        markers = out / "runs"
        wait_for(lambda: night.poll() is not None or len(list(markers.glob("run*/done.json"))) >= RUNS // 4)
        assert night.poll() is None, (tmp_path / "night.log").read_text()
        assert len(list(markers.glob("run*/done.json"))) < RUNS
        os.kill(workers[0].pid, signal.SIGKILL)
        assert night.wait(180) == 0, (tmp_path / "night.log").read_text()
    assert workers[0].wait() == -signal.SIGKILL
    assert workers[1].poll() is None, (tmp_path / "worker1.log").read_text()

    rows = {path.parent.name: json.loads(path.read_text()) for path in markers.glob("*/done.json")}
    assert sorted(rows) == ["bad", "large", *(f"run{run:02}" for run in range(RUNS))]
    for run in range(RUNS):
        row = rows[f"run{run:02}"]
        assert (row["state"], row["steps"], row["step_median_ns"], row["files"]) == ("reported", run + 3, (run + 1) * 1_000_000, 1)
        # One report, and nothing of another.
        names = [path.name for path in (markers / f"run{run:02}").iterdir()]
        assert sorted(names) == sorted(["done.json", "latest", Path(row["folder"]).name])
        assert [path.name for path in (out / row["folder"]).iterdir()] == ["report.json"]
    assert (rows["large"]["state"], rows["large"]["ranks"], rows["large"]["step_median_ns"]) == ("reported", 3, 91_000_000)
    left = [path.relative_to(markers / "large").as_posix() for path in (markers / "large").rglob("*") if path.is_file()]
    assert sorted(left) == sorted(["done.json", "latest/report.json", f"{Path(rows['large']['folder']).name}/report.json"])
    assert (rows["bad"]["state"], rows["bad"]["attempts"]) == ("failed", 2)
    assert "SIGSEGV" in rows["bad"]["reason"]

    text = re.search(r"^\{.*^\}", (tmp_path / "night.log").read_text(), re.DOTALL | re.MULTILINE)
    assert text is not None
    summary = json.loads(text[0])
    assert [one["id"] for one in summary["failed"]] == ["bad"]
    assert sorted(summary["reported"]) == sorted(set(rows) - {"bad"})
    assert sorted(pl.read_parquet(out / "index.parquet")["id"]) == sorted(rows)


def test_a_worker_is_killed_in_the_middle_of_a_run_that_is_read_in_parts(cluster: Cluster, tmp_path: Path) -> None:
    address, workers, _ = cluster
    source, out, log = tmp_path / "source", tmp_path / "out", tmp_path / "night.log"
    write_demo(tmp_path / "demo", steps=2, nodes=2, gpus_per_node=4)
    source.mkdir()
    (tmp_path / "demo" / "kineto").rename(source / "run")
    words = ["nightly", str(source), "--out", str(out), "--engine", f"dask:{address}", "--format", "json", "--settle", "0"]
    with process("-m", "postrun.cli", *words, "--split-above", "10KB", log=log) as night:
        wait_for(lambda: night.poll() is not None or len(list(out.glob("runs/run/partial/*/*.json"))) >= 3)
        assert night.poll() is None, log.read_text()
        assert not list(out.glob("runs/run/done.json"))
        os.kill(workers[0].pid, signal.SIGKILL)
        assert night.wait(300) == 0, log.read_text()
    assert workers[0].wait() == -signal.SIGKILL
    row = json.loads((out / "runs" / "run" / "done.json").read_text())
    assert (row["state"], row["ranks"], row["files"]) == ("reported", 8, 8)
    report = json.loads((out / row["folder"] / "report.json").read_bytes())
    files = [path.relative_to(out / "runs" / "run").as_posix() for path in (out / "runs" / "run").rglob("*") if path.is_file()]
    assert sorted(files) == sorted(["done.json", "latest/report.json", f"{Path(row['folder']).name}/report.json"])
    # One process reports the same bytes.
    task = small.task_of(small.found_below(str(source))[0], str(source), str(tmp_path / "one"), formats=("json",))
    alone = work.report_run(replace(task, generated_at_ns=report["generator"]["generated_at_ns"]))
    written = tmp_path / "one" / str(alone.folder) / "report.json"
    assert (out / row["folder"] / "report.json").read_bytes() == written.read_bytes()


def make_runs(source: Path, count: int) -> None:
    for run in range(count):
        (source / f"run{run:02}").mkdir(parents=True)
        (source / f"run{run:02}" / "trace.json").write_text(trace(run))


def night_words(source: Path, out: Path, address: str) -> list[str]:
    words = ["nightly", str(source), "--out", str(out), "--engine", f"dask:{address}", "--format", "json", "--rules", "StepOutlier"]
    return ["-m", "postrun.cli", *words, "--settle", "0"]


def done(out: Path) -> list[str]:
    return sorted(path.parent.name for path in out.glob("runs/*/done.json"))


def test_a_night_ends_when_its_last_worker_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    address, workers, _ = cluster
    source, out, log = tmp_path / "source", tmp_path / "out", tmp_path / "night.log"
    make_runs(source, RUNS)
    with process(*night_words(source, out, address), log=log) as night:
        wait_for(lambda: night.poll() is not None or len(done(out)) >= 2)
        assert night.poll() is None, log.read_text()
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
        lost = time.monotonic()
        assert night.wait(120) == 1, log.read_text()
        assert 35 < time.monotonic() - lost < 70
    reported = done(out)
    assert 2 <= len(reported) < RUNS
    text = log.read_text()
    assert "the night ended early: the workers cannot go on: all workers of the Dask cluster are lost" in text
    assert "Traceback" not in text
    index = pl.read_parquet(out / "index.parquet")
    assert sorted(index.filter(pl.col("state") == "reported")["id"]) == reported
    assert set(index["state"]) == {"reported", "waiting"}
    assert len(index) == RUNS
    assert not list(out.glob("runs/*/claim.json"))


def test_a_night_goes_on_when_a_worker_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    address, workers, _ = cluster
    source, out, log = tmp_path / "source", tmp_path / "out", tmp_path / "night.log"
    make_runs(source, 6)
    with process(*night_words(source, out, address), log=log) as night:
        wait_for(lambda: night.poll() is not None or len(done(out)) >= 2)
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
        time.sleep(10)
        with dask_worker(address, tmp_path, "another"):
            assert night.wait(120) == 0, log.read_text()
    assert len(done(out)) == 6


def test_a_night_ends_when_the_scheduler_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    source, out, log = tmp_path / "source", tmp_path / "out", tmp_path / "night.log"
    make_runs(source, RUNS)
    with process(*night_words(source, out, cluster.address), log=log) as night:
        wait_for(lambda: night.poll() is not None or len(done(out)) >= 2)
        assert night.poll() is None, log.read_text()
        os.kill(cluster.scheduler.pid, signal.SIGKILL)
        assert night.wait(150) == 1, log.read_text()
    for worker in cluster.workers:  # each still finishes the run at which it was
        worker.kill()
        worker.wait()
    reported = done(out)
    assert 2 <= len(reported) < RUNS
    text = log.read_text()
    assert "the night ended early: the workers cannot go on: " in text
    assert "Traceback" not in text
    index = pl.read_parquet(out / "index.parquet")
    in_time = set(index.filter(pl.col("state") == "reported")["id"])
    assert in_time <= set(reported)
    assert len(reported) - len(in_time) <= len(cluster.workers)
    assert len(index) == RUNS
    with process("-m", "postrun.cli", "nightly", str(source), "--out", str(out), "--index-only", "--settle", "0", log=log) as next_night:
        assert next_night.wait(120) == 0, log.read_text()
    index = pl.read_parquet(out / "index.parquet")
    assert sorted(index.filter(pl.col("state") == "reported")["id"]) == reported
    assert not list(out.glob("runs/*/claim.json"))
