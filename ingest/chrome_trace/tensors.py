"""Counts the elements of tensors by their shapes and types in a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod


def tensors(shapes: str, types: str) -> tuple[int | None, str | None]:
    """Return the number of elements of all tensors and their type.

    The arguments are JSON texts such as ``[[8, 1024], []]`` and ``["float", "Scalar"]``. A list of tensors has a list of shapes; its type
    may be one or a list of them. None without tensors or for several types.
    """
    arguments = _arguments(shapes, types)
    kinds = {kind for sizes in arguments for _, kind in sizes}
    return (sum(elements for sizes in arguments for elements, _ in sizes), kinds.pop()) if len(kinds) == 1 else (None, None)


def output_and_input(shapes: str, types: str) -> tuple[int, int, str] | None:
    """Return the elements of an output and an input, and their type.

    They are the first two arguments. None if one has no elements or there are several types.
    """
    arguments = _arguments(shapes, types)[:2]
    kinds = {kind for sizes in arguments for _, kind in sizes}
    counts = [sum(elements for elements, _ in sizes) for sizes in arguments]
    return (counts[0], counts[1], kinds.pop()) if len(counts) == 2 and len(kinds) == 1 and min(counts) > 0 else None


def _arguments(shapes: str, types: str) -> list[list[tuple[int, str]]]:
    """Return elements and type of the tensors of each argument; [] if unreadable."""
    try:
        shape, kind = json.loads(shapes), json.loads(types)
    except ValueError:
        return []
    if not isinstance(shape, list) or not isinstance(kind, list):
        return []
    return [list(_each(extents, name)) for extents, name in zip(shape, kind, strict=False)]


def _each(shape: object, kind: object) -> Iterator[tuple[int, str]]:
    if not isinstance(shape, list) or not shape:
        return
    if all(isinstance(extent, int) and not isinstance(extent, bool) and extent >= 0 for extent in shape):
        if isinstance(kind, str):
            yield prod(shape), kind
        return
    kinds = kind if isinstance(kind, list) else [kind] * len(shape)
    for extents, name in zip(shape, kinds, strict=False):
        yield from _each(extents, name)
