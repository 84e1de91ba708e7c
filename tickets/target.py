"""Ticket addresses: a word such as ``jira:PROJ-12`` or ``gitlab:group/project#7`` -> the ticket and its server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, cast
from urllib.parse import unquote, urlsplit

from ..errors import UsageError

Kind = Literal["jira", "gitlab", "github", "gitea", "redmine", "roundup", "mail", "web", "slack", "teams", "webhook"]
ACCEPTED: Final = (
    "jira:PROJ-12, gitlab:group/project#7, gitlab:group/project!7 (a merge request), github:owner/repo#7, gitea:owner/repo#7, redmine:123, "
    "roundup:issue12, mailto:team@example.org, slack, teams, webhook (each also with a name, slack:perf), https://..."
)

_CHANNELS: Final[tuple[Kind, ...]] = ("slack", "teams", "webhook")
_HOOKS: Final = re.compile(r"(?:(?P<slack>hooks\.slack\.com)|.*\.(?:webhook\.office\.com|logic\.azure\.com|api\.powerplatform\.com))\Z")
_SEGMENT: Final = r"(?!\.{1,2}(?:[/#!]|\Z))[A-Za-z0-9_.][A-Za-z0-9_.-]*"
_NUMBER: Final = r"(?P<number>[1-9][0-9]*)"
_REPOSITORY: Final = re.compile(rf"(?P<project>{_SEGMENT}/{_SEGMENT})(?:#{_NUMBER})?\Z")
_TICKETS: Final[dict[Kind, re.Pattern[str]]] = {
    "jira": re.compile(rf"(?P<project>[A-Z][A-Z0-9_]*)(?:-{_NUMBER})?\Z"),
    "gitlab": re.compile(rf"(?P<project>{_SEGMENT}(?:/{_SEGMENT})+)(?:(?P<sign>[#!]){_NUMBER})?\Z"),
    "github": _REPOSITORY,
    "gitea": _REPOSITORY,
    "redmine": re.compile(rf"(?:#?{_NUMBER}|(?P<project>[a-z][a-z0-9_-]*))\Z"),
    "roundup": re.compile(rf"(?P<project>[a-z_]*[a-z_]){_NUMBER}\Z"),
}
_ADDRESS: Final = re.compile(r"[^\s@<>,;:\"()\[\]\\]+@[^\s@<>,;:\"()\[\]\\/]+\Z")
# The page of a ticket in a browser, below the server's address.
_PAGES: Final = {
    "jira": re.compile(r"(?P<base>.*)/browse/(?P<rest>[A-Z][A-Z0-9_]*-[0-9]+)/?\Z"),
    "gitlab": re.compile(r"(?P<base>)/(?P<project>.+?)/(?:-/)?(?P<kind>issues|merge_requests|work_items)/(?P<number>[0-9]+)/?\Z"),
    "github": re.compile(r"(?P<base>)/(?P<project>[^/]+/[^/]+)/(?:issues|pull)/(?P<number>[0-9]+)/?\Z"),
    "gitea": re.compile(r"(?P<base>.*?)/(?P<project>[^/]+/[^/]+)/(?:issues|pulls)/(?P<number>[0-9]+)/?\Z"),
    "redmine": re.compile(r"(?P<base>.*)/issues/(?P<rest>[0-9]+)/?\Z"),
    "roundup": re.compile(r"(?P<base>.*)/(?P<rest>[a-z_]+[0-9]+)/?\Z"),
}


@dataclass(frozen=True, slots=True)
class Target:
    """``ticket``: the key or number; None if only ``project`` is named, in which a new ticket can be opened. ``project`` of a webhook: its
    name in the settings, None for the one without a name. ``url``: of the server, if the word names it. ``addresses``: of mail. ``text``:
    as the user wrote it."""

    kind: Kind
    text: str
    ticket: str | None = None
    project: str | None = None
    merge_request: bool = False
    url: str | None = None
    addresses: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """Return a text that is equal for targets on the same server."""
        return f"{self.kind} {self.url}" if self.kind in _TICKETS else self.text


def parse(text: str, *, projects: bool = False) -> Target:
    """Parse a word. ``projects``: also without a ticket. Raise UsageError."""
    word = text.strip()
    scheme, colon, rest = word.partition(":")
    scheme = scheme.lower()
    if scheme in _CHANNELS:
        return _channel(scheme, rest)
    if scheme in ("https", "http") and colon:
        if hook := _HOOKS.match(urlsplit(_server(word, word)).hostname or ""):
            raise _secret_address("slack" if hook["slack"] else "teams")
        # A query may contain a secret: it is in no message.
        return Target("web", word.partition("?")[0], url=_server(word, word).partition("#")[0])
    if scheme == "mailto":
        return _mail(word, rest)
    if scheme not in _PAGES or not colon:
        raise UsageError(f"{text!r} names no ticket; accepted are {ACCEPTED}")
    url = None
    if rest.lower().startswith(("https://", "http://")):
        url, rest = _page(scheme, word, rest)
    target = _named(cast("Kind", scheme), word, rest, url)
    if target.ticket is None and not projects:
        raise UsageError(f"{text!r} names a project, and no ticket in it; write for example {_example(scheme)}")
    return target


def _channel(kind: Kind, name: str) -> Target:
    if "/" in name:
        raise _secret_address(kind)
    if not re.fullmatch(r"(?:[a-z][a-z0-9_]*)?", name):
        raise UsageError(f"{name!r} is not the name of a webhook; write small letters, digits and underscores, such as {kind}:perf")
    return Target(kind, f"{kind}:{name}" if name else kind, project=name or None)


def _secret_address(kind: str) -> UsageError:
    return UsageError(
        f"the address of a webhook is a secret, which commands and logs would show: set POSTRUN_{kind.upper()}_URL, write {kind}"
    )


def _named(kind: Kind, word: str, rest: str, url: str | None) -> Target:
    match = _TICKETS[kind].match(rest.upper() if kind == "jira" else rest)
    if match is None:
        raise UsageError(f"{word!r} is not a ticket of {kind}; write for example {_example(kind)}")
    number, project = match["number"], match["project"]
    ticket = f"{project}-{number}" if kind == "jira" and number else number
    return Target(kind, word, ticket, project, match.groupdict().get("sign") == "!", url=url)


def _example(scheme: str) -> str:
    return next(part.partition(" ")[0] for part in ACCEPTED.split(", ") if part.startswith(scheme))


def _page(scheme: str, word: str, address: str) -> tuple[str, str]:
    """Split the address of a ticket's page into the server and the ticket."""
    _server(word, address)
    parts = urlsplit(address)
    match = _PAGES[scheme].match(unquote(parts.path))
    if match is None:
        raise UsageError(f"{word!r}: this is not the address of a ticket's page in {scheme}; write for example {_example(scheme)}")
    groups = match.groupdict()
    server = f"{parts.scheme}://{parts.netloc}{groups['base']}"
    if "rest" in groups:
        return server, groups["rest"]
    return server, f"{groups['project']}{'!' if groups.get('kind') == 'merge_requests' else '#'}{groups['number']}"


def _server(word: str, address: str) -> str:
    try:
        parts = urlsplit(address)
        host, _port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or re.search(r"[\s\x00-\x1f\x7f]", address):
        raise UsageError(f"{word!r} is not a complete address; write for example https://hooks.example.org/reports")
    if parts.username or parts.password:
        raise UsageError("an address must hold no name or password, which programs would print; set POSTRUN_ATTACH_HEADERS instead")
    return address


def _mail(word: str, rest: str) -> Target:
    path, _, query = rest.partition("?")
    addresses = tuple(unquote(one).strip() for one in path.split(",") if one.strip())
    if query or not addresses or not all(_ADDRESS.match(one) for one in addresses):
        raise UsageError(f"{word!r} is not a mail address; write mailto:team@example.org, several with commas")
    return Target("mail", word, addresses=addresses)
