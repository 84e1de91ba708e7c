"""Small modules with the public surface of PyTorch, Keras, TensorFlow and JAX that hooks use: folder -> packages to import from there.

They are written as files, so that the hooks act on their import as on that of the real ones.
"""

from __future__ import annotations

from pathlib import Path

_FILES = {
    "torch/__init__.py": """
_grad = [True]
def is_grad_enabled(): return _grad[0]
def compile(model):
    hooks = torch.nn.modules.module.hooks
    if hooks: raise RuntimeError("hooks cannot be traced")  # as with fullgraph=True
    def compiled(*a):
        if hooks: raise RuntimeError("compiled again")
    return compiled
class no_grad:
    def __enter__(self): _grad.append(_grad[0]); _grad[0] = False
    def __exit__(self, *a): _grad[0] = _grad.pop()
from . import nn, optim
import torch.nn.modules.module, torch.optim.optimizer, torch.utils.data.dataloader
""",
    "torch/nn/__init__.py": "",
    "torch/nn/modules/__init__.py": "",
    "torch/nn/modules/module.py": """
hooks = {}
class Handle:
    def __init__(self, hooks, hook): self.hooks = hooks; hooks[id(self)] = hook
    def remove(self): self.hooks.pop(id(self), None)
def register_module_forward_pre_hook(hook): return Handle(hooks, hook)
class Module:
    training = True
    def __call__(self, *a):
        for hook in (*hooks.values(),): hook(self, a)
""",
    "torch/optim/__init__.py": "",
    "torch/optim/optimizer.py": """
from torch.nn.modules.module import Handle
pre, post = {}, {}
def register_optimizer_step_pre_hook(hook): return Handle(pre, hook)
def register_optimizer_step_post_hook(hook): return Handle(post, hook)
class Optimizer:
    def step(self):
        for hook in pre.values(): hook(self, (), {})
        for hook in post.values(): hook(self, (), {})
""",
    "torch/utils/__init__.py": "",
    "torch/utils/data/__init__.py": "",
    "torch/utils/data/dataloader.py": """
class _BaseDataLoaderIter:
    def __init__(self, loader): self._dataset, self._left = loader.dataset, iter(loader.dataset)
    def __iter__(self): return self
    def __next__(self): return next(self._left)
class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    _num_workers, _pin_memory = 3, True
    def __init__(self, loader): super().__init__(loader)
class DataLoader:
    def __init__(self, dataset): self.dataset = dataset
    def __iter__(self): return _SingleProcessDataLoaderIter(self)
""",
    "jax/__init__.py": """
from . import profiler
def jit(fun=None, **settings):
    if fun is None: return lambda fun: Pjit(fun)
    return Pjit(fun)
pmap = jit
class Pjit:
    def __init__(self, fun): self.__wrapped__, self.__name__, self.__doc__ = fun, fun.__name__, fun.__doc__
    def __call__(self, *a, **k): return self.__wrapped__(*a, **k)
    def lower(self, *a): return "lowered"
    def clear_cache(self): return "cleared"
""",
    "jax/profiler.py": """
class StepTraceAnnotation:
    def __init__(self, name, **keywords): pass
    def __enter__(self): return self
    def __exit__(self, *a): pass
""",
    "keras/__init__.py": "import keras.src.callbacks.callback_list, keras.src.models.model, keras.src.optimizers.base_optimizer\n",
    "keras/src/__init__.py": "",
    "keras/src/callbacks/__init__.py": "from keras.src.callbacks.callback_list import CallbackList\n",
    "keras/src/callbacks/callback_list.py": """
class CallbackList:
    def on_train_batch_begin(self, batch, logs=None): pass
    def on_epoch_end(self, epoch, logs=None): pass
    def on_test_begin(self, logs=None): pass
    def on_train_end(self, logs=None): pass
""",
    "keras/src/models/__init__.py": "",
    "keras/src/models/model.py": """
from keras.src.callbacks.callback_list import CallbackList
class Model:
    def fit(self, batches, epochs):
        callbacks = CallbackList()
        for epoch in range(epochs):
            for batch in range(batches): callbacks.on_train_batch_begin(batch)
            callbacks.on_test_begin()
            callbacks.on_epoch_end(epoch)
        callbacks.on_train_end()
    def train_on_batch(self, x): return x
""",
    "keras/src/optimizers/__init__.py": "",
    "keras/src/optimizers/base_optimizer.py": """
class BaseOptimizer:
    def apply_gradients(self, grads): return grads
""",
    "tensorflow/__init__.py": """
import tensorflow.python.eager.polymorphic_function.polymorphic_function as implementation
eager = [True]
def executing_eagerly(): return eager[0]
def function(f): return implementation.Function(f)
""",
    "tensorflow/python/__init__.py": "",
    "tensorflow/python/eager/__init__.py": "",
    "tensorflow/python/eager/polymorphic_function/__init__.py": "",
    "tensorflow/python/eager/polymorphic_function/polymorphic_function.py": """
class Function:
    def __init__(self, f): self.python_function = f
    def __call__(self, *a): return self.python_function(*a)
""",
}


_PROFILER = {
    "torch/__init__.py": _FILES["torch/__init__.py"] + "from . import autograd, cuda, profiler\n",
    "torch/cuda.py": "def is_initialized(): return False\n",
    "torch/autograd/__init__.py": "from . import profiler\ndef _profiler_enabled(): return False\n",
    "torch/autograd/profiler.py": "_is_profiler_enabled = False\n",
    "torch/profiler.py": """
import enum, json
class ProfilerActivity(enum.Enum): CPU = 0; CUDA = 1
def supported_activities(): return {ProfilerActivity.CPU}
class profile:
    def __init__(self, *, activities=None, on_trace_ready=None, record_shapes=False, with_stack=False, with_modules=False):
        self.ready = on_trace_ready
        self.options = {"record_shapes": record_shapes, "with_stack": with_stack, "with_modules": with_modules}
    def start(self): pass
    def stop(self): self.ready(self)
    def export_chrome_trace(self, path):
        with open(path, "w") as file: json.dump({"options": self.options, "traceEvents": []}, file)
""",
}
"""PyTorch with a profiler whose trace names its options."""


def write_frameworks(folder: Path, *, profiler: bool = False) -> None:
    """Writes the packages to ``folder``; ``profiler``: PyTorch has torch.profiler."""
    for name, text in (_FILES | (_PROFILER if profiler else {})).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
