"""A long listing by several requests at a time: folders divide the names into ranges, whose pages are put together in order.

The first pages are requested one after the other; they and the folders that they reach show how long the listing is. There are not more
ranges than this length is worth, so the requests stay about as many as in one go.
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
_FIRST: Final = 8  # pages in one go
_PER_REQUEST: Final = 4  # Pages that are expected for each further request: for folders, and for a range
_ENOUGH: Final = 64  # folders that divide the names finely enough
_DEEP: Final = 4  # levels of folders


def long_listing(page: Page, folders: Folders) -> Iterator[ObjectInfo]:
    """Yield all objects in order."""
    after: str | None = None
    for _ in range(_FIRST):
        infos, after = page(after)
        yield from infos
        if after is None:
            return
    assert after is not None
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="postrun-listing")
    try:
        bounds = _bounds(pool, folders, after)
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


def _bounds(pool: ThreadPoolExecutor, folders: Folders, after: str) -> list[str]:
    """Return folders that divide the names behind ``after`` evenly, in order."""
    level, known, behind, pages = [""], set[str](), list[str](), float(_PER_REQUEST)
    for _ in range(_DEEP):
        if len(behind) >= _ENOUGH or not 0 < len(level) * _PER_REQUEST <= pages:
            break
        try:
            level = [folder for inner in pool.map(folders, level) for folder in inner]
        except ObjectStoreError:  # without these requests, the listing only takes longer
            break
        passed = sum(folder <= after for folder in level)
        pages = _FIRST * (len(level) - passed + 1) / max(1, passed)
        known.update(level)
        behind = sorted(folder for folder in known if folder > after)
        level = [folder for folder in level if folder > after or after.startswith(folder)]
    count = min(_RANGES, int(pages / _PER_REQUEST))
    return behind[:: -(-len(behind) // count)] if behind and count else []
