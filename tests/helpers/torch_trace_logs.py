"""Structured logs of torch.compile, written by hand: entries -> the lines that PyTorch writes for them."""

from __future__ import annotations

import json
from typing import Any

SECOND = 10**9
BEGAN_US = 1_790_000_000_000_000  # a day of 2026
PID = 4242


def entry(body: dict[str, Any], payload: str | None = None, *, pid: int = PID, prefix: str = "") -> str:
    """Return an entry: its line, and the lines of its payload behind tabs."""
    line = f"{prefix}V1124 16:09:00.035000 {pid} torch/_dynamo/utils.py:2009] {json.dumps(body)}\n"
    return line + "".join(f"\t{part}\n" for part in (payload.split("\n") if payload is not None else ()))


def ids(frame: int, version: int) -> dict[str, int]:
    return {"frame_id": frame, "frame_compile_id": version, "attempt": 0}


def started(frame: int, version: int, name: str = "forward", file: Any = 1, line: int = 8) -> str:
    stack = [{"line": 80, "name": "<module>", "filename": 0, "loc": "model(x)"}, {"line": line, "name": name, "filename": file}]
    return entry({"dynamo_start": {"stack": stack}, **ids(frame, version)})


def reasons(frame: int, version: int, texts: list[str]) -> str:
    body = {"artifact": {"name": "recompile_reasons", "encoding": "json"}, **ids(frame, version), "has_payload": "0123"}
    return entry(body, texts[0] if len(texts) == 1 else json.dumps(texts, indent=0))


def graph_break(frame: int, version: int, text: str) -> str:
    body = {"artifact": {"name": "dynamo_graph_break_reason", "encoding": "string"}, **ids(frame, version), "has_payload": "0123"}
    return entry(body, text)


def metrics(frame: int, version: int, start_s: float, length_s: float, *, backward: bool = False, **more: Any) -> str:
    """Return the end of a compilation. Times are seconds after ``BEGAN_US``."""
    facts = {
        "co_name": "forward", "co_filename": "/app/model.py", "co_firstlineno": 8, "start_time_us": BEGAN_US + round(start_s * 1e6),
        "duration_us": round(length_s * 1e6), "fail_type": None, "fail_reason": None, "compile_id": f"{frame}/{version}", **more,
    }  # fmt: skip
    return entry({"bwd_compilation_metrics" if backward else "compilation_metrics": facts, **ids(frame, version)})


def limit(frame: int, version: int, start_s: float) -> str:
    """Return the end of a compilation beyond the limit, as PyTorch 2.13 writes it."""
    nameless = {"co_name": None, "co_filename": None, "co_firstlineno": None}
    reason = "Dynamo recompile limit exceeded\n  Explanation: Dynamo attempted to recompile the code object too many times"
    return metrics(frame, version, start_s, 0.001, **nameless, fail_type="Unsupported", fail_reason=reason)


def begun() -> str:
    """Return the entries that a log begins with."""
    skipped = {"chromium_event": {}, **ids(0, 0), "has_payload": "99"}
    strings = [entry({"str": [name, number]}) for number, name in enumerate(("/app/train.py", "/app/model.py"))]
    return entry(skipped, '{\n"name": "dynamo",\n"ts": 1.5\n}') + "".join(strings)
