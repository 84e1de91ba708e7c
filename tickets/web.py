"""A report to any web address: one POST, a form with the files, the summary as JSON and as Markdown."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import UsageError
from .http import Client, LostAnswerError, Options, Upload, multipart
from .markup import markdown
from .message import Message, blocks, marker, slug
from .settings import Settings
from .target import Target
from .tracker import Outcome


@dataclass
class Web:
    target: Target
    client: Client

    def fields(self, message: Message) -> list[tuple[str, str]]:
        summary = json.dumps({**message.to_json(), "marker": marker(message.key)}, ensure_ascii=False)
        text = markdown(blocks(message), marker(message.key))
        return [("key", slug(message.key)), ("summary", summary), ("text", text)]

    def idempotency_key(self, message: Message, files: Sequence[Upload]) -> str:
        """The same for the same message and files: a server that looks at it takes them once."""
        told = repr((message, [(file.name, file.size) for file in files])).encode("utf-8", "replace")
        return f"{slug(message.key)}-{hashlib.sha256(told).hexdigest()[:24]}"

    def deliver(self, message: Message, files: Sequence[Upload]) -> Outcome:
        fields = [(name, value.encode("utf-8", "replace").decode()) for name, value in self.fields(message)]
        body = multipart(fields, [(file.name.rpartition(".")[2], file) for file in files])
        try:
            answer = self.client.send(
                "POST", self.client.base + self._query, body=body, headers={"Idempotency-Key": self.idempotency_key(message, files)}
            )
        except LostAnswerError as error:
            raise LostAnswerError(f"{error}. A server that knows the header Idempotency-Key takes it once") from None
        return Outcome(f"sent the report ({answer.status})")

    @property
    def _query(self) -> str:
        query = urlsplit(self.target.url or "").query
        return f"?{query}" if query else ""


def web(target: Target, settings: Settings, options: Options) -> Web:
    given = settings.secret("attach", "headers") or ""
    headers = {}
    for line in filter(None, (line.strip() for line in re.split(r"\r?\n", given))):
        name, colon, value = line.partition(":")
        if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name.strip()):
            raise UsageError("POSTRUN_ATTACH_HEADERS: every line must be NAME: VALUE, such as Authorization: Bearer ...")
        headers[name.strip()] = value.strip()
    parts = urlsplit(target.url or "")
    base = f"{parts.scheme}://{parts.netloc}{parts.path}"
    secrets = [*headers.values(), *(value.rpartition(" ")[2] for value in headers.values())]
    if parts.query:
        secrets.append(parts.query)
    advice = {
        401: "the server wants a login: set POSTRUN_ATTACH_HEADERS, such as 'Authorization: Bearer ...', or POSTRUN_ATTACH_HEADERS_FILE",
        404: "there is nothing at this address; check it",
    }
    return Web(target, Client(base, headers, options, tuple(secrets), advice))
