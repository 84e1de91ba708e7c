"""``postrun inspect``: trace files of the capture library -> their contents and losses, as text or JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click

from ..analysis.toolkit.wording import count
from ..errors import InputError, PostrunError
from ..messages import echo, echo_line, escaped_line
from ..native.recording.loss_reasons import loss_reason
from .parts import print_json

_INTERVALS: Final = ("annotation", "api", "kernel", "memcpy", "memset", "sync")  # tables with start_ns and duration_ns
_INSTANTS: Final = ("counter", "metric")  # tables with time_ns
_MAX_LISTED: Final = 20  # How many threads, names and places of damage the text lists; JSON has all


@click.command(short_help="Summarize trace files of the capture library.")
@click.argument("places", type=click.Path(path_type=Path), metavar="FILE_OR_FOLDER...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON on standard output: an object for one file, else a list.")
def inspect(places: tuple[Path, ...], as_json: bool) -> None:
    """Summarize trace files of the capture library, or all of a folder:
    tables, processes, threads, names and times, and lost records."""
    paths = files(places)
    results: list[dict[str, Any]] = []
    refused: PostrunError | None = None
    for number, path in enumerate(paths):
        try:
            results.append(contents(path))
        except PostrunError as error:
            if len(paths) == 1:
                raise
            refused = error
            echo_line(f"postrun: {error}", err=True)
            continue
        if not as_json:
            echo("\n".join([*([""] if number else []), *listed(results[-1])]))
    if as_json:
        print_json(results[0] if len(places) == 1 and not places[0].is_dir() else results)
    if refused:
        sys.exit(refused.exit_code)


def files(places: Sequence[Path]) -> list[Path]:
    """List the trace files, also those below folders. Raise InputError if none."""
    paths: list[Path] = []
    for folder in places:
        if not folder.is_dir():
            paths.append(folder)
        elif inside := sorted(path for path in folder.rglob("*.prt") if path.is_file() and not path.name.startswith(".")):
            paths += inside
        else:
            raise InputError(f"{folder}: no .prt file in this folder; give a trace file, or the folder of a recording")
    return list(dict.fromkeys(paths))


def contents(path: Path) -> dict[str, Any]:
    """Return the contents of a trace file, ready for JSON. Raise InputError."""
    import pyarrow as pa

    from ..ingest.prt.format import TraceFile

    file = TraceFile(path, name_ids=True)
    header = {key: value.hex() if isinstance(value, bytes) else value for key, value in file.header.items()}
    names: dict[int, int] = {}
    texts = file.names()
    try:
        spans = [span for table in (*_INTERVALS, *_INSTANTS) for span in _spans(file, table, names)]
        losses = file.table("loss").arrow().to_pylist()
        tables = {name: file.table(name).arrow().to_pylist() for name in ("process", "thread", "end")}
        metadata = file.metadata()
    except pa.ArrowException as error:
        raise InputError(f"{path}: cannot be decoded: {error}") from error
    problems = [asdict(problem) | {"message": problem.message} for problem in file.problems()]
    return {
        "path": str(path),
        "header": header,
        "complete": not problems and not losses,
        "first_ns": min((first for first, _ in spans if first is not None), default=None),
        "last_ns": max((last for _, last in spans if last is not None), default=None),
        "tables": {name: asdict(one) for name, one in file.contents.items() if one.blocks},
        "processes": tables["process"],
        "threads": tables["thread"],
        "metadata": metadata,
        "names": [{"name": texts[index], "rows": rows} for index, rows in sorted(names.items(), key=lambda one: (-one[1], texts[one[0]]))],
        "losses": [loss | {"reason": loss_reason(loss["reason"]).name} for loss in losses],
        "problems": problems,
        "end": tables["end"][-1] if tables["end"] else None,
    }


def _spans(file: Any, table: str, names: dict[int, int]) -> Iterator[tuple[int | None, int | None]]:
    """Yield the time span of each block; add the uses of each name to ``names``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with pa.RecordBatchReader.from_stream(file.table(table)) as batches:
        for batch in batches:
            if not batch.num_rows:
                continue
            starts = batch.column("time_ns" if table in _INSTANTS else "start_ns")
            ends = starts if table in _INSTANTS else pc.add(starts, batch.column("duration_ns"))
            yield pc.min(starts).as_py(), pc.max(ends).as_py()
            for value in pc.value_counts(batch.column("metric" if table == "metric" else "name")).to_pylist():
                if value["values"] is not None:
                    names[value["values"]] = names.get(value["values"], 0) + value["counts"]


