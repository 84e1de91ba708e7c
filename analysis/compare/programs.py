"""Whether two runs execute the same program: two Reports -> the shares of their GPU time in kernels, operators and modules of common names.

Runs of one program share nearly all names. But names of kernels depend on the GPU, the precision and compilers, those of operators are
those of the framework, and those of modules change if a model is wrapped. So the majority of the three decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from ..report.comparison import Difference, SharedNames
from ..report.model import Report
from ..toolkit import wording

LEAST_PERCENT: Final = 33.0  # of the time of each run, from which names overlap; runs of one model share 49 or more
KERNELS: Final = "kernels"
OPERATORS: Final = "operators"
MODULES: Final = "modules"
PROGRAM: Final = "program"  # name of the difference
_NUMBER: Final = re.compile(r" #\d+$")  # a report numbers kernels that would have the same name
_COLLECTIVE: Final = re.compile(
    r"(?:nccl|rccl|c10d|gloo|record_param_comms)(?![a-z])", re.IGNORECASE
)  # every distributed program has these names

_Times = Iterable[tuple[str, int]]


def shared_names(base: Report, new: Report) -> tuple[SharedNames, ...]:
    """Return the shares of the names that both runs have, of each kind known of both.

    Communication does not count: its names are those of the library.
    """
    sides = [_named_times(report) for report in (base, new)]
    kinds = [(kind, _shares(sides[0][kind], sides[1][kind])) for kind in sides[0]]
    return tuple(SharedNames(kind, *shares) for kind, shares in kinds if shares is not None)


def differ(shared: Sequence[SharedNames], *, same_gpu: bool) -> bool:
    """Decide whether the runs execute different programs.

    They do if fewer than half of the kinds of names overlap. Kernels alone are evidence only on the same GPU model.
    """
    if not shared or ([names.kind for names in shared] == [KERNELS] and not same_gpu):
        return False
    overlapping = sum(min(names.base_percent, names.new_percent) >= LEAST_PERCENT for names in shared)
    return 2 * overlapping < len(shared)


def difference(shared: Sequence[SharedNames]) -> Difference:
    """Return the different programs as a difference of the runs, with the evidence."""
    base, new = (
        "common names: " + ", ".join(f"{wording.whole_percent(getattr(names, side))} of the time in {names.kind}" for names in shared)
        for side in ("base_percent", "new_percent")
    )
    return Difference(PROGRAM, base, new, "times, parts and rules are of different work")


def evidence(shared: Sequence[SharedNames]) -> str:
    """Word how little of the time is in names that both runs have."""
    partly = [names for names in shared if names.base_percent or names.new_percent]
    alone = [names.kind for names in shared if names not in partly]
    times = [f"{names.kind} {wording.whole_percent(names.base_percent)} and {wording.whole_percent(names.new_percent)}" for names in partly]
    sentences = [f"Share of the time in common names, in base and in new: {', '.join(times)}."] if times else []
    if alone:
        apart = ", apart from communication" if "kernels" in alone else ""  # whose kernels every program has
        sentences.append(f"The runs have no {' or '.join(filter(None, (', '.join(alone[:-1]), alone[-1])))} in common{apart}.")
    return " ".join([*sentences, f"In runs of one program, most of these are at least {wording.whole_percent(LEAST_PERCENT)}."])


def _named_times(report: Report) -> dict[str, _Times]:
    operators = report.operators.rows if report.operators else ()
    return {
        KERNELS: [(_NUMBER.sub("", row.short_name), row.total_ns) for row in report.kernels if row.category != "communication"],
        OPERATORS: [(row.name, row.total_ns) for row in operators if not _COLLECTIVE.match(row.name)],
        MODULES: [(row.module, row.device_ns) for row in report.operator_calls.rows if row.module],
    }


def _shares(base: _Times, new: _Times) -> tuple[float, float] | None:
    """Return the percentage of each side's time in names of both sides."""
    sides: tuple[dict[str, int], dict[str, int]] = {}, {}
    for side, times in zip(sides, (base, new), strict=True):
        for name, time in times:
            side[name] = side.get(name, 0) + time
    common = sides[0].keys() & sides[1].keys()
    totals = [sum(side.values()) for side in sides]
    if not all(totals):
        return None
    first, second = (100 * sum(side[name] for name in common) / total for side, total in zip(sides, totals, strict=True))
    return first, second
