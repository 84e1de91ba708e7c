"""Case 22: the examples that were kept have the counts and sums that expected.json gives."""

from __future__ import annotations

import json
from pathlib import Path

from . import checks, traces
from .bench import Bench, Failed


def examples(bench: Bench) -> None:
    file = bench.out / "expected.json"
    if not file.exists():
        raise Failed("no example was kept")
    expected = json.loads(file.read_text())
    bench.figures["examples"] = {name: (bench.out / f"{name}.prt").stat().st_size for name in expected}
    for name, wanted in expected.items():
        actual = traces.summary(traces.read([Path(bench.out / f"{name}.prt")]))
        bench.require(checks.equal(json.loads(json.dumps(actual)), wanted, "counts and sums"), name)
