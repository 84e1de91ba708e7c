"""The data model of a report: what the analysis returns and the templates show."""

from __future__ import annotations

from .model import *  # noqa: F403
