"""`postrun nightly` from bucket to bucket: against a real S3 server, through a network that fails and counts requests."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from call_nightly import nightly, told
from faulty_proxy import KINDS, FaultyProxy, faulty_proxy
from postrun.ingest import ingest
from postrun.ingest.object_store import connect as object_connect
from postrun.ingest.object_store import tries
from postrun.ingest.object_store.objects import Objects
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import engines, work
from postrun.nightly.claims import Claims
from postrun.nightly.discover import found_runs
from postrun.nightly.model import ReportOptions, Task
from postrun.simulate import Problems, write_demo
from prt_writer import golden
from swift_server import KEPT, SwiftServer, clean_environment, swift_server

pytestmark = pytest.mark.slow

AT = "2026-03-01T00:00:00Z"
# One rule: what the rules find is tested elsewhere, and all of them take a third of the time of a report.
ONLY_JSON = ("--engine", "none", "--format", "json", "--settle", "0", "--rules", "StepOutlier", "--run-stores")
HERE = ("--engine", "none", "--format", "html,json", *ONLY_JSON[4:], "--timeline-events", "0", "--generated-at", AT)
WIDE = "läuft/グラフ run 1"
GOOD = ("captured", "hosted", "ranks", "store/run.duckdb", WIDE)


@pytest.fixture(scope="module")
def swift() -> Iterator[SwiftServer]:
    with swift_server() as server:
        for bucket in ("jobs", "reports", "many"):
            server.make_bucket(bucket)
        yield server


@pytest.fixture(scope="module")
def proxy(swift: SwiftServer) -> Iterator[FaultyProxy]:
    with faulty_proxy(swift.endpoint, seed=7) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def environment(swift: SwiftServer, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every request goes through the proxy; waits are short."""
    monkeypatch.setattr(tries, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(object_connect, "_PATIENT", {"max_retries": 3})
    kept = dict(zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), KEPT, strict=True))
    clean_environment(monkeypatch, swift.environment(AWS_ENDPOINT_URL=proxy.endpoint, **kept))
    work.opened.cache_clear()
    proxy.log.clear()
    proxy.seen.clear()
    yield
    proxy.share, proxy.before = 0.0, None
    proxy.next_faults.clear()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of each kind, one that cannot be read, and what is none."""
    folder = tmp_path_factory.mktemp("runs")
    source_folder = tmp_path_factory.mktemp("made")
    # One machine with one GPU is enough of the hosted layout, whose steps are all of the job's.
    write_demo(source_folder / "two", steps=2, nodes=1, gpus_per_node=2, problems=Problems(straggler_rank=None))
    write_demo(source_folder / "one", steps=2, nodes=1, gpus_per_node=1, seed=3, problems=Problems(straggler_rank=None))
    shutil.copytree(source_folder / "one" / "profiler-output", folder / "hosted" / "profiler-output")
    shutil.copytree(source_folder / "two" / "kineto", folder / "ranks" / "kineto")
    shutil.copy(source_folder / "two" / "job.json", folder / "ranks")
    shutil.copytree(source_folder / "one" / "kineto", folder / WIDE)
    (folder / "captured").mkdir()
    (folder / "captured" / "v1.prt").write_bytes(golden())
    (folder / "store").mkdir()
    ingest([source_folder / "one" / "kineto"], folder / "store" / "run.duckdb", threads=1).close()
    (folder / "bad").mkdir()
    (folder / "bad" / "trace.json").write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X", ')
    (folder / "weights.bin").write_bytes(b"\0" * 1000)
    return folder


@pytest.fixture(scope="module")
def trace(runs: Path) -> bytes:
    return next((runs / WIDE).iterdir()).read_bytes()


@pytest.fixture(scope="module")
def other_trace(runs: Path) -> bytes:
    return next((runs / "ranks" / "kineto").iterdir()).read_bytes()


@pytest.fixture
def direct(swift: SwiftServer, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Objects]:
    """Opens a place whose requests do not go through the proxy."""

    def opened(path: str) -> Objects:
        with monkeypatch.context() as context:
            context.setenv("AWS_ENDPOINT_URL", swift.endpoint)
            return open_objects(path)

    return opened


@pytest.fixture(scope="module")
def local(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The reports of a night over the same runs in a folder."""
    out = tmp_path_factory.mktemp("local") / "out"
    done = nightly(runs, "--out", out, *HERE)
    assert done.exit_code == 0, done.output
    return reports(open_objects(out), str(runs))


