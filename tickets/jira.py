"""Jira, Cloud and Data Center: REST API version 2, whose comments are wiki markup."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from .http import Client, HttpError, Options, Upload, multipart
from .markup import JIRA, FileLink
from .settings import Settings
from .target import Target
from .tracker import Attached, Comment, NewTicket, Tracker


class Jira(Tracker):
    dialect = JIRA
    comment_limit = 32_767
    comment_name = "comment"

    @property
    def ticket_path(self) -> str:
        return f"/rest/api/2/issue/{self.target.ticket}"

    def check(self) -> None:
        self.client.json("GET", self.ticket_path, query={"fields": "summary"})
        self.me = _person(self.client.json("GET", "/rest/api/2/myself"))

    def comments(self) -> list[Comment]:
        items = self.items(self.comment_path, "comments", "startAt", "total", maxResults=self.page_size, orderBy="created")
        return [Comment(str(item["id"]), item.get("body") or "", self.mine(_person(item.get("author")))) for item in items]

    def upload_limit(self, largest: int) -> int | None:
        meta = self.client.json("GET", "/rest/api/2/attachment/meta")
        return meta.get("uploadLimit") if meta.get("enabled", True) else 0

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        headers = {"X-Atlassian-Token": "no-check"}
        uploaded = self.client.json("POST", f"{self.ticket_path}/attachments", body=multipart([], [("file", file)]), headers=headers)
        return FileLink(file.name), str(uploaded[0]["id"])

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        issue = self.client.json("GET", self.ticket_path, query={"fields": "attachment"})
        files = (issue.get("fields") or {}).get("attachment") or []
        return [
            Attached(str(file["id"]), name)
            for file in files
            if file.get("filename") == name and self.mine(_person(file.get("author"))) is not False
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
            page = self.client.json("GET", "/rest/api/2/search/jql", query=query)
        except HttpError as error:  # Data Center has the older path alone
            if error.status not in (404, 405):
                raise
            page = self.client.json("GET", "/rest/api/2/search", query=query)
        issues = page.get("issues") or []
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
    """Return the id of a user: Cloud has accountId, Data Center key and name."""
    return next((str(value[name]) for name in ("accountId", "key", "name") if value.get(name)), None) if isinstance(value, dict) else None


def tracker(target: Target, settings: Settings, options: Options) -> Jira:
    base = settings.server(target, "https://acme.atlassian.net")
    token = settings.need_secret("jira", "token", f"{target.text} needs a token of Jira")
    user = settings.get("jira", "user")
    login = base64.b64encode(f"{user}:{token}".encode()).decode()
    advice = {
        401: "Jira accepts neither user nor token: on Cloud set POSTRUN_JIRA_USER (your e-mail) and POSTRUN_JIRA_TOKEN (an API token), on "
        "Data Center POSTRUN_JIRA_TOKEN alone (a personal access token)"
    }
    headers = {"Authorization": f"Basic {login}" if user else f"Bearer {token}"}
    return Jira(target, Client(base, headers, options, (token, login), advice))
