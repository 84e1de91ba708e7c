"""How many elements, and of what type, do the shapes and types of tensors in a trace stand for?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod


def tensors(shapes: str, types: str) -> tuple[int | None, str | None]:
    """Elements of all tensors that JSON texts such as ``[[8, 1024], []]`` and ``["float", "Scalar"]`` tell, and their type; None where they
    tell none, or tensors of several types. A list of tensors has a list of shapes; its type may be one or a list of them."""
    try:
        shape, kind = json.loads(shapes), json.loads(types)
    except ValueError:
        return None, None
    if not isinstance(shape, list) or not isinstance(kind, list):
        return None, None
    found = [one for given, name in zip(shape, kind, strict=False) for one in _each(given, name)]
    kinds = {name for _, name in found}
    return (sum(elements for elements, _ in found), kinds.pop()) if len(kinds) == 1 else (None, None)


def output_and_input(shapes: str, types: str) -> tuple[int, int, str] | None:
    """Elements of the first two arguments, as of a collective that says what it gives and what it is given, and their type; None where one
    has none, or they are of several types."""
    try:
        shape, kind = json.loads(shapes), json.loads(types)
    except ValueError:
        return None
    if not isinstance(shape, list) or not isinstance(kind, list) or min(len(shape), len(kind)) < 2:
        return None
    output, given = (list(_each(shape[i], kind[i])) for i in range(2))
    kinds = {name for _, name in (*output, *given)}
    sums = [sum(elements for elements, _ in part) for part in (output, given)]
    return (sums[0], sums[1], kinds.pop()) if len(kinds) == 1 and min(sums) > 0 else None


def _each(shape: object, kind: object) -> Iterator[tuple[int, str]]:
    if not isinstance(shape, list) or not shape:
        return
    if all(isinstance(extent, int) and not isinstance(extent, bool) and extent >= 0 for extent in shape):
        if isinstance(kind, str):
            yield prod(shape), kind
        return
    kinds = kind if isinstance(kind, list) else [kind] * len(shape)
    for one, name in zip(shape, kinds, strict=False):
        yield from _each(one, name)
