"""Gitea and Forgejo: like GitHub's API, and it takes files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .github import GitHub
from .http import Client, HttpError, Options, Upload, multipart
from .jira import server
from .message import FileLink
from .settings import Settings
from .target import Target
from .tracker import Attached, Comment, NewTicket


@dataclass
class Gitea(GitHub):
    comment_limit: int | None = 65_535
    title_limit: int = 255
    _page_size: int = 50  # what servers allow unless they are set otherwise

    @property
    def takes_files(self) -> bool:
        return True

    @property
    def _repository(self) -> str:
        return f"/api/v1/repos/{self.target.project}"

    @property
    def _issue(self) -> str:
        return f"{self._repository}/issues/{self.target.ticket}"

    def check(self) -> None:
        self.client.json("GET", self._issue)
        try:
            self._me = self.client.json("GET", "/api/v1/user").get("login")
        except HttpError:
            self._me = None

    def _paging(self, page: int) -> dict[str, Any]:
        return {"limit": self._page_size, "page": page}

    def comments(self) -> list[Comment]:
        """All of a ticket in one answer."""
        found = self.client.json("GET", self.comment_path) or []
        return [Comment(str(one["id"]), one.get("body") or "", self._mine(one.get("user"))) for one in found]

    def upload_limit(self, largest: int) -> int | None:
        try:
            meta = self.client.json("GET", "/api/v1/settings/attachment")
        except HttpError:
            return None
        if not meta.get("enabled", True):
            return 0
        limit = meta.get("max_size")
        return limit << 20 if isinstance(limit, int) else None

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        path = f"{self._issue}/assets"
        made = self.client.json("POST", path, body=multipart([], [("attachment", file)]), query={"name": file.name})
        return FileLink(file.name, str(made["browser_download_url"])), str(made["id"])

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        found = self.client.json("GET", f"{self._issue}/assets") or []
        return [Attached(str(one["id"]), name) for one in found if one.get("name") == name]

    def discard(self, file: Attached) -> None:
        self.client.json("DELETE", f"{self._issue}/assets/{file.id}")

    def open(self, ticket: NewTicket) -> str:
        """Labels are numbers there, and not set."""
        made = self.client.json("POST", f"{self._repository}/issues", value={"title": ticket.title, "body": ticket.body})
        return str(made["number"])


def tracker(target: Target, settings: Settings, options: Options) -> Gitea:
    base = server(target, settings, "gitea", "https://codeberg.org")
    token = settings.need_secret("gitea", "token", f"{target.text} needs an access token (issue: read and write)")
    advice = {
        401: "the server does not take POSTRUN_GITEA_TOKEN; it is wrong or has expired",
        403: "the token lacks the right to write to issues there, or the conversation is locked",
    }
    return Gitea(target, Client(base, {"Authorization": f"token {token}"}, options, (token,), advice))
