"""A bad file next to a good one: the report is there, has the figures of the good file, and a note names the bad one.

The long search is opt-in: POSTRUN_FUZZ_SECONDS=600 .venv/bin/python -P -m pytest tests/ingest/test_one_bad_file.py -k search
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from bad_files import HUGE, JOB, MUTATIONS, TIMELINE, write_bad_file, write_good_file
from click.testing import CliRunner, Result
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.cli import main
from postrun.errors import InputError, Terminated
from postrun.ingest import discover as source
from postrun.ingest import ingest, load, reading
from postrun.ingest.derive import steps
from postrun.ingest.discover import find_files
from postrun.ingest.hosted import system_metrics as smdebug_metrics
from postrun.ingest.hosted import timelines as smdebug_pevents
from postrun.ingest.kineto import reader as kineto
from postrun.ingest.partial import Partials, write
from postrun.ingest.store import Store
from postrun.ingest.store.time_limits import LONGEST_RANGE_NS, storable_rows
from slow_params import slow_except

FUZZ_SECONDS = float(os.environ.get("POSTRUN_FUZZ_SECONDS", "0"))
TIMELINE_PATH = "profiler-output/framework/pevents/2024010100/1704067200_411-bad-host_model_timeline.json"


def run_with(folder: Path, name: str, content: bytes) -> Path:
    write_good_file(folder)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return folder


def report(run: Path, *options: str) -> tuple[Result, dict[str, Any]]:
    out = run.with_name(run.name + "-out")
    done = CliRunner().invoke(main, ["report", str(run), "-o", str(out), "--format", "json", "-q", *options])
    assert done.exit_code == 0, done.output
    return done, json.loads((out / "report.json").read_bytes())


def good_figures(store: Store) -> list[tuple[Any, ...]]:
    return store.frame("""
        SELECT n.text, count(*), sum(e.duration_ns)::BIGINT, o.hostname FROM device_event AS e JOIN name AS n ON n.id = e.name
        JOIN node AS o ON o.id = e.node WHERE n.text = 'good_kernel' GROUP BY ALL
    """).rows()


def notes(store: Store) -> dict[str, tuple[str, str]]:
    return {code: (file, message) for code, file, message in store.frame("SELECT code, file, message FROM ingest_note").rows()}


GOOD = [("good_kernel", 40, 200_000, "good-host")]


@pytest.mark.slow
@settings(max_examples=examples(3))
@given(st.integers(0, 2**32))
def test_mutated_files_of_all_kinds_cost_no_more_than_themselves(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    folder = tmp_path_factory.mktemp("run")
    write_good_file(folder)
    for kind in MUTATIONS:
        write_bad_file(folder, kind, seed)
    with ingest([folder]) as store:
        assert good_figures(store) == GOOD
        assert not {"reader_failed", "step_failed"} & notes(store).keys(), notes(store)
        limits = "start_ns NOT BETWEEN -(2::BIGINT ** 61) AND 2::BIGINT ** 62 OR duration_ns NOT BETWEEN 0 AND ?"
        for table in ("device_event", "host_event", "annotation"):
            assert store.frame(f"SELECT count(*) FROM {table} WHERE {limits}", [LONGEST_RANGE_NS]).item() == 0


@pytest.mark.skipif(not FUZZ_SECONDS, reason="a long search; set POSTRUN_FUZZ_SECONDS")
def test_search_for_a_file_that_suppresses_a_report(tmp_path: Path) -> None:
    end, seed, tried = time.process_time() + FUZZ_SECONDS, time.time_ns() % 2**32, 0
    while time.process_time() < end:
        for kind in MUTATIONS:
            run = tmp_path / f"run{tried}"
            write_good_file(run)
            write_bad_file(run, kind, seed)
            _, data = report(run)
            text = json.dumps(data)
            assert "good_kernel" in text, (kind, seed)
            assert "its reader failed" not in text, (kind, seed)
            assert "A step after reading failed" not in text, (kind, seed)
            tried += 1
        seed += 1
    print(f"{tried} reports, last seed {seed - 1}")


# -- values beyond 64 bits -------------------------------------------------------------------------------------------------

BASES = [HUGE, -HUGE, 2**63, 2**62 // 1000 + 1, -(2**62), 1e300]


@pytest.mark.parametrize("base", slow_except((HUGE, 1e300), BASES))
def test_a_start_beyond_64_bits_does_not_suppress_the_report(tmp_path: Path, base: float) -> None:
    declared = {"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": base}}
    run = run_with(tmp_path / "run", TIMELINE_PATH, json.dumps([declared, *TIMELINE[1:]]).encode())
    with ingest([run]) as store:
        assert good_figures(store) == GOOD
        assert "absurd_time" in notes(store)
        assert notes(store)["absurd_time"][0].endswith("_model_timeline.json")
    if base == HUGE:
        _, data = report(run)
        assert "good_kernel" in json.dumps(data)


@pytest.mark.parametrize(
    ("start", "duration"), [(2**62, 5), (-(2**62), 5), (100, 2**62), (2**60, 2**62), (9_223_372_036_854_775, 9_223_372_036_854_775)]
)
def test_an_event_beyond_the_clock_costs_that_event(tmp_path: Path, start: int, duration: int) -> None:
    odd = {"ph": "X", "name": "odd", "pid": 1, "tid": 5, "ts": start, "dur": duration, "args": {"pid": 411}}
    run = run_with(tmp_path / "run", TIMELINE_PATH, json.dumps([*TIMELINE, odd]).encode())
    with ingest([run]) as store:
        assert good_figures(store) == GOOD
        assert store.frame("SELECT count(*) FROM annotation AS a JOIN name AS n ON n.id = a.name WHERE n.text = 'odd'").item() == 0
        assert store.frame("SELECT count(*) FROM annotation AS a JOIN name AS n ON n.id = a.name WHERE n.text LIKE 'Step:%'").item() == 1


@pytest.mark.parametrize("number", [2**31, 2**63, HUGE])
def test_a_rank_in_a_file_name_that_no_column_holds_is_not_known(tmp_path: Path, number: int) -> None:
    run = run_with(tmp_path / "run", TIMELINE_PATH.replace("_411-", f"_{number}-"), json.dumps(TIMELINE).encode())
    with ingest([run]) as store:
        assert good_figures(store) == GOOD
        assert store.frame("SELECT pid, rank FROM process WHERE label LIKE '%bad-host'").rows() == [(411, None)]


def test_job_information_with_odd_numbers_is_kept_as_it_is(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", "job.json", json.dumps({**JOB, "hyperparameters": {"big": HUGE, "inf": float("inf")}}).encode())
    _, data = report(run)
    assert str(HUGE) in json.dumps(data)


def test_a_frame_whose_function_is_no_text_costs_that_frame(tmp_path: Path) -> None:
    odd = {"function": {}, "time": 0.5, "children": []}
    document = {"root_frame": {"function": "main", "file_path": "/a.py", "line_no": 3, "time": 2.0, "children": [odd]}}
    run = run_with(tmp_path / "run", "python_stats.json", json.dumps(document).encode())
    with ingest([run]) as store:
        assert good_figures(store) == GOOD
        assert store.frame("SELECT function FROM python_profile").height == 1
        assert "reader_failed" not in notes(store)


def test_rows_of_impossible_times_and_sizes_do_not_reach_the_store() -> None:
    times = [0, 2**62, 2**62 + 1, -(2**61), -(2**61) - 1, 5, 5, 5, 5, None]
    durations = [1, 1, 1, 1, 1, -1, LONGEST_RANGE_NS, LONGEST_RANGE_NS + 1, None, 1]
    sizes = [1, 2**56, 1, 2**63 - 1, 1, 1, -(2**63), 1, None, 4]
    frame = pl.DataFrame({"start_ns": times, "duration_ns": durations, "bytes": sizes})
    rows, dropped = storable_rows(frame.to_arrow())
    assert pl.DataFrame(rows).rows() == [
        (0, 1, 1), (2**62, 1, 2**56), (-(2**61), 1, None), (5, -1, 1), (5, LONGEST_RANGE_NS, None), (5, None, None), (None, 1, 4)
    ]  # fmt: skip
    assert dropped == 3
    same = frame.head(1).to_arrow()
    assert storable_rows(same) == (same, 0)


def test_samples_that_no_sum_can_hold_do_not_reach_the_store() -> None:
    values = [1e308, float("nan"), float("inf"), 5.0, None, -1e308, float("nan"), 1e99]
    metrics = ["gpu_power"] * 5 + ["counter.loss"] * 3
    rows, dropped = storable_rows(pl.DataFrame({"metric": metrics, "value": values}).to_arrow())
    assert repr(pl.DataFrame(rows)["value"].to_list()) == "[5.0, None, -inf, nan, 1e+99]"
    assert dropped == 3


# -- failures of readers ---------------------------------------------------------------------------------------------------


class PanicException(BaseException):
    """As Polars raises it."""


FAILURES = [
    ValueError("odd\nvalue"), pl.exceptions.ComputeError("could not append value"), PanicException("oh"),
    duckdb.ConversionException("range"), RecursionError("deep"), MemoryError("one file"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), OverflowError("big"),
    pl.exceptions.PanicException("attempt to subtract with overflow"),
]  # fmt: skip


@pytest.mark.parametrize("error", FAILURES, ids=lambda error: type(error).__name__)
def test_an_unexpected_failure_costs_the_file_and_leaves_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    run = run_with(tmp_path / "run", TIMELINE_PATH, json.dumps(TIMELINE).encode())
    append = smdebug_pevents.append_events

    def failing(*arguments: Any) -> None:
        append(*arguments)  # half of the file is in the store
        raise error

    monkeypatch.setattr(smdebug_pevents, "append_events", failing)
    with ingest([run]) as store:
        assert good_figures(store) == GOOD
        file, message = notes(store)["reader_failed"]
        assert file == Path(TIMELINE_PATH).name
        assert f"its reader failed ({type(error).__name__}" in message
        assert "\n" not in message
        assert store.frame("SELECT count(*) FROM annotation WHERE phase IS NOT NULL").item() == 0
        assert store.frame("SELECT hostname FROM node").rows() == [("good-host",)]
        assert store.frame("SELECT hostname FROM process JOIN node ON node.id = node").rows() == [("good-host",)]
        assert store.frame("SELECT status FROM run").item() == "partial"


def test_files_after_a_failed_one_keep_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_good_file(tmp_path / "run").parent.parent
    for name in ("a", "b"):
        document = json.loads((run / "good/good-host_17.1704067200000.pt.trace.json").read_text().replace("good", name))
        (run / f"{name}.pt.trace.json").write_text(json.dumps(document))
    finish = kineto._Trace.finish

    def failing(self: Any, *arguments: Any) -> Any:
        result = finish(self, *arguments)
        if self.path.name.startswith("a"):
            raise ZeroDivisionError
        return result

    monkeypatch.setattr(kineto._Trace, "finish", failing)
    with ingest([run]) as store:
        assert good_figures(store) == GOOD
        query = "SELECT n.text, o.hostname, count(*) FROM device_event AS e JOIN name AS n ON n.id = e.name JOIN node AS o ON o.id = e.node"
        assert store.frame(f"{query} GROUP BY ALL ORDER BY ALL").rows() == [("b_kernel", "b-host", 40), ("good_kernel", "good-host", 40)]
        assert store.frame("SELECT count(*) FROM profile_window").item() == 2
        assert store.frame("SELECT events FROM source ORDER BY path").rows() == [(0,), (120,), (120,)]


@pytest.mark.parametrize(
    "error", [Terminated(143), KeyboardInterrupt(), duckdb.IOException("No space"), duckdb.OutOfMemoryException("more")]
)
def test_what_concerns_the_whole_run_still_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    run = run_with(tmp_path / "run", TIMELINE_PATH, json.dumps(TIMELINE).encode())

    def failing(*_: Any) -> None:
        raise error

    monkeypatch.setattr(smdebug_pevents, "append_events", failing)
    with pytest.raises(type(error)):
        ingest([run])


@pytest.mark.parametrize("step", ["derive_steps", "classify_kernels", "_join", "metrics"])
def test_a_step_that_fails_leaves_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    run = tmp_path / "run"
    write_good_file(run)
    write_bad_file(run, "metrics", 1)

    def failing(*_: Any) -> None:
        raise ZeroDivisionError("odd")

    from postrun.ingest.derive import finish

    places = {"derive_steps": steps, "classify_kernels": finish, "_join": reading.Reading, "metrics": smdebug_metrics}
    monkeypatch.setattr(places[step], "read_system_metrics_many" if step == "metrics" else step, failing)
    with ingest([run]) as store:
        assert good_figures(store) == GOOD
        assert "ZeroDivisionError: odd" in notes(store)["step_failed"][1]


def test_verbose_shows_the_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with(tmp_path / "run", TIMELINE_PATH, json.dumps(TIMELINE).encode())

    def failing(*_: Any) -> None:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(smdebug_pevents, "append_events", failing)
    loud, data = report(run, "--verbose")
    assert "Traceback" in loud.stderr
    assert "ZeroDivisionError: odd" in loud.stderr
    assert "its reader failed (ZeroDivisionError: odd)" in json.dumps(data)
    assert "good_kernel" in json.dumps(data)
    quiet, _ = report(run)
    assert "Traceback" not in quiet.stderr


def test_a_failure_at_the_only_file_is_the_reason_of_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / TIMELINE_PATH
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(TIMELINE))

    def failing(*_: Any) -> None:
        raise ZeroDivisionError("odd")

    monkeypatch.setattr(smdebug_pevents, "append_events", failing)
    with pytest.raises(InputError, match=r"(?s)nothing usable found.*its reader failed \(ZeroDivisionError: odd\)") as raised:
        ingest([tmp_path])
    assert path.name in str(raised.value)


def test_a_test_of_a_format_that_fails_costs_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with(tmp_path / "run", "odd.bin", b"odd")
    usual = source.format_of

    def failing(path: Path) -> Any:
        if path.name == "odd.bin":
            raise RecursionError
        return usual(path)

    monkeypatch.setattr(source, "format_of", failing)
    with ingest([run]) as store:
        assert good_figures(store) == GOOD
        assert notes(store)["not_readable"] == ("odd.bin", "The file was left out: cannot be recognized (RecursionError).")


def test_a_part_of_a_run_with_a_failing_reader_is_read_without_that_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_good_file(tmp_path / "run").parent.parent
    (run / "bad.pt.trace.json").write_text((run / "good/good-host_17.1704067200000.pt.trace.json").read_text().replace("good", "bad"))
    finish = kineto._Trace.finish

    def failing(self: Any, *arguments: Any) -> Any:
        result = finish(self, *arguments)
        if self.path.name.startswith("bad"):
            raise ZeroDivisionError
        return result

    monkeypatch.setattr(kineto._Trace, "finish", failing)
    actual = find_files([run])
    (tmp_path / "tables").mkdir()
    entries = write(actual, tmp_path / "tables", "x-")
    partials = Partials({one.path: (entry, tmp_path / "tables") for one, entry in zip(actual, entries, strict=True)})
    with load.load(partials.files(), [run], partials=partials) as store:
        assert good_figures(store) == GOOD
        assert store.frame("SELECT count(*) FROM device_event").item() == 40
        file, message = notes(store)["not_readable"]
        assert file == "bad.pt.trace.json"
        assert "its reader failed (ZeroDivisionError)" in message
