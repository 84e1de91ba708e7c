"""GPU activity from CUPTI is recorded exactly, and nonsense or a missing CUPTI breaks nothing.

The libraries are stubs built here from the vendor's headers; they play texts, and prt_reader's rows are compared with the text.
"""

from __future__ import annotations

import errno
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cupti_headers
import prt_reader
import pytest
import stub_libraries
from native_programs import Programs, call, check_whole, environment, files
from slow_params import slow_except

GPU_LOST, UNTIMED = 5, 6
NEWEST, LAST_TO_CRASH, FIRST_TO_DECLINE = "13.5", "12.6", "12.9"
ONE_CLIENT = "13.2"  # The newest version here that several clients cannot use at a time
GRAPHS_SURVIVE, STAYS = 12.6, 13.0
SONAME = "-Wl,-soname,libcupti.so.11"  # The oldest, which no driver here refuses
CODES = [*range(1, 47), 999, 123456]  # Every error that the interface of CUPTI 13.5 has, and one that it has not
ALL = """\
runtime cudaLaunchKernel_v7000 100 300 77 5
kernel void_gemm<float>(int) 1000 2500 1 3 7 5 128 2 1 256 1 1 64 1024 2048 0
kernel void_gemm<float>(int) 500 900 1 3 7 4 128 2 1 256 1 1 64 1024 2048 9007199254740993
kernel - 3000 3000 0 2 13 6 1 1 1 32 1 1 255 0 0 0
runtime cudaMemcpyAsync_v3020 2900 2990 77 8
memcpy 1 1 3 4096 3000 4000 1 3 7 8
memcpy 8 3 3 123456789012 4000 4100 0 2 13 9
memcpy2 10 3 3 65536 4200 4300 1 3 7 10
memset 512 4400 4450 1 3 7 11
sync 3 5000 9000 3 7 12
sync 4 5000 9500 2 4294967295 13
driver cuLaunchKernel 6000 6100 78 14
driver cuStreamSynchronize 6200 6300 78 15
runtime cudaDeviceSynchronize_v3020 7000 7100 77 16
runtime #1999 7200 7210 77 17
external 3 18446744073709551615 5
overhead
unknown 54 128
unknown 4242 64
"""


class Stubs:
    """libcuda and libcupti of a version, for programs of a variant."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs

    @cache  # noqa: B019
    def cuda(self, variant: str) -> Path:
        folder = self.programs.library(variant) / "cuda"
        folder.mkdir()
        stub_libraries.cuda(folder, variant)
        return folder

    @cache  # noqa: B019
    def cupti(self, version: str, variant: str) -> Path:
        folder = self.programs.library(variant) / version
        folder.mkdir()
        return stub_libraries.cupti(version, folder / "libcupti.so.11", SONAME, variant=variant)


@pytest.fixture(scope="session")
def stubs(programs: Programs) -> Stubs:
    return Stubs(programs)


@pytest.fixture(params=["plain", "address", "thread"])
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Machine:
    """Runs the test program on a machine with stub libraries."""

    def __init__(self, stubs: Stubs, folder: Path, version: str = NEWEST, variant: str = "plain") -> None:
        self.stubs, self.folder, self.variant = stubs, folder, variant
        self.out, self.log = folder / "out", folder / "calls.log"
        cupti, cuda = stubs.cupti(version, variant), stubs.cuda(variant)
        self.variables = {"LD_LIBRARY_PATH": str(cuda), "POSTRUN_CUPTI": str(cupti), "STUB_LOG": str(self.log)}
        self.count = 0

    def run(self, mode: str, text: str = ALL, *arguments: object, **variables: str) -> dict[str, int]:
        self.count += 1
        self.out = self.folder / f"out{self.count}"
        self.log.unlink(missing_ok=True)
        script = self.folder / "script.txt"
        script.write_text(text)
        program = self.stubs.programs.program("gpu_capture", self.variant)
        return call(program, mode, self.out, script, *arguments, **self.variables, **variables)

    def read(self) -> dict[str, Any]:
        (file,) = files(self.out)
        check_whole(file.read_bytes())
        return prt_reader.read(file.read_bytes())

    def facts(self) -> dict[str, str]:
        return {row["key"]: row["value"] for file in files(self.out) for row in prt_reader.read(file.read_bytes())["meta"]}

    def calls(self) -> list[tuple[int, str]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(int(line.split()[0]), line.split()[1]) for line in lines]


@pytest.fixture
def machine(stubs: Stubs, tmp_path: Path) -> Callable[..., Machine]:
    return lambda version=NEWEST, variant="plain": Machine(stubs, tmp_path, version, variant)


# ---------------------------------------------------------------- the rows of a text


Row = dict[str, Any]
KINDS = {"launch": 0, "sync": 1, "other": 2}
LOCATION = ("device", "context", "stream", "correlation")
SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "registers")


def time_of(word: str) -> int:
    return 0 if word == "-" else int(word)


def expected(text: str, base: int = 0, *, graph_nodes: bool = True) -> dict[str, list[Row]]:
    """The rows that a text stands for; kinds of calls are left to the tests."""
    tables: dict[str, list[Row]] = {name: [] for name in ("kernel", "memcpy", "memset", "sync", "api", "external")}
    devices: dict[int, int] = {}
    for line in text.splitlines():
        what, *words = line.split()
        row: Row = {}
        if what == "kernel":
            name, start, end, *rest = words
            *numbers, static, dynamic, node = map(int, rest)
            row = dict(zip((*LOCATION, *SHAPE), numbers, strict=True))
            row |= {"name": None if name == "-" else name, "shared_memory": static + dynamic, "graph_node": node if graph_nodes else 0}
            devices[row["context"]] = row["device"]
            table = "kernel"
        elif what in ("memcpy", "memcpy2"):
            kind, source, destination, size, start, end, *rest = words
            row = dict(zip(LOCATION, map(int, rest), strict=True))
            row |= {"copy_kind": int(kind), "bytes": int(size), "pageable": int("1" in (source, destination))}
            devices[row["context"]] = row["device"]
            table = "memcpy"
        elif what == "memset":
            size, start, end, *rest = words
            row = dict(zip(LOCATION, map(int, rest), strict=True)) | {"bytes": int(size)}
            devices[row["context"]] = row["device"]
            table = "memset"
        elif what == "sync":
            kind, start, end, context, stream, correlation = words
            row = {"type": int(kind), "context": int(context), "correlation": int(correlation)}
            row["stream"] = None if stream == str(2**32 - 1) else int(stream)
            table = "sync"
        elif what in ("driver", "runtime"):
            name, start, end, tid, correlation = words
            name = f"CUDA {what} call {name[1:]}" if name.startswith("#") else re.sub(r"(_pts[zd]s?)?(_v\d{4,})?$", "", name)
            row = {"name": name, "tid": int(tid), "correlation": int(correlation)}
            table = "api"
        elif what == "external":
            kind, number, correlation = map(int, words)
            tables["external"].append({"correlation": correlation, "kind": kind, "id": number - 2**64 if number >= 2**63 else number})
            continue
        elif what == "context":
            devices[int(words[0])] = int(words[1])
            continue
        else:
            continue
        if start == "-" or end == "-":
            continue
        row |= {"start_ns": base + time_of(start), "duration_ns": max(time_of(end) - time_of(start), 0)}
        tables[table].append(row)
    for row in tables["sync"]:
        row["device"] = devices.get(row["context"])
    return tables


def compare(actual: dict[str, Any], wanted: dict[str, list[Row]]) -> None:
    """The same rows; times as exactly as the reader's own rounding lets them be."""
    for table, rows in wanted.items():
        assert len(actual[table]) == len(rows), table
        order = ("correlation", "start_ns")
        for got, want in zip(
            sorted(actual[table], key=lambda r: [r.get(k, 0) for k in order]),
            sorted(rows, key=lambda r: [r.get(k, 0) for k in order]),
            strict=True,
        ):
            for key, value in want.items():
                if key in ("start_ns", "duration_ns"):
                    # what is longer than the whole recording is beyond its clock anchors
                    allowed = value // 10_000 if key == "duration_ns" and value > 10**9 else 2
                    assert abs(got[key] - value) < allowed, (table, key, float(got[key] - value))
                else:
                    assert got[key] == value, (table, key, got, want)


