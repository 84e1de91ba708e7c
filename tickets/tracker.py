"""How does a message become one comment on a ticket, whichever system it is, however often it is sent?

Each system says what it can in a `Tracker`; the order of the steps is here: look for our comment, upload, write, look whether another
attach wrote at the same time, remove our older files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from ..analysis.wording import size as size_words
from .http import Client, HttpError, LostAnswerError, TicketError, Upload
from .markup import JOINER, Renderer
from .message import Block, FileLink, Message, fitted, marker
from .target import Target

_TRIES: Final = 3
PAGES: Final = 100
"""How many pages of a list are read at most."""


@dataclass(frozen=True, slots=True)
class Comment:
    """``mine``: whether the token's own user wrote it; None where the server does not say."""

    id: str
    body: str
    mine: bool | None = None


@dataclass(frozen=True, slots=True)
class Attached:
    """A file on a ticket. Later ones have higher numbers."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class NewTicket:
    title: str
    body: str
    mark: str
    issue_type: str | None = None
    labels: tuple[str, ...] = ()


class Tracker(Protocol):
    """One ticket of one system; for ``find`` and ``open`` its project alone need be named."""

    target: Target
    client: Client
    comment_limit: int | None
    title_limit: int

    @property
    def markup(self) -> Renderer: ...

    @property
    def takes_files(self) -> bool: ...

    @property
    def no_files(self) -> str:
        """Why files are not taken, and what to do."""

    @property
    def comment_path(self) -> str:
        """Below the server's address, where a comment is sent; shown by a dry run."""

    def check(self) -> None:
        """TicketError where the ticket is not there, or the token cannot see it."""

    def comments(self) -> list[Comment]:
        """Oldest first."""

    def add(self, body: str) -> str | None:
        """-> its id, where the server says."""

    def change(self, comment: Comment, body: str) -> None: ...

    def remove(self, comment: Comment) -> None: ...

    def upload_limit(self, largest: int) -> int | None:
        """Bytes; None where the server does not say. ``largest``: of what is to be sent."""

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        """The file, and its id."""

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        """Our files of that name on the ticket. ``before``: our comments as they were."""

    def discard(self, file: Attached) -> None: ...

    def find(self, mark: str) -> str | None:
        """An open ticket of the project whose description holds the marker: its key or number."""

    def open(self, ticket: NewTicket) -> str: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """``problem``: what was wanted and could not be done, though the comment stands."""

    did: str
    notes: tuple[str, ...] = ()
    problem: str | None = None


def holds(body: str, mark: str) -> bool:
    """Whether the comment ends with our marker. Not where it is quoted. Servers may escape or wrap it."""
    lines = [line for line in re.sub(rf"[\\{JOINER}]", "", body).splitlines() if line.strip()]
    last = lines[-1].strip() if lines else ""
    return not last.startswith((">", "&gt;", "bq.")) and re.search(rf"(?<![\w:-]){re.escape(mark)}(?![\w-])", last) is not None


def ours(tracker: Tracker, mark: str) -> list[Comment]:
    return [one for one in tracker.comments() if one.mine is not False and holds(one.body, mark)]


def render(tracker: Tracker, message: Message, files: Sequence[FileLink]) -> str:
    def written(blocks: Sequence[Block]) -> str:
        return tracker.markup(blocks, marker(message.key))

    return fitted(message, files, written, tracker.comment_limit)


def too_large(file: Upload, limit: int | None) -> str:
    most = f"the server takes at most {size_words(limit)}" if limit is not None else "that is larger than the server takes"
    return f"{file.name} ({size_words(file.size)}; {most})"


def deliver(tracker: Tracker, message: Message, files: Sequence[Upload]) -> Outcome:
    """Write or update the comment of ``message.key``, with its files. Raises TicketError where that fails."""
    from dataclasses import replace

    tracker.check()
    mark = marker(message.key)
    before = ours(tracker, mark)
    links: list[FileLink] = []
    ids: dict[str, str | None] = {}
    older: dict[str, list[Attached]] = {}
    left_out: list[str] = []
    if files and not tracker.takes_files:
        left_out.append(tracker.no_files)
    elif files:
        limit = tracker.upload_limit(max(file.size for file in files))
        for file in files:
            if limit is not None and file.size > limit:
                left_out.append(too_large(file, limit))
                continue
            older[file.name] = tracker.attached(file.name, before)
            try:
                link, ids[file.name] = _again(lambda file=file: tracker.upload(file), tracker)  # type: ignore[misc]
            except HttpError as error:
                if error.status != 413:
                    raise
                left_out.append(too_large(file, None))
                continue
            links.append(link)
    body = render(tracker, replace(message, left_out=tuple(left_out)), links)
    did = _write(tracker, mark, before, body)
    notes = _tidy(tracker, mark, before, ids, older)
    problem = None
    if left_out and tracker.takes_files:
        problem = (
            f"not attached: {'; '.join(left_out)}. Raise the server's limit, attach a smaller format (--attach), or put the "
            "report elsewhere and name it with --link"
        )
    elif left_out:
        notes = [*notes, *left_out]
    return Outcome(did, tuple(notes), problem)


def _write(tracker: Tracker, mark: str, before: Sequence[Comment], body: str) -> str:
    if before:
        tracker.change(before[0], body)
        return "updated its comment"
    mine = _add(tracker, mark, body)
    after = ours(tracker, mark)
    if not after or (len(after) == 1 and after[0].id == mine):
        return "wrote a comment"
    # There was none a moment ago: other attaches wrote at the same time. The oldest comment stays, with what is newest, whoever comes last.
    if after[0].id != mine:
        tracker.change(after[0], body)
    for extra in after[1:]:
        try:
            tracker.remove(extra)
        except HttpError as error:
            if error.status not in (404, 410):  # else another one removed it
                raise
    return "wrote a comment (another attach wrote at the same time)"


def _add(tracker: Tracker, mark: str, body: str) -> str | None:
    """A comment whose answer was lost is looked for before it is written again."""
    lost: LostAnswerError | None = None
    for attempt in range(_TRIES):
        try:
            return tracker.add(body)
        except LostAnswerError as error:
            lost = error
            tracker.client.options.sleep(tracker.client.options.backoff_s * 2**attempt)
            if found := ours(tracker, mark):
                return found[-1].id
    assert lost is not None
    raise lost


def _again(upload: Callable[[], Any], tracker: Tracker) -> Any:
    """A file whose answer was lost is sent again: a copy that arrived is older, and removed as older files are."""
    for attempt in range(_TRIES - 1):
        try:
            return upload()
        except LostAnswerError:
            tracker.client.options.sleep(tracker.client.options.backoff_s * 2**attempt)
    return upload()


def _tidy(
    tracker: Tracker, mark: str, before: Sequence[Comment], ids: dict[str, str | None], older: dict[str, list[Attached]]
) -> list[str]:
    """Remove our older files of the same names, and no later one: another attach may have sent it meanwhile."""
    notes = []
    for name, new in ids.items():
        gone = {one.id: one for one in older.get(name, ())}
        try:
            if new is not None and new.isdigit():
                gone |= {one.id: one for one in tracker.attached(name, before) if one.id.isdigit() and int(one.id) < int(new)}
            for one in gone.values():
                if one.id != new:
                    tracker.discard(one)
        except TicketError as error:
            notes.append(f"an older {name} stays on the ticket: {error}")
    return notes
