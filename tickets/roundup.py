"""Roundup: messages and files of an issue, through its REST interface."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

from ..errors import UsageError
from .http import Client, HttpError, Options, Upload, json_body, multipart
from .jira import server
from .markup import Renderer, text
from .message import FileLink
from .settings import Settings
from .target import Target
from .tracker import Attached, Comment, NewTicket

_TRIES: Final = 5


@dataclass
class Roundup:
    """Its messages are plain text. ``target.project``: the class, such as issue."""

    target: Target
    client: Client
    markup: Renderer = text
    comment_limit: int | None = None
    title_limit: int = 255
    takes_files: bool = True
    no_files: str = ""
    login: str = ""
    _me: str | None = None

    @property
    def _issue(self) -> str:
        return f"/rest/data/{self.target.project}/{self.target.ticket}"

    @property
    def comment_path(self) -> str:
        return "/rest/data/msg"

    def _data(self, path: str, query: dict[str, Any] | None = None) -> Any:
        return self.client.json("GET", path, query=query)["data"]

    def check(self) -> None:
        self._data(self._issue)
        user = self._data("/rest/data/user", {"username": self.login, "@fields": "username"})
        named = [one for one in user["collection"] if one.get("username") == self.login]
        self._me = str(named[0]["id"]) if named else None

    def comments(self) -> list[Comment]:
        linked = self._data(self._issue, {"@verbose": "1"})["attributes"].get("messages") or []
        found = []
        for one in sorted(linked, key=lambda one: int(_id(one))):
            message = self._data(f"/rest/data/msg/{_id(one)}", {"@verbose": "1"})["attributes"]
            author = message.get("author")
            mine = None if self._me is None or author is None else _id(author) == self._me
            if mine is not False:
                found.append(Comment(_id(one), self._content("msg", _id(one)), mine))
        return found

    def _content(self, cls: str, number: str) -> str:
        value = self.client.json("GET", f"/rest/data/{cls}/{number}/content", query={"@verbose": "1"})["data"]["data"]
        return value if isinstance(value, str) else str(value.get("content", ""))

    def _patch(self, path: str, operation: str, value: dict[str, Any]) -> None:
        """With the object's ETag, as the server wants; anew where another one changed it meanwhile (412)."""
        for attempt in range(_TRIES):
            answer = self.client.send("GET", path)
            tag = answer.headers.get("ETag")
            headers = {"If-Match": tag} if tag else {}
            try:
                # With the ETag a second try changes nothing twice.
                self.client.send("PATCH", path, body=json_body({"@op": operation, **value}), headers=headers, retry=tag is not None)
                return
            except HttpError as error:
                if error.status != 412 or attempt == _TRIES - 1:
                    raise

    def add(self, body: str) -> str | None:
        made = self.client.json("POST", self.comment_path, value={"content": body, "author": self.login})
        number = str(made["data"]["id"])
        self._patch(self._issue, "add", {"messages": number})
        return number

    def change(self, comment: Comment, body: str) -> None:
        self._patch(f"/rest/data/msg/{comment.id}", "replace", {"content": body})

    def remove(self, comment: Comment) -> None:
        self._patch(self._issue, "remove", {"messages": comment.id})

    def upload_limit(self, largest: int) -> int | None:
        return None

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        path = "/rest/data/file"
        fields = [("name", file.name), ("type", file.content_type.partition(";")[0])]
        number = str(self.client.json("POST", path, body=multipart(fields, [("content", file)]))["data"]["id"])
        self._patch(self._issue, "add", {"files": number})
        return FileLink(file.name), number

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        linked = self._data(self._issue, {"@verbose": "1"})["attributes"].get("files") or []
        found = []
        for one in linked:
            file = self._data(f"/rest/data/file/{_id(one)}", {"@verbose": "1"})["attributes"]
            if file.get("name") == name:
                found.append(Attached(_id(one), name))
        return found

    def discard(self, file: Attached) -> None:
        """Off the issue; the file itself stays in the tracker's history."""
        self._patch(self._issue, "remove", {"files": file.id})

    def find(self, mark: str) -> str | None:
        raise UsageError(f"{self.target.text}: tickets are not opened in Roundup; name one, such as roundup:issue12")

    def open(self, ticket: NewTicket) -> str:
        raise UsageError(f"{self.target.text}: tickets are not opened in Roundup; name one, such as roundup:issue12")


def _id(value: Any) -> str:
    """The number of a linked object, however much the server tells of it."""
    return str(value["id"]) if isinstance(value, dict) else str(value)


def tracker(target: Target, settings: Settings, options: Options) -> Roundup:
    base = server(target, settings, "roundup", "https://bugs.example.org/tracker").rstrip("/")
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
        401: "Roundup takes neither POSTRUN_ROUNDUP_USER nor POSTRUN_ROUNDUP_PASSWORD",
        403: "the user may not do this there (it needs REST access and the right to edit)",
    }
    return Roundup(target, Client(base, headers, options, (password, login), advice), login=user)
