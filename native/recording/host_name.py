"""The name of this host in what is recorded: the system's, or one that does not identify it if POSTRUN_REDACT contains hosts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

KINDS: Final = ("hosts", "users", "paths", "command")  # What can be redacted on request: the words of --redact
VARIABLE: Final = "POSTRUN_REDACT"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def redacted() -> frozenset[str]:
    """What POSTRUN_REDACT lists; everything if it contains an unknown word, as in the C library."""
    words = {word for word in os.environ.get(VARIABLE, "").replace(",", " ").split(" ") if word}
    return frozenset(words if words <= set(KINDS) else KINDS)


def host_name() -> str:
    """The host's name, or the same replacement that the C library computes (native/src/core/redact_places.c)."""
    import socket

    host = socket.gethostname()
    return alias(host) if "hosts" in redacted() else host


def alias(host: str) -> str:
    """A name for a host that stays until its next boot. The random id of the boot is part of it, so the host cannot be guessed from it."""
    try:
        boot = _BOOT_ID.read_bytes()
    except OSError:
        boot = b""
    value = 0xCBF29CE484222325
    for byte in boot + os.fsencode(host) + boot:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"node-{value >> 32 if boot else 0:08x}"