def facts_of(tables: dict[str, Any]) -> dict[str, str]:
    return {row["key"]: row["value"] for row in tables["meta"]}


# ---------------------------------------------------------------- records


@pytest.mark.parametrize("version", slow_except((NEWEST,), cupti_headers.VERSIONS))
def test_every_record_of_every_version(machine: Callable[..., Machine], version: str) -> None:
    here = machine(version)
    output = here.run("play")
    assert output["played"] == 1
    tables = here.read()
    compare(tables, expected(ALL, output["base"]))
    kinds = {row["name"]: row["kind"] for row in tables["api"]}
    assert kinds == {
        "cudaLaunchKernel": KINDS["launch"],
        "cudaMemcpyAsync": KINDS["launch"],
        "cuLaunchKernel": KINDS["launch"],
        "cuStreamSynchronize": KINDS["sync"],
        "cudaDeviceSynchronize": KINDS["sync"],
        "CUDA runtime call 1999": KINDS["other"],
    }
    facts = facts_of(tables)
    assert (facts["cupti.overhead_records"], facts["cupti.unknown_records"]) == ("1", "2")
    assert facts["cupti.library"] == here.variables["POSTRUN_CUPTI"]
    assert "capability.gpu" not in facts
    assert tables["loss"] == []
    (end,) = tables["end"]
    assert end["written"] == output["written"] == output["recorded"] == 16
    calls = [name for _, name in here.calls()]
    assert calls.index("cuInit") < calls.index("cuDeviceGetCount") < calls.index("cuptiGetVersion")
    if STAYS > float(version) >= GRAPHS_SURVIVE:
        assert calls[-3:] == ["cuDeviceGetCount", "cuptiUnsubscribe", "cuptiFinalize"]
    else:
        assert calls[-1] == "cuptiUnsubscribe"
        assert "cuptiFinalize" not in calls


