"""LayoutConversions: kernels that only change the layout of tensors (docs/rules.md).

The libraries of convolutions convert between NCHW and NHWC, and a program copies tensors into another order of dimensions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import polars as pl

from ...efficiency.kernel_classes import KernelGroup, signatures
from ...efficiency.largest_site import Site
from ...efficiency.layouts import CONVOLUTION, COPIES, conversions, permuting_copies
from ...report.device import DeviceTime
from ...report.rule_details import LayoutConversion, LayoutConversionsDetails, LayoutDevice
from ...toolkit.wording import duration, percent, plural, shape_text
from ..evidence.base import Outcome, Parameter, Parameters, Rule, not_evaluated
from ..evidence.device_share import DeviceShare, above, finding, issues, no_device_activity, outcome
from ..evidence.run_data import RunData

_Device = tuple[str, int | None, int | None, int | None]
_Conversions = list[tuple[KernelGroup, str]]
_CHANNELS_LAST: Final = (
    "Keep images in the layout of the kernels: `model.to(memory_format=torch.channels_last)` and"
    " `images.to(memory_format=torch.channels_last)`, each once, before the first operator"
)
_COPIES: Final = (
    "Remove the `.contiguous()`, `.clone()` or `.reshape()` after `.transpose()` or `.permute()`, or create the tensor in the order of"
    " dimensions that its users read"
)


class LayoutConversions(Rule):
    name = "LayoutConversions"
    category = "trace"
    names_code = True
    parameters = (Parameter("threshold", "%", 10, 10, "percentile", "share of a device's span that layout conversions may take"),)
    needs = "A profiler trace with kernels; copies of the program are known by their strides (`record_shapes=True`)."
    checks = "Measures the share of each device's time in kernels that only change the layout of tensors."
    condition = "transposes and copies between layouts take more than `threshold` of the span of any device"
    advice = "Keep tensors in the layout that their kernels read, such as `torch.channels_last` for convolutions."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        if not run.breakdown:
            return no_device_activity()
        if not run.kernel_groups:
            return not_evaluated("no kernels in this run")
        conversions = _conversions(run)
        times: dict[_Device, int] = defaultdict(int)
        for group, _ in conversions:
            location = run.places.process(group.process)
            times[location.node, location.rank, location.pid, group.device] += group.total
        shares = [_share(device, times, parameters["threshold"]) for device in run.breakdown]
        rows = _rows(run, conversions)
        return outcome(
            run,
            shares,
            details=LayoutConversionsDetails(tuple(map(_device, shares)), rows[: run.top]),
            finding=finding(run, shares, "Kernels that only change the layout of tensors take", parameters["threshold"]),
            title="Keep tensors in one layout",
            recommendation=_recommendation(rows) if issues(shares) else "",
            saving_ns=sum(share.ns for share in shares if share.issue),
        )

    def site(self, run: RunData, outcome: Outcome) -> Site | None:
        keys = pl.DataFrame(
            [(group.kernel, group.operator, group.signature) for group, _ in _conversions(run)],
            schema={"kernel": pl.Int32, "operator": pl.String, "signature": pl.Int32},
            orient="row",
        ).unique()
        struct = pl.struct("kernel", "operator", "signature")
        return run.site_of_work(struct.is_in(keys.select(struct).to_series().implode()))


def _conversions(run: RunData) -> _Conversions:
    names = {row["id"]: row["name"] for row in run.kernel_sums}
    copies = any(group.operator in COPIES for group in run.kernel_groups)
    return conversions(run.kernel_groups, names, permuting_copies(run.call_shapes) if copies else {})


def _share(device: DeviceTime, times: dict[_Device, int], threshold: float) -> DeviceShare:
    ns = times.get((device.node, device.rank, device.pid, device.device), 0)
    return DeviceShare(device, ns, above(ns, device.span_ns, threshold))


def _device(share: DeviceShare) -> LayoutDevice:
    return LayoutDevice.of(share.device, conversion_ns=share.ns, percent=share.percent, issue=bool(share.issue))


def _rows(run: RunData, conversions: Iterable[tuple[KernelGroup, str]]) -> tuple[LayoutConversion, ...]:
    """Return the conversions by kernel, operator and shape, longest first."""
    shorts = {row["id"]: row["short_name"] for row in run.kernel_sums}
    inputs = signatures(run.store)
    sums: dict[tuple[str, str, str | None, str | None], list[int]] = defaultdict(lambda: [0, 0])
    for group, kind in conversions:
        call = inputs.get(group.signature)
        values = sums[kind, shorts.get(group.kernel, ""), group.operator, shape_text(call.dims) if call else None]
        values[0] += group.count
        values[1] += group.total
    rows = (LayoutConversion(*key, *values) for key, values in sums.items())
    return tuple(sorted(rows, key=lambda row: (-row.time_ns, row.kernel, row.operator or "", row.shape or "")))


def _recommendation(rows: tuple[LayoutConversion, ...]) -> str:
    total = sum(row.time_ns for row in rows)
    of_library = sum(row.time_ns for row in rows if row.kind == CONVOLUTION)
    first = next(row for row in rows if (row.kind == CONVOLUTION) == (2 * of_library >= total))
    shape = f" with inputs of {first.shape}" if first.shape else ""
    operator = f" of `{first.operator}`{shape}" if first.operator else ""
    why = (
        f"{plural(sum(row.count for row in rows), 'conversion')} take {duration(total)}; the longest is `{first.kernel}`{operator},"
        f" {percent(100 * first.time_ns / total)}"
    )
    return f"{_CHANNELS_LAST if 2 * of_library >= total else _COPIES}, because {why}."
