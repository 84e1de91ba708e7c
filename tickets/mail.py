"""A report by mail: text and HTML in one message, the files attached, through the SMTP server of the settings."""

from __future__ import annotations

import contextlib
import hashlib
import smtplib
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate
from typing import Final

from ..analysis.wording import size as size_words
from ..errors import UsageError
from .http import Options, TicketError, Upload, is_loopback, tls_context
from .markup import as_html, plain, text
from .message import FileLink, Message, blocks, marker, slug
from .settings import Settings
from .target import Target
from .tracker import Outcome

_PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}


@dataclass(frozen=True)
class Mailer:
    target: Target
    host: str
    port: int
    security: str
    sender: str
    options: Options
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def deliver(self, message: Message, files: Sequence[Upload]) -> Outcome:
        """Raises TicketError where it is not accepted for every address."""
        mail = self.composed(message, files)
        data = mail.as_bytes(policy=mail.policy.clone(linesep="\r\n"))
        reason = ""
        for attempt in range(self.options.attempts):
            if attempt:
                self.options.sleep(self.options.backoff_s * 2 ** (attempt - 1))
            try:
                return self._once(mail, data)
            except _PassingError as error:
                reason = str(error)
        raise TicketError(f"{self._where}: {reason}; tried {self.options.attempts} times; try again later")

    @property
    def _where(self) -> str:
        return f"mail server {self.host}:{self.port}"

    def composed(self, message: Message, files: Sequence[Upload]) -> EmailMessage:
        """The mail. Its Message-ID follows from what it says, so that programs that look at it show the same mail once; it refers to the
        run, so that mails about one run stand together."""
        mark = marker(message.key)
        made = blocks(message, [FileLink(file.name) for file in files])
        mail = EmailMessage()
        state = f"{message.issues} issue{'s' * (message.issues != 1)}" if message.issues else "no issue"
        mail["Subject"] = plain(f"[postrun] {message.name}: {state}")[:200]
        mail["From"] = self.sender
        mail["To"] = ", ".join(self.target.addresses)
        mail["Date"] = formatdate(localtime=False)
        digest = hashlib.sha256(repr((message, [(file.name, file.size) for file in files])).encode("utf-8", "replace")).hexdigest()[:24]
        domain = self.sender.rpartition("@")[2].strip("> ") or "postrun.invalid"
        try:
            domain.encode("ascii")
        except UnicodeEncodeError:
            domain = "postrun.invalid"
        mail["Message-ID"] = f"<{slug(message.key)}.{digest}@{domain}>"
        mail["References"] = f"<{slug(message.key)}@{domain}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail["X-Postrun-Key"] = slug(message.key)
        mail.set_content(text(made, mark), cte="quoted-printable")
        mail.add_alternative(as_html(made, mark), subtype="html", cte="quoted-printable")
        for file in files:
            main, _, sub = file.content_type.partition(";")[0].partition("/")
            mail.add_attachment(file.read(), maintype=main, subtype=sub, filename=file.name)
        return mail

    def _once(self, mail: EmailMessage, data: bytes) -> Outcome:
        started = False
        try:
            with contextlib.ExitStack() as stack:
                server = self._connected()
                stack.callback(_close, server)
                self._log_in(server)
                limit = server.esmtp_features.get("size", "")
                if limit.isdigit() and 0 < int(limit) < len(data):
                    raise TicketError(
                        f"{self._where} takes mails of at most {size_words(int(limit))}, this one has {size_words(len(data))}; attach a "
                        "smaller format (--attach pdf), or none (--attach none) with --link URL"
                    )
                started = True
                eight = ["body=8bitmime"] if server.has_extn("8bitmime") else []
                size = [f"size={len(data)}"] if server.has_extn("size") else []
                refused = server.sendmail(_bare(self.sender), list(self.target.addresses), data, mail_options=[*eight, *size])
        except smtplib.SMTPAuthenticationError as error:
            raise TicketError(
                f"{self._where} does not take the login ({self._said(error)}); check POSTRUN_MAIL_USER and POSTRUN_MAIL_PASSWORD"
            ) from None
        except smtplib.SMTPRecipientsRefused as error:
            told = "; ".join(f"{address}: {code} {_text(said)}" for address, (code, said) in error.recipients.items())
            if all(400 <= code < 500 for code, _ in error.recipients.values()):
                raise _PassingError(f"refuses every address for now ({told})") from None
            raise TicketError(f"{self._where} refuses every address ({told}); check them") from None
        except smtplib.SMTPResponseException as error:
            if error.smtp_code == 552 or (error.smtp_code == 554 and "size" in _text(error.smtp_error).lower()):
                raise TicketError(
                    f"{self._where} does not take a mail of {size_words(len(data))} ({self._said(error)}); attach a smaller format "
                    "(--attach pdf), or none (--attach none) with --link URL"
                ) from None
            if 400 <= error.smtp_code < 500:
                raise _PassingError(f"answers {self._said(error)}") from None
            raise TicketError(f"{self._where} refuses the mail ({self._said(error)}); check sender, addresses and login") from None
        except smtplib.SMTPNotSupportedError as error:
            what = "STARTTLS; set POSTRUN_MAIL_SECURITY to tls or none" if "STARTTLS" in str(error) else f"what is needed ({error})"
            raise TicketError(f"{self._where} does not offer {what}") from None
        except ssl.SSLCertVerificationError as error:
            raise TicketError(
                f"{self._where}: its certificate cannot be verified ({error.verify_message}); name your authority's with POSTRUN_CA_BUNDLE"
            ) from None
        except ssl.SSLError as error:
            raise TicketError(
                f"{self._where}: no encrypted connection ({error.reason}); check POSTRUN_MAIL_SECURITY and the port"
            ) from None
        except (OSError, smtplib.SMTPException) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            if started:
                raise TicketError(
                    f"{self._where}: the connection broke while the mail was sent ({reason}): it may have arrived; look "
                    "there, then run the command again"
                ) from None
            raise _PassingError(f"no connection ({reason})") from None
        if refused:
            told = "; ".join(f"{address}: {code} {_text(said)}" for address, (code, said) in refused.items())
            return Outcome("sent a mail, but not to all", problem=f"{self._where} refused these addresses: {told}")
        return Outcome(f"sent a mail of {size_words(len(data))}")

    def _connected(self) -> smtplib.SMTP:
        if self.security == "tls":
            return smtplib.SMTP_SSL(self.host, self.port, timeout=self.options.timeout_s, context=tls_context(self.options.ca_bundle))
        server = smtplib.SMTP(self.host, self.port, timeout=self.options.timeout_s)
        if self.security == "starttls":
            try:
                server.starttls(context=tls_context(self.options.ca_bundle))
            except BaseException:
                _close(server)
                raise
        return server

    def _log_in(self, server: smtplib.SMTP) -> None:
        server.ehlo_or_helo_if_needed()
        if self.user is not None:
            server.login(self.user, self.password or "")

    def _said(self, error: smtplib.SMTPResponseException) -> str:
        told = f"{error.smtp_code} {_text(error.smtp_error)}"
        return told.replace(self.password, "***") if self.password and len(self.password) >= 4 else told


