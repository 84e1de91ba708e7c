"""Where calls come from: calls of operators and of the runtime -> site, a module path and a source line.

The module is the innermost one open on the thread when the call began, the line that of the innermost Python frame of the program, else of
a library. A call within a node of autograd belongs to the site of the forward operator with the node's sequence number, unless the node
itself runs Python code, as a repeated forward pass does.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..toolkit.contents import kinds
from ..toolkit.intervals import innermost, outermost, union_length
from ..toolkit.places import one_of
from .forward_calls import forward_calls
from .frames import LIBRARY, USER, frames
from .module_paths import NONE, ModulePaths
from .named_ranges import module_ranges, range_names
from .stacks import hierarchy, lines_of_stacks

MODULE_CALLS: Final = "module calls"
HIERARCHIES: Final = "module hierarchies of operators"
RANGES: Final = "named ranges"

_MODULE: Final = "nn.Module: "
_THREAD: Final = ["process", "tid"]
_UNKNOWN_LINE: Final = 0
_NAMES: Final = "SELECT id AS name, text FROM name WHERE contains(text, '): ') OR starts_with(text, 'nn.Module: ') ORDER BY id"
_STACKS: Final = """
    SELECT id, call_stack, module_hierarchy FROM signature WHERE call_stack IS NOT NULL OR module_hierarchy IS NOT NULL ORDER BY id
"""
_FRAMES: Final = """
    SELECT e.process, e.tid, e.name, e.start_ns AS start, e.start_ns + e.duration_ns AS "end" FROM host_event AS e
    WHERE e.kind = 'python' AND e.name IN (SELECT unnest(?::INTEGER[])) AND {}
"""
# Synchronizations, waits for the data loader, and copies of pageable memory, which return when the copy is done.
_WAITS: Final = """
    SELECT e.process, e.tid, e.start_ns AS start, e.start_ns + e.duration_ns AS "end" FROM host_event AS e
    WHERE e.duration_ns > 0 AND e.kind IN ('sync', 'loader') AND {condition}
    UNION ALL SELECT e.process, e.tid, e.start_ns AS start, e.start_ns + e.duration_ns AS "end" FROM host_event AS e
    SEMI JOIN (SELECT process, correlation FROM device_event WHERE kind = 'memcpy' AND pageable) AS d
        ON d.process = e.process AND d.correlation = e.correlation
    WHERE e.duration_ns > 0 AND e.kind = 'launch' AND {condition}
"""
# Calls that may have a stack of their own.
_STACKED: Final = """
    SELECT e.process, e.tid, e.start_ns AS start, e.start_ns + e.duration_ns AS "end", e.signature FROM host_event AS e
    WHERE e.kind IN ({kinds}) AND e.signature IS NOT NULL AND {condition}
"""
# Nodes of autograd: modules called within them belong to a repeated forward pass.
_NODES: Final = """
    SELECT e.process, e.tid, e.start_ns AS start, e.start_ns + e.duration_ns AS "end", e.signature, e.sequence, e.forward_thread
    FROM host_event AS e WHERE e.kind = 'operator' AND e.forward_thread > 0 AND {}
