"""Converts symbols of compilers (``_Z...``) to the names that PyTorch's profiler shows.

That profiler calls ``__cxa_demangle`` of the C++ runtime for symbols of at most 1024 bytes; so does this module, and names are equal. A
hostile symbol can have a name that exceeds any memory, so the function runs in another process with limits on its resources.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

LONGEST: Final = 1024  # bytes; longer symbols stay unchanged
_LONGEST_NAME: Final = 1 << 16
_PROCESSES: Final = 8  # this many symbols may each end the process; later symbols stay unchanged
_SECONDS: Final = 20

# Reads one symbol per line; writes one name per line as JSON, or null. It ends if a symbol takes too many resources.
_PROGRAM: Final = """
import ctypes, json, sys
try:
    import resource
    for limit, most in ((resource.RLIMIT_AS, 1 << 29), (resource.RLIMIT_CPU, 3), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(limit, (most, most))
except (ImportError, ValueError, OSError):
    pass
for library in ("libstdc++.so.6", "libc++abi.so.1", "libc++.1.dylib", None):
    try:
        demangle = ctypes.CDLL(library).__cxa_demangle
        free = ctypes.CDLL(None).free
        break
    except (OSError, AttributeError):
        continue
else:
    sys.exit(3)
demangle.argtypes, demangle.restype = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)], ctypes.c_void_p
free.argtypes, free.restype = [ctypes.c_void_p], None
for line in sys.stdin.buffer:
    status = ctypes.c_int()
    found = demangle(line.rstrip(b"\\n"), None, None, ctypes.byref(status))
    name = ctypes.string_at(found) if found and not status.value else None
    free(found)
    print(json.dumps(None if name is None or len(name) > LONGEST else name.decode("utf-8", "replace")), flush=True)
"""


def demangled(symbols: Sequence[str]) -> list[str]:
    """Return the name of each symbol; unreadable symbols stay unchanged."""
    wanted = list(dict.fromkeys(symbol for symbol in symbols if _is_symbol(symbol)))
    names: dict[str, str | None] = {}
    for _ in range(_PROCESSES):
        if not wanted:
            break
        if (results := _names(wanted)) is None:
            break
        names.update(zip(wanted, results, strict=False))
        wanted = wanted[len(results) + 1 :]  # without the symbol that ended the process
    return [names.get(symbol) or symbol for symbol in symbols]


def _is_symbol(text: str) -> bool:
    return text.startswith("_Z") and len(text) <= LONGEST and text.isascii() and text.isprintable()


def _names(symbols: Sequence[str]) -> list[str | None] | None:
    """Return the names of the symbols before the process ended; None if it cannot run."""
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM.replace("LONGEST", str(_LONGEST_NAME))]
    try:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    with process:
        try:
            out, _ = process.communicate("\n".join(symbols).encode() + b"\n", timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
    if process.returncode == 3:
        return None
    return [json.loads(line) for line in out.decode().split("\n")[:-1][: len(symbols)]]
