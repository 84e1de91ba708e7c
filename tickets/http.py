"""HTTP requests to ticket servers: method, path and body -> the answer, or an error that names the next step.

urllib3 sends the requests. This module adds what a ticket needs: a request that may have been carried out is not repeated blindly, only
the named host is contacted, and no message contains a secret.
"""

from __future__ import annotations

import contextlib
import json as json_module
import random
import re
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import responses
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, InvalidHeader, ProxyError
from urllib3.util import Retry, Url, make_headers, parse_url

from ..errors import PostrunError, UsageError

_IDEMPOTENT: Final = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_TEMPORARY: Final = frozenset({429, 502, 503, 504})
_REDIRECTS: Final = 3
_LONGEST_ANSWER: Final = 64 << 20  # bytes
_CHUNK: Final = 1 << 18  # bytes
_RETRY_AFTER: Final = Retry(retry_after_max=10**9)  # parses the header; `Options.wait_limit_s` is the limit
_ADVICE: Final = {
    401: "the token is missing, wrong or expired",
    403: "the token may not do this, or the ticket is locked",
    404: "there is no such ticket, or the token may not see it; check the ticket and the server's address",
    407: "the proxy of the environment requires a login; set it in HTTPS_PROXY",
    413: "the file is larger than the server accepts",
}


class TicketError(PostrunError):
    """The server cannot be reached, or refuses. Names the target and the next step, never a secret (exit code 1)."""


