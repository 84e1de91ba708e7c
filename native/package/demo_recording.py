"""How does `postrun demo` record a real small training on the user's machine?

As the user would: ``postrun record`` runs :mod:`postrun.example_training` in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from . import native
from .errors import PostrunError

NAME: Final = "small training, recorded on this machine"
INTERVAL_MS: Final = 100
_LIMIT_S: Final = 180.0
_PATIENCE_S: Final = 5.0
_MARK: Final = ".postrun-demo"
"""A file in the folder that says that it may be replaced."""


class NotRecordedError(PostrunError):
    """Why nothing was recorded; the demo goes on without."""


def record_example(folder: Path, *, seed: int) -> None:
    """Records the example to ``folder``; an earlier recording of it there is replaced. Raises NotRecordedError."""
    if not native.available():
        raise NotRecordedError("recording needs the C library, and this installation has none (docs/capture.md)")
    from . import example_training as example

    facts = {
        "steps": example.STEPS,
        "batch_size": example.BATCH,
        "hidden_size": example.HIDDEN,
        "learning_rate": example.LEARNING_RATE,
        "momentum": example.MOMENTUM,
        "seed": seed,
    }
    _make_room(folder)
    command = [sys.executable, "-P", "-m", "postrun", "record", "--quiet", "--interval-ms", str(INTERVAL_MS), "--name", NAME]
    command += ["--out", os.fspath(folder.absolute()), *(f"--param={key}={value}" for key, value in facts.items()), "--"]
    command += [sys.executable, "-P", "-m", "postrun.example_training", "--seed", str(seed)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("POSTRUN_")}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    try:
        _, told = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        _end(process)
        raise NotRecordedError(f"the small training had not ended after {_LIMIT_S:.0f} s and was stopped") from None
    except BaseException:
        _end(process)
        raise
    if process.returncode != 0:
        lines = [line for line in told.splitlines() if line.strip()]
        raise NotRecordedError(f"the small training failed ({lines[-1] if lines else f'exit code {process.returncode}'})")


def _make_room(folder: Path) -> None:
    mark = folder / _MARK
    try:
        if folder.is_dir() and any(folder.iterdir()) and not mark.exists():
            raise NotRecordedError(f"{folder} is there already and is not of an earlier demo; choose another folder with -o")
        if folder.is_dir():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        mark.touch()
    except OSError as error:
        raise NotRecordedError(f"{error.filename or folder}: {error.strerror or error}") from error


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the recorder so that it ends the training, too: it passes SIGTERM on."""
    process.terminate()
    try:
        process.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
