"""Objects of an S3 bucket by their real names: pages of ListObjectsV2, requested by signed URLs.

obstore's own listing ends with an error at the first name with an empty part, a ``..`` or a control character, and lists "folder/" markers
as if they were objects; here names are not changed. obstore still signs, because it knows all kinds of credentials.
"""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote
from xml.etree import ElementTree

from .contact import Contact
from .errors import Trouble, trouble
from .objects import ObjectInfo

T = TypeVar("T")

_TIMEOUT_S: Final = 60
_MOST: Final = 64 << 20


class ListError(Exception):
    """A page that could not be read."""

    def __init__(self, problem: Trouble) -> None:
        super().__init__(problem.kind)
        self.problem = problem


class Lister:
    """``sign``: a query -> the signed URL to get. No part of a URL is ever reported."""

    def __init__(self, sign: Callable[[str], str], certificates: Path | None) -> None:
        self._sign = sign
        context = ssl.create_default_context()
        if certificates is not None:
            context.load_verify_locations(certificates)
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))
        self._contact = Contact(self._answers)

    def first(self, action: Callable[[], T]) -> T:
        """Return the result of a request to the server, also of obstore's.

        Raise SilentError if the server has never answered, and does not answer now."""
        if not self._contact.answered:
            self._signed("")  # The credentials of a role come from a service that may also be silent
        return self._contact.run(action)

    def _answers(self, within_s: float) -> bool:
        url = self._signed("").partition("?")[0]
        try:
            with self._opener.open(urllib.request.Request(url, method="HEAD"), timeout=within_s):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return True
        except (OSError, HTTPException):
            return False

    def page(self, prefix: str, after: str | None, most: int = 1000) -> tuple[list[ObjectInfo], str | None]:
        """Return objects (key as path), and the key before the next page; ListError."""
        query = f"list-type=2&encoding-type=url&max-keys={most}&prefix={quote(prefix, safe='')}"
        if after:
            query += f"&start-after={quote(after, safe='')}"
        body = self._get(query)
        try:
            answer = ElementTree.fromstring(body)
        except ElementTree.ParseError as error:
            raise ListError(trouble(error)) from None
        namespace = answer.tag.partition("}")[0] + "}" if answer.tag.startswith("{") else ""
        if answer.tag != f"{namespace}ListBucketResult":
            raise ListError(Trouble("other"))
        encoded = answer.findtext(f"{namespace}EncodingType") == "url"
        try:
            keys = list(_keys(answer, namespace, encoded))
        except (ValueError, TypeError):
            raise ListError(Trouble("network")) from None
        more = answer.findtext(f"{namespace}IsTruncated") == "true"
        if more and not keys:
            raise ListError(Trouble("other"))
        return keys, keys[-1].path if more else None

    def _signed(self, query: str) -> str:
        try:
            return self._sign(query)
        except Exception as error:  # of obstore, which looks for credentials now
            raise ListError(trouble(error)) from None

    def _get(self, query: str) -> bytes:
        url = self._signed(query)
        try:
            with self._opener.open(url, timeout=_TIMEOUT_S) as answer:
                body: bytes = answer.read(_MOST)
                return body
        except urllib.error.HTTPError as error:
            with error:
                try:
                    text = error.read(1 << 16).decode(errors="replace")
                except (OSError, HTTPException):
                    text = ""
            raise ListError(trouble(text, error.code)) from None
        except urllib.error.URLError as error:
            raise ListError(
                trouble(error.reason if isinstance(error.reason, str) else f"{type(error.reason).__name__} {error.reason}")
            ) from None
        except (OSError, HTTPException) as error:
            problem = trouble(error)
            raise ListError(Trouble("network") if problem.kind == "other" else problem) from None


def _keys(answer: ElementTree.Element, namespace: str, encoded: bool) -> Iterator[ObjectInfo]:
    for entry in answer.iter(f"{namespace}Contents"):
        key = entry.findtext(f"{namespace}Key") or ""
        # The names are encoded as in a form, where a space is a plus.
        key = unquote(key.replace("+", " "), errors="surrogateescape") if encoded else key
        written = datetime.fromisoformat(entry.findtext(f"{namespace}LastModified") or "")
        written = written if written.tzinfo else written.replace(tzinfo=UTC)
        etag = entry.findtext(f"{namespace}ETag")
        if etag and not etag.startswith('"'):
            etag = f'"{etag}"'
        yield ObjectInfo(key, int(entry.findtext(f"{namespace}Size") or ""), etag, nanoseconds(written))


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def nanoseconds(moment: datetime) -> int:
    """Return Unix time in nanoseconds, exactly."""
    since = moment - _EPOCH
    return ((since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer about the region; a signed request goes to no other host."""

    def redirect_request(self, *_: Any) -> None:
        return None
