"""Images of SVG figures: a grid of shares as a PNG of one pixel per field, scaled up without smoothing."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from functools import cache
from typing import Final

from .palette import BRIGHTNESS
from .svg import number, text_of

_STEPS: Final = 100  # colors between a share of 0 and of 1: tooltip.js reads each as a percentage
_OPEN: Final = _STEPS + 1  # the transparent color


def image(
    x: float,
    y: float,
    width: float,
    height: float,
    rows: Sequence[Sequence[float | None]],
    *,
    title: str | None = None,
    data: str = "",
) -> str:
    """Draw rows of one length, from 0 (dark) to 1 (light); None is transparent.

    ``data``: as of :func:`.svg.path`.
    """
    extent = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    png = base64.b64encode(_png(rows)).decode()
    tail = f"><title>{text_of(title)}</title></image>" if title else "/>"
    return f'<image {extent} preserveAspectRatio="none" image-rendering="pixelated" href="data:image/png;base64,{png}"{data}{tail}'


def _png(rows: Sequence[Sequence[float | None]]) -> bytes:
    """Encode an image of at most 256 colors (ISO/IEC 15948)."""
    lines = (bytes(_OPEN if share is None else round(min(max(share, 0.0), 1.0) * _STEPS) for share in row) for row in rows)
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)),
        (b"PLTE", _colors()),
        (b"tRNS", b"\xff" * _OPEN + b"\0"),
        (b"IDAT", zlib.compress(b"".join(b"\0" + line for line in lines), 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


@cache
def _colors() -> bytes:
    """Return the bytes of all colors, interpolated between those of ``BRIGHTNESS``."""
    known = [bytes.fromhex(color[1:]) for color in BRIGHTNESS]
    palette = bytearray()
    for step in range(_STEPS + 1):
        level = min(max(step / _STEPS * len(known) - 0.5, 0.0), len(known) - 1.0)
        below = min(int(level), len(known) - 2)
        palette += bytes(round(low + (high - low) * (level - below)) for low, high in zip(known[below], known[below + 1], strict=True))
    return bytes(palette) + b"\0\0\0"
