"""A message to a channel of Slack or Teams, or to a program: one POST of JSON to an address that is a secret.

Everyone who knows the address can post, so it comes from a setting and is in no message. Webhooks take no files, and a message cannot be
updated: another call posts another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from ..errors import UsageError
from .comment import comment
from .http import Client, LostAnswerError, Options, Upload, headers_of, json_body
from .markup import BOLD, MARKDOWN, PLAIN, SLACK, length
from .message import Message, fingerprint, marker, slug
from .settings import Settings, variable
from .target import Kind, Target
from .tracker import Outcome

_SLACK_MESSAGE: Final = 12_000  # characters: readable in a chat; Slack's own limit is 50 sections
_SLACK_SECTION: Final = 3000  # characters, Slack's limit
_SLACK_NOTICE: Final = 300  # characters of the text for notifications
_CARD_BYTES: Final = 25_000  # Teams accepts about 28 KB with all that it adds
_SECRET: Final = 16  # characters: longer parts of an address are secrets also alone
_CARD_TEXTS: Final = (16_000, 8000, 4000, 2000, 1000)  # characters; the first whose card has at most _CARD_BYTES is sent


def slack(message: Message) -> dict[str, Any]:
    """Return sections in Slack's markup, and a short text for notifications.

    ``verbatim`` keeps Slack from linking names of people and channels."""
    sections = [
        {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}
        for text in _packed(comment(message, SLACK, limit=_SLACK_MESSAGE), _SLACK_SECTION)
    ]
    notice = f"{message.run}: {(*message.lines, message.headline)[0]}"
    return {"text": SLACK.escape(notice[:_SLACK_NOTICE]), "blocks": sections}


def _packed(text: str, most: int) -> list[str]:
    """Join lines to texts of at most ``most`` UTF-16 units; cut longer lines."""
    texts: list[str] = []
    for line in text.split("\n"):
        if length(line) > most:
            line = re.sub("&[a-z]*$", "", line.encode("utf-16-le", "replace")[: 2 * (most - 1)].decode("utf-16-le", "ignore")) + "…"
        if texts and length(texts[-1]) + 1 + length(line) <= most:
            texts[-1] += f"\n{line}"
        else:
            texts.append(line)
    return [text.strip("\n") for text in texts if text.strip()]


def teams(message: Message) -> dict[str, Any]:
    """Return an Adaptive Card in the envelope of a workflow's webhook.

    Its text is in runs, in which Teams reads neither markup nor mentions."""
    for limit in _CARD_TEXTS:
        envelope = _card(message, limit)
        if len(json_body(envelope).data) <= _CARD_BYTES:
            break
    return envelope


def _card(message: Message, limit: int) -> dict[str, Any]:
    web = (message.link or "").startswith(("https://", "http://"))
    text = comment(replace(message, link=None) if web else message, PLAIN, limit=limit)
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": [{"type": "RichTextBlock", "inlines": _runs(line)} for line in text.split("\n") if line],
    }
    if web:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open the report", "url": PLAIN.address(message.link or "")}]
    return {
        "type": "message",
        "attachments": [{"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": None, "content": card}],
    }


def _runs(line: str) -> list[dict[str, Any]]:
    begin, end = BOLD
    parts = re.findall(f"{begin}([^{end}]*){end}|([^{begin}]+)", line)
    return [{"type": "TextRun", "text": text or strong, **({"weight": "Bolder"} if strong else {})} for strong, text in parts]


def generic(message: Message) -> dict[str, Any]:
    """Return the content of the form of an https:// target as JSON, and the origin."""
    summary = {**message.to_json(), "marker": marker(message.key)}
    return {"key": slug(message.key), **message.origin, "summary": summary, "text": comment(message, MARKDOWN)}


_BODIES: Final[dict[Kind, Callable[[Message], dict[str, Any]]]] = {"slack": slack, "teams": teams, "webhook": generic}


@dataclass
class Webhook:
    """``path``: of the address, with its query."""

    target: Target
    client: Client
    path: str = field(repr=False)

    def body(self, message: Message) -> dict[str, Any]:
        return _BODIES[self.target.kind](message)

    def deliver(self, message: Message, files: Sequence[Upload]) -> Outcome:
        headers = {"Idempotency-Key": f"{slug(message.key)}-{fingerprint(message, ())}"}
        try:
            answer = self.client.send("POST", self.path, body=json_body(self.body(message)), headers=headers)
        except LostAnswerError as error:
            raise LostAnswerError(f"{error}. Another call posts it again") from None
        return Outcome(f"posted a message ({answer.status})" + (", without files, which webhooks do not take" if files else ""))


def _parts(address: str, name: str) -> SplitResult:
    """Split an address. Raise UsageError, which does not contain it."""
    try:
        parts = urlsplit(address)
        complete, _port = parts.scheme in ("https", "http") and parts.hostname, parts.port
    except ValueError:
        complete = None
    if not complete or re.search(r"[\s\x00-\x1f\x7f]", address):
        raise UsageError(f"{name} is not the address of a webhook; it begins with https://")
    return parts


def webhook(target: Target, settings: Settings, options: Options) -> Webhook:
    kind, name = target.kind, f"{target.project}_url" if target.project else "url"
    address = settings.need_secret(kind, name, f"{target.text} needs the address of its webhook")
    parts = _parts(address, variable(kind, name))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = headers_of(settings.secret(kind, name.removesuffix("url") + "headers") or "", variable(kind, "headers"))
    gone = f"the webhook was removed or is another one; check {variable(kind, name)}"
    advice = {401: gone, 403: gone, 404: gone, 410: gone, 413: "the message is larger than the server accepts"}
    long = (text for text in re.split(r"[/&=]", path) if len(text) >= _SECRET)
    secrets = (path, parts.path, parts.query, *long, *headers.values(), *(value.rpartition(" ")[2] for value in headers.values()))
    client = Client(f"{parts.scheme}://{parts.netloc}", headers, options, tuple(text for text in secrets if len(text) > 1), advice)
    return Webhook(target, client, path)
