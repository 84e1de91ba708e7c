"""What would be sent? Nobody is contacted, and no token is needed or shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ..analysis.wording import size as size_words
from .http import Options, Upload
from .message import FileLink, Message
from .settings import SECTIONS, Settings
from .systems import delivery, tracker_of
from .target import Target
from .tracker import render

_STAND_IN: Final = "not-shown"
_URLS: Final = {"jira", "gitlab", "gitea", "redmine", "roundup"}
_NO_SERVER: Final = "not-configured.invalid"


def shown(target: Target, settings: Settings, options: Options, message: Message, files: Sequence[Upload], release: str | None) -> str:
    """Where to, which files, and the very text; links to files that the server names are shown as `...`."""
    known = _without_secrets(settings)
    ticket = tracker_of(target, known, options, release)
    lines = [f"To {target.text}"]
    if ticket is None:
        one = delivery(target, known, options)
        from .mail import Mailer
        from .web import Web

        if isinstance(one, Mailer):
            where = "no server yet: set POSTRUN_MAIL_HOST" if one.host == _NO_SERVER else f"{one.host}:{one.port} ({one.security})"
            lines += [f"Mail through {where}", ""]
            mail = one.composed(message, ())
            lines += [f"{name}: {value}" for name, value in mail.items() if name in ("From", "To", "Subject")]
            lines += _files(files)
            part = mail.get_body(("plain",))
            lines += ["", part.get_content() if part is not None else ""]
        elif isinstance(one, Web):
            lines += [f"POST {one.client.base}", *_files(files)]
            lines += [f"\n{name}:\n{value}" for name, value in one.fields(message)]
        return "\n".join(lines)
    lines.append(f"POST {ticket.client.base}{ticket.comment_path} (or the change of our comment, where there is one)")
    sent = list(files) if ticket.takes_files else []
    links = [FileLink(file.name, _place(target, file.name)) for file in sent]
    left_out = (ticket.no_files,) if files and not ticket.takes_files else ()
    lines += [*_files(sent), "", render(ticket, replace(message, left_out=left_out), links)]
    if _NO_SERVER in ticket.client.base:
        lines.insert(
            1, f"No server is configured: {_NO_SERVER} stands for it. Before it can be sent, set POSTRUN_{target.kind.upper()}_URL."
        )
    return "\n".join(lines)


def _place(target: Target, name: str) -> str | None:
    """Markdown needs an address."""
    return f"/uploads/.../{name}" if target.kind == "gitlab" else f"https://.../{name}" if target.kind in ("github", "gitea") else None


def _files(files: Sequence[Upload]) -> list[str]:
    return [f"File {file.name} ({file.content_type}, {size_words(file.size)})" for file in files] or ["No file"]


def _without_secrets(settings: Settings) -> Settings:
    """With stand-ins for all secrets, and for servers that are not set."""
    file = {
        section: {
            **{name: value for name in plain if (value := settings.get(section, name)) is not None},
            **(dict.fromkeys(secret, _STAND_IN) if section != "attach" else {}),
        }
        for section, (plain, secret) in SECTIONS.items()
    }
    for section in _URLS:
        file[section].setdefault("url", f"https://{_NO_SERVER}")
    file["mail"].setdefault("host", _NO_SERVER)
    file["roundup"].setdefault("user", "user")
    environment = {name: value for name, value in settings.environment.items() if name in ("CI_SERVER_URL", "GITHUB_API_URL")}
    return Settings(environment, file, settings.path)
