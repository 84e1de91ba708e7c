"""The data model of a report: what analyses return and templates show."""

from __future__ import annotations

from .model import *  # noqa: F403