class HttpError(TicketError):
    """The server answered with an error. ``words``: its explanation."""

    def __init__(self, message: str, status: int, words: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.words = words


class UnreachableError(TicketError):
    """The server did not answer, or stayed busy: other requests would wait as long."""


class LostAnswerError(TicketError):
    """A request that must not be repeated blindly was sent, and no answer came: it may have been carried out."""


class _ConnectionError(Exception):
    """``sent``: the server may have carried the request out. ``temporary``: another try may succeed."""

    def __init__(self, text: str, *, sent: bool, temporary: bool = True) -> None:
        super().__init__(text)
        self.sent, self.temporary = sent, temporary


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to send, from ``path`` or ``data``. ``name``: its name on the server. ``size``: in bytes."""

    name: str
    content_type: str
    size: int
    path: Path | None = None
    data: bytes = field(default=b"", repr=False)

    def read(self) -> bytes:
        """Return the content. Raise TicketError if the file disappeared or shrank."""
        if self.path is None:
            return self.data
        try:
            with self.path.open("rb") as file:
                content = file.read(self.size)
        except OSError as error:
            raise TicketError(f"{self.path}: {error.strerror}; write the report again, then attach it") from None
        if len(content) < self.size:
            raise TicketError(f"{self.path} became shorter; write the report again, then attach it")
        return content


@dataclass(frozen=True, slots=True)
class Body:
    content_type: str
    data: bytes = field(repr=False)


def headers_of(text: str, name: str) -> dict[str, str]:
    """Return headers that are written one per line. Raise UsageError with ``name``."""
    headers = {}
    for line in filter(None, map(str.strip, re.split(r"\r?\n", text))):
        header, colon, value = line.partition(":")
        if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", header.strip()):
            raise UsageError(f"{name}: every line must be NAME: VALUE, such as Authorization: Bearer ...")
        headers[header.strip()] = value.strip()
    return headers


def json_body(value: Any) -> Body:
    return Body("application/json", json_module.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def multipart(fields: Sequence[tuple[str, str]], files: Sequence[tuple[str, Upload]]) -> Body:
    """Encode a form (RFC 7578)."""
    parts: list[tuple[str, Any]] = [*fields, *((name, (file.name, file.read(), file.content_type)) for name, file in files)]
    data, content_type = urllib3.encode_multipart_formdata(parts)
    return Body(content_type, data)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Options:
    """``timeout_s``: of each send and receive. ``wait_limit_s``: the longest wait that a server may request. ``tell`` receives a message
    before each wait. ``release``: of a GitHub repository, for its files."""

    timeout_s: float = 60
    attempts: int = 5
    wait_limit_s: float = 120
    backoff_s: float = 1
    insecure_http: bool = False
    ca_bundle: str | None = None
    release: str | None = None
    sleep: Callable[[float], None] = time.sleep
    tell: Callable[[str], object] = lambda _: None


@dataclass
class Client:
    """Requests to one server. ``base``: its address. ``secrets``: what no message may contain. ``advice``: the next step by status."""

    base: str
    headers: Mapping[str, str] = field(repr=False)
    options: Options = field(default_factory=Options)
    secrets: Sequence[str] = field(default=(), repr=False)
    advice: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.base = self.base.rstrip("/")
        try:
            host = urlsplit(self.base).hostname or ""
            if not host.isascii():
                self.base = self.base.replace(host, host.encode("idna").decode(), 1)
            url = parse_url(self.base)
        except ValueError:
            url = Url()
        if url.scheme not in ("http", "https") or not url.host:
            raise UsageError(f"{self.base!r} is not the address of a server; write for example https://tickets.example.org")
        if url.auth is not None:
            raise UsageError("the address of a server must not contain a name or password; set its token instead")
        if url.scheme == "http" and not self.options.insecure_http and not is_loopback(url.host):
            raise UsageError(f"{self.base} is not encrypted, and the token would be read on the way: write https, or add --insecure-http")
        for name, value in self.headers.items():
            if re.search(r"[^\t\x20-\x7e\x80-\xff]", name + value) or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                raise UsageError(f"the value for the header {name!r} has characters that no header can have; check the token's file")

    def json(self, method: str, path: str, *, value: Any = None, **request: Any) -> Any:
        """Send ``value`` as JSON, or `send`'s arguments; return the answer's JSON."""
        if value is not None:
            request["body"] = json_body(value)
        answer = self.send(method, path, **request)
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
        """Send one request, and repeat it while the trouble may pass.

        ``retry``: whether it may be repeated although it may have been carried out; None: depends on the method. Raise HttpError,
        LostAnswerError, TicketError."""
        address = path if path.startswith(("https://", "http://")) else self.base + path
        if query:
            address += ("&" if "?" in address else "?") + urlencode(query)
        repeatable = method in _IDEMPOTENT if retry is None else retry
        trouble, wait = "", 0.0
        for attempt in range(self.options.attempts):
            if attempt:
                self.options.tell(f"{self._server}: {self.clean(trouble)}; trying again in {max(wait, 1):.0f} s")
                self.options.sleep(wait)
            wait = self.options.backoff_s * 2**attempt * random.uniform(0.75, 1.25)
            try:
                answer = self._follow(method, address, body, headers or {})
            except _ConnectionError as error:
                trouble = str(error)
                if error.sent and not repeatable:
                    raise self._lost(f"{self._server}: {trouble}, after {method} was sent: it") from None
                if not error.temporary:
                    raise UnreachableError(f"{self._server}: {trouble}") from None
                continue
            if 200 <= answer.status < 300:
                return answer
            requested = _requested_wait(answer)
            limited = answer.status == 403 and (requested is not None or answer.headers.get("X-RateLimit-Remaining") == "0")
            if not (limited or answer.status in _TEMPORARY):
                raise self._refused(answer, method, path)
            trouble = f"answers {answer.status} ({self._words(answer) or responses.get(answer.status, 'no reason')})"
            if requested is not None and requested > self.options.wait_limit_s:
                limit = f"longer than the {self.options.wait_limit_s:.0f} s that postrun waits; run the command again later"
                raise self._error(f"{trouble} and asks to wait {requested:.0f} s, {limit}", answer.status)
            # A 429, and a 503 that names a time, were not carried out. A gateway with another status may have lost the server's answer.
            if not (repeatable or limited or answer.status == 429 or (answer.status == 503 and requested is not None)):
                raise self._lost(f"{self._server} {trouble} to {method}, which")
            wait = wait if requested is None else requested
        raise UnreachableError(f"{self._server}: {trouble}; tried {self.options.attempts} times; try again later")

    @property
    def _server(self) -> str:
        return self.clean(self.base)

    def _error(self, text: str, status: int, words: str = "") -> HttpError:
        return HttpError(self.clean(f"{self.base} {text}"), status, words)

    @staticmethod
    def _lost(text: str) -> LostAnswerError:
        return LostAnswerError(f"{text} may have been carried out; look at the ticket, then run the command again")

    def _follow(self, method: str, address: str, body: Body | None, headers: Mapping[str, str]) -> Answer:
        """Follow redirects of a GET within a host, also to its encrypted connection."""
        for _ in range(_REDIRECTS + 1):
            answer = self._once(method, address, body, headers)
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            location = urljoin(address, answer.headers.get("Location") or "")
            old, new = urlsplit(address), urlsplit(location)
            origin = f"{new.scheme}://{new.hostname}" + (f":{new.port}" if new.port else "")
            target = f"{origin}{self.clean(new.path)[:80]}"
            same = (new.hostname, new.scheme, new.port) == (old.hostname, old.scheme, old.port)
            upgraded = new.hostname == old.hostname and (old.scheme, new.scheme) == ("http", "https")
            if re.search(r"login|sign_in|signin|auth|sso|saml", new.path + (new.hostname or ""), re.IGNORECASE):
                raise self._error(f"sends to its login page ({target}) instead of answering: {self._next_step(401)}", 401)
            if not same and not upgraded:
                advice = "which is not followed; if that is right, name it as the address"
                raise self._error(f"redirects to another server, {origin}, {advice}", answer.status)
            if method != "GET":
                raise self._error(f"redirects to {target}; name that server's address as it is (https, no www)", answer.status)
            address = location
        raise self._error("redirects in a circle; check the server's address", 310)

    def _once(self, method: str, address: str, body: Body | None, headers: Mapping[str, str]) -> Answer:
        all_headers = {"User-Agent": "postrun", "Accept": "application/json", **self.headers, **headers}
        begun = False

        def pieces(body: Body) -> Iterator[bytes]:
            """Yield the body, which urllib3 requests after it has sent the headers."""
            nonlocal begun
            begun = True
            yield from (body.data[start : start + _CHUNK] for start in range(0, len(body.data), _CHUNK))

        if body is not None:
            all_headers |= {"Content-Type": body.content_type, "Content-Length": str(len(body.data))}
        data = bytearray()
        pool = self._pool(address)
        try:
            with (
                pool,
                pool.urlopen(
                    method,
                    address,
                    body=None if body is None else pieces(body),
                    headers=all_headers,
                    retries=False,
                    redirect=False,
                    timeout=self.options.timeout_s,
                    preload_content=False,
                ) as response,
            ):
                for chunk in response.stream(_CHUNK, decode_content=False):
                    data += chunk
                    if len(data) > _LONGEST_ANSWER:
                        raise TicketError(f"{self._server} answers with more than {_LONGEST_ANSWER >> 20} MiB; check the address")
                return Answer(response.status, response.headers, bytes(data))
        except HTTPError as error:
            raise self._failure(error, begun, isinstance(pool, urllib3.ProxyManager)) from None

    def _pool(self, address: str) -> urllib3.PoolManager:
        """Return the connections for one request, through the environment's proxy."""
        url = urlsplit(address)
        host = url.hostname or ""
        proxy = None if is_loopback(host) or urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(url.scheme)
        context = tls_context(self.options.ca_bundle) if url.scheme == "https" else None
        if not proxy:
            return urllib3.PoolManager(ssl_context=context)
        try:
            via = parse_url(proxy)
            login = make_headers(proxy_basic_auth=unquote(via.auth)) if via.auth else None
            return urllib3.ProxyManager(via.url, proxy_headers=login, ssl_context=context)
        except (HTTPError, ValueError):
            raise UsageError("the proxy of the environment is not supported; use http://HOST:PORT") from None

    def _failure(self, error: HTTPError, begun: bool, proxied: bool) -> _ConnectionError:
        """Explain why there is no answer. ``begun``: a body was being sent."""
        cause = _cause(error)
        unconnected = isinstance(error, ConnectTimeoutError | ProxyError)
        if isinstance(cause, ssl.SSLCertVerificationError):
            advice = "name your authority's certificates with POSTRUN_CA_BUNDLE=FILE"
            text = f"its certificate cannot be verified ({cause.verify_message or cause.reason}); {advice}"
            return _ConnectionError(text, sent=False, temporary=False)
        if isinstance(cause, ssl.SSLError) and not begun:
            text = f"no encrypted connection ({cause.reason or cause}); check the address and its port"
            return _ConnectionError(text, sent=False, temporary=False)
        if isinstance(cause, socket.gaierror):
            text = f"its name cannot be resolved ({cause.strerror}); check the address"
            return _ConnectionError(text, sent=False, temporary=cause.errno == socket.EAI_AGAIN)
        if isinstance(cause, TimeoutError):
            return _ConnectionError(f"no answer within {self.options.timeout_s:g} s", sent=begun)
        reason = (cause.strerror if isinstance(cause, OSError) else None) or str(cause) or type(cause).__name__
        if not unconnected:
            return _ConnectionError(f"the connection broke ({reason})", sent=True)
        hint = " (through the proxy of the environment)" if proxied else ""
        # 4xx: the proxy refuses, and will refuse again.
        return _ConnectionError(
            f"no connection{hint}: {reason}", sent=False, temporary=not reason.startswith("Tunnel connection failed: 4")
        )

    def _words(self, answer: Answer) -> str:
        """Return the server's own words, on one line."""
        text = answer.data[:4000].decode("utf-8", "replace")
        if "html" in (answer.headers.get("Content-Type") or "") or text.lstrip().lower().startswith(("<!doctype", "<html")):
            title = re.search(r"<title>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
            text = title[1] if title else ""
        else:
            with contextlib.suppress(ValueError):
                text = _texts(json_module.loads(answer.data))
        return self.clean(" ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", " ", text).split())[:300])

    def clean(self, text: str) -> str:
        """Replace every secret by ``***``."""
        for secret in self.secrets:
            if len(secret) >= 4:
                text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
        return text

    def _next_step(self, status: int) -> str:
        return self.advice.get(status) or _ADVICE.get(status) or "check the target and the server's answer"

    def _refused(self, answer: Answer, method: str, path: str) -> HttpError:
        words = self._words(answer)
        reason = f"{answer.status} {responses.get(answer.status, '')}".strip() + (f": {words}" if words else "")
        text = f"refuses {method} {urlsplit(path).path or '/'} ({reason}); {self._next_step(answer.status)}"
        return self._error(text, answer.status, words)

    def _not_json(self, answer: Answer, method: str, path: str) -> HttpError:
        kind = "with text that is not JSON"
        if answer.data.lstrip()[:200].lower().startswith((b"<!doctype", b"<html", b"<?xml")):
            kind = f"with a web page ({self._words(answer) or 'no title'}), such as a login page or a proxy's, instead of JSON"
        advice = "check the server's address (without the path of a page) and the token"
        return self._error(f"answers {method} {urlsplit(path).path} {kind}; {advice}", answer.status)


