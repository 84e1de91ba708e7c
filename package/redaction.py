"""Masking of secrets in texts and command lines: text or arguments -> the same without secrets, and what was masked.

A value is a secret if the name of its option, variable or key is one (``--password``, ``API_KEY``), or if its own form is (a password in a
URL, a bearer token, a well-known token).
native/src/core/redact.c has the same rules for processes that record themselves; tests/native/test_redact.py compares them.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from .secret_names import is_plain_value, is_secret_name, is_service

MASK: Final = "***"
URL_USER: Final = "URL user info"
BEARER: Final = "bearer token"
TOKEN: Final = "access token"
PRIVATE_KEY: Final = "private key"
PASSWORD: Final = "password of a program"

# -- texts -----------------------------------------------------------------------------------------------------------------

_SPACE: Final = " \t\r\n\f\v"
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_STOPS: Final = frozenset(_SPACE + "\"'`&;|<>)")
_STOPS_OF_PAIRS: Final = _STOPS | frozenset(",}]")
_LINE_NAMES: Final = ("authorization", "cookie", "cookies")
_SCHEMES: Final = frozenset(["basic", "bearer", "digest", "token", "negotiate", "apikey"])
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://([^ \t\r\n\f\v\"'<>`]{0,1024})", re.ASCII)
_WITH_USER_ONLY: Final = frozenset({
    "ssh", "sftp", "ftp", "rsync", "scp", "svn", "mosh", "abfs", "abfss", "wasb", "wasbs", "hdfs", "webhdfs", "s3", "s3a", "gs",
})  # fmt: skip
"""Schemes (also after a +) whose user without a password is a user name, not a token."""
_BEARER: Final = re.compile(
    r"(?<![A-Za-z0-9_-])([Bb]earer|BEARER)([ \t]+|%20)"
    r"((?=[A-Za-z._~+/*=-]*[0-9])[A-Za-z0-9._~+/*=-]{8,}|[A-Za-z0-9._~+/*=-]{20,}|\*\*\*(?![A-Za-z0-9._~+/*=-]))",
    re.ASCII,
)
"""Shorter words after "bearer" are prose."""
_TOKEN: Final = re.compile(
    r"(?<![A-Za-z0-9_])(?:"
    r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9_])|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|hf_[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{20,}"
    r"|nvapi-[A-Za-z0-9_-]{30,}|r8_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{30,}|glptt-[A-Za-z0-9_-]{20,}|sk_live_[A-Za-z0-9]{16,}"
    r"|ya29\.[A-Za-z0-9_-]{20,}|SG\.[A-Za-z0-9_.-]{40,}|dapi[a-f0-9]{32}(?![A-Za-z0-9_])|AIza[A-Za-z0-9_-]{35,}"
    r"|sk-(?=[A-Za-z0-9_-]{0,40}[A-Za-z0-9]{16})[A-Za-z0-9_-]{20,}|(?<!-)eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"
    r")",
    re.ASCII,
)


_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,60}-----|\Z)", re.ASCII | re.DOTALL)
_LOGIN: Final = re.compile(r"(?<=[A-Za-z0-9_.-]:)[A-Za-z0-9_.~!$%^*+-]{8,256}(?=@[A-Za-z0-9])(?!@sha256:)", re.ASCII)
"""The password in user:password@host without a scheme; it has upper and lower case and digits."""
_WINDOW: Final = 16_384
_BORDER: Final = 1_024


def mask_text(text: str) -> tuple[str, list[str]]:
    """Mask the secrets in a text; return a name per masked value."""
    if len(text) <= _WINDOW:
        return _mask_window(text)
    # Windows bound the time. A value that a border of the first pass divides is inside a window of the second, half a window earlier.
    text, names = _mask_windows(text, _WINDOW)
    text, more = _mask_windows(text, _WINDOW // 2)
    return text, list((Counter(names) | Counter(more)).elements())


def _mask_windows(text: str, first: int) -> tuple[str, list[str]]:
    """Mask ``text`` in windows that end near a blank, first after ``first`` chars."""
    pieces: list[str] = []
    names: list[str] = []
    begin = 0
    for border in [*range(first, len(text), _WINDOW), len(text)]:
        blank = max(text.rfind(letter, border - _BORDER, border) for letter in " \n\t") if border < len(text) else -1
        end = border if blank < 0 else blank + 1
        piece, more = _mask_window(text[begin:end])
        pieces.append(piece)
        names += more
        begin = end
    return "".join(pieces), names


def _mask_window(text: str) -> tuple[str, list[str]]:
    names: list[str] = []
    if len(text) < 4:
        return text, names
    if "PRIVATE KEY-----" in text:
        text = _PEM.sub(lambda _: _noted(names, PRIVATE_KEY), text)
    if any(name in text for name in _PROGRAMS):
        text = _mask_programs(text, names)
    if "://" in text:
        text = _mask_urls(text, names)
    if "=" in text or ":" in text or "-" in text or "env" in text or "setdefault" in text:
        text = _mask_named(text, names)
    if "earer" in text or "EARER" in text:
        text = _BEARER.sub(lambda match: _bearer(match, names), text)
    if "@" in text:
        text = _LOGIN.sub(lambda match: _noted(names, URL_USER) if is_mixed(match[0]) else match[0], text)
    text = _TOKEN.sub(lambda _: _noted(names, TOKEN), text)
    return text, names


def is_mixed(word: str) -> bool:
    """Whether a word looks random: both cases and digits, at least 8 characters."""
    return len(word) >= 8 and all(re.search(letters, word) for letters in ("[A-Z]", "[a-z]", "[0-9]"))


_DATABASES: Final = frozenset(["mysql", "mysqldump", "mysqladmin", "mariadb"])
_PROGRAMS: Final = _DATABASES | {"curl", "sshpass", "docker", "podman", "wandb"}
_COMMAND_WORD: Final = re.compile(r"[^ \t\r\n\f\v\"'`;|&()]+")


class _Program:
    """Passwords that well-known programs accept without an option name; reads a command word by word."""

    def __init__(self) -> None:
        self.name = self.expected = ""
        self.login = False

    def secret_in(self, word: str) -> int:
        """Return the index of a password in the next word, or -1."""
        expected, self.expected = self.expected, ""
        colon = word.find(":")
        behind_colon = colon + 1 if 0 <= colon < len(word) - 1 else -1
        if expected == "login":
            return behind_colon
        if expected == "value":
            return -1 if word.startswith("-") else 0
        base = word.rpartition("/")[2]
        if base in _PROGRAMS:
            self.name, self.login = base, False
        elif self.name == "curl":
            if word in ("-u", "-U", "--user", "--proxy-user"):
                self.expected = "login"
            elif word.startswith(("-u", "-U", "--user=", "--proxy-user=")):
                return behind_colon
        elif self.name == "sshpass" or (self.login and self.name in ("docker", "podman")):
            self.expected = "value" if word == "-p" else ""
            if word.startswith("-p") or not word.startswith("-"):
                self.name = "" if self.name == "sshpass" else self.name
        elif self.name in _DATABASES:
            return 2 if word.startswith("-p") and word[2:].strip("0123456789") else -1
        elif word == "login":
            self.login = True
        elif self.login and self.name == "wandb" and len(word) >= 12 and not word.startswith("-"):
            self.login = False
            return 0
        return -1


def _mask_programs(text: str, names: list[str]) -> str:
    """Mask the passwords of :class:`_Program`, as in ``curl -u user:***``."""
    program, pieces, kept, at = _Program(), [], 0, 0
    for match in _COMMAND_WORD.finditer(text):
        if any(letter in ";|&\n`(" for letter in text[at : match.start()]):
            program = _Program()
        index = program.secret_in(match[0])
        at = match.end()
        if index >= 0:
            pieces.append(text[kept : match.start() + index] + _noted(names, PASSWORD))
            kept = at
    return "".join([*pieces, text[kept:]])


def _noted(names: list[str], what: str) -> str:
    names.append(what)
    return MASK


def _bearer(match: re.Match[str], names: list[str]) -> str:
    if match[3] == MASK:
        names.append(BEARER)
        return match[0]
    return match[1] + match[2] + _noted(names, BEARER)


def _mask_urls(text: str, names: list[str]) -> str:
    """Mask the password in ``user:password@host``, or the token in ``token@host``."""
    pieces, at = [], 0
    while match := _URL.search(text, at):
        rest = match[2]
        slash = next((place for place, letter in enumerate(rest) if letter in "/?#"), len(rest))
        sign = rest.rfind("@", 0, slash)
        colon = rest.find(":", 0, slash)
        if sign < 0 and colon >= 0 and rest[colon + 1 : slash].strip("0123456789"):  # a password with a slash
            sign = rest.find("@", slash)
            colon = colon if sign > colon else -1
        start = match.start(2)
        end = start + max(sign, 0)
        user, divided, password = rest[: max(sign, 0)].partition(":")
        if divided and password:
            pieces.append(text[at:start] + f"{user}:" + _noted(names, URL_USER))
        elif user and not divided and match[1].lower().rpartition("+")[2] not in _WITH_USER_ONLY:
            pieces.append(text[at:start] + _noted(names, URL_USER))
        else:
            pieces.append(text[at:end])
        at = end
    return "".join([*pieces, text[at:]])


def _mask_named(text: str, names: list[str]) -> str:
    """Mask the values behind ``NAME=``, ``"NAME": `` and ``--NAME ``."""
    pieces, kept, at = [], 0, 0
    while match := _NAME.search(text, at):
        name = match[0].rstrip(".-")
        at = match.start() + len(name) if name else match.end()
        span = _value_of(text, match.start(), name) if name else None
        if span is None:
            continue
        start, end = span
        value = text[start:end]
        if is_plain_value(name, value.strip("\\\"'")):
            continue
        names.append(name)
        opening = _quote(text, start)
        closed = bool(opening) and len(value) >= 2 * len(opening) and value.endswith(opening)
        pieces.append(text[kept:start] + opening + MASK + (opening if closed else ""))
        kept = at = end
    return "".join([*pieces, text[kept:]])


def _value_of(text: str, begin: int, name: str) -> tuple[int, int] | None:
    """Return the span of the value behind a secret's name; None if there is no secret."""
    size, at = len(text), begin + len(name)
    before = text[begin - 1] if begin else ""
    behind = _skip(text, at, "\\\"'")
    if behind > at and behind < size and text[behind] == "]" and before and before in "\"'":  # os.environ["NAME"] = ...
        behind += 1
    start = _skip(text, behind, _SPACE)
    spaced = start > behind
    separator = text[start] if start < size and text[start] in "=:" else ""
    if separator:
        blank = start + 1
        start = _skip(text, blank, " \t")
        if spaced and start == blank:
            separator = ""
    if not separator:
        start = _skip(text, behind, _SPACE)
        option = name.startswith("-") and (not before or before in _SPACE + "\"'`=(;&|")
        if not option and _is_set(text, begin):  # setenv NAME value, os.putenv("NAME", "value")
            option = True
            if start < size and text[start] == ",":
                start = _skip(text, start + 1, _SPACE)
        if not option or start == behind or start >= size or text[start] in "|;&<>" or not is_secret_name(name):
            return None
        end = _value_end(text, start, _STOPS)
        return None if text[start] == "-" and not _is_no_option(text[start:end]) else (start, end)
    if separator == ":" and (before in ("/", ":") or text[start : start + 1] == ":" or text.startswith("//", start)):
        return None
    of_query = before in ("?", "&") and separator == "=" and (name.lower() in ("sig", "key") or name.lower().endswith("signature"))
    if not (of_query or is_secret_name(name) or _is_of_owner(text, begin, name)) or start >= size:
        return None
    if separator == "=" and name in ("PWD", "OLDPWD") and text[start] == "/":
        return None
    if separator == ":" and name.lower().endswith(_LINE_NAMES) and not _quote(text, start):
        end = start
        while end < size and text[end] not in "\r\n\"'`":
            end += 1
        return start, end
    end = _value_end(text, start, _STOPS_OF_PAIRS if separator == ":" else _STOPS)
    if text[start:end].lower() in _SCHEMES and end < size and text[end] in " \t":
        end = _value_end(text, _skip(text, end, " \t"), _STOPS)
    return start, end


