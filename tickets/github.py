"""GitHub, issues and pull requests. Its API attaches no files: they can become assets of a release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit

from .http import Body, Client, HttpError, Options, TicketError, Upload
from .jira import server
from .markup import Renderer, markdown
from .message import FileLink
from .settings import Settings
from .target import Target
from .tracker import PAGES, Attached, Comment, NewTicket, holds

_PAGE: Final = 100
_ASSET_LIMIT: Final = (2 << 30) - 1


@dataclass
class GitHub:
    target: Target
    client: Client
    markup: Renderer = markdown
    release: str | None = None
    comment_limit: int | None = 65_536
    title_limit: int = 256
    no_files: str = "GitHub takes no files with a comment; --github-release TAG puts them there, --link URL names where they are"
    _me: str | None = None
    _assets: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def takes_files(self) -> bool:
        return self.release is not None

    @property
    def _repository(self) -> str:
        return f"/repos/{self.target.project}"

    @property
    def comment_path(self) -> str:
        return f"{self._repository}/issues/{self.target.ticket}/comments"

    def check(self) -> None:
        self.client.json("GET", f"{self._repository}/issues/{self.target.ticket}")
        try:
            self._me = self.client.json("GET", "/user").get("login")
        except HttpError:  # a token of an app or a workflow has no user
            self._me = None

    def _pages(self, path: str, query: dict[str, Any]) -> list[Any]:
        found: list[Any] = []
        for page in range(1, PAGES + 1):
            new = self.client.json("GET", path, query={**query, **self._paging(page)}) or []
            found += new
            if len(new) < self._page_size:
                break
        return found

    _page_size: int = _PAGE

    def _paging(self, page: int) -> dict[str, Any]:
        return {"per_page": self._page_size, "page": page}

    def comments(self) -> list[Comment]:
        return [Comment(str(one["id"]), one.get("body") or "", self._mine(one.get("user"))) for one in self._pages(self.comment_path, {})]

    def _mine(self, author: Any) -> bool | None:
        return None if self._me is None or not author else author.get("login") == self._me

    def add(self, body: str) -> str | None:
        return str(self.client.json("POST", self.comment_path, value={"body": body})["id"])

    def change(self, comment: Comment, body: str) -> None:
        self.client.json("PATCH", f"{self._repository}/issues/comments/{comment.id}", value={"body": body}, retry=True)

    def remove(self, comment: Comment) -> None:
        self.client.json("DELETE", f"{self._repository}/issues/comments/{comment.id}")

    def upload_limit(self, largest: int) -> int | None:
        return _ASSET_LIMIT

    def _release(self) -> Any:
        try:
            return self.client.json("GET", f"{self._repository}/releases/tags/{quote(self.release or '', safe='')}")
        except HttpError as error:
            if error.status == 404:
                raise HttpError(
                    f"{self.target.project} has no release {self.release!r} that the token may see; create it, or "
                    "use another --github-release",
                    404,
                ) from None
            raise

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        """An asset's name is unique: the older one goes first."""
        release = self._release()
        for asset in release.get("assets") or []:
            if asset.get("name") == file.name:
                self._gone(str(asset["id"]))
        place = str(release["upload_url"]).partition("{")[0]
        own, theirs = urlsplit(self.client.base).hostname, urlsplit(place)
        known = theirs.hostname == own or (own == "api.github.com" and theirs.hostname == "uploads.github.com")
        if not known or theirs.scheme != urlsplit(self.client.base).scheme:
            raise TicketError(f"{self.client.base} names {theirs.hostname} for uploads, which is not GitHub's; nothing was sent there")
        made = self.client.json("POST", place, body=Body(file.content_type, file.read()), query={"name": file.name})
        return FileLink(file.name, str(made["browser_download_url"])), str(made["id"])

    def _gone(self, asset: str) -> None:
        try:
            self.client.json("DELETE", f"{self._repository}/releases/assets/{asset}")
        except HttpError as error:
            if error.status != 404:
                raise

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        return []

    def discard(self, file: Attached) -> None:
        return None

    def find(self, mark: str) -> str | None:
        issues = self._pages(f"{self._repository}/issues", {"state": "open", "sort": "created", "direction": "asc"})
        return next((str(one["number"]) for one in issues if "pull_request" not in one and holds(one.get("body") or "", mark)), None)

    def open(self, ticket: NewTicket) -> str:
        value: dict[str, Any] = {"title": ticket.title, "body": ticket.body}
        if ticket.labels:
            value["labels"] = list(ticket.labels)
        return str(self.client.json("POST", f"{self._repository}/issues", value=value)["number"])


def tracker(target: Target, settings: Settings, options: Options, release: str | None = None) -> GitHub:
    base = _api(target, settings)
    token = settings.need_secret("github", "token", f"{target.text} needs a token of GitHub (Issues: read and write)")
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    advice = {
        401: "GitHub does not take POSTRUN_GITHUB_TOKEN; it is wrong or has expired",
        403: "the token lacks the right to write to issues of this repository, or the conversation is locked",
        404: "there is no such repository or issue, or the token may not see it (a private one is 404, too)",
        410: "issues are turned off in this repository, or this one was deleted",
    }
    return GitHub(target, Client(base, headers, options, (token,), advice), release=release)


def _api(target: Target, settings: Settings) -> str:
    """api.github.com, or the API below a server of GitHub Enterprise. In a workflow the server of the workflow."""
    configured = settings.get("github", "url") or ""
    if target.url is None and not configured:
        return settings.environment.get("GITHUB_API_URL") or "https://api.github.com"
    base = server(target, settings, "github", "https://github.com").rstrip("/")
    parts = urlsplit(base)
    if parts.hostname in ("github.com", "www.github.com"):
        return "https://api.github.com"
    return base if parts.path.strip("/") or (parts.hostname or "").startswith("api.") else f"{base}/api/v3"
