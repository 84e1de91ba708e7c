"""Preview of a delivery: what would be sent, without a token and without contacting a server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from ..analysis.toolkit.wording import size as size_words
from .http import Options, Upload
from .mail import Mailer
from .markup import FileLink
from .message import Message
from .settings import SECTIONS, Settings
from .systems import delivery
from .target import Target
from .tracker import Tracker
from .web import Web
from .webhook import Webhook

_STAND_IN: Final = "not-shown"
_URLS: Final = ("jira", "gitlab", "gitea", "redmine", "roundup")
_WEBHOOKS: Final = ("slack", "teams", "webhook")
_NO_SERVER: Final = "not-configured.invalid"
_PLACES: Final = {"gitlab": "/uploads/.../{}", "github": "https://.../{}", "gitea": "https://.../{}"}
"""Markdown needs an address of a file, which the server will name."""


def preview(target: Target, settings: Settings, options: Options, message: Message, files: Sequence[Upload]) -> str:
    """Return the target, the files and the exact text."""
    delivered = delivery(target, _without_secrets(settings, target), options)
    lines = [f"To {target.text}"]
    if isinstance(delivered, Tracker):
        if _NO_SERVER in delivered.client.base:
            variable = f"POSTRUN_{target.kind.upper()}_URL"
            lines = [lines[0], f"No server is configured: {_NO_SERVER} stands for it. Before it can be sent, set {variable}."]
        sent = [] if delivered.no_files else files
        left_out = [delivered.no_files] if files and delivered.no_files else []
        links = [FileLink(file.name, _PLACES[target.kind].format(file.name) if target.kind in _PLACES else None) for file in sent]
        lines.append(f"POST {delivered.client.base}{delivered.comment_path} (or the change of our comment, if there is one)")
        lines += [*_files(sent), "", delivered.text(message, links, left_out)]
    elif isinstance(delivered, Mailer):
        configured = delivered.host != _NO_SERVER
        where = f"{delivered.host}:{delivered.port} ({delivered.security})" if configured else "no server yet: set POSTRUN_MAIL_HOST"
        mail = delivered.composed(message, ())
        part = mail.get_body(("plain",))
        lines += [f"Mail through {where}", "", *(f"{name}: {mail[name]}" for name in ("Subject", "From", "To")), *_files(files)]
        lines += ["", part.get_content() if part is not None else ""]
    elif isinstance(delivered, Web):
        lines += [f"POST {delivered.client.base}", *_files(files)]
        lines += [f"\n{name}:\n{value}" for name, value in delivered.fields(message)]
    elif isinstance(delivered, Webhook):
        lines += ["POST to the webhook", json.dumps(delivered.body(message), ensure_ascii=False, indent=2)]
    return "\n".join(lines)


def _files(files: Sequence[Upload]) -> list[str]:
    return [f"File {file.name} ({file.content_type}, {size_words(file.size)})" for file in files] or ["No file"]


def _without_secrets(settings: Settings, target: Target) -> Settings:
    """Replace all secrets, and servers that are not set."""
    file = {
        section: {
            **{name: value for name in plain if (value := settings.get(section, name)) is not None},
            **(dict.fromkeys(secret, _STAND_IN) if section != "attach" else {}),
        }
        for section, (plain, secret) in SECTIONS.items()
    }
    for section in _URLS:
        file[section].setdefault("url", f"https://{_NO_SERVER}")
    if target.kind in _WEBHOOKS:
        file[target.kind] = {f"{target.project}_url" if target.project else "url": f"https://{_NO_SERVER}"}
    file["mail"].setdefault("host", _NO_SERVER)
    file["roundup"].setdefault("user", "user")
    environment = {name: value for name, value in settings.environment.items() if name in ("CI_SERVER_URL", "GITHUB_API_URL")}
    return Settings(environment, file, settings.path)
