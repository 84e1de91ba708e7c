"""A report by mail: text and HTML in one message, the files attached, through the SMTP server of the settings."""

from __future__ import annotations

import contextlib
import smtplib
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, parseaddr
from typing import Final

from ..analysis.toolkit.wording import size as size_words
from ..errors import UsageError
from .comment import comment
from .http import Options, TicketError, Upload, is_loopback, tls_context
from .markup import HTML, TEXT, FileLink, plain
from .message import Message, fingerprint, slug
from .settings import Settings
from .target import Target
from .tracker import Outcome

_PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}
_SMALLER: Final = "attach a smaller format (--attach pdf), or none (--attach none) with --link URL"


class _TemporaryError(Exception):
    """Nothing was sent; it may work later."""


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
        """Send the mail. Raise TicketError if no address accepts it."""
        data = self.composed(message, files).as_bytes(policy=SMTP)
        reason = ""
        for attempt in range(self.options.attempts):
            if attempt:
                self.options.sleep(self.options.backoff_s * 2 ** (attempt - 1))
            try:
                return self._once(data)
            except _TemporaryError as error:
                reason = str(error)
        raise self._error(f": {reason}; tried {self.options.attempts} times; try again later")

    def _error(self, text: str) -> TicketError:
        return TicketError(f"mail server {self.host}:{self.port}{text}")

    def composed(self, message: Message, files: Sequence[Upload]) -> EmailMessage:
        """Return the mail.

        Its Message-ID follows from its content, so that programs show the same mail once. It refers to the run, so that they group mails
        about one run."""
        links = [FileLink(file.name) for file in files]
        name = slug(message.key)
        domain = self.sender.rpartition("@")[2].strip("> ")
        domain = domain if domain and domain.isascii() else "postrun.invalid"
        issues = f"{message.issues} issue{'s' * (message.issues != 1)}" if message.issues else "no issue"
        mail = EmailMessage()
        mail["Subject"] = plain(f"[postrun] {message.title or f'{message.run}: {issues}'}")[:200]
        mail["From"] = self.sender
        mail["To"] = ", ".join(self.target.addresses)
        mail["Date"] = formatdate(localtime=False)
        mail["Message-ID"] = f"<{name}.{fingerprint(message, files)}@{domain}>"
        mail["References"] = f"<{name}@{domain}>"
        mail["Auto-Submitted"] = "auto-generated"
        mail["X-Postrun-Key"] = name
        mail.set_content(comment(message, TEXT, links), cte="quoted-printable")
        mail.add_alternative(comment(message, HTML, links), subtype="html", cte="quoted-printable")
        for file in files:
            main, _, sub = file.content_type.partition(";")[0].partition("/")
            mail.add_attachment(file.read(), maintype=main, subtype=sub, filename=file.name)
        return mail

    def _once(self, data: bytes) -> Outcome:
        begun = False
        size = size_words(len(data))
        try:
            with contextlib.ExitStack() as stack:
                server = self._connected(stack)
                limit = server.esmtp_features.get("size", "")
                if limit.isdigit() and 0 < int(limit) < len(data):
                    raise self._error(f" accepts mails of at most {size_words(int(limit))}, this one has {size}; {_SMALLER}")
                begun = True
                refused = server.sendmail(parseaddr(self.sender)[1], list(self.target.addresses), data)
        except smtplib.SMTPAuthenticationError as error:
            raise self._error(
                f" does not accept the login ({self._words(error)}); check POSTRUN_MAIL_USER and POSTRUN_MAIL_PASSWORD"
            ) from None
        except smtplib.SMTPRecipientsRefused as error:
            if all(400 <= code < 500 for code, _ in error.recipients.values()):
                raise _TemporaryError(f"refuses every address for now ({_refusals(error.recipients)})") from None
            raise self._error(f" refuses every address ({_refusals(error.recipients)}); check them") from None
        except smtplib.SMTPResponseException as error:
            words = self._words(error)
            if error.smtp_code == 552 or (error.smtp_code == 554 and "size" in words.lower()):
                raise self._error(f" does not accept a mail of {size} ({words}); {_SMALLER}") from None
            if 400 <= error.smtp_code < 500:
                raise _TemporaryError(f"answers {words}") from None
            raise self._error(f" refuses the mail ({words}); check sender, addresses and login") from None
        except smtplib.SMTPNotSupportedError as error:
            what = "STARTTLS; set POSTRUN_MAIL_SECURITY to tls or none" if "STARTTLS" in str(error) else f"what is needed ({error})"
            raise self._error(f" does not offer {what}") from None
        except ssl.SSLCertVerificationError as error:
            advice = "name your authority's with POSTRUN_CA_BUNDLE"
            raise self._error(f": its certificate cannot be verified ({error.verify_message}); {advice}") from None
        except ssl.SSLError as error:
            raise self._error(f": no encrypted connection ({error.reason}); check POSTRUN_MAIL_SECURITY and the port") from None
        except (OSError, smtplib.SMTPException) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            if not begun:
                raise _TemporaryError(f"no connection ({reason})") from None
            advice = "it may have arrived; look there, then run the command again"
            raise self._error(f": the connection broke while the mail was sent ({reason}): {advice}") from None
        if refused:
            return Outcome("sent a mail, but not to all", problem=str(self._error(f" refused these addresses: {_refusals(refused)}")))
        return Outcome(f"sent a mail of {size}")

    def _connected(self, stack: contextlib.ExitStack) -> smtplib.SMTP:
        """Return a server that accepted the login; it is left when the stack closes."""
        timeout = self.options.timeout_s
        if self.security == "tls":
            server: smtplib.SMTP = smtplib.SMTP_SSL(self.host, self.port, timeout=timeout, context=tls_context(self.options.ca_bundle))
        else:
            server = smtplib.SMTP(self.host, self.port, timeout=timeout)
        stack.callback(_leave, server)
        if self.security == "starttls":
            server.starttls(context=tls_context(self.options.ca_bundle))
        server.ehlo_or_helo_if_needed()
        if self.user is not None:
            server.login(self.user, self.password or "")
        return server

    def _words(self, error: smtplib.SMTPResponseException) -> str:
        words = f"{error.smtp_code} {_text(error.smtp_error)}"
        return words.replace(self.password, "***") if self.password and len(self.password) >= 4 else words


def _leave(server: smtplib.SMTP) -> None:
    with contextlib.suppress(smtplib.SMTPException, OSError):
        server.quit()
    server.close()


def _refusals(recipients: dict[str, tuple[int, bytes]]) -> str:
    return "; ".join(f"{address}: {code} {_text(words)}" for address, (code, words) in recipients.items())


def _text(words: bytes | str) -> str:
    return plain(words.decode("utf-8", "replace") if isinstance(words, bytes) else words)[:200]


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
        Address(addr_spec=parseaddr(sender)[1])
    except (ValueError, IndexError):
        raise UsageError(f"POSTRUN_MAIL_FROM is {sender!r}; write an address such as postrun@example.org") from None
    return Mailer(target, host, int(port), security, sender, options, user, password)
