"""What did the rules over kernels and calls see: where each device's time went, and to which kernels and calls?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..blocks import BARS, Cell, Column, Figure, Slice, Table, of_all, ring, say, spread, table, value, word
from ..figures.axes import time_unit
from ..figures.paired_bars import paired_bars
from ..figures.stacked_bars import Part, stacked_bars
from ..formats import UNKNOWN, bandwidth, count, duration, percent, plural, size
from .reading import Blocks, Row, Shown, answer, listed, marked, name, number, place, rows, share, text, truth, where, whole

_PDF_DEVICES = 4  # the figure above has them all
_PDF_KERNELS = 5


def host_bound(shown: Shown) -> Blocks:
    devices = rows(shown.details, "devices")
    parts = (
        (Part("host wait", "host"), "host_wait_ns"),
        (Part("kernel wait", "sync"), "kernel_wait_ns"),
        (Part("other idle", "idle"), "other_ns"),
    )
    return [
        _bars(
            shown,
            devices,
            parts,
            "idle_threshold",
            "idle_percent",
            "Idle time of each device by its reason. Host wait: the device waited for a launch.",
        ),
        table(
            f"{shown.id}-devices",
            "Idle time by device",
            [
                Column("Device", "name"),
                Column("Judged"),
                Column("Idle", "number"),
                Column("Host wait of idle", "number"),
                Column("Host wait", "number"),
                Column("Kernel wait", "number"),
                Column("Other", "number"),
                Column("Span", "number"),
            ],
            [
                [
                    where(device),
                    marked(truth(device, "issue")),
                    value(number(device, "idle_percent"), percent),
                    value(number(device, "host_percent"), percent),
                    *_times(device, "host_wait_ns", "kernel_wait_ns", "other_ns", "span_ns"),
                ]
                for device in _by(devices, "idle_percent")
            ],
            pdf_rows=_in_pdf(devices),
        ),
        _kernels(shown, "Kernels that the host launched late", ("count", "Waits", count), ("time_ns", "Waited for", duration)),
    ]


def exposed_communication(shown: Shown) -> Blocks:
    devices = rows(shown.details, "devices")
    covered = [
        {**device, "covered_ns": max(0.0, (number(device, "communication_ns") or 0.0) - (number(device, "exposed_ns") or 0.0))}
        for device in devices
    ]
    parts = (
        (Part("exposed communication", "communication"), "exposed_ns"),
        (Part("covered by computation", "communication", 0.5), "covered_ns"),
    )
    return [
        _bars(shown, covered, parts, "threshold", "exposed_percent", "Communication of each device; the rest of the span has none."),
        table(
            f"{shown.id}-devices",
            "Communication by device",
            [
                Column("Device", "name"),
                Column("Judged"),
                Column("Exposed of span", "number"),
                Column("Exposed", "number"),
                Column("Communication", "number"),
                Column("Overlap", "number"),
                Column("Span", "number"),
            ],
            [
                [
                    where(device),
                    marked(truth(device, "issue")),
                    value(number(device, "exposed_percent"), percent),
                    *_times(device, "exposed_ns", "communication_ns"),
                    value(number(device, "overlap_percent"), percent),
                    *_times(device, "span_ns"),
                ]
                for device in _by(devices, "exposed_percent")
            ],
            pdf_rows=_in_pdf(devices),
        ),
        _kernels(
            shown, "Communication kernels", ("count", "Runs", count), ("time_ns", "Time", duration), ("exposed_ns", "Exposed", duration)
        ),
    ]


def low_precision(shown: Shown) -> Blocks:
    shares = [one for one in rows(shown.details, "shares") if number(one, "percent") is not None]
    slices = [
        Slice(
            text(one, "precision") or "unknown",
            _precision(one),
            number(one, "percent") or 0.0,
            (Cell(duration(number(one, "time_ns"))),),
        )
        for one in sorted(shares, key=lambda one: -(number(one, "percent") or 0.0))[:8]
    ]
    total = number(shown.details, "matrix_ns")
    lower = listed(shown.details, "alternatives")
    instead = f" These devices could compute them in {lower}." if lower else ""
    return [
        ring(
            f"{shown.id}-shares",
            say("GEMM, attention and convolution on devices with matrix units for a lower precision.{}", instead),
            "Precision of matrix kernels",
            slices,
            ("Precision", "Time", "Of matrix time"),
            middle=(duration(total) if total is not None else UNKNOWN, "matrix time"),
        ),
        table(
            f"{shown.id}-kernels",
            "Matrix kernels",
            [
                Column("Kernel", "name"),
                Column("Category"),
                Column("Precision"),
                Column("Runs", "number"),
                Column("Time", "number"),
            ],
            [
                [
                    name(kernel),
                    word(text(kernel, "category")),
                    word(text(kernel, "precision")),
                    value(whole(kernel, "count"), count),
                    *_times(kernel, "time_ns"),
                ]
                for kernel in rows(shown.details, "kernels")
            ],
            pdf_rows=_PDF_KERNELS,
        ),
        table(
            f"{shown.id}-devices",
            "Devices and their matrix units",
            [Column("Device", "name"), Column("Model"), Column("Compute capability"), Column("Matrix units for"), Column("Judged")],
            [
                [
                    where(device),
                    word(text(device, "name")),
                    word(text(device, "compute_capability")),
                    word(listed(device, "matrix_units")),
                    Cell("yes" if truth(device, "eligible") else "no"),
                ]
                for device in rows(shown.details, "devices")
            ],
            pdf_rows=0,
        ),
    ]


def pageable_copies(shown: Shown) -> Blocks:
    devices = rows(shown.details, "devices")
    return [
        table(
            f"{shown.id}-devices",
            "Pageable host copies by device",
            [
                Column("Device", "name"),
                Column("Judged"),
                Column("Of span", "number"),
                Column("Pageable copies", "number"),
                Column("Span", "number"),
            ],
            [
                [
                    where(device),
                    marked(truth(device, "issue")),
                    value(number(device, "percent"), percent),
                    *_times(device, "pageable_ns", "span_ns"),
                ]
                for device in _by(devices, "percent")
            ],
            pdf_rows=_in_pdf(devices),
        ),
        table(
            f"{shown.id}-copies",
            "Pageable copies by kind, and how fast pinned ones are",
            [
                Column("Kind", "name"),
                Column("Copies", "number"),
                Column("Time", "number"),
                Column("Bytes", "number"),
                Column("Bandwidth", "number"),
                Column("Bandwidth, pinned", "number"),
            ],
            [
                [
                    word(text(copy, "kind")),
                    value(whole(copy, "count"), count),
                    *_times(copy, "time_ns"),
                    value(number(copy, "bytes"), size),
                    value(number(copy, "bandwidth_gb_per_s"), bandwidth),
                    value(number(copy, "pinned_bandwidth_gb_per_s"), bandwidth),
                ]
                for copy in rows(shown.details, "copies")
            ],
            pdf_rows=6,
        ),
    ]


def sync_bound(shown: Shown) -> Blocks:
    devices = rows(shown.details, "devices")
    split = [
        {**device, "working_ns": max(0.0, (number(device, "sync_ns") or 0.0) - (number(device, "blocked_idle_ns") or 0.0))}
        for device in devices
    ]
    parts = (
        (Part("synchronising, device idle", "sync"), "blocked_idle_ns"),
        (Part("synchronising, device working", "sync", 0.5), "working_ns"),
    )
    return [
        _bars(shown, split, parts, "threshold", "percent", "Host time in blocking synchronisation, in percent of the device's span."),
        table(
            f"{shown.id}-devices",
            "Blocking synchronisation by device",
            [
                Column("Device", "name"),
                Column("Judged"),
                Column("Of span", "number"),
                Column("Device idle", "number"),
                Column("Synchronisation", "number"),
                Column("Span", "number"),
            ],
            [
                [
                    where(device),
                    marked(truth(device, "issue")),
                    value(number(device, "percent"), percent),
                    *_times(device, "blocked_idle_ns", "sync_ns", "span_ns"),
                ]
                for device in _by(devices, "percent")
            ],
            pdf_rows=_in_pdf(devices),
        ),
        table(
            f"{shown.id}-calls",
            "Calls that synchronise",
            [
                Column("Call", "name"),
                Column("Within"),
                Column("Calls", "number"),
                Column("Time", "number"),
                Column("Device idle", "number"),
            ],
            [
                [
                    name(call),
                    word(text(call, "operator"), limit=40),
                    value(whole(call, "count"), count),
                    *_times(call, "time_ns", "blocked_idle_ns"),
                ]
                for call in rows(shown.details, "calls")
            ],
            pdf_rows=_PDF_KERNELS,
        ),
    ]


def short_kernels(shown: Shown) -> Blocks:
    devices = rows(shown.details, "devices")
    return [
        _bars(
            shown,
            devices,
            ((Part("gaps of short kernels", "idle"), "gap_ns"),),
            "time_threshold",
            "gap_percent",
            "Gaps of kernels shorter than the threshold, in percent of the device's span.",
        ),
        table(
            f"{shown.id}-devices",
            "Short kernels by device",
            [
                Column("Device", "name"),
                Column("Judged"),
                Column("Short of launches", "number"),
                Column("Short", "number"),
                Column("Launches", "number"),
                Column("Gaps of span", "number"),
                Column("Gaps", "number"),
                Column("Span", "number"),
            ],
            [
                [
                    where(device),
                    marked(truth(device, "issue")),
                    value(number(device, "short_percent"), percent),
                    value(whole(device, "short"), count),
                    value(whole(device, "launches"), count),
                    value(number(device, "gap_percent"), percent),
                    *_times(device, "gap_ns", "span_ns"),
                ]
                for device in _by(devices, "gap_percent")
            ],
            pdf_rows=_in_pdf(devices),
        ),
        _kernels(
            shown, "Short kernels with most gaps", ("count", "Runs", count), ("mean_ns", "Mean", duration), ("gap_ns", "Gaps", duration)
        ),
    ]


def straggler_rank(shown: Shown) -> Blocks:
    ranks = rows(shown.details, "ranks")
    return [
        _ranks(shown, ranks),
        table(
            f"{shown.id}-ranks",
            "Computation per step by rank",
            [
                Column("Rank", "name"),
                Column("Judged"),
                Column("Computation", "number"),
                Column("Above the median", "number"),
                Column("Steps over", "number"),
                Column("Of steps", "number"),
                Column("In collectives", "number"),
                Column("Confirmed by the collectives", html_only=True),
            ],
            [
                [
                    where(rank),
                    Cell("✕ straggler", mark="v-issue") if truth(rank, "straggler") else Cell("within"),
                    *_times(rank, "computation_per_step_ns"),
                    value(number(rank, "excess_percent"), share),
                    value(whole(rank, "steps_over"), count),
                    value(number(rank, "steps_over_percent"), percent),
                    *_times(rank, "waiting_per_step_ns"),
                    answer(rank, "confirmed", "yes", "no"),
                ]
                for rank in _by(ranks, "excess_percent")
            ],
            pdf_rows=_in_pdf(ranks),
            html_note="Time in collectives may overlap computation. A straggler is confirmed where the others spend more time in them.",
        ),
    ]


def _ranks(shown: Shown, ranks: Sequence[Row]) -> Figure | None:
    known = [rank for rank in ranks if number(rank, "computation_per_step_ns") is not None]
    if not known:
        return None
    kept = spread(known, BARS, lambda rank: number(rank, "excess_percent") or 0.0)
    parts = (Part("computation", "computation"), Part("in collectives (may overlap computation)", "communication"))
    found = [(place(rank), [number(rank, key) for key in ("computation_per_step_ns", "waiting_per_step_ns")]) for rank in kept]
    unit = time_unit(max(time or 0.0 for _, times in found for time in times) or 1.0)
    bars = [(name_of, [None if time is None else time / unit.nanoseconds for time in times]) for name_of, times in found]
    median = number(shown.details, "median_ns")
    limit = (median / unit.nanoseconds, f"median computation {duration(median)}") if median is not None else None
    late = [place(rank) for rank in known if truth(rank, "straggler")]
    unusual = f"Later than the others: {', '.join(late[:4])}." if late else "No rank computes much longer than the median."
    return Figure(
        f"{shown.id}-bars",
        paired_bars(parts, bars, unit.name, limit=limit),
        f"Computation and time in collectives per step of {plural(len(known), 'rank')}. {unusual}",
        say(
            "Time of each rank per step; the two overlap and do not add up. Who computes longest is least in collectives: "
            "there the others wait for it. {}{}",
            unusual,
            of_all(len(kept), len(known), "rank", "excess over the median"),
        ),
    )


def _bars(shown: Shown, devices: Sequence[Row], parts: Sequence[tuple[Part, str]], limit: str, measure: str, how: str) -> Figure | None:
    """A bar per device: the parts in percent of its span, with the threshold."""
    known = [device for device in devices if number(device, "span_ns") and any(number(device, key) is not None for _, key in parts)]
    if not known:
        return None
    kept = spread(known, BARS, lambda device: number(device, measure) or 0.0)
    bars = [
        (place(device), [100.0 * max(0.0, number(device, key) or 0.0) / (number(device, "span_ns") or 1.0) for _, key in parts])
        for device in kept
    ]
    threshold = shown.parameter(limit)
    longest = max(sum(values) for _, values in bars)
    worst = max(known, key=lambda device: number(device, measure) or 0.0)
    most = f"Most: {place(worst)} with {percent(number(worst, measure))}" + (
        f", threshold {threshold:g} %." if threshold is not None else "."
    )
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


def _kernels(shown: Shown, caption: str, *columns: tuple[str, str, Callable[..., str]]) -> Table | None:
    return table(
        f"{shown.id}-kernels",
        caption,
        [Column("Kernel", "name"), *(Column(label, "number") for _, label, _ in columns)],
        [
            [name(kernel), *(value(number(kernel, key) if form is not count else whole(kernel, key), form) for key, _, form in columns)]
            for kernel in rows(shown.details, "kernels")
        ],
        pdf_rows=_PDF_KERNELS,
    )


def _in_pdf(devices: Sequence[Row]) -> int:
    """How many rows of devices the PDF has: the finding tells all of a single one."""
    return _PDF_DEVICES if len(devices) > 1 else 0


def _times(row: Row, *keys: str) -> list[Cell]:
    return [value(number(row, key), duration) for key in keys]


def _by(devices: Sequence[Row], key: str) -> list[Row]:
    return sorted(devices, key=lambda device: -(number(device, key) or 0.0))


def _precision(share: Row) -> str:
    return "idle" if text(share, "precision") in (None, "unknown") else "computation"