def beside(runs: Path, name: str) -> str:
    """A URL as long as the local folder's path: pages shorten what is too long."""
    return f"s3://jobs/{name}-".ljust(len(str(runs)), "x")


def upload(folder: Path, url: str, *, without: str = "-") -> Objects:
    store = open_objects(url)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_relative_to(folder / without):
            store.write(path.relative_to(folder).as_posix(), path)
    return store


def rows_of(out: Objects) -> dict[str, Any]:
    actual = [json.loads(out.read(one.path)) for one in out.list("runs/") if one.path.endswith("/done.json")]
    return {row["id"]: row for row in actual}


def links_of(page: str) -> set[str]:
    return {unquote(html.unescape(link)) for link in re.findall(r'href="(?!#)([^"]*)"', page)}


def reports(out: Objects, source: str) -> dict[str, bytes]:
    """Return the content of each run's files, with SOURCE for the runs' folder."""
    return {
        f"{row['id']}: {name}": out.read(f"{row['folder']}/{name}").replace(source.encode(), b"SOURCE")
        for row in rows_of(out).values()
        for name in row["written"]
    }


# ------------------------------------------------------------------------------ one night after the other


def test_nights_one_after_the_other(runs: Path, local: dict[str, bytes], proxy: FaultyProxy) -> None:
    folder = beside(runs, "plain")
    source, out = upload(runs, folder), open_objects("s3://reports/plain")
    proxy.log.clear()
    with ended(start(folder, "--out", "s3://reports/plain", *HERE, "--verbose")) as night:
        message, progress = night.communicate(timeout=120)
    assert night.returncode == 0, progress
    assert "5 reported, 1 failed, 0 unchanged; 6 runs in the index\ns3://reports/plain/index.html" in message
    assert "bad failed: nothing usable found" in progress
    report_json = reports(out, folder)
    assert report_json.keys() == local.keys() | {"bad: postrun.log"}
    assert [name for name in local if name != "bad: postrun.log" and report_json[name] != local[name]] == []
    assert not [path for method, path in proxy.log if method in {"PUT", "DELETE"} and not path.startswith("/reports/plain/")]

    # From the page in the bucket to the newest report of each run, or to the log of one without a report.
    page = out.read("index.html").decode()
    links = links_of(page)
    rows = rows_of(out)
    folders = {run: row["folder"] if row["state"] == "failed" else f"runs/{run}/latest" for run, row in rows.items()}
    assert {f"{folders[run]}/{name}" for run, row in rows.items() for name in row["written"]} <= links
    assert [link for link in links if out.head(link) is None] == []

    # The credentials appear nowhere.
    texts = [f"{message}{progress}".encode(), *(out.read(one.path) for one in out.list())]
    assert [text for text in texts if any(word in text for word in (KEPT[1].encode(), b"AWS4-HMAC", b"X-Amz-"))] == []

    # Nothing has changed: no run and no marker is read, and only the index is written. A slash at the end means nothing.
    proxy.log.clear()
    second = told(f"{folder}/", "--out", "s3://reports/plain/", *HERE)
    assert (second["reported"], second["failed"], second["unchanged"], second["runs"]) == ([], [], 6, 6)
    asked = [(method, path.partition("?")[0]) for method, path in proxy.log]
    assert [one for one in asked if "/jobs/" in one[1] and one[1].count("/") > 2] == []
    assert [one for one in asked if "/runs/" in one[1]] == []
    assert Counter(path for method, path in asked if method == "PUT").keys() <= {
        f"/reports/plain/{name}"
        for name in ("index.html", "index.json", "index.parquet", "index.claim.json", ".postrun-index.parquet.lock0")
    }
    assert [one.path for one in out.list() if "claim" in one.path] == []

    # One has changed, one is new, one is gone, one is still written to.
    (trace,) = source.list(f"{WIDE}/")
    data = source.read(trace.path)
    source.write("captured/v2.prt", golden())
    source.write("new/trace.json.gz", data)
    source.delete(trace.path)
    for info in list(source.list("hosted/")):
        source.write(f"un+fin%20ished/{info.path.partition('/')[2]}", source.read(info.path))
    for info in list(source.list("un+fin%20ished/")):
        if info.path.endswith("training_job_end.ts"):
            source.delete(info.path)
    options = [*HERE[:4], *HERE[6:]]
    dry = told(folder, "--out", "s3://reports/plain", *options, "--dry-run")
    assert {run["id"]: run["why"] for run in dry["runs"] if run["why"] != "unchanged"} == {
        "captured": "running", "new": "running", "un+fin%20ished": "running",
    }  # fmt: skip
    for info in list(source.list("un+fin%20ished/profiler-output/")):
        source.delete(info.path)
    source.write("un+fin%20ished/?x=1#y & z/trace.json", data)
    third = told(folder, "--out", "s3://reports/plain", *HERE)
    odd = "un+fin%20ished/?x=1#y & z"
    assert (sorted(third["reported"]), third["gone"], third["runs"]) == (["captured", "new", odd], [WIDE], 8)
    page = out.read("index.html").decode()
    assert [link for link in links_of(page) if out.head(link) is None] == []
    assert f"runs/{odd}/latest/report.html" in links_of(page)
    assert out.head(f"{rows['captured']['folder']}/report.json") is not None  # a link to it still works
    assert {f"{row['folder']}/{name}" for row in rows_of(out).values() for name in row["written"]} <= {one.path for one in out.list()}


