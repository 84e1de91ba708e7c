"""Runs that a night reported before it was killed, and announced to nobody: a claim per night below the output -> their rows.

A night has its own claim while it works, and gives it back when the index is written, and its tickets and alarms are sent. The claim of a
night that was ended before that stays and expires. The first night that takes it over announces the runs of that night with its own, unless
that night had already put its messages into its outbox (outbox.py), which is then sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from ..ingest.object_store.objects import Objects
from .claims import Claims
from .model import Row
from .outbox import FILE as OUTBOX
from .outbox import FOLDER

_CLAIM: Final = re.compile(rf"{FOLDER}/([0-9a-f]{{32}})\.claim\.json")


@contextmanager
def announcing(claims: Claims, works: bool) -> Iterator[None]:
    """Have the claim of this night inside the block if it ``works``.

    An exception leaves the claim to the next night."""
    path = f"{FOLDER}/{claims.night}.claim.json"
    if works:
        claims.take(path)
    try:
        yield
    except BaseException:
        claims.leave(path)
        raise
    claims.give_back(path)


@contextmanager
def of_ended_nights(out: Objects, claims: Claims) -> Iterator[frozenset[str]]:
    """Take over the claims of ended nights, and yield the ids of these nights.

    Nights with an outbox have announced everything else. The claims are given back after the block; an exception leaves them to the next
    night."""
    paths = [file.path for file in list(out.list(f"{FOLDER}/"))]
    done = {claims.night} | {match[1] for path in paths if (match := OUTBOX.fullmatch(path))}
    matches = (_CLAIM.fullmatch(path) for path in paths)
    ended = {match[1]: match[0] for match in matches if match and match[1] not in done and claims.take_over(match[0])}
    try:
        yield frozenset(ended)
    except BaseException:
        for path in ended.values():
            claims.leave(path)
        raise
    for path in ended.values():
        claims.give_back(path)


def at_work(out: Objects, mine: frozenset[str]) -> frozenset[str]:
    """Return the ids of the nights that have a claim, except ``mine``."""
    matches = (_CLAIM.fullmatch(file.path) for file in list(out.list(f"{FOLDER}/")))
    return frozenset(match[1] for match in matches if match) - mine


def rows_of(rows: Iterable[Row], nights: frozenset[str]) -> list[Row]:
    """Return the rows that these nights reported, or failed to report."""
    return [row for row in rows if row.night in nights and row.state in ("reported", "failed")]
