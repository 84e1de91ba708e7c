"""The system sampler reads /proc and /sys exactly, whatever they contain.

The driver plays made-up trees of both; the machine's own are compared with a plain reading of the same files.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import c_build
import pytest

WRAPPED = ("malloc", "calloc", "realloc", "clock_gettime", "syscall", "ioctl")
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wstrict-prototypes", "-Wvla", "-Werror"]
SECOND = 1_000_000_000
PORT_COUNTERS = {
    "counters/symbol_error": "infiniband_symbol_errors", "counters/link_downed": "infiniband_link_downed",
    "counters/link_error_recovery": "infiniband_link_recoveries", "counters/port_rcv_errors": "infiniband_receive_errors",
    "counters/port_xmit_discards": "infiniband_transmit_discards", "counters/port_xmit_wait": "infiniband_transmit_wait",
    "hw_counters/out_of_sequence": "roce_out_of_sequence", "hw_counters/packet_seq_err": "roce_sequence_errors",
    "hw_counters/local_ack_timeout_err": "roce_ack_timeouts", "hw_counters/rp_cnp_handled": "roce_congestion_notifications",
}  # fmt: skip
ROUNDED = 0.0005001  # values have three decimals
Values = dict[tuple[str, int], float]


class Player:
    """A running driver."""

    def __init__(self, driver: Path, interval_ms: int, proc: str, sys: str) -> None:
        command = [str(driver), str(interval_ms), proc, sys]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.capabilities: dict[str, str] = {}
        self.result = self.interval_ms = self.allocations = self.samples = 0

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)

    def lines(self) -> Iterator[list[str]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield line.split(" ")
        raise AssertionError(f"the driver ended: {self.process.stderr.read()[-3000:] if self.process.stderr else ''}")

    def sample(self, ticks: int) -> Values:
        self.tell("sample", ticks)
        self.samples += 1
        values: Values = {}
        for words in self.lines():
            if words[0] == "done":
                self.result, self.interval_ms, self.allocations = map(int, words[1:])
                return values
            if words[0] == "capability":
                assert words[1] not in self.capabilities
                self.capabilities[words[1]] = " ".join(words[2:]).rstrip()
                continue
            assert words[0] == "metric"
            key = (words[1], int(words[2]))
            assert key not in values
            assert int(words[3]) == ticks
            values[key] = float(words[4])
            assert math.isfinite(values[key])
            assert values[key] >= 0
        raise AssertionError

    def close(self) -> None:
        _, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors[-3000:]


@pytest.fixture(scope="module", params=["plain", "sanitized"])
def driver(request: pytest.FixtureRequest, project_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("driver") / "sampler_driver"
    native = project_root / "native"
    sources = [project_root / "tests" / "native" / "sampler_driver.c", *sorted((native / "src" / "sampler").glob("*.c"))]
    sources += [native / "src" / "gpu" / "gpu_visible.c"]
    flags = ["-std=c11", "-O2", "-g", *WARNINGS, f"-I{native / 'src'}", f"-I{native / 'include'}"]
    if request.param == "sanitized":
        flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    c_build.build(sources, built, *flags, "-Wl," + ",".join(f"--wrap={name}" for name in WRAPPED))
    return built


Start = Callable[..., Player]


@pytest.fixture
def start(driver: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts a driver over tmp_path/proc and tmp_path/sys, or the machine's own."""
    players: list[Player] = []

    def begin(interval_ms: int = 500, real_trees: bool = False) -> Player:
        players.append(Player(driver, interval_ms, *(("-", "-") if real_trees else (str(tmp_path / "proc"), str(tmp_path / "sys")))))
        return players[-1]

    yield begin
    for player in players:
        player.close()


Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of the made-up tree; an existing file keeps its inode, as in /proc."""

    def put(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return put


def test_every_metric_is_documented(project_root: Path) -> None:
    source = (project_root / "native/src/sampler/sampler.c").read_text(encoding="utf-8")
    names = re.search(r"metric_names\[SAMPLER_METRICS\] = \{(.*?)\};", source, re.DOTALL)
    assert names is not None
    page = (project_root / "docs/capture-metrics.md").read_text(encoding="utf-8")
    table = [line for line in page.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    documented = [name for line in table for name in re.findall(r"`([^`]+)`", line.split("|")[1])]
    assert sorted(documented) == sorted(re.findall(r'"([^"]+)"', names[1]))


def port(write: Write, name: str, sent: int, received: int, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)") -> str:
    """A port of an adapter, with its counters of words of 4 bytes; its folder."""
    folder = f"sys/class/infiniband/{name.replace('/', '/ports/')}"
    write(f"{folder}/counters/port_xmit_data", f"{sent}\n")
    write(f"{folder}/counters/port_rcv_data", f"{received}\n")
    write(f"{folder}/state", f"{state}\n")
    write(f"{folder}/rate", f"{rate}\n")
    write(f"{folder}/link_layer", "InfiniBand\n")
    return folder


def infiniband(values: Values) -> Values:
    return {key: value for key, value in values.items() if key[0].startswith(("infiniband", "roce"))}


def test_infiniband(start: Start, write: Write) -> None:
    """Each port counts as a unit: bytes per second, four to a word."""
    ports = ("mlx5_0/1", "mlx5_0/2", "mlx5_1/1")
    for number, name in enumerate(ports):
        folder = port(write, name, 10**12 * number, 2**63)
        for file in PORT_COUNTERS:
            write(f"{folder}/{file}", f"{1000 + number}\n")
    player = start()
    first = infiniband(player.sample(SECOND))
    assert first == {
        **{("infiniband_link_active", unit): 1 for unit in range(3)}, **{("infiniband_link_rate", unit): 400 for unit in range(3)},
        **{(metric, unit): 0 for metric in PORT_COUNTERS.values() for unit in range(3)},
    }  # fmt: skip
    assert infiniband(player.sample(SECOND * 3 // 2)) == {}
    for number, name in enumerate(ports):
        port(write, name, 10**12 * number + 250_000_000, 2**63 + 500_000_000 * (number + 1))
    got = infiniband(player.sample(2 * SECOND))
    assert got == {
        **{("infiniband_transmit", unit): 1e9 for unit in range(3)},
        **{("infiniband_receive", unit): 2e9 * (unit + 1) for unit in range(3)},
    }
    assert player.allocations == 0
    assert "infiniband" not in player.capabilities


def test_links_and_errors_of_infiniband_are_written_when_they_change(start: Start, write: Write) -> None:
    folder = port(write, "mlx5_0/1", 0, 0, rate="2.5 Gb/sec (1X SDR)")
    for file in PORT_COUNTERS:
        write(f"{folder}/{file}", "7\n")
    player = start()
    assert infiniband(player.sample(SECOND))["infiniband_link_rate", 0] == 2.5
    write(f"{folder}/counters/symbol_error", "12\n")
    write(f"{folder}/state", "1: DOWN\n")
    write(f"{folder}/rate", "10 Gb/sec (4X SDR)\n")
    bytes_only = {("infiniband_transmit", 0): 0, ("infiniband_receive", 0): 0}
    assert infiniband(player.sample(30 * SECOND)) == bytes_only
    assert infiniband(player.sample(61 * SECOND)) == bytes_only | {
        ("infiniband_symbol_errors", 0): 5, ("infiniband_link_active", 0): 0, ("infiniband_link_rate", 0): 10,
    }  # fmt: skip
    assert infiniband(player.sample(122 * SECOND)) == bytes_only
    write(f"{folder}/counters/symbol_error", "2\n")  # reset, and two more
    assert infiniband(player.sample(183 * SECOND)) == bytes_only | {("infiniband_symbol_errors", 0): 7}


def test_infiniband_counters_that_do_not_count(start: Start, write: Write) -> None:
    """The counter stops at 32 bits, goes back, is not a number, or is gone."""
    port(write, "mlx5_0/1", 2**32 - 1, 100)
    port(write, "mlx5_1/1", 1000, 1000, rate="garbage", state="")
    write("sys/class/infiniband/hfi1_0/ports/1/state", "4: ACTIVE\n")
    player = start()
    first = infiniband(player.sample(SECOND))
    units = {"hfi1_0": 0, "mlx5_0": 1, "mlx5_1": 2}  # in order of their names
    assert first == {("infiniband_link_active", 0): 1, ("infiniband_link_active", 1): 1, ("infiniband_link_rate", 1): 400}
    assert player.capabilities["infiniband"] == "some ports have no counters that can be read"
    assert "32 bits" in player.capabilities["infiniband.bytes"]
    port(write, "mlx5_0/1", 5, 350, rate="garbage")
    port(write, "mlx5_1/1", 10, 2000, rate="garbage", state="")
    expected = {("infiniband_receive", units["mlx5_0"]): 1000, ("infiniband_receive", units["mlx5_1"]): 4000}
    assert infiniband(player.sample(2 * SECOND)) == expected
    write("sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data", "N/A (no PMA)\n")
    assert ("infiniband_receive", 2) not in player.sample(3 * SECOND)
    write("sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data", "3000\n")
    assert ("infiniband_receive", 2) not in player.sample(4 * SECOND)  # not known since when
    write("sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data", "3250\n")
    assert player.sample(5 * SECOND)["infiniband_receive", 2] == 1000


def test_a_machine_without_infiniband(start: Start, write: Write) -> None:
    write("sys/class/net/lo/mtu", "1\n")
    player = start()
    assert infiniband(player.sample(SECOND)) == {}
    assert not any(key.startswith("infiniband") for key in player.capabilities)


def test_more_ports_than_are_sampled(start: Start, write: Write) -> None:
    for number in range(70):
        port(write, f"rxe{number:02}/1", 0, 0)
    player = start()
    assert len({unit for _, unit in infiniband(player.sample(SECOND))}) == 64
    assert player.capabilities["infiniband"] == "more than 64 ports: those from 64 on are not sampled"


def stat(cores: dict[int, list[int]]) -> str:
    total = [sum(column) for column in zip(*cores.values(), strict=True)] if cores else [0] * 10
    rows = [("cpu ", total), *((f"cpu{core}", ticks) for core, ticks in cores.items())]
    return "".join(f"{name} {' '.join(map(str, ticks))}\n" for name, ticks in rows) + "intr 5 0 9\nctxt 7\nbtime 1\nprocesses 3\n"


def test_cores(start: Start, write: Write) -> None:
    """100 ticks: user, nice, system, idle, waiting, interrupts, stolen."""
    write("proc/stat", stat({0: [100, 10, 50, 1000, 70, 4, 6, 1, 30, 2], 2: [0] * 10}))
    player = start()
    assert not any(name.startswith("cpu") for name, _ in player.sample(SECOND))
    write("proc/stat", stat({0: [120, 15, 60, 1040, 85, 7, 8, 6, 45, 4], 2: [0, 0, 0, 0, 7, 0, 0, 0, 0, 0]}))
    values = player.sample(2 * SECOND)
    assert values["cpu_utilization", 0] == pytest.approx(45)
    assert values["cpu_iowait", 0] == pytest.approx(15)
    assert values["cpu_utilization", 2] == 0
    assert values["cpu_iowait", 2] == 100
    assert not {("cpu_utilization", 1), ("cpu_utilization", -1)} & set(values)
    assert ("cpu_utilization", 0) not in player.sample(3 * SECOND)  # not one tick went by


def test_waiting_that_runs_backwards(start: Start, write: Write) -> None:
    """I/O wait that turns into idle time does not change busy ticks: 20 of 100."""
    player = start()
    write("proc/stat", stat({0: [100, 0, 0, 500, 90, 0, 0, 0, 0, 0], 1: [0, 0, 0, 500, 90, 0, 0, 0, 0, 0]}))
    player.sample(SECOND)
    write("proc/stat", stat({0: [120, 0, 0, 610, 60, 0, 0, 0, 0, 0], 1: [10, 0, 0, 480, 120, 0, 0, 0, 0, 0]}))
    values = player.sample(2 * SECOND)
    assert (values["cpu_utilization", 0], values["cpu_iowait", 0]) == (20, 0)
    # idle time that runs backwards: 10 busy, 10 not, and no more than those can be waiting
    assert (values["cpu_utilization", 1], values["cpu_iowait", 1]) == (50, 50)


def test_counters_that_were_reset(start: Start, write: Write) -> None:
    def units(values: Values) -> list[int]:
        return sorted(unit for name, unit in values if name == "cpu_utilization")

    player = start()
    old, new = [100, 10, 50, 1000, 70, 14, 16, 11, 0, 0], [200, 20, 60, 2000, 80, 18, 19, 12, 0, 0]
    write("proc/stat", stat(dict.fromkeys(range(11), old)))
    player.sample(SECOND)
    smaller = {field: [*new[:field], old[field] - 5, *new[field + 1 :]] for field in range(8)}
    write("proc/stat", stat({**smaller, 8: new, 9: [0] * 10, 10: [200, 20, 60, 980, 60, 18, 19, 12, 0, 0]}))
    # user, nice, system, interrupts, stolen backwards: reset. Idle or waiting alone: their sum grew. Idle and waiting: reset.
    assert units(player.sample(2 * SECOND)) == [3, 4, 8]
    write("proc/stat", stat({core: [ticks + 2000 for ticks in new] for core in range(11)}))
    assert units(player.sample(3 * SECOND)) == list(range(11))


def test_cores_that_come_and_go(start: Start, write: Write) -> None:
    def at(seconds: int, cores: list[int]) -> Values:
        write("proc/stat", stat({core: [seconds * 50, 0, 0, seconds * 50 + core, 0, 0, 0, 0, 0, 0] for core in cores}))
        return player.sample(seconds * SECOND)

    def units(values: Values) -> list[int]:
        return sorted(unit for name, unit in values if name == "cpu_utilization")

    player = start()
    assert units(at(1, [0, 1, 3])) == []
    assert units(at(2, [0, 1, 3])) == [0, 1, 3]
    assert units(at(3, [0, 3])) == [0, 3]
    assert units(at(4, [0, 1, 3, 500])) == [0, 3]  # 1 was away: its difference is not that of this interval
    assert units(at(5, [500, 3, 1, 0])) == [0, 1, 3, 500]
    assert units(at(6, [8191, 8192, 4294967296])) == []
    assert units(at(7, [8191, 8192, 4294967296])) == [8191]


def test_256_cores_against_plain_python(start: Start, write: Write) -> None:
    choice = random.Random(5)
    now = {core: [choice.randrange(10**9) for _ in range(10)] for core in range(256)}
    player = start()
    write("proc/stat", stat(now))
    player.sample(0)
    for number in range(1, 20):
        before, now = now, {core: [ticks + choice.choice([0, 1, 7, 50]) for ticks in row] for core, row in now.items()}
        write("proc/stat", stat(now))
        values = player.sample(number * SECOND)
        if number > 1:
            assert player.allocations == 0
        for core, row in now.items():
            gone = [b - a for a, b in zip(before[core], row, strict=True)][:8]
            if sum(gone) == 0:
                assert ("cpu_utilization", core) not in values
                continue
            assert values["cpu_utilization", core] == pytest.approx(100 * (sum(gone) - gone[3] - gone[4]) / sum(gone), abs=ROUNDED)
            assert values["cpu_iowait", core] == pytest.approx(100 * gone[4] / sum(gone), abs=ROUNDED)


LIMIT = 2**64 - 1


def test_numbers_at_the_limits(start: Start, write: Write) -> None:
    player = start()
    write("proc/stat", stat({0: [LIMIT - 50, 0, 0, LIMIT - 100, 0, 0, 0, 0], 1: [0] * 8, 2: [LIMIT] * 8, 3: [5] * 8}))
    write("proc/diskstats", f"8 0 sda {LIMIT - 1} 0 {LIMIT} 0 0 0 0 0 0 0 0\n")
    write("proc/net/dev", f"eth0: {2**63} 0 0 0 0 0 0 0 {LIMIT - 10} 0 0 0 0 0 0 0\n")
    player.sample(0)
    write("proc/stat", stat({0: [LIMIT, 0, 0, LIMIT - 50, 0, 0, 0, 0], 1: [LIMIT] * 8, 2: [LIMIT] * 8, 3: [5] * 7 + [10**30]}))
    write("proc/diskstats", f"8 0 sda {LIMIT} 0 {LIMIT} 0 0 0 0 0 0 0 0\n")
    write("proc/net/dev", f"eth0: {2**63 + 1} 0 0 0 0 0 0 0 {LIMIT} 0 0 0 0 0 0 0\n")
    values = player.sample(1)
    assert values["cpu_utilization", 0] == 50
    assert not any(("cpu_utilization", core) in values for core in (1, 2, 3))
    assert values["disk_iops", -1] == pytest.approx(1e9)
    assert values["network_transmit", -1] == pytest.approx(10e9)
    player.sample(2**63 - 1)
    assert ("disk_iops", -1) not in player.sample(5)  # a clock that runs backwards: no rate
    assert ("disk_iops", -1) in player.sample(6)


MEMINFO = "MemTotal: {} kB\nMemFree: 100 kB\n{}Buffers: 50 kB\nCached: 250 kB\nShmem: 30 kB\nSlab: 99 kB\nSReclaimable: 80 kB\n"


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        (MEMINFO.format(1000, "MemAvailable: 400 kB\n"), 60),
        (MEMINFO.format(1000, ""), 55),  # before Linux 3.14: 100 + 50 + 250 + 80 - 30 of 1000 are available
        (MEMINFO.format(1000, "MemAvailable: 1400 kB\n"), 0),
        (MEMINFO.format(1000, "MemAvailable: 0 kB\n"), 100),
        (MEMINFO.format(0, "MemAvailable: 0 kB\n"), None),
        ("MemTotal: 1000 kB\nMemFree: 10 kB\n", None),
        ("MemTotal: 1000 kB\nMemAvailable: 40", None),  # cut within a number
        ("MemTotal: x kB\nMemAvailable: 40 kB\n", None),
        ("", None),
        (f"MemTotal: {LIMIT} kB\nMemAvailable: {LIMIT // 2} kB\n", 50),
        ("MemTotal: 99999999999999999999999 kB\nMemAvailable: 40 kB\n", None),
    ],
)
def test_memory(start: Start, write: Write, text: str, percent: float | None) -> None:
    write("proc/meminfo", text)
    player = start()
    values = player.sample(SECOND)
    assert values.get(("memory_used_percent", -1)) == (percent if percent is None else pytest.approx(percent))
    assert player.result == (0 if percent is not None else -61)


def disks(**counters: tuple[int, int, int, int]) -> str:
    """Reads, sectors read, writes and sectors written; other fields are noise."""
    rows = enumerate(counters.items())
    return "".join(
        f" 259 {i:7} {name.replace('_', '-')} {r} 71 {sr} 72 {w} 73 {sw} 74 0 75 76 77 78 79\n" for i, (name, (r, sr, w, sw)) in rows
    )


DISKS = [
    "sda",
    "sda1",
    "nvme0n1",
    "nvme0n1p1",
    "nvme0c1n1",
    "loop0",
    "ram0",
    "zram0",
    "dm_0",
    "md127",
    "sr0",
    "xvda1",
    "mmcblk0",
    "mmcblk0p2",
]


@pytest.mark.parametrize("with_sys", [False, True])
def test_disks(start: Start, write: Write, tmp_path: Path, with_sys: bool) -> None:
    if with_sys:
        (tmp_path / "sys/block").mkdir(parents=True)
        for disk in [*(name.replace("_", "-") for name in DISKS if name not in ("sda1", "nvme0n1p1", "mmcblk0p2")), "bcache0"]:
            (tmp_path / "sys/block" / disk).mkdir()
        (tmp_path / "sys/block/bcache0/slaves/sda").mkdir(parents=True)
        (tmp_path / "sys/block/sda/slaves").mkdir()
    names = [*DISKS, *(["bcache0"] if with_sys else [])]
    write("proc/diskstats", disks(**dict.fromkeys(names, (10, 100, 20, 200))))
    player = start()
    player.sample(0)
    # after two seconds: disk number i of the list 2^i reads, 3 * 2^i sectors read, 5 * 2^i writes, 7 * 2^i sectors written more
    write("proc/diskstats", disks(**{name: (10 + 2**i, 100 + 3 * 2**i, 20 + 5 * 2**i, 200 + 7 * 2**i) for i, name in enumerate(names)}))
    values = player.sample(2 * SECOND)
    counted = sum(2 ** names.index(name) for name in ("sda", "nvme0n1", "xvda1", "mmcblk0"))
    assert values["disk_iops", -1] == pytest.approx(6 * counted / 2)
    assert values["disk_read", -1] == pytest.approx(512 * 3 * counted / 2)
    assert values["disk_write", -1] == pytest.approx(512 * 7 * counted / 2)


def test_disks_that_come_go_and_reset(start: Start, write: Write) -> None:
    def at(seconds: int, **counters: int) -> float | None:
        write("proc/diskstats", disks(**{name: (reads, 0, 0, 0) for name, reads in counters.items()}))
        return player.sample(seconds * SECOND).get(("disk_iops", -1))

    player = start()
    assert at(1, sda=100, sdb=100) is None
    assert at(2, sda=110, sdb=105) == 15
    assert at(3, sda=120) == 10
    assert at(4, sda=121, sdb=500, sdc=9) == 1  # a new device counts after its second sample
    assert at(5, sdc=19, sdb=500, sda=123) == 12
    assert at(6, sda=3, sdb=600, sdc=19) is None  # sda began again: the sum would be too small
    assert at(7, sda=4, sdb=600, sdc=19) == 1
    assert at(8) is None
    assert at(9, sda=5) is None
    for second in range(10, 200):  # many names over time take no more room
        assert at(second, **{f"sd{'abcdefghij'[i]}{'abcdefghij'[second % 10]}": second for i in range(10)}) is None
    assert player.allocations == 0


def net(**counters: tuple[int, int]) -> str:
    head = "Inter-|   Receive                   |  Transmit\n face |bytes    packets errs drop fifo frame|bytes    packets\n"
    return head + "".join(f"{name:>6}:{r:8} 1 2 3 4 5 6 7 {t:8} 1 2 3 4 5 6 7\n" for name, (r, t) in counters.items())


@pytest.mark.parametrize(("hardware", "received"), [(["eth0", "ib0"], 11), (["eth0"], 1), ([], 1111), (["lo"], 1111)])
def test_network(start: Start, write: Write, tmp_path: Path, hardware: list[str], received: int) -> None:
    """With hardware interfaces only those count; in a container, all but lo."""
    for name in ("lo", "eth0", "ib0", "veth1", "docker0"):
        (tmp_path / "sys/class/net" / name / ("device" if name in hardware else "queues")).mkdir(parents=True)
    write("proc/net/dev", net(lo=(10**6, 10**6), eth0=(5, 6), ib0=(0, 0), veth1=(1, 2), docker0=(2**63 - 1000, 7)))
    player = start()
    player.sample(0)
    new = net(lo=(2 * 10**6, 10**7), eth0=(505, 1006), ib0=(5000, 10000), veth1=(50001, 100002), docker0=(2**63 + 499000, 1000007))
    write("proc/net/dev", new)
    values = player.sample(SECOND // 2)
    assert values["network_receive", -1] == pytest.approx(1000 * received)
    assert values["network_transmit", -1] == pytest.approx(2000 * received)
    write("proc/net/dev", new.replace(" 505 ", " 504 "))
    assert ("network_receive", -1) not in player.sample(SECOND)


def test_a_device_that_cannot_be_read_spoils_the_sum(start: Start, write: Write) -> None:
    """Better no value than one that is too small."""
    names = {"network_receive", "disk_iops"}
    full = {"proc/net/dev": net(eth0=(5, 6), eth1=(7, 8)), "proc/diskstats": disks(sda=(1, 2, 3, 4), sdb=(1, 2, 3, 4))}
    player = start()
    for text, expected in [
        (full, set()),
        (full, names),
        ({path: text[:-20] for path, text in full.items()}, set()),
        (full, set()),  # the previous value of the device that is back is unknown
        (full, names),
        ({path: text.replace(" 3 ", " x ", 1) for path, text in full.items()}, set()),
        ({path: text + "what?\n" for path, text in full.items()}, set()),
        ({path: text + f" 8 0 {'n' * 70}: 1 2 3 4 5 6 7 8 9 10\n" for path, text in full.items()}, set()),
        (full, set()),
        (full, names),
    ]:
        for path, content in text.items():
            write(path, content)
        assert {name for name, _ in player.sample((player.samples + 1) * SECOND)} & names == expected


def pressure(values: Values) -> dict[str, float]:
    return {name: value for (name, _), value in values.items() if name.startswith("psi.")}


def test_pressure(start: Start, write: Write) -> None:
    def put(some: int, full: int) -> None:
        for which in ("cpu", "memory", "io"):
            lines = [f"{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n" for kind, total in (("some", some), ("full", full))]
            write(f"proc/pressure/{which}", "".join(lines))

    player = start()
    put(1000, 500)
    assert pressure(player.sample(0)) == {}
    put(1000 + 500_000, 500 + 20_000)
    values = pressure(player.sample(2 * SECOND))
    assert values == {"psi.cpu_some": 25, "psi.memory_some": 25, "psi.memory_full": 1, "psi.io_some": 25, "psi.io_full": 1}
    put(10**9, 100)
    values = pressure(player.sample(3 * SECOND))
    assert values == {"psi.cpu_some": 100, "psi.memory_some": 100, "psi.io_some": 100}
    write("proc/pressure/cpu", "some avg10=0.00 total=\nsome\n\nsome avg10=1.00 total=12 3\nsome total=7\n full total=8\n")
    assert ("psi.cpu_some", -1) not in player.sample(4 * SECOND)


def cgroup2(write: Write, root: str = "/", mount: str = "/sys/fs/cgroup", group: str = "/job.slice/run 1.scope") -> None:
    write("proc/self/cgroup", f"0::{group}\n")
    mounts = ["22 1 8:1 / / rw - ext4 /dev/sda rw", "23 22 0:5 / /proc rw shared:5 - proc proc rw", "cut off - cgroup2"]
    mounts.append(f"31 22 0:27 {root} {mount} rw,nosuid shared:9 master:1 - cgroup2 cgroup2 rw,nsdelegate")
    write("proc/self/mountinfo", "\n".join([*mounts, ""]))


def group_values(values: Values) -> dict[str, float]:
    return {name.removeprefix("cgroup."): value for (name, _), value in values.items() if name.startswith("cgroup.")}


def test_cgroup_version_2(start: Start, write: Write) -> None:
    """The parent has the tighter quota, the process's group the tighter limit."""
    cgroup2(write)
    parent, rows = "sys/fs/cgroup/job.slice", "sys/fs/cgroup/job.slice/run 1.scope"
    write("sys/fs/cgroup/cpu.stat", "usage_usec 1\n")
    write(f"{parent}/cpu.max", "250000 100000\n")
    write(f"{parent}/cpu.stat", "usage_usec 77\nnr_periods 100\nnr_throttled 10\nthrottled_usec 5\n")
    write(f"{parent}/memory.max", "8000000\n")
    write(f"{parent}/memory.current", "7000000\n")
    write(f"{rows}/cpu.max", "max 100000\n")
    write(f"{rows}/cpu.stat", "usage_usec 77\nnr_periods 0\nnr_throttled 0\nthrottled_usec 5\n")
    write(f"{rows}/memory.max", "4000000\n")
    write(f"{rows}/memory.current", "3000000\n")
    player = start()
    expected = {"cpu_quota_cores": 2.5, "memory_limit_bytes": 4e6, "memory_used_bytes": 3e6}
    assert group_values(player.sample(0)) == expected
    assert not any(key.startswith("cgroup") for key in player.capabilities)
    write(f"{parent}/cpu.stat", "usage_usec 77\nnr_periods 108\nnr_throttled 12\nthrottled_usec 5\n")
    assert group_values(player.sample(SECOND)) == {"throttled_percent": 25, "memory_used_bytes": 3e6}
    assert group_values(player.sample(2 * SECOND)) == {"memory_used_bytes": 3e6}  # no period went by: nothing is known
    write(f"{parent}/cpu.stat", "nr_periods 5\nnr_throttled 2\n")
    assert group_values(player.sample(3 * SECOND)) == {"memory_used_bytes": 3e6}
    write(f"{rows}/cpu.max", "50000 100000\n")
    write(f"{rows}/memory.max", "max\n")
    write(f"{rows}/memory.current", "3000")  # cut
    expected = {"cpu_quota_cores": 0.5, "memory_limit_bytes": 8e6, "memory_used_bytes": 7e6}
    assert group_values(player.sample(5 * SECOND)) == expected
    write(f"{parent}/memory.max", "max\n")
    write(f"{rows}/memory.current", "3001\n")
    write(f"{rows}/cpu.stat", "nr_periods 4\nnr_throttled 4\n")
    expected = {"cpu_quota_cores": 0.5, "memory_used_bytes": 3001, "throttled_percent": 100}
    assert group_values(player.sample(10 * SECOND)) == expected
    assert player.allocations == 0