def test_objects_that_are_no_runs_are_listed_and_no_more(swift: SwiftServer, trace: bytes, proxy: FaultyProxy) -> None:
    names = [f"jobs/{i // 100}/{kind}-{i}.{kind}" for i in range(5000) for kind in ("bin", "txt")]
    swift.list_names("many", names)
    open_objects("s3://many").write("jobs/20/kineto/trace.json.gz", trace)
    proxy.log.clear()
    plan = told("s3://many/jobs", "--out", "s3://reports/many", *HERE, "--dry-run")
    assert [run["id"] for run in plan["runs"]] == ["20"]
    assert len(proxy.log) <= 11 + 5
    assert {method for method, _ in proxy.log} <= {"GET", "HEAD"}


def test_reports_below_the_runs() -> None:
    source = open_objects("s3://jobs/inside")
    source.write("a/a.prt", golden())
    for out in ("s3://jobs/inside/_reports", "s3a://jobs/inside/"):
        first = told("s3://jobs/inside/", "--out", out, *ONLY_JSON)
        assert (sorted(first["reported"]), first["failed"]) == (["a"], [])
        again = told("s3://jobs/inside", "--out", out, *ONLY_JSON)
        assert (again["reported"], again["unchanged"], again["gone"], again["runs"]) == ([], 1, [], 1)


# ------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize(
    ("source", "out", "changes", "message"),
    [
        ("s3://jobs/small", "s3://reports/x", {"AWS_SECRET_ACCESS_KEY": "wrong-" + KEPT[1]}, "key or secret is wrong"),
        ("s3://absent/small", "s3://reports/x", {}, "there is no bucket absent at"),
        ("s3://jobs/small", "s3://absent/x", {}, "there is no bucket absent at"),
        ("s3://jobs/small", "READONLY", {}, ".probe.json: no permission for this"),
    ],
)
def test_what_cannot_work_is_told_before_anything_is_done(
    trace: bytes, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, source: str, out: str, changes: dict[str, str], message: str
) -> None:
    open_objects("s3://jobs/small").write("a/trace.json.gz", trace)
    if out == "READONLY":
        out = "s3://reports/x"
        proxy.before = lambda method, path: "403" if method in {"PUT", "DELETE"} else None
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    proxy.log.clear()
    done = nightly(source, "--out", out, *ONLY_JSON)
    assert done.exit_code == 4, done.output
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert KEPT[1] not in done.output
    assert "/jobs/small/a/trace.json.gz" not in {path for _, path in proxy.log}


