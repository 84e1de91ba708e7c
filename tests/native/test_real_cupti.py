"""Tests of the capture library against NVIDIA's own CUPTI, NVTX and NVML: headers of several CUDA versions, and real libraries.

Layouts, numbers and signatures are compiled and compared. The libraries are loaded by a recording session, without a driver and with a
stub of an older one: whatever they do, the program goes on and the session is complete.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import cupti_headers
import prt_reader
import pytest
import stub_libraries
from native_programs import Programs, call, check_whole, environment, files

FIELDS: dict[str, tuple[str, dict[str, str]]] = {
    "cupti_kernel": (
        "Kernel",
        {
            **{"registers": "registersPerThread", "start": "start", "end": "end", "device": "deviceId", "context": "contextId"},
            **{"stream": "streamId", "grid": "gridX", "block": "blockX", "static_shared": "staticSharedMemory"},
            **{"dynamic_shared": "dynamicSharedMemory", "correlation": "correlationId", "name": "name", "graph_node": "graphNodeId"},
        },
    ),
    "cupti_memcpy": (
        "Memcpy",
        {
            **{"copy": "copyKind", "source": "srcKind", "destination": "dstKind", "flags": "flags", "bytes": "bytes", "start": "start"},
            **{"end": "end", "device": "deviceId", "context": "contextId", "stream": "streamId", "correlation": "correlationId"},
        },
    ),
    "cupti_memcpy_peer": (
        "MemcpyPtoP",
        {
            **{"copy": "copyKind", "source": "srcKind", "destination": "dstKind", "bytes": "bytes", "start": "start", "end": "end"},
            **{"device": "deviceId", "context": "contextId", "stream": "streamId", "source_device": "srcDeviceId"},
            **{"source_context": "srcContextId", "destination_device": "dstDeviceId", "destination_context": "dstContextId"},
            "correlation": "correlationId",
        },
    ),
    "cupti_memset": (
        "Memset",
        {
            **{"value": "value", "bytes": "bytes", "start": "start", "end": "end", "device": "deviceId", "context": "contextId"},
            **{"stream": "streamId", "correlation": "correlationId"},
        },
    ),
    "cupti_sync": (
        "Synchronization",
        {
            **{"type": "type", "start": "start", "end": "end", "correlation": "correlationId", "context": "contextId"},
            "stream": "streamId",
        },
    ),
    "cupti_call": (
        "API",
        {
            **{"id": "cbid", "start": "start", "end": "end", "process": "processId", "thread": "threadId", "correlation": "correlationId"},
        },
    ),
    "cupti_external": (
        "ExternalCorrelation",
        {"external_kind": "externalKind", "external": "externalId", "correlation": "correlationId"},
    ),
    "cupti_context": ("Context", {"context": "contextId", "device": "deviceId"}),
}
NUMBERS = {
    "CUPTI_KERNEL": "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    "CUPTI_MEMCPY_PEER": "CUPTI_ACTIVITY_KIND_MEMCPY2",
    "CUPTI_EXTERNAL": "CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION",
    "CUPTI_OTHER_SUBSCRIBER": "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
    "CUPTI_THREAD_ID_SYSTEM": "CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM",
    "CUPTI_THREAD_ID_DEFAULT": "CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT",
    "CUPTI_FLUSH_FORCED": "CUPTI_ACTIVITY_FLAG_FLUSH_FORCED",
    "CUPTI_ATTRIBUTE_THREAD_IDS": "CUPTI_ACTIVITY_ATTR_THREAD_ID_TYPE",
    "CUPTI_ATTRIBUTE_CLOCK": "CUPTI_ACTIVITY_ATTR_TIMESTAMP_CALLBACK",
}
"""Constants of the C library that the vendor calls something else."""
PREFIXES = ("CUPTI_", "CUPTI_ACTIVITY_KIND_", "CUPTI_ACTIVITY_ATTR_", "CUPTI_ACTIVITY_", "CUPTI_ERROR_", "CUPTI_CB_DOMAIN_")
"""The vendor's prefixes of the others."""
VERSION_OF = {"CUPTI_12_4": "12.4", "CUPTI_GRAPHS_SURVIVE": "12.6", "CUPTI_MULTIPLE": "13.3"}
"""Constants that are the CUPTI version of a wheel."""
NOT_THE_VENDORS = {
    *VERSION_OF,
    *("CUPTI_OLDEST", "CUPTI_GRAPH_NODES", "CUPTI_MAY_DECLINE", "CUPTI_13", "CUPTI_CLOCK_WORKS", "CUPTI_GRAPH_LAUNCHES"),
    *("CUPTI_MULTIPLE_FIELD", "CUPTI_CALLS"),
}
"""Versions and limits."""
WORDS = {
    **{8: "OUT_OF_MEMORY", 14: "NOT_COMPATIBLE", 15: "NOT_INITIALIZED", 23: "DISABLED", 26: "HARDWARE_BUSY", 27: "NOT_SUPPORTED"},
    **{33: "VIRTUALIZED_DEVICE_NOT_SUPPORTED", 35: "INSUFFICIENT_PRIVILEGES", 40: "VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES"},
    **{41: "CONFIDENTIAL_COMPUTING_NOT_SUPPORTED", 42: "CMP_DEVICE_NOT_SUPPORTED", 43: "MIG_DEVICE_NOT_SUPPORTED"},
    **{44: "SLI_DEVICE_NOT_SUPPORTED", 45: "WSL_DEVICE_NOT_SUPPORTED", 999: "UNKNOWN"},
}
"""CUPTI_ERROR_* of the codes for which `words` in cupti_loader.c has advice."""
SUBSCRIPTION = {
    "size": ("structSize", (13, 0)),
    "name": ("subscriberName", (13, 0)),
    "other": ("oldSubscriberName", (13, 0)),
    "other_size": ("oldSubscriberSize", (13, 0)),
    "multiple": ("allowMultipleSubscribers", (13, 2)),
}
"""Members of CUpti_SubscriberParams, and the CUDA version that they came with."""


