"""Environment variables of object stores: plain ones, and those that hold for the source or the output of a night only.

``POSTRUN_OUT_AWS_PROFILE`` replaces ``AWS_PROFILE`` for the output, and the plain keys with it: the credentials of one side are never
combined with those of the other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from .objects import ObjectStoreError

Side = Literal["source", "out"]

PREFIXES: Final[dict[Side, str]] = {"source": "POSTRUN_SOURCE_", "out": "POSTRUN_OUT_"}
_NAME: Final = re.compile(r"\b(?:AWS|GOOGLE|AZURE)_[A-Z0-9_]+")
_MENTIONED: Final = re.compile(rf"{_NAME.pattern}|\b(?:AWS|GOOGLE|AZURE)_\*")
AWS_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_GROUPS: Final = tuple(
    map(
        re.compile,
        (
            r"AWS_(?:ACCESS_KEY_ID|SECRET_ACCESS_KEY|SESSION_TOKEN|PROFILE|DEFAULT_PROFILE|WEB_IDENTITY_TOKEN_FILE|ROLE_.*|SKIP_SIGNATURE"
            r"|CONTAINER_.*)",
            r"AWS_ENDPOINT(?:_URL(?:_S3)?)?",
            r"AWS_(?:DEFAULT_)?REGION",
            r"GOOGLE_.*",
            r"AZURE_.*",
        ),
    )
)
"""Variables that replace each other: one of a side leaves out all plain ones of its group."""
_OF_PROFILE: Final = _GROUPS[:3]  # A profile contains all of these
_HARMLESS: Final = frozenset({"AZURE_STORAGE_CONNECTION_STRING", "AZURE_CONFIG_DIR"})  # obstore does not read these


@dataclass(frozen=True, slots=True)
class Environment:
    """``values``: the variables of a side, by their plain names. ``replaced``: the names of those with the side's prefix."""

    values: Mapping[str, str] = field(repr=False)
    replaced: frozenset[str] = frozenset()
    prefix: str = ""

    def named(self, text: str) -> str:
        """Return a message with the prefixes of the variables that it names."""
        families = {f"{name.partition('_')[0]}_*" for name in self.replaced}
        named = self.replaced | families
        return _MENTIONED.sub(lambda match: self.prefix + match[0] if match[0] in named else match[0], text)

    def config(self, family: str) -> dict[str, str]:
        """Return the side's variables as settings of obstore.

        It reads the plain ones from the process. Raise ObjectStoreError if a plain variable would be combined with them."""
        names = {name for name in self.replaced if name.startswith(family)}
        mixed = {name for name, value in os.environ.items() if value and name.startswith(family)} - names - _HARMLESS if names else set()
        if mixed:
            name, prefix = min(mixed), next(prefix for prefix in PREFIXES.values() if prefix != self.prefix)
            raise ObjectStoreError(
                f"{name} would be combined with {self.prefix}{family}*; name it {prefix}{name}, or set it for both sides"
            )
        return {name.lower(): self.values[name] for name in names - _HARMLESS if self.values[name]}


def environment_of(side: Side | None, variables: Mapping[str, str] | None = None) -> Environment:
    """Return the variables of a side; None: the plain ones."""
    plain = os.environ if variables is None else variables
    if side is None:
        return Environment(dict(plain))
    prefix = PREFIXES[side]
    variables_of_side = {
        short: value for name, value in plain.items() if (short := name.removeprefix(prefix)) != name and _NAME.fullmatch(short)
    }
    groups = [group for group in _GROUPS if any(map(group.fullmatch, variables_of_side))]
    if {"AWS_PROFILE", "AWS_DEFAULT_PROFILE"} & variables_of_side.keys():
        groups += _OF_PROFILE
    kept = {name: value for name, value in plain.items() if not any(group.fullmatch(name) for group in groups)}
    return Environment({**kept, **variables_of_side}, frozenset(variables_of_side), prefix)
