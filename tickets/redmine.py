"""Redmine: notes in an issue's journal, written in Textile or, if the server is set so, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import UsageError
from .http import Body, Client, HttpError, LostAnswerError, Options, Upload
from .markup import MARKDOWN, TEXTILE, FileLink
from .settings import Settings
from .target import Target
from .tracker import Attached, Comment, NewTicket, Tracker, has_marker


class Redmine(Tracker):
    comment_limit = 65_535

    def __init__(self, target: Target, client: Client, markup: str) -> None:
        super().__init__(target, client)
        self.dialect = MARKDOWN if markup == "markdown" else TEXTILE
        self._waiting: list[dict[str, str]] = []  # files that are uploaded, and not yet on a ticket

    @property
    def ticket_path(self) -> str:
        return f"/issues/{self.target.ticket}.json"

    @property
    def comment_path(self) -> str:
        return self.ticket_path  # a comment is an update of the issue

    def check(self) -> None:
        self.client.json("GET", self.ticket_path)
        self.me = str(self.client.json("GET", "/users/current.json")["user"]["id"])

    def _included(self, name: str) -> list[Any]:
        return self.client.json("GET", self.ticket_path, query={"include": name})["issue"].get(name) or []

    def comments(self) -> list[Comment]:
        return [
            Comment(str(entry["id"]), entry["notes"], self.mine((entry.get("user") or {}).get("id")))
            for entry in self._included("journals")
            if entry.get("notes")
        ]

    def _update(self, value: dict[str, Any]) -> None:
        """Send a PUT that adds: it is not repeated blindly."""
        self.client.json("PUT", self.ticket_path, value={"issue": value}, retry=False)

    def add(self, body: str) -> str | None:
        before = {comment.id for comment in self.comments()}
        self._update({"notes": body, **({"uploads": self._waiting} if self._waiting else {})})
        self._waiting = []
        # The answer is empty. If several were written at once, ours is unknown.
        new = [comment.id for comment in self.comments() if comment.id not in before and comment.mine is not False]
        return new[0] if len(new) == 1 else None

    def change(self, comment: Comment, body: str) -> None:
        if self._waiting:
            try:
                self._update({"uploads": self._waiting})
            except LostAnswerError:
                if not all(self.attached(file["filename"], ()) for file in self._waiting):
                    raise
            self._waiting = []
        try:
            self._set_note(comment, body)
        except HttpError as error:
            if error.status not in (404, 405):
                raise
            self._update({"notes": body})  # Redmine before 5.0 cannot change a note: the newer one comes below

    def remove(self, comment: Comment) -> None:
        self._set_note(comment, "")  # a note without text is removed

    def _set_note(self, comment: Comment, body: str) -> None:
        self.client.json("PUT", f"/journals/{comment.id}.json", value={"journal": {"notes": body}})

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        body = Body("application/octet-stream", file.read())
        try:
            uploaded = self.client.json("POST", "/uploads.json", body=body, query={"filename": file.name}, retry=True)["upload"]
        except HttpError as error:
            if error.status == 422 and ("size" in error.words.lower() or "large" in error.words.lower()):
                raise HttpError(str(error), 413, error.words) from None
            raise
        content_type = file.content_type.partition(";")[0]
        self._waiting.append({"token": uploaded["token"], "filename": file.name, "content_type": content_type})
        return FileLink(file.name), str(uploaded["id"]) if uploaded.get("id") else None

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        return [
            Attached(str(file["id"]), name)
            for file in self._included("attachments")
            if file.get("filename") == name and self.mine((file.get("author") or {}).get("id")) is not False
        ]

    def discard(self, file: Attached) -> None:
        self.discard_at(f"/attachments/{file.id}.json")

    def find(self, mark: str) -> str | None:
        query = {"project_id": self.target.project, "status_id": "open", "sort": "id", "limit": self.page_size}
        issues = self.items("/issues.json", "issues", "offset", "total_count", **query)
        return next((str(issue["id"]) for issue in issues if has_marker(issue.get("description") or "", mark)), None)

    def open(self, ticket: NewTicket) -> str:
        value: dict[str, Any] = {"project_id": self.target.project, "subject": ticket.title, "description": ticket.body}
        if ticket.issue_type:
            project = self.client.json("GET", f"/projects/{self.target.project}.json", query={"include": "trackers"})["project"]
            ids = {tracker["name"].lower(): tracker["id"] for tracker in project.get("trackers", [])}
            if ticket.issue_type.lower() not in ids:
                raise UsageError(f"{self.target.text} has no tracker {ticket.issue_type!r}; it has {', '.join(ids) or 'none'}")
            value["tracker_id"] = ids[ticket.issue_type.lower()]
        return str(self.client.json("POST", "/issues.json", value={"issue": value})["issue"]["id"])


def tracker(target: Target, settings: Settings, options: Options) -> Redmine:
    base = settings.server(target, "https://redmine.example.org")
    token = settings.need_secret("redmine", "token", f"{target.text} needs an API key of Redmine (My account, API access key)")
    markup = (settings.get("redmine", "markup", "textile") or "").lower()
    if markup not in ("textile", "markdown"):
        raise UsageError(f"POSTRUN_REDMINE_MARKUP is {markup!r}; write textile or markdown, as the server's text formatting is set")
    advice = {
        401: "Redmine does not accept POSTRUN_REDMINE_TOKEN (My account, API access key)",
        403: "the key's user may not do this there, or the REST API is turned off (Administration, Settings, API)",
    }
    return Redmine(target, Client(base, {"X-Redmine-API-Key": token}, options, (token,), advice), markup)
