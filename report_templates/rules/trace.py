"""Blocks of the rules over kernels and calls: where each device's time went, and to which kernels and calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ...analysis.report import rule_details as details
from ...analysis.report.rule_details import ProfiledDevice
from ..blocks import BARS, Figure, Slice, of_all, ring, say, spread
from ..blocks.tables import Cell, Col, Table, table
from ..figures.axes import time_unit
from ..figures.paired_bars import paired_bars
from ..figures.stacked_bars import Part, stacked_bars
from ..text.formats import UNKNOWN, bandwidth, count, duration, percent, plural, size
from .shown import Blocks, Shown, answer, listed, marked, place, share, where

D = TypeVar("D", bound=ProfiledDevice)
Evaluated = (
    details.HostBoundDevice | details.CommunicationDevice | details.PageableDevice | details.SyncBoundDevice | details.ShortKernelsDevice
)
J = TypeVar("J", bound=Evaluated)
K = TypeVar("K", bound=details.CountedTime | details.ShortKernel)
Figures = Callable[[D], float | None]

_PDF_DEVICES: Final = 4  # the figure above has them all
_PDF_KERNELS: Final = 5


def host_bound(shown: Shown, found: details.HostBoundDetails) -> Blocks:
    return [
        _bars(
            shown,
            found.devices,
            (
                (Part("host wait", "host"), lambda device: device.host_wait_ns),
                (Part("kernel wait", "sync"), lambda device: device.kernel_wait_ns),
                (Part("other idle", "idle"), lambda device: device.other_ns),
            ),
            "idle_threshold",
            lambda device: device.idle_percent,
            "Idle time of each device by its reason. Host wait: the device waited for a launch.",
        ),
        _devices(
            shown,
            "Idle time by device",
            found.devices,
            lambda device: device.idle_percent,
            Col("Idle", lambda device: device.idle_percent, percent),
            Col("Host wait of idle", lambda device: device.host_percent, percent),
            Col("Host wait", lambda device: device.host_wait_ns, duration),
            Col("Kernel wait", lambda device: device.kernel_wait_ns, duration),
            Col("Other", lambda device: device.other_ns, duration),
        ),
        _kernels(
            shown,
            "Kernels that the host launched late",
            found.kernels,
            Col("Waits", lambda kernel: kernel.count, count),
            Col("Waited for", lambda kernel: kernel.time_ns, duration),
        ),
    ]


def exposed_communication(shown: Shown, found: details.ExposedCommunicationDetails) -> Blocks:
    return [
        _bars(
            shown,
            found.devices,
            (
                (Part("exposed communication", "communication"), lambda device: device.exposed_ns),
                (
                    Part("covered by computation", "communication", 0.5),
                    lambda device: max(0.0, device.communication_ns - device.exposed_ns),
                ),
            ),
            "threshold",
            lambda device: device.exposed_percent,
            "Communication of each device; the rest of the span has none.",
        ),
        _devices(
            shown,
            "Communication by device",
            found.devices,
            lambda device: device.exposed_percent,
            Col("Exposed of span", lambda device: device.exposed_percent, percent),
            Col("Exposed", lambda device: device.exposed_ns, duration),
            Col("Communication", lambda device: device.communication_ns, duration),
            Col("Overlap", lambda device: device.overlap_percent, percent),
        ),
        _kernels(
            shown,
            "Communication kernels",
            found.kernels,
            Col("Runs", lambda kernel: kernel.count, count),
            Col("Time", lambda kernel: kernel.time_ns, duration),
            Col("Exposed", lambda kernel: kernel.exposed_ns, duration),
        ),
    ]


def low_precision(shown: Shown, found: details.LowPrecisionDetails) -> Blocks:
    shares = sorted(found.shares or (), key=lambda share: -share.percent)[:8]
    lower = listed(found.alternatives)
    instead = f" These devices could compute them in {lower}." if lower else ""
    return [
        ring(
            f"{shown.id}-shares",
            say("GEMM, attention and convolution on devices with matrix units for a lower precision.{}", instead),
            "Precision of matrix kernels",
            [
                Slice(
                    share.precision,
                    "idle" if share.precision == "unknown" else "computation",
                    share.percent,
                    (duration(share.time_ns),),
                )
                for share in shares
            ],
            ("Precision", "Time", "Of matrix time"),
            middle=(duration(found.matrix_ns) if found.matrix_ns is not None else UNKNOWN, "matrix time"),
        ),
        table(
            f"{shown.id}-kernels",
            "Matrix kernels",
            found.kernels or (),
            Col("Kernel", lambda kernel: kernel.name, kind="name", limit=72),
            Col("Category", lambda kernel: kernel.category),
            Col("Precision", lambda kernel: kernel.precision),
            Col("Runs", lambda kernel: kernel.count, count),
            Col("Time", lambda kernel: kernel.time_ns, duration),
            pdf_rows=_PDF_KERNELS,
        ),
        table(
            f"{shown.id}-devices",
            "Devices and their matrix units",
            found.devices,
            Col("Device", lambda row: where(row), kind="name"),
            Col("Model", lambda device: device.name),
            Col("Compute capability", lambda device: device.compute_capability),
            Col("Matrix units for", lambda device: listed(device.matrix_units)),
            Col("Judged", lambda device: "yes" if device.eligible else "no"),
            pdf_rows=0,
        ),
    ]


def pageable_copies(shown: Shown, found: details.PageableCopiesDetails) -> Blocks:
    return [
        _devices(
            shown,
            "Pageable host copies by device",
            found.devices,
            lambda device: device.percent,
            Col("Of span", lambda device: device.percent, percent),
            Col("Pageable copies", lambda device: device.pageable_ns, duration),
        ),
        table(
            f"{shown.id}-copies",
            "Pageable copies by kind, and how fast pinned ones are",
            found.copies,
            Col("Kind", lambda copy: copy.kind, kind="name"),
            Col("Copies", lambda copy: copy.count, count),
            Col("Time", lambda copy: copy.time_ns, duration),
            Col("Bytes", lambda copy: copy.bytes, size),
            Col("Bandwidth", lambda copy: copy.bandwidth_gb_per_s, bandwidth),
            Col("Bandwidth, pinned", lambda copy: copy.pinned_bandwidth_gb_per_s, bandwidth),
            pdf_rows=6,
        ),
    ]


def sync_bound(shown: Shown, found: details.SyncBoundDetails) -> Blocks:
    return [
        _bars(
            shown,
            found.devices,
            (
                (Part("synchronising, device idle", "sync"), lambda device: device.blocked_idle_ns),
                (Part("synchronising, device working", "sync", 0.5), lambda device: max(0.0, device.sync_ns - device.blocked_idle_ns)),
            ),
            "threshold",
            lambda device: device.percent,
            "Host time in blocking synchronisation, in percent of the device's span.",
        ),
        _devices(
            shown,
            "Blocking synchronisation by device",
            found.devices,
            lambda device: device.percent,
            Col("Of span", lambda device: device.percent, percent),
            Col("Device idle", lambda device: device.blocked_idle_ns, duration),
            Col("Synchronisation", lambda device: device.sync_ns, duration),
        ),
        table(
            f"{shown.id}-calls",
            "Calls that synchronise",
            found.calls,
            Col("Call", lambda call: call.name, kind="name", limit=72),
            Col("Within", lambda call: call.operator, limit=40),
            Col("Calls", lambda call: call.count, count),
            Col("Time", lambda call: call.time_ns, duration),
            Col("Device idle", lambda call: call.blocked_idle_ns, duration),
            pdf_rows=_PDF_KERNELS,
        ),
    ]


def short_kernels(shown: Shown, found: details.ShortKernelsDetails) -> Blocks:
    return [
        _bars(
            shown,
            found.devices,
            ((Part("gaps of short kernels", "idle"), lambda device: device.gap_ns),),
            "time_threshold",
            lambda device: device.gap_percent,
            "Gaps of kernels shorter than the threshold, in percent of the device's span.",
        ),
        _devices(
            shown,
            "Short kernels by device",
            found.devices,
            lambda device: device.gap_percent,
            Col("Short of launches", lambda device: device.short_percent, percent),
            Col("Short", lambda device: device.short, count),
            Col("Launches", lambda device: device.launches, count),
            Col("Gaps of span", lambda device: device.gap_percent, percent),
            Col("Gaps", lambda device: device.gap_ns, duration),
        ),
        _kernels(
            shown,
            "Short kernels with most gaps",
            found.kernels,
            Col("Runs", lambda kernel: kernel.count, count),
            Col("Mean", lambda kernel: kernel.mean_ns, duration),
            Col("Gaps", lambda kernel: kernel.gap_ns, duration),
        ),
    ]


def straggler_rank(shown: Shown, found: details.StragglerRankDetails) -> Blocks:
    return [
        _ranks(shown, found),
        table(
            f"{shown.id}-ranks",
            "Computation per step by rank",
            sorted(found.ranks, key=lambda rank: -rank.excess_percent),
            Col("Rank", lambda row: where(row), kind="name"),
            Col("Judged", lambda rank: Cell("✕ straggler", mark="v-issue") if rank.straggler else Cell("within")),
            Col("Computation", lambda rank: rank.computation_per_step_ns, duration),
            Col("Above the median", lambda rank: rank.excess_percent, share),
            Col("Steps over", lambda rank: rank.steps_over, count),
            Col("Of steps", lambda rank: rank.steps_over_percent, percent),
            Col("In collectives", lambda rank: rank.waiting_per_step_ns, duration),
            Col("Confirmed by the collectives", lambda rank: answer(rank.confirmed, "yes", "no"), html_only=True),
            pdf_rows=_in_pdf(found.ranks),
            html_note="Time in collectives may overlap computation. A straggler is confirmed where the others spend more time in them.",
        ),
    ]


def _ranks(shown: Shown, found: details.StragglerRankDetails) -> Figure | None:
    if not found.ranks:
        return None
    kept = spread(found.ranks, BARS, lambda rank: rank.excess_percent)
    parts = (Part("computation", "computation"), Part("in collectives (may overlap computation)", "communication"))
    times = [(place(rank), (rank.computation_per_step_ns, rank.waiting_per_step_ns)) for rank in kept]
    unit = time_unit(max(time for _, pair in times for time in pair) or 1.0)
    bars = [(name, [time / unit.nanoseconds for time in pair]) for name, pair in times]
    limit = (found.median_ns / unit.nanoseconds, f"median computation {duration(found.median_ns)}")
    late = [place(rank) for rank in found.ranks if rank.straggler]
    unusual = f"Later than the others: {', '.join(late[:4])}." if late else "No rank computes much longer than the median."
    return Figure(
        f"{shown.id}-bars",
        paired_bars(parts, bars, unit.name, limit=limit),
        f"Computation and time in collectives per step of {plural(len(found.ranks), 'rank')}. {unusual}",
        say(
            "Time of each rank per step; the two overlap and do not add up. Who computes longest is least in collectives: "
            "there the others wait for it. {}{}",
            unusual,
            of_all(len(kept), len(found.ranks), "rank", "excess over the median"),
        ),
    )


def _bars(
    shown: Shown, devices: Sequence[D], parts: Sequence[tuple[Part, Figures[D]]], limit: str, measure: Figures[D], how: str
) -> Figure | None:
    """A bar per device: the parts in percent of its span, with the threshold."""
    known = [device for device in devices if device.span_ns]
    if not known:
        return None
    kept = spread(known, BARS, lambda device: measure(device) or 0.0)
    bars = [(place(device), [100.0 * max(0.0, of(device) or 0.0) / device.span_ns for _, of in parts]) for device in kept]
    threshold = shown.parameter(limit)
    longest = max(sum(values) for _, values in bars)
    worst = max(known, key=lambda device: measure(device) or 0.0)
    most = f"Most: {place(worst)} with {percent(measure(worst))}" + (f", threshold {threshold:g} %." if threshold is not None else ".")
    return Figure(
        f"{shown.id}-bars",
        stacked_bars(
            [part for part, _ in parts],
            bars,
            "%",
            whole=min(100.0, max(longest, threshold or 0.0) * 1.15) or 100.0,
            limit=(threshold, f"threshold {threshold:g} %") if threshold is not None else None,
        ),
        f"{how} {most}",
        say("{} {}{}", how, most, of_all(len(kept), len(known), "device", "that share")),
    )


def _devices(shown: Shown, caption: str, devices: Sequence[J], measure: Figures[J], *columns: Col[J]) -> Table | None:
    """The largest ``measure`` first."""
    return table(
        f"{shown.id}-devices",
        caption,
        sorted(devices, key=lambda device: -(measure(device) or 0.0)),
        Col("Device", lambda device: where(device), kind="name"),
        Col("Judged", lambda device: marked(device.issue)),
        *columns,
        Col("Span", lambda device: device.span_ns, duration),
        pdf_rows=_in_pdf(devices),
    )


def _kernels(shown: Shown, caption: str, kernels: Sequence[K], *columns: Col[K]) -> Table | None:
    name: Col[K] = Col("Kernel", lambda kernel: kernel.name, kind="name", limit=72)
    return table(f"{shown.id}-kernels", caption, kernels, name, *columns, pdf_rows=_PDF_KERNELS)


def _in_pdf(devices: Sequence[Any]) -> int:
    """How many rows of devices the PDF has: the finding has all of a single one."""
    return _PDF_DEVICES if len(devices) > 1 else 0
