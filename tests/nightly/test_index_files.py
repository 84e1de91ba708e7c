"""The index contains the done-markers, reads each once, and stays complete when several nights write it."""

from __future__ import annotations

import dataclasses
import io
import json
import threading
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis.rules.engine.catalogue import RULES
from postrun.ingest.object_store.objects import Objects, ObjectStoreError
from postrun.ingest.object_store.open import open_objects
from postrun.nightly import index as indexes
from postrun.nightly import night as nights
from postrun.nightly import places, summary, table
from postrun.nightly.claims import Claims
from postrun.nightly.done_markers import marker
from postrun.nightly.history import Settings
from postrun.nightly.index import Book
from postrun.nightly.metrics import with_limits
from postrun.nightly.model import Row
from postrun.nightly.run_night import Result, everything
from postrun.version import REPORT

DAY = 86_400 * 10**9
START = 1_795_243_200 * 10**9


def row(run_id: str, **more: Any) -> Row:
    plain: dict[str, Any] = {
        "state": "reported",
        "kind": "traces",
        "fingerprint": run_id * 2,
        "options": "o",
        "bytes": 10,
        "files": 2,
        "report_version": REPORT,
    }
    return Row(id=run_id, **plain | more)


def reported(number: int, **more: Any) -> Row:
    run_id = f"job/{number:04}"
    plain: dict[str, Any] = {
        "folder": f"runs/{run_id}/0-0", "written": ("report.html", "report.json"), "name": "job", "labels": {"team": "a"}, "ranks": 8,
        "started_ns": START + number * DAY, "duration_ns": DAY // 10, "reported_at_ns": START + number * DAY + DAY // 5, "gpus": 8,
        "gpu_name": "H100", "status": "completed", "step_median_ns": 100_000_000, "verdicts": {"IOBottleneck": "NoIssuesFound"},
        "seconds": 0.5, "gpu_active_percent": 61.5, "warnings": ("a note",),
    }  # fmt: skip
    return row(run_id, **plain | more)


def mark(out: Objects, *rows: Row) -> None:
    for row in rows:
        out.write(places.done(row.id), marker(row))


class Counting:
    """An output that counts which objects are read, and does something before the index is replaced."""

    def __init__(self, out: Objects) -> None:
        self._out = out
        self.read_paths: list[str] = []
        self.before_replace: list[Any] = []
        self.after_replace: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._out, name)

    def read(self, path: str, **more: Any) -> bytes:
        self.read_paths.append(path)
        return self._out.read(path, **more)

    def replace(self, path: str, data: bytes, etag: str | None) -> bool:
        if self.before_replace:
            self.before_replace.pop(0)()
        done = self._out.replace(path, data, etag)
        if self.after_replace:
            self.after_replace.pop(0)()
        return done

    @property
    def markers(self) -> list[str]:
        return [path for path in self.read_paths if path.endswith("done.json")]


@pytest.fixture
def out(tmp_path: Path) -> Counting:
    return Counting(open_objects(tmp_path / "out"))


def night(out: Any, **more: Any) -> indexes.Index:
    book = Book(**more)
    return book.write(out, book.known(out))


def parquet(out: Any) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(out.read("index.parquet")))


def index_json(out: Any) -> dict[str, Any]:
    actual: dict[str, Any] = json.loads(out.read("index.json"))
    return {one["id"]: one for one in actual["runs"]}


# -- the table -------------------------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NUMBER = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
SHARE = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))


@given(
    st.lists(
        st.builds(
            row, TEXT, state=st.sampled_from(["reported", "failed", "running", "waiting"]), reason=st.one_of(st.none(), TEXT),
            written=st.lists(TEXT, max_size=3).map(tuple), labels=st.dictionaries(TEXT, TEXT, max_size=3), seconds=SHARE,
            verdicts=st.dictionaries(st.one_of(st.sampled_from(sorted(RULES)), TEXT), TEXT, max_size=4), started_ns=NUMBER,
            gpu_active_percent=SHARE, gpu_busy_percent=SHARE, gpu_utilization_percent=SHARE,
            gpu_active_derived=st.one_of(st.none(), st.booleans()), of_machine=st.booleans(),
            warnings=st.lists(TEXT, max_size=2).map(tuple), name=st.one_of(st.none(), TEXT),
        ),
        max_size=6,
    )
)  # fmt: skip
def test_rows_come_back_from_parquet_as_they_were(rows: list[Row]) -> None:
    assert all(map(table.sound, rows))
    back = table.rows_of(pl.read_parquet(io.BytesIO(table.encoded(table.frame(rows)))))
    assert back == rows
    assert [json.loads(marker(one)) for one in back] == [json.loads(marker(one)) for one in rows]


