"""The part of a source that a shard lists: the folders that hold runs -> those of this shard, by a digest of their paths.

All shards look at the same folders, level by level, with a bounded number of requests. A run belongs to the shard of the
folder that it is in. If the folders do not divide a source well (it is small, they are few, or named by dates, so that all new runs are in
one of them), each shard lists all of it, and a run belongs to the shard of its id.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from ..ingest.object_store.division import Division, divisions, outermost
from ..ingest.object_store.objects import Level, ObjectInfo, Objects
from ..ingest.object_store.prefixes import Prefixes
from .discover import place_of
from .model import FoundRun

_SMALL: Final = 8000  # objects that are listed in any case
_REQUESTS: Final = 256  # for folders
_PER_SHARD: Final = 8  # folders: with fewer, some shards would have much more to do than others
_DATE: Final = re.compile(r"(?:[a-z]+=)?(?:\d{1,4}|\d{4}[-_.]?\d\d(?:[-_.]?\d\d)?)", re.IGNORECASE)
# Names of files that belong to the run of a folder above, depending on the name of their folder.
_FILES: Final = (
    "a.pt.trace.json", "nvidia-smi.csv", "python_stats", "training_job_end.ts", "rank-0", "incremental/a", "pevents/a",
    "detailed_profiling/a", "cprofile/a", "a/cprofile/a", "system/incremental/a", "profile/a/a.trace.json", "a/a.trace.json",
)  # fmt: skip

Search = Callable[[Iterator[ObjectInfo]], Iterator[FoundRun]]


def shard_of(name: str, count: int) -> int:
    """Return the shard of a run or folder: the same on every machine, in every night."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()[:8], "big") % count


class Shard:
    """The listing and the runs of shard ``number`` of ``count``. ``exclude``: folders that are not searched."""

    def __init__(self, source: Objects, number: int, count: int, exclude: Sequence[str] = ()) -> None:
        self._source, self._number, self._count = source, number, count
        self._exclude = {folder.rstrip("/") + "/" for folder in exclude}
        self._inside: Prefixes | None = None  # None if the source is not divided
        self._spread = set[str]()  # runs of this shard with files in folders of others

    @property
    def divided(self) -> bool:
        return self._inside is not None

    def listing(self) -> Iterator[ObjectInfo]:
        """Yield the objects of this shard, and those outside of all folders, in order."""
        listing = self._source.list()
        if self._count == 1:
            yield from listing
            return
        first = list(islice(listing, _SMALL))
        division = self._division() if len(first) == _SMALL else None
        if division is None:
            yield from chain(first, listing)
            return
        del first
        self._inside = Prefixes(division.folders)
        below = self._source.list_below([folder for folder in division.folders if self._is_own(folder)])
        yield from heapq.merge(division.files, below, key=lambda info: info.path) if division.files else below

    def has(self, run_id: str) -> bool:
        """Decide whether this shard reports a run that :meth:`runs` yields."""
        return run_id in self._spread or self._is_own((self._inside and self._inside.of(f"{run_id}/")) or run_id)

    def runs(self, search: Search, listing: Iterator[ObjectInfo]) -> Iterator[FoundRun]:
        """Yield the runs of a listing, with all of their files.

        A run that is spread over the folders of several shards is searched in all of them; the shard of the first one yields it."""
        for run in search(listing):
            if self._inside is None or self._inside.of(f"{run.id}/") is not None:
                yield run
                continue
            everything = self._source.list("" if run.id == "." else f"{run.id}/")
            full = next((one for one in search(everything) if one.id == run.id), None)
            if full is not None and self._is_own(self._first_folder(full) or run.id):
                self._spread.add(full.id)
                yield full

    def lacks(self, run_id: str) -> bool:
        """Decide whether a run that the listing did not contain no longer exists."""
        if self._inside is None:
            return True
        if self._inside.of(f"{run_id}/") is not None:
            return self.has(run_id)
        return run_id != "." and not self._inside.below(f"{run_id}/")

    def _first_folder(self, run: FoundRun) -> str | None:
        assert self._inside is not None
        return self._inside.of(min(file.path for file in (*run.objects, *run.perhaps)))

    def _is_own(self, name: str) -> bool:
        return shard_of(name, self._count) == self._number

    def _division(self) -> Division | None:
        """Return the coarsest division into enough folders of similar size.

        None if there is none. The size of a folder is the number of folders in it."""

        def look(folder: str) -> Level | None:
            level = self._source.level(folder)
            return level and Level(tuple(inner for inner in level.folders if inner not in self._exclude), level.files)

        last: Division | None = None
        for finer in divisions(look, _REQUESTS, lambda folder, level: _around(folder, (file.path for file in level.files))):
            if last is not None and (chosen := self._chosen(last, finer)) is not None:
                return chosen
            last = finer
        return last and self._chosen(last, None)

    def _chosen(self, division: Division, finer: Division | None) -> Division | None:
        """Return a division by folders of runs if its parts are many and similar.

        ``finer``: the next one."""
        closed = division.closed if finer is None else finer.closed
        folders = outermost([*map(_around_named, division.folders), *closed])
        dates = sum(folder not in closed and _DATE.fullmatch(folder.split("/")[-2]) is not None for folder in folders if folder)
        if "" in folders or len(folders) < _PER_SHARD * self._count or dates > len(folders) / 2:
            return None
        inside = Prefixes(folders)
        sizes = Counter(inside.of(folder) for folder in finer.folders) if finer is not None else Counter[str | None]()
        if max(sizes.values(), default=0) > sizes.total() / self._count:
            return None
        return Division(folders, closed, tuple(info for info in division.files if inside.of(info.path) is None))


def _around_named(folder: str) -> str:
    """Return the folder of a run with a part that is named like ``folder``; else this."""
    around = _around(folder, (folder + file for file in _FILES))
    return folder if around is None else around


def _around(folder: str, paths: Iterable[str]) -> str | None:
    """Return the folder of the outermost run with files in ``folder``.

    It is this one or one above, "" for the source."""
    roots = {location[0] for path in paths if (location := place_of(path)) is not None}
    around = ("" if root == "." else f"{root}/" for root in roots)
    return min((above for above in around if folder.startswith(above)), key=len, default=None)
