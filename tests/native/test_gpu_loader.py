"""The search for libcupti: one that is newer than the driver is never used, and the search reads no environment on a thread of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import prt_reader
import pytest
from native_programs import Programs, environment, files
from stub_libraries import launches, stub

NEWER = "libcupti.so.13"
DRIVER_12 = {"STUB_DRIVER": "12040"}
REFUSED = "is of CUDA 13, and the driver supports no more than 12.4: POSTRUN_CUPTI can name an older libcupti"
UNKNOWN = "neither its name nor its SONAME contains its version of CUDA, so it may be newer than the driver"
TOOLKIT = Path("/usr/local/cuda").exists()


class Machine:
    def __init__(self, programs: Programs, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.stubs = launches(programs, "plain")
        self.variables = {"POSTRUN_CAPTURE": "1", "POSTRUN_GPU": "1", "POSTRUN_DIR": str(folder / "out"), "CUDA_HOME": "", "CUDA_PATH": ""}
        self.variables["LD_LIBRARY_PATH"] = self.stubs["LD_LIBRARY_PATH"] + ":" + str(folder / "path")

    def put(self, location: str, soname: str = "", *flags: str, source: str = "stub_deadly.c") -> Path:
        path = self.folder / location
        path.parent.mkdir(parents=True, exist_ok=True)
        named = (f"-Wl,-soname,{soname}",) if soname else ()
        return stub(source, path, *named, *flags)

    def run(self, mode: str = "no-steps", **variables: str) -> dict[str, str]:
        """The facts of a program that uses CUDA and ends in the usual way."""
        command = [str(self.programs.program("gpu_windows", "plain")), mode, "0", "60"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment(**{**self.variables, **variables}))
        assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
        (file,) = files(self.folder / "out")
        return {row["key"]: row["value"] for row in prt_reader.read(file.read_bytes())["meta"]}


@pytest.fixture
def machine(programs: Programs, tmp_path: Path) -> Machine:
    return Machine(programs, tmp_path)


@pytest.mark.parametrize("way", ["POSTRUN_CUPTI", "CUDA_HOME", "CUDA_PATH"])
@pytest.mark.parametrize(
    ("file", "soname", "reason"),
    [
        (NEWER, "", "newer"),
        ("libcupti.so", NEWER, "newer"),
        ("libcupti.so.2025.3.1", NEWER, "newer"),
        ("libcupti.so.12", NEWER, "newer"),
        ("libcupti.so", "", "unknown"),
        ("libcupti.so.2025.3.1", "libcupti.so.2025.3.1", "unknown"),
    ],
)
def test_a_newer_cupti_than_the_driver_is_not_loaded(machine: Machine, way: str, file: str, soname: str, reason: str) -> None:
    path = machine.put(f"toolkit/lib64/{file}", soname, "-DAT_LOAD")
    facts = machine.run(**DRIVER_12, **{way: str(path if way == "POSTRUN_CUPTI" else machine.folder / "toolkit")})
    assert "cupti.library" not in facts
    if way == "POSTRUN_CUPTI" or not TOOLKIT:  # else that of the toolkit may be named
        assert facts["capability.gpu"] == f"no CUPTI: {str(path)[:150]}{f' {REFUSED}' if reason == 'newer' else f': {UNKNOWN}'}"


def test_a_newer_cupti_on_the_path_of_the_loader_is_not_loaded(machine: Machine) -> None:
    for name in (NEWER, "libcupti.so"):
        machine.put(f"path/{name}", "", "-DAT_LOAD")
    facts = machine.run(**DRIVER_12)
    assert facts["capability.gpu"].startswith("no CUPTI: ")
    facts = Machine(machine.programs, machine.folder / "2").run(**DRIVER_12, POSTRUN_CUPTI="libcupti.so")
    assert facts["capability.gpu"] == f"no CUPTI: libcupti.so: {UNKNOWN}"


def test_no_function_is_called_of_one_that_the_program_has_loaded(machine: Machine) -> None:
    path = machine.put(NEWER)
    facts = machine.run(**DRIVER_12, LD_PRELOAD=str(path))
    assert facts["capability.gpu"] == f"no CUPTI: {str(path)[:150]} {REFUSED}"


@pytest.mark.parametrize("way", ["POSTRUN_CUPTI", "LD_PRELOAD"])
def test_cupti_13_2_needs_a_driver_of_13_2(machine: Machine, way: str) -> None:
    """Earlier drivers lack what it asks them for first, and it asks again without end."""
    path = machine.put(f"toolkit/{NEWER}", "", "-DLIKE_13_2")
    facts = machine.run(**{way: str(path)}, STUB_DRIVER="13000")
    assert "CUPTI 13.2 can crash with a driver that supports no more than CUDA 13.0" in facts["capability.gpu"]


def test_a_driver_without_a_version(machine: Machine) -> None:
    path = machine.put(f"toolkit/{NEWER}", "", "-DAT_LOAD")
    facts = machine.run(POSTRUN_CUPTI=str(path), STUB_ERRORS="cuDriverGetVersion=1")
    assert facts["capability.gpu"].startswith("no CUPTI: the driver does not say which CUDA it supports (cuDriverGetVersion)")


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"\x7fELF\x02\x01\x01" + b"\xff" * 200])
def test_a_file_that_is_no_library(machine: Machine, content: bytes) -> None:
    path = machine.folder / "libcupti.so"
    path.write_bytes(content)
    assert machine.run(POSTRUN_CUPTI=str(path))["capability.gpu"] == f"no CUPTI: {str(path)[:150]}: {UNKNOWN}"


@pytest.mark.slow
def test_damaged_libraries_are_read_to_no_harm(machine: Machine) -> None:
    """Each part of headers and dynamic section is overwritten, and files end early."""
    complete = machine.put("libcupti.so", NEWER).read_bytes()
    headers = [*range(0, 64 + 12 * 56, 4), *range(complete.index(NEWER.encode()) - 64, complete.index(NEWER.encode()) + 64, 4)]
    damaged = [complete[:at] + value + complete[at + 4 :] for at in headers for value in (b"\xff" * 4, b"\0" * 4)]
    damaged += [complete[:size] for size in range(0, len(complete), 512)]
    paths = [machine.folder / f"damaged-{number}" for number in range(len(damaged))]
    for path, content in zip(paths, damaged, strict=True):
        path.write_bytes(content)
    native = machine.programs.root / "native" / "src"
    source = machine.folder / "probe.c"
    source.write_text(
        '#include <stdio.h>\n#include "gpu/elf_soname.h"\nint main(int count, char **paths) {\n    char name[256];\n'
        '    for (int i = 1; i < count; i++) puts(postrun_elf_soname(paths[i], name, sizeof name) ? name : "-");\n}\n'
    )
    probe = machine.folder / "probe"
    machine.programs.compile("address", [source, native / "gpu" / "elf_soname.c"], probe, f"-I{native}")
    whole_path = machine.folder / "libcupti.so"
    done = subprocess.run([probe, whole_path, *paths], capture_output=True, timeout=60, env=environment())
    assert done.returncode == 0, done.stderr
    first, *others = done.stdout.splitlines()
    assert first == NEWER.encode()
    assert b"-" in others


def test_without_a_driver_cupti_is_not_loaded(machine: Machine) -> None:
    machine.variables["LD_LIBRARY_PATH"] = ""
    path = machine.put("libcupti.so.11", "", "-DAT_LOAD")
    facts = machine.run("no-cuda", POSTRUN_CUPTI=str(path))
    if "cuda.driver_supports" in facts or facts["capability.gpu"] == "the program did not use CUDA":
        pytest.skip("this machine has a driver")
    assert facts["capability.gpu"].startswith("no NVIDIA driver: ")


@pytest.mark.parametrize("windows", [{}, {"POSTRUN_GPU_WINDOWS": "seconds=0.005,every=0.01"}])
def test_the_environment_is_read_where_the_session_begins(machine: Machine, windows: dict[str, str]) -> None:
    """Also where a thread of the recorder finds CUPTI, and opens and closes windows."""
    guard = machine.put("guard.so", source="stub_getenv.c")
    facts = machine.run(LD_PRELOAD=str(guard), POSTRUN_CUPTI=machine.stubs["POSTRUN_CUPTI"], **windows)
    assert facts["cupti.library"] == machine.stubs["POSTRUN_CUPTI"]
    assert facts.get("gpu.window.0.closed") == ("time" if windows else None)
