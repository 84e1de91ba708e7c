"""Waits for data: ``next`` of PyTorch's data loaders -> annotations, with the names that PyTorch's profiler gives them.

``enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__`` lasts as long as the training waits for its next batch, and
``_MultiProcessingDataLoaderIter.__init__`` as long as its worker processes start. The settings of the loader with the largest number of
workers are metadata, such as ``dataloader.num_workers``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from ...recording.exclude_self import annotating
from ...recording.library import annotate, begin, end, metadata
from ...recording.when_imported import when_imported
from .steps import torch_current

_MODULE: Final = "torch.utils.data.dataloader"
_ITERATORS: Final = ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
_SETTINGS: Final = ("num_workers", "pin_memory", "prefetch_factor")


def hook() -> None:
    """Watch PyTorch's data loaders, which are imported now or later."""
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

    base.__next__ = annotating(annotated, original, "DataLoader")
    for name in _ITERATORS:
        iterators = getattr(module, name, base)
        if "__init__" in vars(iterators) and iterators is not base:
            iterators.__init__ = _annotated_init(iterators.__init__, name)


def _annotated_init(original: Callable[..., None], name: str) -> Callable[..., None]:
    def annotated(self: Any, *arguments: Any, **keywords: Any) -> None:
        with annotate(f"{name}.__init__"):
            original(self, *arguments, **keywords)
        _tell_settings(self)

    return annotating(annotated, original, name)


_most_workers = -1


def _tell_settings(iterator: Any) -> None:
    global _most_workers
    workers = getattr(iterator, "_num_workers", None)
    if isinstance(workers, int) and workers > _most_workers:
        _most_workers = workers
        for key in _SETTINGS:
            value = getattr(iterator, f"_{key}", None)
            if isinstance(value, int):
                metadata(f"dataloader.{key}", str(int(value)))
