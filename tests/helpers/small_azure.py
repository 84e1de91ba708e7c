"""A small Azure server for tests: lists and reads blobs in memory, on loopback, for the duration of a ``with``. It checks no signature."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from loopback import serving

_TYPE = "<Content-Type>application/octet-stream</Content-Type>"
_TIME = "Fri, 20 Nov 2026 06:00:00 GMT"


@dataclass
class SmallAzure:
    """``blobs``: of the only container. ``listed``: the queries of all listings."""

    endpoint: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    listed: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def small_azure() -> Iterator[SmallAzure]:
    state = SmallAzure()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            name = unquote(url.path).lstrip("/").partition("/")[2]
            if query.get("comp") == "list":
                state.listed.append(query)
                self._answer(200, _listing(state.blobs, query))
            elif name in state.blobs:
                self._answer(200, state.blobs[name])
            else:
                self._answer(404, b"")

        do_HEAD = do_GET  # noqa: N815

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Last-Modified", _TIME)
            self.send_header("ETag", "0x1")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    with serving(Handler) as port:
        state.endpoint = f"http://127.0.0.1:{port}"
        yield state


def _listing(blobs: dict[str, bytes], query: dict[str, str]) -> bytes:
    prefix, delimiter, marker = query.get("prefix", ""), query.get("delimiter", ""), query.get("marker", "")
    entries: dict[str, str] = {}
    for name in sorted(blobs):
        if not name.startswith(prefix):
            continue
        end = name.find(delimiter, len(prefix)) if delimiter else -1
        key = name if end < 0 else name[: end + 1]
        about = f"<Last-Modified>{_TIME}</Last-Modified><Content-Length>{len(blobs[name])}</Content-Length>{_TYPE}<Etag>0x1</Etag>"
        blob = f"<Blob><Name>{escape(name)}</Name><Properties>{about}</Properties></Blob>"
        entries[key] = blob if end < 0 else f"<BlobPrefix><Name>{escape(key)}</Name></BlobPrefix>"
    left = [key for key in entries if key >= marker]
    following = left[1000] if len(left) > 1000 else ""
    body = "".join(entries[key] for key in left[:1000])
    return f"<EnumerationResults><Blobs>{body}</Blobs><NextMarker>{escape(following)}</NextMarker></EnumerationResults>".encode()
