"""A small S3 server for tests: objects in memory, on loopback, for the duration of a ``with``; it records the access keys of its requests.
Google Cloud Storage lists objects with the same requests.

It checks no signature; ``swift_server`` does. ``keys``: the only access keys that it accepts; None accepts all.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from loopback import serving

_KEY = re.compile(r"Credential=([^/]+)/")
_TIME = "2026-11-20T06:00:00.000Z"
_HTTP_TIME = "Fri, 20 Nov 2026 06:00:00 GMT"


@dataclass
class SmallS3:
    """``buckets``: key to bytes. ``seen``: the access keys of all requests. ``listed``: the queries of all listings. ``wait_s``: before
    each answer to a signed request. ``most``: keys and folders of a page."""

    endpoint: str = ""
    keys: set[str] | None = None
    buckets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    listed: list[dict[str, str]] = field(default_factory=list)
    wait_s: float = 0.0
    most: int = 1000
    lock: Any = field(default_factory=threading.Lock)


@contextmanager
def small_s3(
    *buckets: str, keys: set[str] | None = None, certificate: Path | None = None, key: Path | None = None, wait_s: float = 0.0
) -> Iterator[SmallS3]:
    """``certificate``, ``key``: of the server, which then uses TLS."""
    state = SmallS3(keys=keys, wait_s=wait_s, buckets={name: {} for name in buckets})
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
    with serving(type("Handler", (_Handler,), {"state": state}), context) as port:
        state.endpoint = f"{'http' if context is None else 'https'}://127.0.0.1:{port}"
        yield state


class _Handler(BaseHTTPRequestHandler):
    state: SmallS3
    protocol_version = "HTTP/1.1"

    def _asked(self) -> tuple[dict[str, bytes], str, dict[str, str]] | None:
        """Return the bucket, the key and the query; None if the request was refused."""
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        bucket, _, name = unquote(url.path).lstrip("/").partition("/")
        signed = _KEY.search(self.headers.get("Authorization", ""))
        access = signed[1] if signed else query.get("X-Amz-Credential", "").partition("/")[0]
        self.state.seen.add(access)
        if access:
            time.sleep(self.state.wait_s)
        if self.state.keys is not None and access not in self.state.keys:
            self._answer(403, _error("InvalidAccessKeyId"))
        elif bucket not in self.state.buckets:
            self._answer(404, _error("NoSuchBucket"))
        else:
            return self.state.buckets[bucket], name, query
        return None

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for header, value in headers.items():
            self.send_header(header.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        asked = self._asked()
        if asked is None:
            return
        objects, name, query = asked
        if "list-type" in query:
            self.state.listed.append(query)
            self._answer(200, _listing(objects, query, self.state.most))
        elif name not in objects:
            self._answer(404, _error("NoSuchKey"))
        else:
            body, about = objects[name], {"ETag": _etag(objects[name]), "Last_Modified": _HTTP_TIME}
            if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
                first, last = int(wanted[1]), min(int(wanted[2] or len(body)), len(body) - 1)
                self._answer(206, body[first : last + 1], Content_Range=f"bytes {first}-{last}/{len(body)}", **about)
            else:
                self._answer(200, body, **about)

    do_HEAD = do_GET  # noqa: N815

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        asked = self._asked()
        if asked is None:
            return
        objects, name, _ = asked
        with self.state.lock:
            now = _etag(objects[name]) if name in objects else None
            if (self.headers.get("If-None-Match") == "*" and now) or self.headers.get("If-Match", now) != now:
                self._answer(412, _error("PreconditionFailed"))
                return
            objects[name] = body
        self._answer(200, ETag=_etag(body))

    def do_DELETE(self) -> None:
        asked = self._asked()
        if asked is not None:
            asked[0].pop(asked[1], None)
            self._answer(204)

    def log_message(self, *_: Any) -> None:
        return


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code></Error>".encode()


def _listing(objects: dict[str, bytes], query: dict[str, str], most: int) -> bytes:
    prefix, most = query.get("prefix", ""), min(int(query.get("max-keys", "1000")), most)
    delimiter, after = query.get("delimiter", ""), query.get("continuation-token", query.get("start-after", ""))
    is_encoded = query.get("encoding-type") == "url"

    def encoded(name: str) -> str:
        return quote(name, safe="/") if is_encoded else name

    names = sorted((name for name in objects if name.startswith(prefix)), key=str.encode)
    names = names[bisect_right([name.encode() for name in names], after.encode()) :]
    entries: list[str] = []
    folders: dict[str, None] = {}
    more, last = False, ""
    for name in names:
        end = name.find(delimiter, len(prefix)) if delimiter else -1
        folder = name[: end + 1] if end >= 0 else None
        if folder is not None and (folder in folders or after.startswith(folder)):
            continue
        if len(entries) + len(folders) == most:
            more = True
            break
        last = name if folder is None else f"{folder}\U0010ffff"
        if folder is not None:
            folders[folder] = None
            continue
        entries.append(
            f"<Contents><Key>{escape(encoded(name))}</Key><LastModified>{_TIME}</LastModified>"
            f"<ETag>{escape(_etag(objects[name]), {chr(34): '&quot;'})}</ETag><Size>{len(objects[name])}</Size></Contents>"
        )
    common = "".join(f"<CommonPrefixes><Prefix>{escape(encoded(folder))}</Prefix></CommonPrefixes>" for folder in folders)
    following = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if more else ""
    encoding = "<EncodingType>url</EncodingType>" if is_encoded else ""
    return (
        f'<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{encoding}'
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{following}{''.join(entries)}{common}</ListBucketResult>"
    ).encode()
