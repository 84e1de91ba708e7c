"""A source whose path contains the date: only the days in question are listed, and runs of other days are left as they are."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from call_nightly import nightly, told
from postrun.errors import UsageError
from postrun.nightly.dated import divided, prefixes
from small_s3 import small_s3
from swift_server import clean_environment

NOW = int(datetime(2026, 11, 20, 6, tzinfo=UTC).timestamp()) * 10**9
DAY = 86_400 * 10**9


@pytest.mark.parametrize(
    ("source", "undated", "pattern"),
    [
        ("s3://bucket/runs", "s3://bucket/runs", None),
        ("s3://bucket/{yyyy}/{mm}/{dd}/", "s3://bucket", "{yyyy}/{mm}/{dd}/"),
        ("s3://bucket/a/run-{yyyy}{mm}{dd}", "s3://bucket/a", "run-{yyyy}{mm}{dd}"),
        ("s3://bucket/a/{name}/{yyyy}/x", "s3://bucket/a/{name}", "{yyyy}/x"),
        ("/data/{yyyy}/{mm}", "/data", "{yyyy}/{mm}"),
        ("/{yyyy}", "/", "{yyyy}"),
        ("{yyyy}-{mm}", ".", "{yyyy}-{mm}"),
    ],
)
def test_the_date_in_a_path(source: str, undated: str, pattern: str | None) -> None:
    assert divided(source) == (undated, pattern)


@pytest.mark.parametrize("source", ["s3://bucket/{mm}/{dd}", "s3://bucket/{yyyy}/{dd}", "s3://runs-{yyyy}/a"])
def test_dates_that_say_too_little(source: str) -> None:
    with pytest.raises(UsageError, match=r"\{yyyy\}/\{mm\}/\{dd\}"):
        divided(source)


def test_the_days_of_a_time_and_one_around_it() -> None:
    days = [f"2026/11/{day:02}/" for day in range(12, 22)]
    assert prefixes("{yyyy}/{mm}/{dd}/", None, None, NOW) == tuple(days)  # a week before the 20th
    assert prefixes("{yyyy}/{mm}/{dd}/", NOW - 2 * DAY, NOW - DAY, NOW) == tuple(days[5:9])
    assert prefixes("{dd}.{mm}.{yyyy}", NOW, None, NOW) == ("19.11.2026", "20.11.2026", "21.11.2026")
    assert prefixes("{yyyy}-{mm}/", NOW - 60 * DAY, None, NOW) == ("2026-09/", "2026-10/", "2026-11/")
    with pytest.raises(UsageError, match="contain no day"):
        prefixes("{yyyy}/", NOW, NOW - 9 * DAY, NOW)


def trace(job: str) -> bytes:
    event = {"ph": "X", "cat": "kernel", "name": job, "pid": 1, "tid": 1, "ts": 1_700_000_000_000_000, "dur": 20}
    return json.dumps({"traceEvents": [event]}).encode()


def path_of(days_ago: int) -> str:
    return f"{datetime.now(UTC) - timedelta(days=days_ago):%Y/%m/%d}"


def test_a_night_over_dated_folders(tmp_path: Path) -> None:
    for days, job in ((1, "new"), (3, "older"), (40, "old")):
        folder = tmp_path / "runs" / path_of(days) / job
        folder.mkdir(parents=True)
        (folder / "trace.json").write_bytes(trace(job))
    source, words = (
        tmp_path / "runs" / "{yyyy}/{mm}/{dd}",
        ["--out", tmp_path / "out", "--format", "json", "--engine", "none", "--settle", "0"],
    )
    new, older, old = f"{path_of(1)}/new", f"{path_of(3)}/older", f"{path_of(40)}/old"
    assert sorted(told(source, *words)["reported"]) == sorted([new, older])
    everything = told(tmp_path / "runs", *words)
    assert (everything["reported"], everything["gone"]) == ([old], [])  # the ids are the same
    for path in (new, old):
        (tmp_path / "runs" / path / "trace.json").unlink()
    assert told(source, *words)["gone"] == [new]  # the old one was not looked for
    assert sorted(told(tmp_path / "runs", *words)["gone"]) == sorted([new, old])


def test_days_without_a_run_are_no_error_once_there_are_reports(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / path_of(40) / "job"
    folder.mkdir(parents=True)
    (folder / "trace.json").write_bytes(trace("job"))
    words = ["--out", tmp_path / "out", "--format", "json", "--engine", "none", "--settle", "0"]
    template = f"{tmp_path}/runs/{{yyyy}}/{{mm}}/{{dd}}"
    first = nightly(template, *words)
    assert (first.exit_code, "no run found" in first.stderr) == (0, True)
    os.utime(folder / "trace.json")
    assert nightly(template, *words, "--since", "50d").exit_code == 0
    done = nightly(template, *words)
    assert (done.exit_code, "1 run in the index" in done.output) == (0, True)


def test_other_days_of_a_bucket_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_CONFIG_FILE": "/dev/null"}
    with small_s3("runs", "reports") as server:
        clean_environment(monkeypatch, {**keys, "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_ENDPOINT_URL": server.endpoint})
        server.buckets["runs"] = {f"farm/{path_of(days)}/job/trace.json": trace("a") for days in (0, 2, 100)}
        source = "s3://runs/farm/{yyyy}/{mm}/{dd}/"
        plan = told(source, "--out", "s3://reports", "--settle", "0", "--dry-run")
        assert [run["id"] for run in plan["runs"]] == [f"{path_of(days)}/job" for days in (2, 0)]
        of_source = [query["prefix"] for query in server.listed if query["prefix"].startswith("farm/")]
        assert sorted(of_source) == sorted(f"farm/{path_of(days)}/" for days in range(-1, 9))
