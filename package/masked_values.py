"""Masking of secrets in JSON values and mappings: value -> the same without secrets, and what was masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .redaction import MASK, mask_arguments, mask_command, mask_text
from .secret_names import is_plain_value, is_secret_name, is_service, words_of

_COMMANDS: Final = ("command", "cmdline", "command_line", "argv", "commandline")
_DEPTH: Final = 64
TOO_DEEP: Final = "… (nested too deeply)"  # replaces a value that is nested more than ``_DEPTH`` levels deep


def without_depth(value: Any, levels: int = _DEPTH) -> Any:
    """Replace deep nesting in a JSON value by a text, for recursive code."""
    if isinstance(value, Mapping):
        return {key: without_depth(one, levels - 1) for key, one in value.items()} if levels > 0 else TOO_DEEP
    if isinstance(value, list | tuple):
        return [without_depth(one, levels - 1) for one in value] if levels > 0 else TOO_DEEP
    return value


def mask_value(name: str, value: Any, *, of_service: bool = False, levels: int = _DEPTH) -> tuple[Any, list[str]]:
    """Mask the secrets in a JSON value; return a name per masked value.

    ``of_service``: the value belongs to a service such as wandb, in which "key" is a secret. Values deeper than ``levels`` become a text.
    """
    if is_secret_name(name) or (of_service and name.lower() == "key"):
        if isinstance(value, int | float | str) and is_plain_value(name, str(value)):
            return value, []
        if value is None or isinstance(value, bool) or (isinstance(value, Mapping | list | tuple) and not value):
            return value, []
        if not (isinstance(value, Mapping | list | tuple) and words_of(name)[-1] == "tokens" and levels > 0):
            return MASK, [name]
        pairs = [mask_value(name, one, levels=levels - 1) for one in (value.values() if isinstance(value, Mapping) else value)]
        new = [one for one, _ in pairs]
        return (dict(zip(value, new, strict=True)) if isinstance(value, Mapping) else new), [what for _, more in pairs for what in more]
    if isinstance(value, str):
        return mask_command(value) if name.lower().endswith(_COMMANDS) else mask_text(value)
    if isinstance(value, Mapping | list | tuple) and levels <= 0:
        return TOO_DEEP, []
    if isinstance(value, Mapping):
        return mask_mapping(value, of_service=is_service(name), levels=levels - 1)
    if isinstance(value, list | tuple):
        return _mask_list(value, levels)
    return value, []


def _mask_list(values: Sequence[Any], levels: int) -> tuple[list[Any], list[str]]:
    """Mask the texts of a list like a command's arguments, and its other values."""
    texts = ["{}" if isinstance(one, Mapping | list | tuple) else str(one) for one in values]
    masked, names = mask_arguments(texts)
    result: list[Any] = []
    for value, text, new in zip(values, texts, masked, strict=True):
        if isinstance(value, str) or new != text:
            result.append(new)
            continue
        inner, more = mask_value("", value, levels=levels - 1)
        result.append(inner)
        names += more
    return result, names


def mask_mapping(values: Mapping[str, Any], *, of_service: bool = False, levels: int = _DEPTH) -> tuple[dict[str, Any], list[str]]:
    """Mask the secrets in parameters or an environment; return their names."""
    masked: dict[str, Any] = {}
    names: list[str] = []
    named = {str(key).lower(): value for key, value in values.items()}
    owner = named.get("name")  # {"name": "API_KEY", "value": "..."}
    for key, value in values.items():
        name = owner if str(key).lower() == "value" and isinstance(owner, str) and is_secret_name(owner) else str(key)
        new, more = mask_value(name, value, of_service=of_service, levels=levels)
        new_key, of_key = mask_text(str(key)) if isinstance(key, str) else (key, [])
        while new_key != key and (new_key in masked or new_key in values):
            new_key += "*"
        masked[new_key] = new
        names += more + of_key
    return masked, names
