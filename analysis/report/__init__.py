"""The data model of a report: what the analysis returns and the templates show."""

from __future__ import annotations

from .causes import *  # noqa: F403
from .collectives import *  # noqa: F403
from .details import *  # noqa: F403
from .device import *  # noqa: F403
from .first_page import *  # noqa: F403
from .framework import *  # noqa: F403
from .machine import *  # noqa: F403
from .model import *  # noqa: F403
from .modules import *  # noqa: F403
from .python_profile import *  # noqa: F403
from .rows import *  # noqa: F403
from .rules import *  # noqa: F403
from .run import *  # noqa: F403
from .steps import *  # noqa: F403
