"""Whose code is a function of a Python profile, and how is it told in few words?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

OWN: Final = "own code"
LIBRARY: Final = "library"
STANDARD: Final = "standard library"
BUILT_IN: Final = "built-in"
KINDS: Final = (OWN, LIBRARY, STANDARD, BUILT_IN)

_PACKAGES: Final = re.compile(r".*[/\\](?:site|dist)-packages[/\\]|.*\.egg[/\\]", re.DOTALL)
_STANDARD: Final = re.compile(r"(?:.*[/\\])?(?:python\d+(?:\.\d+t?)?|Lib)(?:\.zip)?[/\\]", re.DOTALL)
_STANDARD_ROOT: Final = re.compile(r"(?:^|[/\\])(?:lib(?:64|32)?[/\\]python\d|[Pp]ython\d+[/\\]Lib[/\\]|Lib[/\\][a-z])")
_TYPED_IN: Final = ("<stdin>", "<ipython-input", "<doctest")
_GENERATED: Final = ("<frozen", "<string>")


def kind_of(file: str | None) -> str:
    """Of ``KINDS``, by the source file. Code that is written into the session is own code; a library that is installed so that its
    source can be edited cannot be told from own code."""
    if file is None:
        return BUILT_IN
    if _PACKAGES.match(file):
        return LIBRARY
    if file.startswith("<"):
        return STANDARD if file.startswith(_GENERATED) else OWN if file.startswith(_TYPED_IN) else LIBRARY
    if _STANDARD_ROOT.search(file):
        return STANDARD
    return OWN


def short_names(functions: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """By each function (as pstats prints it, with its file) its name with a shorter path, no two alike.

    The paths of libraries begin at the package, those of own code are as long as tells them apart.
    """
    given = dict(functions)
    files = sorted({file for file in given.values() if file is not None})
    paths = _paths(files)
    found = {text: text if file is None or not text.startswith(file) else paths[file] + text[len(file) :] for text, file in given.items()}
    count: dict[str, int] = {}
    for short in found.values():
        count[short] = count.get(short, 0) + 1
    return {text: short if count[short] == 1 else text for text, short in found.items()}


def _paths(files: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    own = []
    for file in files:
        kind = kind_of(file)
        root = _PACKAGES if kind == LIBRARY else _STANDARD if kind == STANDARD else None
        if root is not None and (start := root.match(file)):
            found[file] = file[start.end() :]
        else:
            own.append(file)
    parts = {file: re.split(r"[/\\]", file) for file in own}
    taken = set(found.values())
    length = 1
    while own:
        ends: dict[str, list[str]] = {}
        for file in own:
            ends.setdefault("/".join(parts[file][-length:]), []).append(file)
        left = []
        for end, some in ends.items():
            if (len(some) == 1 and end not in taken) or length >= len(parts[some[0]]):
                found.update({file: end if len(some) == 1 else file for file in some})
            else:
                left += some
        own, length = left, length + 1
    return found
