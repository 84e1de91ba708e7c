"""Shards list their own folders, and all of them together report each run once, with all of its files."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from postrun.ingest.object_store import ranges
from postrun.ingest.object_store.objects import ObjectInfo, Objects
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import night as nights
from postrun.nightly import shards
from postrun.nightly.discover import found_runs
from postrun.nightly.model import FoundRun, ReportOptions, Row
from postrun.nightly.night import Night, Wanted
from postrun.nightly.shards import Shard, shard_of
from slow_params import slow_except
from small_s3 import SmallS3, small_s3
from swift_server import clean_environment

TRACE = b'{"traceEvents": []}'


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide every source with a folder per shard."""
    monkeypatch.setattr(shards, "_SMALL", 0)
    monkeypatch.setattr(shards, "_PER_SHARD", 1)


def filled(objects: Objects, paths: Sequence[str]) -> Objects:
    for path in paths:
        objects.write(path, TRACE)
    return objects


def search(listing: Iterator[ObjectInfo]) -> Iterator[FoundRun]:
    return found_runs(listing, now_ns=2**62, settle_ns=0)


def of_shard(source: Objects, number: int, count: int) -> tuple[list[FoundRun], bool]:
    shard = Shard(source, number, count)
    runs = [run for run in shard.runs(search, shard.listing()) if shard.has(run.id)]
    return runs, shard.divided


def check(source: Objects, count: int) -> bool:
    """Compare all shards with a search without; return whether they are divided."""
    parts = [of_shard(source, number, count) for number in range(count)]
    runs = [run for part, _ in parts for run in part]
    assert sorted(runs, key=lambda run: run.id) == sorted(search(source.list()), key=lambda run: run.id)
    assert len({was for _, was in parts}) == 1
    return parts[0][1]


def plan(source: Objects, out: Objects, shard: tuple[int, int] | None, known: dict[str, Row] | None = None) -> Night:
    return nights.plan(source, out, Wanted(source.url, out.url, ReportOptions(), now_ns=2**62, settle_ns=0, shard=shard), known or {})


