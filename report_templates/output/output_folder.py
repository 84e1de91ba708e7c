"""Writes the files of a report into a folder: all are staged in it, then replace their targets under a lock, one run after the other.

The lock is on the folder itself, so that it leaves no file and ends with the process that holds it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

from ... import modes, temporary
from ...errors import RenderError
from .pdf import Job, Printer, PrinterHere

_PATIENCE_S: Final = 30.0  # moving the files of a report takes milliseconds
_POLL_S: Final = 0.02


class OutputFolder:
    """The files of one report or comparison. A reader sees the old file or the new one, never a part.

    ``targets``: format -> file. Use as a context manager; ``printer`` is None without a PDF.
    """

    def __init__(self, folder: Path, targets: Mapping[str, Path], printer: Printer | PrinterHere | None) -> None:
        self._folder, self._targets, self._staged = folder, targets, dict[str, Path]()
        self._stack = ExitStack()
        self.printer = printer if "pdf" in targets else None

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(modes.umask_for(modes.current()))
            self._folder.mkdir(parents=True, exist_ok=True)
            self.scratch = Path(stack.enter_context(temporary.Folder(self._folder, prefix=".postrun-")))
            if "pdf" in self._targets and self.printer is None:
                self.printer = stack.enter_context(Printer())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def stage(self, kind: str, data: bytes) -> None:
        """Write the successor of a target."""
        self._staged[kind] = self.scratch / kind
        self._staged[kind].write_bytes(data)

    def start_pdf(self, page: str, made_at_ns: int, attached_as: str) -> None:
        """Hand over the page of the PDF; :meth:`attach` follows."""
        assert self.printer is not None
        (self.scratch / "page.html").write_text(page, encoding="utf-8", errors="replace")
        page_file, attachment, output = (str(self.scratch / name) for name in ("page.html", "attached.json", "printed.pdf"))
        self.printer.start(Job(page_file, attachment, output, made_at_ns, attached_as))

    def attach(self, data: bytes) -> None:
        """Hand over the data that the PDF contains, if there is one."""
        if self.printer is not None:
            (self.scratch / "attached.json").write_bytes(data)
            self.printer.attach()

    @contextmanager
    def replace(self, pdf_timeout_s: float) -> Iterator[dict[str, Path]]:
        """Replace the targets, and yield format -> file while the folder is locked.

        Raise RenderError if the PDF fails; the other files are written, and an older PDF is removed.
        """
        reason, printed = None, self.scratch / "printed.pdf"
        if self.printer is not None:
            reason = self.printer.finish(pdf_timeout_s)
            if reason is None and not printed.is_file():
                reason = "the PDF process left no file"
            if reason is None:
                self._staged["pdf"] = printed
        with exclusive(self._folder):
            if reason is not None:
                self._targets["pdf"].unlink(missing_ok=True)
            written = {kind: file.replace(self._targets[kind]) for kind, file in self._staged.items()}
            yield written
        if reason is not None:
            kept = ", ".join(str(path) for path in written.values())
            raise RenderError(f"no PDF: {reason}" + (f"; written: {kept}" if kept else ""), written)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lock ``folder`` against other runs. Raise RenderError if another one keeps it."""
    import fcntl

    until = time.monotonic() + _PATIENCE_S
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise RenderError(
                        f"cannot write to {folder}: another process has held its lock for {_PATIENCE_S:.0f} s. Try: another folder with -o"
                    ) from None
                time.sleep(_POLL_S)
                continue
            except OSError:  # a network file system without locks
                pass
            break
        yield
    finally:
        os.close(descriptor)
