"""Measures what the shapes and stacks of operators cost: processor time of ``postrun ingest`` and bytes of the run store.

usage: python benchmarks/signatures.py [--events 1000000] [--runs 5] [--keep FOLDER]

A made trace in the profiler's own layout has Python functions, operators with shapes, types, strides, concrete inputs, sequence numbers,
call stacks and modules, launches, and kernels with occupancy. It is read as it is, and with the members under other names of the same
length, so that the text is equally long: without shapes and stacks, and without all of the members. The runs alternate; the medians are
printed. The last result is in benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import gzip
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

SHAPES = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs", "Call stack", "Module Hierarchy")
MEMBERS = (*SHAPES, "Sequence number", "Fwd thread id", "est. achieved occupancy %", "blocks per SM")
VARIANTS = {"all members": (), "without shapes and stacks": SHAPES, "without any": MEMBERS}  # label -> members that are not read
CPU = """
import os, sys
pid = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print()
print(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
"""
HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85028831232, "numSms": 132}
  ],
  "traceEvents": [
"""
EVENT = """  {{
    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {tid},
    "ts": {ts}.{ns:03}, "dur": {dur}.{ns:03},
    "args": {{
      {args}
    }}
  }}"""
OPERATORS = (
    ("aten::linear", 3), ("aten::addmm", 5), ("aten::mul", 2), ("aten::add", 3), ("aten::layer_norm", 6), ("aten::gelu", 2),
    ("aten::transpose", 3), ("aten::view", 2), ("aten::bmm", 2), ("aten::_softmax", 3), ("AddmmBackward0", 1), ("aten::sum", 4),
)  # fmt: skip


def signatures(count: int, rng: random.Random) -> list[tuple[str, str]]:
    """Return names and arguments of distinct calls of operators."""
    calls = []
    for number in range(count):
        name, inputs = OPERATORS[number % len(OPERATORS)]
        tensors = [[rng.choice((8, 16, 1024, 4096, 50257)) for _ in range(rng.randint(1, 4))] for _ in range(min(inputs, 3))]
        dims = str(tensors + [[]] * (inputs - len(tensors)))
        types = ", ".join(['"c10::BFloat16"'] * len(tensors) + ['"Scalar"'] * (inputs - len(tensors)))
        strides = str([[4096, 1][: len(tensor)] for tensor in tensors] + [[]] * (inputs - len(tensors)))
        concrete = ", ".join(['""'] * len(tensors) + [f'"{number % 7}"'] * (inputs - len(tensors)))
        layer = number % 24
        stack = ";".join(f"/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py({1739 + i}): _call_impl" for i in range(3))
        stack += f";/home/user/train/model.py({100 + layer}): forward;/home/user/train/train.py(88): train_step"
        modules = f"TOP(Model)::forward.layers.{layer}(Block)::forward.mlp(MLP)::forward"
        calls.append((
            name,
            f'"Concrete Inputs": [{concrete}], "Input type": [{types}], "Input Strides": {strides}, "Input Dims": {dims},'
            f' "Call stack": "{stack}", "Module Hierarchy": "{modules}"',
        ))  # fmt: skip
    return calls


def events(count: int) -> Iterator[str]:
    """Yield groups of two Python functions, two operators, a launch and a kernel."""
    rng = random.Random(23)
    calls = signatures(2000, rng)
    functions = [f"/home/user/train/model.py({line}): forward" for line in range(200)] + [f"nn.Module: Linear_{n}" for n in range(100)]
    for group in range(count // 6):
        start, ns = 1_700_000_000_000_000 + 90 * group + rng.randint(0, 30), rng.randint(0, 999)
        length = int(rng.lognormvariate(3.4, 0.3)) % 60 + 8  # of the kernel; the host's calls vary like it
        correlation = 10 + group
        for depth in range(2):
            args = f'"Python parent id": {2 * group + depth}, "Python id": {2 * group + depth + 1}, "Ev Idx": {group}'
            name = functions[(group + depth * 37) % len(functions)]
            yield EVENT.format(
                category="python_function", name=name, pid=77, tid=77, ts=start + depth, dur=length + 10 - depth, ns=ns, args=args
            )
        for depth in range(2):
            name, inputs = calls[(group * 2 + depth) % len(calls)]
            args = f'"External id": {2 * group + depth}, "Record function id": 0, {inputs}, "Ev Idx": {group}'
            if group % 2:
                args += f', "Sequence number": {group}, "Fwd thread id": {group % 4 // 2}'
            yield EVENT.format(
                category="cpu_op", name=name, pid=77, tid=77, ts=start + 3 + depth, dur=length + 4 - 2 * depth, ns=ns, args=args
            )
        args = f'"External id": {2 * group + 1}, "cbid": 211, "correlation": {correlation}'
        yield EVENT.format(
            category="cuda_runtime", name="cudaLaunchKernel", pid=77, tid=77, ts=start + 8, dur=length // 8, ns=ns, args=args
        )
        args = (
            f'"External id": {2 * group + 1}, "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {correlation},'
            f' "registers per thread": 32, "shared memory": 0, "blocks per SM": {group % 400 / 66:.6f},'
            f' "grid": [{group % 400 * 2}, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": {group % 101}'
        )
        name = f"void at::native::vectorized_elementwise_kernel<4, Functor{group % 300}>(int, Functor{group % 300})"
        yield EVENT.format(category="kernel", name=name, pid=0, tid=7, ts=start + 14, dur=length, ns=ns, args=args)


def write(folder: Path, count: int) -> dict[str, Path]:
    """Write the trace, and copies of it with other names for members."""
    traces = {label: folder / f"{label.replace(' ', '-')}.rank-0.json.gz" for label in VARIANTS}
    if not all(trace.exists() for trace in traces.values()):
        with ExitStack() as stack:
            files = {label: stack.enter_context(gzip.open(trace, "wt", compresslevel=3)) for label, trace in traces.items()}
            for number, event in enumerate(events(count)):
                for label, file in files.items():
                    text = (",\n" if number else HEAD) + event
                    for member in VARIANTS[label]:
                        text = text.replace(f'"{member}"', f'"{member[:-1]}~"')
                    file.write(text)
            for file in files.values():
                file.write("\n  ]\n}\n")
    return traces


def ingest(trace: Path, store: Path) -> tuple[float, float, int]:
    """Return processor seconds, peak MiB and bytes of the store."""
    command = [sys.executable, "-P", "-m", "postrun.cli", "ingest", str(trace), "-o", str(store)]
    text = subprocess.run([sys.executable, "-I", "-S", "-c", CPU, *command], stdout=subprocess.PIPE, text=True, check=True).stdout
    code, seconds, peak = text.split()[-3:]
    if code != "0":
        sys.exit(text)
    return float(seconds), int(peak) / 1024, store.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="folder for the traces; made once, reused")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        traces = write(folder, options.events)
        results: dict[str, list[tuple[float, float, int]]] = {label: [] for label in traces}
        for _ in range(options.runs):
            for label, trace in traces.items():
                results[label].append(ingest(trace, folder / "run.duckdb"))
        medians = {label: [statistics.median(column) for column in zip(*runs, strict=True)] for label, runs in results.items()}
        complete, _, complete_size = medians["all members"]
        for label, (seconds, peak, size) in medians.items():
            print(f"{label}: {seconds:.2f} s, {peak:.0f} MiB peak, store of {size / 1e6:.1f} MB", end="; ")
            print(f"with all: {100 * (complete / seconds - 1):+.1f}% processor time, {100 * (complete_size / size - 1):+.1f}% store")


if __name__ == "__main__":
    main()
