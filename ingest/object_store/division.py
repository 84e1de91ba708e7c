"""Folders that divide a listing into parts, level by level: some requests for the content of folders -> the folders below.

The result depends on the names of folders alone, so that several processes divide a source in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from .objects import Level, ObjectInfo, ObjectStoreError
from .prefixes import Prefixes

_AT_ONCE: Final = 8  # requests
_DEEP: Final = 8  # levels of folders
_LOOKS: Final = 64  # into folders, to divide a listing
_ENOUGH: Final = 64  # folders that divide it finely enough


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


def of_folders(first: Sequence[ObjectInfo], look: Callable[[str], Level | None]) -> Division | None:
    """Return folders that divide a long listing, which begins with ``first``.

    None if most of its objects are in one folder, or no folder can be looked at: the listing takes longer without."""
    direct = Counter(info.path.rpartition("/")[0] for info in first)
    # A store may return all names in a folder at once, so that a folder that may have very many is not looked at.
    large = {f"{folder}/" if folder else "" for folder, count in direct.items() if count > len(first) / 4}
    division = None
    with suppress(ObjectStoreError):
        for division in divisions(lambda folder: None if folder in large else look(folder), _LOOKS):
            if len(division.folders) >= _ENOUGH:
                break
    return division if division is not None and len(division.folders) > 1 else None


def outermost(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the folders that are in no other, in order."""
    outer: list[str] = []
    for folder in sorted(folders):
        if not outer or not folder.startswith(outer[-1]):
            outer.append(folder)
    return tuple(outer)
