"""Retention removes the reports that a policy names, nothing that a ticket links to, and no run becomes due by it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from postrun.cli import main
from postrun.ingest.object_store.folder import Folder
from postrun.ingest.object_store.objects import Objects, ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import done_markers, outbox, places
from postrun.nightly.claims import Claims
from postrun.nightly.model import Row
from postrun.nightly.prune import PRUNED, Policy, plan, remove, reports_of

DAY = 86_400 * 10**9


def put(out: Objects, run_id: str, day: int, *, versions: int = 1, size: int = 100, **more: Any) -> Row:
    """Write the files of a run that began on ``day``; its last version is the newest."""
    for version in range(versions):
        folder = f"{places.run_folder(run_id)}/{version:016x}-{'0' * 12}"
        out.write(f"{folder}/report.html", b"x" * size)
    out.write(f"{places.latest_folder(run_id)}/report.html", b"x" * size)
    base: dict[str, Any] = {"state": "reported", "kind": "traces", "fingerprint": "f", "options": "o", "bytes": 1, "files": 1}
    row = Row(id=run_id, folder=folder, written=("report.html",), **base | {"started_ns": day * DAY} | more)
    out.write(places.done(run_id), done_markers.marker(row))
    return row


@pytest.fixture
def out(tmp_path: Path) -> Objects:
    return open_objects(tmp_path / "out")


def chosen(out: Objects, rows: list[Row], **policy: Any) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the bytes that go by run, and the runs that tickets keep."""
    known = {row.id: row for row in rows}
    planned = plan(known, reports_of(out.list("runs/"), known), Policy(**policy))
    return {one.row.id: one.bytes for one in planned.removals}, planned.kept


def test_age_number_and_size(out: Objects) -> None:
    """Each run has 200 bytes: its version and its copy in latest."""
    rows = [put(out, f"gpt-{day}", day) for day in range(1, 6)] + [put(out, "bert-1", 2)]
    assert chosen(out, rows, before_ns=3 * DAY) == ({"gpt-1": 200, "gpt-2": 200, "bert-1": 200}, ())
    assert chosen(out, rows, keep=3) == ({"gpt-1": 200, "gpt-2": 200}, ())
    assert chosen(out, rows, most_bytes=850) == ({"gpt-1": 200, "bert-1": 200}, ())
    assert chosen(out, rows[::-1], most_bytes=850) == ({"gpt-1": 200, "bert-1": 200}, ())  # the oldest, in any order of the rows
    assert chosen(out, rows, most_bytes=1200) == ({}, ())
    assert chosen(out, rows, before_ns=2 * DAY, most_bytes=850) == ({"gpt-1": 200, "bert-1": 200}, ())
    assert chosen(out, rows, gone=frozenset({"gpt-4"})) == ({"gpt-4": 200}, ())


def test_age_counts_from_the_end_of_the_job(out: Objects) -> None:
    """No job ends after its report, by which it also counts without an end."""
    rows = [
        put(out, "long", 1, duration_ns=9 * DAY, reported_at_ns=11 * DAY),
        put(out, "short", 1, duration_ns=DAY, reported_at_ns=11 * DAY),
        put(out, "open", 1, reported_at_ns=11 * DAY),
        put(out, "failed", 1, state="failed", started_ns=None, reported_at_ns=4 * DAY),
        put(out, "clock ahead", 400, duration_ns=DAY, reported_at_ns=4 * DAY),
        put(out, "unknown", 1, state="failed", started_ns=None),
    ]
    early = {"failed": 200, "clock ahead": 200}
    assert chosen(out, rows, before_ns=5 * DAY) == ({"short": 200, **early}, ())
    assert chosen(out, rows, before_ns=10 * DAY) == ({"short": 200, **early}, ())
    assert chosen(out, rows, before_ns=10 * DAY + 1) == ({"long": 200, "short": 200, **early}, ())


def test_superseded_versions_go_and_the_newest_stays(out: Objects) -> None:
    rows = [put(out, "a", 1, versions=3), put(out, "b", 2)]
    assert chosen(out, rows, superseded=True) == ({"a": 200}, ())
    assert chosen(out, rows, superseded=True, most_bytes=300) == ({"a": 400}, ())
    assert chosen(out, rows, superseded=True, most_bytes=150) == ({"a": 400, "b": 200}, ())
    known = {row.id: row for row in rows}
    planned = plan(known, reports_of(out.list("runs/"), known), Policy(superseded=True))
    assert [one.row.id for one in remove(out, planned.removals)] == ["a"]
    assert {one.path for one in out.list("runs/a/")} == {"runs/a/done.json", "runs/a/latest/report.html", f"{rows[0].folder}/report.html"}


