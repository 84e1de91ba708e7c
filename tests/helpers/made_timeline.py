"""Timelines for tests: a small one computed on paper, and one of any size with a regular pattern."""

# ruff: noqa: E501  (tables of values read better than one value per line)

from __future__ import annotations

import dataclasses

import numpy as np
from postrun.analysis.timeline.model import Events, Gap, Line, Name, Timeline, Track, View

MS = 1_000_000
US = 1_000


def _events(rows: list[tuple[int, ...]]) -> Events:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 9
    kinds = (np.int32, np.int64, np.int64, np.int32, np.int16, np.int32, np.int32, np.int64, np.int32)
    return Events(*(np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)))  # type: ignore[arg-type]


def small() -> Timeline:
    """Return one GPU with two steps of 10 ms and 20 ms, and the kernel gemm."""
    tracks = (
        Track(None, "node", "algo-1"), Track(0, "cpu", "CPU", 0), Track(0, "gpus", "GPUs"), Track(2, "process", "HOST-0 PID-7", narrow="PID-7"),
        Track(3, "steps", "Steps", 1), Track(3, "device", "GPU-0 device"), Track(5, "stream", "stream 7", 1),
        Track(5, "stream", "stream 13", 1), Track(3, "host", "GPU-0 host"), Track(8, "thread", "thread 1", 2),
    )  # fmt: skip
    names = (
        Name("step", "step", "step"), Name("void gemm<128, 64>(float*)", "gemm", "computation"), Name("ncclDevKernel_AllReduce", "AllReduce", "communication"),
        Name("cudaLaunchKernel", "cudaLaunchKernel", "launch"), Name("aten::mm", "aten::mm", "host"),
    )  # fmt: skip
    rows = [
        (4, 0, 10 * MS, 0, 0, -1, -1, -1, -1), (4, 10 * MS, 20 * MS, 0, 0, -1, -1, -1, -1),
        (6, 1_500 * US, 4 * MS, 1, 0, 6, 0, 41, 0), (6, 11_500 * US, 4 * MS, 1, 0, 8, 0, 42, 1),
        (7, 6 * MS, 3 * MS, 2, 0, -1, 1, 77, 0),
        (9, 900 * US, 200 * US, 4, 0, -1, -1, -1, 0), (9, 1 * MS, 20 * US, 3, 1, 2, -1, 41, 0),
        (9, 10_900 * US, 200 * US, 4, 0, -1, -1, -1, 1), (9, 11 * MS, 20 * US, 3, 1, 3, -1, 42, 1),
    ]  # fmt: skip
    times = np.arange(0, 30 * MS, MS, dtype=np.int64)
    mean = (50 + 40 * np.sin(np.arange(30) / 5)).astype(np.float32)
    return Timeline(
        1_700_000_000 * 10**9,
        30 * MS,
        tracks,
        names,
        _events(rows),
        ((("grid", "16 x 4 x 1"), ("block", "128 x 1 x 1"), ("registers", "64")), (("size", "16.0 MiB"), ("bytes", "16777216"))),
        (Line(1, "percent", times, mean, mean - 5, mean + 5),),
        (
            View("slowest", "step 2 of rank 0, 20.0 ms: the slowest", 10 * MS, 30 * MS, 4),
            View("typical", "step 1 of rank 0, 10.0 ms: typical", 0, 10 * MS, 4),
            View("whole", "the whole run, 30.0 ms", 0, 30 * MS, None),
        ),
        9,
        None,
    )


def queued() -> Timeline:
    """Return three kernels that run one after another, with the first 8 ms recorded."""
    result = small()
    rows = [(4, 0, 10 * MS, 0, 0, -1, -1, -1, -1), *((6, k * MS, MS, 1, 0, k, -1, k - 3, 0) for k in (4, 5, 6)),
            *((9, k * MS, 20 * US, 3, 0, k, -1, k, 0) for k in (1, 2, 3))]  # fmt: skip
    return dataclasses.replace(result, events=_events(rows), gaps=(Gap(3, 8 * MS, 30 * MS),), events_total=len(rows))


