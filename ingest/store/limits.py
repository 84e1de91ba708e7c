"""Bounds on what one run may bring into a run store, each with its unit and reason.

The store cuts texts and limits names (:class:`.tables.Tables`). The registry limits nodes and processes (:class:`.registry.Registry`).
``derive.limit_rows`` removes the events of devices, streams, threads, and units beyond the limits after all files are read. Compressed
files unpack to at most :func:`unpacked_limit` bytes. A limit that is reached is reported in ``ingest_note`` with the number of events that
it concerns.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import TYPE_CHECKING, Any, Final

from ...errors import UsageError
from ...masked_values import without_depth

if TYPE_CHECKING:
    import pyarrow as pa


TEXT_BYTES: Final = 64 << 10
"""Bytes of UTF-8 of one text; template names of kernels have some 10 KiB. Longer texts are cut and keep their length and checksum."""
NAMES: Final = 500_000
"""Distinct names of a run, and distinct texts of a trace file. A name is one row in memory; half a million take some 0.2 GB."""
NAME_TEXT_BYTES: Final = 128 << 20
"""Bytes of all distinct names of a run, and of all texts of a trace file, which are in memory at the same time."""
SIGNATURES: Final = 500_000
"""Distinct signatures of operators of a run, and of a trace file; programs of changing shapes have some 10,000 of them."""
SIGNATURE_BYTES: Final = 128 << 20  # Bytes of all distinct signatures of a run, and of a trace file; with call stacks each has some KB
KERNELS: Final = 50_000  # Distinct names of kernels of a run; each is classified, which takes some 50 µs. Large jobs have a few thousand.
KERNEL_TEXT_BYTES: Final = 16 << 20  # Bytes of all names of kernels of a run; report.json lists them, and patterns are matched on them
DEVICES_PER_PROCESS: Final = 1_024  # Devices that one process lists or uses; a node has 16, or 112 slices (MIG) of them
DEVICES: Final = 16_384  # Devices of a run; 2,048 nodes with 8 devices each
NODES: Final = 4_096  # Nodes of a run; a node is a row of tables and an entry in figures of the report
PROCESSES: Final = 16_384  # Processes of a run; one for each of ``DEVICES``
NODES_PER_FILE: Final = 512
"""Nodes that one file adds to a run; a log of DCGM has at most as many, with eight GPUs each. The nodes of other files keep their place."""
PROCESSES_PER_FILE: Final = 1_024  # Processes that one file adds to a run; a timeline has one for each worker of a data loader
STREAMS_PER_DEVICE: Final = 4_096  # Streams of a process on one device; CUDA programs use up to some 100, each analyzed by itself
THREADS_PER_PROCESS: Final = 65_536  # Threads of a process; the kernel's default limit of a node is 32,768
UNITS_PER_NODE: Final = 4_096  # Cores or GPUs of a node with samples; large nodes have 1,024 cores
METRICS: Final = 4_096  # Distinct metrics and counters of a run with samples; postrun knows some 40, and programs count a few of their own
PARAMETERS: Final = 10_000  # Hyperparameters, labels, resources or metadata of a run, each; the report lists them all
METADATA_BYTES: Final = 16 << 20  # Letters of the metadata of a recording; honest ones have some 10 KB
CATEGORIES: Final = 100  # Categories of events of a file with a note of their own if they are not read; profilers write some 20

FURTHER_NODES: Final = "(nodes beyond the limit)"  # Host name that all nodes beyond ``NODES`` share until their events are removed
LEFT_OUT: Final = "(names beyond the limit)"
"""Name that all names beyond ``NAMES`` and ``NAME_TEXT_BYTES`` share: their events keep their times and places."""
OTHER_KERNELS: Final = "(kernels beyond the limit)"  # Name that the kernels beyond ``KERNELS`` and ``KERNEL_TEXT_BYTES`` share

UNPACKED_BYTES: Final = 20 * 10**9  # Bytes that a compressed file may always unpack to; the largest of a training profile have some 10 GB
UNPACKED_RATIO: Final = 200  # Times its packed size that a larger file may unpack to; traces have 10 to 40

_MARK_BYTES: Final = 64  # room for the mark behind a text that was cut: "… [12,345,678 bytes, 0123abcd]"
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT])(i?)B\s*", re.IGNORECASE)


def cut_text(text: str, limit: int = TEXT_BYTES) -> str:
    """Cut a text of more than ``limit`` bytes of UTF-8; its CRC-32 keeps it unique."""
    if len(text) * 4 <= limit:
        return text
    raw = text.encode("utf-8", "replace")
    return cut_bytes(raw, limit).decode() if len(raw) > limit else text


def cut_bytes(raw: bytes, limit: int) -> bytes:
    """Cut valid UTF-8 longer than ``limit``; the C scanner has the same function."""
    end = max(limit - _MARK_BYTES, 0)
    while end and raw[end] & 0xC0 == 0x80:
        end -= 1
    return raw[:end] + f"… [{len(raw)} bytes, {zlib.crc32(raw):08x}]".encode()


def size_in_bytes(size: str) -> int:
    """Return the bytes of a size such as 600MB or 2GiB, or raise UsageError."""
    match = _SIZE.fullmatch(size)
    if match is None:
        raise UsageError(f"{size!r} is not a size; write it like 600MB or 2GB")
    return int(float(match[1]) * (1024 if match[3] else 1000) ** ("KMGT".index(match[2].upper()) + 1))


def unpacked_limit(packed: int, limit: str | None) -> int:
    """Return the limit for a file of ``packed`` bytes, by --max-unpacked or default."""
    if limit is None:
        return max(UNPACKED_BYTES, UNPACKED_RATIO * packed)
    try:
        return size_in_bytes(limit)
    except UsageError as error:
        raise UsageError(f"--max-unpacked {error}") from None


def cut_values(values: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the first ``PARAMETERS`` values, cut, and the number of the others."""
    kept = {cut_text(str(key)): _short(without_depth(value)) for key, value in list(values.items())[:PARAMETERS]}
    return kept, len(values) - len(kept)


def _short(value: Any) -> Any:
    if isinstance(value, dict | list):
        text = json.dumps(value, ensure_ascii=False, default=str)
        return value if len(text) * 4 <= TEXT_BYTES else cut_text(text)
    return cut_text(value) if isinstance(value, str) else value


def cut_columns(rows: pa.Table | pa.RecordBatch) -> tuple[pa.Table | pa.RecordBatch, int]:
    """Cut the texts of the columns of ``rows``; return how many were cut."""
    import polars as pl
    import pyarrow as pa

    count = 0
    for index, kind in enumerate(rows.schema.types):
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
        if not text or rows.column(index).nbytes <= TEXT_BYTES:
            continue
        column = pl.Series(rows.column(index))
        if more := int((column.str.len_bytes() > TEXT_BYTES).sum()):
            count += more
            texts = [None if text is None else cut_text(text) for text in column.to_list()]
            rows = rows.set_column(index, rows.schema.names[index], pa.array(texts, pa.large_string()))
    return rows, count
