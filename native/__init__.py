"""The compiled extension: whether it is installed, its version, and where its library and headers are.

The extension is loaded at first use: with POSTRUN_CAPTURE=1 loading it begins a recording, which importing this package must not do.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType


def _extension() -> ModuleType | None:
    try:
        from . import _native
    except ImportError:  # installed without a C compiler (POSTRUN_NO_NATIVE=1)
        return None
    return _native


def available() -> bool:
    """Return whether the C extension was built into this installation."""
    return _extension() is not None


def version() -> str | None:
    """Return the version of the C library, or None if it was not built."""
    native = _extension()
    return None if native is None else str(native.version())


def gpu_driver() -> bool:
    """Whether the NVIDIA driver loads into this process, without initializing CUDA."""
    native = _extension()
    return native is not None and bool(native.gpu_driver())


def _root() -> Path:
    native = _extension()
    if native is None or native.__file__ is None:
        raise FileNotFoundError("this installation of postrun has no C library: reinstall with a C compiler and without POSTRUN_NO_NATIVE")
    # In a wheel and in an editable installation, the headers are next to the extension.
    return Path(native.__file__).resolve().parent


def library() -> Path:
    """Return the C library. Raise FileNotFoundError if it was not built."""
    return _root() / "lib" / "libpostrun.so"


def include_dir() -> Path:
    """Return the folder of ``postrun.h``. Raise FileNotFoundError if it was not built."""
    return _root() / "include"


def cmake_dir() -> Path:
    """Return the folder for ``-Dpostrun_DIR=``. Raise FileNotFoundError if not built."""
    return _root() / "lib" / "cmake" / "postrun"
