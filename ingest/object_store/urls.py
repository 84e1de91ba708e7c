"""URLs of object stores: text -> scheme, bucket and prefix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote

from ...errors import UsageError
from .paths import problem, shortened

Scheme = Literal["s3", "gs", "az", "memory", "file"]

SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_SCHEMES: Final[dict[str, Scheme]] = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "memory": "memory", "file": "file"}
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """``prefix``: without slashes around it, "" for the whole bucket. ``url``: for messages, without a slash at its end."""

    scheme: Scheme
    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        if self.scheme == "file":
            return "/" + self.prefix
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


def parse(url: str) -> StoreUrl:
    """Return the parts of ``url``.

    Keys are not percent-encoded, as in the stores' own tools; file:// decodes. Raises UsageError for an unknown scheme, a missing bucket,
    or a prefix that no object below can have.
    """
    match = SCHEME.match(url)
    scheme = _SCHEMES.get(match[1].lower()) if match else None
    if match is None or scheme is None:
        raise UsageError(
            f"{shortened(_without_secret(url))}: not a place that is read; give s3://, gs://, az:// or file:/// with its path, or a folder"
        )
    rest = url[match.end() :]
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in {"", "localhost"} or not slash:
            raise UsageError(f"{shortened(url)}: write file:///folder, with three slashes")
        return StoreUrl(scheme, "", unquote(path).rstrip("/"))
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.rstrip("/")
    if "@" in bucket:
        raise UsageError(
            f"{scheme}://...: no name or secret stands in the URL; give {scheme}://bucket/prefix, and credentials as its tools take them"
        )
    if not _BUCKET.fullmatch(bucket):
        raise UsageError(f"{shortened(url)}: {shortened(bucket) or 'nothing'} is not a bucket name; write {scheme}://bucket/prefix")
    if prefix and (wrong := problem(prefix)):
        raise UsageError(f"{shortened(url)}: {wrong}; write {scheme}://bucket/prefix")
    return StoreUrl(scheme, bucket, prefix)


def _without_secret(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//...@", url).partition("?")[0]


def is_url(source: str | Path) -> bool:
    """Whether this is a URL of a known or unknown scheme, not a local path."""
    return isinstance(source, str) and SCHEME.match(source) is not None