def test_a_failed_run_keeps_the_report_before(out: Objects) -> None:
    """Its row has no folder, or that of its log."""
    rows = [put(out, "a", 1, state="failed", reason="late"), put(out, "b", 2)]
    known = {"a": replace(rows[0], folder=None, written=()), "b": rows[1]}
    assert plan(known, reports_of(out.list("runs/"), known), Policy(superseded=True)).removals == ()
    assert chosen(out, rows, superseded=True) == ({}, ())
    # A failed run pushes out no report of its family.
    rows = [put(out, "gpt-1", 1), put(out, "gpt-2", 2, state="failed")]
    assert chosen(out, rows, keep=1) == ({}, ())


def failed(out: Objects, run_id: str, **more: Any) -> Row:
    """Write the logs of two failures of a run."""
    for version in "12":
        folder = f"{places.run_folder(run_id)}/{version * 16}-{'0' * 12}"
        out.write(f"{folder}/postrun.log", b"x" * 10)
    base: dict[str, Any] = {"kind": "traces", "fingerprint": "f", "options": "o", "bytes": 1, "files": 1, "reported_at_ns": 1}
    row = Row(id=run_id, state="failed", **base | {"folder": folder, "written": ("postrun.log",)} | more)
    out.write(places.done(run_id), done_markers.marker(row))
    return row


def test_the_log_of_an_earlier_failure_goes(out: Objects) -> None:
    rows = [failed(out, "a"), failed(out, "ticket", tickets=("jira:PERF 12",)), failed(out, "crash", folder=None, written=())]
    put(out, "b", 1)
    rows.append(failed(out, "b"))  # its former report stays
    assert chosen(out, rows, superseded=True) == ({"a": 10, "crash": 20, "b": 10}, ("ticket",))
    known = {row.id: row for row in rows}
    list(remove(out, plan(known, reports_of(out.list("runs/"), known), Policy(superseded=True)).removals))
    assert {one.path for one in out.list("runs/a/")} == {"runs/a/done.json", f"{rows[0].folder}/postrun.log"}
    assert chosen(out, rows, superseded=True) == ({}, ("ticket",))


def test_logs_of_failures_are_no_reports_that_are_too_large(out: Objects) -> None:
    rows = [failed(out, "a"), failed(out, "ticket", tickets=("jira:PERF 12",)), put(out, "b", 1)]
    assert chosen(out, rows, most_bytes=100) == ({"b": 200}, ())


def test_a_size_that_is_not_reached_is_reported(out: Objects, tmp_path: Path) -> None:
    put(out, "a", 1, size=2_000_000, tickets=("jira:PERF 12",))
    put(out, "b", 2, size=2_000_000)
    done = call(tmp_path / "out", "--most", "3MB")
    assert "note: 4.0 MB remain, more than the 3.0 MB of --most" in done.stderr
    assert done.stdout.splitlines()[-1].startswith("4.0 MB of 1 run would be removed")
    assert json.loads(call(tmp_path / "out", "--most", "3MB", "--json").stdout)["left_bytes"] == 4_000_000
    assert "remain" not in call(tmp_path / "out", "--most", "4MB").stderr


def test_files_of_a_removal_that_was_cut_off_go(out: Objects) -> None:
    row = put(out, "a", 1)
    assert chosen(out, [replace(row, folder=None, written=())], superseded=True) == ({"a": 200}, ())


def test_what_a_ticket_links_to_stays_unless_it_is_named(out: Objects) -> None:
    rows = [put(out, "a", 1, tickets=("jira:PERF 12",), versions=2), put(out, "b", 2)]
    assert chosen(out, rows, before_ns=9 * DAY) == ({"b": 200}, ("a",))
    assert chosen(out, rows, before_ns=9 * DAY, superseded=True) == ({"a": 100, "b": 200}, ("a",))
    assert chosen(out, rows, most_bytes=0) == ({"b": 200}, ("a",))
    assert chosen(out, rows, before_ns=9 * DAY, ticketed=True) == ({"a": 300, "b": 200}, ())


def test_what_a_message_that_waits_links_to_stays(out: Objects, tmp_path: Path) -> None:
    for day, name in enumerate("abc"):
        put(out, name, day)
    with Claims(out) as claims:
        outbox.new(out, claims, [outbox.Entry("slow", "key", "a", ("slower",), ()), outbox.Entry("slow", "all", None, (), ("2 runs",), 2)])
        listed = call(tmp_path / "out", "--older-than", "2026-08-01", "--delete")
    assert listed.stderr.startswith("note: 1 run kept: a ticket, sent or waiting, links to it; --ticketed removes it too")
    assert {one.path.split("/")[1] for one in out.list("runs/") if one.path.endswith("report.html")} == {"a"}
    assert call(tmp_path / "out", "--older-than", "2026-08-01", "--ticketed").stdout.startswith("a: 2 files")