def test_sanitized(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    output = here.run("play")
    compare(here.read(), expected(ALL, output["base"]))


def test_old_kernels_have_no_graph_node(machine: Callable[..., Machine]) -> None:
    """Of CUDA 10, whose records end there."""
    here = machine("11.8")
    output = here.run("play", STUB_VERSION="12")
    compare(here.read(), expected(ALL, output["base"], graph_nodes=False))


def test_too_old_a_version_is_refused(machine: Callable[..., Machine]) -> None:
    here = machine()
    assert here.run("play", STUB_VERSION="11")["played"] == 0
    assert "is too old: CUPTI version 11, 12 or newer is needed" in here.facts()["capability.gpu"]


def test_devices(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("play", STUB_DEVICES="2", STUB_DRIVER="12040")
    facts = here.facts()
    assert {key: facts[f"cuda.1.{key}"] for key in ("name", "uuid", "memory_bytes", "sm_count", "compute_capability")} == {
        "name": "Stub GPU 1",
        "uuid": "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1",
        "memory_bytes": str(80 * 2**30 + 1),
        "sm_count": "132",
        "compute_capability": "9.1",
    }
    assert facts["cuda.driver_supports"] == "12.4"
    assert "cuda.2.name" not in facts


HOSTILE = """\
kernel zero 1000 1000 0 1 7 1 1 1 1 1 1 1 1 0 0 0
kernel negative 3000 2000 0 1 7 2 1 1 1 1 1 1 1 0 0 0
kernel started - 2000 0 1 7 3 1 1 1 1 1 1 1 0 0 0
kernel running 4000 - 0 1 7 4 1 1 1 1 1 1 1 0 0 0
memset 1 - - 0 1 7 5
memcpy 1 0 0 1 100 200 0 1 7 0
runtime cudaMalloc_v3020 - - 1 6
sync 1 - 500 1 7 7
kernel long -9000000000000 100 7 4294967295 4294967294 4294967295 2147483647 65535 65535 1024 1 1 65535 2147483647 2147483647 -1
sync 2 100 200 99 7 8
"""


def test_spans_that_cannot_be(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    output = here.run("play", HOSTILE)
    tables = here.read()
    wanted = expected(HOSTILE, output["base"])
    wanted["memcpy"][0]["pageable"] = None  # neither side is known
    compare(tables, wanted)
    assert [(row["reason"], row["count"]) for row in tables["loss"]] == [(UNTIMED, 5)]
    assert facts_of(tables)["cupti.negative_spans"] == "1"
    assert output["lost"] == 5


def test_order_does_not_matter(machine: Callable[..., Machine]) -> None:
    lines = [
        f"kernel k{n % 7} {(n * 7919) % 100003 * 10} {(n * 7919) % 100003 * 10 + 50} {n % 4} {n % 4} {n % 300} {n} 1 1 1 1 1 1 1 0 0 0"
        for n in range(30000)
    ]
    here = machine()
    output = here.run("play", "\n".join(lines))
    tables = here.read()
    compare(tables, expected("\n".join(lines), output["base"]))
    assert tables["loss"] == []


@pytest.mark.slow
def test_from_several_threads(machine: Callable[..., Machine], variant: str) -> None:
    text = "".join(
        f"kernel k{n % 5} {n * 10} {n * 10 + 7} 0 1 7 {n + 1} 1 1 1 1 1 1 1 0 0 0\nruntime cudaLaunchKernel_v7000 {n} {n + 3} 5 {n + 1}\n"
        for n in range(500)
    )
    here = machine(variant=variant)
    times = 5 if variant == "thread" else 20  # of each of the four threads
    here.run("threads", text, times, POSTRUN_GPU_MEMORY="1024")
    tables = here.read()
    assert len(tables["kernel"]) == len(tables["api"]) == 500 * times * 4
    assert Counter(row["name"] for row in tables["kernel"]) == {f"k{n}": 400 * times for n in range(5)}
    assert tables["loss"] == []


def test_a_device_of_a_context_is_known_later(machine: Callable[..., Machine]) -> None:
    text = "sync 3 100 200 5 7 1\ncontext 5 3\nsync 3 300 400 6 7 2\nkernel k 500 600 2 6 7 3 1 1 1 1 1 1 1 0 0 0\n"
    here = machine()
    output = here.run("play", text)
    compare(here.read(), expected(text, output["base"]))


def test_names_of_calls_that_are_not_told(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("play", STUB_NO_NAMES="1")
    names = {row["name"] for row in here.read()["api"]}
    assert len(names) == 6
    assert all(re.fullmatch(r"CUDA (driver|runtime) call \d+", name) for name in names)


@pytest.mark.parametrize("version", ["12.1", NEWEST])
def test_noisy_calls(machine: Callable[..., Machine], version: str) -> None:
    """Switched off where the version can, else left out here."""
    noisy = ["cudaGetLastError_v3020", "cudaPeekAtLastError_v3020", "cudaGetDevice_v3020"]
    text = (
        "".join(f"runtime {name} 1 2 3 4\n" for name in noisy) + "driver cuCtxGetCurrent 1 2 3 4\ndriver cuGetProcAddress 1 2 3 4\n" + ALL
    )
    here = machine(version)
    output = here.run("play", text)
    tables = here.read()
    compare(tables, expected(ALL, output["base"]))
    assert facts_of(tables).get("cupti.noisy_calls") == ("5" if version == "12.1" else None)


# ---------------------------------------------------------------- losses


def test_dropped_records(machine: Callable[..., Machine]) -> None:
    here = machine()
    output = here.run("play", ALL + "dropped 7\nbuffer\nkernel k 1 2 0 1 7 1 1 1 1 1 1 1 1 0 0 0\ndropped 5\n")
    tables = here.read()
    assert len(tables["kernel"]) == 4
    assert {row["reason"] for row in tables["loss"]} == {GPU_LOST}
    assert sum(row["count"] for row in tables["loss"]) == output["lost"] == 12
    assert all(row["first_ns"] <= row["last_ns"] for row in tables["loss"])


def test_a_buffer_that_cannot_be_read(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    output = here.run("play", "kernel a 1 2 0 1 7 1 1 1 1 1 1 1 1 0 0 0\nbroken\nkernel b 1 2 0 1 7 2 1 1 1 1 1 1 1 0 0 0\n")
    tables = here.read()
    assert [row["name"] for row in tables["kernel"]] == ["a"]
    assert output["lost"] == 1


@pytest.mark.parametrize("version", [LAST_TO_CRASH, FIRST_TO_DECLINE])
def test_more_buffers_than_there_is_room_for(machine: Callable[..., Machine], variant: str, version: str) -> None:
    """A version that crashes without a buffer gets one that is not read."""
    here = machine(version, variant)
    output = here.run("hoard", ALL, 200, POSTRUN_GPU_MEMORY="1")
    tables = here.read()
    losses = sum(row["count"] for row in tables["loss"] if row["reason"] == GPU_LOST)
    if version == FIRST_TO_DECLINE:
        assert output["got"] == 2
        assert losses == 19  # records of the text that the stub had no buffer for
    else:
        assert output["got"] == 200
        assert losses == 1
    assert tables["kernel"] == []


def test_records_after_the_stop(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    output = here.run("late", STUB_LATE="1")
    compare(here.read(), expected(ALL, output["base"]))


@pytest.mark.parametrize("version", [LAST_TO_CRASH, FIRST_TO_DECLINE])
def test_buffers_that_do_not_come_back(machine: Callable[..., Machine], version: str) -> None:
    """The buffers of CUPTI go with it: later windows have as much room as ever."""
    here = machine(version)
    text = ALL.replace("9007199254740993", "0")
    output = here.run("keeps", text, 5, POSTRUN_GPU_MEMORY="1")
    compare(here.read(), expected(text, output["base"]))
    assert here.read()["loss"] == []


def test_a_buffer_of_another_tool(machine: Callable[..., Machine], variant: str) -> None:
    """Its memory is not touched; its content is lost."""
    here = machine(variant=variant)
    output = here.run("foreign")
    assert output["foreign"] == 1
    compare(here.read(), expected(ALL, output["base"]))
    assert [(row["reason"], row["count"]) for row in here.read()["loss"]] == [(GPU_LOST, 1)]


# ---------------------------------------------------------------- the clock


def test_a_clock_of_its_own(machine: Callable[..., Machine]) -> None:
    """After a profiler that set one: CUPTI is given the system's."""
    here = machine(ONE_CLIENT)
    output = here.run("play", STUB_CLOCK="1")
    compare(here.read(), expected(ALL, output["base"]))


def test_a_clock_of_its_own_in_a_version_for_several_clients(machine: Callable[..., Machine]) -> None:
    """There each client has a clock of its own, so that only WSL needs another one."""
    here = machine()
    output = here.run("play", STUB_CLOCK="1", POSTRUN_CUPTI_CLOCK="1")
    compare(here.read(), expected(ALL, output["base"]))


def test_a_clock_that_cannot_be_set(machine: Callable[..., Machine]) -> None:
    """Rows whose time is unknown are counted, and no time is made up."""
    here = machine(ONE_CLIENT)
    here.run("play", STUB_CLOCK="1", STUB_ERRORS="cuptiActivityRegisterTimestampCallback=15")
    tables = here.read()
    wanted = expected(ALL)
    assert [len(tables[name]) for name in ("kernel", "memcpy", "memset", "sync", "api", "external")] == [0, 0, 0, 0, 0, 1]
    untimed = sum(len(wanted[name]) for name in ("kernel", "memcpy", "memset", "sync", "api"))
    assert [(row["reason"], row["count"]) for row in tables["loss"]] == [(UNTIMED, untimed)]


@pytest.mark.parametrize("version", ["12.6", "12.9", "13.0"])
def test_kernels_keep_their_times_in_every_window(machine: Callable[..., Machine], version: str) -> None:
    """These versions lose the times of all kernels before a timestamp callback."""
    here = machine(version)
    here.run("windows", ALL, 4)
    tables = here.read()
    assert len(tables["kernel"]) == 4 * 3
    assert tables["loss"] == []
    assert "cuptiActivityRegisterTimestampCallback" not in [name for _, name in here.calls()]


@pytest.mark.parametrize(
    ("version", "wish", "registered"), [("13.0", "1", 1), ("12.9", "1", 1), (ONE_CLIENT, "1", 1), (ONE_CLIENT, "", 1), (ONE_CLIENT, "0", 0)]
)
def test_the_clock_is_set_once(machine: Callable[..., Machine], version: str, wish: str, registered: int) -> None:
    here = machine(version)
    here.run("windows", ALL, 4, POSTRUN_CUPTI_CLOCK=wish)
    tables = here.read()
    broken = 1 if registered and version != ONE_CLIENT else 0
    assert sum(row["count"] for row in tables["loss"]) == broken
    assert len(tables["kernel"]) == 4 * 3 - broken
    assert Counter(name for _, name in here.calls())["cuptiActivityRegisterTimestampCallback"] == registered
    assert facts_of(tables).get("cupti.stays") is None or "cuptiFinalize" not in [name for _, name in here.calls()]


@pytest.mark.parametrize("version", ["12.9", "13.0", NEWEST])
def test_the_clock_under_wsl(machine: Callable[..., Machine], tmp_path: Path, version: str) -> None:
    """There CUPTI has its own clock; a version that allows a callback keeps it."""
    here = machine(version)
    stub_libraries.stub("stub_wsl.c", tmp_path / "stub_wsl.so")
    here.run("windows", ALL, 4, STUB_CLOCK="1", LD_PRELOAD=str(tmp_path / "stub_wsl.so"), POSTRUN_CUPTI_STAY="0")
    tables = here.read()
    broken = 0 if version == NEWEST else 1
    assert len(tables["kernel"]) == 4 * 3 - broken
    assert sum(row["count"] for row in tables["loss"]) == broken
    stays = facts_of(tables)["cupti.stays"]
    assert stays == ("its clock was set, which this version bears only once" if broken else "other profilers may use it at the same time")


# ---------------------------------------------------------------- errors


FUNCTIONS = [
    *("cuptiGetVersion", "cuptiGetResultString", "cuptiActivityRegisterCallbacks", "cuptiActivityEnable", "cuptiActivityDisable"),
    *("cuptiActivityFlushAll", "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords", "cuptiGetCallbackName", "cuptiFinalize"),
    *("cuptiSetThreadIdType", "cuptiActivityEnableDriverApi", "cuptiActivityEnableRuntimeApi", "cuptiSubscribe", "cuptiUnsubscribe"),
    *("cuptiEnableCallback", "cuptiActivityRegisterTimestampCallback", "cuptiActivitySetAttribute"),
]
WORDS = {8, 14, 15, 23, 26, 27, 33, 35, 40, 41, 42, 43, 44, 45, 999}  # errors whose message suggests a remedy
NEEDED = {"cuptiGetVersion", "cuptiActivityRegisterCallbacks", "cuptiActivityEnable"}


@pytest.mark.parametrize("function", slow_except(NEEDED, FUNCTIONS))
def test_every_error_of_every_function(machine: Callable[..., Machine], function: str) -> None:
    """The session is complete, and reports the reason if nothing can be recorded."""
    here = machine({"cuptiFinalize": "12.9", "cuptiActivityRegisterCallbacks": ONE_CLIENT}.get(function, NEWEST))
    for code in CODES:
        here.run("open", STUB_ERRORS=f"{function}={code}")
        tables = here.read()
        assert [row["name"] for row in tables["annotation"]] == ["step"], code
        reason = facts_of(tables).get("capability.gpu")
        if code == 39 and function in NEEDED | {"cuptiSubscribe"} - {"cuptiGetVersion"}:
            assert reason is not None
            assert reason.startswith("another profiler uses CUPTI") or function == "cuptiGetVersion"
        elif function == "cuptiActivityFlushAll":
            missing = facts_of(tables)["capability.gpu.records"]
            assert f"({code})" in missing
            assert missing.startswith("what CUPTI still had at the end is missing: cuptiActivityFlushAll: ")
        elif function == "cuptiFinalize":
            assert facts_of(tables)["cupti.stays"].startswith("cuptiFinalize: ")
        elif function in NEEDED:
            assert reason is not None
            assert f"{function}: " in reason
            assert f"({code})" in reason
            assert bool(reason.partition(f"({code}): ")[2]) == (code in WORDS)
            assert tables["kernel"] == []
        else:
            assert reason is None, code


def test_errors_sanitized(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    for function in FUNCTIONS[:: 4 if variant == "thread" else 1]:
        here.run("open", STUB_ERRORS=f"{function}=999")
        assert [row["name"] for row in here.read()["annotation"]] == ["step"]


@pytest.mark.parametrize("function", ["cuInit", "cuDeviceGetCount"])
@pytest.mark.parametrize("code", [1, 2, 3, 4, 34, 100, 101, 802, 803, 804, 999, 999999])
def test_errors_of_the_driver(machine: Callable[..., Machine], function: str, code: int) -> None:
    here = machine()
    here.run("open", STUB_ERRORS=f"{function}={code}")
    reason = here.facts()["capability.gpu"]
    assert re.match(rf"{function}: [\w ]+ \({code}\)(: |$)", reason)
    assert bool(reason.partition(f"({code}): ")[2]) == (code in {2, 3, 34, 100, 101, 802, 803, 804, 999})
    assert not [name for _, name in here.calls() if name.startswith("cupti")]


def test_no_device_no_cupti(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("open", STUB_DEVICES="0")
    assert here.facts()["capability.gpu"] == "no CUDA device is visible"
    assert not [name for _, name in here.calls() if name.startswith("cupti")]


@pytest.mark.parametrize("kind", [1, 2, 4, 5, 22, 38, 39, 17])
def test_a_kind_that_cannot_be_recorded(machine: Callable[..., Machine], kind: int) -> None:
    here = machine()
    here.run("play", STUB_ERRORS=f"cuptiActivityEnable.{kind}=35")
    tables = here.read()
    facts = facts_of(tables)
    names = {1: "memcpy", 2: "memset", 4: "driver", 5: "runtime", 22: "memcpy_peer", 38: "synchronization"}
    output = {key: value for key, value in facts.items() if key.startswith("capability.")}
    assert output == ({f"capability.gpu.{names[kind]}": output.get(f"capability.gpu.{names[kind]}")} if kind in names else {})
    assert all(
        why.startswith("cuptiActivityEnable: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35): this user may not profile")
        for why in output.values()
    )
    assert len(tables["kernel"]) == 3


def test_no_cupti(machine: Callable[..., Machine], tmp_path: Path) -> None:
    here = machine()
    here.variables["POSTRUN_CUPTI"] = str(tmp_path / "libcupti.so.12")
    here.run("play")
    assert here.facts()["capability.gpu"].startswith("no CUPTI: ")


def test_something_else_for_cupti(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.variables["POSTRUN_CUPTI"] = str(here.stubs.cuda("plain") / "libcuda.so.1")
    here.run("play")
    assert here.facts()["capability.gpu"].endswith("is no CUPTI")


@pytest.mark.parametrize(("driver", "reported"), [("12040", True), ("13000", False), ("13050", False)])
def test_cupti_that_is_newer_than_the_driver(machine: Callable[..., Machine], driver: str, reported: bool) -> None:
    here = machine()
    here.run("play", STUB_ERRORS="cuptiActivityEnable=15", STUB_DRIVER=driver)
    reason = here.facts()["capability.gpu"]
    newer = "; CUPTI is of CUDA 13, and the driver supports no more than 12.4: POSTRUN_CUPTI can name an older libcupti"
    assert reason.endswith(newer) == reported
    here.run("play", STUB_DRIVER=driver)  # used if there is no error
    assert len(here.read()["kernel"]) == 3


# ---------------------------------------------------------------- the location of CUPTI


class Places:
    """Copies of a stub libcupti, and libraries of other names that a program has loaded."""

    def __init__(self, here: Machine, folder: Path) -> None:
        self.here, self.folder = here, folder
        self.cupti = Path(here.variables.pop("POSTRUN_CUPTI"))
        self.loaded: list[Path] = []

    def put(self, location: str) -> Path:
        path = self.folder / location
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.cupti, path)
        return path

    def load(self, location: str) -> None:
        """A library with no function of interest."""
        path = self.folder / location
        path.parent.mkdir(parents=True, exist_ok=True)
        source = self.folder / "empty.c"
        source.write_text("int stub_empty;")
        self.here.stubs.programs.compile("plain", [source], path.with_suffix(".so"), "-fPIC", "-shared")
        path.with_suffix(".so").rename(path)
        self.loaded.append(path)

    def used(self, path: Path, **variables: str) -> None:
        """That one, and none other, is used."""
        preload = {"LD_PRELOAD": ":".join(map(str, self.loaded))} if self.loaded else {}
        homes = {"CUDA_HOME": "", "CUDA_PATH": ""}
        output = self.here.run("play", ALL, STUB_CUPTI=str(path), **{**homes, **preload, **variables})
        assert self.here.facts().get("cupti.library") == str(path), self.here.facts().get("capability.gpu")
        assert output["played"] == 1
        assert len(self.here.read()["kernel"]) == 3


@pytest.fixture
def places(machine: Callable[..., Machine], tmp_path: Path) -> Places:
    return Places(machine(), tmp_path / "places")


def toolkit(major: str) -> None:
    """Skip the test if a path searched before those of the test may have a CUPTI."""
    if any(Path("/usr/local/cuda").rglob(f"libcupti.so{major}*")):
        pytest.skip("this machine has a CUDA toolkit, whose CUPTI would be found")


@pytest.mark.parametrize(
    ("loaded", "wanted", "driver"),
    [
        ("site/nvidia/cuda_runtime/lib/libcudart.so.12", "site/nvidia/cuda_cupti/lib/libcupti.so.12", "12040"),
        ("site/nvidia/cuda_runtime/lib/libcudart.so.11.0", "site/nvidia/cuda_cupti/lib/libcupti.so.11.8", "12040"),
        ("site/nvidia/cu13/lib/libcudart.so.13", "site/nvidia/cu13/lib/libcupti.so.13", "13000"),
        ("site/torch/lib/libtorch_cuda.so", "site/nvidia/cuda_cupti/lib/libcupti.so.12", "12080"),
        ("site/torch/lib/libtorch_cpu.so", "site/nvidia/cu13/lib/libcupti.so.13", "13000"),
        ("site/torch/lib/libc10.so", "site/torch/lib/libcupti.so.12", "12080"),
        ("cuda-12.4/lib64/libcudart.so.12", "cuda-12.4/extras/CUPTI/lib64/libcupti.so.12", "12040"),
        ("cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12", "cuda-12.4/extras/CUPTI/lib64/libcupti.so.12", "12040"),
        ("cuda-12.4/targets/x86_64-linux/lib/libcudart.so.12", "cuda-12.4/targets/x86_64-linux/lib/libcupti.so.12", "12040"),
        ("conda/lib/libcudart.so.12", "conda/lib/libcupti.so.12", "12040"),
    ],
)
def test_cupti_beside_what_the_program_has_loaded(places: Places, loaded: str, wanted: str, driver: str) -> None:
    places.load(loaded)
    places.used(places.put(wanted), STUB_DRIVER=driver)


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
@pytest.mark.parametrize(
    "location", ["extras/CUPTI/lib64/libcupti.so.12", "lib64/libcupti.so.2024.1.1", "lib/libcupti.so", "lib/libcupti.so.11.8"]
)
def test_cupti_of_a_toolkit(places: Places, variable: str, location: str) -> None:
    places.used(places.put(f"toolkit/{location}"), STUB_DRIVER="12040", **{variable: str(places.folder / "toolkit")})


@pytest.mark.parametrize("name", ["libcupti.so.12", "libcupti.so.11.8"])
def test_cupti_on_the_path_of_the_loader(places: Places, name: str) -> None:
    toolkit(name.removeprefix("libcupti.so")[:3])
    places.load("program/libcudart.so." + name.split(".")[2])
    path = places.put(f"path/{name}")
    libraries = f"{places.here.variables['LD_LIBRARY_PATH']}:{path.parent}"
    places.here.variables["LD_LIBRARY_PATH"] = libraries
    places.used(path, STUB_DRIVER="12040")


def test_the_cupti_that_fits_is_used(places: Places) -> None:
    """Return the runtime's CUPTI, else the driver's, else the nearest."""
    home = str(places.folder / "toolkit")
    of_12, of_13 = places.put("toolkit/lib64/libcupti.so.12"), places.put("toolkit/extras/CUPTI/lib64/libcupti.so.13")
    places.used(of_13, CUDA_HOME=home, STUB_DRIVER="13000")
    places.used(of_12, CUDA_HOME=home, STUB_DRIVER="12040")
    places.used(of_13, CUDA_HOME=home, STUB_DRIVER="14000")
    places.load("program/libcudart.so.12")
    places.used(of_12, CUDA_HOME=home, STUB_DRIVER="13000")
    near = places.put("program/libcupti.so.12")
    places.used(near, CUDA_HOME=home, STUB_DRIVER="13000")
    places.used(of_13, CUDA_HOME=home, STUB_DRIVER="13000", POSTRUN_CUPTI=str(of_13))


def test_the_cupti_that_the_program_has_loaded_is_used(places: Places) -> None:
    """Also for a wheel's own name and next to other facts: two CUPTIs conflict."""
    second = places.put("toolkit/lib64/libcupti.so.13")
    places.loaded = [places.put("site/torch/lib/libcupti-9af9a0c6.so.12")]
    places.used(places.loaded[0], CUDA_HOME=str(places.folder / "toolkit"), POSTRUN_CUPTI=str(second))


def test_a_cupti_that_cannot_be_loaded_is_named(places: Places) -> None:
    """And another one is tried."""
    toolkit("")
    broken = places.put("toolkit/extras/CUPTI/lib64/libcupti.so.13")
    broken.write_bytes(b"nothing")
    home = str(places.folder / "toolkit")
    places.here.run("play", ALL, STUB_CUPTI=str(broken), CUDA_HOME=home, CUDA_PATH="")
    reason = places.here.facts()["capability.gpu"]
    assert reason.startswith("no CUPTI: ")
    assert str(broken)[:60] in reason
    places.used(places.put("toolkit/lib64/libcupti.so.13"), CUDA_HOME=home)


def test_no_cupti_anywhere(places: Places) -> None:
    toolkit("")
    places.here.run("play", ALL, STUB_CUPTI="none", CUDA_HOME="", CUDA_PATH="")
    assert places.here.facts()["capability.gpu"].startswith("no CUPTI: libcupti.so")


# ---------------------------------------------------------------- the reason, for programs


def reasons(here: Machine, flags: int, *more: object, **variables: str) -> dict[str, str]:
    """postrun_gpu_reason before a session, in it, and after."""
    here.count += 1
    here.out = here.folder / f"out{here.count}"
    script = here.folder / "script.txt"
    script.write_text("\n")
    command = [str(here.stubs.programs.program("gpu_capture", here.variant)), "reason", here.out, script, str(flags), *map(str, more)]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment(**here.variables, **variables))
    assert done.returncode == 0, done.stderr
    return {key: why for key, _, why in (line.partition(": ") for line in done.stderr.splitlines())}


def test_the_reason_is_that_of_the_file(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    for errors in ("cuInit=803", "cuDeviceGetCount=100", "cuptiActivityEnable=35", "cuptiSubscribe=39", "cuptiGetVersion=15"):
        output = reasons(here, 2, "fails", STUB_ERRORS=errors)
        assert output["in"] == here.facts()["capability.gpu"]
        assert output["before"] == output["after"] == "nothing is being recorded"


def test_no_reason_where_there_is_none(machine: Callable[..., Machine]) -> None:
    here = machine()
    assert reasons(here, 2)["in"] == ""
    assert reasons(here, 2 | 4)["in"] == ""
    assert reasons(here, 0, "fails")["in"] == "the session was begun without POSTRUN_GPU"
    assert reasons(here, 2, "fails", POSTRUN_GPU="0")["in"] == "POSTRUN_GPU=0 turns it off"
    assert here.facts()["capability.gpu"] == "POSTRUN_GPU=0 turns it off"


# ---------------------------------------------------------------- other tools


@pytest.mark.parametrize(("version", "name"), [("12.9", "which one is not known"), (NEWEST, "Some Profiler")])
def test_another_profiler_is_named(machine: Callable[..., Machine], version: str, name: str) -> None:
    """Newer versions report the other tool's name."""
    here = machine(version)
    assert here.run("play", STUB_OTHER="Some Profiler")["played"] == 0
    assert here.facts()["capability.gpu"] == f"another profiler uses CUPTI: {name}"
    calls = [name for _, name in here.calls()]
    assert not {"cuptiActivityEnable", "cuptiActivityRegisterCallbacks", "cuptiFinalize", "cuptiActivityDisable"} & set(calls)


def test_another_profiler_is_guessed(machine: Callable[..., Machine]) -> None:
    here = machine("12.1")
    here.run("play", STUB_OTHER="x", NSYS_PROFILING_SESSION_ID="17")
    assert here.facts()["capability.gpu"] == "another profiler uses CUPTI: probably NVIDIA Nsight Systems"


TAKEN_OVER = "another profiler took CUPTI over (which one is not known): nothing is known of GPU activity after that"


@pytest.mark.slow
@pytest.mark.parametrize("pause_ms", [0, 1300])
@pytest.mark.parametrize("version", ["12.9", "13.0", NEWEST])
def test_another_client_ends_cupti_while_a_window_is_open(machine: Callable[..., Machine], version: str, pause_ms: int) -> None:
    """CUPTI is not called again, and the window ends when it last worked."""
    here = machine(version)
    output = here.run("takeover", ALL, pause_ms)
    tables = here.read()
    assert output["after"] == 0
    assert len(tables["kernel"]) == 3
    facts = facts_of(tables)
    assert facts["capability.gpu"] == TAKEN_OVER
    opened, closed = map(int, facts["gpu.window.0"].split())
    assert output["before"] - 1_500_000_000 < closed <= output["before"] + 100_000_000
    assert opened < closed
    assert "gpu.window.1" not in facts
    calls = [name for _, name in here.calls()]
    assert not {"cuptiActivityDisable", "cuptiFinalize", "cuptiUnsubscribe", "cuptiActivityFlushAll.forced"} & set(calls)


def test_another_client_ends_cupti_sanitized(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    here.run("takeover", ALL, 1300)
    assert here.facts()["capability.gpu"] == TAKEN_OVER


def test_another_client_ends_cupti_and_the_program_ends(machine: Callable[..., Machine]) -> None:
    here = machine("13.0")
    here.run("takeover_exit")
    assert here.facts()["capability.gpu"] == TAKEN_OVER
    assert len(here.read()["kernel"]) == 3


@pytest.mark.parametrize("version", ["12.1", "12.9", "13.0", NEWEST])
def test_another_client_is_refused_while_a_window_is_open(machine: Callable[..., Machine], version: str) -> None:
    """And not after it; then it is this library that is refused."""
    here = machine(version)
    output = here.run("refused")
    assert (output["in"], output["after"], output["with_it"]) == (39, 0, errno.ENOTSUP)
    assert output["threads"] == 0, "the kind of thread ids that others expect"
    tables = here.read()
    assert len(tables["kernel"]) == 3
    named = "CUPTI for the other" if float(version) >= 13 else "which one is not known"
    assert facts_of(tables)["capability.gpu"] == f"another profiler uses CUPTI: {named}"


def test_two_clients_that_allow_each_other(machine: Callable[..., Machine], variant: str) -> None:
    """Each has its own records; the other one's unfinished records are not flushed."""
    here = machine(variant=variant)
    output = here.run("together")
    tables = here.read()
    assert output["in"] == 0
    assert output["others"] == 6
    assert len(tables["kernel"]) == 6
    assert "capability.gpu" not in facts_of(tables)
    calls = [name for _, name in here.calls()]
    assert not {"cuptiActivityFlushAll.forced", "cuptiFinalize"} & set(calls)


@pytest.mark.parametrize(("variables", "driver"), [({"POSTRUN_CUPTI_MULTIPLE": "0"}, "13050"), ({}, "13020")])
def test_one_client_where_several_cannot_be(machine: Callable[..., Machine], variables: dict[str, str], driver: str) -> None:
    here = machine()
    output = here.run("refused", STUB_DRIVER=driver, **variables)
    assert (output["in"], output["after"]) == (39, 0)
    assert len(here.read()["kernel"]) == 3


def test_one_client_where_the_callbacks_of_several_are_refused(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("windows", ALL, 2, STUB_ERRORS="cuptiActivityRegisterCallbacks_v2=999")
    tables = here.read()
    assert len(tables["kernel"]) == 2 * 3
    assert "capability.gpu" not in facts_of(tables)
    assert Counter(name for _, name in here.calls())["cuptiActivityRegisterCallbacks_v2"] == 1


@pytest.mark.parametrize("version", ["12.9", "13.0", NEWEST])
def test_a_profiler_of_the_program_goes_first(machine: Callable[..., Machine], version: str) -> None:
    here = machine(version)
    output = here.run("yield")
    assert (output["attached"], output["in"], output["others"]) == (0, 0, 3)
    tables = here.read()
    assert len(tables["kernel"]) == 6
    facts = facts_of(tables)
    assert facts["capability.gpu"] == "PyTorch's profiler was used by the program: while it was, nothing else could record GPU activity"
    assert {"gpu.window.0", "gpu.window.1"} <= set(facts)
    assert int(facts["gpu.window.1"].split()[0]) - int(facts["gpu.window.0"].split()[1]) > 900_000_000


def test_a_profiler_of_the_program_goes_first_sanitized(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    here.run("yield")
    assert len(here.read()["kernel"]) == 6


def test_a_window_waits_for_a_profiler_of_the_program(machine: Callable[..., Machine]) -> None:
    here = machine("13.0")
    output = here.run("yield_window")
    compare(here.read(), expected(ALL, output["base"]))


def test_a_window_of_steps_that_pass_while_a_profiler_of_the_program_runs(machine: Callable[..., Machine]) -> None:
    """The reason is that profiler, not the steps."""
    here = machine("13.0")
    begun = {"POSTRUN_CAPTURE": "1", "POSTRUN_GPU": "1", "POSTRUN_DIR": str(here.folder / "out1")}
    here.run("yield_steps", ALL, **begun, POSTRUN_GPU_STEPS="2:5")
    assert here.facts()["capability.gpu"].startswith("PyTorch's profiler was used by the program")


def test_a_profiler_of_the_program_that_stays(machine: Callable[..., Machine]) -> None:
    """As PyTorch's does without teardown: the window waits for it, and says so once."""
    here = machine("13.0")
    here.run("yield", ALL, 1)
    tables = here.read()
    assert len(tables["kernel"]) == 3
    reasons = [row["value"] for row in tables["meta"] if row["key"] == "capability.gpu"]
    assert reasons[-1] == "another profiler uses CUPTI: CUPTI for the other"
    assert Counter(name for _, name in here.calls())["cuptiSubscribe"] >= 2


def test_the_first_version_of_13_is_refused(machine: Callable[..., Machine]) -> None:
    """It hangs and crashes like the stub; the reason names a working version."""
    here = machine("13.0")
    assert here.run("play", STUB_VERSION="130000")["played"] == 0
    assert "Update 1 does not" in here.facts()["capability.gpu"]
    assert not {"cuptiSubscribe", "cuptiActivityEnable"} & {name for _, name in here.calls()}


def test_a_version_that_may_record_no_kernels_is_named(machine: Callable[..., Machine]) -> None:
    here = machine("12.4")
    here.run("play")
    assert "CUDA 12.5 Update 1" in here.facts()["cupti.warning"]


GRAPH_LAUNCHES = """\
runtime cudaGraphLaunch_v10000 100 300 77 3
kernel node 1000 2000 0 1 7 3 1 1 1 1 1 1 1 0 0 5
runtime cudaGraphLaunch_v10000 5000 5300 77 4
kernel node 6000 7000 0 1 7 4 1 1 1 1 1 1 1 0 0 5
kernel plain 8000 9000 0 1 7 3 1 1 1 1 1 1 1 0 0 0
"""


@pytest.mark.parametrize(("version", "wrong"), [("12.9", True), ("13.0", True), (ONE_CLIENT, False), (NEWEST, False)])
def test_kernels_of_graphs_before_their_launch(machine: Callable[..., Machine], version: str, wrong: bool) -> None:
    """Some versions name the next launch for kernels of an earlier window."""
    here = machine(version)
    here.run("window2", GRAPH_LAUNCHES)
    tables = here.read()
    first, second = (sorted(tables["kernel"], key=lambda row: row["start_ns"])[part] for part in (slice(3), slice(3, 6)))
    assert [row["correlation"] for row in first] == [3, 4, 3]
    assert [row["correlation"] for row in second] == ([0, 5, 3] if wrong else [3, 4, 3])
    facts = facts_of(tables)
    assert facts.get("cupti.wrong_launches") == ("1" if wrong else None)
    assert ("capability.gpu.graph_launches" in facts) == wrong


@pytest.mark.parametrize("version", ["12.9", "13.0"])
def test_records_of_work_after_the_window(machine: Callable[..., Machine], version: str) -> None:
    here = machine(version)
    here.run("outside", STUB_LATE="1")
    tables = here.read()
    assert len(tables["kernel"]) == 3
    assert facts_of(tables)["cupti.records_outside"] == "3"
    assert tables["loss"] == []


def test_records_that_come_on_a_thread_of_the_library(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    output = here.run("play", STUB_FOREIGN_THREAD="1")
    compare(here.read(), expected(ALL, output["base"]))


def test_records_of_cuda_events_are_known(machine: Callable[..., Machine]) -> None:
    """Before CUDA 12.9 they come with those of synchronizations."""
    here = machine("12.6")
    here.run("play", "unknown 36 64\n" + ALL)
    assert here.facts()["cupti.unknown_records"] == "2"


def test_the_program_keeps_cupti_while_it_is_recorded(machine: Callable[..., Machine]) -> None:
    """PyTorch sets TEARDOWN_CUPTI where it compiles to CUDA graphs."""
    here = machine("12.9")
    here.run("teardown")
    assert here.facts()["cupti.stays"] == "TEARDOWN_CUPTI=0"
    assert "cuptiFinalize" not in [name for _, name in here.calls()]


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize(("version", "finalized"), [("12.9", 2), (ONE_CLIENT, 0), (NEWEST, 0)])
def test_windows(machine: Callable[..., Machine], variant: str, version: str, finalized: int) -> None:
    here = machine(version, variant)
    output = here.run("window")
    assert (output["played"], output["again"]) == (1, 1)
    assert len(here.read()["kernel"]) == 6
    assert Counter(name for _, name in here.calls())["cuptiFinalize"] == finalized


GRAPH = "kernel node 1 2 0 1 7 1 1 1 1 1 1 1 1 0 0 5\n"
GRAPH_LAUNCH = "runtime cudaGraphLaunch_v10000 1 2 3 4\n"
GRAPHICS = "runtime cudaGraphicsMapResources_v3020 1 2 3 4\n"


@pytest.mark.parametrize(
    ("version", "text", "variables", "stays"),
    [
        ("11.8", GRAPH, {}, "CUDA graphs"),
        ("12.4", GRAPH_LAUNCH, {}, "CUDA graphs"),
        ("12.4", GRAPHICS, {}, None),
        ("12.4", ALL.replace("9007199254740993", "0"), {"TEARDOWN_CUPTI": "1"}, None),
        ("12.6", GRAPH, {}, None),
        ("12.9", GRAPH_LAUNCH, {}, None),
        ("12.9", GRAPHICS, {"TEARDOWN_CUPTI": "0"}, "TEARDOWN_CUPTI=0"),
        ("12.9", GRAPHICS, {"POSTRUN_CUPTI_STAY": "1", "TEARDOWN_CUPTI": "1"}, "POSTRUN_CUPTI_STAY=1"),
        ("13.0", GRAPHICS, {}, "from CUDA 13.0 on it stays"),
        (ONE_CLIENT, GRAPH, {"TEARDOWN_CUPTI": "1"}, None),
        (ONE_CLIENT, GRAPH, {"POSTRUN_CUPTI_STAY": "0"}, None),
        (NEWEST, GRAPH, {"POSTRUN_CUPTI_STAY": "0"}, "other profilers may use it at the same time"),
    ],
)
def test_cupti_stays_where_leaving_would_crash(
    machine: Callable[..., Machine], version: str, text: str, variables: dict[str, str], stays: str | None
) -> None:
    """The second window records like the first; nothing is enabled between them."""
    here = machine(version)
    output = here.run("window2", text, **variables)
    assert output["between"] == 0
    wanted = expected(text)
    assert {name: len(here.read()[name]) for name in wanted} == {name: 2 * len(rows) for name, rows in wanted.items()}
    assert Counter(name for _, name in here.calls())["cuptiFinalize"] == (0 if stays else 2)
    assert (stays or "") in here.facts().get("cupti.stays", "")
    assert ("cupti.stays" in here.facts()) == bool(stays)


def test_a_file_that_follows_another_at_its_age_can_be_read_alone(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    output = here.run("window2", ALL, 1300, POSTRUN_ROTATE_S="1")
    texts = sorted((file.read_bytes() for file in files(here.out)), key=lambda text: int.from_bytes(text[56:60], "little"))
    for text in texts:
        check_whole(text)
    tables = [prt_reader.read(text) for text in texts]
    assert sum(bool(table["kernel"]) for table in tables) >= 2  # on a slow machine more
    assert {facts_of(table).get("cuda.0.name") for table in tables} == {"Stub GPU 0"}
    wanted = expected(ALL, output["base"])  # of the second window; the first one's records are the same at other times
    actual = {name: [row for table in tables for row in table[name]] for name in wanted}
    compare({name: rows[len(rows) // 2 :] for name, rows in actual.items()}, wanted)
    assert [row["name"] for row in actual["kernel"]] == 2 * [row["name"] for row in actual["kernel"][: len(wanted["kernel"])]]


def test_a_device_that_does_not_end(machine: Callable[..., Machine]) -> None:
    """Waiting for it has an end."""
    here = machine()
    output = here.run("busy", STUB_BUSY="60")
    compare(here.read(), expected(ALL, output["base"]))


STEPS = [
    (0, "2:5", {2, 3, 4}),
    (1, "2:5", {2, 3, 4}),
    (2, "2:5", {2, 3, 4}),
    (3, "2:5", {2, 3, 4}),
    (0, "0:1", {0}),
    (0, "6:100", {6, 7}),
    (1, "7:8", {7}),
]


@pytest.mark.parametrize(("naming", "steps", "wanted"), STEPS)
def test_a_window_of_steps(machine: Callable[..., Machine], naming: int, steps: str, wanted: set[int]) -> None:
    here = machine()
    output = here.run(
        "steps", ALL, naming, POSTRUN_CAPTURE="1", POSTRUN_GPU="1", POSTRUN_GPU_STEPS=steps, POSTRUN_DIR=str(here.folder / "out1")
    )
    assert {n for n in range(8) if output[f"step{n}"]} == wanted
    tables = here.read()
    assert len(tables["kernel"]) == 3 * len(wanted)
    assert Counter(row["name"].partition("_")[0] for row in tables["annotation"]) == {"step": 8, "Forward": 8}
    assert [name for _, name in here.calls()][-1] == "cuptiUnsubscribe"


def test_a_window_of_steps_sanitized(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    output = here.run("steps", ALL, 0, POSTRUN_CAPTURE="1", POSTRUN_GPU="1", POSTRUN_GPU_STEPS="3:4", POSTRUN_DIR=str(here.folder / "out1"))
    assert [output[f"step{n}"] for n in range(8)] == [0, 0, 0, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("window", "why"),
    [
        ({"POSTRUN_GPU_STEPS": "50:60"}, "it was asked for in steps 50:60, but the last step that began was 7"),
        ({"POSTRUN_GPU_TIME": "500.5:900"}, "it was asked for from second 500.5 on, but the program ended before"),
        ({"POSTRUN_GPU_SIGNAL": "USR2"}, "it was asked for from a signal on (USR2), but none came"),
    ],
)
def test_windows_that_do_not_come(machine: Callable[..., Machine], window: dict[str, str], why: str) -> None:
    here = machine()
    here.run("steps", ALL, 0, POSTRUN_CAPTURE="1", POSTRUN_GPU="1", POSTRUN_DIR=str(here.folder / "out1"), **window)
    assert here.facts()["capability.gpu"] == why


def test_a_limit_of_memory_that_is_no_number(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("steps", ALL, 0, POSTRUN_CAPTURE="1", POSTRUN_GPU="1", POSTRUN_DIR=str(here.folder / "out1"), POSTRUN_GPU_MEMORY="lots")
    assert here.facts()["capability.gpu.memory_limit"].startswith("POSTRUN_GPU_MEMORY=lots is not heeded")


def test_a_window_of_time(machine: Callable[..., Machine]) -> None:
    here = machine()
    output = here.run("time", ALL, POSTRUN_CAPTURE="1", POSTRUN_GPU="1", POSTRUN_GPU_TIME="0.3:1.5", POSTRUN_DIR=str(here.folder / "out1"))
    compare(here.read(), expected(ALL, output["base"]))


def test_a_window_by_signals(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    output = here.run("signal", ALL, POSTRUN_CAPTURE="1", POSTRUN_GPU="1", POSTRUN_GPU_SIGNAL="USR2", POSTRUN_DIR=str(here.folder / "out1"))
    compare(here.read(), expected(ALL, output["base"]))


@pytest.mark.parametrize(
    ("variable", "value"),
    [("STEPS", "5"), ("STEPS", "5:5"), ("STEPS", "a:b"), ("STEPS", "1:2x"), ("TIME", "3:1"), ("TIME", "1e3:2e3"), ("SIGNAL", "KILL")],
)
def test_windows_that_make_no_sense(machine: Callable[..., Machine], variable: str, value: str) -> None:
    here = machine()
    window = {f"POSTRUN_GPU_{variable}": value}
    here.run("unused", ALL, POSTRUN_CAPTURE="1", POSTRUN_GPU="1", POSTRUN_DIR=str(here.folder / "out1"), **window)
    reason = here.facts()["capability.gpu"]
    assert reason.startswith(f"POSTRUN_GPU_{variable}={value}: ")
    assert reason.endswith(("are expected, A less than B", "is expected"))


# ---------------------------------------------------------------- processes


def test_by_the_environment(machine: Callable[..., Machine], variant: str) -> None:
    """CUDA is left to the program."""
    here = machine(variant=variant)
    output = here.run("environment", ALL, POSTRUN_CAPTURE="1", POSTRUN_GPU="1", POSTRUN_DIR=str(here.folder / "out1"))
    compare(here.read(), expected(ALL, output["base"]))
    assert Counter(name for _, name in here.calls())["cuInit"] == 1


def test_threads_of_the_recorder_leave_the_environment_alone(machine: Callable[..., Machine], tmp_path: Path) -> None:
    """The program may be changing it."""
    here = machine("12.9")
    stub_libraries.stub("stub_getenv.c", tmp_path / "stub_getenv.so")
    begun = {"POSTRUN_CAPTURE": "1", "POSTRUN_GPU": "1", "POSTRUN_DIR": str(here.folder / "out1"), "POSTRUN_GPU_TIME": "0.3:1.5"}
    output = here.run("time", ALL, **begun, LD_PRELOAD=str(tmp_path / "stub_getenv.so"))
    compare(here.read(), expected(ALL, output["base"]))


def test_a_program_that_uses_no_cuda(machine: Callable[..., Machine]) -> None:
    here = machine()
    here.run("unused", ALL, POSTRUN_CAPTURE="1", POSTRUN_GPU="1", POSTRUN_DIR=str(here.folder / "out1"))
    assert here.facts()["capability.gpu"] == "the program did not use CUDA"
    assert {name for _, name in here.calls()} <= {"cuDeviceGetCount"}


def test_a_program_that_ends_as_soon_as_it_uses_cuda(machine: Callable[..., Machine]) -> None:
    """Before the thread that looks for CUDA has looked again; else it was recorded."""
    here = machine()
    brief = 0
    for pause_ms in range(3, 63, 3):
        here.run("brief", ALL, pause_ms, POSTRUN_CAPTURE="1", POSTRUN_GPU="1", POSTRUN_DIR=str(here.folder / f"out{here.count + 1}"))
        facts = here.facts()
        assert facts.get("capability.gpu") == (None if "gpu.window.0" in facts else "the program used CUDA only just before it ended")
        brief += "capability.gpu" in facts
    assert brief


def test_injected(machine: Callable[..., Machine], variant: str) -> None:
    """The driver loads the library; the program ends without a stop."""
    here = machine(variant=variant)
    library = here.stubs.programs.library(variant) / "libpostrun.so"
    output = here.run("injected", ALL, 1, CUDA_INJECTION64_PATH=str(library), POSTRUN_DIR=str(here.folder / "out1"))
    compare(here.read(), expected(ALL, output["base"]))


def test_a_program_asks_for_gpus_in_a_session_that_the_environment_began_without(machine: Callable[..., Machine]) -> None:
    here = machine()
    begun = {"POSTRUN_CAPTURE": "1", "POSTRUN_DIR": str(here.folder / "out1")}
    output = here.run("exit", **begun)
    compare(here.read(), expected(ALL, output["base"]))


def test_the_end_of_the_program(machine: Callable[..., Machine], variant: str) -> None:
    """The remaining records are requested from CUPTI, and it is left alone."""
    here = machine(variant=variant)
    output = here.run("exit")
    compare(here.read(), expected(ALL, output["base"]))
    calls = [name for _, name in here.calls()]
    assert calls[-1] == "cuptiActivityFlushAll.forced"
    assert "cuptiFinalize" not in calls


def test_the_end_of_the_program_while_records_come_in(machine: Callable[..., Machine], variant: str) -> None:
    """It waits for the thread that is calling CUPTI."""
    here = machine(variant=variant)
    output = here.run("exit", ALL, 1400, STUB_SLOW="1")
    compare(here.read(), expected(ALL, output["base"]))
    assert [name for _, name in here.calls()].count("cuptiActivityFlushAll") == 1


@pytest.mark.parametrize("variant", ["plain", "address"])  # the thread sanitizer puts signal handlers off
def test_a_signal_handler_ends_the_program_while_a_window_closes(machine: Callable[..., Machine], variant: str) -> None:
    """The interrupted thread waits for nobody, and the file is complete."""
    here = machine(variant=variant)
    here.run("leave", STUB_BUSY="1", ASAN_OPTIONS="detect_leaks=0")  # which are not looked for from a signal handler
    assert [row["name"] for row in here.read()["annotation"]] == ["step"]


@pytest.mark.parametrize("variant", ["plain", "address"])  # the thread sanitizer takes no new threads in a forked child
def test_a_forked_child_makes_no_call(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    output = here.run("fork")
    assert output["child"] not in {pid for pid, _ in here.calls()}
    by_pid = {int(file.name.split(".")[-3]): file for file in files(here.out) if "-" not in file.name.split(".")[-2]}
    compare(prt_reader.read(by_pid[output["parent"]].read_bytes()), expected(ALL, output["base"]))
    reasons = [facts_of(prt_reader.read(file.read_bytes())).get("capability.gpu") for file in files(here.out)]
    assert reasons.count("a process forked by one that used CUDA cannot use it") == 2


def test_starting_and_stopping_leaves_nothing_behind(machine: Callable[..., Machine], variant: str) -> None:
    here = machine(variant=variant)
    cycles = 50 if variant == "thread" else 200
    for heap in ({}, {"MALLOC_MMAP_MAX_": "0"}) if variant == "plain" else ({},):  # its address determines the holes on the heap
        output = here.run("cycles", ALL, cycles, **heap)
        if variant == "plain":
            assert output["grown_kib"] < 1024
        assert len(files(here.out)) == cycles
