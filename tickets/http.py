"""How does a request reach a ticket server and its answer come back, or a clear reason why not?

The standard library alone. Only the host that is named is contacted: a redirect to another one is an error, never followed. Secrets are in
no message.
"""

from __future__ import annotations

import contextlib
import http.client
import json as json_module
import random
import re
import secrets as random_secrets
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

from ..errors import PostrunError, UsageError

_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_PASSING: Final = frozenset({429, 502, 503, 504})
_LONGEST_ANSWER: Final = 64 << 20
_CHUNK: Final = 1 << 18


class TicketError(PostrunError):
    """The server cannot be reached, or refuses. Names the target and the next step, never a secret (exit code 1)."""


class HttpError(TicketError):
    """The server answered with an error. ``said``: its words."""

    def __init__(self, message: str, status: int, said: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.said = said


class LostAnswerError(TicketError):
    """A request that must not be repeated blindly was sent, and no answer came: it may have been carried out."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to send: ``path``, or ``data``. ``name``: under which the server files it."""

    name: str
    content_type: str
    size: int
    path: Path | None = None
    data: bytes = field(default=b"", repr=False)

    def chunks(self) -> Iterator[bytes]:
        if self.path is None:
            yield self.data
            return
        left = self.size
        with self.path.open("rb") as file:
            while left and (chunk := file.read(min(_CHUNK, left))):
                left -= len(chunk)
                yield chunk
        if left:
            raise TicketError(f"{self.path} became shorter while it was sent; write the report again, then attach it")


@dataclass(frozen=True, slots=True)
class Body:
    """What a request carries. ``pieces`` gives it anew for each try."""

    content_type: str
    size: int
    pieces: Callable[[], Iterator[bytes]] = field(repr=False)


def raw(file: Upload, content_type: str | None = None) -> Body:
    return Body(content_type or file.content_type, file.size, file.chunks)


def json_body(value: Any) -> Body:
    data = json_module.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    return Body("application/json", len(data), lambda: iter([data]))


def multipart(fields: Sequence[tuple[str, str]], files: Sequence[tuple[str, Upload]]) -> Body:
    """A form (RFC 7578). File names are ours: letters, digits, dots and dashes."""
    boundary = f"postrun-{random_secrets.token_hex(16)}"
    heads: list[tuple[bytes, Upload | None]] = []
    for name, value in fields:
        heads.append((f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode(), None))
    for name, file in files:
        disposition = f'Content-Disposition: form-data; name="{name}"; filename="{file.name}"'
        heads.append((f"--{boundary}\r\n{disposition}\r\nContent-Type: {file.content_type}\r\n\r\n".encode(), file))
    end = f"--{boundary}--\r\n".encode()
    size = sum(len(head) + (file.size + 2 if file else 0) for head, file in heads) + len(end)

    def pieces() -> Iterator[bytes]:
        for head, file in heads:
            yield head
            if file is not None:
                yield from file.chunks()
                yield b"\r\n"
        yield end

    return Body(f"multipart/form-data; boundary={boundary}", size, pieces)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Options:
    """``timeout_s``: of each send and receive. ``wait_limit_s``: the longest wait that a server may ask for. ``tell`` hears of waits."""

    timeout_s: float = 60
    attempts: int = 5
    wait_limit_s: float = 120
    backoff_s: float = 1
    insecure_http: bool = False
    ca_bundle: str | None = None
    sleep: Callable[[float], None] = time.sleep
    tell: Callable[[str], object] = lambda _: None


@dataclass
class Client:
    """Requests to one server. ``base``: its address. ``secrets``: what no message may hold. ``advice``: what to do
    where the server refuses (by status)."""

    base: str
    headers: Mapping[str, str] = field(repr=False)
    options: Options = field(default_factory=Options)
    secrets: Sequence[str] = field(default=(), repr=False)
    advice: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.base = self.base.rstrip("/")
        parts = urlsplit(self.base)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{self.base!r} is no address of a server; write for example https://tickets.example.org")
        if parts.username or parts.password:
            raise UsageError("the address of a server must hold no name or password; set its token instead")
        if parts.scheme == "http" and not self.options.insecure_http and not is_loopback(parts.hostname):
            raise UsageError(f"{self.base} is not encrypted, and the token would be read on the way: write https, or add --insecure-http")
        for name, value in self.headers.items():
            if re.search(r"[^\t\x20-\x7e\x80-\xff]", name + value) or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                raise UsageError(f"the value for the header {name!r} holds characters that no header can have; check the token's file")

    def json(self, method: str, path: str, *, value: Any = None, query: Mapping[str, Any] | None = None, retry: bool | None = None) -> Any:
        """The answer as JSON; None where it is empty."""
        answer = self.send(method, path, body=None if value is None else json_body(value), query=query, retry=retry)
        return self.parsed(answer, method, path)

    def parsed(self, answer: Answer, method: str, path: str) -> Any:
        if not answer.data.strip():
            return None
        try:
            return json_module.loads(answer.data)
        except ValueError:
            raise self._not_json(answer, method, path) from None

    def send(
        self,
        method: str,
        path: str,
        *,
        body: Body | None = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        retry: bool | None = None,
    ) -> Answer:
        """One request, repeated while the trouble may pass. ``retry``: whether it may be repeated where it may have been carried out (as
        the method says, else). Raises HttpError, LostAnswerError, TicketError."""
        address = path if path.startswith(("https://", "http://")) else self.base + path
        if query:
            address += ("&" if "?" in address else "?") + urlencode(query)
        repeat = method in _IDEMPOTENT if retry is None else retry
        trouble = ""
        wait = 0.0
        for attempt in range(self.options.attempts):
            if attempt:
                self.options.tell(f"{self._where()}: {self.clean(trouble)}; trying again in {max(wait, 1):.0f} s")
                self.options.sleep(wait)
            wait = self.options.backoff_s * 2**attempt * random.uniform(0.75, 1.25)
            try:
                answer = self._follow(method, address, body, headers or {})
            except _NotSentError as error:
                trouble = str(error)
                if not error.passing:
                    raise TicketError(f"{self._where()}: {trouble}") from None
                continue
            except _DroppedError as error:
                trouble = str(error)
                if not repeat:
                    raise LostAnswerError(
                        f"{self._where()}: {trouble}, after {method} was sent: it may have been carried out; look at the ticket, then run "
                        "the command again"
                    ) from None
                continue
            if 200 <= answer.status < 300:
                return answer
            asked = _retry_after(answer)
            limited = answer.status == 403 and (asked is not None or answer.headers.get("X-RateLimit-Remaining") == "0")
            if not (limited or answer.status in _PASSING):
                raise self._refused(answer, method, path)
            trouble = f"answers {answer.status} ({self._said(answer) or http.client.responses.get(answer.status, 'no reason')})"
            if asked is not None and asked > self.options.wait_limit_s:
                raise HttpError(
                    f"{self._where()} {trouble} and asks to wait {asked:.0f} s, longer than the {self.options.wait_limit_s:.0f} s that are "
                    "waited here; run the command again later",
                    answer.status,
                )
            # 429, or an answer that names the time: it was not carried out. Behind the others a gateway may have lost the true answer.
            if not repeat and not (limited or answer.status == 429 or (answer.status == 503 and asked is not None)):
                raise LostAnswerError(
                    f"{self._where()} {trouble} to {method}, which may have been carried out; look at the ticket, then run the command "
                    "again"
                )
            if asked is not None:
                wait = asked
        raise TicketError(f"{self._where()}: {trouble}; tried {self.options.attempts} times; try again later")

    def _where(self) -> str:
        return self.clean(self.base)

    def _follow(self, method: str, address: str, body: Body | None, headers: Mapping[str, str]) -> Answer:
        """At most three redirects, of a GET and within the same host; and back to an encrypted connection."""
        for _ in range(4):
            answer = self._once(method, address, body, headers)
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            location = urljoin(address, answer.headers.get("Location") or "")
            old, new = urlsplit(address), urlsplit(location)
            same = (new.hostname, new.scheme, new.port) == (old.hostname, old.scheme, old.port)
            upgraded = new.hostname == old.hostname and (old.scheme, new.scheme) == ("http", "https")
            if re.search(r"login|sign_in|signin|auth|sso|saml", new.path + (new.hostname or ""), re.IGNORECASE):
                raise HttpError(
                    f"{self._where()} sends to its login page ({_origin(new)}{new.path[:80]}) instead of answering: {self._advice(401)}",
                    401,
                )
            if not same and not upgraded:
                raise HttpError(
                    f"{self._where()} redirects to another server, {_origin(new)}, which is not followed; if that is right, "
                    "name it as the address",
                    answer.status,
                )
            if method != "GET":
                raise HttpError(
                    f"{self._where()} redirects to {_origin(new)}{new.path[:80]}; name that server's address as it is (https, no www)",
                    answer.status,
                )
            address = location
        raise HttpError(f"{self._where()} redirects in a circle; check the server's address", 310)

    def _once(self, method: str, address: str, body: Body | None, headers: Mapping[str, str]) -> Answer:
        parts = urlsplit(address)
        sent = {"User-Agent": "postrun", "Accept": "application/json", **self.headers, **headers}
        if body is not None:
            sent |= {"Content-Type": body.content_type, "Content-Length": str(body.size)}
        elif method in ("POST", "PUT", "PATCH"):
            sent["Content-Length"] = "0"
        connection, target, extra = self._connection(parts.scheme, parts.hostname or "", parts.port, address)
        started = False
        with contextlib.closing(connection):
            try:
                connection.connect()
                started = True
                connection.putrequest(method, target, skip_accept_encoding=True)
                for name, value in {**sent, **extra}.items():
                    connection.putheader(name, value.encode("latin-1"))
                connection.endheaders()
                refused_early = False
                if body is not None:
                    try:
                        for piece in body.pieces():
                            connection.send(piece)
                    except (BrokenPipeError, ConnectionResetError):
                        refused_early = True  # a server that takes no more has often said why
                try:
                    answer = connection.getresponse()
                    data = answer.read(_LONGEST_ANSWER + 1)
                except (OSError, http.client.HTTPException):
                    if refused_early:
                        raise ConnectionResetError("it closed the connection while the file was sent; it may be too large") from None
                    raise
            except ssl.SSLCertVerificationError as error:
                raise _NotSentError(
                    f"its certificate cannot be verified ({error.verify_message or error.reason}); name your authority's certificates with "
                    "POSTRUN_CA_BUNDLE=FILE",
                    passing=False,
                ) from None
            except ssl.SSLError as error:
                if not started:
                    raise _NotSentError(
                        f"no encrypted connection ({error.reason or error}); check the address and its port", passing=False
                    ) from None
                raise _DroppedError(f"the encrypted connection broke ({error.reason or error})") from None
            except socket.gaierror as error:
                raise _NotSentError(
                    f"its name cannot be resolved ({error.strerror}); check the address", passing=error.errno == socket.EAI_AGAIN
                ) from None
            except TimeoutError:
                text = f"no answer within {self.options.timeout_s:g} s"
                raise (_DroppedError(text) if started else _NotSentError(text, passing=True)) from None
            except (OSError, http.client.HTTPException) as error:
                reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
                if not started:
                    hint = " (through the proxy of the environment)" if extra or target.startswith("http") else ""
                    raise _NotSentError(
                        f"no connection{hint}: {reason}", passing=not reason.startswith("Tunnel connection failed: 4")
                    ) from None
                raise _DroppedError(f"the connection broke ({reason})") from None
            if len(data) > _LONGEST_ANSWER:
                raise TicketError(f"{self._where()} answers with more than {_LONGEST_ANSWER >> 20} MiB; check the address")
            return Answer(answer.status, answer.headers, data)

    def _connection(self, scheme: str, host: str, port: int | None, address: str) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
        """A connection, what to ask it for, and headers for a proxy. Proxies are those of the environment."""
        parts = urlsplit(address)
        path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._") + (f"?{parts.query}" if parts.query else "")
        proxy = None if is_loopback(host) or urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(scheme)
        context = self._context() if scheme == "https" else None
        if proxy:
            via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
            if via.scheme != "http" or not via.hostname:
                raise UsageError(
                    f"the proxy of the environment ({via.scheme}://{via.hostname}) is of a kind that is not supported; use http://"
                )
            extra = {}
            if via.username:
                import base64

                login = f"{unquote(via.username)}:{unquote(via.password or '')}"
                extra["Proxy-Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
            if context is None:
                plain = http.client.HTTPConnection(via.hostname, via.port or 80, timeout=self.options.timeout_s)
                return plain, f"http://{parts.netloc}{path}", extra
            tunnel = http.client.HTTPSConnection(via.hostname, via.port or 80, timeout=self.options.timeout_s, context=context)
            tunnel.set_tunnel(host, port or 443, headers=extra)
            return tunnel, path, {}
        if context is None:
            return http.client.HTTPConnection(host, port, timeout=self.options.timeout_s), path, {}
        return http.client.HTTPSConnection(host, port, timeout=self.options.timeout_s, context=context), path, {}

    def _context(self) -> ssl.SSLContext:
        return tls_context(self.options.ca_bundle)

    def _said(self, answer: Answer) -> str:
        """The server's own words, on one line."""
        text = answer.data[:4000].decode("utf-8", "replace")
        if "html" in (answer.headers.get("Content-Type") or "") or text.lstrip().lower().startswith(("<!doctype", "<html")):
            found = re.search(r"<title>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
            text = found[1] if found else ""
        else:
            with contextlib.suppress(ValueError):
                text = _words(json_module.loads(answer.data))
        return self.clean(" ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", " ", text).split())[:300])

    def clean(self, text: str) -> str:
        for secret in self.secrets:
            if len(secret) >= 4:
                text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
        return text

    def _advice(self, status: int) -> str:
        general = {
            401: "the token is missing, wrong or expired",
            403: "the token may not do this, or the ticket is locked",
            404: "there is no such ticket, or the token may not see it; check the ticket and the server's address",
            407: "the proxy of the environment wants a login; set it in HTTPS_PROXY",
            413: "the file is larger than the server takes",
        }
        return self.advice.get(status) or general.get(status) or "check the target and what the server says"

    def _refused(self, answer: Answer, method: str, path: str) -> HttpError:
        said = self._said(answer)
        name = f"{answer.status} {http.client.responses.get(answer.status, '')}".strip()
        place = urlsplit(path).path or "/"
        return HttpError(
            f"{self._where()} refuses {method} {place} ({name}{f': {said}' if said else ''}); {self._advice(answer.status)}",
            answer.status,
            said,
        )

    def _not_json(self, answer: Answer, method: str, path: str) -> HttpError:
        html = answer.data.lstrip()[:200].lower().startswith((b"<!doctype", b"<html", b"<?xml"))
        what = (
            f"with a web page ({self._said(answer) or 'no title'}), such as a login page or a proxy's,"
            if html
            else "with text that is no JSON"
        )
        return HttpError(
            f"{self._where()} answers {method} {urlsplit(path).path} {what} instead of JSON; check the server's address (without the "
            "path of a page) and the token",
            answer.status,
        )


class _NotSentError(Exception):
    """Nothing was carried out."""

    def __init__(self, text: str, *, passing: bool) -> None:
        super().__init__(text)
        self.passing = passing


class _DroppedError(Exception):
    """It may have been carried out."""


def tls_context(ca_bundle: str | None) -> ssl.SSLContext:
    """Certificates are verified: by the system's authorities (SSL_CERT_FILE counts), or those of a file. UsageError for that file."""
    try:
        return ssl.create_default_context(cafile=ca_bundle)
    except (OSError, ssl.SSLError):
        raise UsageError(f"{ca_bundle}: no certificates can be read from it; check POSTRUN_CA_BUNDLE (a PEM file)") from None


def is_loopback(host: str) -> bool:
    """By its text alone: nothing is resolved."""
    return host == "localhost" or host == "::1" or re.fullmatch(r"127(\.[0-9]{1,3}){3}", host) is not None


def _origin(parts: Any) -> str:
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def _words(value: Any) -> str:
    """The texts of an error in JSON: of every shape that ticket servers have."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(filter(None, map(_words, value)))
    if isinstance(value, dict):
        keys = [key for key in ("message", "error", "errorMessages", "errors", "error_description", "msg") if value.get(key)]
        if keys:
            return "; ".join(filter(None, (_words(value[key]) for key in keys)))
        return ", ".join(f"{key}: {_words(one)}" for key, one in value.items() if _words(one))
    return ""


def _retry_after(answer: Answer) -> float | None:
    """Seconds that the server asks to wait; None where it does not say."""
    text = (answer.headers.get("Retry-After") or "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text):
        return float(text)
    if text:
        with contextlib.suppress(ValueError, TypeError):
            at = parsedate_to_datetime(text)
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            return max(0.0, (at - datetime.now(UTC)).total_seconds())
    reset = answer.headers.get("X-RateLimit-Reset") or answer.headers.get("RateLimit-Reset") or ""
    if answer.headers.get("X-RateLimit-Remaining") == "0" and re.fullmatch(r"[0-9]{9,11}", reset):
        return max(0.0, float(reset) - time.time())
    return None
