"""Files of a run that are not read: notes on them in the store, and the message if no file is usable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ..errors import InputError
from .discover import KNOWN, InputFile
from .packed import may_be_anything
from .store.format_names import NSIGHT, NSIGHT_REPORT, RUN_STORE
from .store.store import Store
from .store.texts import storable

FORMATS_READ: Final = "\nWhat is read: "
"""Begins the last part of the message of :func:`nothing_usable`, which is the same for all files."""
_LISTED: Final = 8  # files in an error message


def note_not_read(store: Store, files: Sequence[InputFile], ids: Sequence[int], duplicates: Mapping[int, int]) -> None:
    """Note files without a reader; ``duplicates``: position -> that of the first."""
    unknown = 0
    exports = {file.path for file in files if file.readable and file.format is not None and file.format.name == NSIGHT}
    not_read: dict[str, list[tuple[str, int | None, str | None]]] = {}
    for i, file in enumerate(files):
        source, name, format = ids[i], storable(file.path.name), file.format
        if file.problem is not None:
            store.note("warning", "not_readable", f"The file was left out: {file.problem}.", source=source, file=name)
        elif i in duplicates:
            first = storable(files[duplicates[i]].path.name)
            store.note("info", "duplicate", f"The same as {first}; read once.", source=source, file=name)
        elif format is None and file.by_path:
            store.note("warning", "unknown_format", f"No format that is read: {KNOWN}.", count=1, source=source, file=name)
        elif format is None or (not file.by_path and may_be_anything(format.name, file.path.name)):
            unknown += 1
        elif format.name == NSIGHT_REPORT and any(file.path.with_suffix(f".sqlite{end}") in exports for end in ("", ".gz", ".zst")):
            continue
        elif format.not_read is not None:
            not_read.setdefault(format.name, []).append((f"{format.name}: {format.not_read}.", source, name))
        elif format.name == RUN_STORE:
            text = "A run store was left out; to report it give it alone."
            store.note("info", "run_store_left_out", text, source=source, file=name)
    for notes in not_read.values():
        text, only, only_name = notes[0] if len(notes) == 1 else (notes[0][0], None, None)
        store.note("info", "format_not_read", text, count=len(notes), source=only, file=only_name)
    if unknown:
        text = "Files of unknown formats are listed among the sources and otherwise ignored."
        store.note("info", "unknown_format", text, count=unknown)


def nothing_usable(paths: Sequence[str | Path], files: Sequence[InputFile], notes: Sequence[tuple[str | None, str]]) -> InputError:
    """Return an error that lists the files with the reasons why they are not usable."""
    sources = ", ".join(str(path) for path in paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    reasons: dict[str, list[str]] = {}
    for name, message in notes:
        reasons.setdefault(name or "", []).append(message)
    lines = []
    for file in files[:_LISTED]:
        empty = file.bytes == 0
        kind = file.problem or (file.format.name if file.format else "empty file" if empty else "unknown format")
        step = (file.format.not_read or ("empty file" if empty else "")) if file.format else ""
        parts = (kind, step, " ".join(reasons.get(storable(file.path.name), [])))
        line = f"  {storable(str(file.path))}: {'; '.join(part for part in parts if part)}"
        lines.append(line.replace("\n", "\\n"))  # a name with a newline cannot forge another message
    if len(files) > _LISTED:
        lines.append(f"  ... and {len(files) - _LISTED} more")
    looked = "\n".join(["Looked at:", *lines]) if lines else "There is no file in it."
    recognized = any(file.format is not None for file in files) or (bool(files) and all(file.problem is not None for file in files))
    end = "." if lines else ""
    read = "" if recognized else f"{end}{FORMATS_READ}{KNOWN}. Give a file or folder of that kind."
    return InputError(f"{sources}: nothing usable found. {looked}{read}")
