"""Recompiles: functions that torch.compile compiles again and again during the steps (docs/rules.md).

Compilations are ranges in a trace, or entries of a log of torch.compile (TORCH_TRACE), which has the guards that failed. The first
compilation of a function is not an issue.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from ...efficiency.largest_site import Site
from ...report.work_details import CompiledFunction, RecompilesDetails
from ...toolkit.intervals import intersection, union
from ...toolkit.wording import count, duration, percent, plural, threshold_text
from ..evidence.base import Cost, Outcome, Parameter, Parameters, Rule, concluded, not_evaluated
from ..evidence.compile_ranges import compile_ranges, runs_compiled_code
from ..evidence.compiled_functions import compiled_functions, with_keys
from ..evidence.device_share import span_of_all
from ..evidence.idle_during import idle_during
from ..evidence.recompilations import host_steps, logged, profiled
from ..evidence.recompile_advice import advice, guard_of
from ..evidence.run_data import RunData

_LEAST: Final = 2  # recompilations of a process from which they recur
_CAPTURE: Final = (
    "Set `TORCH_TRACE=FOLDER` for the program, profile it with torch.profiler and CPU activity, and give the log and the trace together."
)
_TITLE: Final = "Avoid recompilations by torch.compile"
_OF_STEPS: Final = "time of the steps"
_OF_GPUS: Final = "GPU time in the profile window"


class Recompiles(Rule):
    name = "Recompiles"
    category = "trace"
    host_times = True
    parameters = (
        Parameter(
            "threshold", "%", 5, 5, "percentile", "share of the devices' time, or of the steps, that recompilations may leave without work"
        ),
        Parameter("first_steps", "steps", 3, 3, "positive", "recompilations in this many first steps of a process do not count"),
    )
    needs = "A trace of torch.profiler with CPU activity, or a log of torch.compile (TORCH_TRACE), of a program that uses torch.compile."
    explains = ("HostBound", "LowGPUUtilization", "StepOutlier")
    checks = "Finds functions that torch.compile compiles again during the steps, and functions that reached the limit of recompilations."
    condition = (
        "a process recompiles at least twice after the `first_steps` first steps, and devices, or without them the steps, lose more than"
        " `threshold` of their time meanwhile; or a function reached the limit of recompilations, so that it runs without compilation"
    )
    advice = "Make what changes from call to call dynamic, or keep it the same."

    def evaluate(self, run: RunData, parameters: Parameters) -> Outcome:
        compiles = runs_compiled_code(run.store)
        if not compiles and compile_ranges(run.store).is_empty() and not run.store.has_rows("compilation"):
            return not_evaluated("no compilation by torch.compile was recorded in this run", _CAPTURE)
        rows, log = with_keys(profiled(run, parameters["first_steps"]), logged(run.store))
        if compiles and rows.is_empty() and log.is_empty():
            return concluded((), 0, details=_details(run, rows, log), finding="No function was compiled within the profile.")
        details = _details(run, rows, log)
        limited = log.filter("limit_reached")["key"].n_unique()
        if _recur(rows) and details.lost_percent is not None and details.lost_percent > parameters["threshold"]:
            return _issue(run, rows, details, limited, parameters)
        if limited:
            return _limit_issue(details, limited)
        if missing := _missing(run, rows, details):
            return not_evaluated(missing, _CAPTURE, details=details)
        return concluded((), details.compilations, details=details, finding=_passed(details, parameters))


def _details(run: RunData, rows: pl.DataFrame, log: pl.DataFrame) -> RecompilesDetails:
    """Return the measurements: those of the profile, and sums of the logs."""
    late = rows.filter("late")
    forward = rows.filter(~pl.col("backward"))
    idle = _idle(run, late)
    lost, total, base = _lost(run, late, idle)
    forward_log = log.filter(~pl.col("backward"))
    return RecompilesDetails(
        functions=compiled_functions(rows, log, idle, run.top),
        compilations=forward.height,
        recompilations=int(((forward["version"].fill_null(0) > 0) & ~forward["limit_reached"].fill_null(False)).sum()),
        unknown=forward["version"].null_count(),
        late=int((~late["backward"]).sum()),
        compile_ns=_length(rows),
        late_ns=_length(late),
        lost_ns=lost,
        lost_percent=100 * lost / total if total else None,
        base=base if total else None,
        base_ns=total,
        logged_compilations=forward_log.height,
        logged_recompilations=int(((forward_log["version"] > 0) & ~forward_log["limit_reached"]).sum()),
        logged_ns=_length(log.drop_nulls("end")),
    )


def _length(rows: pl.DataFrame) -> int:
    """Return how long processes compile; compilations at the same time count once."""
    merged = union(rows.select("process", "start", "end"), ["process"])
    return int((merged["end"] - merged["start"]).sum())


def _idle(run: RunData, late: pl.DataFrame) -> pl.DataFrame:
    """Return the gaps of devices during recompilations, with the key of the function."""
    if late.is_empty() or not run.breakdown:
        return pl.DataFrame(schema=dict.fromkeys(("key", "process", "device", "start", "end"), pl.Int64))
    named = late.select("process", "start", "end", name=pl.col("key").cast(pl.String), kind=pl.lit("compilation"))
    return idle_during(run, named).with_columns(key=pl.col("name").cast(pl.Int64))


def _lost(run: RunData, late: pl.DataFrame, idle: pl.DataFrame) -> tuple[int, int, str]:
    """Return the time that recompilations cost, of how long, and the base."""
    if run.breakdown:
        gaps = union(idle.select("process", "device", "start", "end"), ["process", "device"])
        return min(int((gaps["end"] - gaps["start"]).sum()), span_of_all(run)), span_of_all(run), _OF_GPUS
    steps = union(host_steps(run.store).select("process", "start", "end"), ["process"])
    within = intersection(union(late.select("process", "start", "end"), ["process"]), steps, ["process"])
    return int((within["end"] - within["start"]).sum()), int((steps["end"] - steps["start"]).sum()), _OF_STEPS


def _recur(rows: pl.DataFrame) -> bool:
    """Return whether a process has at least two late recompilations."""
    counts = rows.filter("late", ~pl.col("backward")).group_by("process").len()["len"]
    return len(counts) > 0 and int(counts.max() or 0) >= _LEAST  # type: ignore[arg-type]


def _issue(run: RunData, rows: pl.DataFrame, details: RecompilesDetails, limited: int, parameters: Parameters) -> Outcome:
    late = rows.filter("late")
    functions, main = late["key"].n_unique(), details.functions[0]
    assert details.lost_percent is not None
    assert details.base is not None
    waiting = "Devices have no work for" if run.breakdown else "Steps last longer by"
    after = f" after the first {plural(int(parameters['first_steps']), 'step')}" if run.store.has_rows("step") else ""
    text = (
        f"torch.compile recompiles {plural(functions, 'function')} {plural(details.late, 'time')}{after}, which takes"
        f" {duration(details.late_ns)} on the host. {waiting} {duration(details.lost_ns)} meanwhile,"
        f" {percent(details.lost_percent)} of the {details.base} (threshold {threshold_text(parameters['threshold'])})."
    )
    if main.function or main.caller or main.module:
        text += f" The largest part is due to {_named(main)}." if functions > 1 else f" It is {_named(main)}."
    text += _facts(main)
    if limited:
        text += f" {count(limited)} reached the limit of recompilations, so that calls run without compilation since then."
    return concluded(
        [main],
        details.compilations,
        [(late["start"].min(), late["end"].max())],  # type: ignore[list-item]
        details=details,
        finding=text,
        recommendation=_recommendation(main),
        triggered=functions,
        violations=details.late,
        site=_site(main),
        cost=Cost(_TITLE, details.lost_ns, details.base_ns, details.lost_ns, base=details.base),
    )


def _limit_issue(details: RecompilesDetails, limited: int) -> Outcome:
    main = next(function for function in details.functions if function.limit_reached)
    functions = "A function reached" if limited == 1 else f"{count(limited)} functions reached"
    text = (
        f"{functions} the limit of recompilations of torch.compile: {_named(main)}. Calls that fit none of its compilations run without"
        f" compilation since then.{_facts(main)}"
    )
    return concluded(
        [main],
        max(details.compilations, details.logged_compilations),
        details=details,
        finding=text,
        recommendation=_recommendation(main),
        title=_TITLE,
        triggered=limited,
        violations=limited,
        site=_site(main),
    )


def _recommendation(main: CompiledFunction) -> str:
    text = advice(f"`{main.function}`" if main.function else "the function", main.reason)
    if main.limit_reached:
        text += " A higher `torch._dynamo.config.recompile_limit` would only allow more compilations."
    return text


def _facts(main: CompiledFunction) -> str:
    """Return sentences on the guard, the limit and graph breaks of a function."""
    text = f" The guard that failed is `{guard_of(main.reason)}`." if main.reason else ""
    if main.graph_break:
        text += f" The function also has {plural(main.graph_breaks, 'graph break')}."
    return text


def _named(function: CompiledFunction) -> str:
    name = f"`{function.function}`" if function.function else "a function without a known name"
    if line := _line(function):
        name += f" ({line})"
    elif function.caller:
        name += f" that {function.caller} calls"
    return f"{name} in module `{function.module}`" if function.module else name


def _site(function: CompiledFunction) -> Site | None:
    line = _line(function) or function.caller
    return Site(function.module, line) if function.module or line else None


def _line(function: CompiledFunction) -> str | None:
    return f"{function.file.rpartition('/')[2]}:{function.line}" if function.file and function.line is not None else None


def _missing(run: RunData, rows: pl.DataFrame, details: RecompilesDetails) -> str | None:
    """Return what is missing for a verdict, or None."""
    if details.compilations and details.unknown == details.compilations:
        times = plural(details.compilations, "compilation")
        return f"the trace has {times} of {duration(details.compile_ns)} and does not show which are recompilations"
    if rows.is_empty() and details.logged_recompilations and not run.store.has_rows("profile_window"):
        functions = sum(function.logged_recompilations > 0 for function in details.functions)
        return (
            f"the log has {plural(details.logged_recompilations, 'recompilation')} of {plural(functions, 'function')}, and no profile shows"
            f" their cost; all compilations took {duration(details.logged_ns)}"
        )
    if details.late and details.lost_percent is None:
        return "neither device activity nor steps in this run show what the recompilations cost"
    return None


def _passed(details: RecompilesDetails, parameters: Parameters) -> str:
    if not details.compilations:
        of_log = (
            f" The log has {plural(details.logged_compilations, 'compilation')}, {details.logged_recompilations} of them recompilations."
        )
        return "No function was compiled within the profile." + (of_log if details.logged_compilations else "")
    text = f"torch.compile compiles {plural(details.compilations, 'time')} within the profile, which takes {duration(details.compile_ns)}."
    if not details.recompilations:
        return f"{text} These are first compilations of functions: let the program warm up before the profile begins."
    late = f"{count(details.late)} of these are recompilations after the first steps"
    if details.late < _LEAST or details.lost_percent is None:
        return f"{text} {late}, fewer than {_LEAST}." if details.late else f"{text} None is a recompilation after the first steps."
    limit = threshold_text(parameters["threshold"])
    return f"{text} {late}, which costs {percent(details.lost_percent)} of the {details.base} (threshold {limit})."
