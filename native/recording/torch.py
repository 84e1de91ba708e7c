"""A handler for torch.profiler that writes complete traces to a folder that postrun reads."""

from __future__ import annotations

import errno
import os
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ... import modes
from .host_name import host_name

_RANKS: Final = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def torch_trace_handler(directory: str | os.PathLike[str]) -> Callable[[Any], None]:
    """Return an ``on_trace_ready`` of torch.profiler that writes gzipped traces.

    ``postrun report DIRECTORY`` reads them. Files are named ``<host>_<pid>.<time>.pt.trace.json.gz``, in a folder ``rank<N>`` if the
    process has a rank. A file is complete or missing; if it cannot be written, there is a warning, and training goes on.
    """
    root = Path(directory)

    def handler(profiler: Any) -> None:
        try:
            write_trace(profiler, root)
        except OSError as error:
            warnings.warn(f"{error.filename}: the trace could not be written ({error.strerror})", RuntimeWarning, stacklevel=2)

    return handler


def write_trace(profiler: Any, root: Path) -> None:
    """Write the trace of a profiler to a file in ``root``. Raise OSError."""
    number = rank()
    folder = root if number is None else root / f"rank{number}"
    name = f"{host_name().replace('/', '_')}_{os.getpid()}.{time.time_ns()}.pt.trace.json"
    plain, packed = folder / f".{name}", folder / f".{name}.gz"
    try:
        modes.make_folder(folder)
        os.close(modes.opener(os.fspath(plain), os.O_WRONLY | os.O_CREAT))
        profiler.export_chrome_trace(os.fspath(plain))
        if not _is_whole(plain):
            packed.write_bytes(bytes(1 << 20))  # fails for the same reason, which torch does not report
            raise OSError(errno.EIO, "torch.profiler did not write it")
        _pack(plain, packed)
        packed.replace(folder / f"{name}.gz")
    except OSError as error:
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), f"{folder / name}.gz") from None
    finally:
        for left in (plain, packed, folder / f".{name}.tmp"):  # the last one is torch's own
            with suppress(OSError):
                left.unlink(missing_ok=True)


def _is_whole(trace: Path) -> bool:
    """Whether the trace is complete, to its last bracket."""
    with suppress(OSError), trace.open("rb") as file:
        file.seek(max(0, trace.stat().st_size - 16))
        return file.read().rstrip().endswith((b"}", b"]"))
    return False


def _pack(source: Path, target: Path) -> None:
    import gzip
    import shutil

    with (
        source.open("rb") as plain,
        open(target, "wb", opener=modes.opener) as file,
        gzip.open(file, "wb", compresslevel=4) as packed,
    ):
        shutil.copyfileobj(plain, packed, 1 << 20)


def rank() -> int | None:
    """Return the process's rank: of torch.distributed if in use, else the launcher's."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    for variable in _RANKS:
        text = os.environ.get(variable, "")
        if text.isascii() and text.isdigit():
            return int(text)
    return None
