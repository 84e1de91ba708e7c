"""Results of Pyinstrument as JSON -> call tree: a tree of frames (`-r json`), or a session with its samples (`.pyisession`)."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

MOST_BYTES: Final = 32 << 20
_FRAMES: Final = 200_000
_TEXT: Final = 4096
_SECONDS: Final = 10**9
_EPOCH_SECONDS: Final = 4 * 10**9
_SELF: Final = "[self]"  # Name of frames for the own time of the frame above them
_ALSO_SELF: Final = frozenset({_SELF, "[await]"})

Function = tuple[str | None, int | None, str]  # File, line and name; only a name if Pyinstrument shows no file


class TreeError(Exception):
    """Why a result cannot be read, as the end of a sentence that begins with "the file"."""


@dataclass(slots=True)
class Tree:
    """Frames, callers first. ``parents``: index of the caller, -1 for a root. ``own_times``, ``total``: seconds.

    ``odd``: frames without a name or time, left out with their callees; ``left``: of too many. ``start_s``: since the Unix epoch.
    """

    functions: list[Function] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    own_times: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    start_s: float | None = None
    duration_s: float | None = None
    odd: int = 0
    left: int = 0


def read_tree(data: bytes) -> Tree:
    """Return the frames of a result; TreeError."""
    if len(data) > MOST_BYTES:
        raise TreeError(
            f"has more than {MOST_BYTES >> 20} MiB; save the profile as JSON (pyinstrument -r json), which has frames and no samples"
        )
    try:
        result = json.loads(data, parse_constant=_no_number)
    except RecursionError as error:
        raise TreeError("is nested deeper than a call tree is") from error
    except ValueError as error:
        raise TreeError(f"is no JSON, or breaks off ({str(error)[:200]})") from error
    if not isinstance(result, dict) or not {"root_frame", "frame_records"} & result.keys():
        raise TreeError("is not a result of Pyinstrument: it has neither root_frame nor frame_records")
    tree = Tree(start_s=_number(result.get("start_time"), _EPOCH_SECONDS), duration_s=_number(result.get("duration"), _SECONDS))
    if isinstance(root := result.get("root_frame"), dict):
        _add_frames(tree, root)
    elif isinstance(records := result.get("frame_records"), list):
        _add_samples(tree, records)
    elif root is not None or "frame_records" in result:
        raise TreeError("is not a result of Pyinstrument: its frames are of another kind")
    return tree


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no time")


def _number(value: object, most: float) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most:
        return float(value)
    return None


@dataclass(slots=True)
class _Builder:
    tree: Tree
    ids: dict[Function, int] = field(default_factory=dict)

    def add(self, function: Function, parent: int, own_time: float, total: float) -> int:
        tree = self.tree
        if function not in self.ids:
            self.ids[function] = len(self.ids)
            tree.functions.append(function)
        tree.frames.append(self.ids[function])
        tree.parents.append(parent)
        tree.own_times.append(own_time)
        tree.total.append(total)
        return len(tree.frames) - 1


def _add_frames(tree: Tree, root: dict[str, Any]) -> None:
    """Add frames; own time is the rest after the frames below, except [self]."""
    builder = _Builder(tree)
    todo: list[tuple[dict[str, Any], int]] = [(root, -1)]
    while todo:
        frame, parent = todo.pop()
        name, time = frame.get("function"), _number(frame.get("time"), _SECONDS)
        if not isinstance(name, str) or time is None:
            tree.odd += 1
            continue
        if name in _ALSO_SELF and parent >= 0:
            continue
        if len(tree.frames) >= _FRAMES:
            tree.left += 1
            continue
        path = next((file for key in ("file_path", "file", "file_path_short") if isinstance(file := frame.get(key), str) and file), None)
        line = next((n for key in ("line_no", "line") if isinstance(n := frame.get(key), int) and not isinstance(n, bool)), 0)
        below = frame.get("children")
        children = [child for child in below if isinstance(child, dict)] if isinstance(below, list) else []
        tree.odd += len(below) - len(children) if isinstance(below, list) else 0
        explained = [_number(child.get("time"), _SECONDS) or 0.0 for child in children if str(child.get("function")) not in _ALSO_SELF]
        index = builder.add(_function(path, line, name), parent, max(0.0, time - math.fsum(explained)), time)
        todo += [(child, index) for child in reversed(children)]


def _add_samples(tree: Tree, records: list[Any]) -> None:
    """Add the stacks of a session, from the outermost frame, with their seconds."""
    builder = _Builder(tree)
    places: dict[tuple[int, Function], int] = {}
    for record in records:
        stack, time = record if isinstance(record, list) and len(record) == 2 else (None, None)
        seconds = _number(time, _SECONDS)
        functions = [_of_identifier(identifier) for identifier in stack] if isinstance(stack, list) else []
        if seconds is None or not functions or None in functions:
            tree.odd += 1
            continue
        parent = -1
        for function in functions:
            assert function is not None
            if function[2] in _ALSO_SELF:
                continue
            index = places.get((parent, function))
            if index is None:
                if len(tree.frames) >= _FRAMES:
                    tree.left += 1
                    break
                index = places[parent, function] = builder.add(function, parent, 0.0, 0.0)
            tree.total[index] += seconds
            parent = index
        if parent >= 0:
            tree.own_times[parent] += seconds


def _of_identifier(frame: object) -> Function | None:
    """Parse "name NUL file NUL line" and attributes; older sessions add a line."""
    if isinstance(frame, list) and frame:
        frame = frame[0]
    if not isinstance(frame, str):
        return None
    name, _, position = frame.partition("\1")[0].partition("\0")
    path, _, line = position.rpartition("\0") if "\0" in position else (position, "", "")
    return _function(path or None, int(line) if line.isascii() and line.isdigit() and len(line) < 10 else 0, name)


def _function(path: str | None, line: int, name: str) -> Function:
    if path is None or path.startswith(("<built-in", "<thread>")):
        return None, None, _plain(name)
    return _plain(path), line if 0 <= line < 2**31 else 0, _plain(name)


def _plain(text: str) -> str:
    return text[:_TEXT].encode("utf-8", "backslashreplace").decode()