def parts(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


ANSWERS_WITHOUT_A_DRIVER = [version for version in cupti_headers.VERSIONS if parts(version) < (13, 2)]
"""Versions whose library returns names on any machine: 13.2 crashes, later ones return an error."""
DRIVERS = ("", "11040", "12040", "13000")  # versions of the stub driver: CUDA 11.4, 12.4, 13.0. Empty: no driver.


def run(command: list[object], **variables: str) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment(**variables))
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-3000:]}"
    return done.stdout


def compiled(compiler: str, standard: str, source: Path, lines: list[str], *flags: object) -> None:
    """Checks that the lines compile: they are static assertions."""
    actual = shutil.which(compiler)
    if actual is None:
        pytest.skip(f"no compiler ({compiler})")
    source.write_text("\n".join(lines) + "\n")
    run([actual, f"-std={standard}", "-fsyntax-only", *flags, source])


def equal(ours: str, theirs: str) -> str:
    return f'_Static_assert((long long)({ours}) == (long long)({theirs}), "{ours}");'


@cache
def vendors_names(version: str) -> frozenset[str]:
    """Return the definitions and declarations in the headers of a version."""
    texts = [path.read_text(errors="replace") for path in cupti_headers.include(version).glob("cupti*.h")]
    return frozenset(name for text in texts for name in re.findall(r"\b(?:CUPTI_|CUpti_|cupti)\w+", text))


@cache
def own_text(root: Path, name: str) -> str:
    return (root / "native" / "src" / name).read_text()


def own_constants(root: Path) -> set[str]:
    """The names of the numbers in the headers of the C library."""
    text = own_text(root, "gpu/cupti_loader.h") + own_text(root, "gpu/cupti_records.h")
    return set(re.findall(r"#define (CUPTI_\w+) +\(?\d", text)) | set(re.findall(r"\b(CUPTI_[A-Z0-9_]+) = \d", text))


def vendors_name(constant: str, known: frozenset[str]) -> str | None:
    """The one of the vendor's names that means a constant of the C library."""
    names = [NUMBERS[constant]] if constant in NUMBERS else [prefix + constant.removeprefix("CUPTI_") for prefix in PREFIXES]
    return next((name for name in names if name in known), None)


# ---------------------------------------------------------------- CUPTI's headers


