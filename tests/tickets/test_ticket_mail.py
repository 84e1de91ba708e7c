"""A mail server receives the mail once and completely; tested with aiosmtpd on loopback."""

from __future__ import annotations

import email
import email.policy
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from postrun.errors import UsageError
from postrun.tickets import mail
from postrun.tickets.http import Options, TicketError, Upload
from postrun.tickets.message import from_report
from postrun.tickets.settings import Settings
from postrun.tickets.target import parse
from ticket_fakes import report_json

SLEPT: list[float] = []
MESSAGE = from_report(report_json(), link="https://reports.example.org/r")
PDF = Upload("gpt-350m-x0.pdf", "application/pdf", 9, data=b"%PDF \x00\xff.\n")


class Inbox:
    def __init__(self) -> None:
        self.mails: list[Any] = []
        self.answers: list[str] = []
        self.refused: dict[str, str] = {}

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: list[str]) -> str:  # noqa: N802
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.answers:
            return self.answers.pop(0)
        self.mails.append((list(envelope.rcpt_tos), email.message_from_bytes(envelope.content, policy=email.policy.default)))
        return "250 OK"


def check_login(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    good = isinstance(data, LoginPassword) and (data.login, data.password) == (b"bot", b"s3cret-password")
    return AuthResult(success=good, handled=False)


@contextmanager
def serving(**more: Any) -> Iterator[tuple[Inbox, dict[str, str]]]:
    inbox = Inbox()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    controller = Controller(inbox, hostname="127.0.0.1", port=port, **more)
    controller.start()
    SLEPT.clear()
    try:
        yield (
            inbox,
            {
                "POSTRUN_MAIL_HOST": "127.0.0.1",
                "POSTRUN_MAIL_PORT": str(port),
                "POSTRUN_MAIL_SECURITY": "none",
                "POSTRUN_MAIL_FROM": "Bot <bot@example.org>",
            },
        )
    finally:
        controller.stop()


def mailer(environment: dict[str, str], to: str = "mailto:team@example.org", **more: Any) -> mail.Mailer:
    return mail.mailer(parse(to), Settings(environment), Options(**{"timeout_s": 5, "backoff_s": 0.01, "sleep": SLEPT.append, **more}))


def test_text_html_and_the_file_arrive() -> None:
    with serving() as (inbox, environment):
        assert "sent a mail" in mailer(environment, "mailto:team@example.org,b@example.org").deliver(MESSAGE, [PDF]).did
        ((addresses, got),) = inbox.mails
    assert addresses == ["team@example.org", "b@example.org"]
    assert got["Subject"] == "[postrun] gpt-350m: 4 issues"
    assert got["From"] == "Bot <bot@example.org>"
    assert got["To"] == "team@example.org, b@example.org"
    text = got.get_body(("plain",)).get_content()
    assert "- LowGPUUtilization: issue: 8 of 8 GPUs are used too little." in text
    assert "The whole report: https://reports.example.org/r" in text
    assert "<strong>GPUs were busy 91% of the time.</strong>" in got.get_body(("html",)).get_content()
    (file,) = got.iter_attachments()
    assert (file.get_filename(), file.get_content_type(), file.get_content()) == (PDF.name, "application/pdf", PDF.data)


def test_the_same_mail_has_the_same_name_and_another_one_refers_to_it() -> None:
    with serving() as (inbox, environment):
        for message in (MESSAGE, MESSAGE, replace(MESSAGE, headline="new")):
            mailer(environment).deliver(message, [])
        names = [got["Message-ID"] for _, got in inbox.mails]
        assert names[0] == names[1] != names[2]
        assert len({got["References"] for _, got in inbox.mails}) == 1


def test_a_name_adds_no_header_and_no_address() -> None:
    evil = "x\r\nBcc: evil@example.org\r\n\r\n<script>alert(1)</script>é"
    with serving() as (inbox, environment):
        mailer(environment).deliver(from_report(report_json(run={"name": evil, "status": "completed"})), [])
        ((addresses, got),) = inbox.mails
    assert addresses == ["team@example.org"]
    assert got["Bcc"] is None
    assert "Bcc: evil@example.org" in got["Subject"]
    assert "<script>" not in got.get_body(("html",)).get_content()


def test_the_size_that_the_server_names_is_respected_before_sending() -> None:
    with serving(data_size_limit=20_000) as (inbox, environment):
        big = Upload("r.pdf", "application/pdf", 30_000, data=b"x" * 30_000)
        with pytest.raises(TicketError, match=r"accepts mails of at most 19.5 KiB, this one has .* KiB; .*--link"):
            mailer(environment).deliver(MESSAGE, [big])
        mailer(environment).deliver(MESSAGE, [PDF])
        assert len(inbox.mails) == 1


def test_a_server_that_says_552_afterward_is_heard() -> None:
    with serving() as (inbox, environment):
        inbox.answers = ["552 5.3.4 Message too big for the mailbox"]
        with pytest.raises(TicketError, match=r"does not accept a mail of .*552 5.3.4 Message too big for the mailbox.*--attach none"):
            mailer(environment).deliver(MESSAGE, [PDF])
        assert inbox.mails == []


def test_graylisting_is_waited_for_and_a_refusal_is_told() -> None:
    with serving() as (inbox, environment):
        inbox.answers = ["451 4.7.1 Greylisted, try again"] * 2
        mailer(environment).deliver(MESSAGE, [])
        assert len(inbox.mails) == 1
        assert len(SLEPT) == 2
        inbox.answers = ["550 5.7.1 no mails of this kind"]
        with pytest.raises(TicketError, match=r"refuses the mail \(550 5.7.1 no mails of this kind\)"):
            mailer(environment).deliver(MESSAGE, [])


def test_addresses_that_are_refused_are_named() -> None:
    with serving() as (inbox, environment):
        inbox.refused = {"gone@example.org": "550 5.1.1 no such user"}
        outcome = mailer(environment, "mailto:gone@example.org,team@example.org").deliver(MESSAGE, [])
        assert outcome.problem is not None
        assert "gone@example.org: 550 5.1.1 no such user" in outcome.problem
        assert [to for to, _ in inbox.mails] == [["team@example.org"]]
        with pytest.raises(TicketError, match="refuses every address"):
            mailer(environment, "mailto:gone@example.org").deliver(MESSAGE, [])


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("mail")
    cert, key = folder / "cert.pem", folder / "key.pem"
    result = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run(
        [*result, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


def test_starttls_and_a_login(context: tuple[ssl.SSLContext, Path]) -> None:
    more = {"tls_context": context[0], "require_starttls": True, "auth_required": True, "authenticator": check_login}
    with serving(**more) as (inbox, environment):
        environment |= {"POSTRUN_MAIL_SECURITY": "starttls", "POSTRUN_MAIL_USER": "bot", "POSTRUN_MAIL_PASSWORD": "s3cret-password"}
        with pytest.raises(TicketError, match="certificate cannot be verified"):
            mailer(environment).deliver(MESSAGE, [])
        mailer(environment, ca_bundle=str(context[1])).deliver(MESSAGE, [])
        assert len(inbox.mails) == 1
        environment["POSTRUN_MAIL_PASSWORD"] = "wrong-and-secret"
        with pytest.raises(TicketError, match="does not accept the login") as caught:
            mailer(environment, ca_bundle=str(context[1])).deliver(MESSAGE, [])
        assert "wrong-and-secret" not in str(caught.value)
        assert "wrong-and-secret" not in repr(mailer(environment))


def test_a_server_without_starttls_gets_no_mail() -> None:
    with serving() as (inbox, environment):
        with pytest.raises(TicketError, match="does not offer STARTTLS; set POSTRUN_MAIL_SECURITY"):
            mailer({**environment, "POSTRUN_MAIL_SECURITY": "starttls"}).deliver(MESSAGE, [])
        assert inbox.mails == []


def test_nobody_listens() -> None:
    with serving() as (_, environment):
        pass
    with pytest.raises(TicketError, match=r"no connection \(Connection refused\); tried 5 times"):
        mailer(environment).deliver(MESSAGE, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"POSTRUN_MAIL_HOST": ""}, "POSTRUN_MAIL_HOST"),
        ({"POSTRUN_MAIL_PORT": "many"}, "from 1 to 65535"),
        ({"POSTRUN_MAIL_SECURITY": "ssl"}, "starttls"),
        ({"POSTRUN_MAIL_USER": "bot"}, "POSTRUN_MAIL_PASSWORD"),
        ({"POSTRUN_MAIL_HOST": "mail.example.org", "POSTRUN_MAIL_USER": "bot", "POSTRUN_MAIL_PASSWORD": "x"}, "--insecure-http"),
        ({"POSTRUN_MAIL_FROM": "nobody"}, "POSTRUN_MAIL_FROM"),
    ],
)
def test_settings_that_are_wrong_are_told(change: dict[str, str], message: str) -> None:
    base = {"POSTRUN_MAIL_HOST": "127.0.0.1", "POSTRUN_MAIL_SECURITY": "none", "POSTRUN_MAIL_FROM": "a@b.org"}
    with pytest.raises(UsageError, match=message):
        mailer({**base, **change})
