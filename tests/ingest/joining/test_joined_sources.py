"""Tests that several sources become one run: same machine, process and clock, nothing counted twice."""

from __future__ import annotations

import cProfile
import gzip
import json
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from postrun.errors import UsageError
from postrun.ingest.gpu_logs.rows import GpuLogs
from postrun.ingest.joining.join import Joining
from postrun.ingest.joining.sources import SourceFile
from postrun.ingest.joining.statements import Statements
from postrun.ingest.load import ingest
from postrun.ingest.store import Store
from postrun.ingest.store.format_names import NSIGHT, TRACE
from postrun.ingest.store.registry import ReadResult, Registry
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
    events: Events = {}
    for path in sorted((joined_run / "kineto").iterdir()):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        base = int(trace.get("baseTimeNanoseconds", 0))
        for event in trace["traceEvents"]:
            if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                start = base + round(event["ts"] * 1000)
                events.setdefault(event["args"]["device"], []).append((start, start + round(event["dur"] * 1000)))
    return events


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
        for rank, path in enumerate(sorted((folder / "kineto").iterdir())):
            trace = json.loads(gzip.decompress(path.read_bytes()))
            trace.pop("host_name", None)
            path.unlink()
            (folder / "kineto" / f"trace{rank}.json").write_text(json.dumps(trace))
    return folder


@pytest.mark.parametrize("hours", [0.0, 7.0, -5.5])
def test_a_log_without_a_host_name_is_joined_and_shifted_as_stated(
    joined_run: Path, device_work: Events, tmp_path: Path, hours: float
) -> None:
    shift = round(hours * 3600) * SECOND
    traces(joined_run, tmp_path)
    with ingest([tmp_path]) as alone:
        before = totals(alone)
    (tmp_path / "smi.csv").write_text(smi_text(device_work, shift))
    trace = min((tmp_path / "kineto").iterdir()).name
    with ingest([tmp_path]) as store:
        assert totals(store) == before
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", "unknown host"]
        assert store.frame("SELECT clock_offset_ns FROM source").drop_nulls().is_empty()
        noted = notes(store)
        assert f"--same smi.csv,{trace}" in noted["machine_unknown"]
        assert "may_be_one_machine" not in noted, "one note is enough"
        assert "--clock-offset smi.csv=-2h" in noted["clock_unknown" if hours else "times_without_zone"]
    with ingest([tmp_path], same=[("smi.csv", f"kineto/{trace}")], clock_offsets={"smi.csv": -shift}) as store:
        assert totals(store) == before
        assert store.frame("SELECT hostname, gpus FROM node").rows() == [("algo-1", 2)]
        noted = notes(store)
        assert noted["machine_joined"] == "The log is of algo-1, as stated with --same."
        assert not {"machine_unknown", "clock_unknown", "times_without_zone"} & noted.keys()
        row = store.frame("SELECT clock_offset_ns, clock_evidence FROM source WHERE format = 'nvidia-smi log'").row(0)
        assert row == (-shift, "stated with --clock-offset")
        # With the stated offset every sample is the busy share of the time before it.
        for unit, events in device_work.items():
            for time, value in store.frame(
                "SELECT time_ns, value FROM sample WHERE metric = 'gpu_utilization' AND unit = ? ORDER BY time_ns", [unit]
            ).rows()[60:90]:
                near = [event for event in events if event[1] > time - INTERVAL and event[0] < time]
                assert value == pytest.approx(100 * busy_within(near, time - INTERVAL, time) / INTERVAL, abs=2)