@pytest.mark.parametrize(
    ("root", "mount", "group", "folder"),
    [
        ("/", "/sys/fs/cgroup", "/", ""),
        ("/docker/abc", "/sys/fs/cgroup", "/docker/abc", ""),
        ("/docker/abc", "/sys/fs/cgroup", "/docker/abc/sub", "/sub"),
        ("/docker/abc", "/sys/fs/cgroup", "/docker/abcd", ""),  # another group: the mount's top is all that can be seen
        ("/", "/sys/fs/cgroup", "/../../elsewhere", ""),
        ("/", "/sys/fs/cgroup", "/gone (deleted)", ""),
        ("/", r"/sys/fs/c\040g\134", "/a:b", "/a:b"),
    ],
)
def test_where_the_cgroup_is(start: Start, write: Write, root: str, mount: str, group: str, folder: str) -> None:
    cgroup2(write, root, mount, group)
    path = mount.replace(r"\040", " ").replace(r"\134", "\\").lstrip("/") + folder
    write(f"{path}/cpu.max", "150000 100000\n")
    assert group_values(start().sample(0)) == {"cpu_quota_cores": 1.5}


def test_cgroup_version_1(start: Start, write: Write) -> None:
    """Controllers have their own hierarchies, with version 2 mounted next to them."""
    write("proc/self/cgroup", "9:name=systemd:/\n4:memory:/docker/abc\n1:cpu,cpuacct:/docker/abc\n0::/\n")
    mounts = [f"3{i} 22 0:3{i} / /sys/fs/cgroup/{name} rw - cgroup cgroup rw,{name}" for i, name in enumerate(["cpuset", "memory"])]
    mounts += [
        "40 22 0:40 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct",
        "41 22 0:41 / /sys/fs/cgroup/unified rw - cgroup2 none rw",
    ]
    write("proc/self/mountinfo", "\n".join([*mounts, ""]))
    write("sys/fs/cgroup/unified/cgroup.procs", "")
    write("sys/fs/cgroup/cpuset/cpuset.cpus", "0\n")
    for folder, quota, limit in (
        ("", "-1", "9223372036854771712"),
        ("/docker", "-1", "500000"),
        ("/docker/abc", "70000", "9223372036854771712"),
    ):
        write(f"sys/fs/cgroup/cpu,cpuacct{folder}/cpu.cfs_quota_us", f"{quota}\n")
        write(f"sys/fs/cgroup/cpu,cpuacct{folder}/cpu.cfs_period_us", "20000\n")
        write(f"sys/fs/cgroup/cpu,cpuacct{folder}/cpu.stat", "nr_periods 10\nnr_throttled 3\nthrottled_time 8\n")
        write(f"sys/fs/cgroup/memory{folder}/memory.limit_in_bytes", f"{limit}\n")
        write(f"sys/fs/cgroup/memory{folder}/memory.usage_in_bytes", f"{len(folder)}\n")
    player = start()
    assert group_values(player.sample(0)) == {"cpu_quota_cores": 3.5, "memory_limit_bytes": 500000, "memory_used_bytes": 7}
    write("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.stat", "nr_periods 20\nnr_throttled 4\nthrottled_time 8\n")
    assert group_values(player.sample(SECOND)) == {"throttled_percent": 10, "memory_used_bytes": 7}


