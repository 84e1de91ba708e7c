"""The host's name in recordings: the system's, or an alias that does not identify the host if POSTRUN_REDACT contains hosts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

KINDS: Final = ("hosts", "users", "paths", "command")  # the words of --redact
VARIABLE: Final = "POSTRUN_REDACT"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def redacted() -> frozenset[str]:
    """Return the words of POSTRUN_REDACT; all of KINDS for an unknown word."""
    words = {word for word in os.environ.get(VARIABLE, "").replace(",", " ").split(" ") if word}
    return frozenset(words if words <= set(KINDS) else KINDS)


def host_name() -> str:
    """Return the host's name, or the alias of native/src/core/redact_places.c."""
    import socket

    host = socket.gethostname()
    return alias(host) if "hosts" in redacted() else host


def alias(host: str) -> str:
    """Return an alias of a host until its next boot, whose random id protects it."""
    try:
        boot = _BOOT_ID.read_bytes()
    except OSError:
        boot = b""
    value = 0xCBF29CE484222325
    for byte in boot + os.fsencode(host) + boot:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"node-{value >> 32 if boot else 0:08x}"
