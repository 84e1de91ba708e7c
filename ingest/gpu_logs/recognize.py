"""Recognizes logs of GPU monitors by the beginning of a file, and reads the columns of their headers."""

from __future__ import annotations

import codecs
import csv
import re
from typing import Final

UTF16: Final = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
DELIMITERS: Final = (",", ";", "\t")
_LOOKED_AT: Final = 512
_LEAST: Final = 8  # characters that are needed to recognize an encoding without a byte order mark
# Column of --query-gpu -> metric, and the unit of values without a unit. The first of several columns of one metric counts.
COLUMNS: Final[dict[str, tuple[str, str]]] = {
    "utilization.gpu": ("gpu_utilization", "%"),
    "utilization.memory": ("gpu_memory_controller", "%"),
    "memory.used": ("gpu_memory_used_bytes", "MiB"),
    "memory.total": ("gpu_memory_total_bytes", "MiB"),
    "power.draw": ("gpu_power", "W"),
    "power.draw.average": ("gpu_power", "W"),
    "power.draw.instant": ("gpu_power", "W"),
    "clocks.current.sm": ("gpu_sm_clock", "MHz"),
    "clocks.sm": ("gpu_sm_clock", "MHz"),
    "clocks_event_reasons.active": ("gpu_throttle_reasons", ""),
    "clocks_throttle_reasons.active": ("gpu_throttle_reasons", ""),
}
KEY_COLUMNS: Final = {
    "index": "index", "gpu_index": "index", "uuid": "uuid", "gpu_uuid": "uuid", "pci.bus_id": "bus", "gpu_bus_id": "bus",
    "name": "name", "gpu_name": "name",
}  # fmt: skip
_HEADER: Final = re.compile(
    r"[#\"\s]*[a-z][a-z0-9_.]*(\s*\[[^\]\[,]{1,12}\])?\"?(\s*,\s*\"?[a-z][a-z0-9_.]*(\s*\[[^\]\[,]{1,12}\])?\"?)*\s*,?"
)
_ITEM: Final = re.compile(r"([a-z][a-z0-9_.]*)\s*(?:\[([^\]]*)\])?")
REASON: Final = re.compile(r"clocks_(?:event|throttle)_reasons\.(\w+)")
_TIMED_LINE: Final = re.compile(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}\s*[,;\t]")
_TIMED_DMON_LINE: Final = re.compile(r"20\d{6}\s*,?\s*\d\d:\d\d:\d\d\s*,?\s*\d{1,4}(?:\s*,\s*|\s+)[-\d]")
DMON_HEADER: Final = re.compile(r"#\s*(?:Date|Time|gpu)\b.*\bgpu\b|#\s*gpu\b", re.I)
# A table of dmon or pmon has at least one of these columns.
DMON_NAMES: Final = frozenset({
    "sm", "mem", "pwr", "fb", "bar1", "gtemp", "mtemp", "mclk", "pclk", "enc", "dec", "pviol", "tviol", "sbecc", "dbecc", "rxpci", "txpci",
    "pid",
})  # fmt: skip
PMON_HEADER: Final = re.compile(r"#.*\bgpu\b.*\bpid\b.*\btype\b", re.I)
TABLE: Final = re.compile(r"\|\s*NVIDIA-SMI\s+\d|=+NVSMI LOG=+")
# Lines in which nvidia-smi reports that it or one of the GPUs failed.
FAILURE: Final = (
    r"(?i)^(?:unable to determine the device handle for |failed to initialize nvml\b|no devices were found|nvidia-smi has failed\b"
    r"|nvidia-smi couldn't |gpu is lost\b)"
)
_FAILED: Final = re.compile(FAILURE)
TIMES: Final = ("timestamp", "time", "ts", "datetime", "date", "timestamp_ns", "timestamp_us", "timestamp_ms")
_HOSTS: Final = ("hostname", "host", "node", "nodename", "node_name", "instance")
_INDICES: Final = ("gpu", "gpu_id", "gpuid", "gpu_index", "index", "device", "entity", "entity_id", "entityid")
_UUIDS: Final = ("uuid", "gpu_uuid")
_BUSES: Final = ("pci_bus_id", "pci.bus_id", "gpu_bus_id")
_MODELS: Final = ("modelname", "model_name", "model", "gpu_name", "name")
_METRICS: Final = ("metric", "__name__", "field", "field_name", "metric_name")
_PARTS: Final = ("gpu_i_id", "gpu_instance_id")
FIELD: Final = re.compile(r"DCGM_FI_(?:DEV|PROF)_[A-Z0-9_]+", re.I)
ENTITY: Final = re.compile(r"(?P<time>.*?)#\s*Entity\s+\S", re.I)
EXPOSED: Final = re.compile(r"^DCGM_FI_(?:DEV|PROF)_[A-Z0-9_]+\s*\{.*\}\s*\S+", re.I)


