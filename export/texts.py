"""How do columns of texts become one stretch of a file? Joined row by row, in compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def grouped(flat: NDArray[np.uint8], offsets: NDArray[np.int32]) -> Any:
    """A column: bytes, and where those of each row begin (one entry more than there are rows)."""
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(flat)])


def together(column: Any, offsets: NDArray[np.int32]) -> Any:
    """The texts of ``column`` of each row as one; ``offsets``: where the first one of each row is."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [None, pa.py_buffer(_offsets(whole)[offsets]), whole.buffers()[2] or pa.py_buffer(b"")]
    )


def whole(pieces: Sequence[Any], between: str = "") -> Any:
    """The texts of ``pieces``, columns and single texts, row by row; missing where one of them is."""
    return pc.binary_join_element_wise(*pieces, between)


def row_texts(pieces: Sequence[Any], between: str = "") -> Any:
    """The texts of ``pieces``, columns and single texts, row by row; what is missing is left out."""
    first, *more = pieces
    if all(isinstance(piece, pa.Array) and piece.null_count for piece in pieces):  # a row without any text would be left out
        first = pc.if_else(reduce(pc.and_, (piece.is_null() for piece in pieces)), "", first)
    return pc.binary_join_element_wise(first, *more, between, null_handling="skip")


def put(out: BinaryIO, pieces: Sequence[Any], skip: int = 0) -> int:
    """Write the bytes or texts of ``pieces`` row by row, without the first ``skip`` bytes. Returns how many there were."""
    rows = pieces[0] if len(pieces) == 1 else pc.binary_join_element_wise(*pieces, pa.scalar("", pieces[0].type))
    offsets = _offsets(rows)
    begin, end = int(offsets[0]), int(offsets[-1])
    if begin < end:
        out.write(memoryview(rows.buffers()[2])[begin + skip : end])
    return end - begin


def places_of(column: Any) -> tuple[list[str], NDArray[np.int64]]:
    """The distinct texts of a column, and of each row the place of its own; -1 where there is none."""
    found = column.dictionary_encode()
    places = found.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found.dictionary.to_pylist(), places


def _offsets(column: Any) -> NDArray[np.int32]:
    if not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
