"""Times of the device's tracer survive the library's conversion to ticks and the reader's conversion back, to the nanosecond."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_programs import Programs, call

EXACT = (1_000_000, 1_500_000, 2_000_000, 2_399_998, 3_700_000)  # kHz of clocks with a tick of at most a nanosecond
SLOW = {25_000: 40, 121_875: 9}  # kHz, and the nanoseconds of a tick: those of some ARM machines


@pytest.mark.slow
def test_times_come_back_to_the_nanosecond(programs: Programs, tmp_path: Path) -> None:
    program = tmp_path / "device_times"
    parts = [path for part, path in programs.parts("plain").items() if part != "device_blocks"]  # that one is included, for what is in it
    programs.compile(
        "plain", [programs.root / "tests" / "native" / "device_times.c", *parts], program, "-O0", f"-I{programs.root / 'native' / 'src'}"
    )
    output = call(program, *EXACT, *SLOW)
    for khz in EXACT:
        assert (output[f"{khz}_starts"], output[f"{khz}_durations"]) == (0, 0), khz
    for khz, tick in SLOW.items():
        assert 0 < output[f"{khz}_farthest"] <= tick