@pytest.mark.parametrize("version", cupti_headers.VERSIONS)
def test_layouts_and_numbers(project_root: Path, tmp_path: Path, version: str) -> None:
    known = vendors_names(version)
    lines = ["#include <stddef.h>", "#include <cupti.h>", '#include "gpu/cupti_loader.h"', '#include "gpu/cupti_records.h"']
    for ours, (record, fields) in FIELDS.items():
        theirs = cupti_headers.newest(version, record)
        for field, second in fields.items():
            lines.append(equal(f"offsetof(struct {ours}, {field})", f"offsetof({theirs}, {second})"))
            if field not in ("grid", "block"):
                lines.append(equal(f"sizeof(((struct {ours} *)0)->{field})", f"sizeof((({theirs} *)0)->{second})"))
        lines.append(f'_Static_assert(sizeof(struct {ours}) <= sizeof({theirs}) + 4, "{ours}: whole");')
    names = {constant: vendors_name(constant, known) for constant in own_constants(project_root) - NOT_THE_VENDORS}
    lines += [equal(ours, theirs) for ours, theirs in sorted(names.items()) if theirs]
    lines += [equal(str(code), f"CUPTI_ERROR_{name}") for code, name in WORDS.items() if f"CUPTI_ERROR_{name}" in known]
    lines += [equal(ours, "CUPTI_API_VERSION") for ours, wheel in VERSION_OF.items() if wheel == version]
    lines += [equal("offsetof(CUpti_CallbackData, callbackSite)", "0"), equal("CUPTI_API_EXIT", "1")]
    if "CUpti_SubscriberParams" in known:
        size = (
            "CUPTI_API_VERSION < CUPTI_MULTIPLE_FIELD ? offsetof(struct cupti_subscription, multiple) : sizeof(struct cupti_subscription)"
        )
        lines.append(equal(size, "sizeof(CUpti_SubscriberParams)"))
        for ours, (theirs, since) in SUBSCRIPTION.items():
            if parts(version) >= since:
                lines.append(equal(f"offsetof(struct cupti_subscription, {ours})", f"offsetof(CUpti_SubscriberParams, {theirs})"))
                lines.append(equal(f"sizeof(((struct cupti_subscription *)0)->{ours})", f"sizeof(((CUpti_SubscriberParams *)0)->{theirs})"))
    compiled("cc", "gnu11", tmp_path / "layout.c", lines, f"-I{project_root / 'native' / 'src'}", *cupti_headers.flags(version))


def test_every_number_is_compared(project_root: Path) -> None:
    """A new constant has the vendor's name, or is in NUMBERS or NOT_THE_VENDORS."""
    known = frozenset[str]().union(*map(vendors_names, cupti_headers.VERSIONS))
    assert {constant for constant in own_constants(project_root) if vendors_name(constant, known) is None} == NOT_THE_VENDORS
    assert {f"CUPTI_ERROR_{name}" for name in WORDS.values()} <= known
    with_advice = own_text(project_root, "gpu/cupti_loader.c").split("static const char *words(int error)")[1].split("default:")[0]
    assert set(map(int, re.findall(r"case (\d+):", with_advice))) <= set(WORDS)
    members = own_text(project_root, "gpu/cupti_loader.h").split("struct cupti_subscription {")[1].split("}")[0]
    assert set(re.findall(r"(\w+)(?:\[\w+\])?[;,]", members)) - {"padding"} == set(SUBSCRIPTION)


SHAPES = """\
#include <cupti.h>
#include <type_traits>
#define _Static_assert static_assert
#include "gpu/cupti_loader.h"
template <unsigned long> struct integer;
/* A type as the machine passes it: the size of integers and enumerations, the kind of pointers. */
template <class T, class = void> struct machine { using type = T; };
template <class T> using of = typename machine<std::remove_cv_t<T>>::type;
template <class T> struct machine<T, std::enable_if_t<std::is_integral_v<T> || std::is_enum_v<T>>> { using type = integer<sizeof(T)>; };
template <class T> struct machine<T *, std::enable_if_t<std::is_void_v<T> || std::is_class_v<T>>> { using type = void *; };
template <class T> struct machine<T *, std::enable_if_t<!std::is_void_v<T> && !std::is_class_v<T>>> { using type = of<T> *; };
template <class R, class... A> struct machine<R(A...), void> { using type = of<R>(of<A>...); };
#define SAME(member, function) static_assert(std::is_same_v<of<decltype(cupti::member)>, of<decltype(&function)>>, #function)
"""


