"""Are several sources of one run one run: the same machine, process and clock, and nothing counted twice?"""

from __future__ import annotations

import cProfile
import gzip
import json
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from postrun.ingest.format_names import NSIGHT, TRACE
from postrun.ingest.gpu_log import GpuLogs
from postrun.ingest.joined_sources import Joining
from postrun.ingest.load import ingest
from postrun.ingest.registry import ReadResult, Registry
from postrun.ingest.source_rows import SourceRows, row_counts
from postrun.ingest.store import Store
from postrun.simulate import Problems, write_demo

SECOND = 10**9
INTERVAL = SECOND // 5
NAME = "NVIDIA H100 80GB HBM3"
Events = dict[int, list[tuple[int, int]]]


@pytest.fixture(scope="session")
def joined_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated run of one machine with two GPUs."""
    folder = tmp_path_factory.mktemp("joined") / "run"
    write_demo(folder, seed=4, steps=30, problems=Problems(straggler_rank=None), nodes=1, gpus_per_node=2)
    return folder


@pytest.fixture(scope="session")
def device_work(joined_run: Path) -> Events:
    """Starts and ends of device work by device, as the traces' text has them."""
    found: Events = {}
    for path in sorted((joined_run / "kineto").iterdir()):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        base = int(trace.get("baseTimeNanoseconds", 0))
        for event in trace["traceEvents"]:
            if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                start = base + round(event["ts"] * 1000)
                found.setdefault(event["args"]["device"], []).append((start, start + round(event["dur"] * 1000)))
    return found


def busy_within(events: Iterable[tuple[int, int]], begin: int, end: int) -> int:
    """Time between begin and end in which something ran, by marching through it."""
    total, reached = 0, begin
    for start, stop in sorted(events):
        start, stop = max(start, reached), min(stop, end)
        if stop > start:
            total += stop - start
            reached = stop
    return total


