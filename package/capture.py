"""The capture API under its public name: ``from postrun import capture``."""

from __future__ import annotations

import sys

from .native import capture

sys.modules[__name__] = capture
