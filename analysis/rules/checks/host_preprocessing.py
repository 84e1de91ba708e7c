"""HostPreprocessing: what a process that loads its data itself spends the loading on (docs/rules.md).

The time of the loader's calls is attributed to lines of the program, if the trace has Python stacks, else to operators. The cost is the
time for which the device, or without one the step, waits for the loader, times the share of the named lines.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...report.loop_details import HostPreprocessingDetails, PreprocessingRow
from ...toolkit.wording import duration, percent, plural, threshold_text
from ..evidence.base import Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.device_share import span_of_all
from ..evidence.idle_during import idle_during
from ..evidence.preprocessing import loading_calls, loading_work
from ..evidence.run_data import RunData

_MAIN: Final = 20.0  # percent of the time of the loader's calls from which a line is worth advice
_NO_CALLS: Final = "no call of a data loader was recorded in this run"
_CAPTURE: Final = (
    "Profile some steps with `num_workers=0` and `with_stack=True` (`postrun record --stacks`): then the trace names the lines that prepare"
    " the data."
)


class HostPreprocessing(Rule):
    name = "HostPreprocessing"
    category = "trace"
    of_training = True
    host_times = True
    parameters = (
        Parameter("threshold", "%", 5, 5, "percentile", "share of the devices' time, or of the steps, that waits for the loader may take"),
    )
    needs = "Calls of data loaders with what ran in them: Python stacks or operators of the process that loads."
    explains = ("InputBound", "HostBound", "LowGPUUtilization")
    checks = "Finds the lines or operators that a process which loads its data itself spends the loading on."
    condition = (
        f"devices, or without them the steps, wait for data loaders for more than `threshold` of their time, and one line or operator takes"
        f" at least {threshold_text(_MAIN)} of the loading"
    )
    advice = "Prepare the data once and store the result, or in loader processes."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        calls = loading_calls(run.store)
        if calls.is_empty():
            return not_evaluated(_NO_CALLS, _CAPTURE)
        loading = int((calls["end"] - calls["start"]).sum())
        waited, total, base = _waiting(run, calls)
        if not total:
            return not_evaluated("neither device activity nor steps in this run", "Record GPU activity or annotate the steps.")
        share, threshold = 100 * waited / total, parameters["threshold"]
        who = "Devices have no work" if run.breakdown else "Steps wait"
        text = (
            f"{who} for {duration(waited)} while their processes load data,"
            f" {percent(share)} of the {base} (threshold {threshold_text(threshold)})."
        )
        if share <= threshold:
            return concluded((), 0, details=HostPreprocessingDetails((), loading, None, waited, share, base), finding=text)
        work = loading_work(run.store)
        if work.is_empty():
            return not_evaluated("the trace shows the waits for data, and nothing of what prepares it", _CAPTURE)
        rows = tuple(
            PreprocessingRow(*run.places.process(process), what, line, count, time, 100 * time / loading)
            for process, what, line, count, time in work.head(run.top).iter_rows()
        )
        known = 100 * int(work["time"].sum()) / loading
        details = HostPreprocessingDetails(rows, loading, known, waited, share, base)
        main = [row for row in rows if row.percent >= _MAIN]
        if not main:
            missing = f"the trace shows {percent(known)} of what ran in the loader, and no line or operator takes"
            missing += f" {threshold_text(_MAIN)} of it"
            return not_evaluated(missing, _CAPTURE, details=details)
        caused = round(waited * min(sum(row.percent for row in main) / 100, 1.0))
        return concluded(
            main,
            len(work),
            [calls.select(pl.col("start").min(), pl.col("end").max()).row(0)],
            details=details,
            finding=f"{text} {_named(rows[0])}, {percent(rows[0].percent)} of the loading.",
            recommendation=_recommendation(main),
            cost=Cost("Make the preparation of the data cheaper", caused, total, caused, base=base),
        )


def _waiting(run: RunData, calls: pl.DataFrame) -> tuple[int, int, str]:
    """Return how long devices or steps wait in the calls, of how long, and the base."""
    if run.breakdown:
        named = calls.with_columns(name=pl.lit("loader"), kind=pl.lit("loader"))
        idle = idle_during(run, named)
        return int((idle["end"] - idle["start"]).sum()), span_of_all(run), "GPU time in the profile window"
    parts = [part for part in run.steps.parts if part.typical]
    return round(sum(part.loading_ns for part in parts)), round(sum(part.total_ns for part in parts)), "time of the steps"


def _named(row: PreprocessingRow) -> str:
    what = f"`{row.what}`" if row.line else f"the operator `{row.what}`"
    return f"{what[0].upper()}{what[1:]} takes {duration(row.time_ns)} in {plural(row.calls, 'call')}"


def _recommendation(rows: list[PreprocessingRow]) -> str:
    first = rows[0]
    where = f"`{first.what}`" if first.line else f"what calls `{first.what}` in the data set"
    conversion = "" if first.line else " `torchvision.transforms.v2` converts and normalizes whole batches, also on the device;"
    return (
        f"Make {where} cheaper, because it takes {percent(first.percent)} of the loading: decode, resize and convert once and store the"
        f" result, or do it for whole batches.{conversion} Loader processes (`num_workers`) take it off this process."
    )