"""
_RANGE: Final = {"process": pl.Int32, "tid": pl.Int64, "start": pl.Int64, "end": pl.Int64}
_NO_OPERATORS: Final = pl.DataFrame(schema=_RANGE | {"signature": pl.Int32, "sequence": pl.Int64, "forward_thread": pl.Int64})
_NO_STACKS: Final = pl.DataFrame(schema={"signature": pl.Int32, "path": pl.UInt32, "line": pl.UInt32})
_NAME: Final = {"name": pl.Int32, "text": pl.String, "module": pl.UInt32, "line": pl.UInt32, "origin": pl.String}
_NO_NAMES: Final = pl.DataFrame(schema=_NAME | {"mark": pl.String, "way": pl.String})


class _Code(NamedTuple):
    """Ranges of the code of some processes: process, tid, start, end, and the numbers of a path or of a line."""

    modules: pl.DataFrame  # path
    user: pl.DataFrame  # line
    library: pl.DataFrame  # line
    stacked: pl.DataFrame  # path and line, of operators with a stack


class CallSites:
    """Sites of a run, numbered from 1 as calls are looked up. Sums are of the processes looked up so far."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._paths = ModulePaths()
        self._lines: dict[str, int] = {"": _UNKNOWN_LINE}
        self._functions: list[str | None] = [None]
        self._sites: dict[tuple[int, int], int] = {(NONE, _UNKNOWN_LINE): 0}
        self._kept: tuple[list[int | None], _Code] | None = None  # the code of the processes of the last moments
        self._waits = [pl.DataFrame(schema={"site": pl.UInt32, "waits": pl.Int64})]
        self._module_calls = [pl.DataFrame(schema={"path": pl.UInt32, "calls": pl.UInt32, "host": pl.Int64})]
        self._line_times = [pl.DataFrame(schema={"line": pl.UInt32, "host": pl.Int64})]

    def of(self, points: pl.DataFrame, operators: pl.DataFrame) -> pl.Series:
        """Return the site of each point, null if unknown; looks up each process once.

        ``points`` and ``operators`` are those of :data:`.operator_work.Sites`."""
        condition = one_of("e.process", pl.concat([points["process"], operators["process"]]).unique().sort().to_list())
        code = self._code(condition, operators, self._with_stacks("'loader'", condition))
        self._add_times(code)
        waits = outermost(self._store.frame(_WAITS.format(condition=condition)), _THREAD)
        nodes = operators.with_row_index("row").filter(pl.col("forward_thread") > 0)
        around = innermost(waits.select(*_THREAD, time="start"), nodes, _THREAD)
        of_waits = waits.select(*_THREAD, time="start").with_columns(node=nodes["row"].gather(around))
        every = pl.concat([points.select(of_waits.columns), of_waits], how="vertical_relaxed")
        sites = self._sites_of(every, operators, code)
        ends = pl.DataFrame({"site": sites.tail(waits.height), "waits": waits["end"] - waits["start"]})
        self._waits.append(ends.group_by("site").agg(pl.col("waits").sum()))
        return sites.head(points.height)

    def at(self, moments: pl.DataFrame) -> pl.DataFrame:
        """Return ``module`` and ``line`` of the code that was open at some moments.

        ``moments``: process, tid, start. Columns have "" if unknown, in the order of the moments."""
        if not self.known or moments.is_empty():
            return moments.with_columns(module=pl.lit(""), line=pl.lit("")).select("module", "line")
        processes = moments["process"].unique().sort().to_list()
        if self._kept is None or self._kept[0] != processes:
            condition = one_of("e.process", processes)
            nodes = self._store.frame(_NODES.format(condition)) if self.source in {MODULE_CALLS, RANGES} else _NO_OPERATORS
            self._kept = processes, self._code(condition, nodes, self._with_stacks("'operator', 'loader'", condition))
        points = moments.select(*_THREAD, time="start", node=pl.lit(None, pl.UInt32))
        sites = self._sites_of(points, _NO_OPERATORS, self._kept[1])
        known = sites.to_frame("site").join(self.table(), on="site", how="left", nulls_equal=True, maintain_order="left")
        return known.select("module", "line")

    @cached_property
    def source(self) -> str | None:
        """The kind of events that names the modules of the run, None without any."""
        if len(self._module_names):
            return MODULE_CALLS
        if len(self._stacks) and (self._stacks["path"] != NONE).any():
            return HIERARCHIES
        return RANGES if len(self._range_names) else None

    @property
    def has_lines(self) -> bool:
        """Whether the run has Python frames or stacks of operators."""
        return len(self._frame_names) + len(self._stacks) > 0

    @property
    def known(self) -> bool:
        """Whether the run has anything that names modules or lines."""
        return self.source is not None or self.has_lines

    def table(self) -> pl.DataFrame:
        """Return the sites: ``site``, ``module``, ``line``, ``waits`` (ns).

        ``module`` is a path and ``line`` file:line, or "" if unknown."""
        paths, lines = self._paths.texts(), list(self._lines)
        rows = [(site or None, paths[path], lines[line]) for (path, line), site in self._sites.items()]
        table = pl.DataFrame(rows, schema={"site": pl.UInt32, "module": pl.String, "line": pl.String}, orient="row")
        waits = pl.concat(self._waits).group_by("site").agg(pl.col("waits").sum())
        return table.join(waits, on="site", how="left", nulls_equal=True).with_columns(pl.col("waits").fill_null(0))

    def module_calls(self) -> pl.DataFrame:
        """Return ``module`` (path), ``calls`` and ``host`` (ns) of the calls of modules."""
        calls = pl.concat(self._module_calls)
        paths = pl.Series(self._paths.texts())
        return calls.with_columns(module=paths.gather(calls["path"])).group_by("module").agg(pl.col("calls", "host").sum())

    def line_times(self) -> pl.DataFrame:
        """Return ``line``, ``function`` and ``host`` (ns) of the frames."""
        known = pl.DataFrame({"text": list(self._lines), "function": self._functions}, schema={"text": pl.String, "function": pl.String})
        times = pl.concat(self._line_times).group_by("line").agg(pl.col("host").sum())
        joined = known.with_row_index("line").join(times, on="line", how="left")
        return joined.select("function", pl.col("host").fill_null(0), line="text")

    # ---- names --------------------------------------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> pl.DataFrame:
        """Return the names that Python frames may have: name (id), text."""
        if "python" not in kinds(self._store, "host_event"):
            return _NO_NAMES
        return self._store.frame(_NAMES)

    @cached_property
    def _module_names(self) -> pl.DataFrame:
        if self._names is _NO_NAMES:
            return _NO_NAMES
        named = self._names.filter(pl.col("text").str.starts_with(_MODULE))
        return self._numbered(named.with_columns(pl.col("text").str.slice(len(_MODULE))))

    @cached_property
    def _range_names(self) -> pl.DataFrame:
        named = range_names(self._store)
        return _NO_NAMES if named is None else self._numbered(named)

    def _numbered(self, names: pl.DataFrame) -> pl.DataFrame:
        return names.with_columns(module=pl.Series([self._paths.module(text) for text in names["text"]], dtype=pl.UInt32))

    @cached_property
    def _frame_names(self) -> pl.DataFrame:
        """Return the names of frames of the program and of libraries.

        Columns: name, line (number), origin."""
        if self._names is _NO_NAMES:
            return _NO_NAMES
        parsed = pl.concat([self._names.select("name"), frames(self._names["text"])], how="horizontal")
        known = parsed.filter(pl.col("origin").is_in([USER, LIBRARY]))
        lines = [self._line(line, function) for line, function in known.select("line", "function").iter_rows()]
        return known.select("name", "origin", line=pl.Series(lines, dtype=pl.UInt32))

    def _line(self, line: str, function: str | None) -> int:
        number = self._lines.setdefault(line, len(self._lines))
        if number == len(self._functions):
            self._functions.append(function)
        return number

    @cached_property
    def _stacks(self) -> pl.DataFrame:
        """Return the sites of signatures with a stack: signature, path, line (numbers)."""
        if not self._store.has_rows("signature"):
            return _NO_STACKS
        stacks = self._store.frame(_STACKS)
        rows = []
        for signature, modules, line, function in pl.concat(
            [stacks.select("id", "module_hierarchy"), lines_of_stacks(stacks["call_stack"])], how="horizontal"
        ).iter_rows():
            path = NONE
            for module in hierarchy(modules or ""):
                path = self._paths.number(path, self._paths.module(module))
            rows.append((signature, path, self._line(line or "", function)))
        return pl.DataFrame(rows, schema=_NO_STACKS.schema, orient="row")

    # ---- ranges -------------------------------------------------------------------------------------------------------------------

    def _with_stacks(self, kinds: str, condition: str) -> pl.DataFrame:
        """Return the calls of some kinds that have a signature: _RANGE, signature."""
        if self._stacks.is_empty():
            return _NO_OPERATORS.select(*_RANGE, "signature")
        return self._store.frame(_STACKED.format(kinds=kinds, condition=condition))

    def _code(self, condition: str, operators: pl.DataFrame, others: pl.DataFrame) -> _Code:
        """Return the code of some processes.

        ``others``: further calls that may have a stack: _RANGE, signature."""
        calls = pl.concat([operators.select(*_RANGE, "signature"), others], how="vertical_relaxed")
        stacked = calls.join(self._stacks, on="signature").select(*_RANGE, "path", "line")
        names = [*self._module_names["name"], *self._frame_names["name"]]
        python = self._store.frame(_FRAMES.format(condition), [names]) if names else pl.DataFrame(schema=_RANGE | {"name": pl.Int32})
        called = python.join(self._module_names, on="name").select(*_RANGE, "module")
        if self.source == RANGES:
            called = module_ranges(self._store, condition, self._range_names)
        of_lines = python.join(self._frame_names, on="name")
        del python
        lines = {origin: of_lines.filter(pl.col("origin") == origin).select(*_RANGE, "line") for origin in (USER, LIBRARY)}
        nodes = operators.filter(pl.col("forward_thread") > 0)
        repeated = innermost(called.select(*_THREAD, time="start"), nodes, _THREAD).is_not_null()
        modules = self._paths.nested(called, repeated)
        return _Code(modules, lines[USER], lines[LIBRARY], stacked)

    def _add_times(self, code: _Code) -> None:
        """Add the calls of modules and the times of lines."""
        length = pl.col("end") - pl.col("start")
        self._module_calls.append(code.modules.group_by("path").agg(calls=pl.len(), host=length.sum()))
        for ranges in (code.user, code.library):
            times = union_length(ranges, [*_THREAD, "line"])
            self._line_times.append(times.group_by("line").agg(host=pl.col("length").sum()))

    # ---- calls --------------------------------------------------------------------------------------------------------------------

    def _sites_of(self, points: pl.DataFrame, operators: pl.DataFrame, code: _Code) -> pl.Series:
        """Return the site of points: process, tid, time, node (row in ``operators``)."""
        forward = points.select("process", "node").join(
            forward_calls(operators, points["node"]), on="node", how="left", maintain_order="left"
        )
        every = pl.concat([points.drop("node"), forward.select("process", "tid", "time")], how="vertical_relaxed")
        begun = operators["start"].gather(points["node"])

        def numbers(ranges: pl.DataFrame, *columns: str) -> list[pl.Series]:
            """Return the numbers of the innermost range of each point.

            It is that within the node, else that of the forward call, else that around the node."""
            if ranges.is_empty():
                return [pl.Series([None], dtype=pl.UInt32).new_from_index(0, points.height) for _ in columns]
            row = innermost(every, ranges, _THREAD)
            around, of_forward = row.head(points.height), row.tail(points.height)
            inside = (begun.is_null() | (ranges["start"].gather(around) >= begun)).fill_null(False)
            chosen = pl.select(pl.coalesce(pl.when(inside).then(around), of_forward, around)).to_series()
            return [ranges[column].gather(chosen) for column in columns]

        (path,) = numbers(code.modules, "path")
        (user,) = numbers(code.user, "line")
        (library,) = numbers(code.library, "line")
        stacked_path, stacked_line = numbers(code.stacked, "path", "line")
        pairs = pl.select(
            path=pl.coalesce(path, stacked_path, pl.lit(NONE, pl.UInt32)),
            line=pl.coalesce(user, library, stacked_line, pl.lit(_UNKNOWN_LINE, pl.UInt32)),
        )
        distinct = pairs.unique(maintain_order=True)
        sites = [self._sites.setdefault(pair, len(self._sites)) or None for pair in distinct.iter_rows()]
        numbered = distinct.with_columns(site=pl.Series(sites, dtype=pl.UInt32))
        return pairs.join(numbered, on=["path", "line"], how="left", maintain_order="left")["site"]
