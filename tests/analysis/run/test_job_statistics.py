"""Initialization, training loop and finalization of a job, computed on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from postrun.analysis.report import JobStatistics
from postrun.analysis.run.job_statistics import job_statistics
from postrun.ingest.store import Store

EPOCH = 1_700_000_000_000_000_000


def step(start: int, duration: int, **fields: Any) -> dict[str, Any]:
    return {"node": 0, "process": 0, "index": 0, "host_start_ns": start, "host_duration_ns": duration, **fields}


def sample(time_ns: int) -> dict[str, Any]:
    return {"node": 0, "metric": "cpu_utilization", "unit": 0, "time_ns": time_ns, "value": 1.0}


def test_times_and_percentages(make_store: Callable[..., Store]) -> None:
    # samples from 0 to 1000; steps of two processes from 100 to 700
    store = make_store(
        sample=[sample(EPOCH), sample(EPOCH + 1000)],
        step=[step(EPOCH + 100, 50), step(EPOCH + 600, 50), step(EPOCH + 650, 50, process=1), step(EPOCH + 150, 10, process=1)],
        run=[{"name": "r", "started_ns": EPOCH - 500, "ended_ns": EPOCH + 5000}],
    )
    assert job_statistics(store) == JobStatistics(
        started_at_ns=EPOCH,
        ended_at_ns=EPOCH + 1000,
        duration_ns=1000,
        loop_started_at_ns=EPOCH + 100,
        loop_ended_at_ns=EPOCH + 700,
        loop_ns=600,
        initialization_ns=100,
        finalization_ns=300,
        initialization_percent=10.0,
        loop_percent=60.0,
        finalization_percent=30.0,
        absent=None,
    )


def test_the_run_counts_where_nothing_was_sampled(make_store: Callable[..., Store]) -> None:
    steps = [step(EPOCH + 100, 50), step(EPOCH + 200, 50, device_start_ns=EPOCH + 210, device_duration_ns=90)]
    result = job_statistics(make_store(step=steps, run=[{"name": "r", "started_ns": EPOCH, "ended_ns": EPOCH + 1000}]))
    assert (result.duration_ns, result.initialization_ns, result.loop_ns, result.finalization_ns) == (1000, 100, 200, 700)


def test_steps_beyond_the_samples_widen_the_job(make_store: Callable[..., Store]) -> None:
    result = job_statistics(make_store(sample=[sample(EPOCH + 10), sample(EPOCH + 20)], step=[step(EPOCH, 5), step(EPOCH + 15, 15)]))
    assert (result.duration_ns, result.initialization_ns, result.loop_ns, result.finalization_ns) == (30, 0, 30, 0)


@pytest.mark.parametrize("steps", [[], [step(EPOCH + 1, 2)]])
def test_fewer_than_two_steps_are_no_loop(make_store: Callable[..., Store], steps: list[dict[str, Any]]) -> None:
    result = job_statistics(make_store(sample=[sample(EPOCH), sample(EPOCH + 1000)], step=steps))
    assert (result.duration_ns, result.loop_ns, result.initialization_percent) == (1000, None, None)
    assert result.absent is not None
    assert ("one step" in result.absent) == bool(steps)


def test_relative_steps_are_not_set_against_absolute_times(make_store: Callable[..., Store]) -> None:
    result = job_statistics(make_store(sample=[sample(EPOCH), sample(EPOCH + 1000)], step=[step(5, 2), step(9, 2)]))
    assert (result.duration_ns, result.loop_ns) == (1000, None)
    assert result.absent is not None
    assert "anchor" in result.absent


def test_a_run_of_relative_times_alone_is_counted(make_store: Callable[..., Store]) -> None:
    result = job_statistics(make_store(step=[step(5, 2), step(9, 2)]))
    assert (result.started_at_ns, result.duration_ns, result.loop_percent) == (5, 6, 100.0)


def test_nothing_at_all(make_store: Callable[..., Store]) -> None:
    result = job_statistics(make_store())
    assert (result.started_at_ns, result.duration_ns) == (None, None)
    assert result.absent is not None


def test_profiles_alone_do_not_tell_when_the_job_began(make_store: Callable[..., Store]) -> None:
    traced = make_store(source=[{"id": 0, "format": "PyTorch profiler trace", "first_ns": 5, "last_ns": 9}])
    assert job_statistics(traced).captured_only
    hosted = make_store(source=[{"id": 0, "format": "hosted framework timeline", "first_ns": 5, "last_ns": 9}])
    assert not job_statistics(hosted).captured_only


def test_timelines_that_a_recording_wrote_do_not_tell_when_the_job_began(make_store: Callable[..., Store]) -> None:
    timeline = {"id": 0, "path": "t.json", "format": "hosted framework timeline", "events": 1, "first_ns": EPOCH, "last_ns": EPOCH + 500}
    window = {"process": 0, "first_ns": EPOCH, "last_ns": EPOCH + 1000, "process_started_ns": EPOCH - 100, "stopped": False}
    assert not job_statistics(make_store(source=[timeline])).captured_only
    assert job_statistics(make_store(source=[timeline], recorded_window=[window])).captured_only
    metrics = {**timeline, "id": 1, "format": "hosted system metrics"}
    assert not job_statistics(make_store(source=[timeline, metrics], recorded_window=[window])).captured_only


def kept(first: int, last: int, **fields: Any) -> dict[str, Any]:
    return {"id": 0, "path": "trace.json", "format": "PyTorch profiler trace", "first_ns": first, "last_ns": last, **fields}


@pytest.mark.parametrize("steps", [[], [step(EPOCH + 300, 50), step(EPOCH + 500, 100)]])
def test_a_log_shorter_than_the_trace_does_not_cut_the_job(make_store: Callable[..., Store], steps: list[dict[str, Any]]) -> None:
    # The trace from 200 to 900, samples from 250 to 310, and a file that counts from an anchor.
    sources = [kept(EPOCH + 200, EPOCH + 900), kept(5, 2000, id=1)]
    result = job_statistics(make_store(sample=[sample(EPOCH + 250), sample(EPOCH + 310)], source=sources, step=steps))
    assert (result.started_at_ns, result.ended_at_ns, result.duration_ns) == (EPOCH + 200, EPOCH + 900, 700)
    if steps:
        assert (result.initialization_ns, result.loop_ns, result.finalization_ns) == (100, 300, 300)


def test_a_log_longer_than_the_trace_is_the_job(make_store: Callable[..., Store]) -> None:
    result = job_statistics(make_store(sample=[sample(EPOCH), sample(EPOCH + 1000)], source=[kept(EPOCH + 200, EPOCH + 900)]))
    assert (result.started_at_ns, result.duration_ns) == (EPOCH, 1000)


def test_what_the_recorder_says_of_the_job_wins_over_longer_files(make_store: Callable[..., Store]) -> None:
    run = [{"name": "r", "job_started_ns": EPOCH + 10, "job_ended_ns": EPOCH + 500}]
    result = job_statistics(make_store(sample=[sample(EPOCH + 20), sample(EPOCH + 30)], source=[kept(EPOCH, EPOCH + 900)], run=run))
    assert (result.started_at_ns, result.duration_ns) == (EPOCH + 10, 490)


@pytest.mark.parametrize(("hours", "noted", "apart"), [(204, True, 204), (204, False, 0), (0.5, True, 0)])
def test_the_time_between_files_of_several_runs_is_no_time_of_a_job(
    make_store: Callable[..., Store], hours: float, noted: bool, apart: int
) -> None:
    hour = 3_600 * 10**9
    later = EPOCH + hour + int(hours * hour)
    source = {"format": "hosted system metrics", "events": 1, "bytes": 1}
    store = make_store(
        source=[
            {"id": 0, "path": "a", "first_ns": EPOCH, "last_ns": EPOCH + hour, **source},
            {"id": 1, "path": "b", "first_ns": later, "last_ns": later + 1000, **source},
        ],
        step=[step(EPOCH + 100, 50), step(later + 500, 50)],
        ingest_note=[{"severity": "warning", "code": "several_runs", "message": "m", "count": 2}] * noted,
    )
    result = job_statistics(store)
    assert result.apart_ns == apart * hour
    assert (result.duration_ns, result.loop_ns) == (None, None) if apart else result.duration_ns == later + 1000 - EPOCH
    assert (result.absent or "").startswith("The files are from different times, up to 8 d 12 h") is bool(apart)