def test_nothing_there(start: Start, tmp_path: Path) -> None:
    player = start()
    assert {name for name, _ in player.sample(0)} == {"sampler.cost_us", "sampler.interval_ms"}
    assert player.result == -61  # no data
    assert player.capabilities["cpu"] == f"{tmp_path}/proc/stat: not there"
    assert set(player.capabilities) == {
        "cpu", "memory", "disk", "network", "psi.cpu", "psi.memory", "psi.io", "cgroup.cpu", "cgroup.memory",
    }  # fmt: skip
    player.sample(1)
    assert (player.result, player.allocations) == (-61, 0)


def test_every_cut_and_every_changed_byte(start: Start, write: Write, tmp_path: Path) -> None:
    """Files cut anywhere, or with any byte changed, give no value out of range."""
    texts = {
        "proc/stat": stat({0: [100, 10, 50, 1000, 70, 4, 6, 1, 30, 2], 11: [5] * 10}),
        "proc/meminfo": MEMINFO.format(1000, "MemAvailable: 400 kB\n"),
        "proc/diskstats": disks(sda=(1, 2, 3, 4), sda1=(1, 2, 3, 4)),
        "proc/net/dev": net(lo=(1, 1), eth0=(5, 6)),
        "proc/pressure/io": "some avg10=0.00 avg60=0.00 avg300=0.00 total=55\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
        "sys/fs/cgroup/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/cpu.stat": "nr_periods 10\nnr_throttled 3\nthrottled_usec 8\n",
        "sys/fs/cgroup/memory.max": "1000\n",
        "sys/fs/cgroup/memory.current": "500\n",
    }
    cgroup2(write, group="/")
    for path, text in texts.items():
        write(path, text)
    player = start()
    ticks = 0
    choice = random.Random(1)
    for path, text in texts.items():
        data = text.encode()
        changed = [data[:at] + bytes([choice.randrange(256)]) + data[at + 1 :] for at in range(len(data))]
        for damaged in itertools.chain((data[:at] for at in range(len(data))), changed):
            (tmp_path / path).write_bytes(damaged)
            ticks += 3 * SECOND
            for (name, _), value in player.sample(ticks).items():
                assert value <= 100 or not name.endswith(("_percent", "_utilization", "_iowait", "_some", "_full"))
            assert player.result == 0
        write(path, text)
    player.sample(ticks + SECOND)
    assert ("cpu_utilization", 0) not in player.sample(ticks + 2 * SECOND)
    for _ in range(60):  # damaged descriptions of the cgroups, in a fresh sampler each
        for path in ("proc/self/cgroup", "proc/self/mountinfo"):
            data = (tmp_path / path).read_bytes()
            at = choice.randrange(len(data))
            (tmp_path / path).write_bytes(choice.choice([data[:at], data[:at] + bytes([choice.randrange(256)]) + data[at + 1 :]]))
            second = start()
            second.sample(0)
            second.close()
            (tmp_path / path).write_bytes(data)


