"""What did the rules over samples of GPUs see: utilisation, memory, and the processors beside them?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from ..blocks import BARS, Cell, Column, Figure, of_all, say, spread, table, value, word
from ..figures.box_plot import Box, box_plot
from ..formats import clip, count, duration, percent, plural
from .reading import Blocks, Row, Shown, number, part, place, points, rows, text, truth, where, whole

HOW: Final = "Box: quartiles over the whole run, line: median; whiskers: the most extreme values within 1.5 IQR of the quartiles."
_MEMORY: Final = {"footprint": "footprint (used of total)", "memory controller": "memory-controller utilisation"}
_EPISODES: Final = 8
_PDF_DEVICES: Final = 4  # the figure above has them all
_NODES: Final = 4


def low_gpu_utilization(shown: Shown) -> Blocks:
    devices = rows(shown.details, "devices")
    limits = [
        (limit, f"{name} {limit:g} %")
        for name, limit in (("p5", shown.parameter("threshold_p5")), ("p95", shown.parameter("threshold_p95")))
        if limit is not None
    ]
    boxes = [box for device in devices if (box := _box(device, part(device, "box"), _gpu(device), note=_p95(device)))]
    drawn = spread(boxes, BARS, lambda box: box.p95 if box.p95 is not None else box.p50)
    low = [device for device in devices if text(device, "state") in ("under-utilised", "fluctuating", "unused")]
    unusual = f"Low or fluctuating: {_list(low)}." if low else "No GPU lies below its thresholds."
    made = [truth(device, "derived") for device in devices]
    mixed = any(made) and not all(made)
    derived = " Derived from kernel activity." if made and all(made) else ""
    return [
        _figure(
            f"{shown.id}-boxes",
            drawn,
            limits,
            f"GPU utilisation of {plural(len(boxes), 'GPU')}. {unusual}",
            say("{} {}{}{}", HOW, unusual, derived, of_all(len(drawn), len(boxes), "GPU", "p95")),
        ),
        table(
            f"{shown.id}-devices",
            "GPU utilisation by GPU",
            [
                Column("GPU", "name"),
                Column("State"),
                Column("Windows triggered", "number"),
                Column("p95, last window", "number"),
                Column("p5, last window", "number"),
                Column("Median", "number"),
                Column("Max", "number"),
                Column("Samples", "number", html_only=True),
                Column("Low", html_only=True),
                Column("First after", "number", html_only=True),
                Column("Last after", "number", html_only=True),
                *([Column("Source", html_only=True)] if mixed else []),
            ],
            [
                [
                    where(device),
                    _state(text(device, "state")),
                    _of(whole(device, "triggered"), whole(device, "windows")),
                    value(number(device, "p95"), percent),
                    value(number(device, "p5"), percent),
                    value(number(part(device, "box"), "p50"), percent),
                    value(number(part(device, "box"), "max"), percent),
                    value(whole(device, "samples"), count),
                    word(_pattern(device)),
                    shown.after(number(device, "first_ns")),
                    shown.after(number(device, "last_ns")),
                    *([Cell("derived" if truth(device, "derived") else "sampled")] if mixed else []),
                ]
                for device in sorted(devices, key=lambda device: -(whole(device, "triggered") or 0))
            ],
            pdf_rows=_PDF_DEVICES,
        ),
    ]


def batch_size(shown: Shown) -> Blocks:
    devices = rows(shown.details, "devices")
    found = [("cpu", "host", "CPU"), ("gpu", "computation", "GPU"), ("gpu_memory", "memory", "GPU memory")]
    limits = {key: shown.parameter(f"{key}_threshold_p95") for key, *_ in found}
    kept = spread(devices, BARS // 3, lambda device: number(device, "gpu_p95") or 0.0)
    boxes = []
    seen: set[tuple[str | None, str]] = set()
    for device in kept:
        for key, meaning, label in found:
            node = text(device, "node")
            name = label if key == "cpu" else f"GPU {whole(device, 'device')}" + (" memory" if key == "gpu_memory" else "")
            box = _box(device, part(part(device, "boxes"), key), name, meaning=meaning, note=_p95_of(number(device, f"{key}_p95")))
            if box and (node, name) not in seen:
                seen.add((node, name))
                boxes.append(box)
    boxes.sort(key=lambda box: box.group)
    violations = sum(whole(device, "violations") or 0 for device in devices)
    figure = text(devices[0], "memory_figure") if devices else None
    unusual = f"{plural(violations, 'violation')}: CPU, GPU and GPU memory low together" if violations else "never all three low together"
    memory = f" GPU memory is the {_MEMORY.get(figure, clip(figure, 40))}." if figure else ""
    return [
        _figure(
            f"{shown.id}-boxes",
            boxes,
            _together([(label, limit) for (_, _, label), limit in zip(found, limits.values(), strict=True) if limit is not None]),
            f"CPU, GPU and GPU memory utilisation of {plural(len(kept), 'GPU')}: {unusual}",
            say("{} {}.{}{}", HOW, unusual[0].upper() + unusual[1:], memory, of_all(len(kept), len(devices), "GPU", "p95")),
        ),
        table(
            f"{shown.id}-devices",
            "CPU, GPU and GPU memory together",
            [
                Column("GPU", "name"),
                Column("Violations", "number"),
                Column("CPU p95", "number"),
                Column("GPU p95", "number"),
                Column("GPU memory p95", "number"),
                Column("Windows", "number", html_only=True),
                Column("Samples", "number", html_only=True),
                Column("First after", "number", html_only=True),
                Column("Last after", "number", html_only=True),
            ],
            [
                [
                    where(device),
                    value(whole(device, "violations"), count),
                    value(number(device, "cpu_p95"), percent),
                    value(number(device, "gpu_p95"), percent),
                    value(number(device, "gpu_memory_p95"), percent),
                    value(whole(device, "windows"), count),
                    value(whole(device, "samples"), count),
                    shown.after(number(device, "first_ns")),
                    shown.after(number(device, "last_ns")),
                ]
                for device in sorted(devices, key=lambda device: -(whole(device, "violations") or 0))
            ],
        ),
    ]


def gpu_memory_increase(shown: Shown) -> Blocks:
    devices = rows(shown.details, "devices")
    boxes = [box for device in devices if (box := _box(device, part(device, "box"), _gpu(device), meaning="memory", note=_slope(device)))]
    drawn = spread(boxes, BARS, lambda box: box.p75 - box.p25)
    worst = max(devices, key=lambda device: number(device, "largest_increase") or 0.0, default=None)
    largest = number(worst, "largest_increase") if worst else None
    unusual = f"Largest increase: {points(largest)} on {place(worst)}." if worst and largest is not None else "No increase was seen."
    episodes = [(device, episode) for device in devices for episode in rows(device, "episodes")]
    episodes.sort(key=lambda pair: -(number(pair[1], "largest") or 0.0))
    return [
        _figure(
            f"{shown.id}-boxes",
            drawn,
            [],
            f"GPU memory utilisation of {plural(len(boxes), 'GPU')}. {unusual}",
            say("{} {} At the right: slope over the run.{}", HOW, unusual, of_all(len(drawn), len(boxes), "GPU", "spread")),
        ),
        table(
            f"{shown.id}-devices",
            "GPU memory by GPU",
            [
                Column("GPU", "name"),
                Column("Largest increase", "number"),
                Column("Violations", "number"),
                Column("Episodes", "number"),
                Column("Slope per hour", "number"),
                Column("Samples", "number", html_only=True),
                Column("Median", "number", html_only=True),
                Column("Max", "number", html_only=True),
                Column("Measured", html_only=True),
            ],
            [
                [
                    where(device),
                    value(number(device, "largest_increase"), points),
                    value(whole(device, "violations"), count),
                    value(len(rows(device, "episodes")), count),
                    value(number(device, "slope_percent_per_hour"), points),
                    value(whole(device, "samples"), count),
                    value(number(part(device, "box"), "p50"), percent),
                    value(number(part(device, "box"), "max"), percent),
                    word(text(device, "memory_figure")),
                ]
                for device in sorted(devices, key=lambda device: -(number(device, "largest_increase") or 0.0))
            ],
        ),
        table(
            f"{shown.id}-episodes",
            "Episodes of increase",
            [
                Column("GPU", "name"),
                Column("Began after", "number"),
                Column("Ended after", "number"),
                Column("Largest increase", "number"),
                Column("Samples", "number"),
            ],
            [
                [
                    where(device),
                    shown.after(number(episode, "start_ns")),
                    shown.after(number(episode, "end_ns")),
                    value(number(episode, "largest"), points),
                    value(whole(episode, "samples"), count),
                ]
                for device, episode in episodes
            ],
            pdf_rows=_EPISODES,
        ),
    ]


def _figure(id: str, boxes: Sequence[Box], limits: Sequence[tuple[float, str]], alt: str, caption: object) -> Figure | None:
    if not boxes:
        return None
    if len({box.group for box in boxes}) > _NODES:  # a heading each would take more room than the boxes
        boxes = [dataclasses.replace(box, label=f"{clip(box.group, 18)} {box.label}", group="") for box in boxes]
    return Figure(id, box_plot(boxes, limits, "%", top=100.0), alt, say("{}", caption))


def _box(device: Row, found: Row, label: str, *, meaning: str = "computation", note: str = "") -> Box | None:
    """A box, where its quartiles are known."""
    p25, p50, p75 = (number(found, key) for key in ("p25", "p50", "p75"))
    if p25 is None or p50 is None or p75 is None:
        return None
    low, high = (
        next((known for key in keys if (known := number(found, key)) is not None), middle)
        for keys, middle in ((("whisker_lower", "lower", "min"), p25), (("whisker_upper", "upper", "max"), p75))
    )
    group = text(device, "node") or "unknown host"
    return Box(label, p25, p50, p75, low, high, number(found, "p5"), number(found, "p95"), group, note, meaning)


def _gpu(device: Row) -> str:
    return f"GPU {whole(device, 'device')}" if whole(device, "device") is not None else "GPU"


def _p95(device: Row) -> str:
    return _p95_of(number(part(device, "box"), "p95"))


def _p95_of(found: float | None) -> str:
    return f"p95 {percent(found)}" if found is not None else ""


def _slope(device: Row) -> str:
    slope = number(device, "slope_percent_per_hour")
    return f"{points(slope)}/h" if slope is not None else ""


def _state(state: str | None) -> Cell:
    return Cell(f"✕ {state}", mark="v-issue") if state in ("under-utilised", "fluctuating", "unused") else Cell(clip(state or "–", 40))


def _pattern(device: Row) -> str | None:
    pattern = text(device, "pattern")
    ends = {"head": number(device, "idle_head_ns"), "tail": number(device, "idle_tail_ns")}
    lengths = [duration(length) for end, length in ends.items() if length and end in (pattern or "").split()]
    return f"{pattern} ({', '.join(lengths)})" if lengths else pattern


def _of(some: int | None, all_of: int | None) -> Cell:
    return Cell("–" if some is None else f"{count(some)} of {count(all_of)}" if all_of is not None else count(some), sort=some)


def _list(devices: Sequence[Row], most: int = 4) -> str:
    named = ", ".join(place(device) for device in devices[:most])
    return named if len(devices) <= most else f"{named} and {count(len(devices) - most)} more"


def _together(limits: Sequence[tuple[str, float]]) -> list[tuple[float, str]]:
    """Thresholds of the same value share a line."""
    values = {limit for _, limit in limits}
    if len(values) == 1 and len(limits) > 1:
        (limit,) = values
        return [(limit, f"p95 thresholds {limit:g} %")]
    return [(limit, f"{label} {limit:g} %") for label, limit in limits]
