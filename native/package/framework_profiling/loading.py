"""Waits for data: ``next`` of PyTorch's data loaders -> annotations, with the names that PyTorch's profiler gives them.

``enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__`` lasts as long as the training waits for its next batch.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Final

from ..capture_library import begin, end
from ..decorator_name import ANNOTATED
from .steps import torch_current
from .when_imported import when_imported

_MODULE: Final = "torch.utils.data.dataloader"


def hook() -> None:
    """Watches PyTorch's data loaders, which are imported now or later."""
    when_imported(_MODULE, _watch)


def _watch(module: ModuleType) -> None:
    base = getattr(module, "_BaseDataLoaderIter", None)
    if base is None or "__next__" not in vars(base):
        return  # a version of PyTorch with other data loaders
    original = base.__next__
    names: dict[type, str] = {}

    def annotated(self: Any) -> Any:
        kind = type(self)
        name = names.get(kind)
        if name is None:
            name = names[kind] = f"enumerate(DataLoader)#{kind.__name__}.__next__"
        steps = torch_current()
        if steps is not None:
            steps.asks(self)
        begin(name)
        try:
            return original(self)
        except StopIteration:
            if steps is not None:
                steps.is_exhausted()
            raise
        finally:
            end()

    # Profiles of Python functions take it for a decorator, and show what it calls as called by its caller.
    annotated.__code__ = annotated.__code__.replace(co_name=f"{ANNOTATED}DataLoader")
    base.__next__ = functools.wraps(original)(annotated)
