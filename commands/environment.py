"""Checks for environment variables that look like postrun's and are unknown."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

_PREFIX: Final = "POSTRUN_"
_OTHERS: Final = (
    "POSTRUN_ACCEPT",
    "POSTRUN_CAPTURE",
    "POSTRUN_CONFIG",
    "POSTRUN_CUPTI",
    "POSTRUN_CUPTI_CLOCK",
    "POSTRUN_CUPTI_MULTIPLE",
    "POSTRUN_CUPTI_STAY",
    "POSTRUN_CUPTI_WHEELS",
    "POSTRUN_DIR",
    "POSTRUN_FOLLOW_FORK",
    "POSTRUN_GPU_MEMORY",
    "POSTRUN_GPU_WINDOWS",
    "POSTRUN_NO_NATIVE",
    "POSTRUN_NO_APT",
    "POSTRUN_NODE_MODULES",
    "POSTRUN_TEST_DATA",
    "POSTRUN_RECORDER",
    "POSTRUN_ROTATE_S",
    "POSTRUN_ROUNDUP",
    "POSTRUN_SWIFT",
    "POSTRUN_TORCH",
    "POSTRUN_TRACE_PROCESSOR",
    "POSTRUN_UPDATE_GOLDEN",
)
"""Variables that belong to no option, also those that only the development of postrun uses."""
_OPEN: Final = re.compile(
    "POSTRUN_(?:SOURCE|OUT)_(?:AWS|GOOGLE|AZURE)_"  # settings of one side of a night (docs/nightly.md)
    r"|POSTRUN_(?:SLACK|TEAMS|WEBHOOK)_[A-Z0-9_]+_(?:URL|HEADERS)(?:_FILE)?\Z"  # of a named webhook (docs/tickets.md)
)


def leave_recording() -> None:
    """Keep this process out of the job's recording; call before the C library loads."""
    os.environ.pop("POSTRUN_CAPTURE", None)


def may_set_option() -> bool:
    """Whether a variable POSTRUN_* is set that may belong to an option."""
    return any(name.upper().startswith(_PREFIX) and name not in _OTHERS and not _OPEN.match(name) for name in os.environ)


def unknown(of_options: Iterable[str]) -> Iterator[str]:
    """Yield a line for each unknown variable POSTRUN_*, with the nearest known one."""
    known = sorted({*of_options, *_OTHERS})
    if any(name.upper().startswith(_PREFIX) and name not in known for name in os.environ):
        from ..tickets.settings import variables

        known = sorted({*known, *variables()})
    for name in sorted(os.environ):
        if name.upper().startswith(_PREFIX) and name not in known and not _OPEN.match(name):
            near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.75)
            meant = f"did you mean {near[0]}?" if near else "the variable of an option is POSTRUN_ and its long name, such as POSTRUN_TOP"
            yield f"the environment variable {name} is unknown and counts for nothing ({meant})"
