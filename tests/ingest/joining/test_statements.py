"""Names of files in statements of the user: resolved to sources, or refused with the next step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from postrun import analyze, cli
from postrun.commands.compare_inputs import report_file
from postrun.errors import UsageError
from postrun.ingest import ingest
from postrun.ingest.joining.statements import Stated, Statements
from postrun.ingest.store import Store
from postrun.option_values import clock_offset, same

FILES = [(0, Path("run/a/smi.csv")), (1, Path("run/b/smi.csv")), (2, Path("run/trace.json")), (3, Path("run/dcgm.csv"))]
BASE = 1_700_000_000


def test_names_are_paths_or_the_end_of_one() -> None:
    stated = Stated((("run/a/smi.csv", "trace.json"), ("dcgm.csv", "b/smi.csv")), {"run/trace.json": -5})
    assert stated.resolved(FILES) == Statements((frozenset({0, 2}), frozenset({1, 3})), {2: -5})
    assert stated.resolved(FILES).sources == {0, 1, 2, 3}


def test_groups_with_a_file_in_common_are_one() -> None:
    stated = Stated((("a/smi.csv", "trace.json"), ("b/smi.csv", "dcgm.csv"), ("trace.json", "dcgm.csv")))
    assert stated.resolved(FILES).same == (frozenset({0, 1, 2, 3}),)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (Stated((("smi.csv", "trace.json"),)), r"--same smi.csv: 2 files have this name \(run/a/smi.csv, run/b/smi.csv\); write more of"),
        (
            Stated((("trace.jsn", "dcgm.csv"),)),
            r"--same trace.jsn: no file of the run that is read has this name; did you mean trace.json\?",
        ),
        (Stated((), {"x": 1}), r"--clock-offset x: no file .* has this name; name one of dcgm.csv, smi.csv, trace.json$"),
        (Stated((("trace.json", "run/trace.json"),)), r"--same trace.json,run/trace.json: name at least two different files"),
        (Stated((), {"trace.json": 1, "run/trace.json": 2}), r"--clock-offset run/trace.json: the file has two offsets; state one"),
        (Stated((("", "trace.json"),)), r"--same : no file"),
    ],
)
def test_names_of_no_file_or_of_several_are_refused(stated: Stated, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        stated.resolved(FILES)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.csv=1.5s", ("a.csv", 1_500_000_000)), ("a.csv=-2h", ("a.csv", -7_200_000_000_000)), ("a=b.csv=+3ms", ("a=b.csv", 3_000_000)),
        ("a.csv=10us", ("a.csv", 10_000)), ("a.csv= 7 ns", ("a.csv", 7)), ("a.csv=1min", ("a.csv", 60_000_000_000)),
        ("t.json=1700000000.123456789s", ("t.json", 1_700_000_000_123_456_789)),
    ],
)  # fmt: skip
def test_offsets_are_exact(text: str, value: tuple[str, int]) -> None:
    assert clock_offset(text) == value


@pytest.mark.parametrize(
    "text", ["a.csv", "a.csv=", "=1s", "a.csv=1", "a.csv=1 day", "a.csv=0.5ns", "a.csv=1e9s", "a.csv=99999999999s", "a=--1s"]
)
def test_other_offsets_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a file and an offset in whole nanoseconds; write it like smi.csv=-1.5s"):
        clock_offset(text)


def test_one_file_is_no_group() -> None:
    assert same("a.csv, b.csv,c") == ("a.csv", "b.csv", "c")
    with pytest.raises(UsageError, match=r"names fewer than two files; write it like smi\.csv,trace\.json"):
        same("a.csv")


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Write a trace of n1 from BASE and an unnamed log in local time, two hours ahead."""
    folder = tmp_path / "run"
    folder.mkdir()
    kernels = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": second * 1e6, "dur": 8e5, "args": {"device": 0, "stream": 7}}
        for second in range(20)
    ]
    trace = {"host_name": "n1", "baseTimeNanoseconds": BASE * 10**9, "traceEvents": kernels}
    (folder / "trace.json").write_text(json.dumps(trace))
    lines = [f"2023/11/15 00:13:{second:02}.000, 0, {second} %" for second in range(20, 40)]
    (folder / "smi.csv").write_text("\n".join(["timestamp, index, utilization.gpu [%]", *lines]) + "\n")
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, [str(argument) for argument in arguments])


