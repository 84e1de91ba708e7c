"""Tests that kernels get the names that the compiler's tools and the profiler show, for any symbols."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.ingest import ingest
from postrun.ingest.kernels import demangle
from postrun.ingest.kernels.demangle import LONGEST, demangled
from postrun.ingest.kernels.names import classify
from prt_reader import MISSING
from prt_writer import PrtWriter

# Kernels as PyTorch writes them; the compiler makes symbols of them, c++filt names of these again.
SOURCE = """
#include <cstdint>
namespace c10 { struct Half; struct BFloat16; template <typename T> struct complex; }
namespace std_like { template <typename T, unsigned long N> struct array; }
namespace at { namespace native {
template <typename T> struct FillFunctor {}; template <typename T> struct CUDAFunctor_add {};
namespace { template <typename T, typename U> void reduce_kernel(T, U) {}
template void reduce_kernel<c10::Half*, float>(c10::Half*, float); }
template <int vec, typename F, typename A> void vectorized_elementwise_kernel(int, F, A) {}
template void vectorized_elementwise_kernel<4, FillFunctor<float>, std_like::array<char*, 1ul>*>(
    int, FillFunctor<float>, std_like::array<char*, 1ul>*);
template void vectorized_elementwise_kernel<4, CUDAFunctor_add<c10::BFloat16>, std_like::array<char*, 3ul>*>(
    int, CUDAFunctor_add<c10::BFloat16>, std_like::array<char*, 3ul>*);
template <typename scalar, typename index> void index_kernel(scalar const*, index volatile&, scalar (*)(index), bool) {}
template void index_kernel<double, int64_t>(double const*, int64_t volatile&, double (*)(int64_t), bool);
struct lambda_holder { template <typename F> static void launch(F) {} };
void uses() { lambda_holder::launch([](float x) { return x; }); }
} }
extern "C" void sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16() {}
"""


def recording(names: list[str]) -> bytes:
    writer = PrtWriter().prelude(names, [(0, 0, 1_700_000_000 * 10**9), (10**9, 10**9, 1_700_000_001 * 10**9)])
    writer.add("process", {1: [1], 2: [0], 3: [0], 4: ["t"], 5: ["h"], 6: [-1], 7: [-1], 8: [-1]})
    count = len(names)
    columns = {2: [i * 10 for i in range(count)], 3: [1 + i for i in range(count)], 4: [0] * count, 5: [1] * count, 6: [7] * count}
    shape = {number: [1] * count for number in range(8, 16)}
    writer.add("kernel", {1: list(range(1, count + 1)), **columns, 7: list(range(1, count + 1)), **shape, 16: [MISSING] * count})
    return writer.end().data()


@pytest.fixture(scope="module")
def symbols(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Names by symbol, by tools of their own."""
    compiler, filt = shutil.which("g++") or shutil.which("clang++"), shutil.which("c++filt")
    if not (compiler and filt and shutil.which("nm")):
        pytest.skip("no C++ compiler, c++filt or nm")
    folder = tmp_path_factory.mktemp("symbols")
    (folder / "k.cc").write_text(SOURCE)
    subprocess.run([compiler, "-std=c++17", "-w", "-c", folder / "k.cc", "-o", folder / "k.o"], check=True, timeout=120)
    listed = subprocess.run(["nm", folder / "k.o"], check=True, capture_output=True, text=True, timeout=60).stdout.split()
    symbols = [word for word in listed if word.startswith("_Z") or word.startswith("sm80")]
    names = subprocess.run([filt], input="\n".join(symbols), check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    return dict(zip(symbols, names, strict=True))


def test_names_are_those_of_the_compilers_tools(symbols: dict[str, str]) -> None:
    assert len(symbols) > 6
    assert demangled(list(symbols)) == list(symbols.values())
    assert any("(anonymous namespace)" in name for name in symbols.values())


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
            "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"
            "(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)",
        ),
        ("_Z1fv", "f()"),
        ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_tn"),
        ("void k<float>(float*)", "void k<float>(float*)"),
        ("_Z", "_Z"),
        ("_Zwhatever", "_Zwhatever"),
        ("", ""),
    ],
)
def test_names_that_profilers_show(symbol: str, name: str) -> None:
    assert demangled([symbol]) == [name]


def test_long_symbols_stay_as_the_profiler_leaves_them() -> None:
    fits, too_long = ("_Z" + f"{length}{'a' * length}v" for length in (LONGEST - 7, LONGEST - 6))
    assert (len(fits), len(too_long)) == (LONGEST, LONGEST + 1)
    assert demangled([too_long, fits]) == [too_long, f"{'a' * (LONGEST - 7)}()"]
    assert demangled(["_Z" + "S" * 1_000_000]) == ["_Z" + "S" * 1_000_000]


def exploding(times: int) -> str:
    """Return a symbol whose name doubles every few letters: f(pair<int, int>, ...)."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    last, parts = "S0_", ["_Z1f1pIiiE"]
    for i in range(times):
        parts.append(f"S_I{last}{last}E")
        last = f"S{digits[i + 1]}_"
    return "".join(parts)


@pytest.mark.slow
def test_symbols_that_would_take_all_memory_hurt_nobody_else() -> None:
    assert demangled([exploding(1)]) == ["f(p<int, int>, p<p<int, int>, p<int, int> >)"]
    hostile = exploding(33)
    assert len(hostile) <= LONGEST
    assert demangled(["_Z1av", hostile, "_Z1bv"]) == ["a()", hostile, "b()"]


def test_without_a_process_or_a_runtime_names_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    assert demangled(["_Z1av"]) == ["_Z1av"]
    monkeypatch.undo()
    monkeypatch.setattr(demangle, "_PROGRAM", "import sys; sys.exit(3)")
    assert demangled(["_Z1av"]) == ["_Z1av"]
    monkeypatch.setattr(demangle, "_PROGRAM", "import sys; sys.exit(1)")
    assert demangled(["_Z1av"]) == ["_Z1av"]


def test_kernels_of_a_recording(tmp_path: Path) -> None:
    symbol = "_ZN2at6native1kIN3c104HalfEEEvPT_"
    same = "void at::native::k<c10::Half>(c10::Half*)"
    names = [symbol, "triton_poi_fused", same, "_Z" + "9" * 3000, "_Zbad"]
    (tmp_path / "a.prt").write_bytes(recording(names))
    with ingest([tmp_path]) as store:
        actual = store.frame("""
            SELECT n.text, n.short, n.precision, n.category, count(*) AS runs, sum(duration_ns)::BIGINT AS total
            FROM device_event JOIN name n ON n.id = name GROUP BY ALL ORDER BY total DESC
        """).rows(named=True)
    assert {(row["text"], row["runs"], row["total"]) for row in actual} == {
        (same, 2, 4), ("triton_poi_fused", 1, 2), (names[3], 1, 4), ("_Zbad", 1, 5),
    }  # fmt: skip
    expected = {row["name"]: row for row in classify(names).rows(named=True)}
    for row in actual:
        assert (row["precision"], row["category"]) == (expected[row["text"]]["precision"], expected[row["text"]]["category"])
    assert expected[same]["precision"] == "FP16"


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=40).map(lambda text: "_Z" + text), max_size=20))
def test_any_text_stays_or_gets_a_name(texts: list[str]) -> None:
    names = demangled(texts)
    assert len(names) == len(texts)
    assert demangled(list(reversed(texts))) == list(reversed(names))