def test_an_outbox_that_goes_or_is_damaged_meanwhile(out: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(out, "a", 1)
    path = f"nights/{'a' * 32}.outbox.json"
    out.write(path, b"{")
    done = CliRunner().invoke(main, ["nightly", "prune", str(tmp_path / "out"), "--keep", "1"])
    assert (done.exit_code, "it is unknown which reports wait; remove it" in done.output) == (4, True)
    assert call(tmp_path / "out", "--keep", "1", "--ticketed").stdout.startswith("0.0 MB of 0 runs")  # which protects none
    read = Folder.read

    def sent_meanwhile(self: Folder, wanted: str, **more: Any) -> bytes:
        if wanted == path:
            out.delete(path)
        return read(self, wanted, **more)

    monkeypatch.setattr(Folder, "read", sent_meanwhile)
    assert call(tmp_path / "out", "--keep", "1").stdout.startswith("0.0 MB of 0 runs")


def test_runs_in_the_folder_of_another_are_told_apart(out: Objects) -> None:
    """Runs may be called latest, or like the run above."""
    rows = [put(out, "a", 1), put(out, "a/latest", 2, size=1), put(out, "a/b", 3, size=10)]
    assert chosen(out, rows, most_bytes=22) == ({"a": 200}, ())
    assert chosen(out, rows, before_ns=9 * DAY) == ({"a": 200, "a/latest": 2, "a/b": 20}, ())


def test_a_run_that_another_night_has_or_has_reported_again_is_left(out: Objects) -> None:
    rows = [put(out, "a", 1), put(out, "b", 2), put(out, "c", 3)]
    known = {row.id: row for row in rows}
    planned = plan(known, reports_of(out.list("runs/"), known), Policy(before_ns=9 * DAY))
    with Claims(out) as night:
        assert night.take(places.claim("a"))
        put(out, "b", 2, fingerprint="g")
        assert [one.row.id for one in remove(out, planned.removals)] == ["c"]
    left = json.loads(out.read(places.done("c")))
    assert (left["folder"], left["written"], left["warnings"], left["state"]) == (None, [], [PRUNED], "reported")


def call(*arguments: Any) -> Any:
    done = CliRunner().invoke(main, ["nightly", "prune", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done


def test_the_command_lists_first_and_removes_when_told(tmp_path: Path, out: Objects) -> None:
    for day in (1, 2, 3):
        (tmp_path / "in" / f"gpt-{day}").mkdir(parents=True)
        (tmp_path / "in" / f"gpt-{day}" / "trace.json").write_text('{"traceEvents": []}')
        put(out, f"gpt-{day}", day)
    folder = tmp_path / "out"
    before = sorted(one.path for one in out.list())
    listed = call(folder, "--keep", "1")
    assert listed.stdout.splitlines() == [
        "gpt-1: 2 files, 0.0 MB: gpt has 1 newer run", "gpt-2: 2 files, 0.0 MB: gpt has 1 newer run",
        "0.0 MB of 2 runs would be removed; --delete does it",
    ]  # fmt: skip
    assert sorted(one.path for one in out.list()) == before
    data = json.loads(call(folder, "--keep", "1", "--delete", "--json").stdout)
    assert (data["deleted"], data["bytes"], [one["id"] for one in data["runs"]]) == (True, 400, ["gpt-1", "gpt-2"])
    assert not (folder / "index.json").exists()  # it has settings of the night that this command does not know
    assert call(folder, "--keep", "1").stdout.splitlines() == ["0.0 MB of 0 runs would be removed; --delete does it"]
    # A run that is gone is forgotten, also one that was pruned before; those that are pruned are known.
    for run in ("gpt-3", "gpt-1"):
        (tmp_path / "in" / run / "trace.json").unlink()
    call(folder, "--gone-from", tmp_path / "in", "--delete")
    assert sorted(one.path for one in out.list("runs/")) == ["runs/gpt-2/done.json"]
    # An empty source proves nothing; what cannot be read may be there.
    (tmp_path / "empty").mkdir()
    nothing = CliRunner().invoke(main, ["nightly", "prune", str(folder), "--gone-from", str(tmp_path / "empty"), "--delete"])
    assert (nothing.exit_code, "nothing is taken for gone" in nothing.stderr) == (4, True)
    # Nor does a folder with other runs, such as one below or above the source.
    (tmp_path / "other" / "in").mkdir(parents=True)
    shutil.copytree(tmp_path / "in" / "gpt-2", tmp_path / "other" / "in" / "gpt-2")
    wrong = CliRunner().invoke(main, ["nightly", "prune", str(folder), "--gone-from", str(tmp_path / "other"), "--delete"])
    assert (wrong.exit_code, "has none of the runs" in wrong.stderr) == (4, True)
    refused = CliRunner().invoke(main, ["nightly", "prune", str(folder)])
    assert (refused.exit_code, "--older-than, --keep" in refused.stderr) == (2, True)


def test_a_run_that_the_listing_left_out_is_not_gone(tmp_path: Path, out: Objects) -> None:
    """A link is not followed, so that its files may be there."""
    put(out, "linked", 1)
    put(out, "gone", 1)
    (tmp_path / "in" / "here").mkdir(parents=True)
    (tmp_path / "in" / "here" / "trace.json").write_text('{"traceEvents": []}')
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    data = json.loads(call(tmp_path / "out", "--gone-from", tmp_path / "in", "--json").stdout)
    assert [one["id"] for one in data["runs"]] == ["gone"]


def test_nothing_is_removed_through_a_link(tmp_path: Path, out: Objects) -> None:
    put(out, "a", 1)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("of someone else")
    (tmp_path / "out" / "runs" / "a" / f"{'f' * 16}-{'0' * 12}").symlink_to(tmp_path / "elsewhere")
    call(tmp_path / "out", "--superseded", "--older-than", "2026-01-01", "--delete")
    assert (tmp_path / "elsewhere" / "file").exists()
    assert not (tmp_path / "out" / "runs" / "a" / "latest" / "report.html").exists()


def test_a_wrong_place_and_damaged_markers_are_reported(tmp_path: Path, out: Objects) -> None:
    absent = CliRunner().invoke(main, ["nightly", "prune", str(tmp_path / "absent"), "--keep", "1"])
    assert (absent.exit_code, "no such folder" in absent.stderr) == (4, True)
    put(out, "a", 1)
    out.write(places.done("b"), b"{")
    done = call(tmp_path / "out", "--older-than", "2026-01-01")
    assert "runs/b/done.json: not as postrun nightly writes it" in done.stderr
    assert "1 run would be removed" in done.stdout


def test_another_folder_is_no_output(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["nightly", "prune", str(tmp_path), "--superseded"])
    assert (done.exit_code, done.stdout) == (4, "")
    assert "no run is reported there; give the --out" in done.stderr


def test_an_error_in_the_middle_does_not_hide_what_was_removed(out: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in (1, 2, 3):
        put(out, f"gpt-{day}", day)
    delete = Folder.delete

    def delete_until(folder: Folder, path: str) -> None:
        if path.startswith("runs/gpt-2/") and path.endswith(".html"):
            raise ObjectStoreError(f"{path}: the server answers with errors")
        delete(folder, path)

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "delete", delete_until)
        arguments = ["nightly", "prune", str(tmp_path / "out"), "--keep", "1", "--delete"]
        done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 4
    assert done.stdout.splitlines()[0].startswith("gpt-1: 2 files, ")
    assert "gpt-2" not in done.stdout
    assert "the server answers with errors" in done.stderr
    assert json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)["runs"][0]["id"] == "gpt-2"  # the rest goes next time


def test_empty_folders_go_and_no_others(tmp_path: Path, out: Objects) -> None:
    rows = [put(out, "team/a", 1, versions=2), put(out, "team/b", 1), put(out, "alone/deep/c", 1), put(out, ".", 1)]
    (tmp_path / "out/runs/team/b/latest/note.txt").write_text("of somebody else")
    known = {row.id: row for row in rows}
    gone = frozenset({"team/a", "team/b", "alone/deep/c"})
    list(remove(out, plan(known, reports_of(out.list("runs/"), known), Policy(gone=gone, before_ns=2 * DAY)).removals))
    left = sorted(str(path.relative_to(tmp_path / "out/runs")) for path in (tmp_path / "out/runs").rglob("*"))
    # The run "." is forgotten by no policy: its marker stays.
    assert left == ["_whole", "_whole/done.json", "team", "team/b", "team/b/latest", "team/b/latest/note.txt"]


def test_a_link_is_no_empty_folder(tmp_path: Path, out: Objects) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "out/runs").mkdir(parents=True)
    (tmp_path / "out/runs/a").symlink_to(tmp_path / "other")
    out.remove_empty("runs/a")
    assert (tmp_path / "other").is_dir()
    assert (tmp_path / "out/runs/a").is_symlink()
