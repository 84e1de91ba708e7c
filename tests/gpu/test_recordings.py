"""Recordings of real GPUs are ingested with the counts and sums that the acceptance suite found on the machine itself.

tests/gpu/recordings/MACHINE/ contains *.prt and expected.json of one run of the suite.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from acceptance import traces
from acceptance.bench import Tools
from acceptance.runner import Suite
from acceptance.table import CASES

pytest.importorskip("postrun.ingest", reason="postrun is not installed")
from postrun.ingest import ingest
from postrun.ingest.kernels.demangle import demangled

HERE = Path(__file__).parent
RECORDINGS = sorted((HERE / "recordings").rglob("expected.json"))
LIMIT = 1 << 20  # bytes of a recording in the repository
KERNELS = (
    "SELECT n.text, count(*), sum(e.duration_ns) FROM device_event AS e JOIN name AS n ON n.id = e.name"
    " WHERE e.kind = 'kernel' GROUP BY n.text ORDER BY n.text"
)
OTHERS = "SELECT count(*), coalesce(sum(bytes), 0), coalesce(sum(duration_ns), 0) FROM device_event WHERE kind = '{}'"


def ingested(file: Path) -> dict[str, Any]:
    """Counts and sums of a recording, as the product's own reader finds them."""
    with ingest([file]) as store:
        actual: dict[str, Any] = {
            "kernels": {name: {"count": count, "total_ns": total} for name, count, total in store.frame(KERNELS).rows()},
            "api_rows": store.frame("SELECT count(*) FROM host_event").item(),
        }
        for kind in ("memcpy", "memset"):
            ((count, size, total),) = store.frame(OTHERS.format(kind)).rows()
            actual[kind] = {"count": count, "bytes": size, "total_ns": total}
    return actual


def check(expected: Path) -> None:
    """Every recording has the counts and sums that the expected.json next to it lists."""
    examples = json.loads(expected.read_text())
    assert examples
    for name, wanted in examples.items():
        file = expected.parent / f"{name}.prt"
        assert file.stat().st_size < LIMIT
        names = dict(zip(wanted["kernels"], demangled(list(wanted["kernels"])), strict=True))
        kernels: dict[str, dict[str, int]] = {}
        for symbol, sums in wanted["kernels"].items():
            entry = kernels.setdefault(names[symbol], {"count": 0, "total_ns": 0})
            entry["count"] += sums["count"]
            entry["total_ns"] += sums["total_ns"]
        actual = ingested(file)
        assert actual["kernels"] == kernels, name
        assert {key: actual[key] for key in ("memcpy", "memset")} == {key: wanted[key] for key in ("memcpy", "memset")}, name
        assert actual["api_rows"] == wanted["api_rows"], name


@pytest.mark.skipif(not RECORDINGS, reason="no recordings from a GPU yet: see docs/gpu-acceptance.md")
@pytest.mark.parametrize("expected", RECORDINGS, ids=lambda path: path.parent.name)
def test_recordings_of_gpus(expected: Path) -> None:
    check(expected)


@pytest.mark.slow
def test_a_recording_of_the_suite_is_ingested_as_it_says(
    tools: Callable[[str], Tools], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = Suite(HERE / "accept.py", tmp_path, tmp_path / "work", time.monotonic() + 300, tools("13.5"), {})
    assert suite.run([case for case in CASES if case.number in (2, 7)]) == 0
    expected = tmp_path / "expected.json"
    assert sorted(json.loads(expected.read_text())) == ["graphs", "kernels"]
    check(expected)
    files = sorted(tmp_path.glob("*.prt"))
    rows = traces.read(files)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyarrow", None)
        plain = traces.read(files)
    assert traces.summary(plain) == traces.summary(rows), "the plain reader serves a machine without pyarrow"
    expected.write_text(expected.read_text().replace('"count": 100', '"count": 101'))
    with pytest.raises(AssertionError, match="kernels"):
        check(expected)
