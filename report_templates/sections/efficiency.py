"""Section "Efficiency": operators against the peaks of the GPU, utilization of the peak, time lost, and energy."""

from __future__ import annotations

from typing import Final

from markupsafe import Markup

from ...analysis.report.efficiency import DevicePeaks, Efficiency, OperatorWork
from ...analysis.report.model import Report
from ..blocks import Figure, Section, Texts, coded, name, say
from ..blocks.tables import Cell, Col, Table, table, word
from ..figures.roofline import Point, Roof, roofline
from ..figures.stacked_bars import Part
from ..figures.svg import SMALL, WIDE
from ..text.formats import UNKNOWN, bandwidth, capitalized, clip, count, duration, percent, percent_of, plural, scaled, shape, significant

_UNKNOWN: Final = "The work of the operators is not known of this run: make the report again from the traces."
_NO_SHAPES: Final = "The inputs of the operators are not in this run: profile with record_shapes=True."
_POINTS: Final = 200
_LABELED: Final = 5
_PDF_ROWS: Final = 12
_LITTLE: Final = 0.001  # of the time of the drawn operators: not drawn
_WORTH: Final = 0.01  # of that time: a type below has no roof
_MOST_FACTS: Final = 4  # products that the facts name
# Words, color and shade of each bound, in the order of the legend.
_BOUNDS: Final = {
    "compute": ("compute", "computation", 1.0),
    "memory": ("memory", "memory", 1.0),
    "neither": ("neither roof", "idle", 1.0),
    "cache": ("served by cache", "memory", 0.45),
    "latency": ("latency", "sync", 1.0),
    "unknown": (UNKNOWN, "other", 1.0),
}
_OVER: Final = {"steps": "in the steps", "iterations": "in the iterations", "profile window": "in the profile window"}


def efficiency(report: Report) -> Section:
    work = report.efficiency
    if work is None or not work.operators:
        return Section("efficiency", "Efficiency", coded((work and work.absent) or _UNKNOWN))
    if not any(row.input_dims for row in work.operators):
        return Section("efficiency", "Efficiency", coded(_NO_SHAPES))
    facts = _facts(work)
    blocks = [Texts("facts", facts) if facts else None, _table(work), _roofline(work)]
    return Section("efficiency", "Efficiency", _lead(work), [block for block in blocks if block is not None])


def _lead(work: Efficiency) -> Markup:
    sentences = []
    if work.mfu_percent is not None:
        at_least = "at least " if work.lower_bound else ""
        sentences.append(say("Model FLOPs utilization (MFU) was {}{}{}.", at_least, percent(work.mfu_percent), _of_peak(work)))
    elif work.no_mfu:
        sentences.append(say("MFU is not known. {}", coded(work.no_mfu)))
    if work.lower_bound:
        sentences.append(say("FLOPs are known for {}.", _coverage(work)))
    losses = [row for row in work.operators if row.lost_ns]
    if losses:
        first = max(losses, key=lambda row: row.lost_ns or 0)
        lost_ns = sum(row.lost_ns or 0 for row in losses)
        share = percent(percent_of(lost_ns, sum(row.device_ns for row in work.operators)))
        sentences.append(
            say(
                "Against the roof, operators lost {}, {} of their device time; {} lost the most, {}.",
                duration(lost_ns),
                share,
                name(_named(first), 60),
                duration(first.lost_ns),
            )
        )
    elif not sentences:
        sentences.append(say("{} with the same inputs each are known.", plural(len(work.operators) + work.further, "group of calls")))
    return Markup(" ").join(sentences)


def _coverage(work: Efficiency) -> str:
    return f"{percent(work.coverage_percent)} of the time of matrix kernels {_OVER.get(work.measured_over or '', '')}".rstrip()


def _of_peak(work: Efficiency) -> str:
    products = sorted({peaks.product for peaks in work.peaks})
    whose = f" of the {clip(products[0], 60)}" if len(products) == 1 else " of the GPUs"
    several = any(len(_types(work) & peaks.flop_per_s.keys()) > 1 for peaks in work.peaks)
    peak = f" of the dense peaks{whose}, each operator at the peak of its type," if several else f" of the dense peak{whose}"
    return f"{peak} {_OVER.get(work.measured_over or '', '')}".rstrip(" ,")


