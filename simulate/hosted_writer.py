"""Output of a hosted profiler: system metrics, the steps of the workers, and end markers."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from random import Random

from .job import SECOND, Job
from .training_run import Problems, Rank
from .truth import RankTruth

CORES = 16
_LOADER_CORES = range(4, 8)
_PHASE_IDS = {
    "Step:ModeKeys.TRAIN": 1,
    "Step:ModeKeys.EVAL": 2,
    "Forward": 3,
    "Backward(post-forward)": 4,
    "DataLoaderIter": 5,
    "DataLoaderIterInitialize": 6,
}
# Per phase: utilization of a training process's core, of a loader's core, of the others; I/O wait of a loader's core.
_CPU = {
    "init": (61.0, 8.0, 6.0, 14.0),
    "train": (93.0, 54.0, 5.0, 3.0),
    "stall": (90.0, 16.0, 4.0, 71.0),
    "evaluation": (92.0, 41.0, 5.0, 3.0),
    "tail": (3.0, 2.0, 2.0, 1.0),
}
# Per phase: I/O per second, bytes read, written, and exchanged with other nodes per second.
_TRAFFIC = {
    "init": (410.0, 310e6, 2e6, 4e6),
    "train": (960.0, 205e6, 1e6, 7.6e9),
    "stall": (120.0, 31e6, 1e6, 1.5e9),
    "evaluation": (720.0, 150e6, 1e6, 2e6),
    "tail": (240.0, 1e6, 120e6, 1e6),
}


def _hour(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds // SECOND, tz=UTC).strftime("%Y%m%d%H")


def _gpu_utilization(job: Job, truth: RankTruth, phase: str) -> tuple[float, float]:
    """Return the percentages of time with kernels and with memory accesses on a GPU."""
    if phase not in ("train", "stall", "evaluation"):
        return 0.0, 0.0
    active = 100 * truth.busy_ns / truth.span_ns
    memory = 52 * truth.computation_ns / truth.span_ns
    if phase == "stall":
        steps = [step for step in job.after if job.phase(step.start) == "stall"]
        working = sum(step.end - step.loader_end for step in steps) / sum(step.end - step.start for step in steps)
        return active * working, memory * working
    return (0.93 * active, 0.8 * memory) if phase == "evaluation" else (active, memory)


def _write_system(folder: Path, node: str, job: Job, truths: list[RankTruth], seed: int) -> None:
    """Write one file per minute with a line per metric and second."""
    random = Random(seed * 10_007 - 3 - int(node.removeprefix("algo-"))).random
    phases = {job.phase(time) for time in job.sample_times}
    levels = {phase: [_gpu_utilization(job, truth, phase) for truth in truths] for phase in phases}
    minutes: dict[int, list[str]] = {}
    for second, time in enumerate(job.sample_times):
        phase = job.phase(time)
        stamp = f'"NodeId":"{node}","Timestamp":{time // SECOND}.0'
        lines = minutes.setdefault(time // SECOND // 60 * 60, [])
        trainer, loader, idle, io_wait = _CPU[phase]
        for core in range(CORES):
            level = trainer if core < len(truths) else loader if core in _LOADER_CORES else idle
            wait = io_wait if core in _LOADER_CORES else 0.2
            if phase == "tail" and core == 0:
                level, wait = 97.0, 2.0  # one process packs the checkpoint
            head = f'{{"Type":"cpu","Name":"cpu{core}","Dimension":'
            used = min(100.0, level * (0.96 + 0.08 * random()))
            waited = min(100.0 - used, wait * (0.8 + 0.4 * random()))
            lines.append(f'{head}"CPUUtilization","Value":{used:.2f},{stamp}}}')
            lines.append(f'{head}"I/OWaitPercentage","Value":{waited:.2f},{stamp}}}')
        for unit, (active, controller) in enumerate(levels[phase]):
            head = f'{{"Type":"gpu","Name":"gpu{unit}","Dimension":'
            lines.append(f'{head}"GPUUtilization","Value":{min(100, active * (0.99 + 0.02 * random())):.0f}.00,{stamp}}}')
            value = controller * (0.97 + 0.06 * random())
            lines.append(f'{head}"GPUMemoryUtilization","Value":{value:.0f}.00,{stamp}}}')
        used = 6.0 + 25.0 * min(1.0, second / 120) + 0.2 * random()
        lines.append(f'{{"Type":"memory","Name":"MemoryUsedPercent","Dimension":"","Value":{used:.2f},{stamp}}}')
        operations, read, written, exchanged = (value * (0.92 + 0.16 * random()) for value in _TRAFFIC[phase])
        for name, value in (
            ("IOPS", operations),
            ("ReadThroughputInBytesPerSecond", read),
            ("WriteThroughputInBytesPerSecond", written),
        ):
            lines.append(f'{{"Type":"i/o","Name":"{name}","Dimension":"","Value":{value:.2f},{stamp}}}')
        for name in ("ReceiveBytesPerSecond", "TransmitBytesPerSecond"):
            value = exchanged * (0.99 + 0.02 * random())
            lines.append(f'{{"Type":"network","Name":"{name}","Dimension":"Algorithm","Value":{value:.2f},{stamp}}}')
    for minute, lines in minutes.items():
        path = folder / "incremental" / _hour(minute * SECOND) / f"{minute}.{node}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="ascii", newline="\n")


def _write_steps(folder: Path, rank: Rank, job: Job, problems: Problems) -> None:
    """Write the phases of a worker in files of a minute, named after their last end."""
    base = job.sample_times[0] // 1000
    head = [f'{{"name": "process_name", "ph": "M", "pid": 0, "args": {{"start_time_since_epoch_in_micros": {base}}}}}']
    for phase, number in _PHASE_IDS.items():
        head.append(f'{{"name": "process_name", "ph": "M", "pid": {number}, "args": {{"name": "{phase}"}}}}')
        head.append(f'{{"name": "process_sort_index", "ph": "M", "pid": {number}, "args": {{"sort_index": {number}}}}}')

    lines: list[str] = []

    def add(phase: str, start: int, end: int, arguments: str) -> None:
        begin = start // 1000 - base
        lines.append(
            f'{{"name": "{phase}", "pid": {_PHASE_IDS[phase]}, "ph": "X", "ts": {begin}, '
            f'"dur": {end // 1000 - base - begin}, "args": {{"pid": {rank.pid}, {arguments}}}}}'
        )

    def write(last_end: int) -> None:
        end = last_end // 1000
        path = folder / _hour(last_end) / f"{end}_{rank.rank}-{rank.node}_pythontimeline.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("[\n" + ",\n".join([*head, *lines]) + "\n]\n", encoding="ascii", newline="\n")
        lines.clear()

    steps = job.steps_of(rank)
    workers, pinned = (4, "False") if problems.data_stall else (CORES, "True")
    add(
        "DataLoaderIterInitialize",
        steps[0].start - 700 * 1_000_000,
        steps[0].start - 20 * 1_000_000,
        f'"num_workers": "{workers}", "pin_memory": "{pinned}"',
    )
    opened = steps[0].start
    numbers = {"TRAIN": 0, "EVAL": 0}
    for step in steps:
        arguments = f'"step_num": "{numbers[step.mode]}"'
        numbers[step.mode] += 1
        add("DataLoaderIter", step.start, step.loader_end, arguments)
        add("Forward", step.loader_end, step.forward_end, arguments)
        if step.mode == "TRAIN":
            add("Backward(post-forward)", step.forward_end, step.backward_end, arguments)
        add(f"Step:ModeKeys.{step.mode}", step.start, step.end, arguments)
        if step.end - opened > 60 * SECOND or step is steps[-1]:
            write(step.end)
            opened = step.end


def write_hosted(folder: Path, job: Job, truths: tuple[RankTruth, ...], problems: Problems, seed: int) -> None:
    """Write the tree of a hosted profiler's output for the whole job."""
    for rank in job.lead_ranks:
        _write_system(folder / "system", rank.node, job, [t for t in truths if t.node == rank.node], seed)
        _write_steps(folder / "framework" / "pevents", rank, job, problems)
    for part in ("system", "framework"):
        (folder / part / "training_job_end.ts").touch()
