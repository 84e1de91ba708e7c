"""Jira, Cloud and Data Center: REST API version 2, whose comments are wiki markup."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import UsageError
from .http import Client, HttpError, Options, Upload, multipart
from .markup import Renderer, jira
from .message import FileLink
from .settings import Settings
from .target import Target
from .tracker import PAGES, Attached, Comment, NewTicket

_PAGE: Final = 100


@dataclass
class Jira:
    target: Target
    client: Client
    markup: Renderer = jira
    comment_limit: int | None = 32_767
    title_limit: int = 255
    takes_files: bool = True
    no_files: str = ""
    _me: str | None = field(default=None, repr=False)

    @property
    def comment_path(self) -> str:
        return f"{self._issue}/comment"

    @property
    def _issue(self) -> str:
        return f"/rest/api/2/issue/{self.target.ticket}"

    def check(self) -> None:
        self.client.json("GET", self._issue, query={"fields": "summary"})
        self._me = _person(self.client.json("GET", "/rest/api/2/myself"))

    def comments(self) -> list[Comment]:
        found: list[Comment] = []
        for _ in range(PAGES):
            page = self.client.json("GET", self.comment_path, query={"startAt": len(found), "maxResults": _PAGE, "orderBy": "created"})
            new = page.get("comments", [])
            found += [Comment(str(one["id"]), one.get("body") or "", self._mine(one.get("author"))) for one in new]
            if not new or len(found) >= page.get("total", 0):
                break
        return found

    def _mine(self, author: Any) -> bool | None:
        person = _person(author)
        return None if person is None or self._me is None else person == self._me

    def add(self, body: str) -> str | None:
        return str(self.client.json("POST", self.comment_path, value={"body": body})["id"])

    def change(self, comment: Comment, body: str) -> None:
        self.client.json("PUT", f"{self.comment_path}/{comment.id}", value={"body": body})

    def remove(self, comment: Comment) -> None:
        self.client.json("DELETE", f"{self.comment_path}/{comment.id}")

    def upload_limit(self, largest: int) -> int | None:
        meta = self.client.json("GET", "/rest/api/2/attachment/meta")
        if not meta.get("enabled", True):
            return 0
        limit = meta.get("uploadLimit")
        return limit if isinstance(limit, int) else None

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        path = f"{self._issue}/attachments"
        made = self.client.json("POST", path, body=multipart([], [("file", file)]), headers={"X-Atlassian-Token": "no-check"})
        return FileLink(file.name), str(made[0]["id"])

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        issue = self.client.json("GET", self._issue, query={"fields": "attachment"})
        files = (issue.get("fields") or {}).get("attachment") or []
        return [
            Attached(str(one["id"]), name) for one in files if one.get("filename") == name and self._mine(one.get("author")) is not False
        ]

    def discard(self, file: Attached) -> None:
        self.client.json("DELETE", f"/rest/api/2/attachment/{file.id}")

    def find(self, mark: str) -> str | None:
        query = {
            "jql": f'project = "{self.target.project}" AND labels = "{_label(mark)}" AND statusCategory != Done ORDER BY created ASC',
            "maxResults": 1,
            "fields": "key",
        }
        try:
            found = self.client.json("GET", "/rest/api/2/search/jql", query=query)
        except HttpError as error:  # Data Center has the older place alone
            if error.status not in (404, 405):
                raise
            found = self.client.json("GET", "/rest/api/2/search", query=query)
        issues = found.get("issues") or []
        return str(issues[0]["key"]) if issues else None

    def open(self, ticket: NewTicket) -> str:
        fields = {
            "project": {"key": self.target.project},
            "summary": ticket.title,
            "description": ticket.body,
            "issuetype": {"name": ticket.issue_type or "Task"},
            "labels": [_label(ticket.mark), *ticket.labels],
        }
        return str(self.client.json("POST", "/rest/api/2/issue", value={"fields": fields})["key"])


def _label(mark: str) -> str:
    return mark.replace(":", "-")


def _person(value: Any) -> str | None:
    """Cloud has accountId, Data Center key and name."""
    return next((str(value[name]) for name in ("accountId", "key", "name") if value.get(name)), None) if isinstance(value, dict) else None


def tracker(target: Target, settings: Settings, options: Options) -> Jira:
    base = server(target, settings, "jira", "https://acme.atlassian.net")
    token = settings.need_secret("jira", "token", f"{target.text} needs a token of Jira")
    user = settings.get("jira", "user")
    login = base64.b64encode(f"{user}:{token}".encode()).decode()
    advice = {
        401: "Jira takes neither user nor token: on Cloud set POSTRUN_JIRA_USER (your e-mail) and POSTRUN_JIRA_TOKEN (an API token), on "
        "Data Center POSTRUN_JIRA_TOKEN alone (a personal access token)"
    }
    headers = {"Authorization": f"Basic {login}" if user else f"Bearer {token}"}
    return Jira(target, Client(base, headers, options, (token, login), advice))


def server(target: Target, settings: Settings, section: str, example: str) -> str:
    """The address of the server: of the target, else of the settings. Where both name one, it is the same: the token is for that one."""
    from urllib.parse import urlsplit

    configured = settings.get(section, "url")
    if target.url is None:
        if configured is None:
            settings.need(section, "url", f"{target.text} does not say which server (such as {example})")
            raise AssertionError
        return configured
    if configured is not None:
        ours, theirs = urlsplit(configured), urlsplit(target.url)
        api = {"api.github.com": "github.com"}.get(ours.hostname or "", ours.hostname)
        if (api, ours.port) != (theirs.hostname, theirs.port):
            raise UsageError(
                f"{target.text} is on another server than POSTRUN_{section.upper()}_URL ({configured}), which the "
                "token is for; name one of the two"
            )
        return configured
    return target.url
