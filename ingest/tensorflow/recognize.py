"""Recognizes traces of TensorFlow's profiler by the beginning of a file and its path."""

from __future__ import annotations

import re
from typing import Final

_EVENTS: Final = re.compile(rb"\s*[\[{]")
# XLA and JAX also name the processes of their traces like that; timelines of tf.compat.v1 put the job first.
_PROCESS: Final = re.compile(rb'"name"\s*:\s*"(/job:[^"]{0,200})?/(host:CPU|device:[A-Za-z_]{1,30}:\d+)')
_PATH: Final = re.compile(r"/plugins/profile/[^/]+/[^/]*trace\.json(\.gz|\.zst)?$", re.IGNORECASE)
_KINETO: Final = re.compile(rb'"(schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds)"\s*:')


def recognizes_tensorflow(head: bytes, name: str) -> bool:
    """Return whether processes have TensorFlow's names, or the path its folders.

    PyTorch's profiler may also write below ``plugins/profile/``.
    """
    text = head.removeprefix(b"\xef\xbb\xbf")
    if _KINETO.search(text):
        return False
    if b'"process_name"' in text and _EVENTS.match(text) and _PROCESS.search(text):
        return True
    return _PATH.search(name) is not None and (_EVENTS.match(text) is not None or not text.strip())
