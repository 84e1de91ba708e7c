"""Hooks the framework that a program imports, so that steps are found in programs that do not import postrun.

Python runs this at its start because `postrun record` puts this folder first on PYTHONPATH, also for processes that the program starts.
Nothing is imported until the program has imported a framework. A sitecustomize of the user still runs.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib is not imported by each Python


def _the_users() -> None:
    """Run the sitecustomize of the user, which this one hides."""
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]
    sys.path_importer_cache.pop(_HERE, None)
    this_module = sys.modules.pop(__name__, None)
    try:
        import sitecustomize  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if this_module is not None:
            sys.modules.setdefault(__name__, this_module)


class _Frameworks:
    """Finds frameworks with the finders after it, and hooks each after its import."""

    def __init__(self) -> None:
        self.left = {"torch", "jax", "tensorflow", "keras", "tf_keras"}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname not in self.left:
            return None
        self.left.discard(fullname)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(fullname, path, target) if find is not None else None
            if spec is not None:
                self._then_hook(spec.loader, fullname)
                return spec
        self.left.add(fullname)  # it may become importable later
        return None

    def _then_hook(self, loader: Any, framework: str) -> None:
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: Any) -> None:
            del loader.exec_module
            execute(module)
            _hook(framework)

        loader.exec_module = exec_module


def _hook(framework: str) -> None:
    first_use = "postrun.native.hooks.first_use"
    try:
        __import__(first_use)
        sys.modules[first_use].hook(framework)
    except ImportError:
        text = f"{sys.executable} has no postrun, so its steps are not recorded. Try: pip install postrun there"
        print(f"postrun: {text}", file=sys.stderr)
    except Exception as error:  # the program's import goes on
        print(f"postrun: the steps of this process are not recorded ({type(error).__name__}: {error})", file=sys.stderr)


_flags = ("POSTRUN_HOOKS", "POSTRUN_SHAPES", "POSTRUN_STACKS")
if os.environ.get("POSTRUN_CAPTURE") == "1" and (
    os.environ.get("POSTRUN_PROFILER_CONFIG") or any(os.environ.get(name) == "1" for name in _flags)
):
    sys.meta_path.insert(0, _Frameworks())
_the_users()
