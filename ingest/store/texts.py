"""Texts that the database can store."""

from __future__ import annotations


def storable(text: str) -> str:
    """Escape undecodable bytes and lone surrogates, so that a text is valid UTF-8.
    Bytes of a file name that are not UTF-8 become ``\\xe9``, lone surrogates ``\\ud800``.
    A name that Python could not decode in the locale of the machine (LC_ALL=C), but that is UTF-8, is decoded.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        try:
            return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        except UnicodeEncodeError:  # surrogates that stand for no byte
            return text.encode("utf-8", "backslashreplace").decode()
    return text
