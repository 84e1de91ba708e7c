"""A long listing by several requests at a time: folders divide the names into ranges, whose pages are put together in order.

The first page alone shows whether a listing is long. Ranges are not one per folder, so that many small folders cost no more requests than a
listing in one go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from .objects import ObjectInfo, ObjectStoreError

Part = tuple[list[ObjectInfo], str | None]
"""Objects in order, and the path before the next ones; None at the end."""
Page = Callable[[str | None], Part]
"""The path before a page (None: from the start) -> the page."""
Folders = Callable[[str], Sequence[str]]
"""A folder ("" or ending in a slash) -> the folders in it, ending in a slash."""

_AT_ONCE: Final = 8  # requests
_AHEAD: Final = 12  # ranges that are listed before their turn
_PAGES: Final = 8  # of a range before its turn: bounds the memory
_RANGES: Final = 256
_ENOUGH: Final = 64  # folders that divide the names finely enough, and requests to look for them
_DEEP: Final = 4  # levels of folders


def long_listing(page: Page, folders: Folders) -> Iterator[ObjectInfo]:
    """Yield all objects in order."""
    infos, after = page(None)
    yield from infos
    if after is None:
        return
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="postrun-listing")
    try:
        bounds = [folder for folder in _bounds(pool, folders) if folder > after]
        ranges = deque(zip([after, *bounds], [*bounds, None], strict=True))
        pending: deque[tuple[Future[Part], str | None]] = deque()
        while ranges or pending:
            while ranges and len(pending) < _AHEAD:
                start, end = ranges.popleft()
                pending.append((pool.submit(_part, page, start, end), end))
            future, end = pending.popleft()
            infos, rest = future.result()
            if rest is not None:
                pending.appendleft((pool.submit(_part, page, rest, end), end))
            del future
            yield from infos
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _part(page: Page, after: str, end: str | None) -> Part:
    """Return the objects behind ``after`` up to ``end``, and where to go on."""
    infos: list[ObjectInfo] = []
    for _ in range(_PAGES):
        listed, following = page(after)
        if end is not None and listed and listed[-1].path > end:
            return [*infos, *(info for info in listed if info.path <= end)], None
        infos += listed
        if following is None:
            return infos, None
        after = following
    return infos, after


def _bounds(pool: ThreadPoolExecutor, folders: Folders) -> list[str]:
    """Return folders that divide all names evenly, in order."""
    level, found_folders, requests = [""], set[str](), 0
    for _ in range(_DEEP):
        requests += len(level)
        try:
            level = [folder for inner in pool.map(folders, level) for folder in inner]
        except ObjectStoreError:  # without these requests, the listing only takes longer
            break
        found_folders.update(level)
        if not level or len(found_folders) >= _ENOUGH or requests + len(level) > _ENOUGH:
            break
    ordered = sorted(found_folders)
    return ordered[:: -(-len(ordered) // _RANGES) or 1]
