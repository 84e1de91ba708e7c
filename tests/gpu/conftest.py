"""The stub libraries and the programs of the acceptance suite, built once for the tests of this folder."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import cupti_headers
import pytest
from acceptance.bench import Tools

RECORDS = {"KERNEL": "Kernel", "MEMCPY": "Memcpy", "PEER": "MemcpyPtoP", "MEMSET": "Memset", "SYNC": "Synchronization"}
FLAGS = ("-g", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wno-unused-result", "-std=gnu11")


@pytest.fixture(scope="session")
def stub_variables(project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, str]]:
    """Version of CUPTI -> environment with stub libraries of that version."""

    @cache
    def build(version: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp(f"stubs{version}-")
        sources = project_root / "tests" / "native"
        types = [f"-D{macro}={cupti_headers.newest(version, record)}" for macro, record in RECORDS.items()]
        calls = cupti_headers.calls(version)
        lines = [f"{domain.upper()}({name}, {number})" for domain in calls for name, number in calls[domain].items()]
        (folder / "calls.inc").write_text("\n".join(lines))
        include = cupti_headers.include(version)
        if "cuptiSubscribe_v2" in (include / "cupti_callbacks.h").read_text():
            types.append("-DSUBSCRIBE_2")
        if "cuptiActivityEnableDriverApi" in (include / "cupti_activity.h").read_text(errors="replace"):
            types.append("-DCALL_SWITCHES")
        cupti, cuda = folder / f"libcupti.so.{version.partition('.')[0]}", folder / "libcuda.so.1"
        for source, built, flags in (
            ("stub_cuda.c", cuda, []),
            ("stub_cupti.c", cupti, [f"-I{folder}", *types, *cupti_headers.flags(version)]),
        ):
            command = ["cc", *FLAGS, str(sources / source), "-o", str(built), *flags, "-ldl", "-lpthread"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-3000:]
        return {"LD_LIBRARY_PATH": str(folder), "POSTRUN_CUPTI": str(cupti)}

    return build


@pytest.fixture(scope="session")
def tools(stub_variables: Callable[[str], dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tools]:
    """Version of CUPTI -> the programs of the suite and the stub libraries, with few repetitions."""
    native = pytest.importorskip("postrun.native", reason="postrun is not installed")
    if not native.available():
        pytest.skip("the C library was not built")
    from acceptance.build import build_for_stubs

    folder = tmp_path_factory.mktemp("accept")
    built = build_for_stubs(folder / "build", {}, 0.02)
    return lambda version: Tools(**{**vars(built), "stub": stub_variables(version)})
