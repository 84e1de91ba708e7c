"""LowPrecision: matrix work in FP32 on devices whose matrix units are faster in a lower precision (docs/rules.md).

FP8 and FP4 are named, but not counted: they require another library and a change of the model.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import polars as pl

from ...device.coverage import union_lengths
from ...device.precision import MATRIX_CATEGORIES
from ...efficiency.kernel_classes import KernelGroup, signatures
from ...efficiency.largest_site import Site, largest_site
from ...report.causes import Program
from ...report.device import DeviceTime
from ...report.run import Device
from ...report.trace_details import LowPrecisionDetails, MatrixDevice, MatrixKernel, MatrixOperator, PrecisionShare
from ...toolkit.labels import place, short_model
from ...toolkit.places import one_of, process_conditions
from ...toolkit.shares import percent_of, shares
from ...toolkit.wording import duration, percent, plural, shape_text, significant, threshold_text
from ..evidence.base import Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.device_share import above, gpus, no_device_activity, span_of_all, steps_of, with_work_outside
from ..evidence.frameworks import BF16, FP8, FP16, TF32
from ..evidence.matrix_units import ORDER, matrix_units, speed_up
from ..evidence.run_data import RunData

_KERNELS: Final[dict[str, type[pl.DataType]]] = {
    "node": pl.String, "device": pl.Int32, "name": pl.String, "category": pl.String, "precision": pl.String, "count": pl.Int64,
    "time": pl.Int64,
}  # fmt: skip
_SWITCHES: Final = ("TF32", "BF16", "FP16")  # precisions that a switch in PyTorch turns on
_NOT_LOWER: Final = ("FP32", "FP64", "unknown")
_IN_USE_PERCENT: Final = 10.0  # share of the matrix time in a lower precision from which it is in use already
_UNKNOWN_PERCENT: Final = 5.0  # the finding reports a share of unknown precision of at least this percentage
_NO_KERNELS: Final = (
    "no GEMM, attention or convolution kernels in this run",
    "Profile steps that run the model, with torch.profiler on CUDA activity.",
)


class LowPrecision(Rule):
    name = "LowPrecision"
    category = "trace"
    parameters = (Parameter("threshold", "%", 30, 30, "percentile", "share of the matrix time of a device that may run in FP32"),)
    needs = "A profiler trace with the activity of the GPUs, such as a trace of torch.profiler with CUDA activity."
    checks = (
        "Measures how much of the GEMM, attention and convolution time runs in FP32 on devices with matrix units for a lower precision."
    )
    condition = (
        "FP32 kernels (TF32 does not count) take more than `threshold` of the GEMM, attention and convolution time of any device with"
        " matrix units for a lower precision"
    )
    advice = "Allow TF32, or train under BF16 or FP16 autocast."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        if not any(kernel.category in MATRIX_CATEGORIES for kernel in run.kernels):
            return not_evaluated(*_NO_KERNELS)
        kernels = _matrix_kernels(run)
        if kernels.is_empty():
            return not_evaluated(*_NO_KERNELS)
        rows = _rows(run, kernels, parameters["threshold"])
        judged = [row for row in rows if row.details.issue is not None]
        if not judged:
            return _left_out(rows)
        return _judged(run, kernels, rows, judged, parameters["threshold"])

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        assert isinstance(outcome.details, LowPrecisionDetails)
        main = next(iter(outcome.details.operators or ()), None)
        return Site(main.module, main.line) if main and (main.module or main.line) else None


@dataclass(frozen=True, slots=True)
class _Row:
    """A device with matrix kernels. ``units``: None if they are unknown."""

    device: Device
    units: tuple[str, ...] | None
    details: MatrixDevice

    @property
    def key(self) -> tuple[str, int]:
        return (self.device.node, self.device.index)

    @property
    def switches(self) -> tuple[str, ...]:
        return tuple(precision for precision in _SWITCHES if precision in (self.units or ()))


def _matrix_kernels(run: RunData) -> pl.DataFrame:
    """Return the matrix kernels by device and name."""
    names = {row["id"]: row["short_name"] for row in run.kernel_sums}
    sums: dict[tuple[str, int | None, str, str, str], list[int]] = {}
    for group in run.kernel_groups:
        if group.classes.category in MATRIX_CATEGORIES:
            key = (_host(run, group.process), group.device, names.get(group.kernel, ""), group.classes.category, group.classes.precision)
            values = sums.setdefault(key, [0, 0])
            values[0] += group.count
            values[1] += group.total
    rows = [(*key, *values) for key, values in sums.items() if values[1] > 0]
    return pl.DataFrame(rows, schema=_KERNELS, orient="row")


def _host(run: RunData, process: int | None) -> str:
    """Return the node of a process; events of a node alone belong to the only node."""
    return run.nodes[0].hostname if process is None and len(run.nodes) == 1 else run.places.process(process).node


def _rows(run: RunData, kernels: pl.DataFrame, threshold: float) -> list[_Row]:
    listed = {(device.node, device.index): device for device in reversed(run.devices)}
    time, precision = pl.col("time"), pl.col("precision")
    sums = kernels.group_by("node", "device").agg(
        time.sum(), fp32=time.filter(precision == "FP32").sum(), unknown=time.filter(precision == "unknown").sum()
    )
    rows = []
    for node, index, total, fp32, unknown in sums.sort("node", "device").rows():
        device = listed.get((node, index)) or Device(node, index, None, None, None, None, None, None, used=True)
        units = matrix_units(device)
        details = MatrixDevice.of(
            device,
            device=index,
            matrix_units=units or (),
            eligible=bool(units),
            matrix_ns=total,
            fp32_ns=fp32,
            unknown_ns=unknown,
            fp32_percent=percent_of(fp32, total),
            issue=above(fp32, total, threshold) if units and unknown < total else None,
        )
        rows.append(_Row(device, units, details))
    return rows


def _left_out(rows: list[_Row]) -> Outcome:
    details = LowPrecisionDetails(tuple(row.details for row in rows))
    if any(row.units for row in rows):
        reason = "the precision of the matrix kernels is unknown"
        return not_evaluated(reason, "Record shapes (`record_shapes=True`): the types of the operators' inputs show it.", details=details)
    named = sorted({short_model(row.device.name) or "" for row in rows if row.units is not None} - {""})
    if all(row.units is not None for row in rows):
        return not_evaluated(f"no matrix units for a precision below FP32 on {' and '.join(named) or 'these GPUs'}", details=details)
    models = sorted({row.device.name for row in rows if row.device.name and row.units is None})
    unknown = f"GPUs called {' and '.join(models)}" if models else "GPUs that the trace does not name"
    return not_evaluated(
        f"whether {unknown} have matrix units for a precision below FP32 is not known",
        "A trace of torch.profiler names the GPUs (deviceProperties) with their compute capability.",
        details=details,
    )


def _judged(run: RunData, kernels: pl.DataFrame, rows: list[_Row], judged: list[_Row], threshold: float) -> Outcome:
    bad = sorted((row for row in judged if row.details.issue), key=lambda row: -row.details.fp32_ns)
    keys = pl.DataFrame([row.key for row in judged], schema={"node": pl.String, "device": pl.Int32}, orient="row")
    counted = kernels.join(keys, on=["node", "device"], how="semi")
    matrix, fp32 = sum(row.details.matrix_ns for row in judged), sum(row.details.fp32_ns for row in judged)
    units = {precision for row in bad or judged for precision in row.units or ()}
    operators = _operators(run, {row.key for row in bad or judged})
    return concluded(
        bad,
        len(judged),
        [(device.first_ns, device.first_ns + device.span_ns) for device in _of(run, bad)],
        details=LowPrecisionDetails(
            devices=tuple(row.details for row in rows),
            shares=tuple(
                PrecisionShare(share.name, share.total_ns, share.percent)
                for share in shares(counted.select("precision", "time", "count").rows())
            ),
            kernels=_kernels(counted, run.top),
            fp32_ns=fp32,
            matrix_ns=matrix,
            fp32_percent=percent_of(fp32, matrix),
            alternatives=tuple(precision for precision in ORDER if precision in units),
            operators=operators,
        ),
        finding=_finding(run, judged, bad, len(rows) - len(judged), threshold) + _largest(operators if bad else ()),
        recommendation=_recommendation(bad, _in_use(counted, bad), run.program) if bad else None,
        cost=_cost(run, rows, bad) if bad else None,
    )


def _of(run: RunData, rows: list[_Row]) -> list[DeviceTime]:
    keys = {row.key for row in rows}
    return [device for device in run.breakdown if (device.node, device.device) in keys]


def _kernels(counted: pl.DataFrame, top: int) -> tuple[MatrixKernel, ...]:
    """Return the FP32 kernels and then the others, each longest first."""
    names = ["name", "category", "precision"]
    ranked = counted.group_by(names).agg(pl.col("count", "time").sum()).sort(
        pl.col("precision") != "FP32", "time", *names, descending=[False, True, False, False, False]
    )  # fmt: skip
    return tuple(MatrixKernel(*row) for row in ranked.head(top).select(*names, "count", "time").iter_rows())


def _operators(run: RunData, devices: set[tuple[str, int]]) -> tuple[MatrixOperator, ...]:
    """Return the operators of the FP32 matrix work of some devices, longest first."""
    inputs = signatures(run.store) if any(group.signature is not None for group in run.kernel_groups) else {}
    calls: dict[tuple[str, str | None], list[KernelGroup]] = defaultdict(list)
    for group in run.kernel_groups:
        fp32 = group.classes.precision == "FP32" and group.classes.category in MATRIX_CATEGORIES
        if fp32 and group.operator is not None and (_host(run, group.process), group.device) in devices:
            call = inputs.get(group.signature)
            calls[group.operator, shape_text(call.dims) if call else None].append(group)
    rows = (_operator(run, operator, shape, groups) for (operator, shape), groups in calls.items())
    return tuple(sorted(rows, key=lambda row: (-row.time_ns, row.operator, row.shape or "")))[: run.top]


def _operator(run: RunData, operator: str, shape: str | None, groups: list[KernelGroup]) -> MatrixOperator:
    unknown = ("", "")
    site = largest_site((*run.origins.get(group.site, unknown), group.total) for group in groups) or Site(None, None)
    count, time = sum(group.count for group in groups), sum(group.total for group in groups)
    return MatrixOperator(operator, shape, count, time, site.module, site.line)


def _largest(operators: tuple[MatrixOperator, ...]) -> str:
    """Name the longest FP32 matrix work in a sentence; "" without operators."""
    if not operators:
        return ""
    main = operators[0]
    shape = f" with inputs of {main.shape}" if main.shape else ""
    return f" The largest part is {duration(main.time_ns)} of `{main.operator}`{shape}."


def _finding(run: RunData, judged: list[_Row], bad: list[_Row], left_out: int, threshold: float) -> str:
    top = max(bad or judged, key=lambda row: row.details.fp32_percent)
    counted = bad or [top]
    matrix, fp32 = sum(row.details.matrix_ns for row in counted), sum(row.details.fp32_ns for row in counted)
    unknown = percent_of(sum(row.details.unknown_ns for row in counted), matrix)
    where = gpus(len(bad), len(judged)) if len(bad) > 1 else _label(run, top)
    most = "at most " if not bad and len(judged) > 1 else ""
    text = (
        f"FP32 takes {most}{duration(fp32)} of the {duration(matrix)} of GEMM, attention and convolution kernels on {where},"
        f" {percent(percent_of(fp32, matrix))} (threshold {threshold_text(threshold)})"
    )
    if unknown >= _UNKNOWN_PERCENT:
        text += f"; the precision of another {percent(unknown)} is unknown"
    if left_out:
        text += f"; {plural(left_out, 'GPU is', 'GPUs are')} left out"
    return f"{text}."


def _label(run: RunData, row: _Row) -> str:
    users = _of(run, [row])
    return place(row.device.node, users[0].rank if len(users) == 1 else None, row.device.index)


def _in_use(counted: pl.DataFrame, bad: list[_Row]) -> tuple[str, float] | None:
    """Return the lower precision that takes most of the matrix time, and its percent.

    It is one of the matrix units. None if it takes less than a tenth: a few kernels do not show mixed precision."""
    keys = pl.DataFrame([row.key for row in bad], schema={"node": pl.String, "device": pl.Int32}, orient="row")
    kernels = counted.join(keys, on=["node", "device"], how="semi")
    units = sorted({precision for row in bad for precision in row.units or ()})
    lower = (
        kernels.filter(~pl.col("precision").is_in(_NOT_LOWER), pl.col("precision").is_in(units))
        .group_by("precision")
        .agg(pl.col("time").sum())
    )
    if lower.is_empty():
        return None
    precision, time = lower.sort("time", "precision", descending=[True, False]).row(0)
    share = percent_of(time, int(kernels["time"].sum()))
    return (precision, share) if share >= _IN_USE_PERCENT else None


def _recommendation(bad: list[_Row], in_use: tuple[str, float] | None, program: Program) -> str:
    main = bad[0]
    switches, model = main.switches, short_model(main.device.name) or "this GPU"
    if in_use:
        time = duration(sum(row.details.fp32_ns for row in bad))
        return (
            f"Find the modules whose matrix work stays in FP32 for {time}, and run them in {in_use[0]} as well, in which"
            f" {percent(in_use[1])} of the matrix work runs already: the table of this rule lists the kernels."
        )
    if "TF32" in switches:
        change = TF32.of(program)
    elif "BF16" in switches:
        change = BF16.of(program)
    else:
        change = f"{FP16.of(program)} (the matrix units of {model} take FP16 alone)"
    listed = " and ".join(part for part in (", ".join(switches[:-1]), switches[-1]) if part)
    why = f"{duration(sum(row.details.fp32_ns for row in bad))} of matrix work in FP32 leave the matrix units for {listed} unused"
    fastest = speed_up(main.device, switches)
    if fastest:
        why += f", and the peak of {model} in {fastest[0]} is {significant(fastest[1])} times that in FP32"
    further = [precision for precision in ("FP8",) if precision in (main.units or ())]
    return f"{change}, because {why}." + (FP8.of(program) if further else "")


def _cost(run: RunData, rows: list[_Row], bad: list[_Row]) -> Cost:
    lengths = _union_of_fp32(run)
    ns = {row.key: min(lengths.get(row.key, 0), row.details.fp32_ns) for row in bad}
    gains = [(row, speed_up(row.device, row.switches)) for row in bad]
    saving = None
    if all(gain for _, gain in gains):
        saving = sum(round(ns[row.key] * (1 - 1 / gain[1])) for row, gain in gains if gain)
    steps, unknown = steps_of(run), with_work_outside(run)
    users = [(steps.get((device.node, device.rank, device.pid), 0), (device.node, device.device)) for device in _of(run, bad)]
    number = 0 if any((device.node, device.rank, device.pid) in unknown for device in _of(run, bad)) else sum(n for n, _ in users)
    of_ns = span_of_all(run)
    total = min(sum(ns.values()), of_ns)
    return Cost(
        title="Run matrix work in lower precision",
        ns=total,
        of_ns=of_ns,
        saving_ns=None if saving is None else min(saving, total),
        per_step_ns=sum(ns[key] for key in {key for n, key in users if n}) / number if number else None,
        where=_label(run, bad[0]) if len(bad) == 1 else None if len(bad) == len(rows) else gpus(len(bad), len(rows)),
    )


def _union_of_fp32(run: RunData) -> dict[tuple[str, int], int]:
    """Return the length of the union of each device's kernels with FP32 matrix work.

    A kernel that does other work as well counts in full."""
    places = run.places
    names = {
        group.kernel for group in run.kernel_groups if group.classes.precision == "FP32" and group.classes.category in MATRIX_CATEGORIES
    }
    lengths: dict[tuple[str, int], int] = {}
    for condition in process_conditions(run.store):
        events = run.store.frame(f"""
            SELECT e.node, e.process, e.device, e.start_ns AS start, e.start_ns + e.duration_ns AS "end"
            FROM device_event AS e WHERE e.kind = 'kernel' AND {one_of("e.name", names)} AND {condition}
        """)
        for (node, _, device), length in union_lengths(events).items():
            key = (places.node(node), device)
            lengths[key] = lengths.get(key, 0) + length
    return lengths
