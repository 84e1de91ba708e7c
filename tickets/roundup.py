"""Roundup: messages and files of an issue, through its REST interface."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

from ..errors import UsageError
from .http import Client, HttpError, Options, Upload, json_body, multipart
from .markup import TEXT, FileLink
from .settings import Settings
from .target import Target
from .tracker import Attached, Comment, NewTicket, Tracker

_TRIES: Final = 5


class Roundup(Tracker):
    """Its messages are plain text. ``target.project``: the class, such as issue."""

    dialect = TEXT

    def __init__(self, target: Target, client: Client, login: str) -> None:
        super().__init__(target, client)
        self.login = login

    @property
    def ticket_path(self) -> str:
        return f"/rest/data/{self.target.project}/{self.target.ticket}"

    @property
    def comment_path(self) -> str:
        return "/rest/data/msg"

    def _data(self, path: str, **query: str) -> Any:
        return self.client.json("GET", path, query=query)["data"]

    def _attributes(self, path: str) -> dict[str, Any]:
        attributes: dict[str, Any] = self._data(path, **{"@verbose": "1"})["attributes"]
        return attributes

    def check(self) -> None:
        self._data(self.ticket_path)
        users = self._data("/rest/data/user", **{"username": self.login, "@fields": "username"})["collection"]
        self.me = next((str(user["id"]) for user in users if user.get("username") == self.login), None)

    def comments(self) -> list[Comment]:
        comments = []
        for number in sorted(map(_id, self._attributes(self.ticket_path).get("messages") or []), key=int):
            author = self._attributes(f"/rest/data/msg/{number}").get("author")
            mine = self.mine(None if author is None else _id(author))
            if mine is not False:
                comments.append(Comment(number, self._content(number), mine))
        return comments

    def _content(self, number: str) -> str:
        value = self._data(f"/rest/data/msg/{number}/content", **{"@verbose": "1"})["data"]
        return value if isinstance(value, str) else str(value.get("content", ""))

    def _patch(self, path: str, operation: str, value: dict[str, Any]) -> None:
        """Change an object with its ETag; try again after a conflict (412)."""
        for attempt in range(_TRIES):
            tag = self.client.send("GET", path).headers.get("ETag")
            headers = {"If-Match": tag} if tag else {}
            try:
                # With the ETag a second try changes nothing twice.
                self.client.send("PATCH", path, body=json_body({"@op": operation, **value}), headers=headers, retry=tag is not None)
                return
            except HttpError as error:
                if error.status != 412 or attempt == _TRIES - 1:
                    raise

    def add(self, body: str) -> str | None:
        answer = self.client.json("POST", self.comment_path, value={"content": body, "author": self.login})
        number = str(answer["data"]["id"])
        self._patch(self.ticket_path, "add", {"messages": number})
        return number

    def change(self, comment: Comment, body: str) -> None:
        self._patch(f"/rest/data/msg/{comment.id}", "replace", {"content": body})

    def remove(self, comment: Comment) -> None:
        self._patch(self.ticket_path, "remove", {"messages": comment.id})

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        fields = [("name", file.name), ("type", file.content_type.partition(";")[0])]
        answer = self.client.json("POST", "/rest/data/file", body=multipart(fields, [("content", file)]))
        number = str(answer["data"]["id"])
        self._patch(self.ticket_path, "add", {"files": number})
        return FileLink(file.name), number

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        numbers = map(_id, self._attributes(self.ticket_path).get("files") or [])
        return [Attached(number, name) for number in numbers if self._attributes(f"/rest/data/file/{number}").get("name") == name]

    def discard(self, file: Attached) -> None:
        """Take the file off the issue; it stays in the tracker's history."""
        self._patch(self.ticket_path, "remove", {"files": file.id})

    def find(self, mark: str) -> str | None:
        raise UsageError(f"{self.target.text}: tickets are not opened in Roundup; name one, such as roundup:issue12")

    def open(self, ticket: NewTicket) -> str:
        raise UsageError(f"{self.target.text}: tickets are not opened in Roundup; name one, such as roundup:issue12")


def _id(value: Any) -> str:
    """Return the number of a linked object, with or without its attributes."""
    return str(value["id"]) if isinstance(value, dict) else str(value)


def tracker(target: Target, settings: Settings, options: Options) -> Roundup:
    base = settings.server(target, "https://bugs.example.org/tracker").rstrip("/")
    user = settings.need("roundup", "user", f"{target.text} needs a user of Roundup")
    password = settings.need_secret("roundup", "password", f"{target.text} needs the password of that user")
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    parts = urlsplit(base)
    headers = {
        "Authorization": f"Basic {login}",
        "X-Requested-With": "rest",  # its guard against requests that a web page makes
        "Origin": f"{parts.scheme}://{parts.netloc}",
        "Referer": quote(base + "/", safe=":/[]%"),
    }
    advice = {
        401: "Roundup accepts neither POSTRUN_ROUNDUP_USER nor POSTRUN_ROUNDUP_PASSWORD",
        403: "the user may not do this there (it needs REST access and the right to edit)",
    }
    return Roundup(target, Client(base, headers, options, (password, login), advice), user)
