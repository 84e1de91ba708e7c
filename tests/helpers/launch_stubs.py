"""A stub of the CUDA driver and one of CUPTI that records each launch: libraries for C programs of tests/native, built once a variant."""

from __future__ import annotations

from functools import cache

from native_programs import Programs


@cache
def stubs(programs: Programs, variant: str) -> dict[str, str]:
    """The variables with which a program uses them."""
    folder = programs.library(variant) / "launches"
    folder.mkdir()
    tests, source = programs.root / "tests" / "native", programs.root / "native" / "src"
    flags = ("-fPIC", "-shared", "-fvisibility=hidden", "-Wno-unused-result", "-Wno-pedantic", "-std=gnu11")
    programs.compile(variant, [tests / "stub_cuda.c"], folder / "libcuda.so.1", *flags)
    programs.compile(variant, [tests / "stub_launches.c"], folder / "libcupti.so.13", f"-I{source}", *flags)
    return {"LD_LIBRARY_PATH": str(folder), "POSTRUN_CUPTI": str(folder / "libcupti.so.13")}
