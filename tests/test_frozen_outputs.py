"""Reports, comparisons and run stores of different runs keep their bytes, unless a change is meant to alter them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from frozen_outputs import FROZEN, differences, frozen_digests, made_with, real_traces


@pytest.mark.slow
def test_outputs_keep_their_bytes(tmp_path: Path) -> None:
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed (Debian, Ubuntu: poppler-utils)")
    frozen = json.loads(FROZEN.read_text(encoding="utf-8"))
    if (versions := frozen.pop("made with")) != made_with():
        pytest.skip(f"the frozen outputs are those of {versions}")
    different = differences(frozen, frozen_digests(tmp_path / "frozen", real_traces()))
    assert different == [], "meant to change? docs/development.md, Compare the outputs of whole runs: make frozen"