def _is_no_option(word: str) -> bool:
    """Whether a word with a leading dash is a value rather than an option."""
    return "=" not in word and is_mixed(word.lstrip("-"))


def _skip(text: str, at: int, letters: str) -> int:
    while at < len(text) and text[at] in letters:
        at += 1
    return at


def _back(text: str, at: int, letters: str) -> int:
    while at > 0 and text[at - 1] in letters:
        at -= 1
    return at


def _name_before(text: str, at: int) -> str:
    """Return the name that ends at ``at``, at most 64 characters of it."""
    begin = at
    while begin > 0 and at - begin < 64 and (text[begin - 1] in "_.-" or (text[begin - 1].isascii() and text[begin - 1].isalnum())):
        begin -= 1
    return text[begin:at]


_SETTERS: Final = ("setenv", "putenv", "setdefault", "-genv")


def _is_set(text: str, begin: int) -> bool:
    """Whether a setter of variables precedes the name at ``begin``."""
    text = text[max(begin - 80, 0) : begin]
    at = _back(text, len(text), "\\\"'( \t")
    return at < len(text) and _name_before(text, at).endswith(_SETTERS)


def _is_of_owner(text: str, begin: int, name: str) -> bool:
    """Whether the text before a name makes its value a secret.

    Examples: ``"name": "API_KEY", "value": ...`` and ``"wandb": {"key": ...``.
    """
    if name.lower() not in ("key", "value"):
        return False
    text = text[max(begin - 160, 0) : begin]
    at = _back(text, len(text), "\\\"' \t\r\n")
    if at == 0:
        return False
    if name.lower() == "key":
        if text[at - 1] not in "{(":
            return False
        at = _back(text, at - 1, "\\\"'=: \t\r\n")
        return is_service(_name_before(text, at))
    if text[at - 1] != ",":
        return False
    owner = _name_before(text, _back(text, at - 1, "\\\"' \t\r\n"))
    at = _back(text, at - 1, "\\\"' \t\r\n") - len(owner)
    at = _back(text, at, "\\\"'=: \t\r\n")
    return is_secret_name(owner) and _name_before(text, at).endswith("name")


