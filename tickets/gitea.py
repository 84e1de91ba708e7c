"""Gitea and Forgejo: like GitHub's API, and it accepts files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .github import GitHub
from .http import Client, HttpError, Options, Upload, multipart
from .markup import FileLink
from .settings import Settings
from .target import Target
from .tracker import Attached, Comment, NewTicket


class Gitea(GitHub):
    comment_limit = 65_535
    title_limit = 255
    page_size = 50  # the servers' default limit
    user_path = "/api/v1/user"

    @property
    def _repository(self) -> str:
        return f"/api/v1/repos/{self.target.project}"

    def page(self, number: int) -> dict[str, Any]:
        return {"limit": self.page_size, "page": number}

    def comments(self) -> list[Comment]:
        """Return all comments of a ticket, which come in one answer."""
        items = self.client.json("GET", self.comment_path) or []
        return [Comment(str(item["id"]), item.get("body") or "", self.mine((item.get("user") or {}).get("login"))) for item in items]

    def upload_limit(self, largest: int) -> int | None:
        try:
            meta = self.client.json("GET", "/api/v1/settings/attachment")
        except HttpError:
            return None
        limit = meta.get("max_size") if meta.get("enabled", True) else 0
        return limit << 20 if isinstance(limit, int) else None

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        body = multipart([], [("attachment", file)])
        asset = self.client.json("POST", f"{self.ticket_path}/assets", body=body, query={"name": file.name})
        return FileLink(file.name, str(asset["browser_download_url"])), str(asset["id"])

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        files = self.client.json("GET", f"{self.ticket_path}/assets") or []
        return [Attached(str(file["id"]), name) for file in files if file.get("name") == name]

    def discard(self, file: Attached) -> None:
        self.client.json("DELETE", f"{self.ticket_path}/assets/{file.id}")

    def open(self, ticket: NewTicket) -> str:
        """Open a ticket without labels, which are numbers there."""
        return super().open(replace(ticket, labels=()))


def tracker(target: Target, settings: Settings, options: Options) -> Gitea:
    base = settings.server(target, "https://codeberg.org")
    token = settings.need_secret("gitea", "token", f"{target.text} needs an access token (issue: read and write)")
    advice = {
        401: "the server does not accept POSTRUN_GITEA_TOKEN; it is wrong or has expired",
        403: "the token lacks the right to write to issues there, or the conversation is locked",
    }
    return Gitea(target, Client(base, {"Authorization": f"token {token}"}, options, (token,), advice))