def functions(root: Path) -> dict[str, str]:
    """Map functions of the vendor's library to their members of `struct cupti`."""
    pairs = re.findall(r'find\(library, "(cupti\w+)", &c\.(\w+)\)', own_text(root, "gpu/cupti_loader.c"))
    assert len(pairs) > 10
    return dict(pairs)


@pytest.mark.parametrize("version", cupti_headers.VERSIONS)
def test_signatures(project_root: Path, tmp_path: Path, version: str) -> None:
    there = {name: member for name, member in functions(project_root).items() if name in vendors_names(version)}
    lines = [SHAPES, *(f"SAME({member}, {name});" for name, member in there.items())]
    compiled("c++", "gnu++17", tmp_path / "signatures.cc", lines, f"-I{project_root / 'native' / 'src'}", *cupti_headers.flags(version))


def test_functions_exist(project_root: Path) -> None:
    """The required ones in every version, the others in some version."""
    required = re.search(r"if \(((?:!c\.\w+(?: \|\| )?)+)\)", own_text(project_root, "gpu/cupti_loader.c"))
    assert required
    needed = set(re.findall(r"c\.(\w+)", required[1]))
    assert {"enable", "next_record"} <= needed
    for name, member in functions(project_root).items():
        having = [version for version in cupti_headers.VERSIONS if name in vendors_names(version)]
        assert having == cupti_headers.VERSIONS if member in needed else having, name


# ---------------------------------------------------------------- names of calls

NAMES = """\
import ctypes, json, sys
ask = ctypes.CDLL(sys.argv[1]).cuptiGetCallbackName
found = []
for domain in (1, 2):
    names, text = {}, ctypes.c_char_p()
    for number in range(1, 2048):
        if ask(domain, number, ctypes.byref(text)) == 0 and text.value:
            names[text.value.decode()] = number
    found.append(names)
print(json.dumps(found))
"""


def own_calls(root: Path) -> set[str]:
    """Calls that the C library knows by name."""
    text = own_text(root, "gpu/cupti_records.c")
    noisy = text.split("static const char *const noisy[] = {")[1].split("}")[0]
    sources = "".join(path.read_text() for path in (root / "native" / "src" / "gpu").glob("cupti_*.c"))
    asked = re.findall(r'postrun_cupti_call_id\(\w+, "(\w+)"\)', sources)
    assert asked
    return {*re.findall(r'"(\w+)"', noisy), *asked}