def _quote(text: str, at: int) -> str:
    """Return the quotation mark at ``at`` with the backslashes before it, or ""."""
    end = _skip(text, at, "\\")
    return text[at : end + 1] if end < len(text) and text[end] in "\"'" else ""


def _value_end(text: str, at: int, stops: frozenset[str]) -> int:
    """Return the end of a value: quoted, in brackets, or up to a stop."""
    size = len(text)
    if at < size and text[at] in "[{":
        depth = 0
        while at < size:
            depth += (text[at] in "[{") - (text[at] in "]}")
            at += 1
            if depth == 0:
                break
        stops = stops | frozenset(",}]:")
    elif text.startswith("`", at):
        at = _closed(text, at + 1, "`")
    elif text.startswith("$(", at):
        at = _closed(text, at + 2, ")")
    elif quote := _quote(text, at):
        at = _closed(text, at + len(quote), quote)
        stops = stops | frozenset(",}]:")
    while at < size:
        letter = text[at]
        if letter == "\\" and at + 1 < size:
            at += 2
        elif letter in "\"'":
            following = text[at + 1 : at + 2]
            if not following or (following in stops and following not in "\"'"):
                return at  # the end of quotes around the value: no more of the same word follows
            at = _closed(text, at + 2, following) if following in "\"'" else _closed(text, at + 1, letter)
        elif letter in stops:
            return at
        else:
            at += 1
    return size


