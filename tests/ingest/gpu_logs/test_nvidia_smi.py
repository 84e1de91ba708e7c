"""Tests for logs of nvidia-smi -> samples, with notes on everything that cannot be read."""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.errors import InputError
from postrun.ingest.gpu_logs.host_name import named_host
from postrun.ingest.load import ingest
from postrun.ingest.store import Store
from postrun.ingest.store.format_names import NVIDIA_SMI

HEADER = "timestamp, index, uuid, name, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB], power.draw [W]"
START = datetime(2024, 5, 6, 7, 8, 9, 123000, tzinfo=UTC)
START_NS = 1_714_979_289_123_000_000


def line(second: int = 0, index: int = 0, util: str = "85 %", used: str = "1000 MiB", power: str = "250.50 W") -> str:
    time = datetime.fromtimestamp(START.timestamp() + second, UTC)
    uuid = f"GPU-0000000{index}-1111-2222-3333-444444444444"
    return f"{time:%Y/%m/%d %H:%M:%S}.123, {index}, {uuid}, NVIDIA A100-SXM4-80GB, {util}, 40 %, {used}, 2000 MiB, {power}"


def log(folder: Path, *lines: str, name: str = "smi.csv", end: str = "\n") -> Store:
    path = folder / name
    path.write_text("\n".join(lines) + end)
    return ingest([path])


def values(store: Store, metric: str) -> list[tuple[int, int, float]]:
    query = "SELECT unit, time_ns, value FROM sample WHERE metric = ? ORDER BY ALL"
    return store.frame(query, [metric]).rows()


def notes(store: Store) -> dict[str, int]:
    return dict(store.frame("SELECT code, sum(count)::BIGINT FROM ingest_note GROUP BY code").rows())


def test_values_times_units_and_the_devices(tmp_path: Path) -> None:
    with log(tmp_path, HEADER, line(0, 0), line(0, 1, "0 %", "500 MiB"), line(1, 0, "100 %"), line(1, 1)) as store:
        assert values(store, "gpu_utilization") == [
            (0, START_NS, 85.0), (0, START_NS + 10**9, 100.0), (1, START_NS, 0.0), (1, START_NS + 10**9, 85.0),
        ]  # fmt: skip
        assert values(store, "gpu_memory_used_bytes")[2] == (1, START_NS, 500.0 * 2**20)
        assert values(store, "gpu_memory_used_percent")[2] == (1, START_NS, 25.0)
        assert values(store, "gpu_memory_total_bytes") == [(0, START_NS, 2000.0 * 2**20), (1, START_NS, 2000.0 * 2**20)]
        assert values(store, "gpu_memory_controller")[0] == (0, START_NS, 40.0)
        assert values(store, "gpu_power")[0] == (0, START_NS, 250.5)
        devices = store.frame('SELECT "index", uuid, name, memory_bytes, vendor FROM device ORDER BY 1').rows()
        assert devices[1] == (1, "GPU-00000001-1111-2222-3333-444444444444", "NVIDIA A100-SXM4-80GB", 2000 * 2**20, "NVIDIA")
        assert store.frame("SELECT hostname, gpus FROM node").rows() == [("unknown host", 2)]
        assert notes(store) == {"times_without_zone": 1}
        assert store.frame("SELECT format, events FROM source").rows() == [(NVIDIA_SMI, 4 * 5 + 2)]


