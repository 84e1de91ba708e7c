"""Peaks of a device: from the table of products, and set by the user."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.analysis import Options
from postrun.analysis.efficiency.peaks import checked_peaks, peaks_of
from postrun.errors import UsageError

H100 = "NVIDIA H100 80GB HBM3"


def test_a_known_product_has_published_peaks() -> None:
    peaks = peaks_of(H100, 84942979072, 132, "9.0")
    assert peaks is not None
    assert (peaks.device_name, peaks.product, peaks.overridden) == (H100, "H100 SXM5", ())
    assert peaks.flop_per_s["bf16"] == 989.4e12
    assert (peaks.bytes_per_s, peaks.link_bytes_per_s) == (3352e9, 450e9)
    assert "fp4" not in peaks.flop_per_s
    assert peaks.source.startswith("NVIDIA H100")
    mesh = peaks_of("AMD Instinct MI300X")
    assert mesh is not None
    assert mesh.link_bytes_per_s == 7 * 64e9


@pytest.mark.parametrize("name", [None, "", "NVIDIA H100", "NVIDIA H20", "NVIDIA Whatever 9000", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"])
def test_an_unknown_gpu_has_no_peaks(name: str | None) -> None:
    assert peaks_of(name) is None


def test_values_of_the_user_replace_the_published_ones() -> None:
    peaks = peaks_of(H100, overrides=checked_peaks({"BF16": "800", "memory": 3000, "fp4": 1.5}))
    assert peaks is not None
    assert (peaks.flop_per_s["bf16"], peaks.flop_per_s["fp8"], peaks.flop_per_s["fp4"]) == (800e12, 1978.9e12, 1.5e12)
    assert (peaks.bytes_per_s, peaks.link_bytes_per_s) == (3000e9, 450e9)
    assert peaks.overridden == ("bf16", "fp4", "memory")
    assert peaks.source.endswith("; set with --peak")


@pytest.mark.parametrize("name", [None, "NVIDIA H100", "A board of the future"])
def test_an_unknown_gpu_has_the_peaks_of_the_user_alone(name: str | None) -> None:
    peaks = peaks_of(name, overrides={"fp16": 100, "link": 25})
    assert peaks is not None
    assert (peaks.product, peaks.source) == (name or "unknown GPU", "set with --peak")
    assert (peaks.flop_per_s, peaks.bytes_per_s, peaks.link_bytes_per_s) == ({"fp16": 100e12}, None, 25e9)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bf61": 1}, r"'bf61' has no peak \(did you mean bf16\?\); choose from fp64, fp32"),
        ({"": 1}, "'' has no peak; choose"),
        ({"bf16": 0}, "the peak of bf16 is 0; it must be a positive number of TFLOPS"),
        ({"bf16": "nan"}, "the peak of bf16 is 'nan'"),
        ({"bf16": "inf"}, "the peak of bf16 is 'inf'"),
        ({"bf16": 989e12}, "a positive number of TFLOPS"),  # FLOP/s
        ({"memory": "3.3TB"}, "the peak of memory is '3.3TB'; it must be a positive number of GB/s"),
        ({"memory": None}, "the peak of memory is None"),
        ({"memory": True}, "the peak of memory is True"),
        ({"bf16": 1, " BF16": 2}, "bf16 has two peaks; state one"),
        ("bf16=1", "'bf16=1' is not a mapping"),
    ],
)
def test_wrong_peaks_are_refused(values: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        checked_peaks(values)
    with pytest.raises(UsageError, match=message):
        Options(peaks=values)


@given(
    st.dictionaries(
        st.text(max_size=8) | st.sampled_from(["bf16", "memory"]), st.text(max_size=8) | st.floats() | st.integers() | st.none()
    )
)
def test_any_other_value_is_refused_in_words(values: dict[str, Any]) -> None:
    with contextlib.suppress(UsageError):
        assert all(0 < number <= 1e9 for number in checked_peaks(values).values())