def tls_context(ca_bundle: str | None) -> ssl.SSLContext:
    """Verify certificates with the system's authorities or those of a file.

    SSL_CERT_FILE overrides the system's. Raise UsageError for an unusable file."""
    try:
        return ssl.create_default_context(cafile=ca_bundle)
    except (OSError, ssl.SSLError):
        raise UsageError(f"{ca_bundle}: no certificates can be read from it; check POSTRUN_CA_BUNDLE (a PEM file)") from None


def is_loopback(host: str) -> bool:
    """Decide by the text alone; nothing is resolved."""
    return host in ("localhost", "::1", "[::1]") or re.fullmatch(r"127(\.[0-9]{1,3}){3}", host) is not None


def _cause(error: BaseException) -> BaseException:
    """Return the innermost exception that urllib3 wrapped."""
    while inner := error.__cause__ or next((arg for arg in error.args if isinstance(arg, BaseException)), None):
        error = inner
    return error


def _texts(value: Any) -> str:
    """Join the texts of an error in JSON, in every shape that ticket servers use."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(filter(None, map(_texts, value)))
    if isinstance(value, dict):
        keys = [key for key in ("message", "error", "errorMessages", "errors", "error_description", "msg") if value.get(key)]
        if keys:
            return "; ".join(filter(None, (_texts(value[key]) for key in keys)))
        return ", ".join(f"{key}: {text}" for key, item in value.items() if (text := _texts(item)))
    return ""


def _requested_wait(answer: Answer) -> float | None:
    """Return the seconds that the server asks to wait; None if it does not."""
    if text := answer.headers.get("Retry-After"):
        with contextlib.suppress(InvalidHeader):
            return _RETRY_AFTER.parse_retry_after(text)
    reset = answer.headers.get("X-RateLimit-Reset") or answer.headers.get("RateLimit-Reset") or ""
    if answer.headers.get("X-RateLimit-Remaining") == "0" and re.fullmatch(r"[0-9]{9,11}", reset):
        return max(0.0, float(reset) - time.time())
    return None
