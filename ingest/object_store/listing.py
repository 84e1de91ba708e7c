"""Objects of an S3 bucket by their real names: pages of ListObjectsV2, requested by signed URLs.

obstore's own listing ends with an error at the first name with an empty part, a ``..`` or a control character, and lists "folder/" markers
as if they were objects; here names are not changed. obstore still signs, because it knows all kinds of credentials.
"""

from __future__ import annotations

import re
import urllib.error
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from http.client import HTTPException
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, unquote
from xml.etree import ElementTree

from .contact import Contact, answers, opener
from .errors import Trouble, trouble
from .objects import Level, ObjectInfo

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
        self._opener = opener(certificates)
        self._contact = Contact(self._answers)

    def first(self, action: Callable[[], T]) -> T:
        """Return the result of a request to the server, also of obstore's.

        Raise SilentError if the server has never answered, and does not answer now."""
        if not self._contact.answered:
            self._signed("")  # The credentials of a role come from a service that may also be silent
        return self._contact.first(action)

    def _answers(self, within_s: float) -> bool:
        return answers(self._opener, self._signed("").partition("?")[0], within_s)

    def page(self, prefix: str, after: str | None, most: int = 1000, base: str = "") -> tuple[list[ObjectInfo], str | None]:
        """Return objects, and the path before the next page; ListError.

        ``after``: a key. ``base``: the beginning of all keys, which the paths do not contain."""
        query = f"list-type=2&encoding-type=url&max-keys={most}&prefix={quote(prefix, safe='')}"
        if after:
            query += f"&start-after={quote(after, safe='')}"
        body = self._get(query)
        try:
            keys, more = _quickly(body, base) or _parsed(body, base)
        except (ElementTree.ParseError, ValueError, TypeError) as error:
            raise ListError(trouble(error) if isinstance(error, ElementTree.ParseError) else Trouble("network")) from None
        if more and not keys:
            raise ListError(Trouble("other"))
        return keys, keys[-1].path if more else None

    def level(self, prefix: str, base: str, most: int) -> tuple[Level, bool]:
        """Return what is directly in a folder, and whether this is all; ListError.

        ``most``: pages that are requested. The paths do not contain ``base``."""
        folders: dict[str, None] = {}
        files: list[ObjectInfo] = []
        after = ""
        for _ in range(most):
            query = f"list-type=2&delimiter=%2F&encoding-type=url&max-keys=1000&prefix={quote(prefix, safe='')}"
            body = self._get(query + (f"&start-after={quote(after, safe='')}" if after else ""))
            try:
                answer = ElementTree.fromstring(body)
                keys, more = _objects(answer, base)
            except (ElementTree.ParseError, ValueError, TypeError) as error:
                raise ListError(trouble(error) if isinstance(error, ElementTree.ParseError) else Trouble("network")) from None
            namespace, encoded = _namespace(answer), _is_encoded(answer)
            names = [entry.text or "" for entry in answer.iterfind(f"{namespace}CommonPrefixes/{namespace}Prefix")]
            known = [unquote(name.replace("+", " "), errors="surrogateescape") if encoded else name for name in names]
            folders.update((name.removeprefix(base), None) for name in known)
            files += keys
            following = max([*(f"{name}\U0010ffff" for name in known[-1:]), *(base + info.path for info in keys[-1:])], default="")
            if not more:
                return Level(tuple(folders), tuple(files)), True
            if following <= after:
                raise ListError(Trouble("other"))
            after = following  # behind all names below the last folder
        return Level(tuple(folders), tuple(files)), False

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


_PLAIN: Final = re.compile(r'\s*(?:<\?xml [^<>]*\?>\s*)?<ListBucketResult(?: xmlns="[^"<>]*")?>.*</ListBucketResult>\s*', re.DOTALL)
_ENTRY: Final = re.compile(
    r"<Contents>\s*<Key>([^<]*)</Key>\s*<LastModified>([^<]*)</LastModified>\s*<ETag>([^<]*)</ETag>\s*"
    r"(?:<Checksum\w+>[^<]*</Checksum\w+>\s*)*<Size>(\d+)</Size>"
)


def _quickly(body: bytes, base: str) -> tuple[list[ObjectInfo], bool] | None:
    """Return the objects of a page as all known servers write it; None for other XML.

    A parser of XML takes several times as long. Comments, sections of CDATA and unknown entities are left to it."""
    text = body.decode(errors="replace")
    if "<!" in text or _PLAIN.fullmatch(text) is None:
        return None
    text = text.replace("&quot;", '"').replace("&#34;", '"')  # around ETags
    if "&" in text or "\ufffd" in text:
        return None
    entries = _ENTRY.findall(text)
    if len(entries) != text.count("<Contents"):
        return None
    encoded = "<EncodingType>url</EncodingType>" in text
    keys = [_object(key, written, etag, size, encoded, base) for key, written, etag, size in entries]
    return keys, "<IsTruncated>true</IsTruncated>" in text


def _parsed(body: bytes, base: str) -> tuple[list[ObjectInfo], bool]:
    return _objects(ElementTree.fromstring(body), base)


def _objects(answer: ElementTree.Element, base: str) -> tuple[list[ObjectInfo], bool]:
    namespace, encoded = _namespace(answer), _is_encoded(answer)
    if answer.tag != f"{namespace}ListBucketResult":
        raise ListError(Trouble("other"))
    names = [namespace + name for name in ("Key", "LastModified", "ETag", "Size")]
    entries = ([entry.findtext(name) or "" for name in names] for entry in answer.iter(f"{namespace}Contents"))
    keys = [_object(key, written, etag, size, encoded, base) for key, written, etag, size in entries]
    return keys, answer.findtext(f"{namespace}IsTruncated") == "true"


def _namespace(answer: ElementTree.Element) -> str:
    return answer.tag.partition("}")[0] + "}" if answer.tag.startswith("{") else ""


def _is_encoded(answer: ElementTree.Element) -> bool:
    return answer.findtext(f"{_namespace(answer)}EncodingType") == "url"


def _object(key: str, written: str, etag: str, size: str, encoded: bool, base: str) -> ObjectInfo:
    if encoded and ("%" in key or "+" in key):
        # The names are encoded as in a form, where a space is a plus.
        key = unquote(key.replace("+", " "), errors="surrogateescape")
    if etag and not etag.startswith('"'):
        etag = f'"{etag}"'
    return ObjectInfo(key.removeprefix(base), int(size), etag or None, _time(written))


@lru_cache(256)
def _time(text: str) -> int:
    written = datetime.fromisoformat(text)
    return nanoseconds(written if written.tzinfo else written.replace(tzinfo=UTC))


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def nanoseconds(moment: datetime) -> int:
    """Return Unix time in nanoseconds, exactly."""
    since = moment - _EPOCH
    return ((since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
