"""FLOPs and calls of small models in the report against PyTorch's own count, operator by operator.

The models run once in the virtual environment that $POSTRUN_TORCH names (.ci/run makes it); tests skip without it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from postrun.analysis.rules.evidence.run_data import RunData
from postrun.ingest import ingest

PROGRAM: Final = Path(__file__).parents[2] / "helpers" / "flop_models.py"
# Operators that FlopCounterMode does not know: it counts nothing, or the products that it decomposes them into.
UNKNOWN_TO_PYTORCH: Final = {"aten::mv", "aten::dot", "aten::_int_mm", "aten::mkldnn_rnn_layer"}
UNKNOWN_TO_PYTORCH |= {"aten::_scaled_dot_product_flash_attention_for_cpu"}
UNKNOWN_TO_PYTORCH |= {f"{operator}_backward" for operator in UNKNOWN_TO_PYTORCH}


class Models(NamedTuple):
    traces: Path
    counted: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    named = os.environ.get("POSTRUN_TORCH")
    python = Path(named or "", "bin", "python")
    if not named or not python.exists():
        pytest.skip("no PyTorch: $POSTRUN_TORCH names no virtual environment with it (.ci/run makes one)")
    traces = tmp_path_factory.mktemp("traces")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([python, "-P", PROGRAM, traces], capture_output=True, check=False, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    result = done.stdout[done.stdout.index(b'{"version"') :]  # the profiler may write lines of its own before
    return Models(traces, json.loads(result)["models"])


@pytest.mark.slow
def test_flops_equal_those_of_pytorch(models: Models) -> None:
    different = {}
    for name, expected in models.counted.items():
        flop, calls = Counter[str](), Counter[str]()
        efficiency = RunData(ingest([models.traces / f"{name}.pt.trace.json"])).efficiency
        for row in efficiency.operators:
            assert (row.device_ns, row.tflops, row.bound) == (0, None, "unknown")
            assert row.flop_per_call is not None, (name, row)
            assert row.model_flop_per_call is not None, (name, row)
            assert row.model_flop_per_call <= row.flop_per_call, (name, row)
            flop[row.operator] += row.flop_per_call * row.calls
            calls[row.operator] += row.calls
        assert efficiency.mfu_percent is None
        ours, called = ({key: count[key] for key in count if key not in UNKNOWN_TO_PYTORCH} for count in (flop, calls))
        assert ours, name
        if ours != expected["counted"]:
            different[name] = ours, expected["counted"]
        elif called != expected["calls"]:
            different[name] = called, expected["calls"]
    assert not different
    assert len(models.counted) >= 65