def _closed(text: str, at: int, quote: str) -> int:
    """Return the index behind the closing quotation mark, or the end of the text."""
    while at < len(text):
        if text.startswith(quote, at):
            return at + len(quote)
        at += 2 if text[at] == "\\" and quote == '"' else 1
    return len(text)


# -- command lines ---------------------------------------------------------------------------------------------------------

_SHELL_TEXT: Final = re.compile(r"-[a-z]*c", re.ASCII)
_ASSIGNED: Final = re.compile(r"[A-Za-z0-9_.+~/:@-]*", re.ASCII)


def mask_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Mask the secrets in a command's arguments; return a name per masked value."""
    masked: list[str] = []
    names: list[str] = []
    option = previous = ""
    program = _Program()
    for argument in arguments:
        password_at = program.secret_in(argument)
        if option and (not argument.startswith("-") or _is_no_option(argument)) and not is_plain_value(option, argument):
            names.append(option)
            masked.append(MASK)
            option = previous = ""
            continue
        if password_at >= 0:
            names.append(PASSWORD)
            masked.append(argument[:password_at] + MASK)
            option = previous = ""
            continue
        is_option = argument.startswith("-") and _NAME.fullmatch(argument) and argument[-1] not in ".-"
        named = is_option or previous in ("-genv", "setenv")
        option = argument if named and is_secret_name(argument) else ""
        text = None if _SHELL_TEXT.fullmatch(previous) else _mask_assigned(argument, names)
        if text is None:
            text, more = mask_text(argument)
            names += more
        masked.append(text)
        previous = argument
    return masked, names