def listed(content: dict[str, Any]) -> list[str]:
    """Convert the contents to lines of text."""
    from ..analysis.toolkit.wording import duration, plural, size

    header = content["header"]
    lines = [
        f"{content['path']}: format {header['major']}.{header['minor']}, {size(header['bytes'])}, file {header['number']} of session"
        f" {header['session']}, process {header['pid']} (parent {header['parent_pid']}), made {_moment(header['created_ns'])}"
    ]
    for row in content["processes"]:
        rank = "" if row["rank"] is None or row["rank"] < 0 else f", rank {row['rank']}"
        world = f" of {row['world_size']}" if rank and (row["world_size"] or -1) > 0 else ""
        lines.append(f"Process {row['pid']} on {row['host']}{rank}{world}: {row['command']}")
    if content["first_ns"] is not None and content["last_ns"] is not None:
        span = duration(content["last_ns"] - content["first_ns"])
        lines.append(f"Events from {_moment(content['first_ns'])} to {_moment(content['last_ns'])} ({span})")
    lines.append(f"{'table':12}{'blocks':>8}{'rows':>12}{'bytes':>14}{'decompressed':>14}")
    for name, row in content["tables"].items():
        lines.append(f"{name:12}{row['blocks']:>8,}{row['rows']:>12,}{row['stored_bytes']:>14,}{row['raw_bytes']:>14,}")
    if threads := content["threads"]:
        labels = [f"{one['tid']}" + (f" {one['name']}" if one["name"] else "") for one in threads[:_MAX_LISTED]]
        lines.append(f"Threads: {', '.join(labels)}{_more(threads)}")
    if names := content["names"]:
        lines.append(f"Names ({count(len(names))} used):")
        lines += [f"  {one['rows']:>12,}  {_one_line(one['name'])}" for one in names[:_MAX_LISTED]]
        lines += [f"  {_more(names).strip()}"] if len(names) > _MAX_LISTED else []
    if content["metadata"]:
        lines.append("Metadata:")
        lines += [f"  {_one_line(key)}: {_one_line(value)}" for key, value in sorted(content["metadata"].items())]
    for loss in content["losses"]:
        lines.append(
            f"Lost: {plural(loss['count'], 'record')} ({loss['reason']}) from {_moment(loss['first_ns'])} to {_moment(loss['last_ns'])}"
        )
    for problem in content["problems"][:_MAX_LISTED]:
        parts = [plural(problem[key], word) for key, word in (("bytes", "byte"), ("blocks", "block"), ("rows", "row")) if problem[key]]
        lines.append(f"Damage: {problem['message']} (at byte {', '.join([format(problem['offset'], ','), *parts])})")
    if len(content["problems"]) > _MAX_LISTED:
        lines.append(f"Damage:{_more(content['problems'])}")
    if content["complete"]:
        lines.append("Complete: stopped properly, nothing lost.")
    return [escaped_line(line) for line in lines]


def _more(rows: list[Any]) -> str:
    return f" and {count(len(rows) - _MAX_LISTED)} more" if len(rows) > _MAX_LISTED else ""


def _one_line(text: str) -> str:
    """Shorten and escape a text, which could break lines or control the terminal."""
    line = escaped_line(text)
    return line if len(line) <= 160 else line[:159] + "…"


def _moment(time_ns: int | None) -> str:
    from datetime import UTC, datetime, timedelta

    if time_ns is None:
        return "?"
    seconds, rest = divmod(time_ns, 10**9)
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        return f"{time_ns} ns"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{rest // 1000:06} UTC"
