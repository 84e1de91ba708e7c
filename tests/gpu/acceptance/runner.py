"""Runs cases one after the other, each in a process group with a time limit; writes accept.json after each of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .bench import Bench, Failed, Skipped, Tools, exit_name, tail
from .case import Case

EXAMPLE_BYTES = 1 << 20  # of a trace file that is kept
GRACE = 10  # seconds that a case's process gets beyond the limit of its programs, to write its result


@dataclass
class Suite:
    """One call of the suite: its results and the time that it has."""

    accept: Path  # accept.py
    out: Path
    work: Path
    ends: float  # time.monotonic() at which no case may run
    tools: Tools | None
    versions: dict[str, Any]
    results: dict[int, dict[str, Any]] = field(default_factory=dict)
    expected: dict[str, Any] = field(default_factory=dict)  # name of an example -> counts and sums

    def run(self, cases: Sequence[Case], why_not: str = "") -> int:
        """Run the cases; earlier results of other cases stay.

        ``why_not``: why no case can run.

        Returns the exit code: 1 if one of these cases failed, or a decisive one was not run.
        """
        self.results = {result["case"]: result for result in _read_json(self.out / "accept.json").get("cases", [])}
        self.expected = _read_json(self.out / "expected.json")
        for case in cases:
            self.results[case.number] = _result(case, "NOT RUN", reason="the suite ended before it")
        self.write()
        for case in cases:
            left = self.ends - time.monotonic()
            if why_not or self.tools is None:
                result = _result(case, "FAIL", reason=why_not)
            elif self.tools.stub and not case.stub:
                result = _result(case, "SKIP", reason="it needs a GPU, not the stub libraries")
            elif left < case.needs:
                result = _result(case, "SKIP", reason=f"it needs {case.needs} s, and {max(left, 0):.0f} s are left")
            else:
                result = self.run_one(case, left)
            self.results[case.number] = result
            self.write()
            print(f"{result['verdict']:4} case {case.number:2} {result.get('seconds', 0):6.1f} s  {case.title}", flush=True)
            if result["reason"]:
                print(f"     {result['reason'][:600]}", flush=True)
        rows = {case.number: self.results[case.number] for case in cases}
        failed = [number for number, result in rows.items() if result["verdict"] == "FAIL" or _is_missing(result)]
        print(f"{len(rows)} cases; not passed: {', '.join(map(str, sorted(failed))) or 'none'}; results: {self.out / 'accept.json'}")
        return 1 if failed else 0

    def run_one(self, case: Case, left: float) -> dict[str, Any]:
        """Runs a case in a process group of its own, and ends all processes that it left."""
        folder = self.work / f"case{case.number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        task = {
            "case": case.number,
            "tools": json.loads(self.tools.to_json()) if self.tools else None,
            "seconds": min(case.limit, left),
            "out": str(self.out),
        }
        (folder / "task.json").write_text(json.dumps(task))
        begun = time.monotonic()
        with (folder / "log.txt").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", str(self.accept), "--task", str(folder)],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = process.wait(task["seconds"] + GRACE)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end_group(process)
        try:
            result: dict[str, Any] = json.loads((folder / "result.json").read_text())
        except (OSError, ValueError):
            log_text = tail((folder / "log.txt").read_text(errors="replace"))
            why = f"did not end within {task['seconds']:.0f} s" if code is None else exit_name(code)
            result = _result(case, "FAIL", reason=f"{why}: {log_text}")
        result["seconds"] = round(time.monotonic() - begun, 1)
        for example in result.pop("examples", []):
            self.keep(example)
        return result

    def keep(self, example: dict[str, Any]) -> None:
        """Copies an example next to accept.json, and writes its counts and sums."""
        file = Path(example["file"])
        if file.stat().st_size >= EXAMPLE_BYTES:
            self.versions.setdefault("examples_left_out", {})[example["name"]] = file.stat().st_size
            return
        shutil.copyfile(file, self.out / f"{example['name']}.prt")
        self.expected[example["name"]] = example["expected"]
        _write_json(self.out / "expected.json", self.expected)

    def write(self) -> None:
        results = [self.results[number] for number in sorted(self.results)]
        _write_json(self.out / "accept.json", {"versions": self.versions, "cases": results})


def do_task(folder: Path, cases: Sequence[Case]) -> int:
    """In the process of a case: runs it and writes result.json."""
    task = json.loads((folder / "task.json").read_text())
    (case,) = (case for case in cases if case.number == task["case"])
    bench = Bench(Tools(**task["tools"]), folder, Path(task["out"]), task["seconds"])
    if bench.tools.site:  # for reading the recordings
        sys.path.insert(0, bench.tools.site)
    verdict, reason = "PASS", ""
    try:
        case.check(bench)
    except Skipped as skipped:
        verdict, reason = "SKIP", str(skipped)
    except Failed as failure:
        bench.failures.append(str(failure))
    except Exception:  # a defect of the case is a failure of the case
        bench.failures.append(tail(traceback.format_exc(), 8))
    if bench.failures:
        verdict, reason = "FAIL", "; ".join(bench.failures)[:4000]
    result = _result(case, verdict, reason=reason) | {"figures": bench.figures, "examples": bench.examples}
    _write_json(folder / "result.json", result)
    return 0


def _result(case: Case, verdict: str, *, reason: str) -> dict[str, Any]:
    return {"case": case.number, "title": case.title, "decisive": case.decisive, "verdict": verdict, "reason": reason, "figures": {}}


def _is_missing(result: dict[str, Any]) -> bool:
    return bool(result["decisive"]) and result["verdict"] != "PASS"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """The case's process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        actual = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return actual if isinstance(actual, dict) else {}


def _write_json(path: Path, value: object) -> None:
    """Whole or not at all: the suite may be ended at any time."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(value, indent=1, default=str) + "\n")
    new.replace(path)
