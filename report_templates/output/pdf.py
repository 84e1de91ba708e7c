"""Prints a page as PDF, in a process of its own: without fonts, WeasyPrint's libraries end the process that they are in.

``python -m postrun.report_templates.output.pdf`` loads WeasyPrint, waits for one line of JSON on standard input (a :class:`Job`), lays out
the page, waits for a second line (the file to attach exists), and answers with one line on standard output: ``{}`` or
``{"error": reason}``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import gc
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from ...errors import UsageError

PAPERS: Final = ("A4", "Letter")
INSTALL: Final = "apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fonts-dejavu-core"


def checked_paper(paper: str) -> str:
    """Return the page size as WeasyPrint writes it. Raise UsageError for an unknown paper."""
    sheet = next((known for known in PAPERS if known.lower() == paper.lower()), None)
    if sheet is None:
        raise UsageError(f"{paper} is no paper; choose from {', '.join(PAPERS)}")
    return sheet


@dataclass(frozen=True, slots=True)
class Job:
    """What to print: files of the page and of the data to attach, where to, the time that the attachment states, and its name."""

    page: str
    attachment: str
    output: str
    made_at_ns: int
    attached_as: str = "report.json"


class Printer:
    """The child process. Start it early: it loads WeasyPrint while the page is being made. Use as a context manager."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )

    def __enter__(self) -> Printer:
        return self

    def __exit__(self, *_: object) -> None:
        """End the child if it still runs, whatever happened here."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.communicate()

    def start(self, job: Job) -> None:
        """Hand over the job, whose page is written; the child lays it out as soon as it is ready."""
        self._began = time.monotonic()
        self._tell(json.dumps(dataclasses.asdict(job)))

    def attach(self) -> None:
        """The file to attach is written, too."""
        self._tell("attached")

    def _tell(self, line: str) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead already; finish() says why
            self._child.stdin.write(line + "\n")
            self._child.stdin.flush()

    def finish(self, timeout_s: float) -> str | None:
        """Wait for the end, at most ``timeout_s`` from start(). None, or the reason why there is no PDF, with what to do about it."""
        try:
            out, err = self._child.communicate(timeout=max(0.0, timeout_s - (time.monotonic() - self._began)))
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()
            return f"it was not done within {timeout_s:g} s; allow more time, or write HTML and JSON only (--format html,json)"
        except ValueError:  # the pipe to a child that died is closed
            out, err = "", ""
        try:
            answer = json.loads(out.splitlines()[-1])
        except (IndexError, ValueError):
            return _death(self._child.returncode, err)
        error = answer.get("error")
        return None if error is None else str(error)


class PrinterHere:
    """As :class:`Printer`, but in this process, for page after page: for a process that may be lost when the libraries crash, and that is
    ended by somebody else when a page takes too long. Starting no process saves most of the time of a small report."""

    def __init__(self) -> None:
        self._press: Press | None = None
        self._job: Job | None = None

    def start(self, job: Job) -> None:
        self._job = job

    def attach(self) -> None:
        """Nothing waits for it: the page is laid out in :meth:`finish`."""

    def finish(self, timeout_s: float) -> str | None:
        """Print. None, or the reason why there is no PDF, with what to do about it; ``timeout_s`` is not looked at."""
        assert self._job is not None
        job, self._job = self._job, None
        if self._press is None:
            made = _press()
            if isinstance(made, str):
                return made
            self._press = made
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._press.write(job, lambda: None)
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # a refused address is none of Exception
            return _failure(error)
        finally:
            if collecting:
                gc.enable()
        return None


def _death(code: int, messages: str) -> str:
    if code == -signal.SIGSEGV:
        return f"the PDF libraries crashed (SIGSEGV), as they do where no font is installed; try: {INSTALL}"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = ", most likely for want of memory" if code == -signal.SIGKILL else ""
        return f"the PDF process was ended by {name}{hint}"
    last = next((line.strip() for line in reversed(messages.splitlines()) if line.strip()), "no message")
    return f"the PDF process ended with code {code}: {last[:300]}"


def _fonts() -> str:
    """@font-face rules with the fonts that Matplotlib ships, so that text looks alike on every machine and in every figure."""
    import base64
    import importlib.util

    found = importlib.util.find_spec("matplotlib")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf"
    # In quotes: an unquoted address is read five times slower.
    return "".join(
        f'@font-face{{font-family:"DejaVu Sans";font-weight:{weight};'
        f'src:url("data:font/ttf;base64,{base64.b64encode((folder / file).read_bytes()).decode()}")}}'
        for weight, file in (("normal", "DejaVuSans.ttf"), ("bold", "DejaVuSans-Bold.ttf"))
    )


class Press:
    """WeasyPrint with its fonts loaded: what takes time and needs no job."""

    def __init__(self) -> None:
        # Without Pango WeasyPrint prints a banner, which must not reach standard output.
        with contextlib.redirect_stdout(sys.stderr):
            import weasyprint
            from weasyprint.text.fonts import FontConfiguration
            from weasyprint.urls import URLFetcher
        for logger in ("weasyprint", "fontTools"):
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        self._weasyprint = weasyprint
        self._fetcher = URLFetcher(allowed_protocols={"data"}, fail_on_errors=True)
        self._configuration = FontConfiguration()
        self._fonts = weasyprint.CSS(string=_fonts(), font_config=self._configuration, url_fetcher=self._fetcher)

    def write(self, job: Job, wait_for_attachment: Callable[[], object]) -> None:
        """Print the page: tagged for screen readers, with its data attached. Equal jobs give equal bytes."""
        page = self._weasyprint.HTML(string=Path(job.page).read_text(encoding="utf-8"), url_fetcher=self._fetcher)
        laid_out = page.render(stylesheets=[self._fonts], font_config=self._configuration, pdf_tags=True)
        wait_for_attachment()
        made = datetime.fromtimestamp(job.made_at_ns // 1_000_000_000, UTC)
        attachment = self._weasyprint.Attachment(
            string=Path(job.attachment).read_bytes(),
            name=job.attached_as,
            description="The report as data: everything that is shown, uncapped",
            created=made,
            modified=made,
            url_fetcher=self._fetcher,
        )
        laid_out.write_pdf(job.output, finisher=_relate, attachments=[attachment], pdf_tags=True)


def _relate(_document: Any, pdf: Any) -> None:
    """Say in the file that the attachment is the data of the document (ISO 32000-2, 14.13); WeasyPrint does so for PDF/A alone."""
    import pydyf  # type: ignore[import-untyped]

    files = [thing for thing in pdf.objects if isinstance(thing, pydyf.Dictionary) and thing.get("Type") == "/Filespec"]
    for file in files:
        file["AFRelationship"] = "/Data"
    pdf.catalog["AF"] = pydyf.Array([file.reference for file in files])


def _press() -> Press | str:
    """The press, or why there is none."""
    try:
        return Press()
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return "no space is left for temporary files; free some space, or set TMPDIR"
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return f"the libraries that WeasyPrint needs cannot be loaded ({first}); try: {INSTALL}"


def _failure(error: BaseException) -> str:
    return f"WeasyPrint failed: {type(error).__name__}: {str(error)[:300]}"


def main() -> None:
    gc.disable()  # one page and the end; collecting what is still needed costs a tenth of the time
    press = _press()
    if isinstance(press, str):
        print(json.dumps({"error": press}))  # noqa: T201
        return
    line = sys.stdin.readline()
    if not line:  # the parent gave up
        return
    try:
        with contextlib.redirect_stdout(sys.stderr):
            press.write(Job(**json.loads(line)), sys.stdin.readline)
    except BaseException as error:
        print(json.dumps({"error": _failure(error)}))  # noqa: T201
    else:
        print(json.dumps({}))  # noqa: T201


if __name__ == "__main__":
    main()