def _facts(work: Efficiency) -> list[tuple[str, str]]:
    at_least = "at least " if work.lower_bound else ""
    energy = work.energy
    facts = [
        ("MFU", None if work.mfu_percent is None else f"{at_least}{percent(work.mfu_percent)}"),
        ("HFU, with recomputation", None if work.hfu_percent is None else f"{at_least}{percent(work.hfu_percent)}"),
        ("FLOPs known", None if work.coverage_percent is None else f"for {_coverage(work)}"),
        *(("Peaks", _peaks(peaks, _types(work))) for peaks in work.peaks[:_MOST_FACTS]),
        ("Energy per step", None if energy is None or energy.joules_per_step is None else scaled(energy.joules_per_step, "J")),
        ("Energy per TFLOP", None if energy is None or energy.joules_per_tflop is None else scaled(energy.joules_per_tflop, "J")),
        ("Mean power", None if energy is None else f"{scaled(energy.mean_watts, 'W')} per GPU"),
    ]
    return [(label, text) for label, text in facts if text]


def _peaks(peaks: DevicePeaks, used: set[str | None]) -> str:
    kinds = [kind for kind in peaks.flop_per_s if kind in used] or list(peaks.flop_per_s)
    figures = [f"{kind.upper()} {_tflops(peaks.flop_per_s[kind])}" for kind in kinds]
    figures += [] if peaks.bytes_per_s is None else [f"memory {_memory(peaks)}"]
    return f"{capitalized(clip(peaks.product, 60))}: {', '.join(figures)} ({clip(peaks.source, 120)})"


def _tflops(flop_per_s: float) -> str:
    return f"{significant(flop_per_s / 1e12)}\u00a0TFLOPS"


def _memory(peaks: DevicePeaks) -> str:
    return bandwidth(None if peaks.bytes_per_s is None else peaks.bytes_per_s / 1e9)


def _drawn(work: Efficiency) -> list[OperatorWork]:
    """Return the rows with known rates, without those of little time."""
    rows = [row for row in work.operators if row.tflops and row.intensity and row.device_ns > 0][:_POINTS]
    least = _LITTLE * sum(row.device_ns for row in rows)
    return [row for row in rows if row.device_ns >= least]


def _types(work: Efficiency) -> set[str | None]:
    """Return the types of most of the arithmetic.

    FP32 inputs may be multiplied as TF32."""
    times: dict[str | None, int] = {}
    for row in _drawn(work):
        times[row.compute_type] = times.get(row.compute_type, 0) + row.device_ns
    used = {kind for kind, time in times.items() if time >= _WORTH * sum(times.values())}
    return used | {"tf32"} if "fp32" in used else used


def _roofline(work: Efficiency) -> Figure | None:
    """Draw the operators with known rates below the roofs of the GPU.

    None without peaks or rates."""
    rows = _drawn(work)
    if not rows or not work.peaks:
        return None
    peaks, used = work.peaks[0], _types(work)
    roofs = [Roof(f"{kind.upper()} {_tflops(rate)}", rate / 1e12) for kind, rate in peaks.flop_per_s.items() if kind in used]
    bounds = [bound for bound in _BOUNDS if any(row.bound == bound for row in rows)]
    parts = [Part("unknown bound" if bound == "unknown" else f"{_BOUNDS[bound][0]}", *_BOUNDS[bound][1:]) for bound in bounds]
    points = [_point(row, number < _LABELED) for number, row in enumerate(rows)]
    bytes_per_s = None if peaks.bytes_per_s is None else peaks.bytes_per_s / 1e12
    drawings = [roofline(points, roofs, bytes_per_s, f"memory {_memory(peaks)}", parts, width=width) for width in (WIDE, SMALL)]
    first = rows[0]
    several = f" The roofs are those of the {clip(peaks.product, 60)}." if len(work.peaks) > 1 else ""
    caption = say(
        "Rate of each operator over its arithmetic intensity, by its limit. The area of a point is its device time; the lines are roofs.{}",
        several,
    )
    alt = f"Roofline of {plural(len(rows), 'operator shape')}. The longest, {clip(_named(first), 80)}: {_rates(first)}"
    return Figure("efficiency-roofline", drawings[0], alt, caption, small=drawings[1])


