"""Python files with rules, loaded without a trace in the process: path -> classes."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType

from .bounds import LIMIT_S, TimeLimit, printing_aside
from .trial import stand_ins


class RuleFile:
    """A Python file with rules. Its additions to ``sys.modules`` and ``sys.path`` exist only while it runs."""

    def __init__(self, source: str | Path, limit_s: float = LIMIT_S) -> None:
        self.path = Path(source)
        self.limit = TimeLimit(limit_s)
        self._source = str(source)
        self._name = f"postrun_rule_file_{self.path.stem}"
        self._modules: dict[str, ModuleType] = {}

    def find(self, name: str) -> type:
        """Return the class of that name; ValueError lists the classes of the file."""
        kind = getattr(self._module, name, None)
        if isinstance(kind, type):
            return kind
        classes = [key for key, value in vars(self._module).items() if isinstance(value, type) and value.__module__ == self._name]
        raise ValueError(f"{self.path.name} has no class {name}; it has: {', '.join(classes) or 'none'}")

    @cached_property
    def _module(self) -> ModuleType:
        if "://" in self._source:
            raise ValueError(f"{self._source} is not a file of this machine; copy it here and give its path")
        try:
            text = self.path.read_bytes()
        except OSError as error:
            raise ValueError(f"{self.path}: cannot be read ({error.strerror}); give the path of a Python file") from error
        module = ModuleType(self._name)
        module.__file__ = str(self.path)
        sys.modules[module.__name__] = module
        exec(compile(text, str(self.path), "exec"), module.__dict__)
        return module

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Prepare the process for loading or calling the file.

        Its own modules and its folder can be imported, its prints go to standard error, and its time is limited."""
        folder = self.path.resolve().parent
        added = str(folder) not in sys.path
        lent = {} if _installed("smdebug") else stand_ins()
        mine = {**lent, **self._modules}
        hidden = {key: sys.modules[key] for key in mine if key in sys.modules}
        before = set(sys.modules)
        sys.modules.update(mine)
        if added:
            sys.path.append(str(folder))
        try:
            with printing_aside(self.path.name), self.limit.running():
                yield
        finally:
            if added:
                with contextlib.suppress(ValueError):
                    sys.path.remove(str(folder))
            fresh = [key for key in sys.modules if key not in before]
            brought = [key for key in fresh if key == self._name or (added and _lies_in(key, folder))]
            for key in {*brought, *self._modules} & set(sys.modules):
                self._modules[key] = sys.modules[key]
            for key in {*lent, *self._modules}:
                sys.modules.pop(key, None)
            sys.modules.update(hidden)


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return name in sys.modules


def _lies_in(name: str, folder: Path) -> bool:
    """Return whether a module or its package is in the folder of the rule file."""
    file = getattr(sys.modules.get(name.partition(".")[0]), "__file__", None)
    if not isinstance(file, str):
        return False
    path = Path(file)
    return (path.parent.parent if path.name == "__init__.py" else path.parent) == folder