def test_other_tools_read_the_table(out: Counting, tmp_path: Path) -> None:
    mark(out, *(reported(day, step_median_ns=100 + day) for day in range(5)), row("bad", state="failed", reason="cut off"))
    night(out)
    file = tmp_path / "out" / "index.parquet"
    actual = duckdb.sql(
        f"select id, family, state, step_median_ns, step_base_ns, verdicts.IOBottleneck, verdicts.LowGPUUtilization, labels[1].value"
        f" from '{file}' order by started_ns nulls last"
    ).fetchall()
    assert actual[-2:] == [
        ("job/0004", "job", "reported", 104, 101.5, "NoIssuesFound", None, "a"),
        ("bad", "bad", "failed", None, None, None, None, None),
    ]


def test_what_is_no_text_of_unicode_is_shown_escaped(out: Counting) -> None:
    mark(out, reported(1, name="a\udcff", labels={"k\udc80": "v\udc81"}, verdicts={"R\udc80": "Error"}))
    night(out)
    assert parquet(out)["name"].to_list() == ["a\\udcff"]
    assert b"alert" not in out.read("index.html")


# -- the cache -------------------------------------------------------------------------------------------------------------


def test_a_marker_is_read_once_and_again_when_it_changes(out: Counting) -> None:
    mark(out, *(reported(day) for day in range(20)))
    first = night(out)
    assert (len(out.markers), first.total) == (20, 20)
    out.read_paths.clear()
    assert night(out).total == 20
    assert out.markers == []

    mark(out, reported(3, name="changed"), reported(20))
    out.delete(places.done("job/0007"))
    assert night(out).total == 20
    assert sorted(out.markers) == [places.done("job/0003"), places.done("job/0020")]
    actual = index_json(out)
    assert (actual["job/0003"]["name"], "job/0007" in actual, "job/0020" in actual) == ("changed", False, True)
    # All rows equal the markers, whenever they were read.
    assert {one["id"] for one in parquet(out).iter_rows(named=True)} == set(actual)


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"no parquet at all" * 100, None])
def test_a_damaged_index_is_made_anew(out: Counting, damage: bytes | None) -> None:
    mark(out, reported(1), reported(2))
    night(out)
    complete = out.read("index.parquet")
    out.write("index.parquet", complete[: len(complete) // 2] if damage is None else damage)
    assert night(out).total == 2
    assert sorted(parquet(out)["id"]) == ["job/0001", "job/0002"]


def test_a_table_of_another_layout_is_no_cache(out: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    mark(out, reported(1))
    night(out)
    out.read_paths.clear()
    monkeypatch.setattr(table, "VERSION", "2")
    assert night(out).total == 1
    assert len(out.markers) == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b'{"id": "x"}', b'{"id": "other/place"}', marker(reported(1)).replace(b"100000000", b'"fast"'),
     marker(reported(1)).replace(b'"gpus": 8', b'"gpus": 9223372036854775808'), marker(reported(1)).replace(b"61.5", b"NaN"),
     marker(reported(1)).replace(b'"NoIssuesFound"', b"3"), marker(reported(1)).replace(b'"reported"', b'"lost"')],
)  # fmt: skip
def test_a_damaged_marker_is_none(out: Counting, data: bytes) -> None:
    mark(out, reported(0))
    out.write(places.done("job/0001"), data)
    assert night(out).total == 1
    assert list(index_json(out)) == ["job/0000"]


def test_a_marker_that_goes_while_it_is_read_is_left_out(out: Counting) -> None:
    mark(out, reported(0), reported(1))
    listed = out.list("runs/")
    rest = list(listed)
    out.delete(places.done("job/0001"))
    out.list = lambda *_: iter(rest)  # type: ignore[attr-defined]
    assert list(Book().known(out)) == ["job/0000"]  # type: ignore[arg-type]


# -- data of the night besides the markers -------------------------------------------------------------------------------


def test_rows_that_say_more_than_their_marker_are_shown_and_not_kept(out: Counting) -> None:
    mark(out, reported(0), reported(1), reported(2))
    book = Book()
    rows = dict(book.known(out))  # type: ignore[arg-type]
    rows["job/0000"] = dataclasses.replace(rows["job/0000"], warnings=("a note", nights.GONE))
    rows["job/0001"] = dataclasses.replace(rows["job/0001"], warnings=("a note", nights.OUTDATED + "it runs."))
    rows["new"] = row("new", state="waiting", reason="--limit")
    assert book.write(out, rows).states == {"reported": 3, "waiting": 1}  # type: ignore[arg-type]
    assert index_json(out)["job/0000"]["warnings"] == ["a note", nights.GONE]
    out.read_paths.clear()
    again = dict(Book().known(out))  # type: ignore[arg-type]
    assert out.markers == []
    assert again == {f"job/{i:04}": reported(i) for i in range(3)}


def test_open_runs_of_another_shard_stay_until_a_night_looks_at_all(out: Counting) -> None:
    for name in ("one", "two"):
        book = Book()
        book.write(out, {**book.known(out), name: row(name, state="running", reason="the job has not ended")})  # type: ignore[arg-type]
    assert sorted(index_json(out)) == ["one", "two"]
    mark(out, row("one"))
    night(out)
    assert {name: one["state"] for name, one in index_json(out).items()} == {"one": "reported", "two": "running"}
    assert night(out).dropped == ()
    index = night(out, every_run=True)
    assert (index.dropped, json.loads(out.read("index.json"))["dropped"]) == (("two",), ["two"])
    assert sorted(index_json(out)) == ["one"]
    assert night(out, every_run=True).dropped == ()


def test_runs_whose_source_is_gone_are_listed(out: Counting) -> None:
    mark(out, *(reported(number) for number in range(3)), row("bad", state="failed", reason="cut off"))
    book = Book()
    known = book.known(out)  # type: ignore[arg-type]
    night_before = nights.Night(gone=("bad", "job/0001"))
    index = book.write(out, everything(known, night_before))  # type: ignore[arg-type]
    assert index.gone == ("bad", "job/0001")
    assert json.loads(out.read("index.json"))["gone"] == ["bad", "job/0001"]
    assert night(out).gone == ()


def test_rows_of_older_markers_and_tables_are_read(out: Counting) -> None:
    """They lack later columns; a table without these is not used as a cache."""
    old = json.loads(marker(reported(1)))
    for name in ("gpu_busy_percent", "gpu_active_derived", "allocated_ns", "cost_per_step"):
        del old[name]
    out.write(places.done("job/0001"), json.dumps(old).encode())
    mark(out, reported(2, gpu_busy_percent=11.5, gpu_active_derived=True))
    night(out)
    actual = index_json(out)
    assert ("gpu_busy_percent" in actual["job/0001"], actual["job/0001"]["gpu_active_percent"]) == (False, 61.5)
    assert (actual["job/0002"]["gpu_busy_percent"], actual["job/0002"]["gpu_active_derived"]) == (11.5, True)
    out.write("index.parquet", table.encoded(parquet(out).drop("gpu_busy_percent", "gpu_active_derived", "of_machine")))
    night(out)
    assert index_json(out)["job/0002"]["gpu_busy_percent"] == 11.5


# -- two nights at once ----------------------------------------------------------------------------------------------------


def test_a_night_that_is_overtaken_begins_again_and_loses_nothing(out: Counting) -> None:
    mark(out, reported(0))

    def other_night() -> None:
        mark(out, reported(5))
        night(out._out)

    out.before_replace.append(other_night)
    book = Book()
    rows = {**book.known(out), "mine": row("mine", state="waiting", reason="r"), "job/0005": row("job/0005", state="waiting")}  # type: ignore[arg-type]
    book.write(out, rows)  # type: ignore[arg-type]
    states = {name: one["state"] for name, one in index_json(out).items()}
    assert states == {"job/0000": "reported", "job/0005": "reported", "mine": "waiting"}
    assert sorted(parquet(out)["id"]) == sorted(states)


def test_a_page_of_the_past_is_written_again(out: Counting) -> None:
    """Between its table and its page another night writes both."""
    mark(out, reported(0))

    def other_night() -> None:
        mark(out, reported(5))
        night(out._out)

    out.after_replace.append(other_night)
    assert night(out).total == 2
    assert sorted(index_json(out)) == ["job/0000", "job/0005"]
    assert b"job/0005" in out.read("index.html")


def test_a_night_that_is_overtaken_for_ever_says_so(out: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes.time, "sleep", lambda _: None)
    mark(out, reported(0))
    out.before_replace += [lambda: out.write("index.parquet", b"of another night")] * 50
    with pytest.raises(ObjectStoreError, match="--index-only"):
        night(out)


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_many_nights_at_once(kind: str, tmp_path: Path) -> None:
    out = open_objects(tmp_path / "out") if kind == "folder" else open_objects(f"memory://{tmp_path.name}")
    failed: list[BaseException] = []

    def run_nights(number: int) -> None:
        try:
            for part in range(2):
                mark(out, reported(10 * number + part))
                night(out)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run_nights, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    names = sorted(f"job/{10 * number + part:04}" for number in range(3) for part in range(2))
    assert sorted(parquet(out)["id"]) == sorted(index_json(out)) == names
    page = out.read("index.html").decode()
    assert all(name in page for name in names)


# -- messages --------------------------------------------------------------------------------------------------------------


def test_findings_stand_in_the_index_and_the_newest_runs(out: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "JSON_RUNS", 4)
    steps = (100, 101, 99, 100, 130)
    mark(out, *(reported(day, step_median_ns=step) for day, step in enumerate(steps)), row("bad", state="failed", reason="cut off"))
    index = night(out, generated_at_ns=START)
    data = json.loads(out.read("index.json"))
    assert [(one["kind"], one["id"], one["change_percent"]) for one in data["findings"]] == [("regression", "job/0004", 30.0)]
    assert data["failed"] == [{"id": "bad", "reason": "cut off"}]
    assert (data["runs_total"], data["generator"]["generated_at_ns"]) == (6, START)
    assert [one["id"] for one in data["runs"]] == ["bad", "job/0004", "job/0003", "job/0002"]
    assert data["runs"][1]["step_mark"] == "regression"
    assert [one.id for one in index.regressions] == ["job/0004"]
    (family,) = data["families"]
    assert (family["name"], family["runs"], family["trends"]["step_median_ns"]) == ("job", 5, {"newest": 130, "base": 100.0, "runs": 4})
    assert "currency" not in family
    # Others' settings, others' findings.
    assert night(out, settings=Settings(metrics=with_limits((), 40.0))).findings == ()


def test_families_have_their_change_points(out: Counting) -> None:
    mark(out, *(reported(day, step_median_ns=100 if day < 6 else 120, cost_per_step=1.0, currency="USD") for day in range(12)))
    night(out)
    (family,) = json.loads(out.read("index.json"))["families"]
    ended = START + 6 * DAY
    assert family["currency"] == "USD"
    assert family["change_points"] == [
        {
            "family": "job", "metric": "step", "id": "job/0006", "at_ns": ended, "ended_ns": ended + DAY // 10, "before": 100.0,
            "after": 120.0, "change_percent": 20.0, "worse": True, "runs_before": 6, "runs": 6, "last": True,
        },
    ]  # fmt: skip


def test_both_indexes_have_the_same_columns_and_values(out: Counting) -> None:
    mark(out, *(reported(day, step_median_ns=step) for day, step in enumerate((100, 103, 98, 101, 170))))
    mark(out, row("bad", state="failed", reason="no room", of_machine=True))
    book = Book()
    book.write(out, {**book.known(out), "now": row("now", state="running")})  # type: ignore[arg-type]
    frame, data = parquet(out), index_json(out)
    assert len(frame) == len(data) == 7
    seen = set()
    for named in frame.iter_rows(named=True):
        del named["marker"]
        named["labels"] = {pair["key"]: pair["value"] for pair in named["labels"]}
        named["verdicts"] = {rule: verdict for rule, verdict in named["verdicts"].items() if verdict is not None}
        assert data[named["id"]] == {name: value for name, value in named.items() if value is not None and value != [] and value != {}}
        seen |= set(data[named["id"]])
    assert {"family", "told_at_ns", "of_machine", "step_base_ns", "step_runs", "step_change_percent", "step_mark"} <= seen
    assert (data["job/0004"]["step_base_ns"], data["job/0004"]["step_runs"]) == (100.5, 4)
    assert data["job/0004"]["step_change_percent"] == pytest.approx(100 * 69.5 / 100.5, rel=1e-12)


def test_runs_that_are_compared_with_none_are_named(out: Counting) -> None:
    mark(out, *(row(f"2026-11-0{day}", name=f"2026-11-0{day}", started_ns=START + day * DAY) for day in range(1, 3)))
    data = (night(out), json.loads(out.read("index.json")))[1]
    assert ("note" in data, data["alone"]) == (False, ["2026-11-02", "2026-11-01"])
    mark(out, *(row(f"2026-11-0{day}", name=f"2026-11-0{day}", started_ns=START + day * DAY) for day in range(3, 6)))
    data = (night(out), json.loads(out.read("index.json")))[1]
    assert (data["alone_total"], len(data["alone"])) == (5, 5)
    assert "5 runs have no comparable run" in data["note"]
    page = out.read("index.html").decode()
    for message in (data["note"], page):
        assert "2026-11-05, 2026-11-04, 2026-11-03 and 2 more" in message
        assert "--family REGEX" in message
    book = Book()
    rows = dict(book.known(out))  # type: ignore[arg-type]
    assert list(summary.notes(Result(nights.Night(), rows, book.write(out, rows), Claims(out)))) == [data["note"]]  # type: ignore[arg-type]


def test_the_same_markers_give_the_same_files(out: Counting, tmp_path: Path) -> None:
    mark(out, *(reported(day) for day in range(5)))
    night(out, generated_at_ns=START)
    files = [out.read(name) for name in ("index.json", "index.html")]
    other_out = open_objects(tmp_path / "out")
    night(other_out, generated_at_ns=START)
    assert [other_out.read(name) for name in ("index.json", "index.html")] == files


def test_an_empty_place_has_an_index(out: Counting) -> None:
    assert night(out).total == 0
    assert json.loads(out.read("index.json"))["runs"] == []
    assert len(parquet(out)) == 0
