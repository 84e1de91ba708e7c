"""GitLab, issues and merge requests: REST API version 4."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

from .http import Client, HttpError, Options, TicketError, Upload, multipart
from .jira import server
from .markup import Renderer, markdown
from .message import FileLink
from .settings import Settings
from .target import Target
from .tracker import PAGES, Attached, Comment, NewTicket, holds

_PAGE: Final = 100
_SMALL: Final = 10 << 20  # the lowest default limit of any version


@dataclass
class GitLab:
    target: Target
    client: Client
    markup: Renderer = markdown
    comment_limit: int | None = 1_000_000
    title_limit: int = 255
    takes_files: bool = True
    no_files: str = ""
    _me: int | None = None

    @property
    def _project(self) -> str:
        return f"/api/v4/projects/{quote(self.target.project or '', safe='')}"

    @property
    def _ticket(self) -> str:
        return f"{self._project}/{'merge_requests' if self.target.merge_request else 'issues'}/{self.target.ticket}"

    @property
    def comment_path(self) -> str:
        return f"{self._ticket}/notes"

    def check(self) -> None:
        self.client.json("GET", self._ticket)
        try:
            self._me = self.client.json("GET", "/api/v4/user").get("id")
        except HttpError:  # a token of a project or job may not ask
            self._me = None

    def _pages(self, path: str, query: dict[str, Any]) -> list[Any]:
        found: list[Any] = []
        for page in range(1, PAGES + 1):
            new = self.client.json("GET", path, query={**query, "per_page": _PAGE, "page": page}) or []
            found += new
            if len(new) < _PAGE:
                break
        return found

    def comments(self) -> list[Comment]:
        notes = self._pages(self.comment_path, {"sort": "asc", "order_by": "created_at"})
        return [Comment(str(one["id"]), one.get("body") or "", self._mine(one.get("author"))) for one in notes if not one.get("system")]

    def _mine(self, author: Any) -> bool | None:
        return None if self._me is None or not author else author.get("id") == self._me

    def add(self, body: str) -> str | None:
        return str(self.client.json("POST", self.comment_path, value={"body": body})["id"])

    def change(self, comment: Comment, body: str) -> None:
        self.client.json("PUT", f"{self.comment_path}/{comment.id}", value={"body": body})

    def remove(self, comment: Comment) -> None:
        self.client.json("DELETE", f"{self.comment_path}/{comment.id}")

    def upload_limit(self, largest: int) -> int | None:
        """Administrators alone may ask; nobody needs to where the files are small."""
        if largest <= _SMALL:
            return None
        try:
            limit = (self.client.json("GET", "/api/v4/application/settings") or {}).get("max_attachment_size")
        except HttpError:
            return None
        return limit << 20 if isinstance(limit, int) else None

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        path = f"{self._project}/uploads"
        try:
            answer = self.client.json("POST", path, body=multipart([], [("file", file)]))
        except HttpError as error:
            if error.status == 400 and "large" in error.words.lower():
                raise HttpError(str(error), 413, error.words) from None
            raise
        url = str(answer["url"])
        if not re.fullmatch(r"/uploads/[0-9a-f]+/[A-Za-z0-9._-]+", url):
            raise TicketError(f"{self.client.base} answers an upload with a place that is none: {url[:100]!r}")
        return FileLink(file.name, url), None

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        """Those that our comment linked: an upload belongs to the project, not to the ticket."""
        return [
            Attached(secret, name)
            for comment in before
            for secret, linked in re.findall(r"/uploads/([0-9a-f]{16,64})/([A-Za-z0-9._-]+)", comment.body)
            if linked == name
        ]

    def discard(self, file: Attached) -> None:
        """Since GitLab 17.2, for maintainers; else it stays, linked from nowhere."""
        try:
            self.client.json("DELETE", f"{self._project}/uploads/{file.id}/{file.name}")
        except HttpError as error:
            if error.status not in (401, 403, 404, 405):
                raise

    def find(self, mark: str) -> str | None:
        query = {"state": "opened", "search": mark, "in": "description", "order_by": "created_at", "sort": "asc"}
        issues = self._pages(f"{self._project}/issues", query)
        return next((str(one["iid"]) for one in issues if holds(one.get("description") or "", mark)), None)

    def open(self, ticket: NewTicket) -> str:
        value: dict[str, Any] = {"title": ticket.title, "description": ticket.body}
        if ticket.labels:
            value["labels"] = ",".join(ticket.labels)
        if ticket.issue_type:
            value["issue_type"] = ticket.issue_type
        return str(self.client.json("POST", f"{self._project}/issues", value=value)["iid"])


def tracker(target: Target, settings: Settings, options: Options) -> GitLab:
    of_job = settings.environment.get("CI_SERVER_URL")
    if of_job and target.url is None and settings.get("gitlab", "url") is None:
        target = replace(target, url=of_job)
    base = server(target, settings, "gitlab", "https://gitlab.com")
    token = settings.need_secret("gitlab", "token", f"{target.text} needs an access token of GitLab (scope api)")
    advice = {
        401: "GitLab does not take POSTRUN_GITLAB_TOKEN; it needs an access token with the scope api that has not expired",
        403: "the token's role may not comment there (Reporter or higher is needed), or the discussion is locked",
    }
    return GitLab(target, Client(base, {"PRIVATE-TOKEN": token}, options, (token,), advice))
