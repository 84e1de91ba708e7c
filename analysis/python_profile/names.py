"""Origin and short names of the functions of a Python profile."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

OWN_CODE: Final = "own code"
LIBRARY: Final = "library"
STANDARD: Final = "standard library"
BUILT_IN: Final = "built-in"
PROFILER: Final = "profiler"  # cost of profilers: postrun's recording, torch.profiler and the ranges that PyTorch marks for it
KINDS: Final = (OWN_CODE, LIBRARY, STANDARD, BUILT_IN, PROFILER)
RECORDING: Final = "{postrun's own recording}"

_PACKAGES: Final = re.compile(r".*[/\\](?:site|dist)-packages[/\\]|.*\.egg[/\\]", re.DOTALL)
_STANDARD: Final = re.compile(r"(?:.*[/\\])?(?:python\d+(?:\.\d+t?)?|Lib)(?:\.zip)?[/\\]", re.DOTALL)
_STANDARD_ROOT: Final = re.compile(r"(?:^|[/\\])(?:lib(?:64|32)?[/\\]python\d|[Pp]ython\d+[/\\]Lib[/\\]|Lib[/\\][a-z])")
_TYPED_IN: Final = ("<stdin>", "<ipython-input", "<doctest")
_GENERATED: Final = ("<frozen", "<string>")
_TORCH_PROFILER: Final = re.compile(r".*[/\\]torch[/\\](?:profiler[/\\][^/\\]+|autograd[/\\]profiler\w*)\.py", re.DOTALL)
_PROFILER_CALL: Final = re.compile(
    r"(?:\{built-in method )?torch\._(?:ops\.profiler\.|C\._profiler\.|C\._autograd\._?\w*(?:profiler|kineto)).*", re.DOTALL
)
_PYBIND: Final = re.compile(r"pybind11_detail_function_record_\w*\.")


def kind_of(file: str | None, function: str = "") -> str:
    """Classify a function by its source file, else by its name, as one of ``KINDS``.

    Code that is typed into the session is own code. So is an editable installation of a library, which cannot be distinguished.
    """
    if file is None:
        return PROFILER if function == RECORDING or _PROFILER_CALL.match(function) else BUILT_IN
    if _TORCH_PROFILER.fullmatch(file):
        return PROFILER
    if _PACKAGES.match(file):
        return LIBRARY
    if file.startswith("<"):
        return STANDARD if file.startswith(_GENERATED) else OWN_CODE if file.startswith(_TYPED_IN) else LIBRARY
    if _STANDARD_ROOT.search(file):
        return STANDARD
    return OWN_CODE


def short_names(functions: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    """Shorten the path in each function's name (as pstats prints it), uniquely.

    ``functions``: names with their files. The paths of libraries begin at the package; those of own code are as long as necessary to
    distinguish them.
    """
    file_of = dict(functions)
    files = sorted({file for file in file_of.values() if file is not None})
    paths = _paths(files)
    shorts = {
        text: _readable(text) if file is None or not text.startswith(file) else paths[file] + text[len(file) :]
        for text, file in file_of.items()
    }
    count: dict[str, int] = {}
    for short in shorts.values():
        count[short] = count.get(short, 0) + 1
    return {text: short if count[short] == 1 else text for text, short in shorts.items()}


def _readable(name: str) -> str:
    """Shorten the name of a function without a source file; some are unnamed."""
    name = _PYBIND.sub("pybind11.", name)
    if name.endswith((".", ".}")):
        return f"{name.removesuffix('}')}(unnamed){'}' * name.endswith('}')}"
    return name


def _paths(files: list[str]) -> dict[str, str]:
    paths: dict[str, str] = {}
    remaining = []
    for file in files:
        kind = kind_of(file)
        root = _PACKAGES if kind in (LIBRARY, PROFILER) else _STANDARD if kind == STANDARD else None
        if root is not None and (start := root.match(file)):
            paths[file] = file[start.end() :]
        else:
            remaining.append(file)
    parts = {file: re.split(r"[/\\]", file) for file in remaining}
    taken = set(paths.values())
    length = 1
    while remaining:
        ends: dict[str, list[str]] = {}
        for file in remaining:
            ends.setdefault("/".join(parts[file][-length:]), []).append(file)
        left = []
        for end, some in ends.items():
            if (len(some) == 1 and end not in taken) or length >= len(parts[some[0]]):
                paths.update({file: end if len(some) == 1 else file for file in some})
            else:
                left += some
        remaining, length = left, length + 1
    return paths
