"""Digests of all that postrun writes for seventeen runs that differ as much as possible.

``make frozen`` compares the digests with tests/data/frozen_outputs.json and lists the outputs that differ. Options are passed as
``make frozen FROZEN_ARGS="..."``: ``--write`` accepts these; ``--keep FOLDER`` keeps the outputs in a new folder, to compare them with
those of another version (docs/development.md, "Compare the outputs of whole runs"). Real traces are read from
``../shared/data``; runs whose traces are missing are left out, and keep their digests.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import duckdb
from click.testing import CliRunner
from odd_runs import write_odd_run
from postrun.cli import main as postrun
from postrun.ingest.store.schema import SCHEMA
from postrun.simulate import write_demo
from postrun.simulate.changes import NAMED

ROOT: Final = Path(__file__).resolve().parents[2]
FROZEN: Final = ROOT / "tests" / "data" / "frozen_outputs.json"
_AT: Final = "2026-11-21T06:40:00"
_SMI: Final = "timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W]"

Digests = dict[str, dict[str, str]]  # Run -> output -> digest


def _new_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _damaged(folder: Path) -> None:
    """Write a trace that ends within an event, a complete one, and another file."""
    write_odd_run("one-gpu", folder)
    trace = next((folder / "kineto").iterdir())
    text = gzip.decompress(trace.read_bytes())
    (folder / "kineto" / "cut.pt.trace.json").write_bytes(text[: len(text) * 2 // 3])
    (folder / "notes.json").write_text('{"not": "a trace"}')


def _gpu_log(folder: Path) -> None:
    """A log of nvidia-smi without a trace, 90 samples of two GPUs."""
    folder.mkdir()
    lines = [_SMI]
    for second in range(90):
        for gpu in (0, 1):
            busy = 95 if (second + 20 * gpu) % 45 < 30 else 5
            lines.append(
                f"2026/02/25 06:{20 + second // 60}:{second % 60:02}.000, {gpu}, GPU-0000000{gpu}-1111-2222-3333-444444444444,"
                f" NVIDIA H100 80GB HBM3, {busy} %, {20_000 + 100 * second} MiB, 81559 MiB, {200 + busy}.5 W"
            )
    (folder / "nvidia-smi.node7.csv").write_text("\n".join(lines) + "\n")


def _empty(folder: Path) -> None:
    folder.mkdir()
    (folder / "empty.pt.trace.json").write_text('{"schemaVersion": 1, "traceEvents": [], "displayTimeUnit": "ms"}')


def _recorded(folder: Path) -> None:
    shutil.copytree(ROOT / "tests" / "data" / "small_training" / "run", folder)


def _golden_recording(folder: Path) -> None:
    folder.mkdir()
    shutil.copy(ROOT / "tests" / "native" / "golden" / "v1_1.prt", folder / "v1_1.prt")


WRITERS: Final[Mapping[str, Callable[[Path], object]]] = {
    "demo": write_demo,
    "changed": lambda folder: write_demo(folder, changes=NAMED["kernel"]),
    "no-gpu": lambda folder: write_odd_run("no-gpu", folder),
    "no-steps": lambda folder: write_odd_run("no-steps", folder),
    "one-kernel": lambda folder: write_odd_run("one-kernel", folder),
    "damaged": _damaged,
    "gpu-log": _gpu_log,
    "empty": _empty,
    "recorded": _recorded,
    "golden-recording": _golden_recording,
}
REAL: Final = {
    "h100": "kineto/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "two-ranks": "kineto/sampled_2_ranks",
    "old-schema": "kineto/v100_old_schema",
    "amd": "kineto/mi300/gaunernst_bert-small-uncased__1016001.json.gz",
    "nsys": "nsys/h100_2gpu_1s.sqlite",
    "hosted": "smdebug/merge_traces",
    "tensorflow": "smdebug/tfprofiler_timeline_traces",
}
COMPARED: Final = (("demo", "changed"), ("two-ranks", "h100"))


def frozen_digests(keep: Path, real: Path | None) -> Digests:
    """Write the runs and their outputs below ``keep``; ``real``: folder of traces."""
    runs = keep / "runs"
    runs.mkdir(parents=True)
    for name, write in WRITERS.items():
        write(runs / name)
    if real is not None:
        for name, path in REAL.items():
            source = real / path
            shutil.copytree(source, runs / name) if source.is_dir() else shutil.copy(source, _new_folder(runs / name))
    names = sorted(path.name for path in runs.iterdir())
    compared = [pair for pair in COMPARED if set(pair) <= set(names)]
    # Each process runs many commands: to import everything and to compile the templates takes as long as a small report.
    with ProcessPoolExecutor(2, get_context("spawn"), os.chdir, (keep,)) as pool:
        digests = dict(zip(names, pool.map(partial(_outputs, keep), names), strict=True))
        return digests | dict(zip(map(" ".join, compared), pool.map(partial(_comparison, keep), *zip(*compared, strict=True)), strict=True))


def _outputs(keep: Path, name: str) -> dict[str, str]:
    out = f"out/{name}"
    answer = _postrun(
        "report", f"runs/{name}", "-o", out, "--format", "html,pdf,json,md,junit,rule-json", "--generated-at", _AT, "--threads", "1",
    )  # fmt: skip
    _postrun("ingest", f"runs/{name}", "-o", f"{out}.duckdb", "--threads", "1")
    terminal = answer.replace(str(keep), "")
    (keep / f"{out}.terminal.txt").write_text(terminal)
    digests = {"terminal": _digest(terminal.encode())} | _files(keep / out)
    if (keep / f"{out}.duckdb").exists():
        tables = _tables(keep / f"{out}.duckdb")
        (keep / f"{out}.tables.txt").write_text("".join(f"{table}: {rows}\n" for table, rows in tables.items()))
        digests |= tables
    return digests


def _comparison(keep: Path, base: str, new: str) -> dict[str, str]:
    out = f"out/{base} {new}"
    _postrun("compare", f"runs/{base}", f"runs/{new}", "-o", out, "--generated-at", _AT)
    return _files(keep / out)


def _postrun(*words: str) -> str:
    """Run the command in the current folder; -> the exit code and both outputs."""
    done = CliRunner(env={"COLUMNS": "120"}).invoke(postrun, words, prog_name="postrun")
    return f"{done.exit_code}\n{done.stdout}\n{done.stderr}"


def _files(folder: Path) -> dict[str, str]:
    digests = {}
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.suffix == ".pdf":
            text = subprocess.run(["pdftotext", "-layout", str(path), "-"], capture_output=True, check=True).stdout
            path.with_suffix(".txt").write_bytes(text)
            digests["PDF text"] = _digest(text)
        elif path.is_file() and path.suffix != ".txt":
            digests[str(path.relative_to(folder))] = _digest(path.read_bytes())
    return digests


def _tables(path: Path) -> dict[str, str]:
    """A checksum of the rows of each table or view of events, in any order."""
    with duckdb.connect(str(path), read_only=True) as connection:
        columns = {table: ", ".join(f'"{column}" := "{column}"' for column in SCHEMA[table]) for table in sorted(SCHEMA)}
        return {
            f"table {table}": str(
                connection.execute(
                    "SELECT count(*), md5(string_agg(r, chr(10) ORDER BY r))"
                    f" FROM (SELECT struct_pack({selected})::VARCHAR AS r FROM {table})"
                ).fetchone()
            )
            for table, selected in columns.items()
        }


def real_traces() -> Path | None:
    """The folder of the real traces, None without it."""
    folder = Path(os.environ.get("POSTRUN_TEST_DATA") or ROOT.parent / "shared" / "data")
    return folder if folder.is_dir() else None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def made_with() -> dict[str, str]:
    """The versions that the bytes depend on, next to the code of postrun."""
    packages = ("duckdb", "jinja2", "matplotlib", "polars", "weasyprint")
    return {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", **{name: version(name) for name in packages}}


def differences(frozen: Digests, now: Digests) -> list[str]:
    """Return differing outputs as ``run: output``, for runs with two digests."""
    return [
        f"{run}: {output}"
        for run in sorted(frozen.keys() & now.keys())
        for output in sorted(frozen[run].keys() | now[run].keys())
        if frozen[run].get(output) != now[run].get(output)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    if arguments.keep and arguments.keep.exists():
        parser.error(f"{arguments.keep} exists; name a new folder")
    with tempfile.TemporaryDirectory() as folder:
        keep = (arguments.keep or Path(folder) / "frozen").resolve()
        now = frozen_digests(keep, real_traces())
    frozen = json.loads(FROZEN.read_text())
    if arguments.write:
        FROZEN.write_text(json.dumps(frozen | {"made with": made_with()} | now, indent=1, sort_keys=True) + "\n")
        return
    different = differences(frozen, now)
    print("\n".join(different) or f"{len(now)} runs: all equal")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