def test_a_store_that_fails_now_and_then(runs: Path, local: dict[str, bytes], proxy: FaultyProxy) -> None:
    path = beside(runs, "faults")
    upload(runs, path, without="hosted")
    expected = {*GOOD} - {"hosted"}
    proxy.share = 0.05
    proxy.next_faults = [fault for kind in KINDS for fault in ("", "", kind)]
    night = told(path, "--out", "s3://reports/faults", *HERE)
    proxy.share = 0
    assert sum(count for kind, count in proxy.seen.items() if kind) >= len(KINDS)
    assert sorted([*night["reported"], *(one["id"] for one in night["failed"])]) == sorted([*expected, "bad"])
    report_json = reports(open_objects("s3://reports/faults"), path)
    assert [name for name in report_json if name != "bad: postrun.log" and report_json[name] != local[name]] == []
    assert {name.partition(": ")[0] for name in report_json} >= set(night["reported"])
    for failure in night["failed"]:
        assert failure["id"] == "bad" or "http" in failure["reason"], failure
    again = told(path, "--out", "s3://reports/faults", *HERE)
    assert set(night["reported"]) | set(again["reported"]) == expected


def test_objects_that_change_or_go_while_they_are_read(
    trace: bytes, other_trace: bytes, direct: Callable[[str], Objects], proxy: FaultyProxy
) -> None:
    behind = direct("s3://jobs/moving")
    for name in ("grows", "loses", "goes", "restless"):
        behind.write(f"{name}/trace.json.gz", trace)
    behind.write("loses/trace2.json.gz", other_trace)
    times: Counter[str] = Counter()

    def meddle(method: str, path: str) -> None:
        if method != "GET" or not (match := re.match(r"/jobs/moving/((\w+)/trace\.json\.gz)$", path)):
            return
        times[match[2]] += 1
        if match[2] == "restless":
            behind.write(match[1], (trace, other_trace)[times["restless"] % 2])
        elif times[match[2]] == 1 and match[2] == "grows":
            behind.write(match[1], other_trace)
        elif times[match[2]] == 1:
            behind.delete(match[1])

    proxy.before = meddle
    night = told("s3://jobs/moving", "--out", "s3://reports/moving", *ONLY_JSON)
    proxy.before = None
    assert sorted(night["reported"]) == ["grows", "loses"]
    reasons = {one["id"]: one["reason"] for one in night["failed"]}
    assert sorted(reasons) == ["goes", "restless"]
    assert "moving/goes/trace.json.gz: " in reasons["goes"]
    assert "removed since it was listed" in reasons["goes"]
    assert "moving/restless/trace.json.gz: replaced, changed" in reasons["restless"]
    rows = rows_of(open_objects("s3://reports/moving"))
    assert {row["id"]: row["files"] for row in rows.values()} == {"grows": 1, "loses": 1}
    sizes = {one.path: one.size for one in behind.list()}
    assert rows["grows"]["bytes"] == sizes["grows/trace.json.gz"] == len(other_trace)
    assert rows["loses"]["bytes"] == len(other_trace)
    again = told("s3://jobs/moving", "--out", "s3://reports/moving", *ONLY_JSON)
    assert (again["reported"], again["failed"], again["unchanged"], again["runs"]) == (["restless"], [], 2, 3)


# ------------------------------------------------------------------------------ several nights


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-m", "postrun.cli", "nightly", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