def two_ranks(origin_ns: int, span_ns: int, kernel: str, step: int = 211) -> Timeline:
    """Return ranks 0 and 7 with a step in the middle tenth, filled by ``kernel``."""
    result = small()
    tracks = (
        Track(None, "node", "algo-1"), Track(0, "gpus", "GPUs"),
        Track(1, "process", "HOST-0 PID-1000 rank 0", narrow="rank 0"), Track(2, "steps", "Steps", 1), Track(2, "device", "GPU-0 device"), Track(4, "stream", "stream 7", 1),
        Track(1, "process", "HOST-0 PID-1007 rank 7", narrow="rank 7"), Track(6, "steps", "Steps", 1), Track(6, "device", "GPU-3 device"), Track(8, "stream", "stream 7", 1),
    )  # fmt: skip
    names = (Name(f"step {step}", f"step {step}", "step"), Name(kernel, "kernel", "computation"))
    rows = [(track, 45 * span_ns // 100, span_ns // 10, name, 0, -1, -1, -1, -1) for track, name in ((3, 0), (5, 1), (7, 0), (9, 1))]
    views = (View("whole", "the whole run", 0, span_ns, None),)
    return dataclasses.replace(
        result,
        origin_ns=origin_ns,
        span_ns=span_ns,
        tracks=tracks,
        names=names,
        events=_events(rows),
        details=(),
        lines=(),
        views=views,
        events_total=4,
    )


def hostile() -> Timeline:
    """Return names that would be markup, turn the direction of text, or fill the page."""
    result = small()
    evil = "<img src=x onerror=window.pwned=1></script><script>window.pwned=2</script>"
    texts = (evil, "\u202egnp.exe\u2066\u200f" + "x" * 50, "k" * 10_000, "\x00\ud800\n\n" * 900, "'\"><svg/onload=pwned=3>")
    names = tuple(dataclasses.replace(name, name=text, short=text) for name, text in zip(result.names, texts, strict=True))
    tracks = tuple(
        dataclasses.replace(track, label=texts[number % 5][:4000], detail=texts[(number + 2) % 5], narrow=texts[(number + 1) % 5])
        for number, track in enumerate(result.tracks)
    )
    views = tuple(dataclasses.replace(view, label=texts[place]) for place, view in enumerate(result.views))
    details = ((("grid", evil), ("</dl>" + evil, "\u202e" + "y" * 10_000)), (("size", evil), ("bytes", "not a number")))
    return dataclasses.replace(result, names=names, tracks=tracks, views=views, details=details, shown=evil)


def empty() -> Timeline:
    return Timeline(0, 0, (), (), _events([]), (), (), (), 0, None)


def large(count: int = 300_000, gpus: int = 8, *, shown: str | None = "Of 2,000,000 events 300,000 are shown.") -> Timeline:
    """Return ``gpus`` processes with ``count`` events; a tenth is communication."""
    generator = np.random.default_rng(1)
    tracks = [Track(None, "node", "algo-1"), Track(0, "cpu", "CPU"), Track(0, "gpus", "GPUs")]
    names = [
        Name("step", "step", "step"), Name("cudaLaunchKernel", "cudaLaunchKernel", "launch"),
        Name("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "communication"),
        Name("Memcpy HtoD (Pinned -> Device)", "Memcpy HtoD", "memory"), Name("cudaDeviceSynchronize", "cudaDeviceSynchronize", "sync"),
        Name("data_loading", "data_loading", "annotation"), Name("aten::linear", "aten::linear", "host"),
        *(Name(f"void sm90_gemm_bf16_{k}<float, {k}>(Params)", f"sm90_gemm_bf16_{k}", "computation") for k in range(40)),
    ]  # fmt: skip
    columns: list[list[np.ndarray]] = [[] for _ in range(7)]
    lines = []
    base = 0
    each = max(40, count // gpus // 3)
    span = each * 60 * US
    steps = max(2, each // 500)
    bounds = np.sort(np.concatenate([[0, span], (np.arange(1, steps) * span // steps + generator.integers(-3, 3, steps - 1) * 2 * MS)]))
    bounds = np.clip(bounds, 0, span)

    def put(
        track: int, start: np.ndarray, duration: np.ndarray, name: np.ndarray, lane: object = 0, partner: object = -1, detail: object = -1
    ) -> None:
        nonlocal base
        size = len(start)
        for column, values in zip(columns, (track, start, duration, name, lane, partner, detail), strict=True):
            column.append(np.broadcast_to(np.asarray(values, np.int64), size))
        base += size

    for gpu in range(gpus):
        process = len(tracks)
        tracks += [
            Track(2, "process", f"HOST-0 PID-{100 + gpu}"), Track(process, "utilization", f"GPU-{gpu} utilization"), Track(process, "steps", "Steps", 1),
            Track(process, "annotations", "Annotations", 1), Track(process, "device", f"GPU-{gpu} device"), Track(process + 4, "stream", "stream 7", 1),
            Track(process + 4, "stream", "stream 20", 1), Track(process, "host", f"GPU-{gpu} host"), Track(process + 7, "thread", f"thread {4000 + gpu}", 2),
        ]  # fmt: skip
        times = np.arange(0, span, max(span // 500, 1), dtype=np.int64)
        mean = (75 + 20 * np.sin(np.arange(len(times)) / 9 + gpu)).astype(np.float32)
        lines.append(Line(process + 1, "percent", times, mean, mean - 4, np.minimum(mean + 4, 100).astype(np.float32)))
        put(process + 2, bounds[:-1], np.diff(bounds), np.zeros(steps))
        put(process + 3, bounds[:-1], np.diff(bounds) // 8, np.full(steps, 5))
        start = np.arange(each) * 60 * US + generator.integers(0, 9 * US, each)
        run = start + 25 * US
        length = generator.integers(4 * US, 34 * US, each)
        waits = (start - bounds[np.searchsorted(bounds, start, "right") - 1]) < np.diff(bounds)[
            np.searchsorted(bounds[1:-1], start, "right")
        ] // 8
        length = np.where(waits, 800, length)
        talk = np.arange(each) % 10 == 9
        first, second = int((~talk).sum()), int(talk.sum())
        here = base
        kernels = generator.integers(7, len(names), first)
        kernels[::50] = 3
        launches = np.arange(each) + here + each
        put(process + 5, run[~talk], length[~talk], kernels, 0, launches[~talk] + each, np.arange(first) % 3)
        put(process + 6, run[talk], length[talk] * 3, np.full(second, 2), 0, launches[talk] + each, 3)
        runs = np.empty(each, np.int64)
        runs[~talk] = here + np.arange(first)
        runs[talk] = here + first + np.arange(second)
        # The operators come first at equal starts; both are interleaved by time.
        begin = np.concatenate([start - 2 * US, start])
        order = np.lexsort((np.repeat([0, 1], each), begin))
        put(
            process + 8,
            begin[order],
            np.concatenate([np.full(each, 12 * US), np.full(each, 6 * US)])[order],
            np.repeat([6, 1], each)[order],
            np.repeat([0, 1], each)[order],
            np.concatenate([np.full(each, -1), runs])[order],
        )
        spot = np.empty(2 * each, np.int64)
        spot[order] = np.arange(2 * each)
        launch = here + each + spot[each:]
        columns[5][-3], columns[5][-2] = launch[~talk], launch[talk]
    kinds = (np.int32, np.int64, np.int64, np.int32, np.int16, np.int32, np.int32)
    joined = [np.maximum(np.concatenate(column), -1).astype(kind) for column, kind in zip(columns, kinds, strict=True)]
    # A number per launch, that of its launch for a run; no event knows its step.
    linked = np.where(joined[5] < 0, -1, np.minimum(np.arange(base), joined[5])).astype(np.int64)
    held = Events(*joined, linked, np.full(base, -1, np.int32))  # type: ignore[arg-type]
    held.start_ns[held.start_ns < 0] = 0
    widths = np.diff(bounds)
    slow, typical = int(widths.argmax()), int(np.argsort(widths)[len(widths) // 2])
    details = tuple((("grid", f"{16 << k} x 1 x 1"), ("block", "256 x 1 x 1"), ("registers", str(40 + k))) for k in range(3))
    details = (*details, (("size", "25.0 MiB"), ("bytes", "26214400")))
    return Timeline(
        1_763_690_000 * 10**9,
        int(span),
        tuple(tracks),
        tuple(names),
        held,
        details,
        tuple(lines),
        (
            View("slowest", f"step {slow} of rank 0: the slowest", int(bounds[slow]), int(bounds[slow + 1]), 5),
            View("typical", f"step {typical} of rank 0: of median duration", int(bounds[typical]), int(bounds[typical + 1]), 5),
            View("whole", "the whole run", 0, int(span), None),
        ),
        2_000_000,
        shown,
    )
