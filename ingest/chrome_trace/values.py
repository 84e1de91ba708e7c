"""Decodes the top-level members and the M events of a Chrome trace: JSON text -> Python data.

The scanners hand over these texts as the file has them. Text that is not JSON is repaired token by token, much as the C scanner repairs
events; what stays unreadable comes back as str.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_TOKEN: Final = re.compile(
    r'"(?P<string>(?:[^"\\]|\\.|"(?!\s*(?:[,:}\]]|\Z)))*)"|,(?P<comma>(?=\s*[}\]]))|:(?P<colon>(?=\s*[,}\]]))|(?P<word>[^\s,:\[\]{}"]+)',
    re.DOTALL,
)
_IN_STRING: Final = re.compile(
    r'\\(?:["\\/bfnrt]|u(?!d[89a-f])[0-9a-f]{4}|ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|(?P<half>ud[89a-f][0-9a-f]{2})|(?P<bare>))|"',
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


def decode_value(raw: bytes) -> Any:
    """Return the value of the text ``raw``, or the text itself if it cannot be read."""
    text = raw.decode("utf-8", "replace")
    for repair in (False, True):
        if not repair and "\\ud" in text.lower():
            continue  # perhaps half of a surrogate pair
        try:
            return json.loads(_TOKEN.sub(_token, text) if repair else text, strict=False, parse_constant=lambda word: None)
        except (ValueError, RecursionError):
            continue
    return text


def _token(match: re.Match[str]) -> str:
    kind, text = match.lastgroup, match[0]
    if kind == "string":
        return f'"{_IN_STRING.sub(_in_string, match["string"])}"'
    if kind == "word":
        return text if _WORD.fullmatch(text) else "null"
    return ": null" if kind == "colon" else ""


def _in_string(match: re.Match[str]) -> str:
    if match["half"]:
        return "\ufffd"
    return f"\\{match[0]}" if match[0] in ('"', "\\") else match[0]