def _mask_assigned(argument: str, names: list[str]) -> str | None:
    """Mask an argument ``NAME=VALUE`` or ``NAME: VALUE``; None: a harmless value."""
    at = 0
    while match := _ASSIGNED.match(argument, at):
        end = match.end()
        sign = argument[end : end + 1]
        part = match[0]
        if at == 0 and not sign.startswith("=") and ":" in part:
            part = part.partition(":")[0]
            end = len(part)
            sign = ":"
        if sign not in ("=", ":") or not sign or argument.startswith("://", end):
            return None
        name = re.split(r"[/:@+~]", part)[-1]
        value = argument[end + 1 :].lstrip(" \t") if sign == ":" else argument[end + 1 :]
        folder = name in ("PWD", "OLDPWD") and value.startswith("/")
        if is_secret_name(name) and not is_plain_value(name, value) and not folder:
            names.append(name)
            return argument[: len(argument) - len(value)] + MASK
        if sign == ":":
            return None
        at = end + 1
    return None


def mask_command(text: str) -> tuple[str, list[str]]:
    """Mask the secrets in a command line; return a name per masked value."""
    if len(text) > _WINDOW:
        return mask_text(text)
    try:
        arguments = shlex.split(text)
    except ValueError:  # cut, or joined without quotes
        return mask_text(text)
    masked, names = mask_arguments(arguments)
    joined = text if masked == arguments else " ".join(map(_quoted, masked))
    masked_text, more = mask_text(joined)  # a text that no shell would parse
    return masked_text, names if masked_text == joined else [*names, *(Counter(more) - Counter(names)).elements()]


def _quoted(argument: str) -> str:
    """Quote an argument for a shell, without quotes around a mask."""
    plain = argument.replace(MASK, "x")
    return argument if shlex.quote(plain) == plain else shlex.quote(argument)


def masked_sentence(masked: Iterable[str]) -> str:
    """Describe the masked values for the notes of a report."""
    counts = Counter(name[:60] for name in masked)
    names = sorted(counts)
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{counts.total()} {'value' if counts.total() == 1 else 'values'} masked: {', '.join(names[:8])}{more}."
