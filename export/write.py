"""Export of the run in a store to files of another tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from ..errors import UsageError
from ..ingest.store.registry import UNKNOWN_HOST
from ..ingest.store.store import Store
from . import chrome, perfetto, tables
from .counts import Counts
from .events import Events
from .target import check_file, check_folder, new_file, new_folder
from .tree import Tree


def check(sources: Sequence[str], kind: str, output: Path) -> None:
    """Raise UsageError, before anything is read, if ``output`` cannot be written."""
    if "://" in str(output) or str(output).startswith(("s3:/", "gs:/", "az:/")):
        raise UsageError(f"{output}: an export is written to a file or folder of this machine; copy it from there")
    if str(output) == "-":
        raise UsageError("-: an export is not written to standard output; name a file or folder with -o")
    if any(output.resolve() == Path(source).resolve() for source in sources):
        raise UsageError(f"{output} is the run itself; name another place with -o")
    if kind in ("parquet", "csv"):
        check_folder(output, tables.file_names(cast(tables.Kind, kind)))
    else:
        check_file(output)


def write(
    store: Store, kind: str, output: Path, progress: Callable[[str, float | None], None] | None = None, *, csv_raw: bool = False
) -> Counts:
    """Write the run to ``output``, completely or not at all.

    ``kind``: perfetto, chrome, parquet or csv. ``csv_raw``: texts that a spreadsheet would take for a formula stay as they are.
    """
    if kind in ("parquet", "csv"):
        with new_folder(output) as folder:
            return tables.write(folder, store, cast(tables.Kind, kind), raw=csv_raw)
    tree = Tree(store)
    events = Events(store, tree, progress)
    with new_file(output) as file:
        if kind == "perfetto":
            return perfetto.write(file, tree, events)
        return chrome.write(file, tree, events, _properties(store))


def _properties(store: Store) -> dict[str, Any]:
    """Return the properties of a PyTorch trace: devices, and rank and host if unique."""
    properties: dict[str, Any] = {"schemaVersion": 1}
    run = store.frame("SELECT name FROM run LIMIT 1").rows()
    if run and run[0][0]:
        properties["traceName"] = run[0][0]
    processes = store.frame("SELECT rank, world_size FROM process").rows()
    if len(processes) == 1 and processes[0][0] is not None:
        properties["distributedInfo"] = {"rank": processes[0][0], **({"world_size": processes[0][1]} if processes[0][1] else {})}
    hosts = store.frame("SELECT DISTINCT hostname FROM process JOIN node ON node.id = process.node").to_series().to_list()
    if len(hosts) == 1 and hosts[0] and not hosts[0].startswith(UNKNOWN_HOST):
        properties["host_name"] = hosts[0]
    if len(store.frame("SELECT DISTINCT node FROM device")) == 1:
        properties["deviceProperties"] = [_device(*row) for row in store.frame(
            'SELECT "index", name, memory_bytes, sm_count, compute_capability, uuid FROM device ORDER BY "index"').rows()]  # fmt: skip
    return properties


def _device(index: int, name: str | None, memory: int | None, sms: int | None, capability: str | None, uuid: str | None) -> dict[str, Any]:
    major, _, minor = (capability or "").partition(".")
    values = {
        "id": index, "name": name, "totalGlobalMem": memory, "numSms": sms, "uuid": uuid,
        "computeMajor": int(major) if major.isdecimal() else None, "computeMinor": int(minor) if minor.isdecimal() else None,
    }  # fmt: skip
    return {key: value for key, value in values.items() if value is not None}