NAMES = [
    "team-a", "team-b", "gpunode12", "gpunode7", "job-1", "job-2", "2026", "11", "rank0", "rank1", "logs", "system/incremental/2026112006",
    "framework/pevents/2026112006", "profiler-output", "plugins/profile/2026_11_20", "ip-10-0-0-7", "checkpoints", "a", "a-", "a0", "ü",
]  # fmt: skip
FILES = [
    "trace.json", "worker0.pt.trace.json.gz", "job.json", "1795154400.algo-1.json", "nvidia-smi.csv",
    "gpunode12_7.1795154400123.pt.trace.json",
    "gpunode7.11.1795154400.prt", "training_job_end.ts", "x.json", "readme.txt", "host.trace.json.gz", "store.duckdb", "model.bin",
    ".postrun-run/rank-0", "python_stats",
]  # fmt: skip


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", slow_except(range(8), range(60)))
def test_every_run_once_with_all_of_its_files(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(shards, "_REQUESTS", chance.choice([1, 5, 30]))
    folders = ["/".join(chance.choices(NAMES, k=chance.randint(1, 4))) for _ in range(25)]
    if seed % 10 == 0:
        folders.append("")
    paths = {f"{folder}/{chance.choice(FILES)}".lstrip("/") for folder in folders for _ in range(3)}
    paths = {path for path in paths if not any(longer.startswith(f"{path}/") for longer in paths)}
    source = filled(open_objects(tmp_path if seed % 2 else f"memory://{tmp_path.name}"), sorted(paths))
    check(source, chance.choice([2, 3, 5]))


@pytest.mark.usefixtures("small")
def test_a_run_is_with_the_shard_of_its_folder(tmp_path: Path) -> None:
    names = [f"team-{team}/job-{job}" for team in range(3) for job in range(20)]
    source = filled(open_objects(tmp_path), [f"{name}/rank{rank}/trace.json" for name in names for rank in range(2)])
    for number in range(4):
        runs, divided = of_shard(source, number, 4)
        assert divided
        # A job may have come since: each job is where its name puts it, whatever the others are.
        assert [run.id for run in runs] == [name for name in sorted(names) if shard_of(f"{name}/", 4) == number]
        assert {len(run.objects) for run in runs} == {2}


@pytest.mark.usefixtures("small")
def test_machines_of_a_run_that_no_name_reveals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only the files in the folders show it, and the requests do not reach these."""
    monkeypatch.setattr(shards, "_REQUESTS", 1 + 6)
    hosts = [f"gpunode{number}" for number in range(8)]
    paths = [f"job-{job}/{host}/{host}_7.1795154400123.pt.trace.json" for job in range(6) for host in hosts]
    source = filled(open_objects(tmp_path), paths)
    assert check(source, 3)
    ids = Counter(run.id for number in range(3) for run in of_shard(source, number, 3)[0])
    assert ids == Counter(f"job-{job}" for job in range(6))


@pytest.mark.parametrize(
    ("paths", "folders"),
    [
        ([f"job-{number}/trace.json" for number in range(32)], 32),
        ([f"all/deep/job-{number}/trace.json" for number in range(32)], 32),
        ([f"job-{number}/trace.json" for number in range(31)], None),  # too few for four shards
        ([*(f"job-{number}/trace.json" for number in range(32)), "trace.json"], None),  # the source is a run itself
        ([f"rank{number}/trace.json" for number in range(32)], None),
        ([f"team-{team}/job-{job}/trace.json" for team in range(40) for job in range(5)], 40),
        # One team has more than a quarter of the jobs.
        ([*(f"team-{team}/job-0/trace.json" for team in range(40)), *(f"team-0/job-{job}/trace.json" for job in range(15))], 54),
        # The months are few; days divide nothing.
        ([f"2026/{month:02}/{day:02}/job/trace.json" for month in range(1, 13) for day in range(1, 29)], None),
        ([f"2026/{month:02}/{day:02}/job/trace.json" for month in range(1, 5) for day in range(1, 29)], 112),
        ([f"dt=2026-1{month}-{day:02}/{job}/trace.json" for month in range(3) for day in range(1, 29) for job in "abcd"], 336),
    ],
)
def test_the_folders_of_all_shards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, paths: list[str], folders: int | None) -> None:
    monkeypatch.setattr(shards, "_SMALL", 0)
    source = filled(open_objects(f"memory://{tmp_path.name}"), paths)
    assert check(source, 4) is (folders is not None)
    shard = Shard(source, 0, 4)
    list(shard.listing())
    assert folders is None or (shard._inside is not None and len(shard._inside.sorted) == folders)


def test_folders_of_days_that_are_not_looked_into_divide_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shards, "_SMALL", 0)
    monkeypatch.setattr(shards, "_REQUESTS", 1)
    days = [f"{month}-{day:02}" for month in ("2026-09", "2026-10", "2026-11") for day in range(1, 29)]
    assert not check(filled(open_objects(f"memory://{tmp_path.name}"), [f"{day}/job/trace.json" for day in days]), 4)


def test_a_small_source_is_listed_by_each_shard(tmp_path: Path) -> None:
    source = filled(open_objects(f"memory://{tmp_path.name}"), [f"job-{number}/trace.json" for number in range(100)])
    assert not check(source, 2)
    assert {shard_of(run.id, 2) for run in of_shard(source, 1, 2)[0]} == {1}


@pytest.mark.usefixtures("small")
def test_runs_that_are_gone(tmp_path: Path) -> None:
    source, out = open_objects(tmp_path / "in"), open_objects(tmp_path / "out")
    filled(source, [f"team-{team}/job-{job}/trace.json" for team in range(4) for job in range(8)])
    ids = ["team-0/job-1", "team-0/old", "team-9/job-1", "team-1", ".", "team-2/job-3/attempt"]
    known = {run_id: Row(run_id, "reported", "traces", "f", "o", 1, 1) for run_id in ids}
    gone = [set(plan(source, out, (number, 5), known).gone) for number in range(5)]
    # No folder of these is left, as every shard sees.
    assert set.intersection(*gone) == {"team-0/old", "team-9/job-1"}
    # This folder is left, and its shard knows that the run in it is not. Of runs above all folders no shard knows it.
    assert sorted(run for part in gone for run in part if run not in ("team-0/old", "team-9/job-1")) == ["team-2/job-3/attempt"]
    assert set(plan(source, out, None, known).gone) == set(ids) - {"team-0/job-1"}


@pytest.mark.usefixtures("small")
def test_reports_and_run_stores_below_the_source(tmp_path: Path) -> None:
    source, out = open_objects(tmp_path), open_objects(tmp_path / "reports")
    filled(source, [f"job-{number}/trace.json" for number in range(40)])
    filled(source, ["job-40/store.duckdb", "job-41/a.nsys-rep", "reports/runs/x/trace.json", "stray.nsys-rep"])
    parts = [plan(source, out, (number, 3)) for number in range(3)]
    assert sorted(one.run.id for part in parts for one in part.decisions) == sorted(f"job-{number}" for number in range(40))
    assert Counter(line.partition(":")[0] for part in parts for line in part.not_read) == Counter(
        ["job-40/store.duckdb", "job-41/a.nsys-rep", "stray.nsys-rep"]
    )
    assert all(part.divided for part in parts)


def connected(monkeypatch: pytest.MonkeyPatch, server: SmallS3) -> Objects:
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_CONFIG_FILE": "/dev/null"}
    clean_environment(monkeypatch, {**keys, "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_ENDPOINT_URL": server.endpoint})
    return open_objects("s3://bucket/runs")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("jobs", "files"), [(40, 90), (600, 6)])
def test_a_shard_of_a_bucket_requests_its_own_pages(monkeypatch: pytest.MonkeyPatch, jobs: int, files: int) -> None:
    monkeypatch.setattr(ranges, "_PARTS", 8)  # more folders than this are not requested one by one
    with small_s3("bucket") as server:
        server.most = 100
        source = connected(monkeypatch, server)
        paths = [f"job-{job:03}/{file:03}.bin" for job in range(jobs) for file in range(files)]
        paths += [f"job-{job:03}/trace.json" for job in range(jobs)]
        server.buckets["bucket"] = {f"runs/{path}": b"x" for path in paths} | {"other": b"", "runs/": b""}
        list(source.list())
        alone = len(server.listed)
        counts = []
        for number in range(4):
            server.listed.clear()
            shard = Shard(source, number, 4)
            listed = [info.path for info in shard.listing()]
            of_shard_only = {f"job-{job:03}/" for job in range(jobs) if shard_of(f"job-{job:03}/", 4) == number}
            assert shard.divided
            assert listed == [path for path in sorted(paths) if path[:8] in of_shard_only]
            counts.append(len(server.listed))
        assert max(counts) < alone * (0.6 if jobs < 256 else 1.2) + (jobs if jobs < 256 else 1)
        assert check(source, 4)


def test_a_bucket_with_odd_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "_SMALL", 0)
    monkeypatch.setattr(shards, "_PER_SHARD", 1)
    with small_s3("bucket") as server:
        source = connected(monkeypatch, server)
        names = [f"job {number}+ü" for number in range(9)]
        server.buckets["bucket"] = {f"runs/{name}/trace.json": TRACE for name in names}
        server.buckets["bucket"] |= {"runs/job 3//trace.json": TRACE, "runs//trace.json": TRACE, "runs/../x/trace.json": TRACE}
        assert check(source, 2)
        assert {line.partition(": ")[2] for line in source.left_out} == {
            "an empty part in the name",
            "a part . or .. in the name",
            "an empty name",
        }
