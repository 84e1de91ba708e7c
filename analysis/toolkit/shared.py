"""Figures that several parts of an analysis need, computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Concatenate, ParamSpec, TypeVar

from ...ingest.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")


def shared(analysis: Callable[Concatenate[Store, P], T]) -> Callable[Concatenate[Store, P], T]:
    """Compute ``analysis`` once for equal arguments while the store is unchanged.

    The arguments are hashable, and callers do not change the result.
    """

    def once(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answers = store.answers
        if answers is None:
            return analysis(store, *args, **kwargs)
        key = (analysis, args, *sorted(kwargs.items()))
        if key not in answers:
            answers[key] = analysis(store, *args, **kwargs)
        result: T = answers[key]
        return result

    return update_wrapper(once, analysis)
