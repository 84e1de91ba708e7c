"""Folders that divide a listing into parts, level by level: some requests for the content of folders -> the folders below.

The result depends on the names of folders alone, so that several processes divide a source in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from .objects import Level, ObjectInfo
from .prefixes import Prefixes

_AT_ONCE: Final = 8  # requests
_DEEP: Final = 8  # levels of folders


@dataclass(frozen=True, slots=True)
class Division:
    """``folders``: in order, none in another, ending in a slash. ``closed``: those that are not divided further. ``files``: the other
    files, in order."""

    folders: tuple[str, ...]
    closed: frozenset[str]
    files: tuple[ObjectInfo, ...]


def divisions(
    look: Callable[[str], Level | None], most: int, closes: Callable[[str, Level], str | None] = lambda *_: None
) -> Iterator[Division]:
    """Yield finer and finer divisions with at most ``most`` requests.

    ``closes``: a folder and its content -> the folder around it that is not divided, also itself; None for a folder that may be divided. A
    folder with unknown content is not divided."""
    level, closed, files = [""], set[str](), list[ObjectInfo]()
    for _ in range(_DEEP):
        if not level or len(level) > most:
            return
        most -= len(level)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="postrun-folders") as pool:
            contents = list(zip(level, pool.map(look, level), strict=True))
        level = []
        for folder, content in contents:
            around = folder if content is None else closes(folder, content)
            if content is None or around is not None:
                closed.add(folder if around is None else around)
            else:
                files += content.files
                level += content.folders
        inside = Prefixes(outermost(closed))
        level = [folder for folder in level if inside.of(folder) is None]
        rest = sorted((info for info in files if inside.of(info.path) is None), key=lambda info: info.path)
        yield Division(outermost([*level, *closed]), frozenset(closed), tuple(rest))


def outermost(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the folders that are in no other, in order."""
    outer: list[str] = []
    for folder in sorted(folders):
        if not outer or not folder.startswith(outer[-1]):
            outer.append(folder)
    return tuple(outer)
