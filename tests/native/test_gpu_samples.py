"""The sampler writes the values of the GPUs' driver, whatever they are.

The driver's library is made up (nvml_stub.c) and plays scripts; prt_reader reads the files. No GPU is needed or used.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cupti_headers
import native_programs
import prt_reader
import pytest
from native_programs import WARNINGS, Programs
from rule_details import plain_details
from stub_libraries import stub

GIB = 2**30
PATIENCE_MS = 60_000  # of a sample; the answer comes within, however busy the machine
QUESTIONS = ("utilization", "memory_v2", "power", "clock", "throttle", "temperature")
METRICS = {
    "utilization": ("gpu_utilization", "gpu_memory_controller"),
    "memory_v2": ("gpu_memory_used_percent", "gpu_memory_used_bytes", "gpu_memory_total_bytes"),
    "power": ("gpu_power",),
    "clock": ("gpu_sm_clock",),
    "throttle": ("gpu_throttle_reasons",),
    "temperature": ("gpu_temperature",),
}
EACH_SAMPLE = {metric for metrics in METRICS.values() for metric in metrics}
CAPABILITY = {
    "utilization": "utilization", "memory_v2": "memory", "power": "power", "clock": "sm_clock", "throttle": "throttle_reasons",
    "temperature": "temperature",
}  # fmt: skip
FOR_GOOD = {1, 2, 3, 4, 13, 25, 26}
LOST, NEEDS_RESET, TIMEOUT = 15, 16, 10


def answer(device: int, call: int) -> dict[str, Any]:
    """Return the answer of the made-up driver to this call, counted from 1."""
    used, total = GIB * ((device + call) % 10), 16 * GIB * (device + 1)
    return {
        "gpu_utilization": (7 * device + 3 * call) % 101,
        "gpu_memory_controller": (5 * device + 2 * call) % 101,
        "gpu_memory_used_percent": pytest.approx(100 * used / total, abs=0.000501),
        "gpu_memory_used_bytes": used,
        "gpu_power": (100000 + 1000 * device + call) / 1000,
        "gpu_sm_clock": 1000 + 10 * device + call,
        "gpu_throttle_reasons": 1 << (device + call) % 9,
        "gpu_temperature": 40 + device + call // 4,
    } | ({"gpu_memory_total_bytes": total} if call == 1 else {})


AT_FIRST: dict[str, Callable[[int], float]] = {  # values that are read less often; counters have no rate yet
    "gpu_memory_temperature": lambda device: 61 + device,
    "gpu_memory_clock": lambda device: 2601 + 10 * device,
    "gpu_energy": lambda device: 0,
    "gpu_ecc_corrected": lambda device: 0,
    "gpu_ecc_uncorrected": lambda device: 0,
    "gpu_ecc_corrected_lifetime": lambda device: 7,
    "gpu_ecc_uncorrected_lifetime": lambda device: 1,
    "gpu_remapped_rows_corrected": lambda device: 2,
    "gpu_remapped_rows_uncorrected": lambda device: 0,
    "gpu_row_remapping_pending": lambda device: 0,
    "gpu_row_remapping_failed": lambda device: 0,
}


def uuid(device: int) -> str:
    return f"GPU-{device * 1111:08d}-aaaa-bbbb-cccc-{device:012d}"


@dataclass
class Recorded:
    metadata: dict[str, str]
    values: dict[tuple[str, int], list[float]]
    times: dict[str, list[int]]
    calls: dict[tuple[str, int], int]
    output: dict[str, int]

    @property
    def capabilities(self) -> dict[str, str]:
        return {key.removeprefix("capability.gpu."): value for key, value in self.metadata.items() if key.startswith("capability.gpu.")}


def read(folder: Path, output: dict[str, int] | None = None) -> list[Recorded]:
    """Return the content of each file, and the calls of all sessions."""
    calls: dict[tuple[str, int], int] = {}
    if (folder / "log").exists():
        for line in (folder / "log").read_text().splitlines():
            function, device, count = line.split()
            calls[function, int(device)] = calls.get((function, int(device)), 0) + int(count)
    actual = []
    for file in native_programs.files(folder):
        native_programs.check_whole(file.read_bytes())
        tables = prt_reader.read(file.read_bytes())
        values: dict[tuple[str, int], list[float]] = {}
        times: dict[str, list[int]] = {}
        for row in tables["metric"]:
            if row["metric"].startswith("gpu"):
                values.setdefault((row["metric"], row["unit"]), []).append(row["value"])
                times.setdefault(row["metric"], []).append(row["time_ns"])
        metadata = {row["key"]: row["value"] for row in tables["meta"]}
        actual.append(Recorded(metadata, values, times, calls, output or {}))
    return actual


class Machine:
    """Made-up libraries and programs, built at first use."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs

    @functools.cache  # noqa: B019
    def library(self, *flags: str) -> Path:
        folder = self.programs.folder / "-".join(["nvml", *(flag.strip("-") for flag in flags)])
        folder.mkdir()
        more = ("-fvisibility=default", "-Wall", "-Wextra", "-Werror", f"-I{self.programs.root / 'native/src'}")
        stub("nvml_stub.c", folder / "libnvidia-ml.so.1", *more, *flags)
        return folder

    @functools.cache  # noqa: B019
    def program(self, variant: str) -> Path:
        """All parts in one program, as it uses what is hidden in the library."""
        root, folder = self.programs.root, self.programs.folder / f"gpu-{variant}"
        folder.mkdir()
        sources = [root / "tests/native/gpu_samples.c", *self.programs.parts(variant).values()]
        built = folder / "gpu_samples"
        self.programs.compile(variant, sources, built, f"-I{root / 'native/src'}", *WARNINGS)
        return built


Play = Callable[..., Recorded]


@pytest.fixture(scope="session")
def machine(programs: Programs) -> Machine:
    return Machine(programs)


