"""Measures the cost of a sample of the system's counters, compared with other ways to read them.

    python benchmarks/sampler.py [--samples 2000] [--cores 256]

Compiles the sampler with tests/native/sampler_driver.c and takes samples one after the other, and 100 ms apart as a training job would meet
them; also the kernel's own part (the same files read, nothing parsed), a reading in plain Python and psutil if it is installed. Then a
made-up /proc with many cores, disks and interfaces shows the cost of the sampler itself, as ordinary files cost the kernel next to nothing.
All figures are processor time of the reading thread, medians, and ratios to the first row.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WRAPPED = ("malloc", "calloc", "realloc", "clock_gettime", "syscall", "ioctl")
FILES = ["stat", "meminfo", "diskstats", "net/dev", "pressure/cpu", "pressure/memory", "pressure/io"]


def build(folder: Path) -> Path:
    """Compile the driver, optimized as in a release."""
    native = ROOT / "native"
    sources = [ROOT / "tests/native/sampler_driver.c", *sorted((native / "src" / "sampler").glob("*.c"))]
    sources += [native / "src" / "gpu" / "gpu_visible.c"]
    options = ["-std=c11", "-O3", "-DNDEBUG", f"-I{native / 'src'}", f"-I{native / 'include'}"]
    wrapping = "-Wl," + ",".join(f"--wrap={name}" for name in WRAPPED)
    subprocess.run(["cc", *options, *map(str, sources), wrapping, "-o", str(folder / "driver")], check=True)
    return folder / "driver"


def sampler(driver: Path, samples: int, *, apart_s: float = 0, proc: str = "-", sys_root: str = "-") -> list[float]:
    """Processor time of each sample in microseconds, without the first two."""
    process = subprocess.Popen([str(driver), "500", proc, sys_root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    costs: list[float] = []
    for _ in range((samples + 2) if apart_s else 1):
        print("time", 1 if apart_s else samples + 2, file=process.stdin, flush=True)
        for line in iter(process.stdout.readline, "end\n"):
            costs.append(int(line) / 1000)
        time.sleep(apart_s)
    process.stdin.close()
    process.wait()
    return costs[2:]


def repeat(work: Callable[[], object], samples: int, apart_s: float = 0) -> list[float]:
    costs = []
    for _ in range(samples):
        begun = time.thread_time_ns()
        work()
        costs.append((time.thread_time_ns() - begun) / 1000)
        time.sleep(apart_s)
    return costs


def kernel() -> Callable[[], object]:
    """Read the files through open descriptors, as the sampler does, without parsing."""
    descriptors = [os.open(f"/proc/{name}", os.O_RDONLY) for name in FILES if Path("/proc", name).exists()]
    buffer = bytearray(1 << 18)

    def read() -> None:
        for descriptor in descriptors:
            os.preadv(descriptor, [buffer], 0)

    return read


def plain_python() -> object:
    """The same numbers in plain Python."""
    cores = [[int(ticks) for ticks in line.split()[1:9]] for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
    memory = {line.split()[0]: int(line.split()[1]) for line in Path("/proc/meminfo").read_text().splitlines()}
    disks = [list(map(int, line.split()[3:10])) for line in Path("/proc/diskstats").read_text().splitlines()]
    net = [list(map(int, line.split(":")[1].split())) for line in Path("/proc/net/dev").read_text().splitlines()[2:]]
    pressure = [
        path.read_text().split("total=")[1]
        for path in map(Path, ("/proc/pressure/cpu", "/proc/pressure/memory", "/proc/pressure/io"))
        if path.exists()
    ]
    return cores, memory, disks, net, pressure


def made_up(folder: Path, cores: int) -> None:
    """A machine with many cores, 16 disks of two partitions and 40 interfaces."""
    proc = folder / "proc"
    (proc / "net").mkdir(parents=True)
    lines = [f"cpu{core} {core}{core} 0 3456789 987654321 12345 0 7654 0 0 0" for core in range(cores)]
    (proc / "stat").write_text("\n".join(["cpu 1 2 3 4", *lines, "intr 123" + " 0" * 2000, ""]))
    shutil.copy("/proc/meminfo", proc / "meminfo")
    disks = [f"nvme{disk}n1{part}" for disk in range(16) for part in ("", "p1", "p2")]
    (proc / "diskstats").write_text("".join(f" 259 {i} {name} 123 0 4567 0 234 0 5678 0 0 0 0 0 0 0 0\n" for i, name in enumerate(disks)))
    for disk in range(16):
        (folder / f"sys/block/nvme{disk}n1/slaves").mkdir(parents=True)
    rows = [f"  eth{i}: 123456 12 0 0 0 0 0 0 234567 23 0 0 0 0 0 0\n" for i in range(40)]
    (proc / "net/dev").write_text("Inter-|  Receive |  Transmit\n face |bytes |bytes\n" + "".join(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--cores", type=int, default=256, help="of the made-up machine")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver = build(folder)
        made_up(folder / "machine", arguments.cores)
        samples = max(20, arguments.samples // 50)
        rows = {"sampler": sampler(driver, arguments.samples)}
        rows["the kernel's part: files read, not parsed"] = repeat(kernel(), arguments.samples)
        rows["plain Python, files opened each time"] = repeat(plain_python, arguments.samples)
        if importlib.util.find_spec("psutil") is None:
            print("psutil is not installed: no row of it", file=sys.stderr)
        else:
            psutil = importlib.import_module("psutil")

            def ask() -> None:
                psutil.cpu_times(percpu=True), psutil.virtual_memory(), psutil.disk_io_counters(), psutil.net_io_counters()

            rows["psutil: cpu_times, virtual_memory, disk_io_counters, net_io_counters"] = repeat(ask, arguments.samples)
        rows["sampler, 100 ms apart"] = sampler(driver, samples, apart_s=0.1)
        rows["the kernel's part, 100 ms apart"] = repeat(kernel(), samples, 0.1)
        machine = folder / "machine"
        figures = sampler(driver, arguments.samples, proc=str(machine / "proc"), sys_root=str(machine / "sys"))
        rows[f"sampler, made-up machine of {arguments.cores} cores, 16 disks, 40 interfaces"] = figures
    base = statistics.median(rows["sampler"])
    print("| reading | us of processor time (median) | 90th percentile | ratio |\n|---|---|---|---|")
    for label, costs in rows.items():
        median, tail = statistics.median(costs), statistics.quantiles(costs, n=10)[-1]
        print(f"| {label} | {median:.0f} | {tail:.0f} | {median / base:.2f} |")
    apart = statistics.median(rows["sampler, 100 ms apart"])
    print(f"\nShare of one core at 100 ms: {apart / 1e5:.3%}, at 500 ms: {apart / 5e5:.3%}.")


if __name__ == "__main__":
    main()