@contextmanager
def ended(*nights: subprocess.Popen[str]) -> Iterator[Any]:
    try:
        yield nights[0] if len(nights) == 1 else nights
    finally:
        for night in nights:
            if night.poll() is None:
                os.killpg(night.pid, signal.SIGKILL)
                night.communicate()


def test_a_night_that_is_killed_and_two_at_once() -> None:
    source, out = open_objects("s3://jobs/shared"), open_objects("s3://reports/shared")
    for name in "abcdefgh":
        source.write(f"{name}/a.prt", golden())
    arguments = ("s3://jobs/shared", "--out", "s3://reports/shared", "--workers", "1", *ONLY_JSON[2:])
    with ended(start(*arguments)) as killed:
        until = time.monotonic() + 90
        while len(rows_of(out)) < 1:
            assert time.monotonic() < until
            assert killed.poll() is None
            time.sleep(0.05)
        os.kill(killed.pid, signal.SIGKILL)
        killed.communicate()
    done = {row["id"]: row for row in rows_of(out).values()}
    assert 1 <= len(done) < 8
    assert out.head("index.html") is None

    with ended(start(*arguments, "--json"), start(*arguments, "--json")) as processes:
        outputs = [night.communicate(timeout=120) for night in processes]
    assert [night.returncode for night in processes] == [0, 0], outputs
    nights = [json.loads(one) for one, _ in outputs]
    rows = rows_of(out)
    assert {name for one in nights for name in one["reported"]} == set("abcdefgh") - done.keys()
    assert not [one for night in nights for one in night["failed"]]
    assert {name: rows[name] for name in done} == done
    assert sorted(rows) == list("abcdefgh")
    objects = {one.path for one in out.list()}
    # It may have been killed between a run's marker and giving back the claim, which then stays.
    assert {path for path in objects if "claim" in path} <= {f"runs/{name}/claim.json" for name in done}
    assert {path for path in objects if path.startswith("runs/") and not path.endswith(("done.json", "claim.json"))} == {
        f"{folder}/report.json" for row in rows.values() for folder in (row["folder"], f"runs/{row['id']}/latest")
    }
    index = json.loads(out.read("index.json"))
    assert sorted((run["id"], run["state"]) for run in index["runs"]) == [(name, "reported") for name in "abcdefgh"]


def test_a_run_that_is_reported_twice_at_once() -> None:
    source = open_objects("s3://jobs/twice")
    source.write("a/a.prt", golden())
    (run,) = found_runs(source.list(), now_ns=2**62, settle_ns=0)
    task = Task(run, "s3://jobs/twice", "s3://reports/twice", ReportOptions(formats=("json",)), 1_772_323_200 * 10**9)
    with engines.executor("processes", workers=2) as pool:
        first, second = [future.result(120) for future in [pool.submit(work.report_run, task) for _ in range(2)]]
    assert (first.state, first.folder, first.verdicts) == (second.state, second.folder, second.verdicts)
    out = open_objects("s3://reports/twice")
    assert [one.path for one in out.list()] == [f"{first.folder}/report.json", "runs/a/done.json", "runs/a/latest/report.json"]
    assert rows_of(out)["a"] in [json.loads(json.dumps(row.to_json())) for row in (first, second)]


@pytest.mark.parametrize("skew_s", [-200, 200, 400])
def test_claims_of_machines_whose_clocks_differ(skew_s: int) -> None:
    """Up to a lease nobody takes a claim of others; beyond it, work is done twice.

    Each gives back only its own claims.
    """
    out = open_objects(f"s3://reports/clocks{skew_s}")
    with Claims(out) as here, Claims(out, clock=lambda: time.time_ns() + skew_s * 10**9) as there:
        assert here.take("claim.json")
        assert there.take("claim.json") == (skew_s > 300)
        here.give_back("claim.json")
        assert (out.head("claim.json") is None) == (skew_s <= 300)
    assert out.head("claim.json") is None
