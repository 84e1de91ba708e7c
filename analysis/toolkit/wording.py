"""Texts of the numbers in a report.

Times by magnitude and three significant digits (12.4 ms, 1.02 s, 18 min 42 s), bytes in binary units, shares with one decimal, counts
with commas, moments in UTC as ISO 8601.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

_MOST_TENSORS: Final = 4  # inputs that the text of a shape names
_LARGEST_SIZE: Final = 10**15  # of a dimension; beyond, the trace is damaged
_ROUNDING: Final = 1e-9  # percent, of a sum of floats that is 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def significant(value: float) -> str:
    """Format three significant digits: 0.0123, 1.02, 12.4, 178, 12,345."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    # Round first: 9.996 is 10.0, not 10.00.
    rounded = float(f"{magnitude:.3g}")
    if rounded >= 1000:
        text = count(round(magnitude))
    else:
        decimals = 0 if rounded >= 100 else 1 if rounded >= 10 else 2
        while rounded < 10 ** -(decimals - 2) and decimals < 12:
            decimals += 1
        text = f"{magnitude:.{decimals}f}"
    return f"-{text}" if value < 0 else text


def duration(ns: float) -> str:
    """Format nanoseconds: 850 ns, 12.4 µs, 178 ms, 1.02 s, 18 min 42 s, 3 d 4 h."""
    if ns < 0:
        return f"-{duration(-ns)}"
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)):
        limit = 60 if unit == "s" else 1000
        if float(f"{ns / size:.3g}") < limit:
            return f"{round(ns) if ns == round(ns) and unit == 'ns' else significant(ns / size)} {unit}"
    seconds = round(ns / 1_000_000_000)
    if seconds < 3600:
        return _parts(seconds, 60, "min", "s")
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return _parts(minutes, 60, "h", "min")
    return _parts(round(seconds / 3600), 24, "d", "h")


def _parts(total: int, size: int, unit: str, smaller: str) -> str:
    """Write ``total`` smaller units, of ``size`` per unit: 20 min, 1 h 5 min."""
    units, rest = divmod(total, size)
    return f"{count(units)} {unit} {rest} {smaller}" if rest else f"{count(units)} {unit}"


def percent(value: float) -> str:
    """Format a percentage (0..100): 18.9%, <0.1%, >99.9%; 0% and 100% are exact."""
    if 0 < value < 0.05:
        return "<0.1%"
    if 99.95 <= value < 100 - _ROUNDING:
        return ">99.9%"
    text = f"{value:.1f}%"
    return {"0.0%": "0%", "-0.0%": "0%", "100.0%": "100%"}.get(text, text)


def threshold_text(value: float) -> str:
    """Format a threshold in percent as it was set: 70%, 2.5%."""
    return f"{value:g}%"


def signed_percent(value: float) -> str:
    """Format a change in percent with its sign: +14.2%, -3.0%, <0.1%, 0%."""
    text = percent(abs(value))
    return text if value == 0 or text.startswith("<") else f"{'+' if value > 0 else '-'}{text.lstrip('>')}"


def change(base: float, new: float) -> str:
    """Format a change: +14.2%, -3.0%; above twice the base as a factor: 5.0×."""
    if base and new > 2 * base:
        return factor(new / base)
    return signed_percent(100 * (new - base) / base) if base else "none before"


def factor(ratio: float) -> str:
    """Format a ratio with one decimal below 100: 5.0×, 10.4×, 12,345×."""
    return f"{ratio:.1f}×" if ratio < 99.95 else f"{count(round(ratio))}×"


def signed_duration(ns: float) -> str:
    """Format a change of a duration with its sign: +18.2 ms, -850 ns."""
    return f"+{duration(ns)}" if ns > 0 else duration(ns)


def whole_percent(value: float) -> str:
    """Format a percentage without decimals: 61%, <1%, >99%."""
    if 0 < value < 0.5:
        return "<1%"
    if 99.5 <= value < 100 - _ROUNDING:
        return ">99%"
    return f"{value:.0f}%"


def count(value: int) -> str:
    """Format a count in groups of three digits: 1,234,567."""
    return f"{value:,}"


def plural(number: int, noun: str, nouns: str | None = None) -> str:
    """Format a count and its noun: 1 step, 2 steps."""
    return f"{count(number)} {noun if number == 1 else nouns or noun + 's'}"


