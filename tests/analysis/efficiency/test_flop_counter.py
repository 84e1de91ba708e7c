"""FLOPs of small models against PyTorch's own count, operator by operator.

The models run once in the virtual environment that $POSTRUN_TORCH names (.ci/run makes it); tests skip without it.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from postrun.analysis.efficiency.signatures import Signature, parse
from postrun.analysis.efficiency.work import OWNERS, work_of

PROGRAM: Final = Path(__file__).parents[2] / "helpers" / "flop_models.py"
# Operators that FlopCounterMode does not know: it counts nothing, or the products that it decomposes them into.
UNKNOWN_TO_PYTORCH: Final = {"aten::mv", "aten::dot", "aten::_scaled_dot_product_flash_attention_for_cpu"}
UNKNOWN_TO_PYTORCH |= {f"{operator}_backward" for operator in UNKNOWN_TO_PYTORCH}


@pytest.fixture(scope="module")
def models() -> dict[str, dict[str, Any]]:
    named = os.environ.get("POSTRUN_TORCH")
    python = Path(named or "", "bin", "python")
    if not named or not python.exists():
        pytest.skip("no PyTorch: $POSTRUN_TORCH names no virtual environment with it (.ci/run makes one)")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([python, "-P", PROGRAM], capture_output=True, check=False, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    return json.loads(done.stdout)["models"]  # type: ignore[no-any-return]


def outermost(calls: Iterable[list[Any]]) -> list[Signature]:
    """Return the calls of owners outside of other such calls."""
    signatures, ends = [], Counter[int]()
    for operator, thread, begin, end, *texts in sorted(calls, key=lambda call: (call[2], -call[3])):
        if operator in OWNERS and begin >= ends[thread]:
            ends[thread] = end
            signature = parse(operator, *(None if text is None else json.dumps(text) for text in texts))
            assert signature is not None
            signatures.append(signature)
    return signatures


@pytest.mark.slow
def test_flops_equal_those_of_pytorch(models: dict[str, dict[str, Any]]) -> None:
    different = {}
    for name, model in models.items():
        ours = Counter[str]()
        for signature in outermost(model["calls"]):
            work = work_of(signature)
            assert work.flop is not None, signature
            assert work.matrix
            assert work.model_flop is not None
            assert work.model_flop <= work.flop
            ours[signature.operator] += work.flop
        known = {operator: flop for operator, flop in ours.items() if operator not in UNKNOWN_TO_PYTORCH}
        assert known, name
        if known != model["counted"]:
            different[name] = known, model["counted"]
    assert not different
    assert len(models) >= 40
