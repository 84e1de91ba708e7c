"""A long listing by several requests at a time: folders divide the names into ranges, whose pages are put together in order.

The first pages are requested one after the other; they and the folders that they reach show how long the listing is. There are not more
ranges than this length is worth, so the requests stay about as many as in one go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

from .objects import ObjectInfo, ObjectStoreError
from .prefixes import Prefixes

Part = tuple[list[ObjectInfo], str | None]
"""Objects in order, and the path before the next ones; None at the end."""
Page = Callable[[str | None], Part]
"""The path before a page (None: from the start) -> the page."""
Range = tuple[Page, str | None, str | None]
"""The pages, the path before the range, and its last path."""
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
_PARTS: Final = 64  # beginnings of paths that are requested one by one; parts of more


def long_listing(page: Page, folders: Folders) -> Iterator[ObjectInfo]:
    """Yield all objects in order."""
    after: str | None = None
    for _ in range(_FIRST):
        infos, after = page(after)
        yield from infos
        if after is None:
            return
    assert after is not None
    with _pool() as pool:
        bounds = _bounds(pool, folders, after)
        yield from _ranges(pool, [(page, start, end) for start, end in zip([after, *bounds], [*bounds, None], strict=True)])


def listing_below(page: Callable[[str, str | None], Part], prefixes: Prefixes) -> Iterator[ObjectInfo]:
    """Yield all objects that have one of some beginnings, in order.

    ``page``: like Page, for the paths with one beginning. Many beginnings are not requested one by one: a page may have the objects of
    several, and pages without any are left out."""
    if len(prefixes.sorted) <= _PARTS:
        ranges: list[Range] = [(partial(page, prefix), None, None) for prefix in prefixes.sorted]
        wanted = None
    else:
        bounds = prefixes.sorted[:: -(-len(prefixes.sorted) // _PARTS)][1:]
        ranges = [(partial(page, ""), start, end) for start, end in zip(["", *bounds], [*bounds, None], strict=True)]
        wanted = prefixes
    with _pool() as pool:
        yield from _ranges(pool, ranges, wanted)


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="postrun-listing")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _ranges(pool: ThreadPoolExecutor, ranges: Iterable[Range], prefixes: Prefixes | None = None) -> Iterator[ObjectInfo]:
    """Yield the objects of ranges that follow each other."""
    left = deque(ranges)
    pending: deque[tuple[Future[Part], Page, str | None]] = deque()
    while left or pending:
        while left and len(pending) < _AHEAD:
            page, start, end = left.popleft()
            pending.append((pool.submit(_part, page, start, end, prefixes), page, end))
        future, page, end = pending.popleft()
        infos, rest = future.result()
        if rest is not None:
            pending.appendleft((pool.submit(_part, page, rest, end, prefixes), page, end))
        del future
        yield from infos


def _part(page: Page, after: str | None, end: str | None, prefixes: Prefixes | None) -> Part:
    """Return the objects behind ``after`` up to ``end``, and where to go on."""
    infos: list[ObjectInfo] = []
    for _ in range(_PAGES):
        if prefixes is not None:
            after = prefixes.start(after or "")
            if after is None or (end is not None and after >= end):
                return infos, None
        listed, following = page(after)
        last = listed[-1].path if listed else ""
        wanted = listed if prefixes is None else [info for info in listed if prefixes.of(info.path) is not None]
        if end is not None and last > end:
            return [*infos, *(info for info in wanted if info.path <= end)], None
        infos += wanted
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
