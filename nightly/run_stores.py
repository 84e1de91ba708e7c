"""Leaves run stores out of a listing, and describes those that stand where no run is found.

A run store contains whatever its writer put into it, not measurements only; so a night reads stores only with ``--run-stores``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from ..ingest.objects import ObjectInfo
from .discover import place_of
from .model import FoundRun


class LeftOutStores:
    """Removes the run stores from a listing and remembers them; ``exclude``: folders that are not searched."""

    def __init__(self, exclude: Sequence[str] = ()) -> None:
        self._excluded = tuple(folder.rstrip("/") + "/" for folder in exclude)
        self._stores: list[tuple[str, ObjectInfo]] = []

    def watch(self, listing: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
        """The objects of the listing that are not run stores."""
        for one in listing:
            if one.path.lower().endswith(".duckdb") and (place := place_of(one.path)) is not None and place[1] == "store":
                if not one.path.startswith(self._excluded):
                    self._stores.append((place[0], one))
            else:
                yield one

    def paths(self) -> set[str]:
        return {one.path for _, one in self._stores}

    def runs(self, found: Collection[str]) -> list[FoundRun]:
        """The stores that stand in no run, as runs. ``found``: the ids of all runs."""
        return [FoundRun(one.path, "store", (one,), True, "") for folder, one in self._stores if folder not in found]


def described(run: FoundRun) -> str:
    """A line that names the store, and the option and the command that report it."""
    return f"{run.objects[0].path}: a run store; use --run-stores to report it, or `postrun report` for this one"
