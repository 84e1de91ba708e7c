"""Training steps of Keras (2, 3 and tf.keras): batches of ``Model.fit`` and calls of ``Model.train_on_batch`` -> boundaries of steps.

A step lasts from the beginning of a batch to the beginning of the next, or to the end of the epoch or the start of a validation. With
``steps_per_execution=N`` a step has N batches. A custom loop without ``tf.function`` makes a step with each ``optimizer.apply_gradients``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from ..recording.when_imported import when_imported
from . import begin

_CALLBACKS: Final = ("keras.src.callbacks.callback_list", "keras.src.callbacks", "tf_keras.src.callbacks")
_MODELS: Final = ("keras.src.models.model", "keras.src.engine.training", "tf_keras.src.engine.training")
_OPTIMIZERS: Final = ("keras.src.optimizers.base_optimizer", "keras.src.optimizers.optimizer", "tf_keras.src.optimizers.optimizer")
_FIT: Final = ("Keras fit", 4, "Keras")
_ON_BATCH: Final = ("Keras train_on_batch", 3, "Keras, train_on_batch")
_APPLY: Final = ("Keras optimizer", 2, "Keras optimizer")
Source = tuple[str, int, str]


def hook() -> None:
    """Watch Keras, which is imported now or later."""
    for names, act in ((_CALLBACKS, _watch_fit), (_MODELS, _watch_models), (_OPTIMIZERS, _watch_optimizers)):
        for name in names:
            when_imported(name, act)


def _watch_fit(module: ModuleType) -> None:
    callbacks = getattr(module, "CallbackList", None)
    _before(callbacks, "on_train_batch_begin", lambda: _turns(_FIT))
    for name in ("on_epoch_end", "on_test_begin", "on_train_end"):
        _before(callbacks, name, lambda: _ends(_FIT))


def _watch_models(module: ModuleType) -> None:
    _before(getattr(module, "Model", None), "train_on_batch", lambda: _turns(_ON_BATCH))


def _watch_optimizers(module: ModuleType) -> None:
    for name in ("BaseOptimizer", "Optimizer"):
        _before(getattr(module, name, None), "apply_gradients", _applies)


def _applies() -> None:
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is not None and tensorflow.executing_eagerly():
        _turns(_APPLY)


def _turns(source: Source) -> None:
    steps = begin.steps()
    if steps is not None and steps.takes(*source):
        steps.turns()


def _ends(source: Source) -> None:
    steps = begin.steps_of_session()
    if steps is not None and steps.source == source[0] and steps.mine():
        steps.ends()


def _before(owner: Any, name: str, act: Callable[[], None]) -> None:
    """Call ``act`` before each call of a method; hook each method only once."""
    original = getattr(owner, name, None)
    if original is None or hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def called(self: Any, *arguments: Any, **keywords: Any) -> Any:
        act()
        return original(self, *arguments, **keywords)

    setattr(called, _MARK, True)
    setattr(owner, name, called)


_MARK: Final = "_postrun_hook"
