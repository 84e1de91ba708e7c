"""Beginnings of ambiguously named files decide which folders are runs, and which files belong to a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from postrun.ingest.object_store.open import open_objects
from postrun.nightly.discover import found_runs
from postrun.nightly.model import FoundRun, Row
from postrun.nightly.night import real_runs

TRACE = json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 5, "dur": 4}]})
SMI = "timestamp, index, utilization.gpu [%]\n2026/03/03 09:52:20.000, 0, 10 %\n"
LOSSES = '{"losses": [3.5, 2.5]}'
# The files that indicate a run of each kind by name alone.
SURE = {"recording": "h.1.2.prt", "hosted": "system/incremental/1772531220.algo-1.json", "traces": "rank0/main.trace.json"}


def _find(folder: Path, known: dict[str, Row] | None = None) -> dict[str, FoundRun]:
    source = open_objects(str(folder))
    actual = list(real_runs(source, found_runs(source.list(), now_ns=2**62, settle_ns=0), known or {}, []))
    return {run.id: run for run in actual}


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"train-gpu.log": "epoch 1\n"}, "b/run.duckdb"),
        ({"gpu_prices.csv": "name,price\nA100,2\n", "losses.json": LOSSES, "cpu.prof": "1 2 3"}, "b/run.duckdb"),
        ({"gpu.csv": SMI, "losses.json": LOSSES}, "b/run.duckdb"),
        ({"nvidia-smi.csv": SMI, "losses.json": LOSSES}, "b/run.duckdb"),
        ({"profile_0.json": TRACE, "losses.json": LOSSES}, "b"),
        ({"profile_0.json": TRACE, "nvidia-smi.csv": SMI}, "b"),
    ],
)
def test_a_run_store_is_a_run_unless_what_it_was_made_from_stands_beside(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    _write(tmp_path / "b", {"run.duckdb": "a store", **files})
    assert list(_find(tmp_path)) == [expected]


@pytest.mark.parametrize("kind", list(SURE))
def test_what_is_appended_to_other_files_does_not_change_a_run(tmp_path: Path, kind: str) -> None:
    other_files = {"train-gpu.log": "epoch 1\n", "cpu.prof": "1 2 3"}
    if kind != "traces":
        other_files["losses.json"] = LOSSES
    _write(tmp_path / "j", {SURE[kind]: "", **other_files})
    before = _find(tmp_path)["j"]
    assert [one.path for one in before.objects] == [f"j/{SURE[kind]}"]
    assert before.kind == kind
    with (tmp_path / "j" / "train-gpu.log").open("a") as log:
        log.write("epoch 2\n")
    _write(tmp_path / "j", {"losses.json": LOSSES + "\n"} if kind != "traces" else {})
    assert _find(tmp_path)["j"] == before


@pytest.mark.parametrize("kind", list(SURE))
def test_what_begins_like_a_file_of_a_run_is_of_it(tmp_path: Path, kind: str) -> None:
    _write(tmp_path / "j", {SURE[kind]: "", "train-gpu.log": "epoch 1\n", "logs/gpu.log": SMI, "zz.json": TRACE})
    (run,) = _find(tmp_path).values()
    assert [one.path for one in run.objects] == sorted([f"j/{SURE[kind]}", "j/logs/gpu.log", "j/zz.json"])
    with (tmp_path / "j" / "logs" / "gpu.log").open("a") as log:
        log.write("2026/03/03 09:52:21.000, 0, 20 %\n")
    assert _find(tmp_path)["j"].fingerprint != run.fingerprint


def test_a_run_is_not_complete_while_a_log_of_it_is_written(tmp_path: Path) -> None:
    _write(tmp_path / "j", {"h.1.2.prt": "", "gpu.log": SMI, "train-gpu.log": "epoch 1\n"})
    old = (tmp_path / "j" / "h.1.2.prt").stat().st_mtime_ns
    source = open_objects(str(tmp_path))

    def complete(fresh: str) -> bool:
        listing = list(source.list())
        at = {one.path: old + 10**12 if one.path == fresh else old for one in listing}
        moved = [replace(one, modified_ns=at[one.path]) for one in listing]
        (run,) = real_runs(source, found_runs(moved, now_ns=old + 2 * 10**12, settle_ns=3 * 10**12 // 2), {}, [])
        return run.complete

    assert [complete("j/gpu.log"), complete("j/train-gpu.log")] == [False, True]
