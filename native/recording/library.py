"""The functions of the C library, or stand-ins if it was not built (POSTRUN_NO_NATIVE=1).

If POSTRUN_CAPTURE=1 is set, importing this begins to record.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._native import *  # noqa: F403
else:
    try:
        from .._native import *  # noqa: F403
    except ImportError:
        from .absent import *  # noqa: F403