class _PassingError(Exception):
    """Nothing was sent; it may work later."""


def _close(server: smtplib.SMTP) -> None:
    with contextlib.suppress(smtplib.SMTPException, OSError):
        server.quit()
    server.close()


def _text(said: bytes | str) -> str:
    return plain(said.decode("utf-8", "replace") if isinstance(said, bytes) else said)[:200]


def _bare(address: str) -> str:
    return address.rpartition("<")[2].strip("> ") if "<" in address else address


def mailer(target: Target, settings: Settings, options: Options) -> Mailer:
    host = settings.need("mail", "host", f"{target.text} needs a mail server")
    security = (settings.get("mail", "security", "starttls") or "").lower()
    if security not in _PORTS:
        raise UsageError(f"POSTRUN_MAIL_SECURITY is {security!r}; write starttls (the default), tls or none")
    port = settings.get("mail", "port") or str(_PORTS[security])
    if not port.isdigit() or not 0 < int(port) < 65_536:
        raise UsageError(f"POSTRUN_MAIL_PORT is {port!r}; write a number from 1 to 65535")
    user = settings.get("mail", "user")
    password = settings.need_secret("mail", "password", f"the login {user} needs a password") if user else None
    if security == "none" and user and not options.insecure_http and not is_loopback(host):
        raise UsageError(
            "without encryption the password would be read on the way: set POSTRUN_MAIL_SECURITY to starttls or tls, or add --insecure-http"
        )
    sender = settings.get("mail", "from") or f"postrun@{socket.getfqdn()}"
    try:
        Address(addr_spec=_bare(sender))
    except (ValueError, IndexError):
        raise UsageError(f"POSTRUN_MAIL_FROM is {sender!r}; write an address such as postrun@example.org") from None
    return Mailer(target, host, int(port), security, sender, options, user, password)
