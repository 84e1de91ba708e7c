"""Process groups: their members, and the number that each process has in them.

A profiler records with each collective the name, the purpose and the ranks of its group. A process has the same number in all of its
groups; where only some ranks of a job were recorded and numbered anew, this number is not the process's rank.
"""

from __future__ import annotations

import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import polars as pl

from ...ingest.store.store import Store
from ..device.collectives import collective_calls, rank_texts
from ..toolkit.shared import shared

GROUPS: Final = 20_000  # process groups of a run; a job of 4,096 ranks with five ways of parallelism has some 10,000
MEMBERS: Final = 16_384  # ranks of a group, as many as processes of a run
_HIGHEST_RANK: Final = 1 << 31  # ranks are 32-bit integers
_KEY_LETTERS: Final = 200  # of the recorded ranks in a key; longer texts end in a checksum
_SHORTENED: Final = re.compile(r"\[([\d, ]+), *\.\.\.,? *(\d*)\]")  # as PyTorch writes a list of more than 30 ranks

RECORDED: Final = ("group_name", "group_description", "group_ranks", "group_size")


class Group(NamedTuple):
    """A process group. ``members``: its ranks in order; empty if they are not known. ``size``: None if not known."""

    key: str
    name: str | None
    description: str | None
    members: tuple[int, ...]
    size: int | None


class ProcessGroups(NamedTuple):
    """``groups``: by key. ``of_process``: keys of the groups of each process. ``number``: of each process in its groups, if known.

    ``keys``: columns ``RECORDED`` and ``group``, the key. ``ranks``: the rank in this run of each number that is not the rank itself.
    """

    groups: Mapping[str, Group]
    of_process: Mapping[int, tuple[str, ...]]
    number: Mapping[int, int]
    keys: pl.DataFrame
    ranks: Mapping[int, int] = MappingProxyType({})

    def members(self, key: str) -> tuple[int, ...]:
        """Return the members of a group, as ranks of this run if all are known."""
        return as_ranks(self.groups[key].members, self.ranks)

    def position(self, process: int, key: str) -> int | None:
        """Return the place of a process among the members of a group, from 0."""
        members, number = self.groups[key].members, self.number.get(process)
        return members.index(number) if number is not None and number in members else None


@shared
def process_groups(store: Store) -> ProcessGroups:
    """Return the process groups in which the processes of a run communicated."""
    calls = collective_calls(store)
    if calls.is_empty():
        return ProcessGroups({}, {}, {}, pl.DataFrame(schema={**{name: calls.schema[name] for name in RECORDED}, "group": pl.String}))
    recorded = calls.select(RECORDED).unique(maintain_order=True).filter(pl.any_horizontal(pl.col(RECORDED[:3]).is_not_null()))
    if recorded.is_empty():
        return ProcessGroups({}, {}, {}, recorded.with_columns(group=pl.lit(None, pl.String)))
    groups: dict[str, Group] = {}
    keys: list[str | None] = []
    texts = rank_texts(store)
    for name, description, ranks, size in recorded.rows():
        group = _group(name, description, None if ranks is None else texts[ranks], size)
        known = groups.get(group.key)
        if known is None and len(groups) < GROUPS:
            groups[group.key] = group
        elif known is not None and known.description is None:
            groups[group.key] = known._replace(description=group.description)
        keys.append(group.key if group.key in groups else None)
    table = recorded.with_columns(group=pl.Series(keys, dtype=pl.String))
    pairs = calls.select("process", *RECORDED).unique(maintain_order=True).join(table, on=RECORDED, how="inner", nulls_equal=True)
    of_process: dict[int, dict[str, None]] = {}
    for process, key in pairs.select("process", "group").drop_nulls().rows():
        of_process.setdefault(process, {})[key] = None
    groups_of = {process: tuple(keys) for process, keys in of_process.items()}
    ranks = dict(store.frame("SELECT id, rank FROM process WHERE rank IS NOT NULL ORDER BY id").rows())
    numbers = _numbers(groups_of, groups, ranks)
    renumbered = {number: ranks[process] for process, number in numbers.items() if process in ranks}
    if all(number == rank for number, rank in renumbered.items()):
        renumbered = {}
    return ProcessGroups(groups, groups_of, numbers, table, renumbered)


def as_ranks(members: tuple[int, ...], ranks: Mapping[int, int]) -> tuple[int, ...]:
    """Translate numbers in process groups to ranks if all of them are known."""
    return tuple(sorted(ranks[number] for number in members)) if all(number in ranks for number in members) else members


def rank_list(text: str | None, size: int | None = None) -> tuple[int, ...]:
    """Return the ranks that a profiler recorded; empty if they are not valid.

    A shortened list, such as ``[0, 8, ..., 56]``, is completed if its ranks have equal distances and add up to ``size``.
    """
    if text is None:
        return ()
    if shortened := _SHORTENED.fullmatch(text.strip()):
        return _completed(shortened[1], shortened[2], size)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(values, list) or len(values) > MEMBERS or (size is not None and size != len(values)):
        return ()
    valid = all(type(value) is int and 0 <= value < _HIGHEST_RANK for value in values) and len(set(values)) == len(values)
    return tuple(values) if valid else ()


def _completed(first: str, last: str, size: int | None) -> tuple[int, ...]:
    if size is None or not 2 <= size <= MEMBERS:
        return ()
    beginning = rank_list(f"[{first}]")
    if len(beginning) < 2 or size < len(beginning):
        return ()
    distance = beginning[1] - beginning[0]
    every = tuple(beginning[0] + distance * place for place in range(size))
    regular = every[: len(beginning)] == beginning and distance > 0 and every[-1] < _HIGHEST_RANK
    return every if regular and (not last or last == str(every[-1])) else ()


def _group(name: str | None, description: str | None, ranks: str | None, size: int | None) -> Group:
    members = rank_list(ranks, size)
    text = str(list(members)) if members else (ranks or "").strip().removesuffix("[]")
    if len(text) > _KEY_LETTERS:
        text = f"{text[:_KEY_LETTERS]}… {zlib.crc32(text.encode('utf-8', 'replace')):08x}"
    key = " ".join(part for part in (name, text) if part) or description or "unnamed"
    return Group(key, name or None, description or None, members, len(members) or size)


def _numbers(of_process: Mapping[int, Iterable[str]], groups: Mapping[str, Group], ranks: Mapping[int, int]) -> dict[int, int]:
    """Return the number of each process in its groups.

    It is the process's rank if every process of the run is in its groups by its rank, else the only number that is in all of its groups.
    Processes with the same candidates have them in the order of their ranks.
    """
    candidates: dict[int, frozenset[int]] = {}
    for process, keys in of_process.items():
        lists = [frozenset(groups[key].members) for key in keys if groups[key].members]
        if lists:
            candidates[process] = frozenset.intersection(*lists)
    if all(ranks.get(process) in possible for process, possible in candidates.items()):
        return {process: ranks[process] for process in of_process if process in ranks}
    numbers: dict[int, int] = {}
    alike: dict[frozenset[int], list[int]] = {}
    for process, possible in candidates.items():
        alike.setdefault(possible, []).append(process)
    for possible, processes in alike.items():
        if len(possible) == len(processes) and all(process in ranks for process in processes):
            numbers.update(zip(sorted(processes, key=lambda process: ranks[process]), sorted(possible), strict=True))
        elif len(possible) == 1 == len(processes):
            numbers[processes[0]] = next(iter(possible))
    twice = {number for number, count in Counter(numbers.values()).items() if count > 1}
    return {process: number for process, number in numbers.items() if number not in twice}
