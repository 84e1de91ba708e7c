"""Requests are repeated only when that is safe, and every failure is reported without a secret."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from loopback import serving
from postrun.errors import UsageError
from postrun.tickets.http import Client, HttpError, LostAnswerError, Options, TicketError, Upload, multipart
from ticket_fakes import Fake, RefusedError, Request


class Echo(Fake):
    """Answers every request with what it got."""

    def authorize(self, request: Request) -> None:
        if request.path == "/refuse":
            raise RefusedError(400, {"errors": {"body": "is bad"}, "errorMessages": ["and a\nsecond s3cret-token-value"]})

    def routes(self) -> list[Any]:
        def echo(request: Request, *_: str) -> tuple[int, Any]:
            return 200, {"path": request.raw_path, "query": request.query, "size": len(request.data)}

        return [(method, "/.*", echo) for method in ("GET", "POST", "PUT", "DELETE", "PATCH")]


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def server() -> Iterator[Any]:
    with Echo().serving() as fake:
        yield fake


def client(server: Any, slept: list[float], **more: Any) -> Client:
    options = Options(**{"timeout_s": 3, "backoff_s": 0.5, "sleep": slept.append, **more})
    return Client(server.url, {"Authorization": "Bearer s3cret-token-value"}, options, ("s3cret-token-value",))


def test_retry_after_in_seconds_and_as_a_date(server: Any, slept: list[float]) -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    server.faults += [("GET", "/x", (429, {"Retry-After": "11"})), ("GET", "/x", (503, {"Retry-After": at}))]
    message: list[str] = []
    assert client(server, slept, tell=message.append).json("GET", "/x")["path"] == "/x"
    assert slept[0] == 11
    assert 25 < slept[1] <= 30
    assert [line.partition("; ")[2] for line in message] == ["trying again in 11 s", f"trying again in {slept[1]:.0f} s"]
    assert all(line.startswith(f"{server.url}: answers {code} ") for line, code in zip(message, (429, 503), strict=True))


def test_a_wait_that_is_too_long_is_told(server: Any, slept: list[float]) -> None:
    server.faults.append(("GET", "/x", (429, {"Retry-After": "86400"})))
    with pytest.raises(HttpError, match=r"asks to wait 86400 s, longer than the 120 s"):
        client(server, slept).json("GET", "/x")
    assert slept == []


def test_a_used_up_limit_names_when_it_ends(server: Any, slept: list[float]) -> None:
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 20)}
    server.faults.append(("POST", "/x", (403, headers)))
    client(server, slept).json("POST", "/x", value={})
    assert 15 < slept[0] <= 20


def test_backoff_grows_and_ends(server: Any, slept: list[float]) -> None:
    server.faults += [("GET", "/x", (502, {}))] * 9
    with pytest.raises(TicketError, match=r"502 .*tried 5 times"):
        client(server, slept).json("GET", "/x")
    assert len(server.requests) == 5
    assert [0.3 < slept[0] < 0.7, 0.7 < slept[1] < 1.3, 1.4 < slept[2] < 2.6, 2.9 < slept[3] < 5.1] == [True] * 4


@pytest.mark.parametrize("fault", [(502, {}), (504, {}), (503, {}), "drop", "lose"])
def test_a_post_is_not_repeated_where_it_may_have_been_carried_out(server: Any, slept: list[float], fault: Any) -> None:
    server.faults.append(("POST", "/x", fault))
    with pytest.raises(LostAnswerError, match="look at the ticket"):
        client(server, slept).json("POST", "/x", value={"a": 1})
    assert len(server.requests) == 1


@pytest.mark.parametrize("fault", [(429, {}), (503, {"Retry-After": "1"})])
def test_a_post_that_was_turned_away_is_repeated_with_its_whole_body(server: Any, slept: list[float], fault: Any) -> None:
    server.faults.append(("POST", "/x", fault))
    body = multipart([("a", "b")], [("file", Upload("r.pdf", "application/pdf", 700_000, data=b"x" * 700_000))])
    answer = client(server, slept).send("POST", "/x", body=body)
    assert json.loads(answer.data)["size"] == len(body.data) == len(server.requests[0].data)


def test_nobody_listens(slept: list[float]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with pytest.raises(TicketError, match=r"no connection: Connection refused; tried 3 times"):
        Client(f"http://127.0.0.1:{port}", {}, Options(attempts=3, sleep=slept.append)).json("POST", "/", value={})


def test_no_answer_in_time(slept: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = Options(timeout_s=0.2, attempts=2, sleep=slept.append)
        with pytest.raises(TicketError, match=r"no answer within 0.2 s; tried 2 times"):
            Client(address, {}, options).json("GET", "/")
        with pytest.raises(LostAnswerError, match=r"no answer within 0.2 s"):
            Client(address, {}, options).json("POST", "/", value={})


def test_the_servers_words_are_told_on_one_line_without_the_token(server: Any, slept: list[float]) -> None:
    with pytest.raises(HttpError) as caught:
        client(server, slept).json("POST", "/refuse", value={})
    assert "and a second ***" in str(caught.value)
    assert "body: is bad" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("http://localhost:1/x", "redirects to another server, http://localhost:1"),
        ("https://evil.example/x", "redirects to another server, https://evil.example"),
        ("//evil.example/x", "redirects to another server"),
        ("/users/sign_in", "login page"),
        ("/x", "in a circle"),
    ],
)
def test_redirects_that_are_not_followed(server: Any, slept: list[float], location: str, message: str) -> None:
    server.faults += [("GET", "/x", (302, {"Location": location}))] * 9
    with pytest.raises(HttpError, match=message):
        client(server, slept).json("GET", "/x")


def test_a_redirect_within_the_host_is_followed_for_get_alone(server: Any, slept: list[float]) -> None:
    server.faults += [("GET", "/x", (301, {"Location": "/moved"})), ("POST", "/x", (301, {"Location": "/moved"}))]
    assert client(server, slept).json("GET", "/x")["path"] == "/moved"
    with pytest.raises(HttpError, match="name that server's address as it is"):
        client(server, slept).json("POST", "/x", value={})


@pytest.mark.parametrize("base", ["http://tickets.example.org", "http://127.0.0.1.example.org", "http://localhost.example.org/x"])
def test_a_token_is_not_sent_in_the_open(base: str) -> None:
    with pytest.raises(UsageError, match="--insecure-http"):
        Client(base, {"Authorization": "Bearer x"})
    Client(base, {}, Options(insecure_http=True))
    for ours in ("http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://tickets.example.org"):
        Client(ours, {})


@pytest.mark.parametrize("base", ["tickets.example.org", "ftp://x.y", "https://", "https://user:pw@x.y", "https://x.y:99999", "https://[x"])
def test_addresses_that_are_none(base: str) -> None:
    with pytest.raises(UsageError):
        Client(base, {})


def test_a_host_with_other_letters_is_written_as_the_network_needs_it() -> None:
    assert Client("https://bücher.example/tickets/", {}).base == "https://xn--bcher-kva.example/tickets"


def test_an_answer_that_ends_early_is_no_answer(slept: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def cut() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(2000)
                    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{"id": 1}')

        thread = threading.Thread(target=cut)
        thread.start()
        cautious = Client(f"http://127.0.0.1:{listening.getsockname()[1]}", {}, Options(attempts=1, sleep=slept.append))
        with pytest.raises(TicketError, match="the connection broke"):
            cautious.json("GET", "/")
        with pytest.raises(LostAnswerError, match="may have been carried out"):
            cautious.json("POST", "/", value={})
        thread.join(5)


def test_a_token_with_a_line_end_cannot_add_a_header() -> None:
    with pytest.raises(UsageError, match="no header can have"):
        Client("https://x.y", {"PRIVATE-TOKEN": "abc\r\nX-Evil: 1"})


def test_a_file_that_shrinks_while_it_is_sent(server: Any, slept: list[float], tmp_path: Path) -> None:
    file = tmp_path / "report.pdf"
    file.write_bytes(b"x" * 10)
    with pytest.raises(TicketError, match="became shorter"):
        client(server, slept).send("POST", "/x", body=multipart([], [("file", Upload("r.pdf", "application/pdf", 20, file))]))


def test_a_server_that_refuses_a_large_file_early_is_heard(slept: list[float]) -> None:
    """It answers 413 after the headers, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(2000)
                connection.sendall(b"HTTP/1.1 413 Payload Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                time.sleep(0.2)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 20):
                    pass

        thread = threading.Thread(target=refuse)
        thread.start()
        body = multipart([], [("file", Upload("r.pdf", "application/pdf", 3_000_000, data=b"x" * 3_000_000))])
        with pytest.raises(HttpError) as caught:
            Client(f"http://127.0.0.1:{listening.getsockname()[1]}", {}, Options(sleep=slept.append)).send("POST", "/x", body=body)
        thread.join(5)
    assert caught.value.status == 413


class Proxy(BaseHTTPRequestHandler):
    seen: list[tuple[str, str, str]] = []  # noqa: RUF012

    def do_CONNECT(self) -> None:
        self.seen.append(("CONNECT", self.path, self.headers.get("Proxy-Authorization", "")))
        self.send_response(407)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.seen.append(("GET", self.path, self.headers.get("Proxy-Authorization", "")))
        data = b'{"through": "proxy"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


def test_the_proxy_of_the_environment_is_used_and_its_refusal_told(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    Proxy.seen.clear()
    with serving(Proxy) as port:
        monkeypatch.setenv("http_proxy", f"http://me:pa%3Ass@127.0.0.1:{port}")
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        options = Options(insecure_http=True, sleep=slept.append)
        assert Client("http://tickets.invalid", {}, options).json("GET", "/x y") == {"through": "proxy"}
        with pytest.raises(TicketError, match="407"):
            Client("https://tickets.invalid", {}, options).json("GET", "/x")
    login = "Basic " + base64.b64encode(b"me:pa:ss").decode()
    assert Proxy.seen == [("GET", "http://tickets.invalid/x%20y", login), ("CONNECT", "tickets.invalid:443", "")]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that no authority knows, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
         "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)  # fmt: skip
    return cert, key


def test_certificates_are_verified(certificate: tuple[Path, Path], slept: list[float]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with serving(Proxy, context) as port:
        with pytest.raises(TicketError, match=r"certificate cannot be verified .*POSTRUN_CA_BUNDLE"):
            Client(f"https://127.0.0.1:{port}", {}, Options(sleep=slept.append)).json("GET", "/")
        options = Options(ca_bundle=str(certificate[0]), sleep=slept.append)
        assert Client(f"https://127.0.0.1:{port}", {}, options).json("GET", "/") == {"through": "proxy"}
        with pytest.raises(TicketError, match=r"no encrypted connection|the connection broke"):
            Client(f"http://127.0.0.1:{port}", {}, Options(attempts=1, sleep=slept.append)).json("GET", "/")
    assert slept == []


def test_https_to_a_plain_port_is_told(server: Any, slept: list[float]) -> None:
    with pytest.raises(TicketError, match="no encrypted connection"):
        Client(server.url.replace("http:", "https:"), {}, Options(sleep=slept.append)).json("GET", "/")
