"""Joins columns of texts row by row in Arrow, to write them to a file at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def grouped(flat: NDArray[np.uint8], offsets: NDArray[np.int32]) -> Any:
    """Return a binary column of ``flat``; offsets have one entry more than rows."""
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(flat)])


def together(column: Any, offsets: NDArray[np.int32]) -> Any:
    """Concatenate the texts of each row; ``offsets``: index of its first text."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    buffers = [None, pa.py_buffer(_offsets(column)[offsets]), column.buffers()[2] or pa.py_buffer(b"")]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def complete_texts(pieces: Sequence[Any], between: str = "") -> Any:
    """Join columns and single texts row by row; null if a piece is missing."""
    return pc.binary_join_element_wise(*pieces, between)


def row_texts(pieces: Sequence[Any], between: str = "") -> Any:
    """Join columns and single texts row by row; missing pieces are left out."""
    first, *more = pieces
    if all(isinstance(piece, pa.Array) and piece.null_count for piece in pieces):  # a row without any text would be left out
        first = pc.if_else(reduce(pc.and_, (piece.is_null() for piece in pieces)), "", first)
    return pc.binary_join_element_wise(first, *more, between, null_handling="skip")


def put(out: BinaryIO, pieces: Sequence[Any], skip: int = 0) -> int:
    """Write ``pieces`` row by row from byte ``skip``; return the number of bytes."""
    rows = pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, pa.scalar("", pieces[0].type))
    offsets = _offsets(rows)
    begin, end = int(offsets[0]), int(offsets[-1])
    if begin < end:
        out.write(memoryview(rows.buffers()[2])[begin + skip : end])
    return end - begin


def codes_of(column: Any) -> tuple[list[str], NDArray[np.int64]]:
    """Return the distinct texts of a column, and the index of each row's; -1 for null."""
    encoded = column.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def _offsets(column: Any) -> NDArray[np.int32]:
    if not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