def test_files_longer_than_the_buffer(start: Start, write: Write) -> None:
    write(
        "proc/stat",
        "cpu 1 2 3 4\n" + "".join(f"cpu{core} 1 2 3 4 5 6 7 8 9 {'0' * 200}\n" for core in range(8000)) + "intr" + " 0" * 10**6 + "\n",
    )
    player = start()
    player.sample(0)
    write(
        "proc/stat",
        "cpu 1 2 3 4\n" + "".join(f"cpu{core} 2 2 3 5 5 6 7 8 9 {'0' * 200}\n" for core in range(8000)) + "intr" + " 0" * 10**6 + "\n",
    )
    values = player.sample(1)
    assert values["cpu_utilization", 7999] == 50
    assert player.allocations == 0


def test_interval_grows_where_samples_cost_too_much(start: Start, write: Write) -> None:
    write("proc/meminfo", MEMINFO.format(1000, ""))
    player = start(interval_ms=100)
    player.tell("cost", 1_000_001)  # one per cent is 1 ms
    first = player.sample(0)
    assert first["sampler.interval_ms", -1] == 100
    assert first["sampler.cost_us", -1] == pytest.approx(1000.001)
    intervals = [(player.sample(ticks), player.interval_ms)[1] for ticks in range(1, 10)]
    assert intervals == [100, 100, 200, 200, 200, 200, 200, 200, 200]
    assert (
        player.capabilities["sampler.interval"]
        == "a sample took 1000 us, more than 1% of 100 ms: longer intervals, see sampler.interval_ms"
    )
    player.tell("cost", 10**9)
    changes = [
        values["sampler.interval_ms", -1] for ticks in range(40) if ("sampler.interval_ms", -1) in (values := player.sample(100 + ticks))
    ]
    assert changes == [400, 800, 1600, 3200, 6400, 12800, 25600, 51200, 60000]
    player.tell("cost", 10_000)
    for ticks in range(60):
        assert player.interval_ms == 60000
        player.sample(1000 + ticks)
    assert player.interval_ms == 30000
    for ticks in range(600):
        player.sample(2000 + ticks)
    assert player.interval_ms == 100  # not less than requested