@cache
def library_calls(version: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the real library's names of the calls of driver and runtime."""
    driver, runtime = json.loads(run([sys.executable, "-P", "-c", NAMES, cupti_headers.library(version)]))
    return driver, runtime


@pytest.mark.parametrize("version", ANSWERS_WITHOUT_A_DRIVER)
def test_names_of_calls(project_root: Path, version: str) -> None:
    """The library has the names of its headers without gaps, below the limit."""
    limit = int(re.findall(r"#define CUPTI_CALLS (\d+)", own_text(project_root, "gpu/cupti_loader.h"))[0])
    for domain, names in zip(("driver", "runtime"), library_calls(version), strict=True):
        assert names == {name: number for name, number in cupti_headers.calls(version)[domain].items() if name in names}
        assert len(names) > 400
        numbers = sorted(names.values())
        assert numbers[-1] < limit
        assert max(b - a for a, b in zip([0, *numbers], numbers, strict=False)) < 100
        if domain == "driver":
            assert "cuDeviceGetCount" in names


def test_calls_known_by_name_exist(project_root: Path) -> None:
    """In the names of some library or, of versions that do not answer, of some header."""
    names: set[str] = set()
    for version in cupti_headers.VERSIONS:
        calls = library_calls(version) if version in ANSWERS_WITHOUT_A_DRIVER else cupti_headers.calls(version).values()
        names |= {re.sub(r"_v\d+$", "", re.sub(r"_(ptsz|ptds)", "", name)) for domain in calls for name in domain}
    assert own_calls(project_root) - names == set()


# ---------------------------------------------------------------- real libraries


def has_driver() -> bool:
    return bool(shutil.which("nvidia-smi")) or Path("/dev/nvidiactl").exists()


needs_no_driver = pytest.mark.skipif(has_driver(), reason="this machine has a driver")


@cache
def stub_driver(programs: Programs) -> Path:
    folder = programs.folder / "stub_driver"
    folder.mkdir()
    stub_libraries.cuda(folder)
    return folder


def session(programs: Programs, folder: Path, driver: str, **variables: str) -> dict[str, str]:
    """Return the facts of a session that tries twice to record GPU activity."""
    folder.mkdir()
    (folder / "script.txt").write_text("\n")
    if driver:
        variables |= {"LD_LIBRARY_PATH": str(stub_driver(programs)), "STUB_DRIVER": driver}
    call(programs.program("gpu_capture", "plain"), "open", folder / "out", folder / "script.txt", **variables)
    (file,) = files(folder / "out")
    check_whole(file.read_bytes())
    tables = prt_reader.read(file.read_bytes())
    assert [row["name"] for row in tables["annotation"]] == ["step"]
    return {row["key"]: row["value"] for row in tables["meta"]}


@needs_no_driver
@pytest.mark.parametrize("version", cupti_headers.VERSIONS)
@pytest.mark.parametrize("driver", DRIVERS)
def test_the_program_survives(programs: Programs, tmp_path: Path, version: str, driver: str) -> None:
    """The library is named by the user, in the toolkit, or loaded by the program."""
    library = cupti_headers.library(version)
    toolkit = tmp_path / "toolkit"
    (toolkit / "lib64").mkdir(parents=True)
    (toolkit / "lib64" / library.name).symlink_to(library)
    ways = {"named": {"POSTRUN_CUPTI": str(library)}, "found": {"CUDA_HOME": str(toolkit)}, "mapped": {"LD_PRELOAD": str(library)}}
    for way, variables in ways.items():
        reason = session(programs, tmp_path / way, driver, **variables)["capability.gpu"]
        if driver:
            assert "CUPTI" in reason
        else:
            assert reason.startswith("no NVIDIA driver: libcuda.so.1")


@needs_no_driver
@pytest.mark.parametrize(("version", "driver"), [("12.4", "11040"), ("13.0", "12040"), ("13.5", "12040")])
def test_a_newer_major_version_is_never_loaded(programs: Programs, tmp_path: Path, version: str, driver: str) -> None:
    """A CUPTI for CUDA 13 runs with a driver for CUDA 12.4, tried in a child only."""
    library = cupti_headers.library(version)
    toolkit = tmp_path / "toolkit"
    (toolkit / "lib64").mkdir(parents=True)
    (toolkit / "lib64" / library.name).symlink_to(library)
    for way, variables in {"named": {"POSTRUN_CUPTI": str(library)}, "found": {"CUDA_HOME": str(toolkit)}}.items():
        debug = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(tmp_path / f"{way}.log")}
        reason = session(programs, tmp_path / way, driver, **debug, **variables)["capability.gpu"]
        assert f"{driver[:2]}.{driver[3]}" in reason
        logs = {int(path.suffix[1:]): path.read_text() for path in tmp_path.glob(f"{way}.log.*")}
        loaded = {line for log in logs.values() for line in log.splitlines() if "calling init" in line}
        assert any("libcuda.so.1" in line for line in loaded)
        parent = min(process for process, log in logs.items() if "gpu_capture" in log)
        assert not [line for line in loaded if "libcupti" in line and int(line.split(":")[0]) == parent]


# ---------------------------------------------------------------- NVTX and NVML