@pytest.fixture
def play(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Record samples of a driver that plays a script, by arguments of gpu_samples."""
    number = iter(range(1000))
    for variable in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(variable, raising=False)

    def begin(
        script: str, samples: int | None = None, *arguments: object, variant: str = "plain", interval_ms: int = 500,
        flags: tuple[str, ...] = (), patience_ms: int = PATIENCE_MS, **environment: str,
    ) -> Recorded:  # fmt: skip
        folder = tmp_path / str(next(number))
        folder.mkdir()
        (folder / "script").write_text(script)
        more = {"NVML_STUB": str(folder / "script"), "NVML_STUB_LOG": str(folder / "log"), "LD_LIBRARY_PATH": str(machine.library(*flags))}
        if samples is not None:
            arguments = ("samples", samples, interval_ms, patience_ms)
        output = native_programs.call(machine.program(variant), folder, *arguments, **(more | environment))
        return read(folder, output)[-1]

    return begin


variants = pytest.mark.parametrize("variant", list(native_programs.VARIANTS))


@variants
@pytest.mark.parametrize("devices", [0, 1, 8])
def test_every_value_of_every_gpu(play: Play, devices: int, variant: str) -> None:
    got = play(f"devices {devices}\n", 5, variant=variant)
    expected: dict[tuple[str, int], list[float]] = {}
    for device in range(devices):
        for call in range(1, 6):
            for metric, value in answer(device, call).items():
                expected.setdefault((metric, device), []).append(value)
    assert {(metric, device): values for (metric, device), values in got.values.items() if metric in EACH_SAMPLE} == expected
    assert {metric for metric, _ in got.values} - EACH_SAMPLE == (set(AT_FIRST) if devices else set())
    assert all(got.values[metric, device][0] == value(device) for metric, value in AT_FIRST.items() for device in range(devices))
    times = {metric: len(set(times)) for metric, times in got.times.items() if metric in EACH_SAMPLE}
    assert times == {metric: 1 if metric.endswith("total_bytes") else 5 for metric in times}
    assert got.capabilities == ({} if devices else {"samples": "the driver knows no GPU"})
    facts = {key: value for key, value in got.metadata.items() if key.startswith("gpu.")}
    assert facts.pop("gpu.count") == str(devices)
    for device in range(devices):
        rows = {
            fact: facts.pop(f"gpu.{device}.{fact}")
            for fact in ("uuid", "name", "memory_bytes", "driver_version", "visible", "visible_index")
        }
        assert rows == {
            "uuid": uuid(device), "name": "NVIDIA Stub X100", "memory_bytes": str(16 * GIB * (device + 1)), "driver_version": "535.104.05",
            "visible": "1", "visible_index": str(device),
        }  # fmt: skip
    assert not facts
    assert got.calls["init", -1] == got.calls["shutdown", -1] == 1
    assert all(got.calls[question, device] == 5 for question in QUESTIONS for device in range(devices))
    assert not any(function == "memory" for function, _ in got.calls)


def test_samples_are_small(play: Play, tmp_path: Path) -> None:
    """Changing values of eight GPUs make short blocks of names, units and values."""
    play("devices 8\n", None, "long", 200, 500)
    (file,) = native_programs.files(tmp_path / "0")
    blocks = [block for block in prt_reader.blocks(file.read_bytes()) if block.table == "metric"]
    assert sum(len(block.payload) + 48 for block in blocks) < 6 * sum(block.count for block in blocks)


def words(project_root: Path) -> dict[int, str]:
    """Return the words of nvml_loader.c for each code."""
    source = (project_root / "native/src/sampler/nvml_loader.c").read_text()
    codes = dict(re.findall(r"\b(NVML_\w+) = (\d+)", (project_root / "native/src/sampler/nvml_loader.h").read_text()))
    named = {int(codes[name]): word for name, word in re.findall(r'case (NVML_\w+):\s+return "([^"]+)";', source)}
    assert len(named) > 20
    return named


CODES = [*range(1, 31), 999, 4242]


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_every_code_for_every_question(play: Play, question: str, project_root: Path) -> None:
    """A GPU per code, which returns it from its third call; and a GPU without errors."""
    samples = 14
    fails = [f"fail {question} {device} 3 0 {code}" for device, code in enumerate(CODES)]
    got = play("\n".join([f"devices {len(CODES) + 1}", *fails, ""]), samples, interval_ms=60000, variant="address")
    first = 2  # calls that are answered
    text = got.capabilities[CAPABILITY[question]]
    for device, code in enumerate([*CODES, 0]):
        after = QUESTIONS[QUESTIONS.index(question) :]
        for second in QUESTIONS:
            count = first if code and second == question else samples
            if code in (LOST, NEEDS_RESET):
                count = first if second in after else first + 1
            elif code == TIMEOUT and second in after and second != question:
                count = first
            if question == "memory_v2" == second and code in (2, 3, 13, 25):
                count = samples  # asked in the old way
            for metric in METRICS[second]:
                if metric != "gpu_memory_total_bytes":
                    assert len(got.values[metric, device]) == count, (metric, device, code)
        calls = got.calls[question, device]
        if code == 0 or code == TIMEOUT:
            assert calls == samples
        elif code in (LOST, NEEDS_RESET) or code in FOR_GOOD:
            assert calls == first + 1
        else:
            assert calls == first + 10
        output = words(project_root).get(code, f"error {code} of the driver")
        if code in (LOST, NEEDS_RESET):
            assert f"GPU {device}: {output} ({uuid(device)}); not sampled any more" in got.capabilities["devices"]
        elif code == TIMEOUT:
            assert f"GPU {device}: no answer in time; asked again every 30 s" in got.capabilities["devices"]
        elif question == "memory_v2" and code in (2, 3, 13, 25):
            assert got.calls["memory", device] == samples - first
        elif code:
            assert re.search(rf"(^|; )GPU [\d, to]*\b{device}\b[\d, to]*: {re.escape(output)}(;|$)|to {device}: ", text), (text, device)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize(
    "function", ["init", "count", "driver", "handle", "uuid", "name", "mig_mode", "mig_count", "mig_handle", "shutdown"]
)
def test_every_code_at_the_start(play: Play, function: str, code: int, project_root: Path) -> None:
    got = play(f"devices 2\nmig 1 2\nfail {function} -1 1 0 {code}\n", 2)
    output = words(project_root).get(code, f"error {code} of the driver")
    facts = {key for key in got.metadata if key.startswith("gpu.")}
    if function in ("init", "count"):
        assert got.capabilities == {"samples": f"{'nvmlInit' if function == 'init' else 'nvmlDeviceGetCount'}: {output}"}
        assert (got.values, facts) == ({}, set())
        assert got.calls.get(("shutdown", -1), 0) == (function == "count")
        return
    assert got.calls["shutdown", -1] == 1
    if function == "handle":
        assert got.values == {}
        assert got.capabilities["devices"] == f"GPU 0 to 1: {output}"
        return
    assert [len(values) for (metric, _), values in got.values.items() if metric == "gpu_power"] == [2, 2]
    missing = {
        "driver": {"gpu.0.driver_version", "gpu.1.driver_version"},
        "uuid": {"gpu.0.uuid", "gpu.1.uuid", "gpu.1.mig_devices"},
        "name": {"gpu.0.name", "gpu.1.name"},
        "mig_mode": {"gpu.1.mig", "gpu.1.mig_devices"},
        "mig_count": {"gpu.1.mig_devices"},
        "mig_handle": {"gpu.1.mig_devices"},
        "shutdown": set(),
    }[function]
    assert {"gpu.0.driver_version", "gpu.1.driver_version", "gpu.0.uuid", "gpu.1.uuid", "gpu.0.name", "gpu.1.name", "gpu.1.mig",
            "gpu.1.mig_devices"} - facts == missing  # fmt: skip
    assert ("uuid" in got.capabilities) == (function == "uuid")


@variants
def test_a_gpu_falls_off_the_bus(play: Play, variant: str) -> None:
    """In the middle of a sample: its earlier values stay, and it is not queried again."""
    got = play(f"devices 3\nfail power 1 4 0 {LOST}\n", 8, variant=variant)
    for metric, count in (("gpu_utilization", 4), ("gpu_memory_used_bytes", 4), ("gpu_power", 3), ("gpu_sm_clock", 3)):
        assert got.values[metric, 1] == [answer(1, call)[metric] for call in range(1, count + 1)]
        assert got.values[metric, 0] == [answer(0, call)[metric] for call in range(1, 9)]
        assert got.values[metric, 2] == [answer(2, call)[metric] for call in range(1, 9)]
    assert got.capabilities == {"devices": f"GPU 1: has fallen off the bus ({uuid(1)}); not sampled any more"}
    assert got.calls["power", 1] == 4


def test_a_gpu_that_does_not_answer_is_left_alone_for_a_while(play: Play) -> None:
    """10 s from sample to sample: not asked in the two that follow."""
    got = play(f"devices 2\nfail clock 0 3 4 {TIMEOUT}\n", 12, interval_ms=10000)
    assert got.values["gpu_utilization", 0] == [answer(0, call)["gpu_utilization"] for call in range(1, 9)]  # 1 2 3 . . 6 . . 9 10 11 12
    assert got.values["gpu_sm_clock", 0] == [answer(0, call)["gpu_sm_clock"] for call in (1, 2, 5, 6, 7, 8)]
    assert len(got.values["gpu_sm_clock", 1]) == 12
    assert got.capabilities == {"devices": "GPU 0: no answer in time; asked again every 30 s"}


def test_errors_that_pass(play: Play) -> None:
    got = play("devices 2\nfail power 1 2 5 999\nfail power 1 9 10 17\n", 12)
    assert got.values["gpu_power", 1] == [answer(1, call)["gpu_power"] for call in (1, 6, 7, 8, 11, 12)]
    assert got.capabilities == {"power": "GPU 1: left out of some samples: unknown error of the driver"}


@pytest.mark.parametrize(
    ("function", "values", "lost", "capability"),
    [
        ("utilization", "255 7", ["gpu_utilization"], "utilization: 255%"),
        ("utilization", "101 4294967295", ["gpu_utilization", "gpu_memory_controller"], "utilization: 101%"),
        ("utilization", "100 0", [], None),
        ("memory_v2", "0 0", ["gpu_memory_used_percent", "gpu_memory_used_bytes"], "memory: 0 B"),
        ("memory_v2", "1000 1001", ["gpu_memory_used_percent", "gpu_memory_used_bytes"], "memory: 1001 B"),
        ("memory_v2", f"{2**64 - 1} 5", ["gpu_memory_used_percent", "gpu_memory_used_bytes"], f"memory: {2**64 - 1} B"),
        ("power", "0", ["gpu_power"], "power: 0 mW"),
        ("power", "4294967295", ["gpu_power"], "power: 4294967295 mW"),
        ("power", "1", [], None),
        ("clock", "4294967295", ["gpu_sm_clock"], "sm_clock: 4294967295 MHz"),
        ("clock", "0", [], None),
        ("throttle", f"{2**64 - 1}", ["gpu_throttle_reasons"], f"throttle_reasons: {2**64 - 1}"),
        ("throttle", "0", [], None),
    ],
)
def test_values_that_cannot_be(play: Play, function: str, values: str, lost: list[str], capability: str | None) -> None:
    got = play(f"devices 2\nvalue {function} 1 2 2 {values}\n", 4)
    for metric in answer(0, 2):
        assert len(got.values[metric, 1]) == (3 if metric in lost else 4)
        assert len(got.values[metric, 0]) == 4
    what, _, value = (capability or "").partition(": ")
    assert got.capabilities == ({what: f"GPU 1: left out of some samples: {value}, which cannot be"} if capability else {})


def test_memory_that_changes(play: Play) -> None:
    """A GPU whose memory is divided anew."""
    got = play(f"devices 1\nvalue memory_v2 0 3 4 {8 * GIB} {2 * GIB}\n", 4)
    assert got.values["gpu_memory_total_bytes", 0] == [16 * GIB, 8 * GIB]
    assert got.values["gpu_memory_used_percent", 0][2:] == [25, 25]
    assert got.metadata["gpu.0.memory_bytes"] == str(8 * GIB)


@variants
def test_mig(play: Play, variant: str) -> None:
    got = play("devices 3\nmig 1 3\nmig 2 0\nfail memory_v2 1 1 0 4\n", 3, variant=variant, CUDA_VISIBLE_DEVICES="MIG-1-2")
    assert got.capabilities == {
        "utilization": "GPU 1 to 2: the GPU is divided (MIG), for which the driver has none", "memory": "GPU 1: not permitted to this user",
        "remapped_rows": "GPU 1 to 2: not supported",
    }  # fmt: skip
    assert ("gpu_utilization", 1) not in got.values
    assert got.values["gpu_power", 1] == [answer(1, call)["gpu_power"] for call in (1, 2, 3)]
    assert got.calls["utilization", 1] == got.calls["memory_v2", 1] == 1
    assert got.values["gpu_memory_temperature", 1][0] == 62
    assert got.values["gpu_ecc_corrected", 1] == [0]
    assert got.metadata["gpu.1.mig"] == got.metadata["gpu.2.mig"] == "1"
    assert got.metadata["gpu.1.mig_devices"] == "MIG-1-0,MIG-1-1,MIG-1-2"
    assert not {"gpu.0.mig", "gpu.2.mig_devices", "gpu.0.mig_devices"} & set(got.metadata)
    assert [got.metadata[f"gpu.{device}.visible"] for device in range(3)] == ["0", "1", "0"]
    assert got.metadata["gpu.1.visible_index"] == "0"


MIXED = "devices 3\nname 1 NVIDIA Stub T4\n"
ALIKE = "devices 3\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "environment", "expected"),
    [  # the CUDA number of each GPU of the machine; "-": not visible, "+": visible, number not known, "?": nothing known
        (ALIKE, {}, "012"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "2,0"}, "1-0"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": " 1 , 2"}, "-01"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": ""}, "---"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "-1"}, "---"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, "---"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "0,-1,2"}, "0--"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "1,3,0"}, "-0-"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "1,99999999999999999999,0"}, "-0-"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "1,x,0"}, "-0-"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "1,,0"}, "-0-"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "0,0"}, "???"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": f"{uuid(2)},{uuid(1)}"}, "-10"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "GPU-00002222,GPU-0000"}, "--0"),  # the second means two
        (ALIKE, {"CUDA_VISIBLE_DEVICES": f"{uuid(2)},0"}, "--0"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": f"0,{uuid(2)}"}, "0--"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "GPU-,GPU-9"}, "---"),
        (ALIKE, {"CUDA_VISIBLE_DEVICES": "1," * 3000}, "???"),
        (MIXED, {}, "+++"),
        (MIXED, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "012"),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "1,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, "10-"),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "1,0", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "???"),
        (MIXED, {"CUDA_VISIBLE_DEVICES": uuid(1)}, "-0-"),
        (MIXED, {"CUDA_VISIBLE_DEVICES": "-1"}, "---"),
        ("devices 2\nmig 0 2\nmig 1 1\n", {"CUDA_VISIBLE_DEVICES": "MIG-0-1,MIG-1-0"}, "01"),
        ("devices 2\nmig 0 2\n", {"CUDA_VISIBLE_DEVICES": "MIG-0-0,MIG-0-1"}, "0-"),
        ("devices 2\nmig 0 2\n", {"CUDA_VISIBLE_DEVICES": "MIG-0-5"}, "--"),
        ("devices 2\nmig 1 2\n", {"CUDA_VISIBLE_DEVICES": f"MIG-{uuid(1)}/1/0"}, "-0"),
        ("devices 2\nmig 1 2\n", {"CUDA_VISIBLE_DEVICES": "MIG-/1/0"}, "--"),
        ("devices 2\nmig 1 2\n", {"CUDA_VISIBLE_DEVICES": "0"}, "??"),
        ("devices 2\nmig 1 2\n", {}, "++"),
    ],
)
def test_visible_devices(play: Play, script: str, environment: dict[str, str], expected: str) -> None:
    got = play(script, 1, variant="address", **environment)
    actual = ""
    for device in range(len(expected)):
        visible, number = got.metadata.get(f"gpu.{device}.visible"), got.metadata.get(f"gpu.{device}.visible_index")
        actual += number if number is not None else {"0": "-", "1": "+", None: "?"}[visible]
        assert visible == "1" or number is None
    assert actual == expected
    assert ("visible" in got.capabilities) == ("?" in expected)


def test_an_old_driver(play: Play) -> None:
    got = play("devices 2\n", 3, flags=("-DOLD",))
    assert got.values["gpu_memory_used_bytes", 1] == [answer(1, call)["gpu_memory_used_bytes"] + GIB / 2 for call in (1, 2, 3)]
    for metric in ("gpu_utilization", "gpu_power", "gpu_sm_clock", "gpu_throttle_reasons", "gpu_temperature"):
        assert got.values[metric, 1] == [answer(1, call)[metric] for call in (1, 2, 3)]
    missing = {"memory_temperature", "throttle_time", "pcie", "nvlink", "energy", "ecc", "remapped_rows", "xid"}
    assert got.capabilities == dict.fromkeys(missing, "GPU 0 to 1: the driver is too old for it")


# -- what is read less often ------------------------------------------------------------------------------------------------------------


def long(play: Play, script: str, samples: int, interval_ms: int = 1000, **environment: str) -> Recorded:
    """Samples whose times are exactly so far apart."""
    return play(script, None, "long", samples, interval_ms, **environment)


def test_rates_of_counters(play: Play) -> None:
    """In 20 s, traffic is read at 0, 5, 10, 15 s, health at 0 s and at the end.

    Each reading is a step further (nvml_stub.c).
    """
    got = long(play, "devices 1\n", 20)
    per_s = {
        "gpu_throttle_power": 20, "gpu_throttle_thermal": 10, "gpu_throttle_sync_boost": 0, "gpu_throttle_board_limit": 0,
        "gpu_throttle_reliability": 0, "gpu_pcie_transmit": 1e9, "gpu_pcie_receive": 2e9,
        "gpu_nvlink_transmit": 1024 * 2**20 / 5, "gpu_nvlink_receive": 2 * 1024 * 2**20 / 5,
    }  # fmt: skip
    for metric, rate in per_s.items():
        assert got.values[metric, 0] == [pytest.approx(rate, rel=0.01)] * 3, metric
        assert [round((at - got.times["gpu_power"][0]) / 1e9, 2) for at in got.times[metric]] == [5, 10, 15]
    assert got.values["gpu_memory_clock", 0] == [2601, 2602, 2603, 2604]
    assert got.values["gpu_memory_temperature", 0] == [61, 62, 63, 64]
    assert got.values["gpu_energy", 0] == [0, 1500]
    assert got.calls["fields", 0] == 4 + 2
    assert got.capabilities == {}


def test_calls_of_the_driver_in_one_sample(play: Play) -> None:
    """Six values per GPU and one of all, and over 100 s the few rarer ones."""
    got = long(play, "devices 8\n", 200, 500)
    calls = {function: sum(count for (name, _), count in got.calls.items() if name == function) for function, _ in got.calls}
    assert all(calls[function] == 8 * 200 for function in QUESTIONS)
    assert calls["wait"] <= 201
    assert calls["fields"] <= 8 * (1 + 100 / 5 + 1 + 100 / 60 + 1)
    assert calls["memory_clock"] <= 8 * (1 + 100 / 5 + 1)


def test_gpus_take_turns(play: Play) -> None:
    got = long(play, "devices 8\n", 100, 500)
    assert all(len(got.values["gpu_pcie_transmit", device]) >= 9 for device in range(8))
    assert len(set(got.times["gpu_pcie_transmit"])) > 50  # not all in the same samples


def test_errors_of_memory_are_written_when_they_change(play: Play) -> None:
    script = [
        "devices 2", "value field3 1 3 0 12", "value field4 1 4 0 1", "value field6 1 4 0 2", "value field142 1 3 0 3",
        "value field144 1 4 0 1", "fail field5 0 1 0 3",
    ]  # fmt: skip
    got = long(play, "\n".join([*script, ""]), 40, 10000)
    assert got.values["gpu_ecc_corrected", 1] == [0, 12]
    assert got.values["gpu_ecc_uncorrected", 1] == [0, 1]
    assert got.values["gpu_ecc_corrected_lifetime", 1] == [7]
    assert got.values["gpu_ecc_uncorrected_lifetime", 1] == [1, 2]
    assert got.values["gpu_remapped_rows_corrected", 1] == [2, 3]
    assert got.values["gpu_row_remapping_pending", 1] == [0, 1]
    assert ("gpu_ecc_corrected", 0) not in got.values
    assert got.calls["field3", 0] == 1  # a question that is not answered is not asked again
    assert got.capabilities == {"ecc": "GPU 0: not supported"}
    assert got.values["gpu_energy", 0] == [1500 * call for call in range(len(got.values["gpu_energy", 0]))]


def test_xid_errors(play: Play) -> None:
    """At the time of the sample that finds them; memory errors are then read again."""
    script = ["devices 2", "xid wait 1 3 0 48", "xid wait 1 3 0 63", "xid wait 0 6 0 31", "value field4 1 2 0 5"]
    got = long(play, "\n".join([*script, ""]), 10)
    assert got.values["gpu_xid", 1] == [48, 63]
    assert got.values["gpu_xid", 0] == [31]
    seconds = [round((at - got.times["gpu_power"][0]) / 1e9) for at in got.times["gpu_xid"]]
    assert sorted(seconds) == [2, 2, 3]  # the third poll; the sixth is in the sample after: two events, then "none", are three polls
    assert got.values["gpu_ecc_uncorrected", 1] == [0, 5]
    assert got.values["gpu_ecc_uncorrected", 0] == [0]


def test_xid_errors_at_the_end(play: Play) -> None:
    got = play("devices 2\nxid wait 1 4 0 79\n", 3)
    assert got.values["gpu_xid", 1] == [79]


def test_an_xid_error_of_an_unknown_device(play: Play) -> None:
    assert play("devices 2\nxid wait 80 1 0 13\n", 3).values["gpu_xid", -1] == [13]


def test_xid_errors_of_the_others_when_a_gpu_is_lost(play: Play) -> None:
    """The set of events fails with the lost GPU, and is made anew without it."""
    got = play(f"devices 3\nfail power 1 4 0 {LOST}\nfail wait -1 4 4 {LOST}\nxid wait 2 6 0 94\nxid wait 1 6 0 95\n", 8)
    assert got.values["gpu_xid", 2] == [94]
    assert ("gpu_xid", 1) not in got.values
    assert got.capabilities == {"devices": f"GPU 1: has fallen off the bus ({uuid(1)}); not sampled any more"}
    assert (got.calls["register", 0], got.calls["register", 1], got.calls["event_set", -1]) == (2, 1, 2)


@pytest.mark.parametrize("code", [c for c in CODES if c != TIMEOUT])
@pytest.mark.parametrize("function", ["event_set", "register", "wait"])
def test_every_code_for_xid_errors(play: Play, function: str, code: int, project_root: Path) -> None:
    got = play(f"devices 2\nfail {function} -1 1 0 {code}\n", 14)
    lost = code in (LOST, NEEDS_RESET) and function == "register"
    output = "unknown error of the driver" if code in (LOST, NEEDS_RESET) else words(project_root).get(code, f"error {code} of the driver")
    assert lost or got.values["gpu_power", 1] == [answer(1, call)["gpu_power"] for call in range(1, 15)]
    assert got.calls.get(("free_set", -1), 0) == (0 if function == "event_set" else 10 if function == "wait" else 1)
    assert got.calls.get(("wait", -1), 0) == (10 if function == "wait" else 0)
    assert lost or output in got.capabilities["xid"]


FIELD_CAPABILITY = {
    "field82": "memory_temperature", "field75": "throttle_time", "field198": "pcie", "field83": "energy", "field5": "ecc",
    "field144": "remapped_rows", "memory_clock": "memory_clock",
}  # fmt: skip


@pytest.mark.parametrize("code", [2, 3, 4, 13, 999, 4242, LOST, TIMEOUT])
@pytest.mark.parametrize("field", FIELD_CAPABILITY)
def test_fields_that_fail(play: Play, field: str, code: int, project_root: Path) -> None:
    got = play(f"devices 2\nfail {field} 1 1 0 {code}\n", 3)
    output = words(project_root).get(code, f"error {code} of the driver")
    if code in (LOST, TIMEOUT):
        assert set(got.capabilities) == {"devices"}
        assert len(got.values["gpu_power", 1]) == 1
    else:
        before = "" if code in FOR_GOOD else "left out of some samples: "
        assert got.capabilities == {FIELD_CAPABILITY[field]: f"GPU 1: {before}{output}"}
        assert len(got.values["gpu_power", 1]) == 3
    assert len(got.values["gpu_power", 0]) == 3


@pytest.mark.parametrize("code", [2, 999, LOST])
def test_fields_that_fail_all_at_once(play: Play, code: int) -> None:
    got = play(f"devices 2\nfail fields 1 1 0 {code}\n", 3)
    groups = {"memory_temperature", "throttle_time", "pcie", "nvlink", "energy", "ecc", "remapped_rows"}
    assert set(got.capabilities) == ({"devices"} if code == LOST else groups - ({"nvlink"} if code == 2 else set()))
    assert ("gpu_memory_temperature", 0) in got.values


def test_fields_that_the_driver_passes_over(play: Play) -> None:
    """Its answer says that all went well, but leaves a field as it was."""
    got = play("devices 1\npass field82 0 1 0 0\npass field145 0 1 0 0\n", 3)
    assert ("gpu_memory_temperature", 0) not in got.values
    assert ("gpu_row_remapping_failed", 0) not in got.values
    assert set(got.capabilities) == {"memory_temperature", "remapped_rows"}


def test_newer_counters_of_nvlink(play: Play) -> None:
    got = long(play, "devices 1\nfail field138 0 1 0 3\nfail field139 0 1 0 3\n", 20)
    assert got.values["gpu_nvlink_transmit", 0] == [pytest.approx(2e8, rel=0.01)] * 2
    assert got.values["gpu_nvlink_receive", 0] == [pytest.approx(4e8, rel=0.01)] * 2
    assert got.capabilities == {}
    got = long(play, "devices 1\n" + "".join(f"fail field{field} 0 1 0 3\n" for field in (138, 139, 202, 204)), 20)
    assert got.capabilities == {"nvlink": "GPU 0: not supported"}
    assert got.calls["field202", 0] == 1


def test_a_counter_that_may_wrap_unseen_is_read_twice_in_20_ms(play: Play) -> None:
    """A 32-bit counter of PCIe bytes may wrap several times in 5 s, but once in 20 ms."""
    windows = [(2, 3, 2**32 - 40_000_000, 60_000_000), (5, 6, 1000, 100_001_000)]  # calls of each window, values: 100 MB each
    sent = [f"value field197 0 {call} {call} {value} 1" for one, two, a, b in windows for call, value in ((one, a), (two, b))]
    idle = ["value field197 0 1 0 4000000000 1", "value field198 0 1 0 7 1"]
    for _ in range(10):  # a window in which the thread was kept waiting for a core gives no rate
        got = long(play, "\n".join(["devices 1", *sent, *idle, ""]), 8)
        rates = got.values.get(("gpu_pcie_transmit", 0), [])
        if len(rates) == 2:
            break
    assert len(rates) == 2
    assert all(100e6 / 0.033 <= rate <= 100e6 / 0.02 for rate in rates)
    assert got.values["gpu_pcie_receive", 0] == [0, 0]
    assert got.capabilities == {}
    assert got.calls["field197", 0] == 2 * 3


def test_a_counter_that_grows_beyond_32_bits(play: Play) -> None:
    """The window is dropped; the rate is that of the time between two other readings."""
    narrow = "".join(f"value field{field} 0 1 3 4000000000\n" for field in (197, 198))
    got = long(play, f"devices 1\n{narrow}", 20)
    transmitted = got.values["gpu_pcie_transmit", 0]
    assert transmitted[-2:] == [pytest.approx(1e9, rel=0.01)] * 2
    assert transmitted[:-2] in ([0], [])
    assert got.calls["field197", 0] == 3 + 3


@pytest.mark.slow
def test_a_window_keeps_nobody(play: Play) -> None:
    """Samples do not wait for it, and neither does the end."""
    script = "devices 2\nvalue field197 -1 1 0 5\nvalue field198 -1 1 0 5\n"
    got = play(script, 1)
    assert len(got.values["gpu_power", 0]) == 1
    got = play(script, None, "session", 0, 300, variant="thread")
    assert len(got.values["gpu_power", 0]) >= 2
    assert got.capabilities == {}
    for fails in (f"fail fields 0 2 0 {LOST}\n", "fail field198 0 2 0 999\n"):
        assert ("gpu_pcie_transmit", 0) not in long(play, script + fails, 3, variant="address").values


def test_counters_that_run_backwards_have_no_rate(play: Play) -> None:
    got = long(play, f"devices 1\nvalue field138 0 3 3 5\nvalue field197 0 3 3 {2**33}\n", 20)
    assert len(got.values["gpu_nvlink_transmit", 0]) == len(got.values["gpu_pcie_transmit", 0]) == 2
    assert all(rate > 0 for rate in got.values["gpu_nvlink_transmit", 0])


@pytest.mark.parametrize(
    ("value", "what"),
    [("field82 0 1 0 0", "memory_temperature"), ("field82 0 1 0 201", "memory_temperature"), ("field144 0 1 0 2", "remapped_rows"),
     ("field82 0 1 0 18446744073709551615 5", "memory_temperature"), ("temperature 0 1 0 255", "temperature"),
     ("memory_clock 0 1 0 4294967295", "memory_clock"), (f"field4 0 1 0 {2**64 - 1}", "ecc")],
)  # fmt: skip
def test_fields_that_cannot_be(play: Play, value: str, what: str) -> None:
    got = play(f"devices 2\nvalue {value}\n", 2)
    assert set(got.capabilities) == {what}
    assert "which cannot be" in got.capabilities[what]


def test_all_types_of_values(play: Play) -> None:
    for kind in range(7):
        assert play(f"devices 1\nvalue field82 0 1 0 77 {kind}\n", 1).values["gpu_memory_temperature", 0] == [77]


def test_a_driver_that_is_slow_with_fields_is_asked_less(play: Play) -> None:
    """20 ms of each reading: 500 times as long until the next."""
    got = long(play, "devices 1\ndelay fields 0 1 0 20\n", 31)
    assert len(got.values["gpu_memory_temperature", 0]) in (3, 4)
    assert len(got.values["gpu_power", 0]) == 31


def test_a_driver_without_what_is_needed(play: Play) -> None:
    got = play("devices 2\n", 2, flags=("-DBROKEN",))
    assert got.capabilities == {"samples": "libnvidia-ml.so.1 has no nvmlDeviceGetCount_v2"}
    assert got.values == got.calls == {}


def test_no_driver(play: Play, tmp_path: Path) -> None:
    got = play("devices 2\n", 2, LD_LIBRARY_PATH=str(tmp_path))
    if got.values or "samples" not in got.capabilities:
        pytest.skip("this machine has the driver")
    assert got.capabilities == {"samples": "no libnvidia-ml.so.1 on this machine: no driver of NVIDIA GPUs"}
    for _ in range(5):  # calls during the search: an absent function is not called slow afterward
        assert play("devices 2\n", 30, LD_LIBRARY_PATH=str(tmp_path), WAITING_NS="1").capabilities == got.capabilities
    (tmp_path / "libnvidia-ml.so.1").write_text("no library")
    got = play("devices 2\n", 2, LD_LIBRARY_PATH=str(tmp_path))
    assert "libnvidia-ml.so.1" in got.capabilities["samples"]


def test_more_gpus_than_are_sampled(play: Play) -> None:
    got = play("devices 80\n", 1)
    assert {unit for _, unit in got.values} == set(range(64))
    assert got.capabilities == {"samples": "80 GPUs; those from 64 on are not sampled"}


@pytest.mark.slow
def test_texts_of_a_driver_are_no_danger(play: Play) -> None:
    """Names as long as their buffer, without an end, and bytes that are not text."""
    got = play(f"devices 1\nname 0 {'N' * 150}\nuuid 0 {'u' * 150}\ndriver 1\x01\xff\n", 1, variant="address")
    assert (got.metadata["gpu.0.name"], got.metadata["gpu.0.uuid"]) == ("N" * 96, "u" * 96)
    assert got.metadata["gpu.0.driver_version"].startswith("1??")


def test_a_driver_that_takes_its_time_makes_longer_intervals(play: Play) -> None:
    """3 ms of waiting in 8 samples, at 1% per ms: the interval doubles twice."""
    got = play("devices 1\ndelay power 0 1 0 3\n", 8, interval_ms=100)
    assert "more than 1% of 100 ms" in got.metadata["capability.sampler.interval"]
    assert got.output["interval"] >= 200
    assert len(got.values["gpu_power", 0]) == 8
    quick = play("devices 8\n", 8, interval_ms=60000)
    assert quick.output["interval"] == 60000
    assert "capability.sampler.interval" not in quick.metadata


@variants
def test_an_answer_that_comes_late(play: Play, variant: str) -> None:
    """Two samples are skipped while the first is answered, with its own time."""
    got = play("devices 1\ndelay utilization 0 1 1 600\n", 3, patience_ms=1, variant=variant)
    assert got.values["gpu_utilization", 0][0] == answer(0, 1)["gpu_utilization"]
    assert len(got.values["gpu_utilization", 0]) == 1
    assert got.calls["utilization", 0] == 1
    assert got.capabilities == {}


@pytest.mark.slow
@variants
def test_a_driver_that_is_stuck_keeps_nobody(play: Play, tmp_path: Path, variant: str) -> None:
    """A session ends while the driver hangs; later answers are dropped."""
    got = play("devices 1\ndelay utilization 0 1 1 3000\n", None, "stuck", 2500, variant=variant)
    first, second = read(tmp_path / "0")
    assert first.capabilities == {"samples": "the driver did not answer at the end: samples of GPUs are missing"}
    assert first.values == second.values == {}
    assert second.capabilities == {}
    assert got.calls["shutdown", -1] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "environment", "expected"), [(0, {}, True), (8, {}, False), (0, {"POSTRUN_GPU": "0"}, False)])
def test_a_session(play: Play, flags: int, environment: dict[str, str], expected: bool) -> None:
    got = play("devices 2\n", None, "session", flags, 300, variant="thread", **environment)
    assert bool(got.values) == expected
    assert bool(got.calls) == expected
    if expected:
        for device in range(2):
            values = got.values["gpu_utilization", device]
            assert values == [answer(device, call)["gpu_utilization"] for call in range(1, len(values) + 1)]
    assert not got.capabilities


@pytest.mark.parametrize("variant", ["address", "thread"])
def test_many_sessions(play: Play, variant: str, tmp_path: Path) -> None:
    got = play("devices 2\n", None, "cycles", 30, variant=variant)
    assert got.calls["init", -1] == got.calls["shutdown", -1] == got.calls["power", 1] == 30
    assert len(native_programs.files(tmp_path / "0")) == 30


VERSIONS = ("11.8", "12.9", "13.5")  # CUDA versions whose lock file in .ci/cuda has nvml.h
NAMED = """
#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include <nvml.h>
typedef nvmlDevice_t nvml_device;
typedef nvmlReturn_t nvml_result;
typedef nvmlClockType_t nvml_clock;
#define nvml_utilization nvmlUtilization_st
#define nvml_memory nvmlMemory_st
#define nvml_memory_v2 nvmlMemory_v2_st
typedef nvmlTemperatureSensors_t nvml_sensor;
typedef nvmlEventSet_t nvml_event_set;
#define nvml_field nvmlFieldValue_st
#define nvml_event nvmlEventData_st
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_against_the_vendors_header(machine: Machine, project_root: Path, tmp_path: Path, version: str) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc)")
    vendor = cupti_headers.folder_of(version, "nvml.h")
    (tmp_path / "nvml_vendor.h").write_text(NAMED)
    theirs = ["-DPOSTRUN_NVML_TYPES", f"-I{tmp_path}", "-isystem", str(vendor)]
    rows = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{project_root / 'native/src'}"]
    printed = []
    for name, more in (("own", []), ("theirs", theirs)):
        command = [compiler, *more, *rows, str(project_root / "tests/native/nvml_check.c"), "-o", str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed.append(subprocess.run([str(tmp_path / name)], capture_output=True, text=True, check=True).stdout)
    assert printed[0] == printed[1]
    command = [compiler, *theirs, *rows, "-fPIC", "-shared", str(project_root / "tests/native/nvml_stub.c"), "-o", f"{tmp_path}/stub.so"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_samples_reach_the_report(play: Play, tmp_path: Path) -> None:
    """1,500 samples, half a second apart.

    GPU 0 idles at 10%, is too hot in samples 101 to 140 and at its power cap in 201 to 210. GPU 1 is busy, and its memory goes from 20 to
    90%.
    """
    native = pytest.importorskip("postrun.native")
    if not native.available():
        pytest.skip("recordings are read by the C library, which was not built")
    from postrun.analysis import Options, analyze
    from postrun.ingest import ingest

    memory = [f"value memory_v2 1 {100 * i + 1} {100 * i + 100} {100 * GIB} {(20 + 5 * i) * GIB}" for i in range(15)]
    script = [
        "devices 2", "value utilization 0 1 0 10 5", "value utilization 1 1 0 95 40",
        f"value memory_v2 0 1 0 {100 * GIB} {10 * GIB}", *memory,
        "value throttle 0 101 140 72", "value throttle 0 201 210 4",
        "value throttle -1 1 0 0", "value power 0 1 0 80000",
        "value power 1 1 750 600000", "value power 1 751 0 650000", "value clock -1 1 0 1410",
        "value temperature 0 1 0 85", "value temperature 1 1 0 65", "xid wait 1 100 0 94", "value field4 1 2 0 1",
    ]  # fmt: skip
    play("\n".join([*script, ""]), None, "long", 1500, 500)
    with ingest([str(tmp_path / "0")]) as store:
        report = analyze(store, Options(generated_at_ns=0))
    assert [(device.index, device.uuid, device.name) for device in report.devices] == [(i, uuid(i), "NVIDIA Stub X100") for i in (0, 1)]
    usage = {row.metric: row for row in report.system_usage.nodes}
    assert (usage["gpu"].samples, usage["gpu"].p50, usage["gpu"].derived) == (1500, 52.5, False)
    assert usage["gpu_memory"].unit == "% of device memory"
    assert (usage["gpu_memory"].min, usage["gpu_memory"].max) == (15, 50)
    assert [heat.units for heat in report.system_usage.heat if heat.metric == "gpu"] == [(0, 1)]
    first, second = report.system_usage.gpu_clocks
    assert (first.power_p50_w, first.sm_clock_p50_mhz, second.power_max_w) == (80, 1410, 650)
    times = {row.device: (row.sampled_ns, row.heat_ns, row.power_ns, row.hardware_ns) for row in (first, second)}
    assert times == {
        0: tuple(pytest.approx(seconds * 1e9, rel=1e-3) for seconds in (750, 20, 5, 0)),
        1: tuple(pytest.approx(seconds * 1e9, rel=1e-3) for seconds in (750, 0, 0, 0)),
    }
    assert len(report.system_usage.throttling) == 2
    assert (usage["gpu_temperature"].p50, usage["gpu_temperature"].unit) == (75, "°C")
    assert usage["gpu_pcie"].p50 == pytest.approx(3e9, rel=0.01)
    assert {"gpu_nvlink", "gpu_throttle_power", "gpu_throttle_thermal", "gpu_memory_temperature"} <= set(usage)
    notes = {note.code: note.message for note in report.data_quality}
    assert "GPU 1: XID 94 (an uncorrectable memory error that was contained to one program)." in notes["gpu_xid"]
    assert "GPU 1: 1 uncorrected ECC error." in notes["gpu_memory_errors"]
    rules = {result.rule: result for result in report.rules}
    low = {row["device"]: row["state"] for row in plain_details(rules["LowGPUUtilization"])["devices"]}
    assert low == {0: "under-utilized", 1: "fine"}
    grown = {row["device"]: row["violations"] > 0 for row in plain_details(rules["GPUMemoryIncrease"])["devices"]}
    assert grown == {0: False, 1: True}
    batch = {row["device"]: (row["violations"] > 0, row["memory_figure"]) for row in plain_details(rules["BatchSize"])["devices"]}
    assert batch == {0: (True, "footprint"), 1: (False, "footprint")}
    metrics = {row["metric"] for node in plain_details(rules["OverallSystemUsage"])["nodes"] for row in node["metrics"]}
    assert {"gpu", "gpu_memory", "cpu"} <= metrics


def test_what_the_report_says_of_gpus_that_are_hidden_or_lost(play: Play, tmp_path: Path) -> None:
    native = pytest.importorskip("postrun.native")
    if not native.available():
        pytest.skip("recordings are read by the C library, which was not built")
    from postrun.ingest import ingest

    play(f"devices 4\nfail power 2 3 0 {LOST}\n", 5, CUDA_VISIBLE_DEVICES="2,0")
    with ingest([str(tmp_path / "0")]) as store:
        notes = {code: (severity, text) for severity, code, text in store.frame("SELECT severity, code, message FROM ingest_note").rows()}
    assert notes["gpu_hidden"] == (
        "info",
        "GPUs 1, 3 of the 4 of the machine were hidden from the process that sampled (CUDA_VISIBLE_DEVICES); where no other process of the"
        " job used them, their samples are of other work.",
    )
    lost = f"Not all GPUs could be sampled to the end: GPU 2: has fallen off the bus ({uuid(2)}); not sampled any more."
    assert notes["gpu_lost"] == ("warning", lost)
    assert "gpu.devices" not in notes.get("not_captured", ("", ""))[1]


@pytest.mark.parametrize(
    ("option", "environment", "sampled"), [((), {}, True), (("--no-gpu",), {}, False), ((), {"POSTRUN_GPU": "0"}, False)]
)
def test_postrun_record(
    machine: Machine, tmp_path: Path, option: tuple[str, ...], environment: dict[str, str], sampled: bool
) -> None:  # fmt: skip
    native = pytest.importorskip("postrun.native")
    if not native.available():
        pytest.skip("the C library was not built")
    (tmp_path / "script").write_text("devices 2\n")
    variables = {"NVML_STUB": str(tmp_path / "script"), "LD_LIBRARY_PATH": str(machine.library())}
    say = f"import os; open({str(tmp_path / 'said')!r}, 'w').write(os.environ.get('POSTRUN_GPU', '-'))"
    command = [sys.executable, "-P", "-m", "postrun", "record", "--quiet", *option, "--out", str(tmp_path / "run"), "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", say], env=native_programs.environment(**variables, **environment), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "said").read_text() == ("0" if not sampled else "-")
    files = [recorded for recorded in read(tmp_path / "run") if recorded.values]
    assert len(files) == sampled
    if sampled:
        assert {unit for _, unit in files[0].values} == {0, 1}
        assert files[0].values["gpu_power", 1][0] == answer(1, 1)["gpu_power"]