def test_one_dear_sample_changes_nothing(start: Start, write: Write) -> None:
    write("proc/meminfo", MEMINFO.format(1000, ""))
    player = start(interval_ms=100)
    for ticks, cost in enumerate([9 * 10**6, 10**6, 10**7, 10**7, 10**6, 10**7]):
        player.tell("cost", cost)
        player.sample(ticks)
    assert player.interval_ms == 100
    assert "sampler.interval" not in player.capabilities


def test_a_session_that_takes_no_more(start: Start, write: Write) -> None:
    write("proc/meminfo", MEMINFO.format(1000, ""))
    player = start()
    player.tell("error", -12)
    player.sample(0)
    assert player.result == -12
    player.tell("error", 0)
    player.sample(1)
    assert player.result == 0


# ---------------------------------------------------------------- perf counters (made up)

EVENTS = ["ref_cycles", "itlb_misses", "cycles", "instructions"]
linux = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc/stat")


def own_cores() -> list[int]:
    return [int(line.split()[0][3:]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu") and line[3] != " "]


def perf_values(values: Values) -> dict[str, float]:
    return {name.removeprefix("perf."): value for (name, _), value in values.items() if name.startswith("perf.")}


@linux
@pytest.mark.skipif(len(own_cores() if Path("/proc/stat").exists() else []) > 32, reason="more cores than the driver has counters for")
def test_perf_counters(start: Start) -> None:
    """10 s enabled, 4 s running on each core: counts are scaled by 2.5."""
    player = start(real_trees=True)
    for event in range(4):
        player.tell("perf", event, 0)
    player.sample(0)
    cores = own_cores()
    assert not any(key.startswith("perf") for key in player.capabilities)
    for core in cores:
        player.tell("counters", core, 7, 4, 0, 0, 1, 2, 3, 4)
    assert perf_values(player.sample(SECOND)) == {}
    for core in cores:
        player.tell("counters", core, 7, 4, 10 * SECOND, 4 * SECOND, 1001, 202, 30003, 40004)
    expected = {"ref_cycles": 1000, "itlb_misses": 200, "cycles": 30000, "instructions": 40000}
    got = perf_values(player.sample(11 * SECOND))
    assert got == pytest.approx({name: len(cores) * 2.5 * count / 10 for name, count in expected.items()})
    for core in cores:  # enabled and never running: how much was it? Nobody knows
        player.tell("counters", core, 7, 4, 20 * SECOND, 4 * SECOND, 1001, 202, 30003, 40004)
    assert perf_values(player.sample(12 * SECOND)) == {}
    for core in cores:
        player.tell("counters", core, 7, 4, 21 * SECOND, 5 * SECOND, 1001, 212, 30003, 40004)
    assert perf_values(player.sample(13 * SECOND))["itlb_misses"] == pytest.approx(10 * len(cores))
    assert perf_values(player.sample(14 * SECOND)) == {}  # nothing to read
    for core in cores:
        player.tell("counters", core, 7, 4, 22 * SECOND, 6 * SECOND, 1000, 212, 30003, 40004)
    assert perf_values(player.sample(15 * SECOND)) == {}
    player.tell("steal", cores[-1])  # a descriptor that is another file now is left alone
    for core in cores:
        player.tell("counters", core, 7, 4, 23 * SECOND, 7 * SECOND, 1001, 212, 30003, 40004)
    assert perf_values(player.sample(16 * SECOND)) == {}


@linux
@pytest.mark.skipif(len(own_cores() if Path("/proc/stat").exists() else []) > 32, reason="more cores than the driver has counters for")
def test_perf_counters_that_are_missing(start: Start) -> None:
    player = start(real_trees=True)
    for event, error in enumerate([0, 2, 0, 13]):  # no such counter; not allowed
        player.tell("perf", event, error)
    player.sample(0)
    assert player.capabilities["perf.itlb_misses"] == "perf_event_open: this machine (or virtual machine) has no such counter"
    assert "CAP_PERFMON" in player.capabilities["perf.instructions"]
    for seconds in (1, 2):
        for core in own_cores():
            player.tell("counters", core, 5, 2, seconds * SECOND, seconds * SECOND, 70 * seconds, 90 * seconds)
        values = player.sample(seconds * SECOND)
    cores = len(own_cores())
    assert perf_values(values) == {"ref_cycles": 70 * cores, "cycles": 90 * cores}


@linux
@pytest.mark.skipif(len(own_cores() if Path("/proc/stat").exists() else []) > 32, reason="more cores than the driver has counters for")
def test_perf_counters_beyond_the_cores_counters(start: Start) -> None:
    player = start(real_trees=True)
    for event in range(4):
        player.tell("perf", event, 0)
    player.tell("full", 3)
    player.sample(0)
    assert player.capabilities == {
        **{key: why for key, why in player.capabilities.items() if not key.startswith("perf")},
        "perf.instructions": "perf_event_open: the cores have too few counters to count this beside the others",
    }


# ---------------------------------------------------------------- the machine itself


def read_cores() -> dict[int, list[int]]:
    rows = [line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu") and line[3] != " "]
    return {int(row[0][3:]): [int(ticks) for ticks in row[1:9]] for row in rows}


def read_devices() -> dict[str, int]:
    """The sums over disks and network interfaces that have a hardware device in /sys."""
    disks = [
        row for line in Path("/proc/diskstats").read_text().splitlines() if Path("/sys/block", (row := line.split())[2], "device").exists()
    ]
    rows = [line.replace(":", " ").split() for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    interfaces = [row for row in rows if Path("/sys/class/net", row[0], "device").exists()] or [row for row in rows if row[0] != "lo"]
    return {
        "disk_iops": sum(int(row[3]) + int(row[7]) for row in disks),
        "disk_read": sum(512 * int(row[5]) for row in disks),
        "disk_write": sum(512 * int(row[9]) for row in disks),
        "network_receive": sum(int(row[1]) for row in interfaces),
        "network_transmit": sum(int(row[9]) for row in interfaces),
    }


@linux
def test_this_machine(start: Start) -> None:
    """The sampler's values are between readings just inside and just outside."""
    player = start(real_trees=True)
    outer_first, outer_devices, started = read_cores(), read_devices(), time.monotonic_ns()
    player.sample(started)
    inner_first, inner_devices = read_cores(), read_devices()
    time.sleep(1.0)
    inner = {name: value - inner_devices[name] for name, value in read_devices().items()}
    inner_last, ended = read_cores(), time.monotonic_ns()
    values = player.sample(ended)
    outer_last = read_cores()
    outer = {name: value - outer_devices[name] for name, value in read_devices().items()}
    assert player.result == 0
    pairs = ((inner_first, inner_last), (outer_first, outer_last))
    for core in inner_first:
        busy = [sum(last[core][i] - first[core][i] for i in (0, 1, 2, 5, 6, 7)) for first, last in pairs]
        total = [sum(b - a for a, b in zip(first[core], last[core], strict=True)) for first, last in pairs]
        if min(total) > 2:  # idle time and I/O wait are each rounded to a tick
            low, high = 100 * busy[0] / (total[1] + 2), 100 * busy[1] / (total[0] - 2)
            assert low <= values["cpu_utilization", core] <= high
    for name, value in inner.items():
        if (name, -1) in values:
            moved = values[name, -1] * (ended - started) / SECOND
            assert value - 0.5 <= moved <= outer[name] + 0.5
        else:
            assert name.split("_")[0] in player.capabilities
    numbers = dict(line.split()[:2] for line in Path("/proc/meminfo").read_text().splitlines())
    used = 100 - 100 * int(numbers["MemAvailable:"]) / int(numbers["MemTotal:"])
    assert values["memory_used_percent", -1] == pytest.approx(used, abs=5)
    for which in ("cpu", "memory", "io"):
        assert (f"psi.{which}_some", -1) in values or f"psi.{which}" in player.capabilities
    assert player.allocations == 0


@linux
def test_against_psutil(start: Start) -> None:
    psutil = pytest.importorskip("psutil")
    player = start(real_trees=True)
    psutil.cpu_percent(percpu=True)
    player.sample(time.monotonic_ns())
    time.sleep(1.0)
    values = player.sample(time.monotonic_ns())
    measured = psutil.cpu_percent(percpu=True)
    assert psutil.virtual_memory().percent == pytest.approx(values["memory_used_percent", -1], abs=5)
    for core, percent in enumerate(measured):  # the two look at the clock ticks a little apart
        assert values["cpu_utilization", core] == pytest.approx(percent, abs=15)
