"""The name of wrappers that annotate calls of the program's functions: profiles of Python functions leave wrappers out by it.

It is not in :mod:`.decorators`, because importing that loads the C library, which may begin a session.
"""

from __future__ import annotations

from typing import Final

ANNOTATED: Final = "annotated "  # the beginning of the name of their code