STATED = ("--same", "smi.csv,trace.json", "--clock-offset", "smi.csv=-2h")


def first_sample(store: Store) -> tuple[str, int]:
    query = "SELECT hostname, min(time_ns) FROM sample JOIN node ON node.id = node WHERE metric = 'gpu_utilization' GROUP BY 1"
    host, time = store.frame(query).row(0)
    return host, time


@pytest.mark.slow
def test_ingest_takes_statements_from_the_command_line_the_environment_and_a_file(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stated.toml").write_text('same = "smi.csv,trace.json"\nclock-offset = ["smi.csv=-2h"]\n')
    ways = {"none": (), "line": STATED, "file": ("--config", "stated.toml"), "environment": ()}
    for way, arguments in ways.items():
        if way == "environment":
            monkeypatch.setenv("POSTRUN_SAME", "smi.csv,trace.json")
            monkeypatch.setenv("POSTRUN_CLOCK_OFFSET", "smi.csv=-2h")
        done = run("ingest", run_folder, "-o", f"{way}.duckdb", *arguments)
        assert done.exit_code == 0, done.output
        with Store.open(tmp_path / f"{way}.duckdb") as store:
            expected = ("unknown host", (BASE + 7200) * 10**9) if way == "none" else ("n1", BASE * 10**9)
            assert first_sample(store) == expected, way


def test_a_report_of_a_log_and_a_trace_is_of_one_machine_as_stated(run_folder: Path, tmp_path: Path) -> None:
    arguments = ("report", run_folder, "-o", tmp_path / "out", "--format", "json", "--rules", "LowGPUUtilization")
    apart = run(*arguments)
    assert apart.exit_code == 0, apart.output
    notes = {note["code"]: note["message"] for note in json.loads((tmp_path / "out" / "report.json").read_text())["data_quality"]}
    assert "--same smi.csv,trace.json" in notes["machine_unknown"]
    assert "--clock-offset smi.csv=-2h" in notes["clock_unknown"]
    done = run(*arguments, *STATED)
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [node["hostname"] for node in report["nodes"]] == ["n1"]
    assert {note["code"] for note in report["data_quality"]} >= {"machine_joined", "clock_shifted"}
    (log,) = [source for source in report["run"]["sources"] if source["path"].endswith("smi.csv")]
    assert (log["clock_offset_ns"], log["clock_evidence"]) == (-7200 * 10**9, "stated with --clock-offset")


def test_python_and_compare_take_statements(run_folder: Path, tmp_path: Path) -> None:
    report = analyze(run_folder, rules=[], same=[("smi.csv", "trace.json")], clock_offsets={"smi.csv": -7200 * 10**9})
    assert [node.hostname for node in report.nodes] == ["n1"]
    done = run("compare", run_folder, run_folder, "-o", tmp_path / "out", "--format", "json", "--rules", "LowGPUUtilization", *STATED)
    assert done.exit_code == 0, done.output
    compared = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert "unknown host" not in json.dumps(compared)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--same", "smi.csv"), "names fewer than two files"),
        (("--same", "smi.csv,trace.jso"), "did you mean trace.json?"),
        (("--clock-offset", "smi.csv=2"), "write it like smi.csv=-1.5s"),
        (("--clock-offset", "smi.csv=1s", "--clock-offset", "smi.csv=2s"), "smi.csv has two offsets"),
        (("--clock-offset", "trace.json=-4500000000s"), "its times would be out of range"),
    ],
)
def test_a_wrong_statement_ends_with_the_next_step(run_folder: Path, tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run("ingest", run_folder, "-o", tmp_path / "run.duckdb", *arguments)
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())
    assert not (tmp_path / "run.duckdb").exists()


