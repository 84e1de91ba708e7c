"""Which picture stands on the first page, and can it harm? A PNG, a JPEG or an SVG that runs and loads nothing, as a data address."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.parsers import expat

from ..errors import UsageError

LARGEST: Final = 256 * 1024
"""Bytes of the file: every report has a copy of it."""
WIDEST: Final = 4096
"""Pixels in either direction."""
ALT: Final = "Logo"
_LONGEST_ALT: Final = 200
_ADVICE: Final = "give a PNG, a JPEG, or a plain SVG of at most 256 KiB"
_PLAIN: Final = "export it as plain SVG or as PNG"
# Elements that run, load or hold other documents.
_REFUSED: Final = frozenset({"script", "foreignobject", "iframe", "object", "embed", "audio", "video", "handler", "listener", "link"})
_ADDRESS: Final = re.compile(r"url\(\s*['\"]?\s*(?!#|data:image/(?:png|jpeg)[;,])|@import|\\", re.IGNORECASE)
_EMBEDDED: Final = re.compile(r"#|data:image/(?:png|jpeg)[;,]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Logo:
    """``uri``: the picture as a data address; ``alt``: what it is called for those who do not see it."""

    uri: str
    alt: str = ALT

    def __post_init__(self) -> None:
        if not re.fullmatch(r"data:image/(?:png|jpeg|svg\+xml);base64,[A-Za-z0-9+/=]+", self.uri):
            raise UsageError(f"a logo is a data address of an image; {_ADVICE} to read_logo")
        if not self.alt.strip() or len(self.alt) > _LONGEST_ALT:
            raise UsageError(f"the text for the logo must have 1 to {_LONGEST_ALT} characters; write it like --logo-alt 'Example Inc.'")


def with_alt(logo: Logo | None, alt: str | None, title: str | None) -> Logo | None:
    """``logo`` with its text: ``alt``, else the title of the report. Raises UsageError for a text without a logo."""
    if logo is None:
        if alt is not None:
            raise UsageError("there is no logo to call so; give one with --logo FILE")
        return None
    return Logo(logo.uri, alt if alt is not None else title or ALT)


def read_logo(path: Path, alt: str = ALT) -> Logo:
    """The logo in a file. Raises UsageError, which names the file and what to do, for one that is missing, too large, broken, or not
    harmless."""
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
            warnings.simplefilter("ignore")  # of pictures that are far too large, which is told below
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
    """Refuse what is not well-formed, and what would run or load anything in a page of its own; in an image browsers ignore it, and the PDF
    would not be printed."""
    depth: list[str] = []
    names: list[str] = []

    def refuse(what: str) -> None:
        raise UsageError(f"{path}: the SVG {what}, which a logo must not; {_PLAIN}")

    def local(name: str) -> str:
        return name.rpartition(":")[2].lower()

    def start(name: str, attributes: dict[str, str]) -> None:
        names.append(local(name))
        depth.append(local(name))
        if depth[-1] in _REFUSED:
            refuse(f"has the element {name[:40]}")
        for key, value in attributes.items():
            if local(key).startswith("on") and ":" not in key:
                refuse(f"has a script ({key[:40]})")
            if local(key) in ("href", "src") and value.strip() and not _EMBEDDED.match(value.strip()):
                refuse(f"refers to {value.strip()[:80]}")
            if key == "xml:base":
                refuse("has a base address")
            if ":" not in key and _ADDRESS.search(value) and ("url(" in value.lower() or key == "style"):
                refuse(f"refers to an address in {key[:40]}")
            if local(key) in ("values", "to", "from", "by") and re.search(r"\b(?:https?|file|javascript):", value, re.IGNORECASE):
                refuse(f"refers to an address in {key[:40]}")

    def text(content: str) -> None:
        if depth and depth[-1] == "style":
            styles.append(content)

    def end(_: str) -> None:
        depth.pop()

    styles: list[str] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = lambda *_: refuse("declares entities")
    parser.ProcessingInstructionHandler = lambda target, _: refuse("has a style sheet of its own") if "stylesheet" in target else None
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise UsageError(f"{path}: is a broken SVG ({str(error)[:100]}); {_PLAIN}") from error
    if not names or names[0] != "svg":
        raise UsageError(f"{path}: is no SVG but <{names[0][:40] if names else ''}>; {_ADVICE}")
    if _ADDRESS.search("".join(styles)):
        refuse("refers to an address in its style")
