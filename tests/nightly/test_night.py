"""A night does the due work once, whatever goes wrong with runs, with other nights, or with itself."""

from __future__ import annotations

import gc
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flaky_objects import FlakyObjects
from postrun.errors import InputError
from postrun.ingest.object_store.objects import ChangedError, Objects, ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import done_markers, places, shards
from postrun.nightly import night as nights
from postrun.nightly.claims import Claims
from postrun.nightly.model import ReportOptions, Row, Task, row_of
from postrun.nightly.night import Night, Wanted
from postrun.nightly.run_night import finished_by_others
from postrun.version import REPORT, __version__

DAY = 24 * 3600 * 10**9


class Sync(Executor):
    """Runs a task when it is submitted; the work counts how many were handed out at once."""

    def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Future:  # type: ignore[type-arg,override]
        future: Future[object] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class Work:
    """Does the same as report_run without a report: one file, then the marker. ``bad``: run -> its error for each attempt; a text is the
    reason of a failure for lack of disk."""

    def __init__(self, out: Objects, bad: Mapping[str, list[Any]] | None = None) -> None:
        self.out = out
        self.bad = dict(bad or {})
        self.done: Counter[str] = Counter()
        self.order: list[str] = []
        self.at_once = self.most = 0
        self.lock = threading.Lock()

    def __call__(self, task: Task) -> Row:
        with self.lock:
            self.order.append(task.run.id)
            self.done[task.run.id] += 1
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            script = self.bad.get(task.run.id, [])
            problem = script.pop(0) if script else None
        try:
            folder = places.report_folder(task.run, task.options)
            self.out.write(f"{folder}/report.html", task.run.id.encode())
            if isinstance(problem, BaseException):
                raise problem
            row = Row(
                task.run.id, "reported", task.run.kind, task.run.fingerprint, places.options_digest(task.options), task.run.bytes,
                len(task.run.objects), attempts=task.attempt, folder=folder, written=("report.html",), reported_at_ns=task.generated_at_ns,
                report_version=REPORT, postrun=__version__,
            )  # fmt: skip
            if isinstance(problem, str):
                return replace(row, state="failed", reason=problem, of_machine=True)
            self.out.write(places.done(task.run.id), done_markers.marker(row))
            return row
        finally:
            with self.lock:
                self.at_once -= 1


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for i in range(6):
        folder = tmp_path / "source" / f"run{i}"
        folder.mkdir(parents=True)
        (folder / "trace.json").write_bytes(b'{"traceEvents": []}' + b" " * i)
    return tmp_path / "source"


