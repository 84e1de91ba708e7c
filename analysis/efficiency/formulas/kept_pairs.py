"""Pairs of a query and a key that attention keeps under a causal mask or a sliding window, in closed form."""

from __future__ import annotations


def kept_pairs(queries: int, keys: int, left: int | None, right: int | None, offset: int = 0) -> int:
    """Count the pairs of a query i and a key j that attention keeps.

    Those with ``i + offset - left <= j <= i + offset + right``, of ``queries`` x ``keys``.

    None: no limit on that side. Causal attention is ``right=0``; with ``offset = keys - queries`` the last query sees the last key
    (flash-attn, bottom right), with 0 the first query sees the first key alone (PyTorch's ``is_causal``, top left).
    """
    most = queries * keys if right is None else _up_to(queries, keys, offset + right)
    less = 0 if left is None else _up_to(queries, keys, offset - left - 1)
    return max(most - less, 0)


def _up_to(queries: int, keys: int, limit: int) -> int:
    """Count pairs with ``j - i <= limit``.

    Row i has its first ``i + limit + 1`` keys, at least 0 and at most ``keys``.
    """
    empty = min(max(-limit - 1, 0), queries)  # rows without a key
    full_from = min(max(keys - limit - 1, empty), queries)  # first row with all keys
    rows = full_from - empty
    first, last = empty + limit + 1, full_from + limit  # keys of the first and last row between
    return rows * (first + last) // 2 + (queries - full_from) * keys
