"""Redmine: notes in an issue's journal, written in Textile or, where the server is set so, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import UsageError
from .http import Body, Client, HttpError, LostAnswerError, Options, Upload
from .jira import server
from .markup import Renderer, markdown, textile
from .message import FileLink
from .settings import Settings
from .target import Target
from .tracker import PAGES, Attached, Comment, NewTicket, holds

_PAGE: Final = 100


@dataclass
class Redmine:
    target: Target
    client: Client
    markup: Renderer = textile
    comment_limit: int | None = 65_535
    title_limit: int = 255
    takes_files: bool = True
    no_files: str = ""
    _me: int | None = None
    _waiting: list[dict[str, str]] = field(default_factory=list, repr=False)  # files that are uploaded, and on no ticket yet

    @property
    def _issue(self) -> str:
        return f"/issues/{self.target.ticket}.json"

    @property
    def comment_path(self) -> str:
        return self._issue

    def check(self) -> None:
        self.client.json("GET", self._issue)
        self._me = self.client.json("GET", "/users/current.json")["user"]["id"]

    def comments(self) -> list[Comment]:
        issue = self.client.json("GET", self._issue, query={"include": "journals"})["issue"]
        return [Comment(str(one["id"]), one["notes"], self._mine(one.get("user"))) for one in issue.get("journals", []) if one.get("notes")]

    def _mine(self, author: Any) -> bool | None:
        return None if self._me is None or not author else author.get("id") == self._me

    def _update(self, value: dict[str, Any]) -> None:
        """A PUT that adds: it is not repeated blindly."""
        self.client.json("PUT", self._issue, value={"issue": value}, retry=False)

    def add(self, body: str) -> str | None:
        before = {one.id for one in self.comments()}
        self._update({"notes": body, **({"uploads": self._waiting} if self._waiting else {})})
        self._waiting = []
        # The answer is empty. Where several were written at once, it is not known which is ours.
        new = [one.id for one in self.comments() if one.id not in before and one.mine is not False]
        return new[0] if len(new) == 1 else None

    def change(self, comment: Comment, body: str) -> None:
        if self._waiting:
            try:
                self._update({"uploads": self._waiting})
            except LostAnswerError:
                names = {one["filename"] for one in self._waiting}
                if not all(self.attached(name, ()) for name in names):
                    raise
            self._waiting = []
        try:
            self.client.json("PUT", f"/journals/{comment.id}.json", value={"journal": {"notes": body}})
        except HttpError as error:
            if error.status not in (404, 405):
                raise
            self._update({"notes": body})  # before Redmine 5.0 a note cannot be changed: the newer one stands below

    def remove(self, comment: Comment) -> None:
        """A note without text is removed."""
        self.client.json("PUT", f"/journals/{comment.id}.json", value={"journal": {"notes": ""}})

    def upload_limit(self, largest: int) -> int | None:
        return None

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        try:
            body = Body("application/octet-stream", file.read())
            made = self.client.json("POST", "/uploads.json", body=body, query={"filename": file.name}, retry=True)["upload"]
        except HttpError as error:
            if error.status == 422 and ("size" in error.words.lower() or "large" in error.words.lower()):
                raise HttpError(str(error), 413, error.words) from None
            raise
        content_type = file.content_type.partition(";")[0]
        self._waiting.append({"token": made["token"], "filename": file.name, "content_type": content_type})
        return FileLink(file.name), str(made["id"]) if made.get("id") else None

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        issue = self.client.json("GET", self._issue, query={"include": "attachments"})["issue"]
        files = issue.get("attachments", [])
        return [
            Attached(str(one["id"]), name) for one in files if one.get("filename") == name and self._mine(one.get("author")) is not False
        ]

    def discard(self, file: Attached) -> None:
        try:
            self.client.json("DELETE", f"/attachments/{file.id}.json")
        except HttpError as error:
            if error.status != 404:
                raise

    def find(self, mark: str) -> str | None:
        found = 0
        for _ in range(PAGES):
            query = {"project_id": self.target.project, "status_id": "open", "sort": "id", "limit": _PAGE, "offset": found}
            page = self.client.json("GET", "/issues.json", query=query)
            issues = page.get("issues") or []
            for one in issues:
                if holds(one.get("description") or "", mark):
                    return str(one["id"])
            found += len(issues)
            if not issues or found >= page.get("total_count", 0):
                break
        return None

    def open(self, ticket: NewTicket) -> str:
        value: dict[str, Any] = {"project_id": self.target.project, "subject": ticket.title, "description": ticket.body}
        if ticket.issue_type:
            project = self.client.json("GET", f"/projects/{self.target.project}.json", query={"include": "trackers"})["project"]
            known = {one["name"].lower(): one["id"] for one in project.get("trackers", [])}
            if ticket.issue_type.lower() not in known:
                raise UsageError(f"{self.target.text} has no tracker {ticket.issue_type!r}; it has {', '.join(known) or 'none'}")
            value["tracker_id"] = known[ticket.issue_type.lower()]
        return str(self.client.json("POST", "/issues.json", value={"issue": value})["issue"]["id"])


def tracker(target: Target, settings: Settings, options: Options) -> Redmine:
    base = server(target, settings, "redmine", "https://redmine.example.org")
    token = settings.need_secret("redmine", "token", f"{target.text} needs an API key of Redmine (My account, API access key)")
    written = (settings.get("redmine", "markup", "textile") or "").lower()
    if written not in ("textile", "markdown"):
        raise UsageError(f"POSTRUN_REDMINE_MARKUP is {written!r}; write textile or markdown, as the server's text formatting is set")
    advice = {
        401: "Redmine does not take POSTRUN_REDMINE_TOKEN (My account, API access key)",
        403: "the key's user may not do this there, or the REST API is turned off (Administration, Settings, API)",
    }
    client = Client(base, {"X-Redmine-API-Key": token}, options, (token,), advice)
    return Redmine(target, client, markdown if written == "markdown" else textile)
