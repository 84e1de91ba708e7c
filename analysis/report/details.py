"""Bases of the details of rules: rows and their conversion from other rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, dataclass_transform


@dataclass_transform(frozen_default=True)
class DetailsRow:
    """A subclass is a frozen dataclass. Without slots, so that rows can have two bases with fields."""

    def __init_subclass__(cls, *, kw_only: bool = False) -> None:
        dataclass(frozen=True, kw_only=kw_only)(cls)

    @classmethod
    def of(cls, source: object, **values: Any) -> Self:
        """Return a row of ``values``, and else of ``source``'s values of the same name."""
        names = {one.name for one in dataclasses.fields(cls)} - values.keys()  # type: ignore[arg-type]
        if not isinstance(source, Mapping):
            source = {name: getattr(source, name) for name in names if hasattr(source, name)}
        return cls(**values, **{name: source[name] for name in names if name in source})


class RuleDetails(DetailsRow):
    """Base of the details of the built-in rules, which are in :mod:`postrun.analysis.report.rule_details`.

    A field whose default is None has no key in report.json while it is None. Details of other rules, empty ones, and those of another
    version of postrun are dicts."""
