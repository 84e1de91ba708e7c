"""When a GPU was low, was a processor the reason? Three slices of the snapshots, and what ran meanwhile."""

from __future__ import annotations

from ..blocks import Cell, Column, Figure, Slice, Table, ring, say, table, value
from ..formats import clip, count, duration, percent
from .reading import Blocks, Row, Shown, marked, name, number, numbers, part, rows, text, truth, whole

_KINDS = (("phases", "Phase", "computation"), ("annotations", "Annotation", "host"), ("operators", "Operator", "operator"))
_SECTORS = 5
_NAMED = 12
_ALL = 0.999  # one part that is nearly everything is no division


def cpu_bottleneck(shown: Shown) -> Blocks:
    return _bottleneck(shown, "CPU")


def io_bottleneck(shown: Shown) -> Blocks:
    return _bottleneck(shown, "I/O")


def _bottleneck(shown: Shown, what: str) -> Blocks:
    nodes, alone = rows(shown.details, "nodes"), truth(shown.details, "without_gpu")
    return [
        _slices(shown, what),
        table(
            f"{shown.id}-nodes",
            f"Snapshots with {what} bottleneck by node",
            [
                Column("Node", "name"),
                Column("Share of snapshots", "number"),
                Column("Judged"),
                Column("Bottlenecks", "number"),
                Column("Low snapshots", "number"),
                Column("Snapshots", "number"),
                Column("Of low", "number", html_only=True),
                Column("Windows over", "number", html_only=True),
                *([] if alone else [Column("Unused GPUs", html_only=True)]),
            ],
            [
                [
                    Cell(clip(text(node, "node") or "unknown host", 40)),
                    value(number(node, "bottleneck_percent"), percent),
                    marked(truth(node, "issue")),
                    value(whole(node, "bottlenecks"), count),
                    value(whole(node, "low"), count),
                    value(whole(node, "snapshots"), count),
                    value(number(node, "of_low_percent"), percent),
                    Cell(
                        f"{count(whole(node, 'windows_exceeded'))} of {count(whole(node, 'windows'))}", sort=whole(node, "windows_exceeded")
                    ),
                    *([] if alone else [Cell(_unused(node))]),
                ]
                for node in sorted(nodes, key=lambda node: -(number(node, "bottleneck_percent") or 0.0))
            ],
            pdf_rows=8,
        ),
        *during(shown, part(shown.details, "active"), f"during the {what} bottleneck"),
    ]


def _slices(shown: Shown, what: str) -> Figure | None:
    total = part(shown.details, "total")
    snapshots, low, bottlenecks = (whole(total, key) for key in ("snapshots", "low", "bottlenecks"))
    if not snapshots or low is None or bottlenecks is None:
        return None
    alone = truth(shown.details, "without_gpu")
    parts = [
        (f"low, with {what} bottleneck", "host", bottlenecks, "bottleneck_percent"),
        ("low for another reason", "idle", low - bottlenecks, "other_percent"),
        ("mean of the cores at or above 50 %" if alone else "GPU above its threshold", "computation", snapshots - low, "above_percent"),
    ]
    of_low = number(total, "of_low_percent")
    reason = f" Of the low snapshots {percent(of_low)} had a bottleneck." if of_low is not None and low else ""
    return ring(
        f"{shown.id}-slices",
        say("Each snapshot of each node counts once; the slices sum to 100 %.{}", reason),
        "Snapshots by state of the cores" if alone else "Snapshots by state of the GPUs",
        [
            Slice(label, meaning, share if (share := number(total, key)) is not None else 0.0, (Cell(count(number_of)),))
            for label, meaning, number_of, key in parts
        ],
        ("State", "Snapshots", "Share"),
        middle=(count(snapshots), "snapshots"),
        whole=100.0,
    )


def during(shown: Shown, active: Row, when: str) -> list[Figure | Table | None]:
    """What was active: rings where the rule found an issue, and the whole in a table."""
    found = [(key, title, meaning, rows(active, key)) for key, title, meaning in _KINDS]
    drawn = [_ring(shown, key, title, meaning, entries, when) for key, title, meaning, entries in found] if shown.issue else []
    listed = [(title, entry) for _, title, _, entries in found for entry in _by_time(entries)[:_NAMED]]
    return [
        *drawn,
        table(
            f"{shown.id}-active",
            f"What was active {when}",
            [Column("Name", "name"), Column("Kind"), Column("Time", "number"), Column("Share of its kind", "number")],
            [
                [name(entry), Cell(title.lower()), value(number(entry, "time_ns"), duration), value(number(entry, "percent"), percent)]
                for title, entry in listed
            ],
            pdf_rows=0,
        ),
    ]


def _by_time(entries: list[Row]) -> list[Row]:
    return sorted(entries, key=lambda entry: -(number(entry, "time_ns") or 0.0))


def _ring(shown: Shown, key: str, title: str, meaning: str, entries: list[Row], when: str) -> Figure | None:
    """The entries with most time and the others. Ranges may lie within each other, so that their times add up to more than the whole."""
    ordered = [entry for entry in _by_time(entries) if number(entry, "time_ns")]
    total = sum(number(entry, "time_ns") or 0.0 for entry in ordered)
    if not total or (number(ordered[0], "time_ns") or 0.0) > _ALL * total:
        return None
    head, rest = ordered[:_SECTORS], ordered[_SECTORS:]
    parts = [
        Slice(
            text(entry, "name") or "–",
            meaning,
            100.0 * (number(entry, "time_ns") or 0.0) / total,
            (Cell(duration(number(entry, "time_ns"))),),
        )
        for entry in head
    ]
    if rest:
        time = sum(number(entry, "time_ns") or 0.0 for entry in rest)
        parts.append(Slice(f"All others ({count(len(rest))})", "other", 100.0 * time / total, (Cell(duration(time)),)))
    return ring(
        f"{shown.id}-{key}",
        say("Share of the summed time {}, weighted by overlap.", when),
        f"{title}s {when}",
        parts,
        (title, "Time", "Share"),
        middle=(duration(total), "summed"),
        whole=100.0,
        half=True,
    )


def _unused(node: Row) -> str:
    return ", ".join(f"GPU {device:g}" for device in numbers(node, "unused")[:16]) or "none"
