"""Text for people on standard output and standard error: text -> one write, without characters that control a terminal.

File names and names in traces are hostile. Every message of the command line goes through :func:`echo`; ruff bans the alternatives.
Imports the standard library only: `postrun --help` is quick, and the recorder uses it.
"""

from __future__ import annotations

import re
import sys
from typing import Final

_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except tab and newline, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # Unicode's Bidi_Control: they reorder what a reader sees
    "\u2028\u2029\ud800-\udfff]"  # line and paragraph separator; bytes of a file name that are not UTF-8
)

_lost: dict[str, str] = {}  # stream of this process -> the reason why a text is missing in it


def escape_of(character: str) -> str:
    """Write a character like Python: ``\\x1b``, ``\\u6570``, ``\\U0001f680``."""
    return character.encode("unicode_escape").decode("ascii")


def escaped(text: str) -> str:
    """Make unsafe characters visible (``\\x1b``); keep tabs and newlines."""
    return _UNSAFE.sub(lambda found: escape_of(found[0]), text)


def escaped_line(text: str) -> str:
    """Like :func:`escaped`, on one line: newlines and tabs become escapes."""
    return escaped(text).replace("\n", "\\n").replace("\t", "\\t")


def escaped_json(text: str) -> str:
    """Escape unsafe characters in JSON as ``\\u00XX``: the data stays the same."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo(text: object = "", *, nl: bool = True, err: bool = False) -> None:
    """Print ``text``, escaped, to standard output, or with ``err`` to standard error."""
    _write(escaped(str(text)) + "\n" * nl, err=err)


def echo_line(text: object, *, err: bool = False) -> None:
    """Print one line, escaped: a newline in a name cannot forge a message."""
    echo(escaped_line(str(text)), err=err)


def overwrite(text: str, width: int) -> int:
    """Replace the terminal's last line of ``width`` characters; return the new width."""
    line = escaped_line(text)[:120]
    end = "" if line else "\r"
    _write("\r" + line.ljust(min(width, 120)) + end, err=True)
    return len(line)


def _write(text: str, *, err: bool) -> None:
    """Write; characters that the stream's encoding lacks become escapes."""
    stream = sys.stderr if err else sys.stdout
    if stream is None:  # closed when the process started
        return
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except OSError as error:
        _lost.setdefault("standard error" if err else "standard output", error.strerror or str(error))


def lost() -> list[str]:
    """Return what could not be printed since the last call, and why.

    A stream that is full or closed ends no command: alarms and exit codes come after the results."""
    lines = [f"{stream}: {reason}" for stream, reason in _lost.items()]
    _lost.clear()
    return lines
