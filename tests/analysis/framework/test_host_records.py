"""First page of a run that consists only of a Python profile or of a timeline of collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis import Options, analyze
from postrun.analysis.framework.host_records import host_records, leading_functions
from postrun.analysis.report import ProfileGroup, ProfileRow, PythonProfile, Report, Share
from postrun.analysis.toolkit.wording import whole_percent
from postrun.ingest.derive.steps import derive_steps
from postrun.ingest.store import Store
from postrun.report_templates.sections.framework import framework
from postrun.report_templates.sections.python_profile import python_profile

MakeStore = Callable[..., Store]
MS = 10**6
ALONE = "No GPU activity and no steps were recorded; 1 process was traced."


def group(label: str, total_s: float, *, windows: int = 1, timer: str | None = None, functions: int = 2) -> ProfileGroup:
    return ProfileGroup("steps", label, "cprofile", timer, windows, 1, None, total_s, 9, functions)


def row(label: str, name: str, total_s: float, *, timer: str | None = None, kind: str = "own code") -> ProfileRow:
    return ProfileRow(name, timer, None, None, 1, total_s, total_s, short=name, kind=kind, profiler="cprofile", label=label)


def profile(groups: list[ProfileGroup], rows: list[ProfileRow]) -> PythonProfile:
    return PythonProfile(rows=tuple(rows), absent=None, groups=tuple(groups))


def test_one_profile() -> None:
    result = profile([group("not stated", 2.0)], [row("not stated", "a.py:1(f)", 1.5), row("not stated", "a.py:9(g)", 0.5)])
    assert host_records(result, ()) == ["A Python profile: 2 functions, 2.00 s of own time, 75% of it in a.py:1(f)."]


def test_what_the_profiler_spent_is_not_what_the_program_did() -> None:
    result = profile([group("s", 2.0)], [row("s", "torch.profiler", 1.5, kind="profiler"), row("s", "g", 0.5)])
    assert host_records(result, ())[0].endswith(" 25% of it in g.")
    only = profile([group("s", 2.0, functions=1)], [row("s", "torch.profiler", 2.0, kind="profiler")])
    assert host_records(only, ()) == ["A Python profile: 1 function, 2.00 s of own time, 100% of it in torch.profiler."]


def test_of_several_groups_the_one_with_most_total_time() -> None:
    # Off-CPU time is a part of another kind: 9 s of it are not more than 3 s of the total time.
    groups = [group("step 1", 9.0, timer="off_cpu_time"), group("step 2", 3.0, windows=2, timer="total_time"), group("step 3", 1.0)]
    rows = [row("step 1", "wait", 9.0, timer="off_cpu_time"), row("step 2", "f", 3.0, timer="total_time"), row("step 3", "g", 1.0)]
    result = profile(groups, rows)
    assert host_records(result, ()) == [
        "4 Python profiles, most time in one of 3 groups (step 2): 2 functions, 3.00 s of own time, 100% of it in f."
    ]
    assert host_records(profile([groups[0]], rows[:1]), ())[0].endswith("9.00 s of own time, 100% of it in wait.")


def test_no_time_and_no_profile() -> None:
    idle = profile([group("s", 0.0)], [row("s", "f", 0.0)])
    assert host_records(idle, ()) == ["A Python profile: 2 functions, 0 ns of own time."]
    assert host_records(PythonProfile(rows=(), absent="none"), ()) == []
    assert host_records(None, ()) == []
    assert leading_functions(PythonProfile(rows=(), absent="none")) is None


def test_a_long_name_is_shortened() -> None:
    (sentence,) = host_records(profile([group("s", 1.0)], [row("s", "x" * 300, 1.0)]), ())
    assert sentence.endswith(f"in {'x' * 71}….")


def test_collectives() -> None:
    shares = [
        Share("ALLREDUCE", 320 * MS, 100, 80.0),
        Share("NEGOTIATE_ALLREDUCE", 70 * MS, 100, 17.5),
        Share("BROADCAST", 10 * MS, 1, 2.5),
    ]
    assert host_records(None, shares) == [
        "Collectives add up to 400 ms: 320 ms in 100 ALLREDUCE, 70.0 ms in 100 NEGOTIATE_ALLREDUCE and 10.0 ms in 1 other."
    ]
    assert host_records(None, shares[:1]) == ["Collectives: 320 ms in 100 ALLREDUCE."]


# -- on the first page -----------------------------------------------------------------------------------------------------


def python_tables(seconds: list[float]) -> dict[str, Any]:
    names = [f"a.py:{i}(f{i})" for i in range(len(seconds))]
    window = {
        "id": 0, "source": 0, "node": 0, "process": 0, "profiler": "cprofile", "functions": len(seconds), "calls": 1,
        "total_s": sum(seconds),
    }  # fmt: skip
    functions = [
        {"node": 0, "process": 0, "window": 0, "id": i, "function": name, "file": "a.py", "line": i, "calls": 1, "primitive_calls": 1,
         "total_s": time, "cumulative_s": time}
        for i, (name, time) in enumerate(zip(names, seconds, strict=True))
    ]  # fmt: skip
    return {"python_window": [window], "python_profile": functions}


def collective_ranges() -> list[dict[str, Any]]:
    """Make twice 2 ms of negotiation and 3 ms of the collective, 2 ms of it NCCL."""
    rows = []
    for at in (0, 10):
        for name, start, length in (("NEGOTIATE_ALLREDUCE", 0, 2), ("ALLREDUCE", 2, 3), ("NCCL_ALLREDUCE", 3, 2)):
            rows.append(
                {
                    "name": name,
                    "side": "host",
                    "phase": "grad.w",
                    "start_ns": (at + start) * MS,
                    "duration_ns": length * MS,
                    "complete": True,
                }
            )
    return rows


def reported(make_store: MakeStore, *, status: str = "unknown", codes: tuple[str, ...] = (), **tables: Any) -> Report:
    notes = [{"file": "f", "severity": "warning", "code": code, "message": code, "count": 1} for code in codes]
    store = make_store(run=[{"status": status}], ingest_note=notes, **tables)
    derive_steps(store)
    return analyze(store, Options(generated_at_ns=0))


def test_a_python_profile_alone(make_store: MakeStore) -> None:
    report = reported(make_store, **python_tables([0.25, 0.75]))
    assert report.summary.headline == f"A Python profile: 2 functions, 1.00 s of own time, 75% of it in a.py:1(f1). {ALONE}"
    names = [cell.text for table in python_profile(report).tables.values() for row in table.rows for cell in row]
    assert {"a.py:1(f1)", "a.py:0(f0)"} <= set(names)


def test_a_timeline_of_horovod_alone(make_store: MakeStore) -> None:
    report = reported(make_store, annotation=collective_ranges())
    expected = "Collectives add up to 10.0 ms: 6.00 ms in 2 ALLREDUCE and 4.00 ms in 2 NEGOTIATE_ALLREDUCE."
    assert report.summary.headline == f"{expected} {ALONE}"
    names = [cell.text for table in framework(report).tables.values() for row in table.rows for cell in row]
    figures = [figure.legend for figure in framework(report).figures.values() if figure.legend]
    names += [cell.text for legend in figures for row in legend.rows for cell in row]
    assert {"ALLREDUCE", "NEGOTIATE_ALLREDUCE"} <= set(names)


def test_with_processors_and_with_steps(make_store: MakeStore) -> None:
    sample = [{"node": 0, "metric": "cpu_utilization", "unit": 0, "time_ns": i, "value": 40.0} for i in range(3)]
    result = reported(make_store, sample=sample, **python_tables([1.0])).summary.headline
    assert result.endswith(f"{ALONE} CPU utilization averaged {whole_percent(40)}.")
    step = {"name": "step", "side": "host", "value": 0, "start_ns": 0, "duration_ns": MS, "complete": True}
    stepped = reported(make_store, annotation=[step], **python_tables([1.0])).summary.headline
    assert stepped == "No GPU activity was recorded; 1 process was traced. The only step took 1.00 ms."


@pytest.mark.parametrize(
    ("codes", "warning", "ending"),
    [
        (("odd_entries",), "partial: a part of the files could not be read", "What could not be read was left out."),
        (("truncated",), "partial: the run or a trace of it was cut off", "A file was cut off: what followed is missing."),
        (("lost_event", "cut_stream"), "partial: the run or a trace of it was cut off", "A file was cut off: what followed is missing."),
        ((), "partial: the run or a trace of it was cut off", "A file was cut off: what followed is missing."),
    ],
)
def test_what_is_missing_is_told_by_what_happened(make_store: MakeStore, codes: tuple[str, ...], warning: str, ending: str) -> None:
    result = reported(make_store, status="partial", codes=codes, **python_tables([1.0])).summary
    assert result.warnings[0] == warning
    assert result.headline.endswith(f"{ALONE} {ending}")


def test_a_trace_without_records_that_could_not_be_read(make_store: MakeStore) -> None:
    call = {"kind": "call", "name": "cudaGetDevice", "start_ns": 0, "duration_ns": 5}
    result = reported(make_store, status="partial", codes=("lost_event",), host_event=[call]).summary.headline
    assert result == "No GPU activity in what could be read: a part of it could not."