def smi_text(work: Events, shift_ns: int, *, name: str = NAME, lead: int = 15) -> str:
    first = min(start for events in work.values() for start, _ in events)
    last = max(end for events in work.values() for _, end in events)
    lines = ["timestamp, index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB]"]
    for time in range(first - lead * SECOND, last + lead * SECOND, INTERVAL):
        at = datetime.fromtimestamp((time + shift_ns) // 10**6 / 1000, UTC)
        for device, events in sorted(work.items()):
            near = [event for event in events if event[1] > time - INTERVAL and event[0] < time]
            percent = round(100 * busy_within(near, time - INTERVAL, time) / INTERVAL)
            lines.append(f"{at:%Y/%m/%d %H:%M:%S}.{at.microsecond // 1000:03}, {device}, {name}, {percent} %, 1000 MiB, 81559 MiB")
    return "\n".join(lines) + "\n"


def totals(store: Store) -> list[tuple[Any, ...]]:
    query = "SELECT device, kind::VARCHAR, count(*), sum(duration_ns)::BIGINT FROM device_event GROUP BY ALL ORDER BY ALL"
    return [*store.frame(query).rows(), *store.frame("SELECT kind::VARCHAR, count(*) FROM host_event GROUP BY ALL ORDER BY ALL").rows()]


def notes(store: Store) -> dict[str, str]:
    return dict(store.frame("SELECT code, message FROM ingest_note").rows())


def traces(run: Path, folder: Path, *, without_host: bool = False) -> Path:
    """The traces alone."""
    shutil.copytree(run / "kineto", folder / "kineto")
    if without_host:
        for place, path in enumerate(sorted((folder / "kineto").iterdir())):
            trace = json.loads(gzip.decompress(path.read_bytes()))
            trace.pop("host_name", None)
            path.unlink()
            (folder / "kineto" / f"trace{place}.json").write_text(json.dumps(trace))
    return folder


@pytest.mark.parametrize("hours", [0.0, 7.0, -5.5])
def test_a_log_in_local_time_is_moved_to_the_clock_of_the_traces(
    joined_run: Path, device_work: Events, tmp_path: Path, hours: float
) -> None:
    shift = round(hours * 3600) * SECOND
    traces(joined_run, tmp_path)
    with ingest([tmp_path]) as alone:
        before = totals(alone)
    (tmp_path / "smi.csv").write_text(smi_text(device_work, shift))
    with ingest([tmp_path]) as store:
        assert totals(store) == before
        assert store.frame("SELECT hostname, gpus FROM node").rows() == [("algo-1", 2)]
        told = notes(store)
        assert "the only machine of the run: its GPUs have the same names (2 of 2)" in told["machine_joined"]
        row = store.frame("SELECT clock_offset_ns, clock_evidence, first_ns FROM source WHERE format = 'nvidia-smi log'").row(0)
        if hours:
            assert row[0] == -shift
            assert "correlation" in row[1]
            assert f"{'-7 h 0 min' if hours > 0 else '+5 h 30 min'}" in told["clock_shifted"]
        else:
            assert row[:2] == (None, None)
            assert "they fit" in told["clock_agrees"]
        # By the shifted clock every sample is the busy share of the time before it.
        for unit, events in device_work.items():
            for time, value in store.frame(
                "SELECT time_ns, value FROM sample WHERE metric = 'gpu_utilization' AND unit = ? ORDER BY time_ns", [unit]
            ).rows()[60:90]:
                near = [event for event in events if event[1] > time - INTERVAL and event[0] < time]
                assert value == pytest.approx(100 * busy_within(near, time - INTERVAL, time) / INTERVAL, abs=2)


@pytest.mark.parametrize(("seconds", "told"), [(7 * 3600 + 200, "-7 h 3 min 20 s"), (-13 * 3600, "+13 h 0 min"), (90, "-1 min")])
def test_an_offset_that_is_no_time_zone_is_doubted_and_not_applied(
    joined_run: Path, device_work: Events, tmp_path: Path, seconds: int, told: str
) -> None:
    traces(joined_run, tmp_path)
    (tmp_path / "smi.csv").write_text(smi_text(device_work, seconds * SECOND))
    with ingest([tmp_path]) as store:
        query = "SELECT severity::VARCHAR, message FROM ingest_note WHERE code = 'clock_doubtful'"
        severity, text = store.frame(query).row(0)
        assert severity == "warning"
        assert f"best when shifted by {told}" in text
        assert "no time zone (UTC-12:00 to UTC+14:00 in quarter hours) is within a minute of that" in text
        assert "clock_shifted" not in notes(store)
        assert store.frame("SELECT clock_offset_ns FROM source WHERE format = 'nvidia-smi log'").item() is None
        first = min(start for events in device_work.values() for start, _ in events) - 15 * SECOND + seconds * SECOND
        assert abs(store.frame("SELECT min(time_ns) FROM sample WHERE metric = 'gpu_utilization'").item() - first) < 10**6


def test_a_clock_that_is_off_is_shifted(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    (tmp_path / "smi.csv").write_text(smi_text(device_work, 40 * SECOND))
    with ingest([tmp_path]) as store:
        assert "clock_shifted" in notes(store)
        shift = store.frame("SELECT clock_offset_ns FROM source WHERE format = 'nvidia-smi log'").item()
        assert shift == pytest.approx(-40 * SECOND, abs=SECOND)


def test_a_log_of_other_gpus_is_not_of_the_only_machine(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    (tmp_path / "smi.csv").write_text(smi_text(device_work, 0, name="NVIDIA A100-SXM4-80GB"))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", "unknown host"]
        assert "its GPUs are not those of algo-1" in notes(store)["machine_unknown"]


def test_a_log_that_names_another_machine_is_kept_apart(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    (tmp_path / "nvidia-smi.nodeY.csv").write_text(smi_text(device_work, 0))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", "nodeY"]
        assert "nodeY is taken from the name of the file" in notes(store)["machine_joined"]


def test_a_log_of_fewer_gpus_than_were_used_has_one_decision_and_one_note(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    (tmp_path / "smi.csv").write_text(smi_text({0: device_work[0]}, 0))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", "unknown host"]
        told = notes(store)
        assert "its GPUs are not those of algo-1: it is shown as unknown host" in told["machine_unknown"]
        assert "machine_joined" not in told


def test_a_log_that_fits_nowhere_may_be_of_another_machine(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    first, last = (of(time for events in device_work.values() for pair in events for time in pair) for of in (min, max))
    random = np.random.default_rng(5)
    lines = ["timestamp, index, name, utilization.gpu [%]"]
    for time in range(first - 5 * SECOND, last + 5 * SECOND, INTERVAL // 5):
        at = datetime.fromtimestamp(time // 10**6 / 1000, UTC)
        lines += [f"{at:%Y/%m/%d %H:%M:%S}.{at.microsecond // 1000:03}, {gpu}, {NAME}, {random.integers(0, 100)} %" for gpu in (0, 1)]
    (tmp_path / "smi.csv").write_text("\n".join(lines) + "\n")
    with ingest([tmp_path]) as store:
        severity, text = store.frame("SELECT severity::VARCHAR, message FROM ingest_note WHERE code = 'machine_doubtful'").row(0)
        assert severity == "warning"
        assert "may be of another machine than algo-1" in text
        assert "do not fit at any shift" in text


def test_two_named_machines_stay_two(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    first = min(start for events in device_work.values() for start, _ in events) // SECOND
    lines = ["timestamp,gpu,Hostname,DCGM_FI_DEV_GPU_UTIL", *(f"{first + k},0,algo-2,50" for k in range(5))]
    (tmp_path / "dcgm.csv").write_text("\n".join(lines) + "\n")
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", "algo-2"]
        assert "machine_joined" not in notes(store)


def test_traces_that_name_no_machine_are_of_the_only_one_that_is_named(joined_run: Path, tmp_path: Path) -> None:
    with ingest([joined_run]) as whole:
        expected, samples = totals(whole), whole.frame("SELECT count(*) FROM sample").item()
        processes = whole.frame("SELECT pid, rank FROM process ORDER BY ALL").rows()
    shutil.copytree(joined_run / "profiler-output", tmp_path / "profiler-output")
    traces(joined_run, tmp_path, without_host=True)
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node").to_series().to_list() == ["algo-1"]
        assert totals(store) == expected
        assert store.frame("SELECT count(*) FROM sample").item() == samples
        assert store.frame("SELECT pid, rank FROM process ORDER BY ALL").rows() == processes
        assert "the only machine of the run" in notes(store)["machine_joined"]
        for table in ("device_event", "host_event", "annotation", "sample", "step", "process", "device"):
            assert store.frame(f"SELECT count(*) FROM {table} WHERE node NOT IN (SELECT id FROM node)").item() == 0, table


def test_a_trace_that_is_there_twice_in_two_forms_counts_once(joined_run: Path, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    with ingest([tmp_path]) as alone:
        before = totals(alone)
        annotations = alone.frame("SELECT count(*) FROM annotation").item()
    path = min((tmp_path / "kineto").iterdir())
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / path.name).write_text(json.dumps(json.loads(gzip.decompress(path.read_bytes())), indent=1))
    with ingest([tmp_path]) as store:
        assert totals(store) == before
        assert store.frame("SELECT count(*) FROM annotation").item() == annotations
        assert "stands in" in notes(store)["recorded_twice"]


def test_samples_of_one_gpu_from_two_samplers_count_once(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    with ingest([joined_run]) as whole:
        before = whole.frame("SELECT count(*) FROM sample WHERE metric = 'gpu_utilization'").item()
    shutil.copytree(joined_run, tmp_path / "run")
    (tmp_path / "run" / "smi.csv").write_text(smi_text(device_work, 0))
    with ingest([tmp_path / "run"]) as store:
        assert store.frame("SELECT count(*) FROM sample WHERE metric = 'gpu_utilization'").item() == before
        assert store.frame("SELECT count(*) FROM sample WHERE metric = 'gpu_memory_used_bytes'").item() > 0
        assert "sampled_twice" in notes(store)


def test_a_trace_without_an_epoch_gets_the_clock_of_a_log_that_has_one(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    bases = set()
    for path in (tmp_path / "kineto").iterdir():
        trace = json.loads(gzip.decompress(path.read_bytes()))
        bases.add(int(trace.pop("baseTimeNanoseconds")))
        begin = min(float(event["ts"]) for event in trace["traceEvents"] if event["ph"] == "X")
        trace["traceEvents"].append(
            {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": "P", "ts": begin - 1, "dur": 60_000_000}
        )
        path.write_text(json.dumps(trace))
    lines = ["timestamp,gpu,Hostname,DCGM_FI_DEV_GPU_UTIL"]
    for row in smi_text(device_work, 0).splitlines()[1:]:
        time, device, _, percent, *_ = row.split(", ")
        at = datetime.strptime(time, "%Y/%m/%d %H:%M:%S.%f").replace(tzinfo=UTC)
        lines.append(f"{at.timestamp():.3f},{device},algo-1,{percent.removesuffix(' %')}")
    (tmp_path / "dcgm.csv").write_text("\n".join(lines) + "\n")
    with ingest([tmp_path]) as store:
        offsets = store.frame("SELECT clock_offset_ns FROM source WHERE format = 'PyTorch profiler trace'").to_series().to_list()
        assert len(offsets) == 2
        assert all(abs(offset - base) <= INTERVAL for offset, base in zip(offsets, sorted(bases) * 2, strict=False))
        assert "have no epoch; they were shifted" in notes(store)["clock_shifted"]
        first, window = store.frame("SELECT (SELECT min(start_ns) FROM device_event), (SELECT min(first_ns) FROM profile_window)").row(0)
        assert abs(first - min(start for events in device_work.values() for start, _ in events)) <= INTERVAL
        assert abs(window - first) < 5 * SECOND
        switched = store.frame("SELECT first_ns - on_ns, off_ns - on_ns FROM profile_window").rows()
        assert all(0 < before <= 2000 and length == 60 * SECOND for before, length in switched)


def test_a_log_of_another_day_is_not_shifted(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    (tmp_path / "smi.csv").write_text(smi_text(device_work, -40 * 3600 * SECOND))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT clock_offset_ns FROM source").drop_nulls().is_empty()
        assert "were not shifted" in notes(store)["clock_unknown"]


# -- two tracers, row by row -------------------------------------------------------------------------------------------


def rows_of(store: Store, times: list[tuple[int, int]], *, operators: int = 0, shift: int = 0) -> dict[str, tuple[int, int]]:
    """Kernels of process 0 with these starts and durations; which rows they are."""
    before = row_counts(store)
    names = store.name_ids([f"kernel_{place % 5}" for place in range(len(times))])
    frame = pl.DataFrame(
        {
            "start_ns": [start + shift for start, _ in times],
            "duration_ns": [duration for _, duration in times],
            "name": pl.Series(names, dtype=pl.Int32),
        }
    ).with_columns(node=pl.lit(0, pl.Int32), process=pl.lit(0, pl.Int32), device=pl.lit(0, pl.Int32), kind=pl.lit("kernel"))
    store.append("device_event", frame)
    host = frame.select("start_ns", "name", "node", "process", duration_ns=pl.lit(5, pl.Int64), kind=pl.lit("launch"))
    store.append("host_event", host)
    if operators:
        store.append("host_event", host.head(operators).with_columns(kind=pl.lit("operator")))
    after = row_counts(store)
    return {table: (first, after[table]) for table, first in before.items()}


def two_tracers(store: Store, shift: int, *, relative: bool, jitter: int = 0) -> Joining:
    registry = Registry(store)
    registry.process(registry.node("n1"), 17, source=0)
    times = [(BASE + place * 10_000_000 + (place * 7919) % 3_000_000, 100_000 + (place * 104_729) % 900_000) for place in range(200)]
    kineto = rows_of(store, times, operators=50)
    moved = [(start + (place * 31) % (jitter + 1), duration) for place, (start, duration) in enumerate(times)]
    nsys = rows_of(store, [*moved[50:], (moved[-1][0] + SECOND, 77)], shift=shift)
    first, last = times[0][0], times[-1][0] + times[-1][1]
    sources = [
        SourceRows(0, TRACE, Path("a.json"), ReadResult(450, first, last), kineto),
        SourceRows(1, NSIGHT, Path("b.sqlite"), ReadResult(302, times[50][0] + shift, last + SECOND + shift, relative=relative), nsys),
    ]
    return Joining(store, GpuLogs(store, registry), sources, {TRACE, NSIGHT})


BASE = 1_700_000_000 * SECOND


def test_two_tracers_of_one_process_count_once() -> None:
    with Store.create(None) as store:
        joining = two_tracers(store, 0, relative=False)
        joining.settle()
        # The trace's 200, and the one kernel that only the other has.
        assert store.frame("SELECT count(*), max(duration_ns) FILTER (start_ns > ?) FROM device_event", [BASE + 5 * SECOND // 2]).row(
            0
        ) == (
            201,
            77,
        )
        assert store.frame("SELECT kind::VARCHAR, count(*) FROM host_event GROUP BY ALL ORDER BY ALL").rows() == [
            ("launch", 201),
            ("operator", 50),
        ]
        told = store.frame("SELECT code, file, message, count FROM ingest_note").rows()
        assert told == [
            (
                "recorded_twice",
                "b.sqlite",
                "Device activity of the same process and time stands in a.json, too; that counts (it knows the operators).",
                150,
            )
        ]


def test_a_tracer_without_an_epoch_gets_the_clock_of_the_other_and_then_counts_once() -> None:
    with Store.create(None) as store:
        joining = two_tracers(store, 5 * SECOND - BASE, relative=True, jitter=20_000)
        joining.settle()
        clock = joining.clocks[1]
        assert abs(clock.offset_ns - (BASE - 5 * SECOND)) <= 20_000
        assert "kernels" in clock.evidence
        assert store.frame("SELECT count(*) FROM device_event").item() in (201, 202)  # one at the edge may differ by the jitter
        assert not joining.results[1].relative
        assert joining.results[1].first_ns is not None
        assert joining.results[1].first_ns > BASE


def test_one_process_of_two_sources_keeps_its_launches_apart() -> None:
    with Store.create(None) as store:
        registry = Registry(store)
        named, nameless = registry.node("n1"), registry.node("unknown host")
        for process, node in ((0, named), (1, nameless)):
            registry.process(node, 17, rank=None, source=process, fresh=True)
            ids = store.name_ids(["kernel", "launch"])
            start = BASE + process * 10 * SECOND
            for table, name, kind in (("device_event", ids[0], "kernel"), ("host_event", ids[1], "launch")):
                rows = {"node": node, "process": process, "kind": kind, "name": name, "duration_ns": 5 + process}
                if table == "device_event":
                    rows["device"] = 0
                frame = pl.DataFrame([{**rows, "start_ns": start + k, "correlation": k} for k in (1, 2, 3)])
                store.append(table, frame)
        Joining(store, GpuLogs(store, registry), [], {TRACE}).settle()
        assert store.frame("SELECT hostname FROM node").to_series().to_list() == ["n1"]
        assert store.frame("SELECT pid FROM process").to_series().to_list() == [17]
        links = "SELECT d.duration_ns, h.duration_ns FROM device_event AS d JOIN host_event AS h USING (process, correlation) ORDER BY ALL"
        assert store.frame(links).rows() == [(5, 5)] * 3 + [(6, 6)] * 3


def test_two_machines_with_half_of_the_data_each_may_be_one_under_two_names(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    (tmp_path / "nvidia-smi.titan.csv").write_text(smi_text(device_work, 0))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", "titan"]
        told = notes(store)["two_names"]
        assert "algo-1 has traces and no samples of its GPUs, titan has samples and no traces, of 2 GPUs each" in told
        assert "nvidia-smi.algo-1.csv" in told
    (tmp_path / "nvidia-smi.titan.csv").write_text(smi_text({0: device_work[0]}, 0))
    with ingest([tmp_path]) as store:
        assert "two_names" not in notes(store)


def test_a_load_that_repeats_every_minute_shifts_no_log(tmp_path: Path) -> None:
    begin, shift = BASE + 20 * SECOND, 2 * 3600 * SECOND + 60 * SECOND
    work = {0: [(begin + k * 60 * SECOND, begin + k * 60 * SECOND + 25 * SECOND) for k in range(9)]}
    events = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": (start - begin) / 1000, "dur": (end - start) / 1000,
         "args": {"device": 0, "stream": 7}}
        for start, end in work[0]
    ]  # fmt: skip
    trace = {"host_name": "n1", "baseTimeNanoseconds": begin, "deviceProperties": [{"id": 0, "name": NAME}], "traceEvents": events}
    (tmp_path / "trace.json").write_text(json.dumps(trace))
    (tmp_path / "smi.csv").write_text(smi_text(work, shift))
    with ingest([tmp_path]) as store:
        told = dict(store.frame("SELECT code, severity::VARCHAR || ' ' || message FROM ingest_note").rows())
        shown = [text for code, text in told.items() if code.startswith("clock")]
        assert shown, told
        assert all(text.startswith("warning") for text in shown)
        assert not any("correlation 1.00 over" in text for text in shown)
        assert "an assumption" in shown[0]
        assert "the utilisation does not tell: several shifts fit alike" in shown[0]
        assert "the load repeats every 1 min" in shown[0]


def test_traces_and_hosted_metrics_of_two_names_stay_two_with_a_hint(joined_run: Path, tmp_path: Path) -> None:
    shutil.copytree(joined_run / "profiler-output" / "system", tmp_path / "profiler-output" / "system")
    traces(joined_run, tmp_path)
    for path in (tmp_path / "kineto").iterdir():
        trace = json.loads(gzip.decompress(path.read_bytes()))
        path.write_bytes(gzip.compress(json.dumps({**trace, "host_name": "hostA"}).encode()))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", "hostA"]
        assert "hostA has traces and no samples of its GPUs, algo-1 has samples and no traces" in notes(store)["two_names"]


def two_processes(store: Store, moved_ns: int) -> Joining:
    """An export of two processes with a GPU each, and a trace of both that names the first alone."""
    registry = Registry(store)
    node = registry.node("n1")
    first, second = (registry.process(node, pid, source=0) for pid in (111, 112))
    ids = store.name_ids(["kernel", "launch"])
    sources = []
    for source, format, parts in (
        (0, TRACE, ((first, 0), (first, 1))),
        (1, NSIGHT, ((first, 0), (second, 1))),
    ):
        before = row_counts(store)
        for process, device in parts:
            times = [BASE + device * 777 + place * 1_000_003 + source * device * moved_ns for place in range(20)]
            common = {"node": node, "process": process, "duration_ns": 400_000 + device}
            rows = [{**common, "start_ns": time, "device": device, "kind": "kernel", "name": ids[0]} for time in times]
            store.append("device_event", pl.DataFrame(rows).cast({"node": pl.Int32, "process": pl.Int32, "device": pl.Int32}))
            rows = [{**common, "start_ns": time - 500, "kind": "launch", "name": ids[1]} for time in times]
            store.append("host_event", pl.DataFrame(rows).cast({"node": pl.Int32, "process": pl.Int32}))
        after = row_counts(store)
        counts = {table: (begin, after[table]) for table, begin in before.items()}
        result = ReadResult(80, BASE - 500, BASE + 21 * 1_000_003)
        sources.append(SourceRows(source, format, Path(f"s{source}"), result, counts))
    return Joining(store, GpuLogs(store, registry), sources, {TRACE, NSIGHT})


@pytest.mark.parametrize(("moved_ns", "second"), [(0, 20), (300_001, 40)])
def test_device_activity_under_another_process_counts_once(moved_ns: int, second: int) -> None:
    with Store.create(None) as store:
        two_processes(store, moved_ns).settle()
        query = "SELECT device, count(*) FROM device_event GROUP BY 1 ORDER BY 1"
        assert store.frame(query).rows() == [(0, 20), (1, second)]
        if not moved_ns:
            processes = "SELECT pid, count(*) FROM {} AS e JOIN process AS p ON p.id = e.process GROUP BY 1 ORDER BY 1"
            for table in ("device_event", "host_event"):
                assert store.frame(processes.format(table)).rows() == [(111, 20), (112, 20)], table
            told = store.frame("SELECT message FROM ingest_note WHERE code = 'recorded_twice'").to_series().to_list()
            assert any("GPU 1 stands in s1, under another process" in text for text in told)


def test_a_log_alone_makes_a_report_with_verdicts(tmp_path: Path) -> None:
    from postrun.analysis.assemble import assemble
    from postrun.analysis.options import Options

    lines = ["timestamp, index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W]"]
    for second in range(1500):
        at = datetime.fromtimestamp(BASE // SECOND + second, UTC)
        for index, percent in ((0, 20 + second % 20), (1, 90 + second % 7)):
            lines.append(f"{at:%Y/%m/%d %H:%M:%S}.00{index}, {index}, {NAME}, {percent} %, {1000 + 40 * second} MiB, 81559 MiB, 300.25 W")
    (tmp_path / "nvidia-smi.n3.csv").write_text("\n".join(lines) + "\n")
    with ingest([tmp_path]) as store:
        report = assemble(store, Options())
    verdicts = {rule.rule: rule.verdict for rule in report.rules}
    assert {rule for rule, verdict in verdicts.items() if verdict == "IssuesFound"} >= {
        "LowGPUUtilization",
        "LoadBalancing",
        "GPUMemoryIncrease",
    }
    usage = {row.metric: row for row in report.system_usage.nodes}
    means = sorted((20 + second % 20 + 90 + second % 7) / 2 for second in range(1500))
    assert usage["gpu"].samples == 1500
    assert not usage["gpu"].derived
    assert (usage["gpu"].min, usage["gpu"].max) == (means[0], means[-1])
    assert [(row.device, row.power_max_w) for row in report.system_usage.gpu_clocks] == [(0, 300.25), (1, 300.25)]
    assert [(row.unit, row.last) for row in report.gpu_memory] == [("B", (1000 + 40 * 1499) * 2.0**20)] * 2
    assert report.run.relative_times is False


def test_sources_of_every_kind_that_name_no_machine_are_of_one(tmp_path: Path) -> None:
    at = 1_772_531_540
    trace = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": at * 1e6 + 5 * k, "dur": 4} for k in range(3)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": trace, "schemaVersion": 1}))
    minute = {"Type": "cpu", "Name": "cpu0", "Dimension": "CPUUtilization", "Value": 50.0, "NodeId": "", "Timestamp": float(at)}
    (tmp_path / "metrics.json").write_text(json.dumps(minute) + "\n")
    horovod = [{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "pid": 1, "ts": 1}, {"ph": "E", "pid": 1, "ts": 5}]
    (tmp_path / "horovod.json").write_text(json.dumps(horovod))
    smi = ["timestamp, index, utilization.gpu [%]", *(f"2026/03/03 09:52:2{k}.000, 0, {k} %" for k in range(4))]
    (tmp_path / "smi.csv").write_text("\n".join(smi) + "\n")
    dcgm = ["timestamp,gpu,DCGM_FI_DEV_POWER_USAGE", *(f"{at + k},0,{200 + k}" for k in range(4))]
    (tmp_path / "dcgm.csv").write_text("\n".join(dcgm) + "\n")
    profile = cProfile.Profile()
    profile.runcall(sorted, [2, 1])
    profile.dump_stats(tmp_path / "main.prof")
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node").to_series().to_list() == ["unknown host"]
        formats = store.frame("SELECT format FROM source WHERE events > 0 ORDER BY 1").to_series().to_list()
        assert formats == [
            "DCGM log", "PyTorch profiler trace", "cProfile result", "hosted framework timeline", "hosted system metrics",
            "nvidia-smi log",
        ]  # fmt: skip


@pytest.mark.parametrize(("field", "machines"), [("DCGM_FI_DEV_POWER_USAGE", 1), ("DCGM_FI_DEV_GPU_UTIL", 2)])
def test_two_monitors_of_one_unknown_machine_do_not_speak_against_each_other(tmp_path: Path, field: str, machines: int) -> None:
    at = 1_772_531_540
    smi = ["timestamp, index, utilization.gpu [%]", *(f"2026/03/03 09:52:2{k}.000, 0, {k} %" for k in range(4))]
    (tmp_path / "a.csv").write_text("\n".join(smi) + "\n")
    (tmp_path / "b.csv").write_text("\n".join([f"timestamp,gpu,{field}", *(f"{at + k},0,{90 + k}" for k in range(4))]) + "\n")
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT count(*) FROM node").item() == machines