@pytest.mark.parametrize(
    "change",
    [
        "nounits", "order", "crlf", "utf16", "gzip", "bom", "quoted", "semicolon", "semicolon-padded", "tab", "comma-decimals", "cr",
        "cr-utf16", "utf16le", "utf16be",
    ],
)  # fmt: skip
def test_the_same_log_in_other_clothes(tmp_path: Path, change: str) -> None:
    lines = [HEADER, *(line(second, index, f"{10 * second + index} %") for second in range(5) for index in range(2))]
    text = "\n".join(lines) + "\n"
    if change == "nounits":
        text = "\n".join([HEADER, *(re.sub(r" (%|MiB|W)(?=,|$)", "", one) for one in lines[1:])]) + "\n"
    if change == "order":
        text = "\n".join(", ".join(reversed(one.split(", "))) for one in lines) + "\n"
    if change == "quoted":
        text = "\n".join(",".join(f'"{field}"' for field in one.split(", ")) for one in lines) + "\n"
    if change in ("semicolon", "tab", "comma-decimals"):
        text = text.replace(", ", "\t" if change == "tab" else ";")
    if change == "semicolon-padded":  # empty cells behind each line
        text = text.replace(", ", "; ").replace("\n", ";;\n")
    if change == "comma-decimals":
        text = text.replace(".123;", ",123;").replace("250.50", "250,50")
    if change.startswith("cr-") or change == "cr":
        text = text.replace("\n", "\r")
    data = text.replace("\n", "\r\n").encode() if change == "crlf" else text.encode()
    encodings = {"cr-utf16": "utf-16", "utf16le": "utf-16-le", "utf16be": "utf-16-be"}
    data = text.encode(encodings.get(change, "utf-8")) if change in encodings else data
    data = {"utf16": text.encode("utf-16"), "gzip": gzip.compress(data), "bom": b"\xef\xbb\xbf" + data}.get(change, data)
    path = tmp_path / "log"
    path.write_bytes(data)
    with ingest([path]) as store:
        assert values(store, "gpu_utilization") == [
            (index, START_NS + second * 10**9, 10.0 * second + index) for index in range(2) for second in range(5)
        ]
        assert values(store, "gpu_power")[0][2] == 250.5
        assert notes(store) == {"times_without_zone": 1}
        assert values(store, "gpu_power") == [(index, START_NS + second * 10**9, 250.5) for index in range(2) for second in range(5)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("5/6/2024 7:08,0,85", r"accepted is what nvidia-smi writes, such as 2026/11/20 06:00:00\.123 .*'5/6/2024 7:08,0,85'"),
        ("06.05.2024 07:08:09,0,85", r"accepted is what nvidia-smi writes, such as 2026/11/20 06:00:00\.123 "),
        ("2024/05/06 07:08:09.123,0,85,5", r"decimal commas between commas.* save it with semicolons or tabs"),
    ],
)
def test_what_a_spreadsheet_made_of_a_log_is_told_with_what_to_do(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(InputError, match=r"(?s)smi\.csv: nvidia-smi log; .*" + message):
        log(tmp_path, "timestamp,index,utilization.gpu [%]", row, row)


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    lines = [
        "some words before",
        HEADER,
        line(0),
        line(1, util="[N/A]", power="[Not Supported]"),
        line(2, util="ERR!"),
        line(3, util="[Unknown Error]"),
        line(4, util="101 %"),
        line(5, util="8x %"),
        HEADER,
        line(6)[:60],
        line(7).replace("2024/05/06", "2024/13/06"),
        line(8),
    ]
    with log(tmp_path, *lines, "2024/05/06 07:08:18.123, 0, GPU", end="") as store:
        assert [value for _, _, value in values(store, "gpu_utilization")] == [85.0, 85.0]
        assert len(values(store, "gpu_power")) == 6
        noted = notes(store)
        assert noted == {
            "before_header": 1, "no_value": 4, "no_number": 2, "wrong_length": 1, "bad_time": 1, "cut_line": 1, "times_without_zone": 1,
        }  # fmt: skip


LOST = "Unable to determine the device handle for GPU0000:17:00.0: GPU is lost.  Reboot the system to recover this GPU"


def noted(store: Store) -> list[tuple[str, str, str, int]]:
    """Return severity, code, message and count of notes not about times."""
    query = "SELECT severity, code, message, count FROM ingest_note WHERE code <> 'times_without_zone' ORDER BY ALL"
    return store.frame(query).rows()


def test_a_gpu_that_is_lost_is_told_with_its_time_and_its_words(tmp_path: Path) -> None:
    with log(tmp_path, HEADER, line(0, 0), line(0, 1), line(1, 0), HEADER, LOST, line(2, 0), LOST, line(3, 0)) as store:
        words = '"GPU is lost. Reboot the system to recover this GPU"'
        message = f"GPU 0000:17:00.0 was lost after 2024/05/06 07:08:10 (as the log counts): {words}."
        assert noted(store) == [("warning", "gpu_lost", message, 2)]
        assert [(unit, value) for unit, _, value in values(store, "gpu_utilization")] == [(0, 85.0)] * 4 + [(1, 85.0)]


def test_what_nvidia_smi_says_of_failures_in_a_log(tmp_path: Path) -> None:
    nvml = "Failed to initialize NVML: Unknown Error"
    newer = "Unable to determine the device handle for GPU1: 0000:18:00.0: Unknown Error"
    with log(tmp_path, LOST, HEADER, line(0, 0), nvml, newer, nvml) as store:
        after = "after 2024/05/06 07:08:09 (as the log counts)"
        lost = 'GPU 0000:17:00.0 was lost before the first sample: "GPU is lost. Reboot the system to recover this GPU".'
        assert noted(store) == [
            ("warning", "gpu_lost", lost, 1),
            ("warning", "gpu_lost", f'GPU 1: 0000:18:00.0 could not be reached {after}: "Unknown Error".', 1),
            ("warning", "monitor_failed", f'nvidia-smi failed {after}: "{nvml}".', 2),
        ]


def test_a_gpu_that_is_lost_in_a_log_of_dmon(tmp_path: Path) -> None:
    head = ["#Date       Time        gpu     sm    mem", "#YYYYMMDD   HH:MM:SS    Idx      %      %"]
    with log(tmp_path, *head, " 20240506   07:08:09      0   85   40", *head, LOST) as store:
        [(_, code, message, _)] = noted(store)
        assert (code, message.partition(" (")[0]) == ("gpu_lost", "GPU 0000:17:00.0 was lost after 20240506 07:08:09")


def test_a_gpu_that_is_lost_in_a_log_of_dmon_with_commas(tmp_path: Path) -> None:
    head = ["#Date, Time, gpu, sm, mem", "#YYYYMMDD, HH:MM:SS, Idx, %, %"]
    with log(tmp_path, *head, " 20240506, 07:08:09, 0, 85, 40", " 20240506, 07:08:10, 0, 75, 40", LOST) as store:
        [(_, code, message, _)] = noted(store)
        assert (code, message.partition(" (")[0]) == ("gpu_lost", "GPU 0000:17:00.0 was lost after 20240506 07:08:10")
        assert [value for _, _, value in values(store, "gpu_utilization")] == [85.0, 75.0]


@pytest.mark.parametrize("words", [
    "No devices were found", "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95", LOST,
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is installed and"
    " running.",
])  # fmt: skip
@pytest.mark.parametrize("end", ["", "\n", "\r\n\r\n"])
def test_a_file_with_nothing_but_the_failure_of_nvidia_smi_says_so(tmp_path: Path, words: str, end: str) -> None:
    first = " ".join(words.partition("\n")[0].split())
    with pytest.raises(InputError, match=re.escape(f'nvidia-smi itself failed and wrote no sample: "{first}"')):
        log(tmp_path, words, end=end)
    (tmp_path / "good.csv").write_text("\n".join([HEADER, line(0), line(1)]) + "\n")
    with ingest([tmp_path]) as store:
        [(severity, _, message, _)] = noted(store)
        assert severity in ("warning", "error")
        assert f'nvidia-smi itself failed and wrote no sample: "{first}"' in message


def test_other_columns_after_a_header_in_the_middle(tmp_path: Path) -> None:
    later = ["timestamp, utilization.gpu [%], index", "2024/05/06 07:08:19.000, 7 %, 0", "2024/05/06 07:08:20.000, 8 %, 0"]
    with log(tmp_path, HEADER, line(0), *later) as store:
        assert [value for _, _, value in values(store, "gpu_utilization")] == [85.0, 7.0, 8.0]
        assert notes(store)["columns_change"] == 1


def test_reasons_for_lower_clocks(tmp_path: Path) -> None:
    header = "timestamp, index, clocks_event_reasons.active"
    with log(tmp_path, header, "2024/05/06 07:08:09.123, 0, 0x0000000000000024", "2024/05/06 07:08:10.123, 0, Active") as store:
        assert values(store, "gpu_throttle_reasons") == [(0, START_NS, 36.0)]
        assert notes(store)["no_number"] == 1
    header = "timestamp, index, utilization.gpu [%], clocks_throttle_reasons.hw_slowdown, clocks_throttle_reasons.sw_power_cap"
    rows = ["2024/05/06 07:08:09.123, 0, 1 %, Active, Active", "2024/05/06 07:08:10.123, 0, 1 %, Not Active, Not Active"]
    with log(tmp_path, header, *rows) as store:
        assert [value for _, _, value in values(store, "gpu_throttle_reasons")] == [12.0, 0.0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["index, utilization.gpu [%]", "0, 85 %"], "no column timestamp"),
        ([line(0), line(1)], "no header line"),
        (["timestamp, index, temperature.gpu, pstate", "2024/05/06 07:08:09.123, 0, 30, P0"], "none of the columns"),
        (["# gpu        pid  type    sm   mem   command", "    0       1234     C    80    10   python"], "pmon"),
        (
            ["# gpu   pwr gtemp mtemp    sm   mem", "# Idx     W     C     C     %     %", "    0   150    65     -    45    30"],
            "dmon -s pum -o DT",
        ),
        (["#Time        gpu    sm   mem", "#HH:MM:SS    Idx     %     %", " 07:08:09      0    45    30"], "does not say date"),
        (["#gpu, sm, mem, enc, dec", "#Idx, %, %, %, %", "0, 45, 30, 0, 0"], "dmon -s pum -o DT"),
        (
            ["#Date       Time        gpu  rxpci  txpci", " 20240506   07:08:09      0      1      2"],
            "none of the columns of the log is read (date",
        ),
        (["20240506, 07:08:09, 0, 150, 65, -, 45, 30", "20240506, 07:08:10, 0, 150, 65, -, 47, 30"], "no header line"),
        (["| NVIDIA-SMI 550.54.14    Driver Version: 550.54.14 |", "| 30% 40C |"], "for people"),
        (["timestamp, utilization.gpu [%]", *(f"2024/05/06 07:08:{9 + k // 2:02}.{123 + k % 2}, 85 %" for k in range(20))], "several GPUs"),
    ],
)
def test_a_log_that_says_too_little_is_refused_with_the_next_step(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(InputError) as refused:
        log(tmp_path, *lines)
    text = str(refused.value)
    assert message in text
    assert "nvidia-smi" in text
    assert "smi.csv" in text


def test_one_gpu_needs_no_number_and_bus_addresses_give_one(tmp_path: Path) -> None:
    with log(tmp_path, "timestamp, utilization.gpu [%]", *(f"2024/05/06 07:08:{10 + k}.001, {k} %" for k in range(9))) as store:
        assert [(unit, value) for unit, _, value in values(store, "gpu_utilization")] == [(0, float(k)) for k in range(9)]
    rows = [f"2024/05/06 07:08:1{k}.00{bus}, 00000000:{bus}0:00.0, {bus} %" for k in range(3) for bus in (4, 2)]
    with log(tmp_path, "timestamp, pci.bus_id, utilization.gpu [%]", *rows) as store:
        assert {(unit, value) for unit, _, value in values(store, "gpu_utilization")} == {(0, 2.0), (1, 4.0)}
        assert notes(store)["device_numbered"] == 2


def test_dmon_with_dates(tmp_path: Path) -> None:
    lines = [
        "#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk     fb",
        "#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      %      %    MHz    MHz     MB",
        " 20240506   07:08:09      0    150     65      -     45     30      0      0   1593   1410    500",
        " 20240506   07:08:09      1      -     65      -     46     31      0      0   1593   1410    501",
        " 20240506   07:08:10      0    151     65      -    100     30      0      0   1593   1410    500",
    ]
    with log(tmp_path, *lines, name="dmon.log") as store:
        at = START_NS - 123_000_000
        assert values(store, "gpu_utilization") == [(0, at, 45.0), (0, at + 10**9, 100.0), (1, at, 46.0)]
        assert [value for _, _, value in values(store, "gpu_power")] == [150.0, 151.0]
        assert values(store, "gpu_memory_used_bytes")[2] == (1, at, 501.0 * 2**20)
        assert values(store, "gpu_sm_clock") == []


def test_dmon_as_csv(tmp_path: Path) -> None:
    lines = [
        "#Date, Time, gpu, sm, mem, enc, dec",
        "#YYYYMMDD, HH:MM:SS, Idx, %, %, %, %",
        "20240506, 07:08:09, 0, 45, 30, 0, 0",
        "20240506, 07:08:10, 0, 47, 31, 0, 0",
    ]
    with log(tmp_path, *lines, name="nvidia-smi-dmon.titan.csv") as store:
        at = START_NS - 123_000_000
        assert values(store, "gpu_utilization") == [(0, at, 45.0), (0, at + 10**9, 47.0)]
        assert values(store, "gpu_memory_controller") == [(0, at, 30.0), (0, at + 10**9, 31.0)]
        assert store.frame("SELECT hostname FROM node").item() == "titan"


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("nvidia-smi.node7.csv", "node7"), ("smi_ip-10-0-0-7.csv", "ip-10-0-0-7"), ("algo-1.nvidia-smi.log", "algo-1"),
        ("gpu_log.csv", "unknown host"), ("nvidia-smi.rank0.csv", "unknown host"), ("smi_h100.csv", "unknown host"),
        ("smi-20240506.csv", "unknown host"), ("gpu_run12.csv", "unknown host"),
        *((f"nvidia-smi.{host}.csv", host) for host in (
            "titan", "gpubox", "hostA", "modal", "myhost.example.org", "gpu1", "gpu-01", "dgx-a100", "a100-01", "h100-3", "10.0.0.7",
        )),
        ("nvidia-smi.node-1.1.csv", "node-1"), ("nvidia-smi.titan.2024-05-06.csv", "titan"), ("nvidia-smi.titan.csv.2", "titan"),
        ("nvidia-smi.1.csv", "unknown host"), ("nvidia-smi.2024-05-06.csv", "unknown host"), ("nvidia-smi.log.csv", "unknown host"),
        ("nvidia-smi.csv", "unknown host"), ("nvidia-smi-dmon.csv", "unknown host"), ("nvidia-smi.dmon.csv", "unknown host"),
        *((f"nvidia-smi{dmon}{between}.csv", between[1:]) for dmon in ("", "-dmon") for between in (".titan", ".node-3", "-node-3")),
        ("nvidia-smi-before.csv", "unknown host"), ("nvidia-smi-titan.csv", "unknown host"), ("nvidia-smi-dmon-rank0.csv", "unknown host"),
    ],
)  # fmt: skip
def test_the_machine_in_the_name_of_the_file(tmp_path: Path, name: str, host: str) -> None:
    with log(tmp_path, HEADER, line(0), line(1), name=name) as store:
        assert store.frame("SELECT hostname FROM node").to_series().to_list() == [host]


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("nodeA/nvidia-smi.csv", "nodeA"),
        ("run1/nvidia-smi.csv", None),
        ("nodeA/dcgm.titan.csv", "titan"),
        ("x/dcgmi-dmon.titan.txt", "titan"),
        ("x/nvidia-smi-dmon.titan.txt", "titan"),
        ("x/dcgm-node3.csv", "node3"),
        ("x/dcgm-exporter-node3.csv", "node3"),
        ("x/dcgmi-dmon-node3.csv", "node3"),
    ],
)
def test_the_machine_in_the_name_of_the_folder(name: str, host: str | None) -> None:
    assert named_host(Path(name)) == host


