"""Which ticket does a word such as ``jira:PROJ-12`` or ``gitlab:group/project#7`` name?"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from ..errors import UsageError

Kind = Literal["jira", "gitlab", "github", "gitea", "redmine", "roundup", "mail", "web"]
ACCEPTED: Final = (
    "jira:PROJ-12, gitlab:group/project#7, gitlab:group/project!7 (a merge request), github:owner/repo#7, gitea:owner/repo#7, redmine:123, "
    "roundup:issue12, mailto:team@example.org, https://..."
)

_JIRA: Final = re.compile(r"[A-Z][A-Z0-9_]*-[1-9][0-9]*\Z")
_JIRA_PROJECT: Final = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_SEGMENT: Final = r"(?!\.{1,2}(?:[/#!]|\Z))[A-Za-z0-9_.][A-Za-z0-9_.-]*"
_GITLAB: Final = re.compile(rf"(?P<project>{_SEGMENT}(?:/{_SEGMENT})+)(?:(?P<sign>[#!])(?P<number>[1-9][0-9]*))?\Z")
_REPOSITORY: Final = re.compile(rf"(?P<project>{_SEGMENT}/{_SEGMENT})(?:#(?P<number>[1-9][0-9]*))?\Z")
_NUMBER: Final = re.compile(r"#?(?P<number>[1-9][0-9]*)\Z")
_REDMINE_PROJECT: Final = re.compile(r"[a-z][a-z0-9_-]*\Z")
_ROUNDUP: Final = re.compile(r"(?P<cls>[a-z_]*[a-z_])(?P<number>[1-9][0-9]*)\Z")
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
    """``ticket``: the key or number; None where ``project`` alone is named, which is where a new ticket can be opened. ``url``: of the
    server, where the word names it. ``addresses``: of mail. ``text``: as the user wrote it."""

    kind: Kind
    text: str
    ticket: str | None = None
    project: str | None = None
    merge_request: bool = False
    url: str | None = None
    addresses: tuple[str, ...] = ()


def parse(text: str, *, projects: bool = False) -> Target:
    """``projects``: a project without a ticket is accepted, too. Raises UsageError with what is accepted."""
    word = text.strip()
    scheme, colon, rest = word.partition(":")
    scheme = scheme.lower()
    if scheme in ("https", "http") and colon:
        # A query may hold a secret: it is in no message.
        return Target("web", word.partition("?")[0], url=_server(word, word).partition("#")[0])
    if scheme == "mailto":
        return _mail(word, rest)
    if scheme not in _PAGES or not colon:
        raise UsageError(f"{text!r} names no ticket; accepted are {ACCEPTED}")
    url = None
    if rest.lower().startswith(("https://", "http://")):
        url, rest = _page(scheme, word, rest)
    target = _named(scheme, word, rest, url)
    if target.ticket is None and not projects:
        raise UsageError(f"{text!r} names a project, and no ticket in it; write for example {_example(scheme)}")
    return target


def _named(scheme: str, word: str, rest: str, url: str | None) -> Target:
    if scheme == "jira":
        key = rest.upper()
        if _JIRA.match(key):
            return Target("jira", word, key, key.rpartition("-")[0], url=url)
        if _JIRA_PROJECT.match(key):
            return Target("jira", word, None, key, url=url)
    elif scheme == "gitlab":
        if found := _GITLAB.match(rest):
            return Target("gitlab", word, found["number"], found["project"], found["sign"] == "!", url=url)
    elif scheme in ("github", "gitea"):
        if found := _REPOSITORY.match(rest):
            return Target("github" if scheme == "github" else "gitea", word, found["number"], found["project"], url=url)
    elif scheme == "redmine":
        if found := _NUMBER.match(rest):
            return Target("redmine", word, found["number"], url=url)
        if _REDMINE_PROJECT.match(rest):
            return Target("redmine", word, None, rest, url=url)
    elif found := _ROUNDUP.match(rest):
        return Target("roundup", word, found["number"], found["cls"], url=url)
    raise UsageError(f"{word!r} is no ticket of {scheme}; write for example {_example(scheme)}")


def _example(scheme: str) -> str:
    return next(part.partition(" ")[0] for part in ACCEPTED.split(", ") if part.startswith(scheme))


def _page(scheme: str, word: str, address: str) -> tuple[str, str]:
    """The address of a ticket's page -> the server, and the ticket."""
    _server(word, address)
    parts = urlsplit(address)
    found = _PAGES[scheme].match(unquote(parts.path))
    if found is None:
        raise UsageError(f"{word!r}: this is not the address of a ticket's page in {scheme}; write for example {_example(scheme)}")
    groups = found.groupdict()
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
        raise UsageError(f"{word!r} is no complete address; write for example https://hooks.example.org/reports")
    if parts.username or parts.password:
        raise UsageError("an address must hold no name or password, which programs would print; set POSTRUN_ATTACH_HEADERS instead")
    return address


def _mail(word: str, rest: str) -> Target:
    path, _, query = rest.partition("?")
    addresses = tuple(unquote(one).strip() for one in path.split(",") if one.strip())
    if query or not addresses or not all(_ADDRESS.match(one) for one in addresses):
        raise UsageError(f"{word!r} is no mail address; write mailto:team@example.org, several with commas")
    return Target("mail", word, addresses=addresses)
