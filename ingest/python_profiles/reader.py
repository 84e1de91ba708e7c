"""Times of Python functions: results of cProfile and Pyinstrument -> `python_window`, `python_profile` and the calls."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..store.identity import identify
from ..store.registry import UNKNOWN_HOST, ReadResult
from ..store.texts import storable
from .window import Window, rank_of, timer_of, window_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from ..store.registry import Registry
    from ..store.store import Store
    from ..store.tables import Severity
    from .cprofile_process import Stats

# A dump is a dictionary with keys that are tuples; other files that begin so have other names. An empty dictionary ends at once.
_DUMP: Final = re.compile(rb"[\x7b\xfb][\x28\x29\xa8\xa9\x30]", re.DOTALL)
_DUMP_NAME: Final = re.compile(r"/python_stats$|\.pstats?$", re.IGNORECASE)
_TREE: Final = re.compile(
    rb'\s*\{\s*"start_time"\s*:\s*[-+.\deE]+\s*,\s*"duration"\s*:\s*[-+.\deE]+\s*,\s*"(?:min_interval|sample_count|samples|program|root_frame)"\s*:'
)
_TREE_NAME: Final = re.compile(r"/python_stats\.json$|\.pyisession$", re.IGNORECASE)


def recognizes_dump(head: bytes, name: str) -> bool:
    """Whether a file is a dump of cProfile or profile, by its path and first bytes."""
    if _DUMP_NAME.search(name):
        return True
    return name.lower().endswith(".prof") and (_DUMP.match(head) is not None or head == b"{0")


def recognizes_tree(head: bytes, name: str) -> bool:
    """Whether a file is a result of Pyinstrument in JSON."""
    return _TREE_NAME.search(name) is not None or _TREE.match(head) is not None


def read_dump(store: Store, registry: Registry, path: Path, source: int) -> ReadResult:
    """Store one dump of cProfile; note its damage."""
    from .cprofile_process import MOST_BYTES, StatsError, read_stats

    try:
        with path.open("rb") as file:
            stats = read_stats(file.read(MOST_BYTES + 1))
    except StatsError as error:
        store.note("error", "not_readable", f"The file {error}.", source=source, file=path.name)
        return ReadResult(0, None, None, partial=True)
    note = _Notes(store, source, path.name)
    note("warning", "odd_entries", "Entries that are not those of a profile were left out.", stats.odd)
    note("info", "negative_times", "Times below zero, which a timer that runs backwards gives, count as zero.", stats.negative)
    note(
        "warning", "functions_left_out", "More functions than a profile has: those with the least time were left out.", stats.functions_left
    )
    note("warning", "calls_left_out", "More calls than a profile has: those with the least time were left out.", stats.calls_left)
    window = window_of(path)
    target = _ProfileRows(store, registry, path, source, window, note)
    functions = _named(stats)
    number = target.add("cprofile", timer_of(path), functions)
    import polars as pl

    if stats.calls.height:
        store.append("python_call", stats.calls.with_columns(pl.col("caller", "callee").cast(pl.Int32), window=pl.lit(number, pl.Int32)))
    return target.result(functions.height, partial=bool(stats.odd))


def _named(stats: Stats) -> pl.DataFrame:
    """Name the functions as pstats prints them."""
    import polars as pl

    built_in = (pl.col("file") == "~") & (pl.col("line") == 0)
    bare = pl.when(pl.col("name").str.contains(r"(?s)^<.*>$")).then(
        pl.format("{{{}}}", pl.col("name").str.strip_prefix("<").str.strip_suffix(">"))
    )
    return stats.functions.select(
        pl.int_range(pl.len(), dtype=pl.Int32).alias("id"),
        pl.when(built_in).then(bare.otherwise(pl.col("name"))).otherwise(pl.format("{}:{}({})", "file", "line", "name")).alias("function"),
        pl.when(~built_in).then(pl.col("file")).alias("file"),
        pl.when(~built_in).then(pl.col("line")).alias("line"),
        "calls",
        "primitive_calls",
        "total_s",
        "cumulative_s",
    )


def read_pyinstrument(store: Store, registry: Registry, path: Path, source: int) -> ReadResult:
    """Store one result of Pyinstrument; note its damage."""
    import polars as pl

    from .pyinstrument_tree import MOST_BYTES, TreeError, read_tree

    try:
        with path.open("rb") as file:
            tree = read_tree(file.read(MOST_BYTES + 1))
    except TreeError as error:
        store.note("error", "not_readable", f"The file {error}.", source=source, file=path.name)
        return ReadResult(0, None, None, partial=True)
    note = _Notes(store, source, path.name)
    note("warning", "odd_entries", "Frames without a name or a time were left out, with what they called.", tree.odd)
    note("warning", "functions_left_out", "More frames than a call tree has: the last ones were left out.", tree.left)
    window = window_of(path)
    if window.start_ns is None and tree.start_s is not None and tree.duration_s is not None:
        start = round(tree.start_s * 1e9)
        window = Window(start_ns=start, end_ns=start + round(tree.duration_s * 1e9))
    target = _ProfileRows(store, registry, path, source, window, note)
    frames = pl.DataFrame(
        {"function": tree.frames, "parent": tree.parents, "total_s": tree.own_times, "cumulative_s": tree.total},
        schema={"function": pl.Int32, "parent": pl.Int32, "total_s": pl.Float64, "cumulative_s": pl.Float64},
    )
    outer = pl.Series("outer", _outermost(tree.frames, tree.parents), dtype=pl.Boolean)
    times = frames.with_columns(outer).group_by("function").agg(pl.col("total_s").sum(), pl.col("cumulative_s").filter("outer").sum())
    names = [name if file is None else f"{file}:{line}({name})" for file, line, name in tree.functions]
    functions = pl.DataFrame(
        {
            "id": range(len(names)),
            "function": names,
            "file": [file for file, _, _ in tree.functions],
            "line": [line for _, line, _ in tree.functions],
        },
        schema={"id": pl.Int32, "function": pl.String, "file": pl.String, "line": pl.Int64},
    ).join(times, left_on="id", right_on="function", how="left", maintain_order="left")
    functions = functions.with_columns(pl.lit(None, pl.Int64).alias("calls"))
    number = target.add("pyinstrument", timer_of(path) or "total_time", functions)
    if frames.height:
        rows = frames.with_columns(
            pl.int_range(pl.len(), dtype=pl.Int32).alias("id"), pl.lit(number, pl.Int32).alias("window"),
            pl.when(pl.col("parent") >= 0).then(pl.col("parent")).alias("parent"),
        )  # fmt: skip
        store.append("python_frame", rows)
    return target.result(functions.height, partial=bool(tree.odd or tree.left))


def _outermost(functions: Sequence[int], parents: Sequence[int]) -> list[bool]:
    """Whether each frame has no frame of its function above it; callers come first."""
    children: dict[int, list[int]] = {}
    for frame, parent in enumerate(parents):
        children.setdefault(parent, []).append(frame)
    outermost = [True] * len(functions)
    above: dict[int, int] = {}
    todo = [(frame, True) for frame in children.get(-1, [])]
    while todo:
        frame, enter = todo.pop()
        function = functions[frame]
        if not enter:
            above[function] -= 1
            continue
        outermost[frame] = not above.get(function)
        above[function] = above.get(function, 0) + 1
        todo.append((frame, False))
        todo += [(child, True) for child in children.get(frame, [])]
    return outermost


class _Notes:
    def __init__(self, store: Store, source: int, file: str) -> None:
        self.store, self.source, self.file = store, source, file

    def __call__(self, severity: Severity, code: str, message: str, count: int) -> None:
        if count:
            self.store.note(severity, code, message, count=count, source=self.source, file=self.file)


class _ProfileRows:
    """Rows of one profile: its process, its window, and its functions."""

    def __init__(self, store: Store, registry: Registry, path: Path, source: int, window: Window, note: _Notes) -> None:
        self.store, self.window, self.source = store, window, source
        if window.host is None:
            identity = identify({}, path, None)
            self.node = registry.node(identity.hostname or UNKNOWN_HOST)
            label = storable(path.stem)
            self.process = registry.process(self.node, identity.pid, rank=identity.rank, label=label, source=source)
        else:
            self.node = registry.node(_known_host(store, window.host))
            pid, rank = _pid_and_rank(store, window)
            rank = rank_of(path) if rank is None else rank
            self.process = registry.process(self.node, pid, rank=rank, label=window.label, source=source)
        start, end = window.start_ns, window.end_ns
        self.start_ns = start
        self.duration_ns = end - start if start is not None and end is not None and end >= start else None
        if start is not None and end is not None and end < start:
            note("warning", "negative_duration", "The profile ends before it starts, by the name of its folder; its end is not used.", 1)

    def add(self, profiler: str, timer: str | None, functions: pl.DataFrame) -> int:
        """Store the window and its functions; return the id of the window."""
        import polars as pl

        window = self.window
        number: int = self.store.frame("SELECT coalesce(max(id), -1) + 1 AS id FROM python_window").item()
        calls = functions["calls"].sum() if functions["calls"].count() else None
        self.store.insert(
            "python_window",
            {
                "id": number, "source": self.source, "node": self.node, "process": self.process, "profiler": profiler, "timer": timer,
                "start_mode": window.start_mode, "start_step": window.start_step, "start_phase": window.start_phase,
                "end_mode": window.end_mode, "end_step": window.end_step, "end_phase": window.end_phase,
                "start_ns": self.start_ns, "duration_ns": self.duration_ns, "functions": functions.height, "calls": calls,
                "total_s": float(functions["total_s"].sum()),
            },
        )  # fmt: skip
        first, last = window.steps
        if functions.height:
            self.store.append(
                "python_profile",
                functions.with_columns(
                    node=pl.lit(self.node, pl.Int32), process=pl.lit(self.process, pl.Int32), window=pl.lit(number, pl.Int32),
                    first_step=pl.lit(first, pl.Int64), last_step=pl.lit(last, pl.Int64), timer=pl.lit(timer, pl.String),
                ),
            )  # fmt: skip
        return number

    def result(self, events: int, *, partial: bool) -> ReadResult:
        end = None if self.start_ns is None else self.start_ns + (self.duration_ns or 0)
        return ReadResult(events, self.start_ns, end, partial=partial)


def _known_host(store: Store, host: str) -> str:
    """Return a host's name in other files: folders have dashes for underscores."""
    rows = store.connection.execute("SELECT DISTINCT hostname FROM node WHERE replace(hostname, '_', '-') = ?", [storable(host)]).fetchall()
    return str(rows[0][0]) if len(rows) == 1 else host


def _pid_and_rank(store: Store, window: Window) -> tuple[int | None, int | None]:
    """Return pid and rank: the number is a pid, or under Horovod a known rank."""
    rows = store.connection.execute(
        "SELECT pid, rank FROM process WHERE label = ? AND rank = ? AND pid IS NOT NULL ORDER BY id LIMIT 1", [window.label, window.number]
    ).fetchall()
    return (int(rows[0][0]), window.number) if rows else (window.number, None)
