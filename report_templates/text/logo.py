"""The logo of the first page: a PNG, a JPEG, or an SVG that runs and loads nothing -> a data address."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from ...errors import UsageError

LARGEST: Final = 256 * 1024  # Bytes of the file: every report has a copy of it
WIDEST: Final = 4096  # Pixels in either direction
ALT: Final = "Logo"
_LONGEST_ALT: Final = 200
_ADVICE: Final = "give a PNG, a JPEG, or a plain SVG of at most 256 KiB"
_PLAIN: Final = "export it as plain SVG or as PNG"
# Elements that run, load or contain other documents.
_REFUSED: Final = frozenset({"script", "foreignobject", "iframe", "object", "embed", "audio", "video", "handler", "listener", "link"})
_ADDRESS: Final = re.compile(r"url\(\s*['\"]?\s*(?!#|data:image/(?:png|jpeg)[;,])|@import|\\|\b(?:https?|file|javascript):", re.IGNORECASE)
_EMBEDDED: Final = re.compile(r"#|data:image/(?:png|jpeg)[;,]", re.IGNORECASE)
_BASE: Final = "{http://www.w3.org/XML/1998/namespace}base"
_DECLARATIONS: Final = {b"<!ENTITY": "declares entities", b"<?xml-stylesheet": "has a style sheet of its own"}


@dataclass(frozen=True, slots=True)
class Logo:
    """``uri``: the picture as a data address; ``alt``: its text for those who do not see it."""

    uri: str
    alt: str = ALT

    def __post_init__(self) -> None:
        if not re.fullmatch(r"data:image/(?:png|jpeg|svg\+xml);base64,[A-Za-z0-9+/=]+", self.uri):
            raise UsageError(f"a logo is a data address of an image; {_ADVICE} to read_logo")
        if not self.alt.strip() or len(self.alt) > _LONGEST_ALT:
            raise UsageError(f"the text for the logo must have 1 to {_LONGEST_ALT} characters; write it like --logo-alt 'Example Inc.'")


def with_alt(logo: Logo | None, alt: str | None, title: str | None) -> Logo | None:
    """Return the logo with its text. Raise UsageError for a text without a logo."""
    if logo is None:
        if alt is not None:
            raise UsageError("there is no logo to call so; give one with --logo FILE")
        return None
    return Logo(logo.uri, alt if alt is not None else title or ALT)


def read_logo(path: Path, alt: str = ALT) -> Logo:
    """Return the logo in a file. Raise UsageError if it is unreadable or not harmless."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}); {_ADVICE}") from error
    if len(data) > LARGEST:
        raise UsageError(f"{path}: is larger than 256 KiB, and every report would have a copy of it; scale it down, or {_ADVICE}")
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        _check_pixels(path, data, "PNG")
        kind = "png"
    elif data.startswith(b"\xff\xd8\xff"):
        _check_pixels(path, data, "JPEG")
        kind = "jpeg"
    elif not data.strip():
        raise UsageError(f"{path}: is empty; {_ADVICE}")
    elif b"\x00" not in data[:64] and data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        _check_svg(path, data)
        kind = "svg+xml"
    else:
        raise UsageError(f"{path}: is neither PNG nor JPEG nor SVG; {_ADVICE}")
    return Logo(f"data:image/{kind};base64,{base64.b64encode(data).decode()}", alt)


def _check_pixels(path: Path, data: bytes, kind: str) -> None:
    import io
    import warnings

    from PIL import Image

    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=[kind]) as image:
            warnings.simplefilter("ignore")  # about pictures that are far too large, which is an error below
            size = image.size
            if max(size) <= WIDEST:
                image.load()
        # The decoder stops at the last pixel, and how far before the file's end that is depends on who compressed it: every part of a
        # PNG has to be there up to its end mark.
        with Image.open(io.BytesIO(data), formats=[kind]) as image:
            image.verify()
    except Exception as error:  # a decoder of broken data raises what it likes
        raise UsageError(f"{path}: is a broken {kind} ({str(error)[:100] or type(error).__name__}); export it anew") from error
    if max(size) > WIDEST:
        raise UsageError(f"{path}: has {size[0]} x {size[1]} pixels; scale it down to at most {WIDEST} in either direction")


def _check_svg(path: Path, data: bytes) -> None:
    """Refuse an SVG that is not well-formed, or that would run or load anything.

    In an image browsers ignore such content, but the PDF would not be printed.
    """
    declared = [words for mark, words in _DECLARATIONS.items() if mark in data]
    try:
        root = ElementTree.Element("svg") if declared else ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise UsageError(f"{path}: is a broken SVG ({str(error)[:100]}); {_PLAIN}") from error
    if _local(root.tag) != "svg":
        raise UsageError(f"{path}: is not an SVG but <{_local(root.tag)[:40]}>; {_ADVICE}")
    if problem := next(chain(declared, _problems(root)), None):
        raise UsageError(f"{path}: the SVG {problem}, which a logo must not; {_PLAIN}")


def _problems(root: ElementTree.Element) -> Iterator[str]:
    for element in root.iter():
        name = _local(element.tag)
        if name in _REFUSED:
            yield f"has the element {name}"
        if name == "style" and _ADDRESS.search(element.text or ""):
            yield "refers to an address in its style"
        for key, value in element.attrib.items():
            if _local(key) in ("href", "src"):
                if value.strip() and not _EMBEDDED.match(value.strip()):
                    yield f"refers to {value.strip()[:80]}"
            elif key == _BASE:
                yield "has a base address"
            elif key.lower().startswith("on"):
                yield f"has a script ({key[:40]})"
            elif "}" not in key and _ADDRESS.search(value):
                yield f"refers to an address in {key[:40]}"


def _local(name: str) -> str:
    """Return a name in lower case without its namespace."""
    return name.rpartition("}")[2].lower()
