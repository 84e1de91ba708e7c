"""Archives, compressions and encodings that are known but not read, each with the step that makes the file readable.

The first bytes decide, after the compression that is read (gzip, zstd): they show an archive inside it, or a second compression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from .gpu_logs.recognize import utf16_of

ZIP: Final = "zip archive"
_TAR_MAGIC: Final = slice(257, 262)
_OF_PROGRAMS: Final = re.compile(r"\.(pt|pth|pkl|ckpt|bin|npz|keras|mar|nemo|whl|egg|jar|apk|docx|pptx|odt|ods|odp|epub)$", re.IGNORECASE)
"""Endings of zip files that are a program's own and are not meant to be unpacked."""


def _zip(head: bytes, path: str) -> bool:
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06")) and _OF_PROGRAMS.search(path) is None


def _workbook(head: bytes, path: str) -> bool:
    return path.lower().endswith((".xlsx", ".xlsm")) and head.startswith(b"PK\x03\x04")


def _tar(head: bytes, path: str) -> bool:
    return head[_TAR_MAGIC] == b"ustar"


def _begins(*magic: bytes) -> Callable[[bytes, str], bool]:
    return lambda head, path: head.startswith(magic)


def _bzip2(head: bytes, path: str) -> bool:
    return re.match(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", head) is not None


def _utf16_json(head: bytes, path: str) -> bool:
    encoding = utf16_of(head)
    return encoding is not None and head[:200].decode(encoding, "replace").lstrip("\ufeff \t\r\n")[:1] in ("{", "[")


PACKED: Final[tuple[tuple[str, Callable[[bytes, str], bool], str], ...]] = (
    ("Excel workbook", _workbook, "save its sheet as CSV and give that"),
    (ZIP, _zip, "unpack it first, as with `unzip -d FOLDER FILE`, and give the folder"),
    ("tar archive", _tar, "unpack it first, as with `tar -xf FILE -C FOLDER`, and give the folder"),
    ("7z archive", _begins(b"7z\xbc\xaf\x27\x1c"), "unpack it first, as with `7z x FILE -oFOLDER`, and give the folder"),
    ("rar archive", _begins(b"Rar!\x1a\x07"), "unpack it first, as with `unrar x FILE FOLDER/`, and give the folder"),
    ("bzip2 file", _bzip2, "unpack it first, as with `bunzip2 --keep FILE`; gzip and zstd are read as they are"),
    ("xz file", _begins(b"\xfd7zXZ\x00"), "unpack it first, as with `unxz --keep FILE`; gzip and zstd are read as they are"),
    ("lz4 file", _begins(b"\x04\x22\x4d\x18"), "unpack it first, as with `unlz4 FILE`; gzip and zstd are read as they are"),
    (
        "file compressed twice",
        _begins(b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"),
        "unpack it once first, as with `gunzip --keep FILE` or `unzstd FILE`; one compression is read as it is",
    ),
    ("JSON in UTF-16", _utf16_json, "save it as UTF-8, as with `iconv -f UTF-16 -t UTF-8 FILE > NEW.json`, and give that"),
)
"""Name, whether a file is one by its decompressed beginning and its path, and the next step; the first that fits counts."""
_OF_INPUTS: Final = frozenset({"file compressed twice", "JSON in UTF-16"})
_LIKE_AN_INPUT: Final = re.compile(r"\.(json|sqlite|prt|csv|tsv|pstats)\.[a-z0-9]+$", re.IGNORECASE)


def may_be_anything(name: str, path: str) -> bool:
    """Whether a file of the format ``name`` may be other data, such as training data."""
    return name not in _OF_INPUTS and any(name == packed for packed, _, _ in PACKED) and _LIKE_AN_INPUT.search(path) is None
