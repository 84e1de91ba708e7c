"""A worker process of the pool: reads tasks from a socket and returns results or exceptions.

``python -P -m postrun.nightly.worker DESCRIPTOR FOLDER``. A frame is 8 bytes with a length, and a pickle of that length. The worker answers
a task with TAKEN before it unpickles it, then with a frame: ("ok", result) or ("error", exception, traceback). When the other side of the
socket is closed, as it is when the parent process has ended, the worker ends with its children and removes FOLDER, its temporary folder.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from typing import Any, BinaryIO, Final

from . import hard_limit

TAKEN: Final = b"T"
LENGTH: Final = struct.Struct(">Q")
_GRACE_S: Final = 5.0


class TaskError(Exception):
    """A task's exception or result that cannot be pickled, in words."""


def main() -> None:
    folder = sys.argv[2]
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    # The kernel should kill a worker rather than the parent, which keeps the list of finished runs.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write("500")
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    busy = threading.Event()
    threading.Thread(target=_watch, args=(connection, busy, folder), daemon=True).start()
    stream = connection.makefile("rb")
    while (frame := _received(stream)) is not None:
        busy.set()
        connection.sendall(TAKEN)
        answer = _answer(frame)
        faulthandler.cancel_dump_traceback_later()
        del frame
        connection.sendall(LENGTH.pack(len(answer)))
        connection.sendall(answer)
        del answer
        busy.clear()
    shutil.rmtree(folder, ignore_errors=True)


def _watch(connection: socket.socket, busy: threading.Event, folder: str) -> None:
    """End the process group when the socket closes; if idle, after a grace time."""
    poll = select.poll()
    poll.register(connection, getattr(select, "POLLRDHUP", 0))
    while not any(event for _, event in poll.poll()):
        pass
    if not busy.is_set():
        threading.Event().wait(_GRACE_S)
    # The folder is removed after the processes have ended: a task whose files disappear could publish a wrong result.
    words = ["/bin/sh", "-c", 'kill -s KILL -- "-$1"; rm -rf -- "$2"', "sh", str(os.getpgrp()), folder]
    with contextlib.suppress(OSError):
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        threading.Event().wait(_GRACE_S)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _received(stream: BinaryIO) -> bytes | None:
    """Return the next frame, or None after the last."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    [length] = LENGTH.unpack(head)
    frame = stream.read(length)
    return frame if len(frame) == length else None


def _answer(frame: bytes) -> bytes:
    """Return the answer to a frame, unless the task ends the process."""
    try:
        paths, timeout_s, memory_bytes, task = pickle.loads(frame)
        hard_limit.limited_to(memory_bytes)
        hard_limit.limit_files()
        if timeout_s is not None:
            faulthandler.dump_traceback_later(timeout_s)  # shows readers of the output where the task hangs
        sys.path.extend(path for path in paths if path not in sys.path)
        function, args, kwargs = pickle.loads(task)
        result = function(*args, **kwargs)
    except BaseException as error:  # an exit inside a task is a failure of this task
        unclear = isinstance(error, SystemError) or (isinstance(error, MemoryError) and not error.args)
        if unclear and (reason := hard_limit.explained(error)):
            error.args = (reason,)  # the interpreter gives none, or one for its developers
        return _failure(error)
    try:
        return pickle.dumps(("ok", result), pickle.HIGHEST_PROTOCOL)
    except BaseException as error:
        return _failure(TaskError(f"the result, a {type(result).__name__}, cannot be handed over: {type(error).__name__}: {error}"))


def _failure(error: BaseException) -> bytes:
    text = "".join(traceback.format_exception(error))
    sys.stderr.write(text)
    with contextlib.suppress(BaseException):
        answer = pickle.dumps(("error", error, text), pickle.HIGHEST_PROTOCOL)
        again: Any = pickle.loads(answer)[1]
        if type(again) is type(error):
            return answer
    try:
        message = str(error)
    except Exception:
        message = "its message cannot be shown"
    return pickle.dumps(("error", TaskError(f"{type(error).__name__}: {message}"), text), pickle.HIGHEST_PROTOCOL)


if __name__ == "__main__":
    # Imported by its name, so that an exception class of this module is the same on both sides.
    from .worker import main as run

    run()