def verdict_counts(issues: int, errors: int, passed: int, informational: int, not_evaluated: int) -> str:
    """Count verdicts, without zeros: 4 issues, 9 passed, 5 not evaluated."""
    texts = [plural(number, noun) for number, noun in ((issues, "issue"), (errors, "error")) if number]
    words = ((passed, "passed"), (informational, "informational"), (not_evaluated, "not evaluated"))
    return ", ".join([*texts, *(f"{count(number)} {word}" for number, word in words if number)])


def capitalized(text: str) -> str:
    """Return ``text`` with a capital first letter, and the rest as it is."""
    return text[:1].upper() + text[1:]


def distinct(value: float, limit: float, decimals: int) -> str:
    """Format with ``decimals`` digits, or as many as separate it from ``limit``."""
    for digits in range(decimals, 7):
        text = f"{value:.{digits}f}"
        if float(text) != limit or value == limit:
            break
    return text


def ordinal(number: int) -> str:
    """Format an ordinal: 1st, 2nd, 11th, 23rd."""
    return f"{number}{'th' if number % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def step(number: int, again: int = 0) -> str:
    """Name a step: "step 3", or "step 3 (2nd time)" if its number was used before."""
    return f"step {number} ({ordinal(again + 1)} time)" if again else f"step {number}"


def number_runs(values: Iterable[int]) -> list[str]:
    """Return numbers as texts, three or more successive ones as one: 5, 7, 9–11."""
    runs: list[list[int]] = []
    for number in sorted(set(values)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = []
    for run in runs:
        texts += [f"{run[0]}–{run[-1]}"] if len(run) > 2 else [str(number) for number in run]
    return texts


def numbered(values: Iterable[int]) -> str:
    """List numbers: "5, 7 and 9–11"."""
    texts = number_runs(values)
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def process(node: str, rank: int | None, pid: int | None) -> str:
    """Name a process within a sentence: rank 3, process 4711 on node-1, node-1."""
    return f"rank {rank}" if rank is not None else f"process {pid} on {node}" if pid is not None else node


def size(value: float) -> str:
    """Format bytes in binary units: 850 B, 1.25 GiB."""
    magnitude = abs(float(value))
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    index = 0
    while index < len(units) - 1 and float(f"{magnitude:.3g}") >= 1000:  # 1,013 KiB is 0.989 MiB
        magnitude /= 1024
        index += 1
    if index == 0:
        return f"{round(value)} B"
    return f"{'-' if value < 0 else ''}{significant(magnitude)} {units[index]}"


def moment(ns: int) -> str:
    """Format a time since the Unix epoch: 2026-11-21 06:40:05 UTC."""
    at = _EPOCH + timedelta(microseconds=ns // 1000)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def shape_text(dims: Sequence[Any]) -> str | None:
    """Write the sizes of the tensors of a call: 32x128, 128x64.

    ``dims``: of each input, as in the trace. None without a tensor, and if a size is not a count."""
    tensors = [sizes for sizes in dims if isinstance(sizes, list) and sizes]
    tensors = [sizes for sizes in tensors if 0 not in sizes] or tensors  # without empty ones
    texts = []
    for sizes in tensors[:_MOST_TENSORS]:
        if all(isinstance(size, list) for size in sizes):
            texts.append(f"{len(sizes)} tensors")
        elif all(type(size) is int and 0 <= size < _LARGEST_SIZE for size in sizes):
            texts.append("x".join(map(str, sizes)))
        else:
            return None
    return ", ".join(texts) + (", ..." if len(tensors) > _MOST_TENSORS else "") if texts else None


def with_values(condition: str, parameters: Iterable[tuple[str, object, str]]) -> str:
    """Replace each parameter in backticks, with the unit after it, by its value.

    "more than `patience` samples" becomes "more than 1000 samples (`patience`)". ``parameters``: names, values, units.
    """
    for name, value, unit in parameters:
        if value is None:
            value, unit = "none", ""
        percent = unit.startswith("%")
        alone = f"{value}{'%' if percent else ' µs' if unit == 'µs' else ''} (`{name}`)"
        spelled = f"{value}{'' if percent else ' '}{unit} (`{name}`)"
        first, *pairs = re.split(f"`{re.escape(name)}`( {re.escape(unit)})?" if unit else f"`{re.escape(name)}`()", condition)
        replaced = (spelled if followed else alone for followed in pairs[::2])
        condition = first + "".join(text + rest for text, rest in zip(replaced, pairs[1::2], strict=True))
    return condition
