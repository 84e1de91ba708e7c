"""Figures that several parts of an analysis need, computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from ...ingest.store.store import Store

if TYPE_CHECKING:
    import polars as pl

P = ParamSpec("P")
T = TypeVar("T")

_KEPT_ROWS: Final = 250_000


def shared(analysis: Callable[Concatenate[Store, P], T]) -> Callable[Concatenate[Store, P], T]:
    """Compute ``analysis`` once for equal arguments while the store is unchanged.

    The arguments are hashable, and callers do not change the result.
    """

    def once(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answers = store.answers
        if answers is None:
            return analysis(store, *args, **kwargs)
        key = _key(analysis, args, kwargs)
        if key not in answers:
            answers[key] = analysis(store, *args, **kwargs)
        result: T = answers[key]
        return result

    return update_wrapper(once, analysis)


def shared_if_small(analysis: Callable[Concatenate[Store, P], pl.DataFrame]) -> Callable[Concatenate[Store, P], pl.DataFrame]:
    """Compute a frame once, as :func:`shared`, but do not keep a large one.

    A second computation costs less than its memory."""
    kept = shared(analysis)

    def once(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> pl.DataFrame:
        rows = kept(store, *args, **kwargs)
        if store.answers is not None and rows.height > _KEPT_ROWS:
            del store.answers[_key(analysis, args, kwargs)]
        return rows

    return update_wrapper(once, analysis)


def _key(analysis: object, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
    return (analysis, args, *sorted(kwargs.items()))