@pytest.fixture(params=["folder", "memory"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    return open_objects(tmp_path / "out" if request.param == "folder" else f"memory://{tmp_path.name}")


def wanted(source: Path, out: Objects, **options: object) -> Wanted:
    arguments = {"now_ns": 2**62, "settle_ns": 0, **options}
    return Wanted(str(source), out.url, **{"options": ReportOptions(), **arguments})  # type: ignore[arg-type]


def known(out: Objects) -> dict[str, Row]:
    results = {}
    for info in out.list("runs/"):
        if info.path.endswith("/done.json"):
            row = row_of(json.loads(out.read(info.path)))
            results[row.id] = row
    return results


def go(source: Path, out: Objects, work: Work | None = None, executor: Executor | None = None, **options: object) -> tuple[Night, Work]:
    work = work or Work(out)
    asked = wanted(source, out, **options)
    night = nights.plan(open_objects(source), out, asked, known(out))
    with Claims(out) as claims:
        nights.report(night, out, asked, executor or Sync(), work, claims)
    assert not [one.path for one in out.list() if one.path.endswith("claim.json")]
    return night, work


def whys(night: Night) -> dict[str, str]:
    return {one.run.id: one.why for one in night.decisions}


def test_everything_new_is_reported_biggest_first_and_then_nothing_is_due(source: Path, out: Objects) -> None:
    night, work = go(source, out)
    assert work.order == [f"run{i}" for i in reversed(range(6))]
    assert {row.id for row in night.rows} == set(known(out)) == {f"run{i}" for i in range(6)}
    night, work = go(source, out)
    assert work.order == []
    assert set(whys(night).values()) == {"unchanged"}
    assert night.rows == night.open == []


def test_a_run_is_reported_again_when_it_changes_and_its_old_report_stays(source: Path, out: Objects) -> None:
    go(source, out)
    before = known(out)["run3"].folder
    (source / "run3" / "rank1.trace.json").write_text("{}")
    (source / "new").mkdir()
    (source / "new" / "trace.json").write_text("{}")
    night, work = go(source, out)
    assert sorted(work.order) == ["new", "run3"]
    assert whys(night)["run3"] == "changed"
    after = known(out)["run3"]
    assert after.folder != before
    assert out.head(f"{before}/report.html")  # a link to it still works


def test_other_options_make_all_new_but_memory_and_threads_do_not(source: Path, out: Objects) -> None:
    go(source, out)
    assert go(source, out, options=ReportOptions(memory_limit="2GB", threads=2))[1].order == []
    night, work = go(source, out, options=ReportOptions(top=3))
    assert len(work.order) == 6
    assert set(whys(night).values()) == {"other options"}
    assert len(go(source, out, options=ReportOptions(top=3), force=True)[1].order) == 6


def test_a_run_that_fails_is_tried_once_more_alone_and_listed_and_left_alone(source: Path, out: Objects) -> None:
    work = Work(out, {"run1": [ValueError("first"), None], "run4": [InputError("nothing usable"), InputError("nothing usable found")]})
    with ThreadPoolExecutor(4) as threads:
        night, _ = go(source, out, work, threads, in_flight=4)
    assert work.done == {f"run{i}": 2 if i in (1, 4) else 1 for i in range(6)}
    assert set(work.order[-2:]) == {"run1", "run4"}
    rows = known(out)
    assert (rows["run1"].state, rows["run1"].attempts) == ("reported", 2)
    assert (rows["run4"].state, rows["run4"].attempts, rows["run4"].reason) == ("failed", 2, "nothing usable found")
    assert rows["run4"].folder is None
    assert [row.id for row in night.failed] == ["run4"]
    assert go(source, out)[1].order == []
    assert go(source, out, retry_failed=True)[1].order == ["run4"]
    assert known(out)["run4"].state == "reported"


def test_a_run_that_fails_for_want_of_disk_is_tried_again_the_next_night(source: Path, out: Objects) -> None:
    night, work = go(source, out, Work(out, {"run3": ["no space left", "no space left"]}))
    assert work.done["run3"] == 2
    assert [(row.id, row.reason) for row in night.failed] == [("run3", "no space left")]
    assert [(row.id, row.state) for row in night.open] == [("run3", "failed")]
    assert "run3" not in known(out)
    assert go(source, out)[1].order == ["run3"]
    assert known(out)["run3"].state == "reported"


def test_an_error_of_the_store_is_not_remembered(source: Path, out: Objects) -> None:
    gone = ChangedError("run2/trace.json: replaced while it was read")
    night, _ = go(source, out, Work(out, {"run2": [gone, gone]}))
    assert [(row.id, row.reason) for row in night.failed] == [("run2", str(gone))]
    assert [row.id for row in night.open] == ["run2"]
    assert "run2" not in known(out)
    assert go(source, out)[1].order == ["run2"]


@pytest.mark.parametrize("error", [SystemExit(3), MemoryError(), RecursionError("deep"), Exception()])
def test_whatever_a_run_raises_the_others_are_reported(source: Path, out: Objects, error: BaseException) -> None:
    night, _ = go(source, out, Work(out, {"run5": [error, error]}))
    assert len(night.rows) == 6
    (failed,) = night.failed
    assert failed.reason == (str(error) or type(error).__name__)


def test_no_more_than_asked_are_in_flight_and_all_workers_are_used(source: Path, out: Objects) -> None:
    gate = threading.Barrier(3, timeout=20)

    class Gated(Work):
        def __call__(self, task: Task) -> Row:
            gate.wait()
            return super().__call__(task)

    with ThreadPoolExecutor(8) as threads:
        _, work = go(source, out, Gated(out), threads, in_flight=3)
    assert work.most <= 3
    assert len(work.order) == 6


def test_after_too_many_failures_the_rest_waits(source: Path, out: Objects) -> None:
    bad = {f"run{i}": [ValueError("bad")] * 2 for i in range(6)}
    night, work = go(source, out, Work(out, bad), max_failures=1)
    assert sorted(work.done) == ["run4", "run5"]
    assert "more than 1 run" in (night.stopped or "")
    assert {row.id: row.state for row in night.open} == {f"run{i}": "waiting" for i in range(4)}
    assert go(source, out)[1].done.keys() == {f"run{i}" for i in range(4)}


def test_a_limit_lets_the_longest_waiting_come_first(source: Path, out: Objects) -> None:
    import os

    for i in range(6):
        os.utime(source / f"run{i}" / "trace.json", (1_000 + i, 1_000 + i))
    night, work = go(source, out, limit=2)
    assert sorted(work.order) == ["run0", "run1"]
    assert all("--limit" in (row.reason or "") for row in night.open)
    assert sorted(go(source, out, limit=2)[1].order) == ["run2", "run3"]


def test_workers_that_cannot_go_on_end_the_night_not_the_program(source: Path, out: Objects) -> None:
    class Broken(Sync):
        left = 2

        def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Future:  # type: ignore[type-arg]
            self.left -= 1
            if self.left < 0:
                raise BrokenProcessPool("all workers are gone")
            return super().submit(fn, *args, **kwargs)

    night, work = go(source, out, executor=Broken())
    assert len(work.order) == len(night.rows) == 2
    assert "all workers are gone" in (night.stopped or "")
    assert {row.state for row in night.open} == {"waiting"}
    assert len(go(source, out)[1].order) == 4


def test_a_night_that_was_ended_is_resumed(source: Path, out: Objects) -> None:
    class Ended(Work):
        def __call__(self, task: Task) -> Row:
            if len(self.order) == 3:
                raise KeyboardInterrupt
            return super().__call__(task)

    class Through(Sync):
        def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Future:  # type: ignore[type-arg]
            future: Future[object] = Future()
            future.set_result(fn(*args, **kwargs))
            return future

    with pytest.raises(KeyboardInterrupt):
        go(source, out, Ended(out), Through())
    assert len(known(out)) == 3
    assert len(go(source, out)[1].order) == 3
    assert len(known(out)) == 6


def test_a_report_without_its_marker_is_made_again(source: Path, out: Objects) -> None:
    night, _ = go(source, out)
    out.delete("runs/run2/done.json")
    out.write("runs/run4/done.json", b'{"id": "run4", "sta')
    rows = {run_id: row for run_id, row in ((f"run{i}", done_markers.read_row(out, f"run{i}")) for i in range(6)) if row}
    assert rows.keys() == {"run0", "run1", "run3", "run5"}
    asked = wanted(source, out)
    night = nights.plan(open_objects(source), out, asked, rows)
    assert sorted(one.run.id for one in night.decisions if one.due) == ["run2", "run4"]


def test_garbage_is_collected_rarely_while_runs_are_searched(source: Path, out: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, during, decide = gc.get_threshold(), set(), nights.decide
    monkeypatch.setattr(nights, "decide", lambda *words: during.add(gc.get_threshold()[0]) or decide(*words))
    nights.plan(open_objects(source), out, wanted(source, out), {})
    assert all(threshold > 10 * usual[0] for threshold in during)
    assert len(during) == 1
    assert gc.get_threshold() == usual


def test_two_nights_at_once_share_the_runs(source: Path, out: Objects) -> None:
    work = Work(out)
    asked = wanted(source, out, in_flight=2)
    plans = [nights.plan(open_objects(source), out, asked, known(out)) for _ in range(2)]
    assert all(len([one for one in night.decisions if one.due]) == 6 for night in plans)
    start = threading.Barrier(2)

    def run_night(night: Night) -> None:
        with Claims(out) as claims, ThreadPoolExecutor(2) as threads:
            start.wait()
            nights.report(night, out, asked, threads, work, claims)

    night_threads = [threading.Thread(target=run_night, args=(night,)) for night in plans]
    for thread in night_threads:
        thread.start()
    for thread in night_threads:
        thread.join()
    assert work.done == {f"run{i}": 1 for i in range(6)}
    assert sorted(row.id for night in plans for row in night.rows) == [f"run{i}" for i in range(6)]
    for night in plans:
        waiting = {row.id for row in night.open}
        assert waiting | {row.id for row in (*night.rows, *night.elsewhere)} == {f"run{i}" for i in range(6)}
        assert all("another night" in (row.reason or "") for row in night.open)
    assert not [one.path for one in out.list() if one.path.endswith("claim.json")]


def test_a_run_that_another_night_has_finished_meanwhile_is_not_open(source: Path, out: Objects) -> None:
    asked, work = wanted(source, out), Work(out)
    night = nights.plan(open_objects(source), out, asked, known(out))
    with Claims(out) as second_night:
        assert second_night.take(places.claim("run3"))
        assert second_night.take(places.claim("run4"))
        with Claims(out) as claims:
            nights.report(night, out, asked, Sync(), work, claims)
    assert sorted(row.id for row in night.open) == ["run3", "run4"]
    go(source, out, limit=1)  # run3, as the other night does after this one looked at it
    finished_by_others(night, known(out), places.options_digest(asked.options))
    assert ([row.id for row in night.elsewhere], [row.id for row in night.open]) == (["run3"], ["run4"])


def test_runs_of_another_night_that_is_killed_come_free(source: Path, out: Objects) -> None:
    path = places.claim("run3")
    dead = Claims(out, clock=lambda: 1)
    assert dead.take(path)
    out.write(path, json.dumps({**json.loads(out.read(path)), "host": "another-machine"}).encode())
    night, work = go(source, out)
    assert len(work.order) == 6
    assert night.open == []
    dead.__exit__(None, None, None)


def test_a_night_that_dies_under_another_host_name_leaves_nothing(source: Path, out: Objects) -> None:
    """A restarted pod finds claims of a host that no longer exists.

    The run of a living night is left to it."""
    with Claims(out, lease_s=3) as gone:
        for run in ("run1", "run3", "run4"):
            path = places.claim(run)
            assert gone.take(path)
            out.write(path, json.dumps({**json.loads(out.read(path)), "host": "pod-1", "night": "dead"}).encode())
        living = places.claim("run4")
        out.write(living, json.dumps({**json.loads(out.read(living)), "night": gone.night}).encode())
        asked, work = wanted(source, out), Work(out)
        night = nights.plan(open_objects(source), out, asked, known(out))
        with Claims(out, lease_s=3) as claims:
            nights.report(night, out, asked, Sync(), work, claims)
    assert sorted(work.order) == ["run0", "run1", "run2", "run3", "run5"]
    assert [row.id for row in night.open] == ["run4"]


def test_shards_divide_the_runs(source: Path, out: Objects) -> None:
    actual = [set(whys(nights.plan(open_objects(source), out, wanted(source, out, shard=(i, 3)), {}))) for i in range(3)]
    assert sorted(run for shard in actual for run in shard) == [f"run{i}" for i in range(6)]
    # The same on every machine, for ever: shards of one night may run different versions.
    assert [shards.shard_of(text, 7) for text in ("a", "b/c", "März", ".")] == [
        int.from_bytes(bytes.fromhex(digest), "big") % 7
        for digest in ("ca978112ca1bbdca", "b9e2beb9a0cdd309", "86ac4d6762519c9d", "cdb4ee2aea69cc6a")
    ]


def test_tickets_of_a_run_survive_its_next_report(source: Path, out: Objects) -> None:
    """They link to latest/, which the next report replaces."""
    go(source, out)
    done_markers.record_ticket(out, known(out)["run1"], "jira:PERF 12")
    done_markers.record_ticket(out, replace(known(out)["run1"], fingerprint="another"), "jira:PERF 13")  # reported again meanwhile
    asked = wanted(source, out, force=True)
    due = next(one for one in nights.plan(open_objects(source), out, asked, known(out)).decisions if one.run.id == "run1")
    with Claims(out) as claims:
        task = nights._Handing(Night(), out, asked, Sync(), Work(out), claims, lambda row, done, of: None)._task(due, 1)
    assert task.tickets == ("jira:PERF 12",)


def test_another_version_redoes_reports_only_if_asked(source: Path, out: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrade makes no run due, except those that failed before."""
    go(source, out)
    failed = replace(known(out)["run2"], state="failed", reason="the file is cut", folder=None)
    out.write(places.done("run2"), done_markers.marker(failed))
    monkeypatch.setattr(nights, "__version__", "0.2.0")
    night = nights.plan(open_objects(source), out, wanted(source, out, redo=True), known(out))
    assert {run for run, why in whys(night).items() if why != "unchanged"} == {"run2"}
    monkeypatch.setattr(nights, "REPORT", nights.REPORT + 1)
    night = nights.plan(open_objects(source), out, wanted(source, out), known(out))
    assert {run: why for run, why in whys(night).items() if why != "unchanged"} == {"run2": "failed before"}
    night = nights.plan(open_objects(source), out, wanted(source, out, redo=True), known(out))
    assert {why for run, why in whys(night).items() if run != "run2"} == {"earlier version"}
    out.write(places.done("run3"), done_markers.marker(replace(known(out)["run3"], folder=None, written=())))  # pruned
    night = nights.plan(open_objects(source), out, wanted(source, out, redo=True), known(out))
    assert whys(night)["run3"] == "unchanged"


def test_since_and_until_are_of_the_newest_object(source: Path, out: Objects) -> None:
    import os

    for i in range(6):
        os.utime(source / f"run{i}" / "trace.json", ns=(i * DAY, i * DAY))
    night = nights.plan(open_objects(source), out, wanted(source, out, since_ns=2 * DAY, until_ns=4 * DAY), {})
    assert set(whys(night)) == {"run2", "run3"}
    assert night.gone == ()


def test_a_run_that_is_written_to_keeps_its_last_report(source: Path, out: Objects) -> None:
    go(source, out)
    (source / "run1" / "trace.json").write_text("{} ")
    (source / "run7").mkdir()
    (source / "run7" / "trace.json").write_text("{}")
    now = (source / "run7" / "trace.json").stat().st_mtime_ns + 10**9
    night, work = go(source, out, now_ns=now, settle_ns=3600 * 10**9)
    assert work.order == []
    by_id = {row.id: row for row in night.open}
    assert by_id.keys() == {"run1", "run7"}
    assert by_id["run7"].state == "running"
    assert by_id["run7"].reason == "no end marker, and files were written less than --settle ago"
    assert by_id["run1"].state == "reported"
    assert any("has changed since" in text for text in by_id["run1"].warnings)


def test_runs_whose_files_are_gone_are_told(source: Path, out: Objects) -> None:
    go(source, out)
    (source / "run5" / "trace.json").unlink()
    night, work = go(source, out)
    assert night.gone == ("run5",)
    assert work.order == []


def test_json_that_is_no_trace_is_no_run(source: Path, out: Objects) -> None:
    for name, text in (
        ("notes", '{"a": 1}'),
        ("odd", '{"schemaVersion": 1, "traceEvents": [{"ph": "X"}]}'),
        ("list", '[{"ph": "X", "ts": 1}]'),
    ):
        (source / name).mkdir()
        (source / name / "data.json").write_text(text)
    night = nights.plan(open_objects(source), out, wanted(source, out), {})
    assert {"odd", "list"} <= set(whys(night))
    assert "notes" not in whys(night)


def test_reports_beside_the_runs_are_no_runs(source: Path) -> None:
    for below in ("", "reports"):
        out = open_objects(source / below if below else source)
        go(source, out)
        night, work = go(source, out)
        assert set(whys(night)) == {f"run{i}" for i in range(6)}
        assert work.order == []


def test_an_output_that_cannot_be_written_is_told_at_once(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file"):
        go(source, open_objects(tmp_path / "file"))


@pytest.mark.parametrize("seed", range(12))
def test_nights_on_a_store_that_fails_come_to_an_end_and_no_marker_is_ahead_of_its_report(source: Path, out: Objects, seed: int) -> None:
    flaky = FlakyObjects(out, seed)
    for day in range(60):
        rows = known(out)
        asked = wanted(source, out, in_flight=2)
        night = nights.plan(open_objects(source), flaky, asked, rows)
        due = [one for one in night.decisions if one.due]
        with Claims(flaky, clock=lambda day=day: (day + 1) * DAY) as claims, ThreadPoolExecutor(2) as threads, suppress(ObjectStoreError):
            nights.report(night, flaky, asked, threads, Work(flaky), claims)
        for row in known(out).values():
            assert row.state == "reported"
            assert out.head(f"{row.folder}/report.html")
        if not due:
            break
    assert set(known(out)) == {f"run{i}" for i in range(6)}


def test_the_index_shows_that_the_machine_failed(source: Path, out: Objects) -> None:
    night, _ = go(source, out, Work(out, {"run1": ["no room", "no room"], "run2": [ValueError("bad"), ValueError("bad")]}))
    assert {row.id: row.of_machine for row in night.failed} == {"run1": True, "run2": False}
    assert [(row.id, row.of_machine) for row in night.open] == [("run1", True)]