def utf16_of(head: bytes) -> str | None:
    """Return the variant of UTF-16 by the byte order mark or zero bytes, or None."""
    if name := UTF16.get(head[:2]):
        return name
    first, second = head[0:_LOOKED_AT:2], head[1:_LOOKED_AT:2]
    zeros = first.count(0), second.count(0)
    if len(second) < _LEAST:
        return None
    if zeros[0] <= len(first) // 10 and zeros[1] >= 0.9 * len(second):
        return "utf-16-le"
    return "utf-16-be" if zeros[1] <= len(second) // 10 and zeros[0] >= 0.9 * len(first) else None


def ends_with_cr(head: bytes) -> bool:
    """Return whether lines end with CR alone, as in old Macintosh files."""
    return b"\r" in head and b"\n" not in head


def head_lines(head: bytes, most: int = 60) -> list[str]:
    """Return the lines at the beginning of a log that are not empty."""
    text = head.decode(utf16_of(head) or "utf-8", "replace")
    end = "\r" if "\r" in text and "\n" not in text else "\n"
    return [line for raw in text.split(end)[:most] if (line := raw.strip(" \t\r\ufeff\0"))]


def delimiter_of(line: str) -> str:
    """Return the separator of columns: a comma, or a semicolon or tab of spreadsheets."""
    return next((delimiter for delimiter in DELIMITERS if delimiter in line), ",")


def header_of(line: str) -> list[tuple[str, str]] | None:
    """Return names and units of the columns of a header of ``--query-gpu``, or None."""
    line = line.replace(delimiter_of(line), ",").rstrip(", ")
    if not _HEADER.fullmatch(line):
        return None
    items = [_ITEM.match(item.strip(' "#')) for item in line.split(",")]
    columns = [(item[1], item[2] or "") for item in items if item]
    known = [name for name, _ in columns if name in COLUMNS or name in KEY_COLUMNS or name == "timestamp" or REASON.match(name)]
    # Any table can have `name` and `index`.
    telling = [name for name in known if "." in name or name.startswith("gpu_")]
    return columns if len(columns) == len(items) and (telling or "timestamp" in known) and len(known) >= 2 else None


def recognizes_smi(head: bytes, path: str) -> bool:
    """Return whether a file is a log of nvidia-smi, with or without a header."""
    lines = head_lines(head)
    return bool(lines) and (
        any(_is_smi_header(line) for line in lines[:30])
        or any(DMON_HEADER.match(line) and DMON_NAMES & set(dmon_columns(line)) for line in lines[:30])
        or any(TABLE.search(line) for line in lines[:10])
        or _FAILED.match(lines[0]) is not None
        or all(_TIMED_DMON_LINE.match(line) for line in lines[:3])
        or (all(_TIMED_LINE.match(line) for line in lines[:3]) and re.search(r"\d (%|MiB|W|MHz)|[,;\t] *\d", lines[0]) is not None)
    )


def failure_of(head: bytes) -> str | None:
    """Return the error message of nvidia-smi at the beginning of a log, or None."""
    lines = head_lines(head, 1)
    return " ".join(lines[0].split())[:300] if lines and _FAILED.match(lines[0]) else None


def dmon_columns(line: str) -> list[str]:
    """Return the columns of a header of ``dmon``, in lower case."""
    return line.lstrip("# ").replace(",", " ").lower().split()


def _is_smi_header(line: str) -> bool:
    """Return whether a header has a name that only nvidia-smi uses."""
    return any(name in COLUMNS or REASON.match(name) or name in {"pci.bus_id", "gpu_uuid", "gpu_bus_id", "temperature.gpu", "pstate"}
               for name, _ in header_of(line) or ())  # fmt: skip


def fields_of(line: str) -> list[str]:
    try:
        return [field.strip().strip('"') for field in next(csv.reader([line]), [])]
    except csv.Error:
        return []


def columns_of(line: str) -> dict[str, int] | None:
    """Return the columns of a CSV header with DCGM's fields, or None.

    Keys are roles (time, host, ...) or DCGM's names of fields.
    """
    names = fields_of(line)
    if len(names) < 3 or len(names) > 2000:
        return None
    lower = [name.lower() for name in names]
    columns: dict[str, int] = {}
    for role, known in (
        ("time", TIMES), ("host", _HOSTS), ("uuid", _UUIDS), ("index", _INDICES), ("bus", _BUSES), ("name", _MODELS), ("metric", _METRICS),
        ("value", ("value",)), ("part", _PARTS),
    ):  # fmt: skip
        if (name := next((name for name in known if name in lower), None)) is not None:
            columns[role] = lower.index(name)
    for index, name in enumerate(names):
        if FIELD.fullmatch(name):
            columns.setdefault(name.upper(), index)
    fields = [name for name in columns if name.startswith("DCGM_")]
    return columns if "time" in columns and (fields or {"metric", "value"} <= set(columns)) else None


def recognizes_dcgm(head: bytes, path: str) -> bool:
    """Return whether a file has DCGM's fields: CSV, `dcgmi dmon` or Prometheus."""
    lines = head_lines(head)
    if any(ENTITY.match(line) for line in lines[:20]):
        return True
    if not FIELD.search("\n".join(lines)):
        return False
    text = [line for line in lines if not line.startswith("#")]
    if any(EXPOSED.match(line) for line in text[:5]):
        return True
    return any(("," in line and FIELD.search(line) is not None) or columns_of(line) is not None for line in lines[:5])
