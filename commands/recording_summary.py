"""A summary of a recording: trace files of a folder -> lines for the end of `postrun record`.

Files are read as the report reads them. A large recording is only measured, so that the summary stays quick.
"""

from __future__ import annotations

import errno
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..errors import InputError
from ..native.record.job import ANNOTATE
from ..native.recording.loss_reasons import loss_reason

_STEP: Final = re.compile(r"(?i)step|step[_ -]?\d+|ProfilerStep#\d+")
_WINDOW: Final = re.compile(r"gpu\.window\.\d+")
_NO_ACTIVITY: Final = ("no NVIDIA driver", "no CUDA device", "the program did not use CUDA")
_INCOMPLETE: Final = 1  # Flag of a range that never ended
_MOST_BYTES: Final = 128 << 20  # Of trace files that are counted: one or two seconds
_MOST_FILES: Final = 256


@dataclass(slots=True)
class _Contents:
    """The contents of the files. ``steps``: number of steps by who made them; ``why``: why GPU activity is missing."""

    steps: Counter[str] = field(default_factory=Counter)
    processes: set[tuple[str, int]] = field(default_factory=set)
    loading: int = 0
    samples: int = 0
    windows: int = 0
    kernels: int = 0
    why: set[str] = field(default_factory=set)
    lost: Counter[int] = field(default_factory=Counter)


def lines(folder: Path) -> Iterator[str]:
    """Yield the summary; it leaves out unreadable files, which the report names."""
    files = sorted(path for path in folder.rglob("*.prt") if not path.name.startswith("."))
    sizes = [_size(path) for path in files]
    if len(files) > _MOST_FILES or sum(sizes) > _MOST_BYTES:
        from ..analysis.toolkit.wording import size

        yield f"recorded {size(sum(sizes))} in {len(files)} trace files"
        return
    from pyarrow import ArrowException

    contents = _Contents()
    for path in files:
        try:
            _add(contents, path)
        except (InputError, OSError, ArrowException):
            continue
    yield from _summary(contents)
    if _is_full(folder):
        yield f"the disk of {folder} is full: what came after that is not recorded. Free some space, or choose another place with --out"


def _summary(contents: _Contents) -> Iterator[str]:
    from ..analysis.toolkit.wording import plural

    parts = [f"{plural(count, 'step')} ({source})" for source, count in sorted(contents.steps.items())]
    if contents.loading:
        parts.append(plural(contents.loading, "wait") + " for data")
    if contents.windows or contents.kernels:
        parts.append(f"{plural(contents.windows, 'window')} of GPU activity with {plural(contents.kernels, 'kernel')}")
    if contents.processes:
        parts.append(plural(len(contents.processes), "process", "processes"))
    parts.append(plural(contents.samples, "value") + " of machine metrics")
    yield f"recorded {', '.join(parts)}"
    if contents.processes and not contents.steps:
        yield f"no training steps were found. {ANNOTATE}"
    if not contents.kernels:
        for why in sorted(contents.why):
            yield f"GPU activity was not recorded: {why}"
    for reason, count in sorted(contents.lost.items()):
        yield f"{plural(count, 'record')} lost ({loss_reason(reason).name}). {loss_reason(reason).text}"


def _add(summary: _Contents, path: Path) -> None:
    from ..analysis.steps.loading_names import DATA_LOADING
    from ..ingest.prt.format import TraceFile

    file = TraceFile(path, name_ids=True)
    metadata = file.metadata()
    tables = file.contents
    for row in file.table("loss").arrow().to_pylist():
        summary.lost[row["reason"]] += row["count"]
    summary.samples += tables["metric"].rows if "metric" in tables else 0
    summary.kernels += tables["kernel"].rows if "kernel" in tables else 0
    summary.windows += sum(_WINDOW.fullmatch(key) is not None for key in metadata)
    why = metadata.get("capability.gpu")
    if why and "job.recorder" not in metadata and not why.startswith(_NO_ACTIVITY):
        summary.why.add(why)
    if "job.recorder" in metadata:
        return
    process = file.table("process").arrow().to_pylist()
    summary.processes.update((row["host"], row["pid"]) for row in process[:1])
    if not tables["annotation"].rows:
        return
    texts = file.names()
    loading = re.compile(DATA_LOADING)
    steps = {index for index, text in enumerate(texts) if _STEP.fullmatch(text)}
    waits = {index for index, text in enumerate(texts) if loading.search(text)}
    source = metadata.get("steps.source", "annotations")
    for name, count in _ranges(file):
        if name in steps:
            summary.steps[source] += count
        elif name in waits:
            summary.loading += count


def _ranges(file: Any) -> Iterator[tuple[int, int]]:
    """Name and number of the ranges that ended."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with pa.RecordBatchReader.from_stream(file.table("annotation")) as batches:
        for batch in batches:
            ended = batch.filter(pc.equal(pc.bit_wise_and(batch.column("flags"), _INCOMPLETE), 0))
            for name in pc.value_counts(ended.column("name")).to_pylist():
                if name["values"] is not None:
                    yield name["values"], name["counts"]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_full(folder: Path) -> bool:
    """Whether nothing more can be written to the folder."""
    trial = folder / f".postrun-space-{os.getpid()}"
    with suppress(OSError):
        try:
            trial.write_bytes(bytes(4096))
        except OSError as error:
            return error.errno in (errno.ENOSPC, errno.EDQUOT)
        finally:
            trial.unlink(missing_ok=True)
    return False
