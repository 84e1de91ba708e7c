"""Delivery of a message as one comment on a ticket, whichever system it is on and however often it is sent.

Each system is a `Tracker` that knows its API. The order of the steps is here: look for our comment, upload the files, write, look whether
another attach wrote at the same time, remove our older files.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ..analysis.toolkit.wording import size as size_words
from ..report_templates.text.markdown import JOINER
from .comment import comment
from .http import Client, HttpError, LostAnswerError, TicketError, Upload
from .markup import MARKDOWN, Dialect, FileLink
from .message import Message, marker
from .target import Target

_TRIES: Final = 3
PAGES: Final = 100  # of a list are read at most


@dataclass(frozen=True, slots=True)
class Comment:
    """``mine``: whether the token's own user wrote it; None if the server does not show that."""

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


@dataclass(frozen=True, slots=True)
class Outcome:
    """``problem``: what could not be done, although the comment was written."""

    did: str
    notes: tuple[str, ...] = ()
    problem: str | None = None


class Tracker(ABC):
    """One ticket of one system; `find` and `open` need its project alone. ``me``: the token's own user, None if unknown."""

    dialect: Dialect = MARKDOWN
    comment_limit: int | None = None
    title_limit: ClassVar[int] = 255
    page_size: ClassVar[int] = 100
    comment_name: ClassVar[str] = "comments"
    user_path: ClassVar[str] = ""
    user_key: ClassVar[str] = "id"
    no_files: str = ""
    """Why files are not accepted, and the next step; empty if they are."""
    me: str | None = None

    def __init__(self, target: Target, client: Client) -> None:
        self.target, self.client = target, client

    @property
    @abstractmethod
    def ticket_path(self) -> str:
        """The ticket's address below the server's."""

    @property
    def comment_path(self) -> str:
        """The address to which a comment is sent, below the server's."""
        return f"{self.ticket_path}/{self.comment_name}"

    def check(self) -> None:
        """Set ``me``. Raise TicketError if the ticket is missing or not visible."""
        self.client.json("GET", self.ticket_path)
        self.me = self.user(self.user_path, self.user_key)

    @abstractmethod
    def comments(self) -> list[Comment]:
        """Return the comments, oldest first."""

    @abstractmethod
    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        """Upload a file and return it with its id."""

    @abstractmethod
    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        """Return our files of that name. ``before``: our comments before delivery."""

    @abstractmethod
    def discard(self, file: Attached) -> None:
        """Remove a file."""

    @abstractmethod
    def find(self, mark: str) -> str | None:
        """Return an open ticket of the project whose description has the marker."""

    @abstractmethod
    def open(self, ticket: NewTicket) -> str:
        """Open a ticket and return its key or number."""

    def add(self, body: str) -> str | None:
        """Write a comment and return its id, if the server names it."""
        return str(self.client.json("POST", self.comment_path, value={"body": body})["id"])

    def change(self, comment: Comment, body: str) -> None:
        self.client.json("PUT", f"{self.comment_path}/{comment.id}", value={"body": body})

    def remove(self, comment: Comment) -> None:
        self.client.json("DELETE", f"{self.comment_path}/{comment.id}")

    def upload_limit(self, largest: int) -> int | None:
        """Return the bytes that the server accepts, or None. ``largest``: to send."""
        return None

    def mine(self, author: Any) -> bool | None:
        """Decide whether an author's id is the token's user."""
        return None if self.me is None or author is None else str(author) == self.me

    def user(self, path: str, key: str) -> str | None:
        """Return the token's user; None for a token of a project or job."""
        try:
            return str(self.client.json("GET", path)[key])
        except HttpError:
            return None

    def pages(self, path: str, **query: Any) -> list[Any]:
        """Return all items of a list in pages."""
        items: list[Any] = []
        for page in range(1, PAGES + 1):
            new = self.client.json("GET", path, query={**query, **self.page(page)}) or []
            items += new
            if len(new) < self.page_size:
                break
        return items

    def items(self, path: str, key: str, offset: str, total: str, **query: Any) -> Iterator[Any]:
        """Yield a list that is read by offset. ``key``, ``offset``, ``total``: names."""
        start = 0
        for _ in range(PAGES):
            page = self.client.json("GET", path, query={offset: start, **query})
            items = page.get(key) or []
            yield from items
            start += len(items)
            if not items or start >= page.get(total, 0):
                break

    def page(self, number: int) -> dict[str, Any]:
        return {"per_page": self.page_size, "page": number}

    def discard_at(self, path: str, *tolerated: int) -> None:
        """Remove what may be gone. ``tolerated``: answers besides 404."""
        try:
            self.client.json("DELETE", path)
        except HttpError as error:
            if error.status not in (404, *tolerated):
                raise

    def ours(self, mark: str) -> list[Comment]:
        return [comment for comment in self.comments() if comment.mine is not False and has_marker(comment.body, mark)]

    def text(self, message: Message, files: Sequence[FileLink], left_out: Sequence[str] = ()) -> str:
        return comment(message, self.dialect, files, left_out, self.comment_limit)

    def deliver(self, message: Message, files: Sequence[Upload]) -> Outcome:
        """Write or update the comment of ``message.key``, and attach the files."""
        self.check()
        mark = marker(message.key)
        before = self.ours(mark)
        links: list[FileLink] = []
        ids: dict[str, str | None] = {}
        older: dict[str, list[Attached]] = {}
        left_out = [self.no_files] if files and self.no_files else []
        accepted = () if self.no_files else files
        limit = self.upload_limit(max(file.size for file in accepted)) if accepted else None
        for file in accepted:
            if limit is not None and file.size > limit:
                left_out.append(_too_large(file, limit))
                continue
            older[file.name] = self.attached(file.name, before)
            try:
                # A file whose answer was lost is sent again: a copy that arrived is removed as older files are.
                link, ids[file.name] = self.repeated(lambda file=file: self.upload(file), lambda: None)  # type: ignore[misc]
            except HttpError as error:
                if error.status != 413:
                    raise
                left_out.append(_too_large(file, None))
                continue
            links.append(link)
        did = self._write(mark, before, self.text(message, links, left_out))
        notes = self._tidy(before, ids, older)
        if left_out and not self.no_files:
            advice = "Raise the server's limit, attach a smaller format (--attach), or put the report elsewhere and name it with --link"
            return Outcome(did, tuple(notes), f"not attached: {'; '.join(left_out)}. {advice}")
        return Outcome(did, (*notes, *left_out))

    def repeated(self, send: Callable[[], Any], find: Callable[[], Any]) -> Any:
        """Call ``send`` again if its answer was lost, unless ``find`` has its result."""
        for attempt in range(_TRIES):
            try:
                return send()
            except LostAnswerError as error:
                lost = error
            self.client.options.sleep(self.client.options.backoff_s * 2**attempt)
            if (result := find()) is not None:
                return result
        raise lost

    def _write(self, mark: str, before: Sequence[Comment], body: str) -> str:
        if before:
            self.change(before[0], body)
            return "updated its comment"
        mine = self.repeated(lambda: self.add(body) or "", lambda: next((comment.id for comment in reversed(self.ours(mark))), None))
        after = self.ours(mark)
        if not after or (len(after) == 1 and after[0].id == mine):
            return "wrote a comment"
        # There was none before: other attaches wrote at the same time. The oldest comment stays and gets the newest text.
        if after[0].id != mine:
            self.change(after[0], body)
        for extra in after[1:]:
            try:
                self.remove(extra)
            except HttpError as error:
                if error.status not in (404, 410):  # else another attach removed it
                    raise
        return "wrote a comment (another attach wrote at the same time)"

    def _tidy(self, before: Sequence[Comment], ids: dict[str, str | None], older: dict[str, list[Attached]]) -> list[str]:
        """Remove our older files of the same names, but none that came later."""
        notes = []
        for name, new in ids.items():
            old = {file.id: file for file in older[name]}
            try:
                if new is not None and new.isdigit():
                    old |= {file.id: file for file in self.attached(name, before) if file.id.isdigit() and int(file.id) < int(new)}
                for file in old.values():
                    if file.id != new:
                        self.discard(file)
            except TicketError as error:
                notes.append(f"an older {name} stays on the ticket: {error}")
        return notes


def has_marker(body: str, mark: str) -> bool:
    """Decide whether the comment ends with our marker.

    Servers may escape or wrap it. A quoted marker does not count."""
    lines = [line for line in re.sub(rf"[\\{JOINER}]", "", body).splitlines() if line.strip()]
    last = lines[-1].strip() if lines else ""
    return not last.startswith((">", "&gt;", "bq.")) and re.search(rf"(?<![\w:-]){re.escape(mark)}(?![\w-])", last) is not None


def _too_large(file: Upload, limit: int | None) -> str:
    most = f"the server accepts at most {size_words(limit)}" if limit is not None else "that is larger than the server accepts"
    return f"{file.name} ({size_words(file.size)}; {most})"
