"""The configuration objects of rules, under their public name: ``from postrun.rule_configs import ProfilerRule``."""

from __future__ import annotations

import sys

from .analysis.rules.engine import config

sys.modules[__name__] = config
