"""The name of functions that annotate a call and call the program's function: profiles of Python functions leave them out by it.

Apart from :mod:`.capture_decorators`, as importing that loads the C library, which may begin a session.
"""

from __future__ import annotations

from typing import Final

ANNOTATED: Final = "annotated "  # The begin of the name of their code
