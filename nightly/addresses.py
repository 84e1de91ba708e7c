"""Addresses of a night's files: rows of the index -> links that a reader of a ticket or of the index opens.

Reports have two places below the output: ``runs/<id>/<version>/`` never changes, ``runs/<id>/latest/`` always has the newest report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

from ..errors import UsageError
from ..ingest.object_store.objects import Objects
from . import places
from .model import Row

PATH: Final = "{path}"
_FIRST: Final = ("html", "pdf", "json", "md")  # the file that a link opens is the first of these that was written


@dataclass(frozen=True, slots=True)
class Addresses:
    """``out``: the output. ``template``: of --base-url. ``presigned_s``: seconds that a link with a signature of the store is valid."""

    out: Objects
    template: str | None = None
    presigned_s: int | None = None

    def of_ticket(self, row: Row) -> str | None:
        """Return the link to the newest report of a run; None if it has no report.

        A signed link gives access: never log it."""
        file = file_of(row)
        if file is None:
            return None
        path = path_of(row, file)
        if self.presigned_s is not None:
            return self.out.signed(path, self.presigned_s)
        return filled(self.template, path) if self.template else self.out.place(path)


def file_of(row: Row) -> str | None:
    """Return the name of the file to open: the HTML, else the PDF, JSON or Markdown."""
    if row.folder is None or row.state != "reported":
        return None
    return next((f"report.{kind}" for kind in _FIRST if f"report.{kind}" in row.written), None)


def path_of(row: Row, file: str) -> str:
    """Return the path below the output of a file of a run, at the address that stays.

    A failed run has its log in the folder of its version only, and may have a former report at the other address."""
    return f"{places.latest_folder(row.id) if row.state == 'reported' else row.folder}/{file}"


def template(text: str) -> str:
    """Return the checked text of --base-url, with ``{path}``. Raise UsageError."""
    filled = text if PATH in text else f"{text.rstrip('/')}/{PATH}"
    rest = filled.replace(PATH, "", 1)
    if "{" in rest or "}" in rest:
        raise UsageError(f"{text!r} may have one {PATH} and no other braces, such as https://reports.example.org/{PATH}")
    try:
        address = urlsplit(filled)
        sound = address.scheme in ("http", "https") and address.hostname and not (address.username or address.password)
    except ValueError:
        sound = False
    if not sound or PATH in address.netloc:
        raise UsageError(f"{text!r} is not the address of a web server; write it like https://reports.example.org/nightly")
    return filled


def filled(template: str, path: str) -> str:
    """Put a path below the output into a template, with all characters quoted."""
    return template.replace(PATH, quote(path, safe="/", errors="surrogatepass"))
