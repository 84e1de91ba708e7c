"""Figures of a night for Prometheus: its result -> a text file (exposition format 0.0.4) for node_exporter's textfile collector.

All samples have the label ``out``, so that the files of several nights on one machine differ; no label names a run.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from ..errors import PostrunError, UsageError
from ..ingest.object_store.folder import complete_file
from ..version import __version__
from .model import State
from .night import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .history import Finding
    from .model import Row
    from .run_night import Result

_PREFIX: Final = "postrun_nightly_"
_MODE: Final = 0o644  # node_exporter is another user
_SUCCESS: Final = "last_success_timestamp_seconds"
_GIVEN_UP: Final = "given_up_messages_total"
_SUCCEEDED: Final = (0, 3)  # exit codes; 3: a word of --fail-on matched in a complete night
_LARGEST: Final = 1 << 20  # bytes of a file that is read again


@dataclass(frozen=True, slots=True)
class Ended:
    """``rows``: of the runs that the night reported or that failed, ``regressions`` that it announces. ``seconds``: of the night. ``at_s``:
    its end (Unix time). ``complete``: no run that it was to report is left for another time. ``waiting``: the number of messages that are
    not sent yet, ``given_up`` of those that are no longer tried. ``is_night``: false for --index-only, which keeps the figures of the last
    night."""

    result: Result
    rows: Sequence[Row]
    regressions: Sequence[Finding]
    exit_code: int
    seconds: float
    at_s: float
    complete: bool = True
    waiting: int = 0
    given_up: int = 0
    is_night: bool = True


@dataclass(frozen=True, slots=True)
class _Figure:
    """``values``: by the value of ``label``, or by the suffix of the sample's name if there is no label. ``of_night``: a call without a
    night keeps the samples of the file."""

    name: str
    help: str
    values: Mapping[str, float]
    label: str | None = None
    kind: str = "gauge"
    of_night: bool = True


def checked(path: Path) -> Path:
    """Return the path of the file. Raise UsageError if no collector would read it."""
    if path.suffix != ".prom":
        raise UsageError(f"{path} does not end in .prom, and the textfile collector reads no other files")
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent}: no such folder; name the folder of the textfile collector")
    return path


def write(path: Path, ended: Ended, out: str) -> None:
    """Replace the file as a whole. ``out``: the label. Raise PostrunError."""
    try:
        text = "".join(_lines(ended, out, _text(path)))
        with complete_file(path) as file:
            os.fchmod(file.fileno(), _MODE)
            file.write(text.encode("utf-8", "replace"))
    except OSError as error:
        raise PostrunError(f"{path}: {error.strerror or error}; check --metrics") from None


def _text(path: Path) -> str:
    """Return the file of the last call; empty without one."""
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""


def _value(before: str, name: str) -> float:
    """Return a value of the file of the last call; 0 without it."""
    match = re.search(rf"^{_PREFIX}{name}\{{.*\}} ([0-9.]+)$", before, re.MULTILINE)
    return float(match[1]) if match else 0.0


def _metrics(ended: Ended, before: str) -> Iterator[_Figure]:
    result, night, rows = ended.result, ended.result.night, ended.rows
    states = result.index.states
    yield _Figure(
        "runs", "Runs in the index by state.", {state: states.get(state, 0) for state in get_args(State)}, "state", of_night=False
    )
    outcomes = {
        "reported": sum(row.state == "reported" for row in night.rows),
        "failed": len(night.failed),
        "unchanged": result.unchanged,
        "elsewhere": result.elsewhere,
        "taken_over": len(result.taken_over),
    }
    yield _Figure(
        "night_runs",
        "Runs of the last night by outcome; elsewhere: another night reported it; taken_over: an interrupted night did.",
        outcomes,
        "outcome",
    )
    faults = Counter(night.faults.values())
    yield _Figure(
        "night_failures", "Runs of the last night without a report, by cause.", {name: faults[name] for name in get_args(Fault)}, "cause"
    )
    ids = {row.id for row in rows}
    kinds = Counter(finding.kind for finding in result.index.findings if finding.id in ids)
    findings = {"regression": len(ended.regressions), **{name: kinds[name] for name in ("new_issue", "improvement")}}
    yield _Figure(
        "night_findings", "Regressions that the last night announced, and new issues and improvements in its runs.", findings, "kind"
    )
    seconds = [row.seconds for row in night.rows if row.seconds is not None]
    yield _Figure(
        "run_duration_seconds",
        "Time per run of the last night.",
        {"_sum": sum(seconds), "_count": len(seconds)},
        kind="summary",
    )
    read = sum(row.bytes for row in night.rows)
    yield _Figure("night_read_bytes", "Size of the files of the runs that the last night read.", {"": read})
    yield _Figure("night_duration_seconds", "Duration of the last night.", {"": ended.seconds})
    yield _Figure("night_exit_code", "Exit code of the last night.", {"": ended.exit_code})
    yield _Figure("last_run_timestamp_seconds", "End of the last night (Unix time).", {"": ended.at_s})
    succeeded = ended.exit_code in _SUCCEEDED and ended.complete and night.stopped is None
    success_s = ended.at_s if succeeded else _value(before, _SUCCESS)
    yield _Figure(_SUCCESS, "End of the last successful night (Unix time); 0 if there was none.", {"": success_s})
    yield _Figure("waiting_messages", "Messages of --attach that are not sent yet.", {"": ended.waiting}, of_night=False)
    given_up = int(_value(before, _GIVEN_UP)) + ended.given_up
    yield _Figure(_GIVEN_UP, "Messages of --attach that are no longer tried.", {"": given_up}, kind="counter", of_night=False)
    yield _Figure("info", "Version of postrun.", {__version__: 1}, "version", of_night=False)


def _lines(ended: Ended, out: str, before: str) -> Iterator[str]:
    for metric in _metrics(ended, before):
        name = _PREFIX + metric.name
        if metric.of_night and not ended.is_night:
            label = f'{{out="{_escaped(out)}"'
            samples = [line for line in re.findall(rf"^{name}(?:_sum|_count)?\{{.*\n", before, re.MULTILINE) if label in line]
        else:
            samples = list(_samples(metric, name, out))
        if samples:
            yield f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"
            yield from samples


def _samples(metric: _Figure, name: str, out: str) -> Iterator[str]:
    for key, value in metric.values.items():
        labels = {"out": out} | ({metric.label: key} if metric.label else {})
        pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{'' if metric.label else key}{{{pairs}}} {_number(value)}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3f}"
