"""Nine runs that show how a report looks at its limits, each made from code.

``python tests/helpers/odd_runs.py FOLDER [NAME...]`` writes them below FOLDER (all of them, or the named ones).
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from postrun.simulate import Problems, write_demo
from postrun.simulate import job as job_module
from postrun.simulate.hosted_writer import write_hosted
from postrun.simulate.kineto_writer import write_trace
from postrun.simulate.training_run import simulate
from postrun.simulate.truth import demo_truth

Event = dict[str, Any]
_BASE_NS: Final = 1_772_000_000_000_000_000
_PID: Final = 411
_H100: Final = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_017_493_504, "computeMajor": 9, "numSms": 132}


def _one_gpu(folder: Path) -> None:
    write_demo(folder, steps=12, problems=Problems(straggler_rank=None), nodes=1, gpus_per_node=1)


def _two_nodes(folder: Path) -> None:
    write_demo(folder, steps=16, nodes=2, gpus_per_node=8)


def _gpus_512(folder: Path) -> None:
    """Write 64 nodes of 8 GPUs with metrics, and two steps of ranks of three nodes."""
    problems = Problems(straggler_rank=509, data_stall=False)
    ranks = simulate(
        start=job_module.WINDOW_START,
        first_step=job_module.FIRST_PROFILED_STEP,
        seed=1,
        steps=2,
        problems=problems,
        nodes=64,
        gpus_per_node=8,
    )
    job = job_module.job_around(ranks, problems, 1, 8)
    job = dataclasses.replace(job, sample_times=job.sample_times[::30], before=job.before[-40:], after=job.after[:40])
    truth = demo_truth(problems, ranks, job)
    (folder / "kineto").mkdir(parents=True)
    for rank in (*ranks[:16], *ranks[-8:]):
        write_trace(folder / "kineto", rank, world_size=512, gpus_per_node=8, job_name="gpt-350m-ddp (simulated)")
    write_hosted(folder / "profiler-output", job, truth.ranks, problems, 1)


def _no_gpu(folder: Path) -> None:
    events = []
    for step in range(6):
        start = step * 40_000
        events.append(_host("user_annotation", f"ProfilerStep#{step}", start, 39_000))
        for i, name in enumerate(("aten::conv2d", "aten::batch_norm", "aten::relu", "aten::linear", "aten::cross_entropy_loss")):
            events.append(_host("cpu_op", name, start + 500 + 7000 * i, 6_500 - 900 * i))
    _write(folder, events, gpu=False)


def _no_steps(folder: Path) -> None:
    _write(folder, [event for i in range(300) for event in _launched(i, f"kernel_{i % 7}", 90 * i, 55 + i % 11)])


def _one_step(folder: Path) -> None:
    write_demo(folder, steps=1, problems=Problems(straggler_rank=None), nodes=1, gpus_per_node=1)
    shutil.rmtree(folder / "profiler-output")  # it has the steps of the whole job


def _steps_10_000(folder: Path) -> None:
    """Most take 1 ms; every 100th waits for a batch, every 2500th for long."""
    gemm, reduce = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    events, clock = [], 0
    for step in range(10_000):
        wait = 12_000 if step % 2500 == 1250 else 900 if step % 100 == 50 else 30
        events.append(_host("user_annotation", f"ProfilerStep#{step}", clock, wait + 1_000))
        events += _launched(2 * step, gemm, clock + wait, 700 + step % 13)
        events += _launched(2 * step + 1, reduce, clock + wait + 720, 180)
        clock += wait + 1_010
    _write(folder, events)


def _one_kernel(folder: Path) -> None:
    _write(folder, _launched(1, "saxpy(int, float, float const*, float*)", 0, 40))


def _kernel_names_5_000(folder: Path) -> None:
    """Write names of generated kernels: long, or different only in the middle."""
    events: list[Event] = []
    for i in range(5_000):
        depth = i % 40
        names = (
            f"triton_poi_fused_add_mul_native_layer_norm_backward_{i}",
            f"void cutlass::Kernel2<cutlass_80_tensorop_s{i}gemm_bf16_{64 << i % 3}x128_ldg8_f2f_tn_align8>(Params)",
            f"void at::native::vectorized_elementwise_kernel<{i}, " + "at::native::detail::Unrolled<" * depth + "float" + ">" * (depth + 1),
            f"k{i}",
        )
        events += _launched(i, names[i % 4], 60 * i, 20 + 4_000_000 // (i + 1) % 37)
        if i % 1_250 == 0:
            events.append(_host("user_annotation", f"ProfilerStep#{i // 1_250}", 60 * i, 60 * 1_250 - 10))
    _write(folder, events)


RUNS: Final[dict[str, Callable[[Path], None]]] = {
    "one-gpu": _one_gpu,
    "two-nodes": _two_nodes,
    "512-gpus": _gpus_512,
    "no-gpu": _no_gpu,
    "no-steps": _no_steps,
    "one-step": _one_step,
    "10000-steps": _steps_10_000,
    "one-kernel": _one_kernel,
    "5000-kernel-names": _kernel_names_5_000,
}
QUICK: Final = ("one-gpu", "no-gpu", "no-steps", "one-step", "one-kernel", "5000-kernel-names")  # Those whose report takes about a second


def write_odd_run(name: str, folder: Path) -> Path:
    """Make the run called ``name`` in ``folder``, replacing its contents."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    RUNS[name](folder)
    return folder


def _host(category: str, name: str, start: int, duration: int, **arguments: Any) -> Event:
    """Times in µs."""
    return {"ph": "X", "cat": category, "name": name, "pid": _PID, "tid": _PID, "ts": start, "dur": duration, "args": arguments}


def _launched(correlation: int, name: str, start: int, duration: int) -> list[Event]:
    """A kernel on the compute stream, and the call that launched it 8 µs before."""
    communication = name.startswith("nccl")
    call = _host("cuda_runtime", "cudaLaunchKernel", start, 5, correlation=correlation + 1)
    kernel = _host("kernel", name, start + 8, duration, correlation=correlation + 1, device=0, context=1)
    kernel["args"] |= {"stream": 20 if communication else 7, "grid": [256, 1, 1], "block": [128, 1, 1], "registers per thread": 32}
    kernel |= {"pid": 0, "tid": 20 if communication else 7}
    return [call, kernel]


def _write(folder: Path, events: Iterable[Event], *, gpu: bool = True) -> None:
    document = {
        "schemaVersion": 1,
        "deviceProperties": [_H100] if gpu else [],
        "traceEvents": list(events),
        "baseTimeNanoseconds": _BASE_NS,
        "displayTimeUnit": "ms",
    }
    data = json.dumps(document).encode("ascii")
    (folder / f"node-1_{_PID}.{_BASE_NS}.pt.trace.json.gz").write_bytes(gzip.compress(data, compresslevel=4, mtime=0))


if __name__ == "__main__":
    for name in sys.argv[2:] or RUNS:
        print(write_odd_run(name, Path(sys.argv[1]) / name))
