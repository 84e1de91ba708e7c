"""Blocks of the rules over kernels and calls: where each device's time went, and to which kernels and calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ...analysis.report import rule_details
from ..blocks import Figure, Slice, bar_rows, ring, say
from ..blocks.tables import Cell, Col, Table, table
from ..figures.axes import time_unit
from ..figures.paired_bars import paired_bars
from ..figures.stacked_bars import Part, stacked_bars
from ..text import labels
from ..text.formats import UNKNOWN, bandwidth, count, duration, percent, plural, size, threshold_text
from .communication import exposed_collectives
from .rule_context import Blocks, RuleContext, answer, device_cell, device_name, listed, marked, share

Evaluated = (
    rule_details.HostBoundDevice
    | rule_details.CommunicationDevice
    | rule_details.PageableDevice
    | rule_details.SyncBoundDevice
    | rule_details.ShortKernelsDevice
    | rule_details.ExposedCopiesDevice
    | rule_details.ChainedDevice
    | rule_details.AttentionDevice
    | rule_details.LayoutDevice
)
J = TypeVar("J", bound=Evaluated)
K = TypeVar("K", bound=rule_details.CountedTime | rule_details.ShortKernel)
Measure = Callable[[J], float | None]

_PDF_DEVICES: Final = 4  # the figure above has them all
_PDF_KERNELS: Final = 5


def host_bound(context: RuleContext, details: rule_details.HostBoundDetails) -> Blocks:
    return [
        *_by_device(
            context,
            "Idle time by device",
            details.devices,
            lambda device: device.idle_percent,
            Col("Idle", lambda device: device.idle_percent, percent),
            Col("Host wait of idle", lambda device: device.host_percent, percent),
            Col("Host wait", lambda device: device.host_wait_ns, duration),
            Col("Kernel wait", lambda device: device.kernel_wait_ns, duration),
            Col("Launched and waiting", lambda device: device.waiting_ns, duration),
            Col("Other", lambda device: device.other_ns - device.waiting_ns, duration),
            parts=(
                (Part("host wait", "host"), lambda device: device.host_wait_ns),
                (Part("kernel wait", "sync"), lambda device: device.kernel_wait_ns),
                (Part("launched and waiting", "memory"), lambda device: device.waiting_ns),
                (Part("other idle", "idle"), lambda device: device.other_ns - device.waiting_ns),
            ),
            limit="idle_threshold",
            how="Idle time of each device by its reason. Host wait: the device waited for a launch.",
        ),
        _kernels(
            context,
            "Kernels that the host launched late",
            details.kernels,
            Col("Waits", lambda kernel: kernel.count, count),
            Col("Waited for", lambda kernel: kernel.time_ns, duration),
        ),
    ]


def exposed_communication(context: RuleContext, details: rule_details.ExposedCommunicationDetails) -> Blocks:
    return [
        *_by_device(
            context,
            "Communication by device",
            details.devices,
            lambda device: device.exposed_percent,
            Col("Exposed of span", lambda device: device.exposed_percent, percent),
            Col("Exposed", lambda device: device.exposed_ns, duration),
            Col("Communication", lambda device: device.communication_ns, duration),
            Col("Overlap", lambda device: device.overlap_percent, percent),
            parts=(
                (Part("exposed communication", "communication"), lambda device: device.exposed_ns),
                (
                    Part("covered by computation", "communication", 0.5),
                    lambda device: max(0.0, device.communication_ns - device.exposed_ns),
                ),
            ),
            limit="threshold",
            how="Communication of each device; the rest of the span has none.",
        ),
        exposed_collectives(context, details),
        _kernels(
            context,
            "Communication kernels",
            details.kernels,
            Col("Runs", lambda kernel: kernel.count, count),
            Col("Time", lambda kernel: kernel.time_ns, duration),
            Col("Exposed", lambda kernel: kernel.exposed_ns, duration),
            note="Times of all ranks. Exposed: calls of a kernel that run at the same time on a device count once.",
        ),
    ]


def low_precision(context: RuleContext, details: rule_details.LowPrecisionDetails) -> Blocks:
    shares = sorted(details.shares or (), key=lambda share: -share.percent)[:8]
    lower = listed(details.alternatives)
    instead = f" These devices could compute them in {lower}." if lower else ""
    return [
        ring(
            f"{context.id}-shares",
            say("GEMM, attention and convolution on devices with matrix units for a lower precision.{}", instead),
            "Precision of matrix kernels",
            [
                Slice(share.precision, "idle" if share.precision == "unknown" else "computation", share.percent, (duration(share.time_ns),))
                for share in shares
            ],
            ("Precision", "Time", "Of matrix time"),
            middle=(duration(details.matrix_ns) if details.matrix_ns is not None else UNKNOWN, "matrix time"),
        ),
        table(
            f"{context.id}-kernels",
            "Matrix kernels",
            details.kernels or (),
            Col("Kernel", lambda kernel: kernel.name, kind="name", code=True, limit=72),
            Col("Category", lambda kernel: labels.category(kernel.category)),
            Col("Precision", lambda kernel: kernel.precision),
            Col("Runs", lambda kernel: kernel.count, count),
            Col("Time", lambda kernel: kernel.time_ns, duration),
            pdf_rows=_PDF_KERNELS,
        ),
        table(
            f"{context.id}-operators",
            "Operators with matrix work in FP32",
            details.operators or (),
            Col("Operator", lambda row: row.operator, kind="name", code=True, limit=72),
            Col("Inputs", lambda row: row.shape),
            Col("Module", lambda row: row.module, kind="name", code=True, limit=72),
            Col("Line", lambda row: row.line, kind="name", code=True, limit=72),
            Col("Runs", lambda row: row.count, count),
            Col("Time", lambda row: row.time_ns, duration),
            pdf_rows=_PDF_KERNELS,
        ),
        table(
            f"{context.id}-devices",
            "Devices and their matrix units",
            details.devices,
            Col("Device", lambda row: device_cell(row), kind="name"),
            Col("Model", lambda device: device.name),
            Col("Compute capability", lambda device: device.compute_capability),
            Col("Matrix units for", lambda device: listed(device.matrix_units)),
            Col("Verdict", lambda device: "yes" if device.eligible else "no"),
            pdf_rows=0,
        ),
    ]


def pageable_copies(context: RuleContext, details: rule_details.PageableCopiesDetails) -> Blocks:
    return [
        *_by_device(
            context,
            "Pageable host copies by device",
            details.devices,
            lambda device: device.percent,
            Col("Of span", lambda device: device.percent, percent),
            Col("Pageable copies", lambda device: device.pageable_ns, duration),
            Col("Idle caused", lambda device: device.caused_idle_ns, duration),
        ),
        table(
            f"{context.id}-copies",
            "Pageable copies by kind, and how fast pinned ones are",
            details.copies,
            Col("Kind", lambda copy: copy.kind, kind="name"),
            Col("Copies", lambda copy: copy.count, count),
            Col("Time", lambda copy: copy.time_ns, duration),
            Col("Bytes", lambda copy: copy.bytes, size),
            Col("Bandwidth", lambda copy: copy.bandwidth_gb_per_s, bandwidth),
            Col("Bandwidth, pinned", lambda copy: copy.pinned_bandwidth_gb_per_s, bandwidth),
            pdf_rows=6,
        ),
    ]


def sync_bound(context: RuleContext, details: rule_details.SyncBoundDetails) -> Blocks:
    return [
        *_by_device(
            context,
            "Blocking synchronization by device",
            details.devices,
            lambda device: device.percent,
            Col("Of span", lambda device: device.percent, percent),
            Col("Idle caused", lambda device: device.caused_idle_ns, duration),
            Col("Device idle", lambda device: device.blocked_idle_ns, duration),
            Col("Synchronization", lambda device: device.sync_ns, duration),
            parts=(
                (Part("synchronizing, device idle", "sync"), lambda device: device.blocked_idle_ns),
                (Part("synchronizing, device working", "sync", 0.5), lambda device: max(0.0, device.sync_ns - device.blocked_idle_ns)),
            ),
            limit="threshold",
            how="Host time in blocking synchronization, in percent of the device's span.",
        ),
        table(
            f"{context.id}-calls",
            "Calls that synchronize",
            details.calls,
            Col("Call", lambda call: call.name, kind="name", code=True, limit=72),
            Col("Within", lambda call: call.operator, limit=40),
            Col("From", lambda call: call.site, limit=48),
            Col("Calls", lambda call: call.count, count),
            Col("Time", lambda call: call.time_ns, duration),
            Col("Device idle", lambda call: call.blocked_idle_ns, duration),
            Col("Idle caused", lambda call: call.caused_idle_ns, duration),
            pdf_rows=_PDF_KERNELS,
        ),
    ]


def short_kernels(context: RuleContext, details: rule_details.ShortKernelsDetails) -> Blocks:
    return [
        *_by_device(
            context,
            "Short kernels by device",
            details.devices,
            lambda device: device.gap_percent,
            Col("Short of launches", lambda device: device.short_percent, percent),
            Col("Short", lambda device: device.short, count),
            Col("Launches", lambda device: device.launches, count),
            Col("Gaps of span", lambda device: device.gap_percent, percent),
            Col("Gaps", lambda device: device.gap_ns, duration),
            parts=((Part("gaps of short kernels", "idle"), lambda device: device.gap_ns),),
            limit="time_threshold",
            how="Gaps of kernels shorter than the threshold, in percent of the device's span.",
        ),
        _kernels(
            context,
            "Short kernels with the longest gaps",
            details.kernels,
            Col("Runs", lambda kernel: kernel.count, count),
            Col("Mean", lambda kernel: kernel.mean_ns, duration),
            Col("Gaps", lambda kernel: kernel.gap_ns, duration),
        ),
    ]


def exposed_copies(context: RuleContext, details: rule_details.ExposedCopiesDetails) -> Blocks:
    return [
        *_by_device(
            context,
            "Copies and memsets that no kernel covers, by device",
            details.devices,
            lambda device: device.percent,
            Col("Of span", lambda device: device.percent, percent),
            Col("Exposed copies", lambda device: device.exposed_ns, duration),
            Col("DDP bucket copies", lambda device: device.bucket_ns, duration, when=any(device.bucket_ns for device in details.devices)),
            parts=((Part("copies and memsets without a kernel", "memory"), lambda device: device.exposed_ns),),
            limit="threshold",
            how="Copies and memsets while no kernel runs, in percent of the device's span.",
        ),
        table(
            f"{context.id}-copies",
            "Exposed copies by kind and operator",
            details.copies,
            Col("Kind", lambda copy: copy.kind, kind="name"),
            Col("Host memory", lambda copy: copy.memory, kind="name"),
            Col("Operator", lambda copy: copy.operator, kind="name", code=True),
            Col("Copies", lambda copy: copy.count, count),
            Col("Bytes", lambda copy: copy.bytes, size),
            Col("Time", lambda copy: copy.time_ns, duration),
            Col("Exposed", lambda copy: copy.exposed_ns, duration),
            Col("Bandwidth", lambda copy: copy.bandwidth_gb_per_s, bandwidth),
            Col("PCIe", lambda copy: copy.link_gb_per_s, bandwidth),
            Col("Code", lambda copy: copy.site, kind="name", code=True, html_only=True),
            pdf_rows=6,
        ),
    ]


def unfused_elementwise(context: RuleContext, details: rule_details.UnfusedElementwiseDetails) -> Blocks:
    return [
        *_by_device(
            context,
            "Chains of elementwise kernels by device",
            details.devices,
            lambda device: device.extra_percent,
            Col("Extra of span", lambda device: device.extra_percent, percent),
            Col("Extra time", lambda device: device.extra_ns, duration),
            Col("Chains", lambda device: device.chains, count),
            Col("Kernels", lambda device: device.kernels, count),
            Col("Time", lambda device: device.time_ns, duration),
            parts=((Part("extra time of chains", "computation"), lambda device: device.extra_ns),),
            limit="threshold",
            how="Time of chains of elementwise kernels beyond their longest kernel, in percent of the device's span.",
        ),
        _kernels(
            context,
            "Kernels in chains",
            details.kernels,
            Col("Runs", lambda kernel: kernel.count, count),
            Col("Time", lambda kernel: kernel.time_ns, duration),
        ),
    ]


def unfused_attention(context: RuleContext, details: rule_details.UnfusedAttentionDetails) -> Blocks:
    return [
        *_by_device(
            context,
            "Attention as a chain of operators, by device",
            details.devices,
            lambda device: device.excess_percent,
            Col("Excess of span", lambda device: device.excess_percent, percent),
            Col("Excess", lambda device: device.excess_ns, duration),
            Col("Time", lambda device: device.time_ns, duration),
            Col("Fused at least", lambda device: device.fused_ns, duration),
            parts=((Part("excess over fused attention", "computation"), lambda device: device.excess_ns),),
            limit="threshold",
            how="Time of attention beyond one fused kernel at the peaks of the GPU, in percent of the device's span.",
        ),
        table(
            f"{context.id}-chains",
            "Attention by the sizes of its scores",
            details.chains,
            Col("Scores", lambda chain: f"{chain.batch} x {chain.queries} x {chain.keys}", kind="name"),
            Col("Width", lambda chain: chain.width, count),
            Col("Type", lambda chain: chain.type, kind="name"),
            Col("Calls", lambda chain: chain.calls, count),
            Col("Time", lambda chain: chain.time_ns, duration),
            Col("Products", lambda chain: chain.products_ns, duration),
            Col("Softmax", lambda chain: chain.softmax_ns, duration),
            Col("Scale, mask and others", lambda chain: chain.between_ns, duration),
            Col("Fused at least", lambda chain: chain.fused_ns, duration),
            Col("Module", lambda chain: chain.module, kind="name", code=True, html_only=True),
            Col("Line", lambda chain: chain.line, kind="name", code=True, html_only=True),
            pdf_rows=6,
        ),
    ]


def layout_conversions(context: RuleContext, details: rule_details.LayoutConversionsDetails) -> Blocks:
    return [
        *_by_device(
            context,
            "Layout conversions by device",
            details.devices,
            lambda device: device.percent,
            Col("Of span", lambda device: device.percent, percent),
            Col("Time", lambda device: device.conversion_ns, duration),
            parts=((Part("layout conversions", "memory"), lambda device: device.conversion_ns),),
            limit="threshold",
            how="Time of kernels that only change the layout of tensors, in percent of the device's span.",
        ),
        table(
            f"{context.id}-kernels",
            "Layout conversions",
            details.conversions,
            Col("Kernel", lambda row: row.kernel, kind="name", code=True, limit=72),
            Col("Kind", lambda row: row.kind),
            Col("Operator", lambda row: row.operator or UNKNOWN, kind="name", code=True, limit=48),
            Col("Inputs", lambda row: row.shape or UNKNOWN, limit=60),
            Col("Runs", lambda row: row.count, count),
            Col("Time", lambda row: row.time_ns, duration),
            pdf_rows=_PDF_KERNELS,
        ),
    ]


def straggler_rank(context: RuleContext, details: rule_details.StragglerRankDetails) -> Blocks:
    return [
        _ranks(context, details),
        table(
            f"{context.id}-ranks",
            "Computation per step by rank",
            sorted(details.ranks, key=lambda rank: -rank.excess_percent),
            Col("Rank", lambda row: device_cell(row), kind="name"),
            Col("Verdict", lambda rank: Cell("✕ straggler", mark="v-issue") if rank.straggler else Cell("within")),
            Col("Computation", lambda rank: rank.computation_per_step_ns, duration),
            Col("Above the median", lambda rank: rank.excess_percent, share),
            Col("Steps over", lambda rank: rank.steps_over, count, html_only=True),
            Col("Of steps", lambda rank: rank.steps_over_percent, percent, html_only=True),
            Col("In collectives", lambda rank: rank.waiting_per_step_ns, duration),
            Col("Confirmed by the collectives", lambda rank: answer(rank.confirmed, "yes", "no"), html_only=True),
            pdf_rows=_in_pdf(details.ranks),
            html_note="Time in collectives may overlap computation. A straggler is confirmed if the others spend more time in them.",
        ),
    ]


def _ranks(context: RuleContext, details: rule_details.StragglerRankDetails) -> Figure | None:
    if not details.ranks:
        return None
    parts = (Part("computation", "computation"), Part("in collectives (may overlap computation)", "communication"))
    times = [(device_name(rank), (rank.computation_per_step_ns, rank.waiting_per_step_ns)) for rank in details.ranks]
    unit = time_unit(max(time for _, pair in times for time in pair) or 1.0)
    bars, more = bar_rows(
        [(name, [time / unit.nanoseconds for time in pair]) for name, pair in times],
        ("rank", "ranks"),
        "computation",
        lambda row: row[1][0],
    )
    limit = (details.median_ns / unit.nanoseconds, f"median computation {duration(details.median_ns)}")
    late = [device_name(rank) for rank in details.ranks if rank.straggler]
    unusual = f"Later than the others: {', '.join(late[:4])}." if late else "No rank computes much longer than the median."
    return Figure(
        f"{context.id}-bars",
        paired_bars(parts, bars, unit.name, limit=limit),
        f"Computation and time in collectives per step of {plural(len(details.ranks), 'rank')}. {unusual}",
        say(
            "Time of each rank per step; the two overlap and do not add up. The rank that computes longest spends least time in "
            "collectives, because the others wait for it there. {}{}",
            unusual,
            more,
        ),
    )


def _by_device(
    context: RuleContext,
    caption: str,
    devices: Sequence[J],
    measure: Measure[J],
    *columns: Col[J],
    parts: Sequence[tuple[Part, Measure[J]]] = (),
    limit: str = "",
    how: str = "",
) -> tuple[Figure | None, Table | None]:
    """Draw the parts of each device in percent of its span; list the largest first."""
    rows = table(
        f"{context.id}-devices",
        caption,
        sorted(devices, key=lambda device: -(measure(device) or 0.0)),
        Col("Device", lambda row: device_cell(row), kind="name"),
        Col("Verdict", lambda device: marked(device.issue)),
        *columns,
        Col("Span", lambda device: device.span_ns, duration),
        pdf_rows=_in_pdf(devices),
    )
    known = [device for device in devices if device.span_ns]
    if len(known) < 2 or not parts:  # the finding states the share of a single device
        return None, rows
    bars, more = bar_rows(
        [(device_name(device), [100.0 * max(0.0, of(device) or 0.0) / device.span_ns for _, of in parts]) for device in known],
        ("device", "devices"),
        "that share",
        lambda row: sum(row[1]),
    )
    threshold = context.parameter(limit)
    longest = max(sum(values) for _, values in bars)
    worst = max(known, key=lambda device: measure(device) or 0.0)
    most = f"Most: {device_name(worst)} with {percent(measure(worst))}" + (
        f", threshold {threshold_text(threshold)}." if threshold is not None else "."
    )
    drawn = stacked_bars(
        [part for part, _ in parts],
        bars,
        "%",
        axis_end=min(100.0, max(longest, threshold or 0.0) * 1.15) or 100.0,
        limit=(threshold, f"threshold {threshold_text(threshold)}") if threshold is not None else None,
    )
    caption_of_bars = say("{} {}{}", how, most, more)
    return Figure(f"{context.id}-bars", drawn, f"{how} {most}", caption_of_bars), rows


def _kernels(context: RuleContext, caption: str, kernels: Sequence[K], *columns: Col[K], note: str | None = None) -> Table | None:
    name: Col[K] = Col("Kernel", lambda kernel: kernel.name, kind="name", code=True, limit=72)
    return table(f"{context.id}-kernels", caption, kernels, name, *columns, pdf_rows=_PDF_KERNELS, html_note=note)


def _in_pdf(devices: Sequence[Any]) -> int:
    """Return the rows of devices in the PDF; the finding covers a single device."""
    return _PDF_DEVICES if len(devices) > 1 else 0


def low_occupancy(context: RuleContext, details: rule_details.LowOccupancyDetails) -> Blocks:
    return [
        table(
            f"{context.id}-kernels",
            "Kernels with small grids",
            details.kernels,
            Col("Kernel", lambda kernel: kernel.name, kind="name", code=True, limit=72),
            Col("Operator", lambda kernel: kernel.operator, kind="name", code=True, limit=72),
            Col("Inputs", lambda kernel: kernel.shape, html_only=True),
            Col("Blocks", lambda kernel: kernel.blocks, count),
            Col("Multiprocessors", lambda kernel: kernel.multiprocessors, count),
            Col("Occupancy", lambda kernel: kernel.occupancy_percent, percent, html_only=True),
            Col("Of roof", lambda kernel: kernel.percent_of_roof, percent, html_only=True),
            Col("Runs", lambda kernel: kernel.count, count),
            Col("Time", lambda kernel: kernel.time_ns, duration),
            Col("Of kernel time", lambda kernel: kernel.percent, percent),
            pdf_rows=_PDF_KERNELS,
        )
    ]
