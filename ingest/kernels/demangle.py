"""What is a kernel called in the source? Symbols of compilers (``_Z...``) become names as PyTorch's profiler shows them.

That profiler asks ``__cxa_demangle`` of the C++ runtime, for symbols of at most 1024 bytes; so does this, and names are equal. A symbol can
be made so that its name has more letters than any memory holds, so the function runs in a process of its own, with bounds on what it takes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

LONGEST: Final = 1024  # Longer symbols stay as they are
_LONGEST_NAME: Final = 1 << 16
_PROCESSES: Final = 8  # So many symbols may each end the process; those after them stay as they are
_SECONDS: Final = 20

# Reads symbols, one a line; writes names, one a line as JSON, null where it has none. Ends by itself where a symbol takes too much.
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
    """The name of each symbol; what is no symbol, is longer than ``LONGEST`` bytes or cannot be read stays as it is."""
    wanted = list(dict.fromkeys(symbol for symbol in symbols if _is_symbol(symbol)))
    names: dict[str, str | None] = {}
    for _ in range(_PROCESSES):
        if not wanted:
            break
        found = _ask(wanted)
        if found is None:
            break
        names.update(zip(wanted, found, strict=False))
        wanted = wanted[len(found) + 1 :]  # the one that it ended at is left out
    return [names.get(symbol) or symbol for symbol in symbols]


def _is_symbol(text: str) -> bool:
    return text.startswith("_Z") and len(text) <= LONGEST and text.isascii() and text.isprintable()


def _ask(symbols: Sequence[str]) -> list[str | None] | None:
    """Names of the first symbols, as many as the process came to; None where it cannot be asked."""
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
    lines = out.decode().split("\n")[:-1]
    found = [json.loads(line) for line in lines[: len(symbols)]]
    return [name if isinstance(name, str) else None for name in found]
