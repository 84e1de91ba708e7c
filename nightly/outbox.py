"""Messages of --attach that were not sent: a file per night below the output, whose messages the next call with --attach sends.

A night writes its messages here before it sends the first, and removes each when it is sent, or given up. The claim of that night
(unannounced.py) shows who is sending them. The matches of ``--fail-on`` are written too, until the night has sent all it can: if it is
killed before that, the next night ends with its exit code.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

from ..errors import InputError
from ..ingest.object_store.objects import ObjectInfo, Objects, ObjectStoreError
from .claims import Claims

FOLDER: Final = "nights"
FILE: Final = re.compile(rf"{FOLDER}/([0-9a-f]{{32}})\.outbox\.json")
LAYOUT: Final = "postrun.outbox/1"
DAYS: Final = 14  # until a message that cannot be sent is given up: longer than an outage, or a token that has expired, should last
_MOST_BYTES: Final = 64 << 20  # 1,000 messages per rule, each with 200 lines
_DAY_NS: Final = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Entry:
    """A message to send. ``rule``: name of its rule. ``key``: of the message, by which a ticket system finds it again. ``run``: id of the
    run that it is about; None for the summary of ``number`` runs. ``reasons``, ``more``: its lines, about this run and about others."""

    rule: str
    key: str
    run: str | None
    reasons: tuple[str, ...]
    more: tuple[str, ...]
    number: int = 1


@dataclass(slots=True)
class Outbox:
    """The messages of one night that are not sent. ``at_ns``: when the night began to send them (Unix time). ``damaged``: the file is not
    as a night writes it, and stays. ``matched``: what ``--fail-on`` matched, if no night has ended with the exit code for it."""

    out: Objects
    night: str
    entries: list[Entry]
    at_ns: int
    damaged: bool = False
    matched: str | None = None

    @property
    def path(self) -> str:
        return f"{FOLDER}/{self.night}.outbox.json"

    @property
    def gives_up(self) -> bool:
        """Return whether a message that cannot be sent now is not tried again."""
        return time.time_ns() - self.at_ns >= DAYS * _DAY_NS

    def write(self) -> None:
        messages = [asdict(entry) for entry in self.entries]
        value = {"layout": LAYOUT, "at_ns": self.at_ns, "matched": self.matched, "messages": messages}
        self.out.write(
            self.path, json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace"), content_type="application/json"
        )

    def remove(self, entry: Entry) -> None:
        """Note that a message is sent, or given up."""
        self.entries.remove(entry)
        self.write()


@contextmanager
def opened(box: Outbox, claims: Claims) -> Iterator[Outbox]:
    """Have the claim of the outbox inside the block, and delete an empty one after it.

    The claim goes before the file: a claim without a file would be that of a night that has announced nothing."""
    yield box
    if box.matched is not None and box.entries:
        box.matched = None
        box.write()
    claims.give_back(_claim(box.night))
    if not box.entries and not box.damaged:
        box.out.delete(box.path)


def new(out: Objects, claims: Claims, entries: Sequence[Entry], ended: Iterable[str] = (), matched: str | None = None) -> Outbox:
    """Return the outbox of this night, which is written if it has messages.

    ``ended``: nights whose runs are among those of the messages. The outbox announces them from then, so their claims go: if this night is
    killed while it sends, the next one must not announce them again."""
    box = Outbox(out, claims.night, list(entries), time.time_ns(), matched=matched)
    if entries:
        claims.take(_claim(claims.night))
        box.write()
        for night in ended:
            claims.give_back(_claim(night))
    return box


def left(out: Objects, claims: Claims) -> Iterator[Outbox]:
    """Yield the outboxes of earlier nights that nobody else sends now."""
    nights = [match[1] for file in list(out.list(f"{FOLDER}/")) if (match := FILE.fullmatch(file.path))]
    for night in nights:
        if night != claims.night and claims.take(_claim(night)):
            file = out.head(f"{FOLDER}/{night}.outbox.json")
            if file is None:  # sent meanwhile
                claims.give_back(_claim(night))
            else:
                yield _read(out, file, night)


def waiting(out: Objects) -> int:
    """Count the messages that wait; a damaged file counts as one."""
    return sum(1 if box.damaged else len(box.entries) for box in _all(out))


def runs_waiting(out: Objects) -> frozenset[str]:
    """Return the ids of the runs about which messages wait.

    InputError for a damaged file: what it protects is unknown."""
    runs = set[str]()
    for box in _all(out):
        if box.damaged:
            raise InputError(f"{out.place(box.path)}: not as postrun nightly writes it, so it is unknown which reports wait; remove it")
        runs |= {entry.run for entry in box.entries if entry.run is not None}
    return frozenset(runs)


def _all(out: Objects) -> Iterator[Outbox]:
    for file, match in [(file, FILE.fullmatch(file.path)) for file in list(out.list(f"{FOLDER}/"))]:
        if match is None:
            continue
        try:
            yield _read(out, file, match[1])
        except ObjectStoreError:
            if out.head(file.path) is not None:
                raise  # else sent meanwhile


def _claim(night: str) -> str:
    return f"{FOLDER}/{night}.claim.json"


def _read(out: Objects, file: ObjectInfo, night: str) -> Outbox:
    box = Outbox(out, night, [], file.modified_ns)
    data = out.read(box.path, count=_MOST_BYTES + 1)
    try:
        value: Any = json.loads(data) if len(data) <= _MOST_BYTES else None
        if value["layout"] != LAYOUT:
            raise ValueError(value["layout"])
        at_ns = value.get("at_ns", box.at_ns)  # an earlier version did not write it
        if type(at_ns) is not int:
            raise ValueError(at_ns)
        matched = value.get("matched")
        if not isinstance(matched, str | None):
            raise ValueError(matched)
        box.entries, box.at_ns, box.matched = [_entry(message) for message in value["messages"]], min(at_ns, box.at_ns), matched
    except (ValueError, TypeError, KeyError, RecursionError):
        box.damaged = True
    return box


def _entry(value: dict[str, Any]) -> Entry:
    """Return a message that was read. Raise ValueError for other content."""
    texts = [value["rule"], value["key"], *value["reasons"], *value["more"], *([] if value["run"] is None else [value["run"]])]
    if (
        not all(isinstance(text, str) for text in texts)
        or type(value["number"]) is not int
        or (value["run"] is not None and not value["reasons"])
    ):
        raise ValueError("not a message")
    return Entry(value["rule"], value["key"], value["run"], tuple(value["reasons"]), tuple(value["more"]), value["number"])
