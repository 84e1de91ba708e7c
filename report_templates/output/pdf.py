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
import re
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
from . import font_faces, styles, weasyprint_speed

PAPERS: Final = ("A4", "Letter")
# A block, its id, and the start of its heading with an id of its own.
_ID_OF_BLOCK: Final = re.compile(
    r'<(section|div|figure)([^>]*) id="([^"]*)"([^>]*)>(\s*(?:<table[^>]*>\s*)?<(?:h\d|caption|figcaption)\b)(?: id="[^"]*")?'
)
INSTALL: Final = "apt-get install libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fonts-dejavu-core"


def checked_paper(paper: str) -> str:
    """Return WeasyPrint's name of the page size. Raise UsageError for an unknown one."""
    sheet = next((known for known in PAPERS if known.lower() == paper.lower()), None)
    if sheet is None:
        raise UsageError(f"{paper} is not a paper size; choose from {', '.join(PAPERS)}")
    return sheet


@dataclass(frozen=True, slots=True)
class Job:
    """A page to print: its file, the file to attach, the output, the time in the attachment (ns), and its name."""

    page: str
    attachment: str
    output: str
    made_at_ns: int
    attached_as: str = "report.json"


class Printer(contextlib.AbstractContextManager["Printer"]):
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

    def __exit__(self, *_: object) -> None:
        """End the child if it still runs, whatever happened here."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.communicate()

    def start(self, job: Job) -> None:
        """Hand over the job; the page exists, and the child lays it out."""
        self._began = time.monotonic()
        self._tell(json.dumps(dataclasses.asdict(job)))

    def attach(self) -> None:
        """Report that the file to attach also exists."""
        self._tell("attached")

    def _tell(self, line: str) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the child is dead; finish() reports the reason
            self._child.stdin.write(line + "\n")
            self._child.stdin.flush()

    def finish(self, timeout_s: float) -> str | None:
        """Wait until ``timeout_s`` after start(). Return the reason and fix if it fails."""
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
    """A :class:`Printer` in this process, for many pages, which saves most of the time of a small report.

    The process must be expendable, because the libraries may crash, and its parent must limit its time.
    """

    def __init__(self) -> None:
        self._press: Press | None = None
        self._job: Job | None = None

    def start(self, job: Job) -> None:
        self._job = job

    def attach(self) -> None:
        """Do nothing: the page is laid out in :meth:`finish`."""

    def finish(self, timeout_s: float) -> str | None:
        """Print; ``timeout_s`` is ignored. Return the reason and fix if it fails."""
        assert self._job is not None
        job, self._job = self._job, None
        if self._press is None:
            press = _press()
            if isinstance(press, str):
                return press
            self._press = press
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._press.write(job, lambda: None)
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except BaseException as error:  # a refused address is not an Exception
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


def _for_print(page: str) -> str:
    """Put ids on headings and join lines of tags, as WeasyPrint is faster so.

    It computes the style of an element with an id, and of everything in it, by itself; other elements share theirs. It makes a box of each
    line end between tags.
    """
    page = page.replace(">\n<", "><")
    return _ID_OF_BLOCK.sub(r'<\1\2\4>\5 id="\3"', page)


class Press:
    """WeasyPrint with the fonts and the style of every page, the slow part that needs no job."""

    def __init__(self) -> None:
        # Without Pango WeasyPrint prints a banner, which must not reach standard output.
        with contextlib.redirect_stdout(sys.stderr):
            import weasyprint
            from weasyprint.text.fonts import FontConfiguration
            from weasyprint.urls import URLFetcher, URLFetcherResponse

            class Fonts(URLFetcher):  # type: ignore[misc]
                """Fetches the fonts of the report, never anything for a page."""

                def fetch(self, url: str, headers: object = None) -> Any:
                    return URLFetcherResponse(url, font_faces.font_at(url))

        for logger in ("weasyprint", "fontTools"):
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        weasyprint_speed.speed_up()
        self._weasyprint = weasyprint
        self._fetcher = URLFetcher(allowed_protocols={"data"}, fail_on_errors=True)
        self._configuration = FontConfiguration()
        self._font_fetcher = Fonts()
        self._sheets = [self._rules(font_faces.pdf_rules()), self._rules(styles.pdf_style())]
        self._has_cjk = False

    def _rules(self, text: str) -> Any:
        return self._weasyprint.CSS(string=text, font_config=self._configuration, url_fetcher=self._font_fetcher)

    def write(self, job: Job, wait_for_attachment: Callable[[], object]) -> None:
        """Print the tagged page with its data attached. Equal jobs give equal bytes."""
        text = Path(job.page).read_text(encoding="utf-8")
        if not self._has_cjk and (large := font_faces.cjk_rule(text)):
            self._sheets.append(self._rules(large))
            self._has_cjk = True
        page = self._weasyprint.HTML(string=_for_print(text), url_fetcher=self._fetcher)
        laid_out = page.render(stylesheets=self._sheets, font_config=self._configuration, pdf_tags=True)
        wait_for_attachment()
        created = datetime.fromtimestamp(job.made_at_ns // 1_000_000_000, UTC)
        attachment = self._weasyprint.Attachment(
            string=Path(job.attachment).read_bytes(),
            name=job.attached_as,
            description="The report as data: everything that is shown, uncapped",
            created=created,
            modified=created,
            url_fetcher=self._fetcher,
        )
        laid_out.write_pdf(job.output, finisher=_relate, attachments=[attachment], pdf_tags=True)


def _relate(_document: Any, pdf: Any) -> None:
    """Declare the attachment as the data of the document (ISO 32000-2, 14.13).

    WeasyPrint does so for PDF/A only.
    """
    import pydyf  # type: ignore[import-untyped]

    files = [thing for thing in pdf.objects if isinstance(thing, pydyf.Dictionary) and thing.get("Type") == "/Filespec"]
    for file in files:
        file["AFRelationship"] = "/Data"
    pdf.catalog["AF"] = pydyf.Array([file.reference for file in files])


def _press() -> Press | str:
    """Load the press; return the reason and fix if that fails."""
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