def test_a_log_of_another_day_is_noted_with_both_times(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    (tmp_path / "smi.csv").write_text(smi_text(device_work, -40 * 3600 * SECOND))
    with ingest([tmp_path]) as store:
        text = notes(store)["clock_unknown"]
        for query in (
            "SELECT min(first_ns), max(last_ns) FROM source WHERE format = 'nvidia-smi log'",
            "SELECT min(first_ns), max(last_ns) FROM source WHERE format <> 'nvidia-smi log' AND events > 0",
        ):
            first, last = (datetime.fromtimestamp(time // SECOND, UTC) for time in store.frame(query).row(0))
            assert f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S}" in text


def test_a_log_of_other_gpus_is_not_of_the_machine_whatever_is_stated(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    (tmp_path / "smi.csv").write_text(smi_text(device_work, 0, name="NVIDIA A100-SXM4-80GB"))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", "unknown host"]
        assert "--same smi.csv,FILE" in notes(store)["machine_unknown"]
    with pytest.raises(UsageError, match=r"--same smi\.csv: GPU 0 is a NVIDIA A100-SXM4-80GB, and a NVIDIA H100 80GB HBM3 in other files"):
        ingest([tmp_path], same=[("smi.csv", min((tmp_path / "kineto").iterdir()))])


def test_traces_without_a_host_name_are_of_the_machine_of_the_metrics_as_stated(joined_run: Path, tmp_path: Path) -> None:
    with ingest([joined_run]) as all_sources:
        expected, samples = totals(all_sources), all_sources.frame("SELECT count(*) FROM sample").item()
        processes = all_sources.frame("SELECT pid, rank FROM process ORDER BY ALL").rows()
    shutil.copytree(joined_run / "profiler-output" / "system", tmp_path / "profiler-output" / "system")
    traces(joined_run, tmp_path, without_host=True)
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", "unknown host"]
        (text,) = store.frame("SELECT message FROM ingest_note WHERE code = 'may_be_one_machine'").to_series()
        assert "unknown host has traces and no samples, algo-1 has samples and no traces" in text
        stated = text.rpartition("--same ")[2].removesuffix(".").split(",")
        assert stated[0] == "trace0.json"
    with ingest([tmp_path], same=[stated]) as store:
        assert store.frame("SELECT hostname FROM node").to_series().to_list() == ["algo-1"]
        assert totals(store) == expected
        assert store.frame("SELECT count(*) FROM sample").item() == samples
        assert store.frame("SELECT pid, rank FROM process ORDER BY ALL").rows() == processes
        assert "are of one machine, shown as algo-1, as stated with --same" in notes(store)["machine_joined"]
        for table in ("device_event", "host_event", "annotation", "sample", "step", "process", "device"):
            assert store.frame(f"SELECT count(*) FROM {table} WHERE node NOT IN (SELECT id FROM node)").item() == 0, table


def test_a_trace_without_an_epoch_is_shifted_as_stated(joined_run: Path, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    first, second = sorted((tmp_path / "kineto").iterdir())
    trace = json.loads(gzip.decompress(first.read_bytes()))
    base = int(trace.pop("baseTimeNanoseconds"))
    with ingest([tmp_path]) as store:
        expected = totals(store), store.frame("SELECT min(start_ns), max(start_ns) FROM device_event").row(0)
        windows = store.frame("SELECT first_ns, last_ns FROM profile_window ORDER BY ALL").rows()
    first.write_bytes(gzip.compress(json.dumps(trace).encode()))
    with ingest([tmp_path]) as store:
        assert f"--clock-offset {first.name}=SECONDSs" in notes(store)["clock_unknown"]
        assert store.frame("SELECT min(start_ns) FROM device_event").item() < BASE // 2
    with ingest([tmp_path], clock_offsets={str(first): base}) as store:
        assert (totals(store), store.frame("SELECT min(start_ns), max(start_ns) FROM device_event").row(0)) == expected
        assert store.frame("SELECT first_ns, last_ns FROM profile_window ORDER BY ALL").rows() == windows
        assert store.frame("SELECT clock_offset_ns FROM source WHERE clock_offset_ns IS NOT NULL").to_series().to_list() == [base]
        assert "clock_unknown" not in notes(store)
    assert second.exists()


def test_a_copy_without_an_epoch_gets_the_clock_of_the_trace_with_the_same_kernels(joined_run: Path, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    with ingest([tmp_path]) as alone:
        before = totals(alone)
    path = min((tmp_path / "kineto").iterdir())
    trace = json.loads(gzip.decompress(path.read_bytes()))
    base = int(trace.pop("baseTimeNanoseconds"))
    (tmp_path / "cut.json").write_text(json.dumps(trace))
    with ingest([tmp_path]) as store:
        assert totals(store) == before
        offset, evidence = store.frame("SELECT clock_offset_ns, clock_evidence FROM source WHERE clock_offset_ns IS NOT NULL").row(0)
        assert offset == base
        assert evidence.endswith(f"identical kernels of {path.name}")
        assert "clock_unknown" not in notes(store)
    for event in trace["traceEvents"]:
        if event.get("cat") == "kernel":
            event["dur"] = event["dur"] * 1.01 + event["ts"] % 1
    (tmp_path / "cut.json").write_text(json.dumps(trace))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT clock_offset_ns FROM source").drop_nulls().is_empty()
        assert "--clock-offset cut.json=SECONDSs" in notes(store)["clock_unknown"]


def test_system_metrics_are_shifted_alone(joined_run: Path, tmp_path: Path) -> None:
    shutil.copytree(joined_run / "profiler-output" / "system", tmp_path / "system")
    files = sorted(path for path in (tmp_path / "system").rglob("*.json"))
    with ingest([tmp_path]) as store:
        before = store.frame("SELECT metric, unit, time_ns, value FROM sample ORDER BY ALL").rows()
        spans = {Path(path).name: span for path, *span in store.frame("SELECT path, first_ns, last_ns FROM source").rows()}
    with ingest([tmp_path], clock_offsets={files[0].name: 5 * SECOND}) as store:
        after = store.frame("SELECT metric, unit, time_ns, value FROM sample ORDER BY ALL").rows()
        shifted = {Path(path).name: span for path, *span in store.frame("SELECT path, first_ns, last_ns FROM source").rows()}
    assert shifted == {**spans, files[0].name: [time + 5 * SECOND for time in spans[files[0].name]]}
    moved = {row for row in before if spans[files[0].name][0] <= row[2] <= spans[files[0].name][1]}
    assert sorted(after) == sorted(
        (metric, unit, time + 5 * SECOND * ((metric, unit, time, value) in moved), value) for metric, unit, time, value in before
    )


@pytest.mark.parametrize("shift", [0, 40 * SECOND])
def test_machines_of_two_names_stay_two_with_a_note(joined_run: Path, device_work: Events, tmp_path: Path, shift: int) -> None:
    traces(joined_run, tmp_path)
    (tmp_path / "nvidia-smi.titan.csv").write_text(smi_text(device_work, shift))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", "titan"]
        severity, text = store.frame("SELECT severity::VARCHAR, message FROM ingest_note WHERE code = 'may_be_one_machine'").row(0)
        assert severity == "info"
        assert "algo-1 has traces and no samples, titan has samples and no traces" in text
        assert text.endswith(",nvidia-smi.titan.csv.")
    trace = min((tmp_path / "kineto").iterdir()).name
    with ingest([tmp_path], same=[("nvidia-smi.titan.csv", trace)]) as store:
        assert store.frame("SELECT hostname FROM node").to_series().to_list() == ["algo-1"]
        assert "may_be_one_machine" not in notes(store)


def test_a_log_that_names_another_machine_is_kept_apart(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    (tmp_path / "nvidia-smi.nodeY.csv").write_text(smi_text(device_work, 0))
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", "nodeY"]
        assert "nodeY is taken from the name of the file" in notes(store)["machine_joined"]


def test_two_named_machines_stay_two(joined_run: Path, device_work: Events, tmp_path: Path) -> None:
    traces(joined_run, tmp_path)
    first = min(start for events in device_work.values() for start, _ in events) // SECOND
    lines = ["timestamp,gpu,Hostname,DCGM_FI_DEV_GPU_UTIL", *(f"{first + k},0,algo-2,50" for k in range(5))]
    (tmp_path / "dcgm.csv").write_text("\n".join(lines) + "\n")
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["algo-1", "algo-2"]
        assert "machine_joined" not in notes(store)


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
    with ingest([joined_run]) as all_sources:
        before = all_sources.frame("SELECT count(*) FROM sample WHERE metric = 'gpu_utilization'").item()
    shutil.copytree(joined_run, tmp_path / "run")
    (tmp_path / "run" / "nvidia-smi.algo-1.csv").write_text(smi_text(device_work, 0))
    with ingest([tmp_path / "run"]) as store:
        assert store.frame("SELECT count(*) FROM sample WHERE metric = 'gpu_utilization'").item() == before
        assert store.frame("SELECT count(*) FROM sample WHERE metric = 'gpu_memory_used_bytes'").item() > 0
        assert "sampled_twice" in notes(store)


# -- two tracers, row by row -------------------------------------------------------------------------------------------


def append_rows(store: Store, source: int, times: list[tuple[int, int]], *, operators: int = 0, shift: int = 0) -> None:
    """Add kernels of process 0 with these starts and durations."""
    names = store.name_ids([f"kernel_{place % 5}" for place in range(len(times))])
    frame = pl.DataFrame(
        {
            "start_ns": [start + shift for start, _ in times],
            "duration_ns": [duration for _, duration in times],
            "name": pl.Series(names, dtype=pl.Int32),
        }
    ).with_columns(node=pl.lit(0, pl.Int32), process=pl.lit(0, pl.Int32), device=pl.lit(0, pl.Int32), kind=pl.lit("kernel"))
    store.append("device_event", frame, source=source)
    host = frame.select("start_ns", "name", "node", "process", duration_ns=pl.lit(5, pl.Int64), kind=pl.lit("launch"))
    store.append("host_event", host, source=source)
    if operators:
        store.append("host_event", host.head(operators).with_columns(kind=pl.lit("operator")), source=source)


def two_tracers(store: Store, shift: int, *, relative: bool, statements: Statements | None = None) -> Joining:
    registry = Registry(store)
    registry.process(registry.node("n1"), 17, source=0)
    times = [(BASE + place * 10_000_000 + (place * 7919) % 3_000_000, 100_000 + (place * 104_729) % 900_000) for place in range(200)]
    append_rows(store, 0, times, operators=50)
    append_rows(store, 1, [*times[50:], (times[-1][0] + SECOND, 77)], shift=shift)
    first, last = times[0][0], times[-1][0] + times[-1][1]
    sources = [
        SourceFile(0, TRACE, Path("a.json"), ReadResult(450, first, last)),
        SourceFile(1, NSIGHT, Path("b.sqlite"), ReadResult(302, times[50][0] + shift, last + SECOND + shift, relative=relative)),
    ]
    return Joining(store, GpuLogs(store, registry), sources, {TRACE, NSIGHT}, statements)


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
        noted = store.frame("SELECT code, file, message, count FROM ingest_note").rows()
        assert noted == [
            (
                "recorded_twice",
                "b.sqlite",
                "Device activity of the same process and time stands in a.json, too; that counts (it knows the operators).",
                150,
            )
        ]


@pytest.mark.parametrize("relative", [True, False])
def test_a_tracer_with_a_foreign_clock_is_shifted_as_stated_and_then_counts_once(relative: bool) -> None:
    shift = 5 * SECOND - BASE if relative else 7 * SECOND
    with Store.create(None) as store:
        joining = two_tracers(store, shift, relative=relative)
        joining.settle()
        assert not joining.clocks
        assert "--clock-offset" in notes(store)["clock_unknown" if relative else "clock_doubtful"]
    with Store.create(None) as store:
        joining = two_tracers(store, shift, relative=relative, statements=Statements(offsets_ns={1: -shift}))
        joining.settle()
        assert joining.clocks[1].offset_ns == -shift
        assert store.frame("SELECT count(*) FROM device_event").item() == 201
        assert not joining.results[1].relative
        assert joining.results[1].first_ns is not None
        assert joining.results[1].first_ns > BASE
        assert {"clock_unknown", "clock_doubtful"}.isdisjoint(notes(store))


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
                store.append(table, frame, source=process)
        Joining(store, GpuLogs(store, registry), [], {TRACE}).settle()
        assert store.frame("SELECT hostname FROM node").to_series().to_list() == ["n1"]
        assert store.frame("SELECT pid FROM process").to_series().to_list() == [17]
        links = "SELECT d.duration_ns, h.duration_ns FROM device_event AS d JOIN host_event AS h USING (process, correlation) ORDER BY ALL"
        assert store.frame(links).rows() == [(5, 5)] * 3 + [(6, 6)] * 3


def two_processes(store: Store, moved_ns: int) -> Joining:
    """Write an export of two processes and a trace of both that names only the first."""
    registry = Registry(store)
    node = registry.node("n1")
    first, second = (registry.process(node, pid, source=0) for pid in (111, 112))
    ids = store.name_ids(["kernel", "launch"])
    sources = []
    for source, format, parts in (
        (0, TRACE, ((first, 0), (first, 1))),
        (1, NSIGHT, ((first, 0), (second, 1))),
    ):
        for process, device in parts:
            times = [BASE + device * 777 + place * 1_000_003 + source * device * moved_ns for place in range(20)]
            common = {"node": node, "process": process, "duration_ns": 400_000 + device}
            rows = [{**common, "start_ns": time, "device": device, "kind": "kernel", "name": ids[0]} for time in times]
            frame = pl.DataFrame(rows).cast({"node": pl.Int32, "process": pl.Int32, "device": pl.Int32})
            store.append("device_event", frame, source=source)
            rows = [{**common, "start_ns": time - 500, "kind": "launch", "name": ids[1]} for time in times]
            store.append("host_event", pl.DataFrame(rows).cast({"node": pl.Int32, "process": pl.Int32}), source=source)
        result = ReadResult(80, BASE - 500, BASE + 21 * 1_000_003)
        sources.append(SourceFile(source, format, Path(f"s{source}"), result))
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
            messages = store.frame("SELECT message FROM ingest_note WHERE code = 'recorded_twice'").to_series().to_list()
            assert any("GPU 1 stands in s1, under another process" in text for text in messages)


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
