"""GitLab, issues and merge requests: REST API version 4."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from .http import Client, HttpError, Options, TicketError, Upload, multipart
from .markup import FileLink
from .settings import Settings
from .target import Target
from .tracker import Attached, Comment, NewTicket, Tracker, has_marker

_SMALL: Final = 10 << 20  # bytes, the lowest default limit of any version


class GitLab(Tracker):
    comment_limit = 1_000_000
    comment_name = "notes"
    user_path = "/api/v4/user"

    @property
    def _project(self) -> str:
        return f"/api/v4/projects/{quote(self.target.project or '', safe='')}"

    @property
    def ticket_path(self) -> str:
        return f"{self._project}/{'merge_requests' if self.target.merge_request else 'issues'}/{self.target.ticket}"

    def comments(self) -> list[Comment]:
        return [
            Comment(str(note["id"]), note.get("body") or "", self.mine((note.get("author") or {}).get("id")))
            for note in self.pages(self.comment_path, sort="asc", order_by="created_at")
            if not note.get("system")
        ]

    def upload_limit(self, largest: int) -> int | None:
        """Administrators alone may request it; nobody needs to for small files."""
        if largest <= _SMALL:
            return None
        try:
            limit = (self.client.json("GET", "/api/v4/application/settings") or {}).get("max_attachment_size")
        except HttpError:
            return None
        return limit << 20 if isinstance(limit, int) else None

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        try:
            url = str(self.client.json("POST", f"{self._project}/uploads", body=multipart([], [("file", file)]))["url"])
        except HttpError as error:
            if error.status == 400 and "large" in error.words.lower():
                raise HttpError(str(error), 413, error.words) from None
            raise
        if not re.fullmatch(r"/uploads/[0-9a-f]+/[A-Za-z0-9._-]+", url):
            raise TicketError(f"{self.client.base} answers an upload with an unknown address: {url[:100]!r}")
        return FileLink(file.name, url), None

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        """Return the files that our comment links: uploads belong to the project."""
        return [
            Attached(secret, name)
            for comment in before
            for secret, linked in re.findall(r"/uploads/([0-9a-f]{16,64})/([A-Za-z0-9._-]+)", comment.body)
            if linked == name
        ]

    def discard(self, file: Attached) -> None:
        """Since GitLab 17.2, maintainers may; else the file stays, linked from nowhere."""
        self.discard_at(f"{self._project}/uploads/{file.id}/{file.name}", 401, 403, 405)

    def find(self, mark: str) -> str | None:
        query = {"state": "opened", "search": mark, "in": "description", "order_by": "created_at", "sort": "asc"}
        issues = self.pages(f"{self._project}/issues", **query)
        return next((str(issue["iid"]) for issue in issues if has_marker(issue.get("description") or "", mark)), None)

    def open(self, ticket: NewTicket) -> str:
        value: dict[str, Any] = {"title": ticket.title, "description": ticket.body}
        if ticket.labels:
            value["labels"] = ",".join(ticket.labels)
        if ticket.issue_type:
            value["issue_type"] = ticket.issue_type
        return str(self.client.json("POST", f"{self._project}/issues", value=value)["iid"])


def tracker(target: Target, settings: Settings, options: Options) -> GitLab:
    job_server = settings.environment.get("CI_SERVER_URL")
    if job_server and target.url is None and settings.get("gitlab", "url") is None:
        target = replace(target, url=job_server)
    base = settings.server(target, "https://gitlab.com")
    token = settings.need_secret("gitlab", "token", f"{target.text} needs an access token of GitLab (scope api)")
    advice = {
        401: "GitLab does not accept POSTRUN_GITLAB_TOKEN; it needs an access token with the scope api that has not expired",
        403: "the token's role may not comment there (Reporter or higher is needed), or the discussion is locked",
    }
    return GitLab(target, Client(base, {"PRIVATE-TOKEN": token}, options, (token,), advice))
