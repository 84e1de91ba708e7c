"""The inputs that fuzzing of the C code begins with: Chrome traces and .prt files, made by our own writers."""

from __future__ import annotations

import gzip
import json
import struct
import subprocess
import sys
from pathlib import Path

import prt_reader
from postrun.native import _native
from postrun.simulate import Problems, write_demo
from prt_writer import PrtWriter

# ---------------------------------------------------------------- Chrome traces


def events(count: int) -> list[dict[str, object]]:
    names = ["aten::mm", "C:\\x\\y", "é\U0001f600\u0001", "a" * 300, "]}{[", '"']
    return [
        {
            "ph": "XBEiM"[i % 5],
            "cat": ["kernel", "cpu_op"][i % 2],
            "name": names[i % 6],
            "pid": [1, "Spans"][i % 2],
            "tid": i,
            "ts": 1712195495519689.5 + i,
            "dur": i / 7,
            "args": {
                "correlation": i,
                "External id": f"0x{i:x}",
                "grid": [i, 1, 1],
                "Input Dims": [[i, 2], []],
                "Call stack": names[i % 4],
            },
        }
        for i in range(count)
    ]


LAYOUTS = {
    "one line": json.dumps({"a": [1, {"b": "c"}], "traceEvents": events(150), "z": "end"}),
    "indent": json.dumps({"traceEvents": events(100)}, indent=2),
    "array": json.dumps(events(150), ensure_ascii=False),
}


HOSTILE = [
    b"",
    b"{",
    b"[",
    b'"',
    b"\\",
    b"\xef\xbb\xbf",
    b'{"ph":' * 500,
    b'[{"ph":"X","name":"' + b"\\" * 999,
    b"[" * 5000,
    b'{"a":"' + b'"' * 999,
]


def long_numbers() -> list[str]:
    """Return numbers of 1 to 40 digits, and those at the limits of int64."""
    numbers = [str(limit + step) for limit in (2**63, -(2**63), 2**64) for step in range(-2, 3)]
    for count in [*range(1, 26), 40]:
        for digits in ("9" * count, "1" + "0" * (count - 1), "0" * (count - 1) + "7"):
            numbers += [
                digits,
                "-" + digits,
                f"{digits}.9999",
                f"{digits[: count // 2]}.{digits[count // 2 :]}",
                f"{digits}e3",
                f"{digits}E-9",
            ]
    return [*numbers, f"1e{10**5}", f"1e-{10**5}"]


def scan_seeds(folder: Path) -> None:
    texts = [*LAYOUTS.values(), json.dumps({"traceEvents": events(8)}), json.dumps(events(4), indent=1)]
    numbers = long_numbers()
    for first in range(0, len(numbers), 40):
        rows = [f'{{"ph":"X","name":"n","ts":{n},"dur":"{n}","tid":{n},"args":{{"grid":[{n},1]}}}}' for n in numbers[first : first + 40]]
        texts.append(f"[{','.join(rows)}]")
    demo = folder.with_name("demo")
    write_demo(demo, steps=1, nodes=1, gpus_per_node=1, problems=Problems(straggler_rank=None))
    (trace,) = (demo / "kineto").iterdir()
    simulated = json.loads(gzip.decompress(trace.read_bytes()))
    simulated["traceEvents"] = simulated["traceEvents"][:20] + simulated["traceEvents"][20::200]
    texts.append(json.dumps(simulated, indent=1))
    for number, text in enumerate([*(text.encode() for text in texts), *HOSTILE]):
        (folder / f"{number}.json").write_bytes(text)


# ---------------------------------------------------------------- .prt files

GOLDEN = Path(__file__).parents[1] / "native" / "golden"


