"""Tests that a small run makes few SQL statements and Polars queries, and imports what it uses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from postrun.analysis import analyze
from postrun.ingest import ingest
from postrun.ingest.store import Store
from query_counts import query_counts

# Upper limits of SQL statements and Polars queries. They may only fall.
EMPTY_STORE = (48, 94)
ONE_KERNEL = (64, 348)  # with the longest gaps of each device
EVENTS = [
    {
        "ph": "X", "cat": "kernel", "name": "gemm_kernel", "pid": 0, "tid": 7, "ts": 1700000000000000.0, "dur": 10.0,
        "args": {"device": 0, "stream": 7, "correlation": 1},
    },
    {
        "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 1699999999999990.0, "dur": 5.0,
        "args": {"correlation": 1},
    },
]  # fmt: skip
# Modules that the JSON report of a trace does not use.
UNUSED = (
    "jinja2", "matplotlib", "obstore", "weasyprint", "postrun.analysis.timeline.build", "postrun.analysis.timeline.model",
    "postrun.ingest.fetch", "postrun.ingest.gpu_logs.dcgm", "postrun.ingest.nsys.reader",
    "postrun.ingest.prt.file_rows", "postrun.ingest.tensorflow.reader", "postrun.native.record",
)  # fmt: skip
REPORT = f"""
import sys
from postrun import cli
try:
    cli.main()
finally:
    print([name for name in {UNUSED!r} if name in sys.modules])
"""


def test_an_empty_store_is_asked_little() -> None:
    with Store.temporary() as store, query_counts() as counts:
        analyze(store)
    assert 0 < counts.statements <= EMPTY_STORE[0]
    assert counts.collects <= EMPTY_STORE[1]


def test_a_run_of_one_kernel_is_asked_little(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps({"traceEvents": EVENTS}))
    with ingest(tmp_path / "one.json") as store, query_counts() as counts:
        analyze(store)
    assert 0 < counts.statements <= ONE_KERNEL[0]
    assert counts.collects <= ONE_KERNEL[1]


def test_a_report_in_json_imports_no_drawing_code_and_no_other_reader(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps({"traceEvents": EVENTS}))
    command = [sys.executable, "-P", "-c", REPORT, "report", "one.json", "--format", "json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert (tmp_path / "postrun-report" / "report.json").exists()