NVTX_FIELDS = {
    **{"version": "version", "size": "size", "category": "category", "color_type": "colorType", "color": "color"},
    **{"payload_type": "payloadType", "payload": "payload", "message_type": "messageType", "message": "message"},
}
NVTX_NUMBERS = {
    **{"CALLBACKS": "NVTX_ETID_CALLBACKS", "CORE": "NVTX_CB_MODULE_CORE", "CORE2": "NVTX_CB_MODULE_CORE2"},
    **{"PAYLOAD_U64": "NVTX_PAYLOAD_TYPE_UNSIGNED_INT64", "PAYLOAD_I64": "NVTX_PAYLOAD_TYPE_INT64"},
    **{"PAYLOAD_DOUBLE": "NVTX_PAYLOAD_TYPE_DOUBLE", "PAYLOAD_U32": "NVTX_PAYLOAD_TYPE_UNSIGNED_INT32"},
    **{"PAYLOAD_I32": "NVTX_PAYLOAD_TYPE_INT32", "MESSAGE_ASCII": "NVTX_MESSAGE_TYPE_ASCII"},
    **{"MESSAGE_WIDE": "NVTX_MESSAGE_TYPE_UNICODE", "MESSAGE_REGISTERED": "NVTX_MESSAGE_TYPE_REGISTERED"},
}


def test_nvtx(project_root: Path, tmp_path: Path) -> None:
    """Return the attributes, numbers and slots of the tables in nvtx.c."""
    text = own_text(project_root, "gpu/nvtx.c")
    slots = [name for name in re.findall(r"SET\((\w+), \w+\)", text) if name != "id"]
    assert len(slots) > 12
    lines = ["#include <stddef.h>", "#include <nvtx3/nvToolsExt.h>", f'#include "{project_root / "native" / "src" / "gpu" / "nvtx.c"}"']
    for slot in slots:
        table = "CORE2" if slot.startswith("DOMAIN_") else "CORE"
        lines.append(equal(slot, f"NVTX_CBID_{table}_{''.join(part.capitalize() for part in slot.split('_'))}"))
    for ours, theirs in NVTX_FIELDS.items():
        lines.append(equal(f"offsetof(struct attributes, {ours})", f"offsetof(nvtxEventAttributes_t, {theirs})"))
        lines.append(equal(f"sizeof(((struct attributes *)0)->{ours})", f"sizeof(((nvtxEventAttributes_t *)0)->{theirs})"))
    lines += [equal(ours, theirs) for ours, theirs in NVTX_NUMBERS.items()]
    lines.append(equal("sizeof(struct attributes)", "sizeof(nvtxEventAttributes_t)"))
    lines.append(equal("offsetof(struct callbacks, module)", "offsetof(NvtxExportTableCallbacks, GetModuleFunctionTable)"))
    folders = [f"-I{project_root / 'native' / part}" for part in ("src", "include")]
    compiled("cc", "gnu11", tmp_path / "nvtx.c", lines, *folders, "-isystem", cupti_headers.nvtx())


PYNVML = """\
import json, sys
sys.path.insert(0, sys.argv[1])
import pynvml
print(json.dumps({name: value for name, value in vars(pynvml).items() if isinstance(value, int)}))
"""
NOT_NVMLS = {"NVML_TEXT", "NVML_ALL_LINKS"}


def test_nvml(project_root: Path) -> None:
    """Each number in nvml_loader.h is that of NVIDIA's Python package, by name."""
    text = own_text(project_root, "sampler/nvml_loader.h")
    numbers = re.findall(r"\b(NVML_[A-Z0-9_]+) = (\d+)", text) + re.findall(r"#define (NVML_\w+) (\d+|0x[0-9a-f]+)u?l*\b", text)
    checked = (project_root / "tests" / "native" / "nvml_check.c").read_text()
    names = dict(re.findall(r"(?:CODE|FIELD)\((NVML_\w+), (\w+)\)", checked) + re.findall(r"(NVML_\w+) == (?:\(int\))?(\w+)", checked))
    theirs = json.loads(run([sys.executable, "-P", "-c", PYNVML, cupti_headers.wheels(cupti_headers.VERSIONS[-1])]))
    assert len(numbers) > 40
    wrong = []
    for name, number in numbers:
        candidates = [names.get(name, name), name.replace("NVML_", "NVML_ERROR_", 1)]
        values = [theirs[candidate] for candidate in candidates if candidate in theirs]
        if values[:1] != [int(number, 0)] and name not in NOT_NVMLS:
            wrong.append((name, number, values))
    assert wrong == []
