"""Recompiles on a log and a trace that PyTorch writes here, against PyTorch's own counters of compilations.

The program runs once per backend in the virtual environment that $POSTRUN_TORCH names (.ci/run makes it); tests skip without it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from judging import rules_of
from postrun.analysis import Options
from postrun.analysis.rules.engine.selection import select
from postrun.ingest import ingest
from rule_details import plain_details

pytestmark = pytest.mark.slow
PROGRAM: Final = Path(__file__).parents[3] / "helpers" / "recompiling_program.py"


class Recorded(NamedTuple):
    """``torch``: PyTorch's own counters."""

    trace: Path
    log: Path
    torch: dict[str, Any]


@pytest.fixture(scope="module", params=["eager", "inductor"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    named = os.environ.get("POSTRUN_TORCH")
    python = Path(named or "", "bin", "python")
    if not named or not python.exists():
        pytest.skip("no PyTorch: $POSTRUN_TORCH names no virtual environment with it (.ci/run makes one)")
    if request.param == "inductor" and shutil.which("g++") is None:
        pytest.skip("no C++ compiler, which inductor needs")
    folder = tmp_path_factory.mktemp("compile")
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "TORCH_TRACE": str(folder / "log"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }  # fmt: skip
    trace = folder / "rank0.trace.json"
    done = subprocess.run([python, "-P", PROGRAM, request.param, trace], capture_output=True, check=False, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    (log,) = (folder / "log").iterdir()
    return Recorded(trace, log, json.loads(done.stdout))


def details_of(*paths: Path) -> tuple[Any, dict[str, Any]]:
    with ingest(paths) as store:
        options = Options(generated_at_ns=0, selection=select(["Recompiles"]))
        (rule,) = rules_of(store, options).rules
        return rule, plain_details(rule)


def forward(torch: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in torch["compilations"] if one["forward"] is not False]


def test_the_log_has_the_compilations_that_pytorch_counts(recorded: Recorded) -> None:
    with ingest([recorded.log]) as store:
        rows = store.frame("SELECT * FROM compilation ORDER BY start_ns").to_dicts()
    expected = [(one["id"], one["line"] if one["name"] else None) for one in recorded.torch["compilations"]]
    listed = [(f"{row['frame']}/{row['version']}", row["line"]) for row in rows]
    assert sorted(id_ for id_, _ in listed) == sorted(id_ for id_, _ in expected)
    assert {pair for pair in expected if pair[1]} <= set(listed)
    mine = [row for row in rows if not row["backward"]]
    assert [row["duration_ns"] for row in mine] == [
        pytest.approx(one["seconds"] * 1e9, abs=1000) for one in forward(recorded.torch)
    ]  # fmt: skip
    assert len(mine) == recorded.torch["counters"]["frames"]["total"]
    assert sum(not row["failure"] for row in mine) == recorded.torch["counters"]["frames"]["ok"]
    (limited,) = [row for row in rows if row["limit_reached"]]
    assert (limited["function"], limited["version"]) == ("branching", 8)
    assert sum(row["graph_breaks"] for row in rows) == sum(recorded.torch["counters"]["graph_break"].values()) == 1
    (broken,) = [row for row in rows if row["graph_breaks"]]
    assert broken["function"] == "broken"
    assert "recompiling_program.py:" in broken["graph_break"]
    assert "print" in broken["graph_break"] or "builtin" in broken["graph_break"]


def test_the_trace_has_those_of_the_profile(recorded: Recorded) -> None:
    _, details = details_of(recorded.trace)
    inside = [one for one in forward(recorded.torch) if one["id"] != "0/0"]
    assert (details["compilations"], details["unknown"]) == (len(inside), 0)
    assert details["recompilations"] == sum(not one["id"].endswith("/0") for one in inside)
    if not any(one["forward"] is False and one["id"] != "0/0" for one in recorded.torch["compilations"]):
        assert details["compile_ns"] == pytest.approx(sum(one["seconds"] for one in inside) * 1e9, rel=0.02, abs=20e6)


def test_together_they_name_functions_and_guards(recorded: Recorded) -> None:
    rule, details = details_of(recorded.trace, recorded.log)
    inside = [one for one in forward(recorded.torch) if one["id"] != "0/0"]
    assert details["compilations"] == len(inside)
    assert details["recompilations"] == sum(not one["id"].endswith("/0") and not one["failed"] for one in inside)
    by_name = {row["function"]: row for row in details["functions"]}
    names = {one["id"].partition("/")[0]: one["name"] for one in inside if one["name"]}
    for name in ("forward", "branching", "broken"):
        count = sum(names[one["id"].partition("/")[0]] == name for one in inside)
        assert by_name[name]["compilations"] == count
    assert "self.calls == " in by_name["forward"]["reason"]
    assert by_name["branching"]["reason"].startswith("flag == ")
    assert [name for name, row in by_name.items() if row["limit_reached"]] == ["branching"]
    assert by_name["branching"]["file"] == str(PROGRAM)
    assert rule.verdict == "IssuesFound"


def test_recompilations_cost_the_steps(recorded: Recorded) -> None:
    rule, details = details_of(recorded.trace, recorded.log)
    late = [one for one in forward(recorded.torch) if one["id"].startswith("0/") and int(one["id"][2:]) > 3]
    assert details["base"] == "time of the steps"
    of_model = next(row for row in details["functions"] if row["function"] == "forward")
    assert of_model["recompilations"] == len(late)
    assert details["lost_percent"] > 5
    assert "after the first 3 steps" in (rule.finding or "")