def _point(row: OperatorWork, labeled: bool) -> Point:
    _, meaning, shade = _BOUNDS[row.bound]
    title = f"{clip(_named(row), 200)}: {duration(row.device_ns)}, {_rates(row)}"
    return Point(row.intensity or 0.0, row.tflops or 0.0, row.device_ns, meaning, title, clip(_named(row), 38) if labeled else None, shade)


def _rates(row: OperatorWork) -> str:
    roof = "" if row.percent_of_roof is None else f", {percent(row.percent_of_roof)} of the roof"
    return f"{significant(row.tflops)}\u00a0TFLOP/s, {significant(row.intensity)}\u00a0FLOP per byte{roof}"


def _named(row: OperatorWork) -> str:
    """Return the operator and the sizes of its inputs."""
    sizes = shape(row.input_dims)
    return f"{row.operator.removeprefix('aten::')} {'' if sizes == UNKNOWN else sizes}".rstrip()


def _table(work: Efficiency) -> Table | None:
    rows = sorted(work.operators, key=lambda row: -(row.lost_ns or 0))  # stable: the others stay ordered by device time
    on_device = any(row.device_ns for row in rows)
    roofed = any(row.percent_of_roof is not None for row in rows)
    lost = any(row.lost_ns for row in rows)
    neither = " Neither roof: below a fifth of both." if any(row.bound == "neither" for row in rows) else ""
    rest = f" {plural(work.further, 'further row')} took less device time." if work.further else ""
    return table(
        "efficiency-operators",
        "Operators by time lost against the roof" if lost else "Operators by device time" if on_device else "Operators by FLOPs",
        rows,
        Col("Operator", lambda row: word(row.operator, limit=60), kind="name", code=True),
        Col("Inputs", lambda row: word(shape(row.input_dims), limit=48), html_only=True),
        Col("Inputs", lambda row: word(shape(row.input_dims), limit=26), kind="name", pdf_only=True),
        Col("Type", lambda row: (row.compute_type or "").upper(), html_only=True, when=any(row.compute_type for row in rows)),
        Col("Calls", lambda row: row.calls, count),
        Col("Device time", lambda row: row.device_ns, duration, when=on_device),
        Col("Lost", lambda row: row.lost_ns, duration, when=lost),
        Col("Of roof", lambda row: row.percent_of_roof, percent, when=roofed),
        Col("Bound", lambda row: _BOUNDS[row.bound][0], when=roofed),
        Col("TFLOP/s", lambda row: row.tflops, significant, when=any(row.tflops is not None for row in rows)),
        Col("GB/s", lambda row: row.gb_per_s, significant, when=any(row.gb_per_s is not None for row in rows)),
        Col("FLOP per call", _flop_per_call, kind="number", html_only=on_device),
        Col("Bytes per call", lambda row: row.bytes_per_call, lambda size: scaled(size, "B"), html_only=True),
        Col("Module", _module, code=True, html_only=True, when=any(row.module or row.modules_seen for row in rows)),
        Col("Line", lambda row: row.source_line, code=True, limit=60, html_only=True, when=any(row.source_line for row in rows)),
        pdf_rows=_PDF_ROWS,
        note="Lost: device time beyond the least time that the peaks allow. A row has equal sizes, types and strides of inputs."
        + neither
        + rest,
    )


def _flop_per_call(row: OperatorWork) -> Cell:
    """Write the FLOPs of a call, or their bounds."""
    if row.flop_per_call is None and row.flop_per_call_bounds is not None:
        least, most = row.flop_per_call_bounds
        return Cell(f"{scaled(least, 'FLOP')} to {scaled(most, 'FLOP')}", sort=least)
    return Cell(scaled(row.flop_per_call, "FLOP"), sort=row.flop_per_call)


def _module(row: OperatorWork) -> Cell:
    if row.module is None and row.modules_seen > 1:
        return Cell(plural(row.modules_seen, "module"))
    return word(row.module, limit=60)
