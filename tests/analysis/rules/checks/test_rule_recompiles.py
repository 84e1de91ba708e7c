"""Recompiles: compilations of traces and logs, with their cost worked out on paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from judging import Judged, rules_of
from postrun.analysis import Options
from postrun.analysis.rules.engine.selection import select
from postrun.analysis.rules.evidence.recompile_advice import advice, guard_of, kind_of
from postrun.ingest.store import Store
from rule_details import plain_details

MakeStore = Callable[..., Store]
MS = 1_000_000
BEGAN = 1_790_000_000 * 10**9
MISMATCH = "tensor 'x' size mismatch at index 0. expected 4, actual 5"
COMPILE = "entire_frame_compile"
INNER = "_compile.compile_inner (dynamo_timed)"
OLD = "_compile.<locals>.compile_inner (dynamo_timed)"


def judged(store: Store, **settings: float) -> Judged:
    chosen = {f"Recompiles_{name}": value for name, value in settings.items()}
    return rules_of(store, Options(generated_at_ns=0, selection=select(["Recompiles"], settings=chosen)))


def span(start: float, end: float) -> dict[str, int]:
    return {"start_ns": BEGAN + round(start * MS), "duration_ns": round((end - start) * MS)}


def event(name: str, start: float, end: float, **more: Any) -> dict[str, Any]:
    return {"kind": "operator", "name": name, **span(start, end), **more}


def compiled(start: float, end: float, id: str | None, name: str = COMPILE, **more: Any) -> dict[str, list[dict[str, Any]]]:
    """Return a compilation in a trace, with its id as PyTorch 2.13 names it."""
    events = [event(name, start, end, **more), event(INNER, start + 0.1, end - 0.1, **more)]
    data = f"{COMPILE}_data: fn_name=_compile.compile_inner, compile_id={id}"
    return {"host_event": events, "annotation": [{"name": data, "side": "host", **span(start, start + 0.05), **more}] if id else []}


def together(*parts: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    return {table: [row for part in parts for row in part.get(table, ())] for table in dict.fromkeys(key for part in parts for key in part)}


def kernels(*times: tuple[float, float], **more: Any) -> dict[str, list[dict[str, Any]]]:
    return {"device_event": [{"kind": "kernel", "name": "forward", **span(start, end), **more} for start, end in times]}


def steps(number: int = 10, first: int = 0, process: int = 0) -> dict[str, list[dict[str, Any]]]:
    """Return steps of 100 ms."""
    return {
        "step": [
            {"node": 0, "process": process, "index": first + index, "host_start_ns": BEGAN + 100 * index * MS, "host_duration_ns": 100 * MS}
            for index in range(number)
        ]
    }


def entry(version: int, start: float, length: float, *, frame: str = "0", process: int = 0, **more: Any) -> dict[str, Any]:
    """Return a compilation in a log."""
    return {
        "node": 0, "process": process, "source": 0, "frame": frame, "version": version, "backward": False, "function": "forward",
        "file": "/app/model.py", "line": 8, **span(start, start + length), "graph_breaks": 0, "limit_reached": False, "finished": True,
        **more,
    }  # fmt: skip


# Gaps of 60 and 80 ms. The first recompilation begins before its gap and ends after it.
DEVICE = kernels((0, 500), (560, 700), (780, 1000))
TWICE = together(compiled(490, 570, "0/1"), compiled(700, 780, "0/2"))
LOG = {"compilation": [entry(0, -9000, 500), entry(1, 490, 80, reason=MISMATCH), entry(2, 700, 80, reason=MISMATCH)]}


def test_recompilations_cost_the_idle_time_of_devices(make_store: MakeStore) -> None:
    result = judged(make_store(**together(DEVICE, steps(), TWICE)))
    (rule,), (finding,) = result.rules, result.findings
    assert (rule.verdict, rule.triggered, rule.violations, rule.datapoints) == ("IssuesFound", 1, 2, 2)
    assert rule.finding == (
        "torch.compile recompiles 1 function 2 times after the first 3 steps, which takes 160 ms on the host. Devices have no work for"
        " 140 ms meanwhile, 14.0% of the GPU time in the profile window (threshold 5%)."
    )
    details = plain_details(rule)
    assert (details["compilations"], details["recompilations"], details["late"], details["compile_ns"]) == (2, 2, 2, 160 * MS)
    assert (details["lost_ns"], details["base_ns"], details["unknown"], details["logged_compilations"]) == (140 * MS, 1000 * MS, 0, 0)
    (row,) = details["functions"]
    assert (row["function"], row["compilations"], row["late_ns"], row["idle_ns"]) == (None, 2, 160 * MS, 140 * MS)
    assert (finding.cost_ns, finding.saving_ns, finding.saving_kind) == (140 * MS, 140 * MS, "upper_bound")
    assert "TORCH_TRACE" in (rule.recommendation or "")


def test_a_log_names_function_and_guard(make_store: MakeStore) -> None:
    (rule,), (finding,) = (lambda all: (all.rules, all.findings))(judged(make_store(**together(DEVICE, steps(), TWICE, LOG))))
    sentences = f" It is `forward` (model.py:8). The guard that failed is `{MISMATCH}`."
    assert (rule.finding or "").endswith(sentences)
    assert "`torch._dynamo.mark_dynamic(x, 0)`" in (rule.recommendation or "")
    assert "dynamic=True" in (rule.recommendation or "")
    details = plain_details(rule)
    assert (details["logged_compilations"], details["logged_recompilations"], details["logged_ns"]) == (3, 2, 660 * MS)
    (row,) = details["functions"]
    assert (row["function"], row["file"], row["line"], row["reason"], row["logged_compilations"]) == (
        "forward", "/app/model.py", 8, MISMATCH, 3,
    )  # fmt: skip
    assert finding.source_line == "model.py:8"


def test_a_log_without_ids_in_the_trace_joins_by_time(make_store: MakeStore) -> None:
    trace = together(compiled(490.2, 570, None, OLD), compiled(700.3, 780, None, OLD))
    details = plain_details(judged(make_store(**together(DEVICE, steps(), trace, LOG))).rules[0])
    assert (details["recompilations"], details["late"], details["unknown"]) == (2, 2, 0)
    far = {"compilation": [entry(1, 400, 80), entry(2, 900, 80)]}
    details = plain_details(judged(make_store(**together(DEVICE, steps(), trace, far))).rules[0])
    assert (details["recompilations"], details["unknown"]) == (0, 2)


@pytest.mark.parametrize(
    ("parts", "settings", "verdict"),
    [
        (TWICE, {"threshold": 13.9}, "IssuesFound"),
        (TWICE, {"threshold": 14}, "NoIssuesFound"),
        (TWICE, {"first_steps": 4}, "IssuesFound"),  # the first one begins in step 4
        (TWICE, {"first_steps": 5}, "NoIssuesFound"),
        (compiled(490, 570, "0/1"), {}, "NoIssuesFound"),  # one does not recur
        (together(compiled(490, 570, "0/1"), compiled(700, 780, "1/1")), {}, "IssuesFound"),
        (together(compiled(490, 570, "0/0"), compiled(700, 780, "1/0")), {}, "NoIssuesFound"),
        (together(compiled(490, 570, "0/1"), compiled(700, 780, "!3/0/0")), {}, "NoIssuesFound"),
        (together(compiled(490, 570, "!1/0/1"), compiled(700, 780, "!1/0/2_1")), {}, "IssuesFound"),
    ],
)
def test_verdicts(make_store: MakeStore, parts: dict[str, Any], settings: dict[str, float], verdict: str) -> None:
    assert judged(make_store(**together(DEVICE, steps(), parts)), **settings).rules[0].verdict == verdict


def test_a_late_profile_begins_after_the_first_steps(make_store: MakeStore) -> None:
    early = together(compiled(10, 70, "0/1"), compiled(110, 180, "0/2"))
    device = kernels((0, 10), (70, 110), (180, 1000))
    assert judged(make_store(**together(device, steps(), early))).rules[0].verdict == "NoIssuesFound"
    assert judged(make_store(**together(device, steps(first=500), early))).rules[0].verdict == "IssuesFound"


def test_without_steps_the_first_recompilation_of_a_function_does_not_count(make_store: MakeStore) -> None:
    rule = judged(make_store(**together(DEVICE, TWICE))).rules[0]
    assert (rule.verdict, plain_details(rule)["late"]) == ("NoIssuesFound", 1)
    rule = judged(make_store(**together(DEVICE, compiled(490, 570, "0/2"), compiled(700, 780, "0/3")))).rules[0]
    assert (rule.verdict, plain_details(rule)["late"]) == ("IssuesFound", 2)
    assert (rule.finding or "").startswith("torch.compile recompiles 1 function 2 times, which takes 160 ms on the host.")


def test_without_devices_the_time_of_the_steps_counts(make_store: MakeStore) -> None:
    (rule,), (finding,) = (lambda all: (all.rules, all.findings))(judged(make_store(**together(steps(), TWICE))))
    assert "Steps last longer by 160 ms meanwhile, 16.0% of the time of the steps" in (rule.finding or "")
    assert (finding.cost_ns, finding.base) == (160 * MS, "time of the steps")
    rule = judged(make_store(**together(compiled(490, 570, "0/2"), compiled(700, 780, "0/3")))).rules[0]
    assert (rule.verdict, rule.reason) == (
        "NotEvaluated", "neither device activity nor steps in this run show what the recompilations cost",
    )  # fmt: skip


def test_first_compilations_are_advised_to_be_before_the_profile(make_store: MakeStore) -> None:
    rule = judged(make_store(**together(DEVICE, steps(), compiled(490, 570, "0/0")))).rules[0]
    assert (rule.verdict, rule.finding) == (
        "NoIssuesFound",
        "torch.compile compiles 1 time within the profile, which takes 80.0 ms. These are first compilations of functions: let the program"
        " warm up before the profile begins.",
    )


def test_compiled_code_that_runs_is_no_compilation(make_store: MakeStore) -> None:
    runs = {"host_event": [event(f"Torch-Compiled Region: 0/{number % 2}", 100 * number, 100 * number + 9) for number in range(10)]}
    rule = judged(make_store(**together(DEVICE, steps(), runs))).rules[0]
    assert (rule.verdict, rule.finding) == ("NoIssuesFound", "No function was compiled within the profile.")
    for name in ("Torch-Compiled Region", "## Call CompiledFxGraph fabc ##"):
        rule = judged(make_store(**together(DEVICE, {"host_event": [event(name, 0, 9)]}))).rules[0]
        assert rule.verdict == "NoIssuesFound"


def test_a_program_without_torch_compile_is_not_evaluated(make_store: MakeStore) -> None:
    rule = judged(make_store(**together(DEVICE, steps(), {"host_event": [event("aten::mm", 0, 9)]}))).rules[0]
    assert (rule.verdict, rule.reason) == ("NotEvaluated", "no compilation by torch.compile was recorded in this run")
    assert "TORCH_TRACE=FOLDER" in (rule.capture or "")


@pytest.mark.parametrize("name", [OLD, "compile_inner (dynamo_timed)", "_compile (dynamo_timed)", "_compile._compile_inner (dynamo_timed)"])
def test_older_traces_do_not_show_which_are_recompilations(make_store: MakeStore, name: str) -> None:
    rows = {"host_event": [event(name, 490, 570), event(name, 700, 780), event("Torch-Compiled Region", 571, 580)]}
    rule = judged(make_store(**together(DEVICE, steps(), rows))).rules[0]
    assert (rule.verdict, rule.reason) == (
        "NotEvaluated", "the trace has 2 compilations of 160 ms and does not show which are recompilations",
    )  # fmt: skip


def test_the_region_that_runs_next_names_the_id(make_store: MakeStore) -> None:
    region, lookup = "Torch-Compiled Region: 0/{}", "TorchDynamo Cache Lookup"
    rows = {
        "host_event": [
            event(lookup, 480, 481), event(OLD, 490, 570), event(region.format(1), 575, 590),
            event(lookup, 690, 691), event(OLD, 700, 780), event(region.format(2), 785, 790),
        ]
    }  # fmt: skip
    details = plain_details(judged(make_store(**together(DEVICE, steps(), rows))).rules[0])
    assert (details["late"], details["unknown"]) == (2, 0)
    # The code of another call, code that ran before, and code of another thread.
    rows["host_event"] += [event(region.format(2), 300, 310), event(lookup, 572, 573)]
    rows["host_event"][2]["tid"] = 1
    details = plain_details(judged(make_store(**together(DEVICE, steps(), rows))).rules[0])
    assert (details["late"], details["unknown"]) == (0, 2)
    elsewhere = {"host_event": [event(OLD, 490, 570), event(region.format(1), 575, 590, tid=2)]}
    assert plain_details(judged(make_store(**together(DEVICE, steps(), elsewhere))).rules[0])["unknown"] == 1


def test_compilations_of_the_backward_pass_cost_and_do_not_count(make_store: MakeStore) -> None:
    name = "entire_backward_compile"
    backward = {
        "host_event": [event(name, 700, 780)],
        "annotation": [{"name": f"{name}_data: fn_name=backward._backward_impl, compile_id=0/1", "side": "host", **span(700, 700.1)}],
    }
    details = plain_details(judged(make_store(**together(DEVICE, steps(), compiled(490, 570, "0/1"), backward))).rules[0])
    assert (details["compilations"], details["late"], details["late_ns"], details["lost_ns"]) == (1, 1, 160 * MS, 140 * MS)


def test_equal_functions_of_ranks_are_one(make_store: MakeStore) -> None:
    processes = [{"id": number, "node": 0, "pid": 100 + number, "rank": number} for number in range(2)]
    parts = []
    for process in range(2):
        mine = {"process": process}
        log = {"compilation": [entry(1, 490, 80, process=process, reason=MISMATCH), entry(2, 700, 80, process=process, reason=MISMATCH)]}
        device = kernels((0, 500), (560, 700), (780, 1000), device=process, **mine)
        trace = together(compiled(490, 570, "0/1", **mine), compiled(700, 780, "0/2", **mine))
        parts += [device, steps(process=process), trace, log]
    rule = judged(make_store(processes=processes, **together(*parts))).rules[0]
    (row,) = plain_details(rule)["functions"]
    assert (row["ranks"], row["compilations"], row["idle_ns"]) == (2, 4, 280 * MS)
    assert plain_details(rule)["lost_percent"] == 14.0


def test_a_log_alone_has_no_cost(make_store: MakeStore) -> None:
    rule = judged(make_store(**LOG)).rules[0]
    assert (rule.verdict, rule.reason) == (
        "NotEvaluated", "the log has 2 recompilations of 1 function, and no profile shows their cost; all compilations took 660 ms",
    )  # fmt: skip
    rule = judged(make_store(compilation=[entry(0, 0, 500)])).rules[0]
    assert rule.verdict == "NoIssuesFound"


def test_a_log_shows_the_limit(make_store: MakeStore) -> None:
    rows = [entry(version, version * 10, 9, reason=f"n == {version - 1} # return x*n" if version else None) for version in range(8)]
    rows.append(entry(8, 80, 0.5, reason="n == 7 # return x*n", limit_reached=True, failure="Unsupported: limit"))
    result = judged(make_store(compilation=rows))
    (rule,), (finding,) = result.rules, result.findings
    assert (rule.verdict, rule.triggered) == ("IssuesFound", 1)
    assert (rule.finding or "").startswith(
        "A function reached the limit of recompilations of torch.compile: `forward` (model.py:8). Calls that fit none of its compilations"
        " run without compilation since then. The guard that failed is `n == 0`."
    )
    assert "would only allow more compilations" in (rule.recommendation or "")
    assert (finding.cost_ns, finding.source_line) == (None, "model.py:8")
    assert plain_details(rule)["logged_recompilations"] == 7


def test_a_log_counts_within_the_profile_if_the_trace_has_no_compilations(make_store: MakeStore) -> None:
    windows = {"profile_window": [{"process": 0, "source": 0, "first_ns": BEGAN, "last_ns": BEGAN + 1000 * MS}]}
    details = plain_details(judged(make_store(**together(DEVICE, steps(), LOG, windows))).rules[0])
    assert (details["compilations"], details["late"], details["lost_ns"]) == (2, 2, 140 * MS)
    later = {"compilation": [entry(1, 2000, 80), entry(2, 3000, 80)]}
    rule = judged(make_store(**together(DEVICE, steps(), later, windows))).rules[0]
    assert (rule.verdict, rule.finding) == (
        "NoIssuesFound",
        "No function was compiled within the profile. The log has 2 compilations, 2 of them recompilations.",
    )


def test_graph_breaks_are_named(make_store: MakeStore) -> None:
    log = {"compilation": [entry(1, 490, 80, graph_breaks=1, graph_break="/app/model.py:9: print"), entry(2, 700, 80)]}
    rule = judged(make_store(**together(DEVICE, steps(), TWICE, log))).rules[0]
    assert "The function also has 1 graph break." in (rule.finding or "")


@pytest.mark.parametrize(
    ("reason", "kind", "code"),
    [
        (MISMATCH, "size", "mark_dynamic(x, 0)"),
        ("tensor 'L['mask']' size mismatch at index 2. expected 4, actual 5", "size", "mark_dynamic(mask, 2)"),
        ("L['x'].size()[0] <= 64", "size", "dynamic=True"),
        ("tensor 'x' stride mismatch at index 1. expected 8, actual 16", "size", "dynamic=True"),
        ("self.k == 0 # self.k+=1 (HINT: torch.compile considers integer attributes of the nn.Module to be static.)", "attribute",
         "allow_unspec_int_on_nn_module"),
        ("L['self'].step == 3", "attribute", "register_buffer"),
        ("n == 0 # return x*2+n", "number", "torch.tensor"),
        ("L['alpha'] == 0.5", "number", "torch.tensor"),
        ("tensor 'x' dtype mismatch. expected Float, actual Double", "tensor", "cast"),
        ("tensor 'x' requires_grad mismatch. expected requires_grad=1", "tensor", "requires_grad"),
        ("GLOBAL_STATE changed: grad_mode", "state", "gradients"),
        ("len(xs) == 3", "length", "stack"),
        ("___check_obj_id(f, 1234)", "object", "objects"),
        ("flag == 'a' # return x", "value", "branch"),
        ("something else", "unknown", "TORCH_TRACE"),
        (None, "unknown", "TORCH_LOGS=recompiles"),
    ],
)  # fmt: skip
def test_the_guard_decides_the_advice(reason: str | None, kind: str, code: str) -> None:
    assert kind_of(reason) == kind
    assert code in advice("`f`", reason)


def test_a_guard_in_a_sentence_is_short_and_has_no_marks() -> None:
    assert guard_of("flag == 'a' # return x.cos() if a # app/gen.py:21 in helper") == "flag == 'a'"
    assert guard_of("a == '`'") == "a == '''"
    assert len(guard_of("x" * 5000)) == 120
