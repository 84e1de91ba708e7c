"""The files of a REPORT: a path -> its report.json, and the files to upload."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..errors import InputError
from .http import Upload
from .message import slug

FORMATS: Final = ("pdf", "html", "json")
CONTENT_TYPES: Final = {"pdf": "application/pdf", "html": "text/html; charset=utf-8", "json": "application/json"}
_LARGEST_JSON: Final = 1 << 30
_COMPARISONS: Final = tuple(f"comparison.{kind}" for kind in (*FORMATS, "md"))  # the files of postrun compare


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """``report``: the content of report.json; ``source``: its file; ``paths``: of each format that exists; ``embedded``: the text of
    report.json if only the PDF contains it."""

    report: Mapping[str, Any]
    source: str
    paths: Mapping[str, Path]
    embedded: bytes | None = None


def read(report_path: Path) -> ReportFiles:
    """Find the files of a report, given one or their folder. Raise InputError."""
    if report_path.is_dir():
        paths = {kind: report_path / f"report.{kind}" for kind in FORMATS if (report_path / f"report.{kind}").is_file()}
        if not paths and (report_path / "comparison.json").is_file():
            raise _comparison(report_path)
        if not paths:
            raise InputError(f"{report_path} holds no report.json; write one with: postrun report SOURCE -o {report_path}")
    elif report_path.name in _COMPARISONS:
        raise _comparison(report_path)
    elif report_path.suffix[1:].lower() in FORMATS:
        if not report_path.is_file():
            raise InputError(f"{report_path}: there is no such file; write one with: postrun report SOURCE -o FOLDER")
        paths = {report_path.suffix[1:].lower(): report_path}
        paths |= {kind: other for kind in FORMATS if kind not in paths and (other := report_path.with_suffix(f".{kind}")).is_file()}
    else:
        raise InputError(f"{report_path} is no report; name report.pdf, report.html, report.json or the folder that holds them")
    if "json" in paths:
        text = _content(paths["json"], _LARGEST_JSON)
        return ReportFiles(_loaded(text, str(paths["json"])), str(paths["json"]), paths)
    if "pdf" in paths:
        source = f"report.json in {paths['pdf']}"
        if (embedded_json := embedded(_content(paths["pdf"]))) is not None:
            return ReportFiles(_loaded(embedded_json, source), source, paths, embedded_json)
    what = " and ".join(str(path) for path in paths.values())
    raise InputError(
        f"the verdicts stand in report.json, which is not beside {what}; write it with: postrun report SOURCE --format html,pdf,json"
    )


def _comparison(path: Path) -> InputError:
    return InputError(
        f"{path} is a comparison; only reports can be attached. Try: attach the report of the new run, or post comparison.md"
        " (postrun compare --format md) as a comment"
    )


def _content(path: Path, largest: int | None = None) -> bytes:
    try:
        if largest is not None and path.stat().st_size > largest:
            raise InputError(f"{path} is larger than 1 GiB; this is no report.json")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _loaded(text: bytes, source: str) -> Mapping[str, Any]:
    try:
        report = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not JSON ({error}); write the report again") from None
    if not isinstance(report, dict):
        raise InputError(f"{source} is no report.json of postrun")
    return report


_FILE: Final = re.compile(rb"<<[^\r\n]{0,2000}?/Type\s*/EmbeddedFile\b[^\r\n]{0,2000}?/Length (\d{1,12})[^\r\n]{0,500}?>>\s*stream\r?\n")


def embedded(pdf: bytes) -> bytes | None:
    """Return report.json from a PDF of postrun; None for other PDFs."""
    for match in _FILE.finditer(pdf):
        start, length = match.end(), int(match[1])
        data = pdf[start : start + length]
        if b"/FlateDecode" in match[0]:
            inflate = zlib.decompressobj()
            try:
                data = inflate.decompress(data, _LARGEST_JSON)
            except zlib.error:
                continue
            if inflate.unconsumed_tail or not inflate.eof:
                continue
        if data.lstrip()[:1] == b"{":
            return data
    return None


def uploads(files: ReportFiles, formats: Sequence[str], key: str) -> list[Upload]:
    """Return the files to send. Raise InputError for a missing format."""
    result = []
    for kind in formats:
        name = f"{slug(key)}.{kind}"
        if path := files.paths.get(kind):
            result.append(Upload(name, CONTENT_TYPES[kind], path.stat().st_size, path))
        elif kind == "json" and files.embedded is not None:
            result.append(Upload(name, CONTENT_TYPES[kind], len(files.embedded), data=files.embedded))
        else:
            have = ", ".join(path.name for path in files.paths.values())
            raise InputError(
                f"there is no report.{kind} beside {have}; write it with postrun report --format html,pdf,json, or choose "
                "others with --attach"
            )
    return result
