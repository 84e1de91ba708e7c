"""A report to any web address: one POST, a form with the files, the summary as JSON and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from .comment import comment
from .http import Client, LostAnswerError, Options, Upload, headers_of, multipart
from .markup import MARKDOWN
from .message import Message, fingerprint, marker, slug
from .settings import Settings
from .target import Target
from .tracker import Outcome


@dataclass
class Web:
    target: Target
    client: Client

    def fields(self, message: Message) -> list[tuple[str, str]]:
        summary = json.dumps({**message.to_json(), "marker": marker(message.key)}, ensure_ascii=False)
        return [("key", slug(message.key)), ("summary", summary), ("text", comment(message, MARKDOWN))]

    def deliver(self, message: Message, files: Sequence[Upload]) -> Outcome:
        fields = [(name, value.encode("utf-8", "replace").decode()) for name, value in self.fields(message)]
        body = multipart(fields, [(file.name.rpartition(".")[2], file) for file in files])
        query = urlsplit(self.target.url or "").query
        # The same for the same message and files: a server that reads it accepts them once.
        headers = {"Idempotency-Key": f"{slug(message.key)}-{fingerprint(message, files)}"}
        try:
            answer = self.client.send("POST", self.client.base + (f"?{query}" if query else ""), body=body, headers=headers)
        except LostAnswerError as error:
            raise LostAnswerError(f"{error}. A server that knows the header Idempotency-Key accepts it once") from None
        return Outcome(f"sent the report ({answer.status})")


def web(target: Target, settings: Settings, options: Options) -> Web:
    headers = headers_of(settings.secret("attach", "headers") or "", "POSTRUN_ATTACH_HEADERS")
    parts = urlsplit(target.url or "")
    secrets = [*headers.values(), *(value.rpartition(" ")[2] for value in headers.values()), parts.query]
    advice = {
        401: "the server requires a login: set POSTRUN_ATTACH_HEADERS, such as 'Authorization: Bearer ...', or POSTRUN_ATTACH_HEADERS_FILE",
        404: "there is nothing at this address; check it",
    }
    return Web(target, Client(f"{parts.scheme}://{parts.netloc}{parts.path}", headers, options, tuple(filter(None, secrets)), advice))
