"""LowOccupancy: long kernels whose grids leave most multiprocessors of the GPU without work (docs/rules.md).

A kernel with fewer blocks than the GPU has multiprocessors leaves the others idle for all of its time, whatever its code does. A larger
grid could save at most the idle share, and never more than the distance from the roof of the operator.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import Final

import polars as pl

from ...efficiency.largest_site import Site
from ...report.device import Kernel, LaunchConfiguration
from ...report.work_details import LowOccupancyDetails, SmallGridKernel
from ...toolkit.shares import percent_of
from ...toolkit.wording import count, duration, percent, plural, threshold_text
from ..evidence.base import Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.device_share import no_device_activity, span_of_all
from ..evidence.run_data import RunData

_CONCURRENT: Final = 1.1  # kernel time over the time with any kernel, from which kernels share the GPU
_NEEDED: Final = "grid and block of the kernels, and the number of multiprocessors"


class LowOccupancy(Rule):
    name = "LowOccupancy"
    category = "trace"
    parameters = (
        Parameter("threshold", "%", 5, 5, "percentile", "share of the kernel time that one kernel with small grids may take"),
        Parameter("filled", "%", 25, 25, "percentile", "blocks of a small grid, at most, of the multiprocessors of the GPU"),
        Parameter("short_us", "µs", 10, 10, "positive", "a kernel with a shorter mean duration is left out"),
    )
    needs = "A profiler trace with the grids of the kernels, such as a trace of torch.profiler with CUDA activity."
    checks = "Finds kernels that take much time with blocks for a quarter of the multiprocessors of the GPU at most."
    condition = (
        "a kernel with grids of at most `filled` blocks per 100 multiprocessors and a mean duration of at least `short_us` takes more than"
        " `threshold` of the kernel time; communication does not count"
    )
    advice = (
        "Give each kernel more work: larger batches, several inputs in one call, or an algorithm that splits the work over more blocks."
    )

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        every = run.launch_configurations
        measured = [row for row in every.rows if row.blocks_per_sm is not None and row.category != "communication"]
        if not measured:
            return not_evaluated(f"the run does not have {_NEEDED}", "Profile with torch.profiler on CUDA activity.")
        compute = sum(max(0, device.kernel_total_ns - device.communication_ns) for device in run.breakdown)
        if compute > _CONCURRENT * sum(device.computation_ns for device in run.breakdown):
            return not_evaluated("kernels share the GPU: a small grid leaves its multiprocessors to others")
        rows = _rows(run, measured, parameters)
        bad = [row for row in rows if row.issue]
        ns = sum(row.time_ns for row in bad)
        return concluded(
            bad,
            len({row.name for row in measured}),
            details=LowOccupancyDetails(tuple(rows[: max(run.top, len(bad))])),
            finding=_finding(rows, parameters),
            recommendation=_recommendation(bad) if bad else None,
            cost=Cost("Fill all multiprocessors of the GPU", ns, max(ns, span_of_all(run)), sum(row.saving_ns for row in bad))
            if bad
            else None,
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        assert isinstance(outcome.details, LowOccupancyDetails)
        return run.site_of_work(pl.col("text").is_in([kernel.name for kernel in outcome.details.kernels if kernel.issue]))


def _rows(run: RunData, measured: list[LaunchConfiguration], parameters: Parameters) -> list[SmallGridKernel]:
    """Return the kernels with small grids, longest time in these first."""
    total = sum(row["total_ns"] for row in run.kernel_sums)
    small: dict[str, list[LaunchConfiguration]] = defaultdict(list)
    for row in measured:
        if 100 * (row.blocks_per_sm or 0.0) <= parameters["filled"]:
            small[row.name].append(row)
    kernels = {kernel.name: kernel for kernel in run.located_kernels}
    rows = [_row(kernels[name], listed, total, parameters) for name, listed in small.items() if name in kernels]
    return sorted(rows, key=lambda row: (-row.time_ns, row.name))


def _row(kernel: Kernel, listed: list[LaunchConfiguration], total: int, parameters: Parameters) -> SmallGridKernel:
    main = max(listed, key=lambda row: (row.total_ns, row.grid or ()))
    time, runs = sum(row.total_ns for row in listed), sum(row.count for row in listed)
    blocks = prod(main.grid or ())
    # The roof of the operator is that of all executions; a higher one bounds the saving further.
    roof = min(100.0, kernel.percent_of_roof or 0.0) / 100
    saving = sum(round(row.total_ns * (1 - max(row.blocks_per_sm or 0.0, roof))) for row in listed)
    long = time >= runs * parameters["short_us"] * 1000
    return SmallGridKernel(
        name=kernel.short_name,
        category=kernel.category,
        operator=kernel.operator,
        shape=kernel.shape,
        blocks=blocks,
        multiprocessors=round(blocks / (main.blocks_per_sm or 1.0)),
        occupancy_percent=kernel.occupancy_percent,
        percent_of_roof=kernel.percent_of_roof,
        count=runs,
        time_ns=time,
        percent=percent_of(time, total),
        saving_ns=max(0, saving),
        issue=long and 100 * time > parameters["threshold"] * total and saving > 0,
    )


def _finding(rows: list[SmallGridKernel], parameters: Parameters) -> str:
    limit = f"threshold {threshold_text(parameters['threshold'])}"
    bad = [row for row in rows if row.issue]
    if not rows:
        return f"No kernel has grids of at most {threshold_text(parameters['filled'])} of the multiprocessors ({limit})."
    main = (bad or rows)[0]
    occupancy = "" if main.occupancy_percent is None else f", at an occupancy of {percent(main.occupancy_percent)}"
    operator = f" of `{main.operator}`" if main.operator else ""
    shape = f" with inputs of {main.shape}" if main.operator and main.shape else ""
    if len(bad) > 1:
        time, share = duration(sum(row.time_ns for row in bad)), percent(sum(row.percent for row in bad))
        return (
            f"{count(len(bad))} kernels with small grids take {time}, {share} of the kernel time ({limit} each). The longest is"
            f" `{main.name}`{operator}{shape}: {plural(main.blocks, 'block')} on {main.multiprocessors} multiprocessors for"
            f" {duration(main.time_ns)}{occupancy}."
        )
    return (
        f"The kernel `{main.name}`{operator}{shape} runs in {plural(main.blocks, 'block')} on {main.multiprocessors} multiprocessors for"
        f" {duration(main.time_ns)}, {percent(main.percent)} of the kernel time ({limit}){occupancy}."
    )


def _recommendation(bad: list[SmallGridKernel]) -> str:
    main = bad[0]
    called = f"each call of `{main.operator}`" if main.operator else f"each launch of `{main.name}`"
    if main.category == "attention":
        how = "a larger batch, or an implementation that splits the keys and values over blocks, as flash decoding does"
    elif main.category == "convolution":
        how = "a larger batch"
    elif main.category == "GEMM":
        how = "a larger batch, several inputs in one product (`torch.bmm`, a grouped product), or a split of the summed dimension (split-K)"
    else:
        how = "a larger batch, or one call over several tensors instead of a call for each"
    idle = 100 - percent_of(main.blocks, main.multiprocessors)
    return f"Give {called} more work: {how}. Now {percent(idle)} of the multiprocessors have no block while it runs."