def trace_files(folder: Path) -> list[Path]:
    """Write files with every encoding, several streams, many names and damage."""
    files = sorted(GOLDEN.glob("*.prt"))
    anchors = [(i * 10**9, i * 10**9, 10**18 + i * 10**9) for i in range(5)]
    for level in (0, 3) if _native.zstd_available() else (0,):
        writer = PrtWriter(zstd_level=level).prelude([f"n{i}" for i in range(300)], anchors)
        count = 200
        for table in prt_reader.RANGES:
            columns = {number: [(i * number) % (number + 3) for i in range(count)] for number in prt_reader.COLUMNS[table]}
            columns |= {
                1: [i * i % 300 for i in range(count)],
                2: [i * 1000 + i % 7 for i in range(count)],
                3: [i % 9 * 100 for i in range(count)],
            }
            writer.add(table, columns, first_time=0)
        writer.add("counter", {1: [1] * 50, 2: [*range(50)], 3: [i / 8 for i in range(50)]})
        writer.add("metric", {1: [1] * 50, 2: [-1] * 50, 3: [*range(50)], 4: [i / 3 for i in range(50)]})
        path = folder / f"corpus-{level}.prt"
        path.write_bytes(writer.end().data())
        files.append(path)
    path = folder / "corpus-little.prt"
    path.write_bytes(with_little_in_it())
    for encoding in range(len(PAYLOADS)):
        files.append(folder / f"corpus-encoding-{encoding}.prt")
        files[-1].write_bytes(with_encoding(encoding))
    return [*files, path]


def varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])


ROWS = 9
PAYLOADS = [  # nine rows in each encoding
    struct.pack("<9q", *range(ROWS)),
    b"".join(varint(300 * i) for i in range(ROWS)),
    b"".join(varint(2 * i + 1) for i in range(ROWS)),
    bytes(2 * (i % 3) for i in range(ROWS)),
    bytes([2, 2, 7, 4]),
    bytes([1, 2, 8, 0]),
    b"".join(bytes([i % 4]) + b"text"[: i % 4] for i in range(ROWS)),
    bytes(2 * (i % 5) for i in range(ROWS)),
    bytes(14 * i for i in range(ROWS)),
    b"\2" + bytes(2 * i for i in range(ROWS)),
    bytes([9, 6]),
]


def with_encoding(encoding: int) -> bytes:
    """Return blocks of all types with columns in one encoding, if that is allowed."""
    data = PrtWriter().prelude(["a", "b", "é"], [(0, 0, 10**18), (10**9, 10**9, 10**18 + 10**9)]).data()
    for kind, table in enumerate(prt_reader.TYPES, 1):
        payload = b""
        for number in prt_reader.COLUMNS[table]:
            how = encoding
            if (table, number) in prt_reader.TEXTS:
                how = 6
            elif (table, number) in prt_reader.DOUBLES:
                how = 0 if encoding == 0 else 9
            elif encoding in (6, 9) or (number == 1 and encoding in (7, 10)) or (number != 2 and encoding == 8):
                how = 4
            payload += struct.pack("<BBHI", number, how, 0, len(PAYLOADS[how])) + PAYLOADS[how]
        header = struct.pack("<4sHBBIIIIQq", b"PRBK", kind, 0, 0, len(payload), len(payload), ROWS, 0, 0, 0)
        header += struct.pack("<I", prt_reader.crc32c(header))
        data += header + struct.pack("<I", prt_reader.crc32c(header + payload)) + payload
    return data


def with_little_in_it() -> bytes:
    """Return a file with an empty first text and blocks with at most one value."""
    writer = PrtWriter().add("strings", {1: [1], 2: [""]}).add("meta", {1: [""], 2: [""]})
    for table, columns in prt_reader.COLUMNS.items():
        for number in columns:
            writer.add(table, {number: [""] if (table, number) in prt_reader.TEXTS else [1]})
        writer.add_raw(prt_reader.TYPES.index(table) + 1, [(31, 0, [1])])
    return writer.end().data()


RECORD = """
import sys
from postrun import capture
with capture.session(sys.argv[1], sample_ms=100):
    for step in range(20):
        with capture.annotate("step", value=step), capture.annotate("forward"):
            capture.counter("loss", 1 / (step + 1))
"""


def reader_seeds(folder: Path) -> None:
    trace_files(folder)
    for golden in GOLDEN.glob("*.prt"):
        (folder / golden.name).write_bytes(golden.read_bytes())
    subprocess.run([sys.executable, "-P", "-c", RECORD, str(folder / "recording")], check=True, timeout=60)
