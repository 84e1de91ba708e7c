"""Device time, launches and waits by module and by source line: grouped device work and its sites -> rows that add up to all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import polars as pl

from ..report.modules import Module, ModuleCoverage, SourceLine
from .call_sites import RANGES, CallSites

MOST_LINES: Final = 2_000  # further lines, those with the least device time, count as unknown

_HOW: Final = "profile with torch.profiler and with_stack=True, which slows the host, or name modules by record_function"
_NO_MODULES: Final = f"No module of this run is known: {_HOW}."

_Sums = tuple[int, int, int, int]  # device time, that of the backward pass, launches, waits


class CodeTimes(NamedTuple):
    modules: tuple[Module, ...]
    lines: tuple[SourceLine, ...]
    coverage: ModuleCoverage


def code_times(work: pl.DataFrame, sites: CallSites) -> CodeTimes:
    """Return the rows of modules and lines.

    ``work``: as of :class:`.operator_work.OwnedWork`; its sites must be those of ``sites``."""
    times = pl.col("total")
    if not sites.known:
        attributed = work.filter(pl.col("operator").is_not_null())["total"].sum() if len(work) else 0
        percent = _known(int(work["total"].sum()), int(attributed)) if attributed else None
        return CodeTimes((), (), ModuleCoverage(absent=_NO_MODULES, attributed_percent=percent))
    summed = work.group_by("site").agg(device=times.sum(), backward=times.filter("backward").sum(), launches=pl.col("count").sum())
    by_site = sites.table().join(summed, on="site", how="left", nulls_equal=True)
    by_site = by_site.with_columns(pl.col("device", "backward", "launches").cast(pl.Int64).fill_null(0))
    modules = _modules(by_site, sites) if sites.source is not None else ()
    lines = _lines(by_site, sites) if sites.has_lines else ()
    total = int(by_site["device"].sum())
    coverage = ModuleCoverage(
        known_percent=_known(total, sum(row.self_device_ns for row in modules if row.path)) if modules else None,
        lines_percent=_known(total, sum(row.device_ns for row in lines if row.line)) if lines else None,
        source=sites.source,
        absent=None if sites.source is not None else _NO_MODULES,
        attributed_percent=_attributed(work, by_site, total, ranges_alone=sites.source == RANGES),
    )
    return CodeTimes(modules, lines, coverage)


def _attributed(work: pl.DataFrame, by_site: pl.DataFrame, total: int, *, ranges_alone: bool) -> float | None:
    """Return the percentage of device time that has an operator or a module.

    None if neither was recorded: named ranges without operators need not be around all work."""
    if ranges_alone and work["operator"].null_count() == work.height:
        return None
    in_module = pl.col("site").is_in(by_site.filter(pl.col("module") != "")["site"].drop_nulls().implode())
    attributed = int(work.filter(pl.col("operator").is_not_null() | in_module.fill_null(False))["total"].sum())
    return _known(total, attributed) if attributed else None


def _known(total: int, known: int) -> float | None:
    return 100 * known / total if total else None


def _by(rows: pl.DataFrame, key: str) -> dict[str, _Sums]:
    summed = rows.group_by(key).agg(pl.col("device", "backward", "launches", "waits").sum())
    return {text: (device, backward, launches, waits) for text, device, backward, launches, waits in summed.iter_rows()}


def _modules(by_site: pl.DataFrame, sites: CallSites) -> tuple[Module, ...]:
    by_path = _by(by_site, "module")
    calls = {path: (count, host) for path, count, host in sites.module_calls().iter_rows()}
    totals: dict[str, _Sums] = {}
    for path in {*by_path, *calls}:
        sums = by_path.get(path, (0, 0, 0, 0))
        for around in _around(path):
            totals[around] = _plus(totals.get(around, (0, 0, 0, 0)), sums)
    return tuple(
        Module(
            path=path,
            device_ns=totals[path][0],
            self_device_ns=by_path.get(path, (0, 0, 0, 0))[0],
            backward_ns=totals[path][1],
            calls=calls.get(path, (0, 0))[0],
            launches=totals[path][2],
            host_ns=calls.get(path, (0, 0))[1],
            waits_ns=totals[path][3],
        )
        for path in _tree_order(totals)
        if path or any(totals[path])
    )


def _plus(a: _Sums, b: _Sums) -> _Sums:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def _around(path: str) -> Iterator[str]:
    """Yield a path and those around it."""
    yield path
    while (end := path.rfind("/")) > 0:
        path = path[:end]
        yield path


def _tree_order(totals: dict[str, _Sums]) -> list[str]:
    """Order paths so that each is before those within it, the longest first."""

    def key(path: str) -> tuple[bool, list[tuple[int, str]]]:
        return not path, [(-totals[around][0], around) for around in reversed([*_around(path)])]

    return sorted(totals, key=key)


def _lines(by_site: pl.DataFrame, sites: CallSites) -> tuple[SourceLine, ...]:
    frames = {line: (function, host) for function, host, line in sites.line_times().iter_rows()}
    modules = by_site.filter(pl.col("device") > 0).group_by("line").agg(pl.col("module").unique())
    only = {line: paths[0] or None for line, paths in modules.iter_rows() if len(paths) == 1}
    rows = sorted(_by(by_site, "line").items(), key=lambda row: (not row[0], -row[1][0], -row[1][3], row[0]))
    known = [row for row in rows if row[0]]
    unknown = _sum(sums for line, sums in [*rows[len(known) :], *known[MOST_LINES:]])
    listed = [(line, sums) for line, sums in [*known[:MOST_LINES], ("", unknown)] if any(sums)]
    return tuple(
        SourceLine(
            line=line,
            function=frames.get(line, (None, 0))[0],
            module=only.get(line) if line else None,
            device_ns=device,
            backward_ns=backward,
            launches=launches,
            host_ns=frames.get(line, (None, 0))[1] if line else 0,
            waits_ns=waits,
        )
        for line, (device, backward, launches, waits) in listed
    )


def _sum(sums: Iterable[_Sums]) -> _Sums:
    total: _Sums = (0, 0, 0, 0)
    for row in sums:
        total = _plus(total, row)
    return total
