"""Converts the text of a Chrome trace to typed columns, exactly and as a stream, and repairs damage.

``TraceScan`` takes a trace in chunks cut anywhere and gives back Arrow record batches with one row per complete or
begin/end event, and per instant (ph "i") of chosen categories. It knows the trace-event *format*, not what the events of
a particular profiler mean. The C scanner of ``postrun.native._native`` does the work. An installation without it uses
:mod:`.scan_python`: equal results for undamaged text, InputError for damaged text.

Exactness: ``ts`` and ``dur`` are microseconds; their text is converted to int64 nanoseconds without a float on the way and
cut (not rounded) beyond three decimals. Results do not depend on where the chunks are cut.

Repairs and losses (``Defect.code``; each kind is counted, with the offset and the text of the first):

======================  ==================================================================================================
code                    damage and repair
======================  ==================================================================================================
control_character       a raw control character inside a string; kept
invalid_escape          a backslash that starts no JSON escape (a Windows path); the backslash is kept
invalid_utf8            bytes that are not UTF-8; U+FFFD, as ``bytes.decode(errors="replace")`` does
lone_surrogate          half of a ``\\uD83D\\uDE00`` pair; U+FFFD
bare_word               an unquoted word (N/A, NaN, Infinity) or a malformed number; null
empty_value             nothing between ``:`` and ``,``; null
bare_quote              an unescaped quote inside a string value, recognized by the text that follows it; kept
trailing_comma          a comma too many; ignored
missing_comma           no comma between two events; ignored
not_an_event            a null, number, string or array where an event was expected; skipped
no_phase                an object without a text under "ph" where an event was expected; skipped
no_timestamp            a X, B or E event without a usable "ts"; dropped
number_out_of_range     a number that does not fit int64 (times: in nanoseconds); null
lost_event              text that could not be read as an event; skipped up to the next start of an event
lost_bytes              count = how many bytes the lost events and broken members had (truncated and unreadable text too)
too_long, too_deep      why an event was lost: longer than EVENT_LIMIT, nested deeper than DEPTH_LIMIT
truncated               the text ends inside an event or member, or before the arrays and objects are closed
broken_member           a top-level member that could not be read; its text is kept unchanged. Or a member other than
                        traceEvents that contains events; they are read
trailing_garbage        count = bytes after the end of the document
not_json                no event and no member could be found at all
empty                   no text
text_cut                a text of a row longer than TEXT_BYTES (limits.py); cut, with its length and checksum behind it
text_left_out           a text of a row beyond NAMES or NAME_TEXT_BYTES; it reads LEFT_OUT
combination_left_out    a combination of members beyond NAMES or NAME_TEXT_BYTES; null
metadata_left_out       an M event beyond MEMBER_LIMIT bytes of such events; skipped
no_extension            no damage: the text was read without the C scanner, which takes longer
======================  ==================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

import pyarrow as pa

from ..store.limits import NAME_TEXT_BYTES, NAMES, TEXT_BYTES
from .defect import Defect
from .scan_python import PythonScanner
from .values import decode_value

try:
    from ...native._native import TraceScanner as _NativeScanner
except ImportError:  # installed without a compiler
    _NativeScanner = None  # type: ignore[assignment,misc]

ArgKind = Literal["int", "text", "int3"]
MISSING: Final = -(2**63)  # Stands for "no value" in the raw int64 columns of the scanners; callers see Arrow nulls
EVENT_LIMIT: Final = 16 << 20  # Longest event, in bytes of text; longer ones are lost (Defect ``too_long``)
MEMBER_LIMIT: Final = 16 << 20
"""Bytes of text of all top-level members other than traceEvents, and of all M events; as Python objects they take up to 20 times that."""
DEPTH_LIMIT: Final = 256  # Deepest nesting of arrays and objects inside one event or member

_TEXT_ID_BASE: Final = -(2**62)
_BASE_FIELDS: Final = (
    ("ordinal", pa.int64()),
    ("phase", pa.uint8()),
    ("category", pa.int32()),
    ("name", pa.int32()),
    ("pid", pa.int64()),
    ("tid", pa.int64()),
    ("start_ns", pa.int64()),
    ("duration_ns", pa.int64()),
)
_COMBINATION: Final = ("combination", pa.int32())
_ROW: Final = ("row", pa.int64())
EVENT_COLUMNS: Final = tuple(name for name, _ in _BASE_FIELDS)  # of every event, in front of the columns of arguments


@dataclass(frozen=True, slots=True)
class Arg:
    """Into which column a member of ``args`` goes, and as what.

    ``int``: int64, from numbers (cut toward zero), decimal and hexadecimal numeric strings, and booleans as 0 and 1.
    ``text``: int32 string id; numbers, booleans, arrays and objects are interned as their JSON text.
    ``int3``: three int64 columns ``<column>_x``, ``_y``, ``_z`` from an array of up to three numbers.
    """

    column: str
    kind: ArgKind


_NO_ARGS: Final[Mapping[str, Arg]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Batch:
    """The events, strings and metadata that were decoded since the last :meth:`TraceScan.take`.

    ``events`` and ``wide``: ordinal (index among the events of the file that give a row), phase (``ord`` of ph), category and name
    (string ids), pid, tid, start_ns, duration_ns, then the argument columns. ``sparse``: the events with a sparse argument, as ``row``
    (index in ``events``) and the columns of such arguments. ``strings``: texts of the string ids first used in this batch, in order; ids
    run on from 0 over the whole file. ``metadata``: M events with the number of rows before each. ``combinations``: the texts of the ids
    of the column ``combination``, in the same way; a text for each part, None if the events lack it.
    """

    events: pa.RecordBatch
    sparse: pa.RecordBatch
    wide: pa.RecordBatch
    strings: list[str]
    metadata: list[tuple[int, dict[str, Any]]]
    combinations: list[tuple[str | None, ...]]


class Scanner(Protocol):
    """The calls of both scanners; columns come as (values, validity bitmap, null count) or as a list with None."""

    def feed(self, data: bytes, /) -> None: ...
    def finish(self) -> None: ...
    def take(
        self,
    ) -> tuple[int, list[Any], int, list[Any], int, list[Any], list[str], list[tuple[int, bytes]], list[tuple[str | None, ...]]]: ...
    def members(self) -> list[tuple[bytes, bytes, bool]]: ...
    def counts(self) -> list[tuple[str, str, int]]: ...
    def defects(self) -> list[tuple[str, int, int, bytes]]: ...


def text_id(value: int) -> int | None:
    """Return the string id of a pid or tid that is a text ("stream 7"), else None."""
    return _TEXT_ID_BASE - value if _TEXT_ID_BASE - 2**31 <= value <= _TEXT_ID_BASE else None


def have_native() -> bool:
    """Return whether the C scanner is there (False: installed without a compiler)."""
    return _NativeScanner is not None


class TraceScan:
    """Reads one trace: ``feed`` chunks and ``take`` batches in turn, then ``finish``, then ``take`` once more.

    ``args``, ``sparse_args`` and ``wide_args`` map keys of ``args`` to columns; several keys may share a column (the last one in the text
    counts). ``sparse_args`` are those that few events have: their values are in a table of their own. Events whose category is in
    ``wide_categories``, instants too, go to ``Batch.wide``, which has all three groups of columns in this order. After ``finish``:
    ``members``, ``event_counts`` ((ph, cat) -> events, all phases, category "" if there is none) and ``defects``. Only
    ``PythonScanner`` raises InputError, for bad text; a wrong call order raises ValueError. ``scanner`` replaces the
    best one that this installation has.

    ``parts``: further keys of ``args``. If there are any, the last column of ``events`` and ``wide``, ``combination``, has an id for
    their texts together (as of kind ``text``), null without any of them. Their texts do not count as strings.
    """

    def __init__(
        self,
        *,
        args: Mapping[str, Arg],
        sparse_args: Mapping[str, Arg] = _NO_ARGS,
        wide_args: Mapping[str, Arg] = _NO_ARGS,
        wide_categories: Collection[str] = (),
        parts: Sequence[str] = (),
        scanner: Callable[..., Scanner] | None = None,
        event_limit: int = EVENT_LIMIT,
        member_limit: int = MEMBER_LIMIT,
        text_limit: int = TEXT_BYTES,
        string_limit: int = NAMES,
        total_limit: int = NAME_TEXT_BYTES,
    ) -> None:
        groups = [_columns(arguments) for arguments in (args, sparse_args, wide_args)]
        dense, sparse, wide = groups
        combined = [_COMBINATION] if parts else []
        names = [_ROW[0]] + [name for name, _ in _BASE_FIELDS] + [n for c in (*dense, *sparse, *wide) for n in _arrow_names(c)]
        names += [name for name, _ in combined]
        if len(set(names)) != len(names):
            raise ValueError(f"column names must differ: {sorted({n for n in names if names.count(n) > 1})}")
        order = {c.column: i for i, c in enumerate((*dense, *sparse, *wide))}
        keys = [(key, order[arg.column]) for mapping in (args, sparse_args, wide_args) for key, arg in mapping.items()]
        keys += [(key, len(order) + number) for number, key in enumerate(parts)]
        if len({key for key, _ in keys}) != len(keys):
            raise ValueError("a key of args may be given once, in args, sparse_args, wide_args or parts")
        self._schema = pa.schema([*_BASE_FIELDS, *(f for c in dense for f in _fields(c)), *combined])
        self._sparse_schema = pa.schema([_ROW, *(f for c in sparse for f in _fields(c))])
        self._wide_schema = pa.schema([*_BASE_FIELDS, *(f for group in groups for c in group for f in _fields(c)), *combined])
        self._scanner: Scanner = (scanner or (PythonScanner if _NativeScanner is None else _NativeScanner))(
            [c.kind for c in dense],
            [c.kind for c in sparse],
            [c.kind for c in wide],
            [(key.encode(), index) for key, index in keys],
            [c.encode() for c in wide_categories],
            event_limit,
            member_limit,
            DEPTH_LIMIT,
            text_limit,
            string_limit,
            total_limit,
            len(parts),
        )
        self._finished = False
        self.members: dict[str, Any] = {}
        self.event_counts: dict[tuple[str, str], int] = {}
        self.defects: list[Defect] = []

    def feed(self, data: bytes) -> None:
        """Scan the next chunk of the (decompressed) text."""
        if self._finished:
            raise ValueError("feed() after finish()")
        self._scanner.feed(data)

    def finish(self) -> None:
        """End the text; fill ``members``, ``event_counts`` and ``defects``."""
        if self._finished:
            return
        self._finished = True
        self._scanner.finish()
        for key, raw, broken in self._scanner.members():
            text = raw.decode("utf-8", "replace")
            self.members[key.decode("utf-8", "replace")] = text if broken else decode_value(raw)
        self.event_counts = {(ph, cat): n for ph, cat, n in self._scanner.counts()}
        defects = [Defect(code, n, at, text.decode("utf-8", "replace")) for code, n, at, text in self._scanner.defects()]
        self.defects = sorted(defects, key=lambda d: (d.first_offset, d.code))

    def take(self) -> Batch:
        """Return everything that was decoded since the last call."""
        n, columns, n_sparse, sparse_columns, n_wide, wide_columns, strings, metadata, combinations = self._scanner.take()
        return Batch(
            events=_record_batch(self._schema, n, columns),
            sparse=_record_batch(self._sparse_schema, n_sparse, sparse_columns),
            wide=_record_batch(self._wide_schema, n_wide, wide_columns),
            strings=strings,
            metadata=[(before, decode_value(raw)) for before, raw in metadata],
            combinations=combinations,
        )


def _columns(args: Mapping[str, Arg]) -> list[Arg]:
    """Return the distinct columns, in order of first mention."""
    columns: dict[str, Arg] = {}
    for arg in args.values():
        if arg.kind not in ("int", "text", "int3"):
            raise ValueError(f"unknown kind of argument {arg.kind!r}")
        if columns.setdefault(arg.column, arg).kind != arg.kind:
            raise ValueError(f"column {arg.column!r} has two kinds")
    return list(columns.values())


def _arrow_names(arg: Arg) -> list[str]:
    return [f"{arg.column}_{axis}" for axis in "xyz"] if arg.kind == "int3" else [arg.column]


def _fields(arg: Arg) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.int32() if arg.kind == "text" else pa.int64()) for name in _arrow_names(arg)]


def _record_batch(schema: pa.Schema, rows: int, columns: list[Any]) -> pa.RecordBatch:
    arrays = [_array(field.type, rows, column) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(kind: pa.DataType, rows: int, column: Any) -> pa.Array:
    """Wrap the C scanner's buffers without a copy; the Python scanner returns lists."""
    if isinstance(column, list):
        return pa.array(column, kind)
    values, validity, nulls = column
    bitmap = None if validity is None else pa.py_buffer(validity)
    return pa.Array.from_buffers(kind, rows, [bitmap, pa.py_buffer(values)], nulls)
