"""GitHub, issues and pull requests. Its API attaches no files: they can become assets of a release."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

from .http import Body, Client, HttpError, Options, TicketError, Upload
from .markup import FileLink
from .settings import Settings
from .target import Target
from .tracker import Attached, Comment, NewTicket, Tracker, has_marker

_ASSET_LIMIT: Final = (2 << 30) - 1  # bytes


class GitHub(Tracker):
    comment_limit = 65_536
    title_limit = 256
    user_path = "/user"
    user_key = "login"

    @property
    def _repository(self) -> str:
        return f"/repos/{self.target.project}"

    @property
    def ticket_path(self) -> str:
        return f"{self._repository}/issues/{self.target.ticket}"

    def comments(self) -> list[Comment]:
        return [
            Comment(str(item["id"]), item.get("body") or "", self.mine((item.get("user") or {}).get("login")))
            for item in self.pages(self.comment_path)
        ]

    def change(self, comment: Comment, body: str) -> None:
        self.client.json("PATCH", f"{self._repository}/issues/comments/{comment.id}", value={"body": body}, retry=True)

    def remove(self, comment: Comment) -> None:
        self.client.json("DELETE", f"{self._repository}/issues/comments/{comment.id}")

    def upload_limit(self, largest: int) -> int | None:
        return _ASSET_LIMIT

    def upload(self, file: Upload) -> tuple[FileLink, str | None]:
        """Replace the release's asset of that name: names are unique."""
        tag = self.client.options.release or ""
        try:
            release = self.client.json("GET", f"{self._repository}/releases/tags/{quote(tag, safe='')}")
        except HttpError as error:
            if error.status != 404:
                raise
            problem = f"{self.target.project} has no release {tag!r} that the token may see; create it, or use another --github-release"
            raise HttpError(problem, 404) from None
        for asset in release.get("assets") or []:
            if asset.get("name") == file.name:
                self.discard_at(f"{self._repository}/releases/assets/{asset['id']}")
        url = str(release["upload_url"]).partition("{")[0]
        api, uploads = urlsplit(self.client.base), urlsplit(url)
        known = uploads.hostname == api.hostname or (api.hostname == "api.github.com" and uploads.hostname == "uploads.github.com")
        if not known or uploads.scheme != api.scheme:
            raise TicketError(f"{self.client.base} names {uploads.hostname} for uploads, which is not GitHub's; nothing was sent there")
        uploaded = self.client.json("POST", url, body=Body(file.content_type, file.read()), query={"name": file.name})
        return FileLink(file.name, str(uploaded["browser_download_url"])), str(uploaded["id"])

    def attached(self, name: str, before: Sequence[Comment]) -> list[Attached]:
        return []

    def discard(self, file: Attached) -> None:
        return None

    def find(self, mark: str) -> str | None:
        issues = self.pages(f"{self._repository}/issues", state="open", sort="created", direction="asc")
        return next(
            (str(issue["number"]) for issue in issues if "pull_request" not in issue and has_marker(issue.get("body") or "", mark)), None
        )

    def open(self, ticket: NewTicket) -> str:
        value: dict[str, Any] = {"title": ticket.title, "body": ticket.body}
        if ticket.labels:
            value["labels"] = list(ticket.labels)
        return str(self.client.json("POST", f"{self._repository}/issues", value=value)["number"])


def tracker(target: Target, settings: Settings, options: Options) -> GitHub:
    base = _api(target, settings)
    token = settings.need_secret("github", "token", f"{target.text} needs a token of GitHub (Issues: read and write)")
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    advice = {
        401: "GitHub does not accept POSTRUN_GITHUB_TOKEN; it is wrong or has expired",
        403: "the token lacks the right to write to issues of this repository, or the conversation is locked",
        404: "there is no such repository or issue, or the token may not see it (a private one is 404, too)",
        410: "issues are turned off in this repository, or this one was deleted",
    }
    github = GitHub(target, Client(base, headers, options, (token,), advice))
    if options.release is None:
        github.no_files = "GitHub accepts no files with a comment; --github-release TAG puts them there, --link URL names where they are"
    return github


def _api(target: Target, settings: Settings) -> str:
    """Return the API of github.com, an Enterprise server, or the workflow."""
    if target.url is None and not settings.get("github", "url"):
        return settings.environment.get("GITHUB_API_URL") or "https://api.github.com"
    base = settings.server(target, "https://github.com").rstrip("/")
    parts = urlsplit(base)
    if parts.hostname in ("github.com", "www.github.com"):
        return "https://api.github.com"
    return base if parts.path.strip("/") or (parts.hostname or "").startswith("api.") else f"{base}/api/v3"
