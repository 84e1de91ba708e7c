"""An HTTP proxy on loopback in front of a server, which loses and spoils messages on request: how a client bears a bad network."""

from __future__ import annotations

import http.client
import random
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

KINDS: Final = ("500", "503", "lost request", "lost answer", "error after", "cut body")
"""Faults: the request is answered with an error or lost before the server sees it, or its answer afterward.
"half a body" is for ``next_faults``, "403" for ``before``."""


class _Listening(ThreadingHTTPServer):
    request_queue_size = 128


class FaultyProxy:
    """``share``: of the requests that go wrong. ``next_faults``: what happens to the next ones first ("" is nothing).

    ``before``: called with method and path of each request, before it goes on; what it returns happens instead ("" is nothing; None: as if
    it were not there). ``log``: method and path of each request."""

    def __init__(self, server: str, seed: int, kinds: tuple[str, ...] = KINDS) -> None:
        self.share = 0.0
        self.next_faults: list[str] = []
        self.seen: Counter[str] = Counter()
        self.requests = 0
        self.before: Callable[[str, str], str | None] | None = None
        self.log: list[tuple[str, str]] = []
        self._kinds = kinds
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._server = urlsplit(server).netloc
        self._listening = _Listening(("127.0.0.1", 0), self._handler())
        self._listening.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._listening.server_address[1]}"

    def _fault(self, method: str, path: str) -> str:
        asked = None if self.before is None else self.before(method, path)
        with self._lock:
            self.requests += 1
            self.log.append((method, path))
            if asked is not None:
                fault = asked
            elif self.next_faults:
                fault = self.next_faults.pop(0)
            else:
                fault = self._random.choice(self._kinds) if self._random.random() < self.share else ""
            self.seen[fault] += 1
            return fault

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                fault = proxy._fault(self.command, self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if fault in {"403", "500", "503"}:
                    self.refuse(int(fault))
                    return
                if fault == "lost request":
                    self.cut()
                    return
                connection = http.client.HTTPConnection(proxy._server, timeout=30)
                try:
                    # As it came, Host included: it is signed.
                    connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                    for name, value in self.headers.items():
                        connection.putheader(name, value)
                    connection.endheaders(body or None)
                    answer = connection.getresponse()
                    data = answer.read()
                finally:
                    connection.close()
                if fault == "lost answer":
                    self.cut()
                    return
                if fault == "error after":
                    self.refuse(500)
                    return
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in {"transfer-encoding", "connection", "content-length"}:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)) if self.command != "HEAD" else answer.getheader("Content-Length", "0"))
                self.end_headers()
                if fault in {"cut body", "half a body"} and data:
                    self.wfile.write(data[: len(data) // 2 if fault == "half a body" else proxy._random.randrange(len(data))])
                    self.cut()
                    return
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_one  # noqa: N815

            def refuse(self, status: int) -> None:
                code = {403: "AccessDenied", 503: "SlowDown"}.get(status, "InternalError")
                text = f"<Error><Code>{code}</Code></Error>".encode() if self.command != "HEAD" else b""
                self.send_response_only(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def cut(self) -> None:
                self.close_connection = True
                with suppress(OSError):
                    self.wfile.flush()
                    self.connection.shutdown(socket.SHUT_RDWR)

            def log_message(self, *_: object) -> None:
                return

        return Handler


@contextmanager
def faulty_proxy(server: str, *, seed: int = 1, kinds: tuple[str, ...] = KINDS) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(server, seed, kinds)
    thread = threading.Thread(target=proxy._listening.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy._listening.shutdown()
        proxy._listening.server_close()
        thread.join(10)
