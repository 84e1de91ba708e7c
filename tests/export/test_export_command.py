"""Tests of `postrun export`: files, output and refusals."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from postrun.cli import main
from postrun.export.lanes import Lanes
from postrun.export.write import write
from postrun.ingest import ingest
from postrun.ingest.store import Store
from postrun.ingest.store.schema import SCHEMA
from small_runs import write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run store of a simulated run of one GPU."""
    folder = tmp_path_factory.mktemp("run")
    file = folder / "run.duckdb"
    ingest([str(write_run(folder / "traces"))], file).close()
    return file


def refused(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-P", "-m", "postrun", "export", *arguments], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("kind", ["parquet", pytest.param("csv", marks=pytest.mark.slow)])
def test_a_file_per_table_with_names_resolved(kind: str, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    done = CliRunner().invoke(main, ["export", str(run), "-f", kind, "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert {file.name for file in out.iterdir()} == {"README.md", *(f"{table}.{kind}" for table in SCHEMA if table != "name")}
    readme = (out / "README.md").read_text()
    described = [line for line in readme.splitlines() if line.startswith("| ")]
    assert len(described) > 100
    assert not [line for line in described if line.endswith("|  |")]  # every column is described
    with Store.open(run) as store:
        for table in SCHEMA:
            if table == "name":
                continue
            rows = store.frame(f"SELECT count(*) FROM {table}").item()
            file = out / f"{table}.{kind}"
            if kind == "parquet":
                read = pq.read_table(file)
                columns, count = read.column_names, read.num_rows
            else:
                with file.open(newline="") as text:
                    columns, *lines = csv.reader(text)
                count = len(lines)
            assert count == rows, table
            assert f"## {table}.{kind}\n\n{rows} rows." in readme
            assert all(f"| {column} |" in readme for column in columns)
        expected = store.frame("""
            SELECT n.text, n.short, p.rank, e.start_ns, e.duration_ns FROM device_event AS e JOIN name AS n ON n.id = e.name
            JOIN process AS p ON p.id = e.process ORDER BY ALL
        """).rows()
    wanted = ["name", "short_name", "rank", "start_ns", "duration_ns"]
    if kind == "parquet":
        actual = [tuple(row.values()) for row in pq.read_table(out / "device_event.parquet", columns=wanted).to_pylist()]
    else:
        with (out / "device_event.csv").open(newline="") as text:
            actual = [
                (r["name"], r["short_name"] or None, int(r["rank"]), int(r["start_ns"]), int(r["duration_ns"]))
                for r in csv.DictReader(text)
            ]
    assert sorted(actual, key=str) == sorted(expected, key=str)


def test_tables_again_are_alike_and_replace_the_earlier_ones(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    with Store.open(run) as store:
        write(store, "parquet", out)
        first = {file.name: file.read_bytes() for file in out.iterdir()}
        (out / "run.parquet").write_bytes(b"")
        write(store, "parquet", out)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == first
    assert [file.name for file in tmp_path.iterdir()] == ["tables"]


def test_traces_and_run_stores_give_the_same(run: Path, tmp_path: Path) -> None:
    for source, name in ((run, "a.pftrace"), (run.parent / "traces", "b.pftrace")):
        done = CliRunner().invoke(main, ["export", str(source), "--format", "perfetto", "-o", str(tmp_path / name), "--json"])
        assert done.exit_code == 0, done.output
        output = json.loads(done.stdout)
        assert min(output["slices"], output["arrows"], output["tracks"]) > 0
    assert (tmp_path / "a.pftrace").read_bytes() == (tmp_path / "b.pftrace").read_bytes()


def test_what_cannot_be_meant_is_refused_before_anything_is_read(run: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    asked = [
        (["-f", "perfetto", "-o", str(tmp_path)], "is a folder"),
        (["-f", "csv", "-o", str(tmp_path)], "holds something else (notes.txt)"),
        (["-f", "csv", "-o", str(tmp_path / "notes.txt")], "is a file"),
        (["-f", "chrome", "-o", "/dev/null"], "is not a file that could be replaced"),
        (["-f", "chrome", "-o", str(tmp_path / "notes.txt" / "run.json")], "notes.txt is a file"),
        (["-f", "chrome", "-o", str(run)], "is the run itself"),
        (["-f", "chrome", "-o", "s3://bucket/run.json"], "of this machine"),
        (["-f", "parquet", "-o", str(tmp_path / "x"), "--csv-raw"], "--csv-raw is for --format csv, not parquet"),
        (["-f", "otf2", "-o", str(tmp_path / "x")], "'otf2' is not one of"),
        (["-f", "chrome"], "Missing option '--output'"),
        (["-o", str(tmp_path / "x")], "Missing option '--format'"),
    ]
    for arguments, words in asked:
        done = CliRunner().invoke(main, ["export", str(run), *arguments])
        assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("kind", ["perfetto", "chrome", "parquet", "csv"])
def test_standard_output_is_no_place_for_an_export(kind: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, error = refused(str(run), "-f", kind, "-o", "-")
    assert (code, error) == (2, "postrun: -: an export is not written to standard output; name a file or folder with -o\n")
    assert list(tmp_path.iterdir()) == []


def test_a_trace_that_is_read_back_has_the_name_of_its_machine(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 7, "tid": 7, "ts": 1_700_000_000_000_000, "dur": 5}
    trace = json.dumps({"schemaVersion": 1, "traceEvents": [event]})
    for name, host in (("node-3_7.1700000000000.pt.trace.json", "node-3"), ("nameless.json", None)):
        (tmp_path / name).write_text(trace)
        out = tmp_path / f"{host}.json"
        with ingest([tmp_path / name]) as store:
            write(store, "chrome", out)
        assert json.loads(out.read_text()).get("host_name") == host
        with ingest([out]) as store:
            assert store.frame("SELECT hostname FROM node").to_series().to_list() == [host or "unknown host"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("perfetto", "run.pftrace"), ("chrome", "run.json.gz"), ("parquet", "tables")])
def test_a_disk_without_space_leaves_nothing_behind(kind: str, name: str, run: Path, tmp_path: Path) -> None:
    code = """
import resource, sys
import postrun.ingest as package
from postrun.cli import main

def loaded(*given, **named):  # the run is in a temporary store: only what is written then finds no space
    store = load(*given, **named)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    return store

load, package.ingest = package.ingest, loaded
main(sys.argv[1:])
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "export", str(run), "-f", kind, "-o", str(tmp_path / name)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    assert "space" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_missing_source_is_one_line(tmp_path: Path) -> None:
    code, error = refused(str(tmp_path / "nothing"), "-f", "chrome", "-o", str(tmp_path / "x.json"))
    assert (code, error.count("\n")) == (4, 1)


def placed(lanes: Lanes, spans: list[tuple[int, int]], track: int = 0) -> list[tuple[int, list[tuple[int, int]]]]:
    """Of each event its lane, and what ends before it: track and time."""
    starts, ends = np.array(spans).T
    placed = lanes.assign(np.full(len(spans), track), starts, ends)
    over = [list(zip(placed.ends.tracks[a:b].tolist(), placed.ends.times[a:b].tolist(), strict=True)) for a, b in pairwise(placed.over)]
    return list(zip(placed.lanes.tolist(), over, strict=True))


def test_lanes_on_paper() -> None:
    calls = Lanes(nested=True)
    assert placed(calls, [(0, 10), (2, 5), (4, 6), (5, 9), (10, 12)]) == [
        (0, []), (0, []), (1, []), (0, [(0, 5)]), (0, [(0, 9), (0, 10)]),
    ]  # fmt: skip
    assert placed(calls, [(11, 11), (11, 13)]) == [(0, []), (1, [(0, 11), (0, 6)])]
    assert placed(calls, [(0, 3)], track=4) == [(0, [(0, 12), (0, 13)])]
    rest = calls.rest()
    assert (rest.times.tolist(), rest.tracks.tolist(), rest.lanes.tolist()) == ([3], [4], [0])
    runs = Lanes(nested=False)
    assert [lane for lane, _ in placed(runs, [(0, 10), (2, 5), (5, 9), (10, 10), (10, 11)])] == [0, 1, 1, 0, 0]


def test_what_the_readers_missed_is_told(tmp_path: Path) -> None:
    """Two events of a trace whose text ends within the third are exported."""
    trace = {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": f"op{i}", "pid": 1, "tid": 1, "ts": 10 * i, "dur": 5} for i in range(3)]}
    (tmp_path / "cut.json").write_text(json.dumps(trace)[:-30])
    arguments = ["export", str(tmp_path / "cut.json"), "-f", "chrome", "-o", str(tmp_path / "out.json")]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    assert "2 events" in done.stdout
    assert "breaks off" in done.stderr
    output = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    assert any("breaks off" in message for message in output["warnings"])


_FORMULAS = [
    '=HYPERLINK("http://evil","x")', "@SUM(1+1)*cmd|' /C calc'!A0", "+1", "-1+1", "\t=1", "\r=1", "\n=1", "\uff1d1", "\uff0b1", "\uff0d1",
    "\uff201", " =1", "\x0b=1", "\u00a0=1", "\ufeff=1", "a;=1", "a; @b",
]  # fmt: skip
_PLAIN = ["gemm", "a=1", "'=1", "<built-in method>", "a; b=1", "void f<-1>(float*)", "", "\u2212 1"]


@pytest.mark.parametrize("kind", ["csv", "raw", "parquet"])
def test_texts_that_a_spreadsheet_runs_are_written_as_texts(tmp_path: Path, kind: str) -> None:
    texts = [*_FORMULAS, *_PLAIN]
    with Store.create(None) as store:
        ids = store.name_ids(texts)
        rows = {"name": ids, "start_ns": range(len(ids)), "value": [-5] * len(ids), "phase": texts, "arguments": [None] * len(ids)}
        store.append("annotation", pl.DataFrame(rows, schema_overrides={"name": pl.Int32, "arguments": pl.String}))
        write(store, "parquet" if kind == "parquet" else "csv", tmp_path / "out", csv_raw=kind == "raw")
    if kind == "parquet":
        exported = pq.read_table(tmp_path / "out/annotation.parquet").to_pylist()
    else:
        with (tmp_path / "out/annotation.csv").open(newline="", encoding="utf-8") as file:
            exported = list(csv.DictReader(file))
    expected = texts if kind != "csv" else [*(f"'{text}" for text in _FORMULAS), *_PLAIN]
    for column in ("name", "phase"):
        assert [row[column] for row in exported] == expected
    assert {str(row["value"]) for row in exported} == {"-5"}  # a number is not a formula
    assert {row["arguments"] or None for row in exported} == {None}
