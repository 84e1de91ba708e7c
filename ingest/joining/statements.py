"""The user's statements about sources: which belong to one node (``--same``), and offsets of clocks (``--clock-offset``).

Names of files in these options -> ids of sources. A name is a path of the run, or the end of a path.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Final

from ...errors import UsageError
from ..store.texts import storable

_LISTED: Final = 5  # file names in a message


@dataclass(frozen=True, slots=True)
class Statements:
    """``same``: disjoint groups of sources of one node. ``offsets_ns``: what to add to the times of a source."""

    same: tuple[frozenset[int], ...] = ()
    offsets_ns: Mapping[int, int] = field(default_factory=dict)

    @property
    def sources(self) -> frozenset[int]:
        """All sources with a statement."""
        return frozenset(self.offsets_ns).union(*self.same)


@dataclass(frozen=True, slots=True)
class Stated:
    """The values of ``--same`` and ``--clock-offset``: groups of file names, and nanoseconds by file name."""

    same: tuple[tuple[str, ...], ...] = ()
    offsets_ns: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.same or self.offsets_ns)

    def renamed(self, name: Callable[[str], str]) -> Stated:
        """Return the same statements about files with other names."""
        return Stated(tuple(tuple(map(name, names)) for names in self.same), {name(file): ns for file, ns in self.offsets_ns.items()})

    def resolved(self, files: Sequence[tuple[int, Path]]) -> Statements:
        """Return the statements with the ids of ``files`` instead of names.

        Raises UsageError for a name of no file or of several, for a group of fewer than two files, and for two offsets of one file.
        """
        groups: list[frozenset[int]] = []
        for names in self.same:
            group = frozenset(_source(files, name, "--same") for name in names)
            if len(group) < 2:
                raise UsageError(f"--same {','.join(names)}: name at least two different files")
            overlapping = [known for known in groups if known & group]
            groups = [known for known in groups if not known & group] + [group.union(*overlapping)]
        offsets: dict[int, int] = {}
        for name, offset in self.offsets_ns.items():
            source = _source(files, name, "--clock-offset")
            if source in offsets:
                raise UsageError(f"--clock-offset {name}: the file has two offsets; state one")
            offsets[source] = offset
        return Statements(tuple(groups), offsets)


def stated_by(same: Iterable[Iterable[str | Path]], clock_offsets: Mapping[str, int]) -> Stated:
    """Return the statements of a program. Raise UsageError for values of another kind."""
    groups = [same] if isinstance(same, str) else list(same)
    if any(isinstance(names, str | Path) for names in groups):
        raise UsageError(f"same: {same!r} is not a list of groups of files; write it like [('smi.csv', 'trace.json')]")
    for file, offset in clock_offsets.items():
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise UsageError(f"clock_offsets: {offset!r} for {file} is not an int of nanoseconds; write it like -2 * 3600 * 10**9")
    return Stated(tuple(tuple(map(str, names)) for names in groups), dict(clock_offsets))


def _source(files: Sequence[tuple[int, Path]], name: str, option: str) -> int:
    parts = PurePath(name).parts
    matches = {source: path for source, path in files if storable(str(path)) == storable(name)} or {
        source: path for source, path in files if parts and path.parts[-len(parts) :] == parts
    }
    if len(matches) == 1:
        return next(iter(matches))
    if matches:
        paths = ", ".join(storable(str(path)) for path in list(matches.values())[:_LISTED])
        raise UsageError(f"{option} {name}: {len(matches)} files have this name ({paths}); write more of the path")
    names = sorted({storable(path.name) for _, path in files})
    near = difflib.get_close_matches(parts[-1] if parts else "", names, n=1)
    listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    hint = f"did you mean {near[0]}?" if near else f"name one of {listed}"
    raise UsageError(f"{option} {name}: no file of the run that is read has this name; {hint}")
