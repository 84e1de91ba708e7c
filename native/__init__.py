"""The C side: is it there, which version, where are its headers?"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

_native: ModuleType | None
try:
    from . import _native  # type: ignore[attr-defined, no-redef, unused-ignore]
except ImportError:  # installed without a C compiler (POSTRUN_NO_NATIVE=1)
    _native = None


def available() -> bool:
    """Whether the C extension was built into this installation."""
    return _native is not None


def version() -> str | None:
    """Version of the loaded C library, or None where it was not built."""
    return None if _native is None else str(_native.version())


def gpu_driver() -> bool:
    """Whether the NVIDIA driver can be loaded into this process; CUDA is not initialised."""
    return _native is not None and bool(_native.gpu_driver())


def _root() -> Path:
    if _native is None or _native.__file__ is None:
        raise FileNotFoundError("this installation of postrun has no C library: reinstall with a C compiler and without POSTRUN_NO_NATIVE")
    # The extension is the one file that always lies beside the installed headers, in a wheel and in an editable install.
    return Path(_native.__file__).resolve().parent


def library() -> Path:
    """The C library itself. Raises FileNotFoundError in an installation without the C side."""
    return _root() / "lib" / "libpostrun.so"


def include_dir() -> Path:
    """Folder that holds ``postrun.h``. Raises FileNotFoundError in an installation without the C side."""
    return _root() / "include"


def cmake_dir() -> Path:
    """Folder for ``-Dpostrun_DIR=``. Raises FileNotFoundError in an installation without the C side."""
    return _root() / "lib" / "cmake" / "postrun"