def test_a_word_behind_a_dash_may_say_what_a_log_is_of(tmp_path: Path) -> None:
    header = "timestamp, index, {}"
    for name, metric in (("power", "power.draw [W]"), ("clocks", "clocks.sm [MHz]")):
        rows = [f"{line(second).split(',')[0]}, 0, {60 + second}" for second in range(4)]
        (tmp_path / f"nvidia-smi-{name}.csv").write_text("\n".join([header.format(metric), *rows]) + "\n")
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname, gpus FROM node").rows() == [("unknown host", 1)]
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "nvidia-smi-finetune.csv").write_text("\n".join([HEADER, *map(line, range(4))]) + "\n")
    events = [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": START_NS / 1000, "dur": 5}]
    (beside / "trace.json").write_text(json.dumps({"traceEvents": events}))
    with ingest([beside]) as store:
        assert store.frame("SELECT hostname FROM node").to_series().to_list() == ["unknown host"]


def test_the_same_log_with_and_without_units_is_of_one_machine(tmp_path: Path) -> None:
    header = HEADER.replace("uuid, name, ", "")
    rows = [re.sub(r"GPU-\S+ NVIDIA \S+ ", "", line(second, index, f"{7 * second} %")) for second in range(9) for index in range(2)]
    (tmp_path / "a.csv").write_text("\n".join([header, *rows]) + "\n")
    (tmp_path / "b.csv").write_text("\n".join([header, *(re.sub(r" (%|MiB|W)(?=,|$)", "", row) for row in rows)]) + "\n")
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT hostname, gpus FROM node").rows() == [("unknown host", 2)]
        assert len(values(store, "gpu_utilization")) == 18
        messages = dict(store.frame("SELECT code, message FROM ingest_note").rows())
        assert "has the values of a.csv at the same times" in messages["machine_joined"]
        assert "machine_unknown" not in messages


def test_two_logs_of_unknown_machines_say_how_to_name_them(tmp_path: Path) -> None:
    for name, uuid in (("a.csv", "GPU-0"), ("b.csv", "GPU-9")):
        (tmp_path / name).write_text("\n".join([HEADER, *(line(second).replace("GPU-0", uuid) for second in range(4))]) + "\n")
    with ingest([tmp_path]) as store:
        assert store.frame("SELECT count(*) FROM node").item() == 2
        rows = store.frame("SELECT severity::VARCHAR, file, message FROM ingest_note WHERE code = 'machine_unknown'").rows()
        assert [row[:2] for row in rows] == [("warning", "b.csv")]
        assert "shown as unknown host 2" in rows[0][2]
        assert "nvidia-smi.HOST.csv" in rows[0][2]


def test_logs_of_two_machines_and_of_one_in_two_parts(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n".join([HEADER, line(0), line(1)]) + "\n")
    (tmp_path / "b.csv").write_text("\n".join([HEADER, line(2), line(3)]) + "\n")
    second_log = [line(second).replace("GPU-0", "GPU-9") for second in range(4)]
    (tmp_path / "c.csv").write_text("\n".join([HEADER, *second_log]) + "\n")
    with ingest([tmp_path]) as store:
        query = "SELECT hostname, count(*) FROM sample JOIN node ON node.id = node WHERE metric = 'gpu_utilization' GROUP BY 1 ORDER BY 1"
        assert store.frame(query).rows() == [("unknown host", 4), ("unknown host 2", 4)]


def test_a_clock_that_goes_back(tmp_path: Path) -> None:
    with log(tmp_path, HEADER, line(7200), line(7201), line(3602), line(3603)) as store:
        assert notes(store)["time_goes_back"] == 1
        assert len(values(store, "gpu_utilization")) == 4


@pytest.mark.parametrize("text", ["", "timestamp, index, utilization.gpu [%]\n", "\0" * 5000, "timestamp, index, utilization.gpu [%]"])
def test_empty_logs_are_no_traceback(tmp_path: Path, text: str) -> None:
    path = tmp_path / "smi.csv"
    path.write_text(text)
    with pytest.raises(InputError):
        ingest([path])


def test_zero_bytes_within_a_log_are_told(tmp_path: Path) -> None:
    with log(tmp_path, HEADER, line(0), "\0" * 5000, line(1)) as store:
        assert len(values(store, "gpu_utilization")) == 2
        assert notes(store)["zero_bytes"] == 5000


def test_a_refused_log_is_named_once_and_an_empty_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "smi.csv").write_text(line(0) + "\n")
    (tmp_path / "1591160699.algo-1.json").write_text("")
    with pytest.raises(InputError) as refused:
        ingest([tmp_path])
    text = str(refused.value)
    assert text.count(str(tmp_path / "smi.csv")) == 1
    assert "The file cannot be read: the log has no header line" in text
    (empty,) = [row for row in text.splitlines() if "1591160699.algo-1.json" in row]
    assert "empty file" in empty


def test_the_title_of_a_log_has_no_ending(tmp_path: Path) -> None:
    with log(tmp_path, HEADER, line(0), name="nvidia-smi.titan.csv") as store:
        assert store.frame("SELECT name FROM run").item() == "nvidia-smi.titan"


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    with log(tmp_path, HEADER, line(0), "x" * 10_000_000, line(1), line(2)) as store:
        assert len(values(store, "gpu_utilization")) == 3
        assert notes(store)["too_long"] == 1


@settings(max_examples=examples(25))
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 2000), st.booleans()), min_size=1, max_size=40), st.integers(0, 60))
def test_cut_and_garbled_logs_give_only_values_that_stand_in_them(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, bool]], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("smi")
    lines = [line(second, 0, f"{util} %", f"{used} MiB") for second, (util, used, _) in enumerate(rows)]
    garbled = [one.replace(", ", "; ", 3) if bad else one for one, (_, _, bad) in zip(lines, rows, strict=True)]
    text = "\n".join([HEADER, *garbled, line(99)]) + "\n"
    text = text[: len(text) - cut] if cut else text
    (folder / "smi.csv").write_text(text)
    complete = text[: text.rfind("\n") + 1].splitlines()[1:]
    kept = [one for one in complete if one.count(", ") == 8]
    expected = [float(re.findall(r", (\d+) %", one)[0]) for one in kept]
    try:
        with ingest([folder / "smi.csv"]) as store:
            assert [value for _, _, value in values(store, "gpu_utilization")] == expected
            assert notes(store).get("wrong_length", 0) == len(complete) - len(kept)
    except InputError:
        assert not expected