def test_statements_about_what_is_read_already_are_refused(run_folder: Path, tmp_path: Path) -> None:
    ingest([run_folder], tmp_path / "run.duckdb").close()
    with pytest.raises(UsageError, match=r"is a run store already; use --same and --clock-offset when you make it"):
        ingest([tmp_path / "run.duckdb"], same=[("smi.csv", "trace.json")])
    with Store.open(tmp_path / "run.duckdb") as store, pytest.raises(UsageError, match=r"give them to ingest\(\)"):
        analyze(store, same=[("smi.csv", "trace.json")])
    assert run("report", run_folder, "-o", tmp_path / "out", "--format", "json").exit_code == 0
    assert report_file(tmp_path / "out")
    done = run("compare", tmp_path / "out", run_folder, *STATED)
    assert done.exit_code == 2
    assert "--same cannot change a report that is there already" in " ".join(done.output.split())


def test_files_of_several_machines_or_of_none_are_refused(run_folder: Path) -> None:
    lines = ["timestamp,gpu,Hostname,DCGM_FI_DEV_GPU_UTIL", *(f"{BASE + k},0,n{k % 2},50" for k in range(6))]
    (run_folder / "dcgm.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match=r"--same dcgm.csv: the log has lines of 2 machines; name files of one machine"):
        ingest([run_folder], same=[("dcgm.csv", "trace.json")])
    (run_folder / "dcgm.csv").write_text(lines[0] + "\n")
    with pytest.raises(UsageError, match=r"--same dcgm.csv: the log has no value that is read; leave it out"):
        ingest([run_folder], same=[("dcgm.csv", "trace.json")])
    with pytest.raises(UsageError, match=r"--clock-offset dcgm.csv: the file has no times; leave it out"):
        ingest([run_folder], clock_offsets={"dcgm.csv": 1})


def test_two_logs_without_a_name_are_of_one_machine_as_stated(run_folder: Path) -> None:
    text = (run_folder / "smi.csv").read_text()
    (run_folder / "trace.json").unlink()
    (run_folder / "other.csv").write_text(text.replace(", 0, 2", ", 0, 5"))
    with ingest([run_folder]) as store:
        assert store.frame("SELECT hostname FROM node ORDER BY 1").to_series().to_list() == ["unknown host", "unknown host 2"]
    with ingest([run_folder], same=[("smi.csv", "other.csv")]) as store:
        assert store.frame("SELECT hostname FROM node").to_series().to_list() == ["unknown host"]


def test_a_log_without_a_name_is_of_the_machine_that_a_later_log_names_by_its_uuids(run_folder: Path) -> None:
    (run_folder / "trace.json").unlink()
    text = (run_folder / "smi.csv").read_text()
    (run_folder / "smi.csv").write_text(text.replace("index,", "index, uuid,").replace(", 0, ", ", 0, GPU-5b0c, "))
    lines = ["timestamp,gpu,UUID,Hostname,DCGM_FI_DEV_POWER_USAGE", *(f"{BASE + k},3,GPU-5b0c,n1,300" for k in range(6))]
    (run_folder / "dcgm.csv").write_text("\n".join(lines) + "\n")
    with ingest([run_folder]) as store:
        assert store.frame("SELECT hostname FROM node").to_series().to_list() == ["n1"]
        assert store.frame("SELECT DISTINCT unit FROM sample").to_series().to_list() == [0], "the UUID is one GPU"
        texts = store.frame("SELECT message FROM ingest_note WHERE code = 'machine_joined'").to_series().to_list()
        assert texts == ["Files that name no machine are of n1: the UUIDs of their GPUs are those of the log."]
