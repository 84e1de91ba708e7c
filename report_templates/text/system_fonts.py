"""Characters in the fonts of the system, which WeasyPrint uses for those that the fonts of the report lack."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from functools import cache


class _FontSet(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int), ("room", ctypes.c_int), ("fonts", ctypes.POINTER(ctypes.c_void_p)))


def contain(code: int) -> bool:
    """Return whether a font that fontconfig finds contains the code point."""
    return _lookup()(code)


@cache
def _lookup() -> Callable[[int], bool]:
    """Load fontconfig, and join the characters of its fonts; none without it."""
    try:
        library = ctypes.CDLL(ctypes.util.find_library("fontconfig") or "libfontconfig.so.1")
        pattern, wanted, listed = library.FcPatternCreate, library.FcObjectSetBuild, library.FcFontList
        create, of_font, join, has = library.FcCharSetCreate, library.FcPatternGetCharSet, library.FcCharSetMerge, library.FcCharSetHasChar
    except (OSError, AttributeError):
        return lambda code: False
    pattern.restype = wanted.restype = create.restype = ctypes.c_void_p
    listed.restype = ctypes.POINTER(_FontSet)
    listed.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    of_font.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
    join.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    has.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
    system = listed(None, pattern(), wanted(b"charset", None))
    characters = create()
    for number in range(system.contents.count if system else 0):
        of_one = ctypes.c_void_p()
        if of_font(system.contents.fonts[number], b"charset", 0, ctypes.byref(of_one)) == 0:
            join(characters, of_one, None)
    return lambda code: bool(has(characters, code))
