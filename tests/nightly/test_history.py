"""Families, trends, regressions and new issues follow the formulas in docs/nightly.md, and noise causes no findings."""

from __future__ import annotations

import random
import statistics
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from postrun.errors import UsageError
from postrun.nightly import table
from postrun.nightly.families import family_of, patterns_of
from postrun.nightly.history import History, Settings, changes_between, history
from postrun.nightly.metrics import METRICS, with_limits
from postrun.nightly.model import Row

DAY = 86_400 * 10**9
START = 1_795_243_200 * 10**9
FINE, ISSUE = "NoIssuesFound", "IssuesFound"


def run(day: float, step: int | None = None, **more: Any) -> Row:
    at = START + round(day * DAY)
    plain: dict[str, Any] = {
        "id": f"job/{day:08.3f}", "state": "reported", "kind": "traces", "fingerprint": "f", "options": "o", "bytes": 1, "files": 1,
        "name": "job", "status": "completed", "started_ns": at, "duration_ns": 3600 * 10**9, "reported_at_ns": at + DAY // 2, "ranks": 8,
        "gpus": 8, "gpu_name": "H100", "step_median_ns": step,
    }  # fmt: skip
    return Row(**plain | more)


def history_of(rows: list[Row], settings: Settings | None = None) -> History:
    settings = settings or Settings()
    names = [family_of(row.name, row.id, row.labels, settings.patterns) for row in rows]
    return history(table.frame(rows, family=pl.Series(names, dtype=pl.String)), settings)


def marks(past: History) -> dict[str, str | None]:
    return dict(past.steps.select("id", "step_mark").iter_rows())


def series(*steps: int | None) -> list[Row]:
    return [run(day, step) for day, step in enumerate(steps)]


# -- families --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "run_id", "family"),
    [
        ("gpt-7b-2026-11-20", "x", "gpt-7b"),
        ("gpt-7b_20261120_013000", "x", "gpt-7b"),
        ("gpt-7b.2026-11-20T01:30:00Z", "x", "gpt-7b"),
        ("resnet50-ddp-run-0017", "x", "resnet50-ddp"),
        ("resnet50", "x", "resnet50"),
        ("bert/large #12", "x", "bert/large"),
        ("vit-3f9c2ab", "x", "vit"),
        ("vit-3f9c2ab-2026-11-20-4", "x", "vit"),
        ("vit-facade", "x", "vit-facade"),
        ("job 6f1c9a52-0b1d-4e35-9f0e-0f6a1f9c8d77", "a/b", "b"),
        ("t5 (3)", "x", "t5"),
        ("t5[14]", "x", "t5"),
        ("2026-11-20", "team/gpt-7b/2026-11-20", "gpt-7b"),
        ("run-3", "gpt-7b/run-3", "gpt-7b"),
        (None, "gpt-7b/night/0007", "gpt-7b"),
        ("7", "7", "7"),
        # Only a generic word: better than the name with its counter. Words for jobs precede words for parts of a job.
        ("train-20261121-224234", "train-20261121-224234", "train"),
        ("train-20261121-224234", "postrun-runs/train-20261121-224234", "train"),
        ("run-17", "run-17", "run"),
        ("run17", "run17", "run"),
        ("train_3", "exp/train_3", "train"),
        ("train_run_17", "train_run_17", "train"),
        ("attempt1", "job-10/attempt1", "job"),
        ("attempt1", "llama/job-10/attempt1", "llama"),
        ("seed-2", "seed-2", "seed"),
        ("2026-11-20", "exp/2026-11-20", "exp"),
        ("Ωmega-2026-11-20", "x", "Ωmega"),
    ],
)
def test_the_default_family_is_the_name_without_what_counts_runs(name: str | None, run_id: str, family: str) -> None:
    assert family_of(name, run_id, {}) == family


def test_a_label_counts_before_a_pattern_and_a_pattern_before_the_name() -> None:
    patterns = patterns_of([r"^(\w+)-\d+b-(\w+)", r"special", r"(?P<family>vi.)-(x)"])
    assert family_of("gpt-7b-sft-12", "x", {"family": " mine "}, patterns) == "mine"
    assert family_of("gpt-7b-sft-12", "x", {"family": " "}, patterns) == "gpt sft"
    assert family_of("a", "team/special/1", {}, patterns) == "special"
    assert family_of("vit-x", "x", {}, patterns) == "vit"
    assert family_of("other-1", "x", {}, patterns) == "other"
    with pytest.raises(UsageError, match="not a regular expression"):
        patterns_of(["("])


@given(st.text(max_size=80), st.text("ab1-_/. 0", min_size=1, max_size=40))
def test_every_name_has_a_family_and_a_counter_does_not_change_it(name: str, run_id: str) -> None:
    assert family_of(name, run_id, {}) or not (name or run_id)
    if name.rstrip("-") == name and name[-1:].isalpha() and family_of(name, "x", {}) == name:
        assert family_of(f"{name}-2026-11-20", "x", {}) == family_of(f"{name}_run_7", "x", {}) == name


def test_runs_named_by_a_word_and_a_counter_are_compared() -> None:
    names = [f"train-202611{20 + day}-224234" for day in range(5)]
    (finding,) = history_of([run(day, 130 if day == 4 else 100, id=names[day], name=names[day]) for day in range(5)]).findings
    assert (finding.kind, finding.family, finding.id) == ("regression", "train", "train-20261124-224234")


def test_runs_that_are_alone_in_their_family_are_known() -> None:
    rows = [run(day, 100, id=f"2026-11-0{day}", name=f"2026-11-0{day}") for day in (1, 3, 2)]
    failed = run(4, None, id="2026-11-04", name="2026-11-04", state="failed")
    assert history_of([*rows, *series(100, 100), failed]).alone == ("2026-11-03", "2026-11-02", "2026-11-01")


# -- regressions, on paper -------------------------------------------------------------------------------------------------


def test_a_step_time_far_above_the_runs_before_is_a_regression() -> None:
    # Median of 100, 101, 99, 100, 102 is 100; deviations 0, 1, 1, 0, 2 with median 1; 3 * 1.4826 * 2.0 * 1 = 8.9 < 15.
    (finding,) = history_of(series(100, 101, 99, 100, 102, 115)).findings
    assert (finding.kind, finding.value, finding.base, finding.change_percent, finding.runs) == (
        "regression",
        115,
        100.0,
        15.0,
        5,
    )
    assert "from step to step, 15.0% more than the median of the 5 comparable runs before" in finding.text
    # Both must hold: 9% is not more than 10%; with deviations of 3 for 1, 26.7 is not exceeded.
    assert history_of(series(100, 101, 99, 100, 102, 109)).findings == ()
    assert history_of(series(100, 103, 97, 100, 106, 115)).findings == ()
    assert [one.kind for one in history_of(series(100, 103, 97, 100, 106, 127)).findings] == ["regression"]


def test_a_constant_history_has_a_floor_of_one_percent() -> None:
    steps = series(1000, 1000, 1000, 1000, 1030)
    assert history_of(steps, Settings(metrics=with_limits((), 1.0))).findings == ()
    assert [one.kind for one in history_of(series(1000, 1000, 1000, 1000, 1031), Settings(metrics=with_limits((), 1.0))).findings] == [
        "regression"
    ]
    assert history_of(series(1000, 1000, 1000, 1000, 1100)).findings == ()  # not more than 10%
    assert [one.kind for one in history_of(series(1000, 1000, 1000, 1000, 1101)).findings] == ["regression"]


def test_at_least_three_runs_before_and_at_most_eight() -> None:
    assert history_of(series(100, 100, 200)).findings == ()
    assert [one.runs for one in history_of(series(100, 100, 100, 200)).findings] == [3]
    # Of twelve, the last eight count: the slow ones before are forgotten.
    (finding,) = history_of(series(*[200] * 4, *[100] * 8, 150)).findings
    assert (finding.kind, finding.base, finding.runs) == ("regression", 100.0, 8)


def figure(column: str, *values: float | None) -> list[Row]:
    return [run(day, **{column: value}) for day, value in enumerate(values)]


def test_each_figure_has_a_direction_and_a_limit() -> None:
    """GPU busy: worse is less, by more than 10 points. Runs without steps take part."""
    (finding,) = history_of(figure("gpu_busy_percent", 91.0, 92.0, 90.0, 91.0, 79.5)).findings
    assert (finding.kind, finding.metric, finding.base, finding.change_percent) == ("regression", "gpu-busy", 91.0, -11.5)
    assert finding.text == "GPU busy 79.5%, 11.5 points less than the median of the 4 comparable runs before (91.0%)"
    assert history_of(figure("gpu_busy_percent", 91.0, 92.0, 90.0, 91.0, 81.5)).findings == ()  # 9.5 points
    assert history_of(figure("gpu_busy_percent", 50.0, 50.0, 50.0, 90.0)).findings == ()  # an improvement
    (finding,) = history_of(figure("exposed_communication_percent", 0.0, 0.0, 0.0, 12.0)).findings
    assert (finding.metric, finding.change_percent) == ("exposed-communication", 12.0)
    # Relative: 11% more memory than the median of 100; the base's own spread of 3 * 1.4826 * 3.7 * 1 = 16 does not allow it.
    assert [one.metric for one in history_of(figure("gpu_memory_peak_bytes", 100, 100, 100, 111)).findings] == ["gpu-memory-peak"]
    assert history_of(figure("gpu_memory_peak_bytes", 100, 101, 99, 111)).findings == ()
    assert [one.metric for one in history_of(figure("iteration_median_ns", 100, 100, 100, 112)).findings] == ["iteration"]


def test_step_times_come_first_among_regressions() -> None:
    rows = [run(day, step, mfu_percent=mfu) for day, (step, mfu) in enumerate([(100, 50.0)] * 4 + [(111, 20.0)])]
    assert [(one.metric, round(one.change_percent or 0)) for one in history_of(rows).findings] == [("step", 11), ("mfu", -60)]


def test_limits_of_the_command_line() -> None:
    limits = {metric.key: metric.limit for metric in with_limits(["gpu-busy=5", "mfu=off"], 7.0)}
    assert (limits["step"], limits["gpu-busy"], "mfu" in limits, len(limits)) == (7.0, 5.0, False, len(METRICS) - 1)
    five = Settings(metrics=with_limits(["gpu-busy=5"], 10.0))
    assert len(history_of(figure("gpu_busy_percent", 91.0, 91.0, 91.0, 85.0), five).findings) == 1
    off = history_of(series(100, 100, 100, 200), Settings(metrics=with_limits(["step=off"], 10.0)))
    assert (off.findings, set(marks(off).values())) == ((), {None})
    for text in ("busy=5", "gpu-busy", "gpu-busy=-1", "gpu-busy=x", "gpu-busy=nan"):
        with pytest.raises(UsageError, match="gpu-busy"):
            with_limits([text], 10.0)


def test_a_pinned_baseline_replaces_the_runs_before() -> None:
    """Slowly worse runs are found, although each is like those before it."""
    creeping = [run(0, 100, name="gpt", id="release/1"), *(run(day, 100 + 4 * day, name="gpt") for day in range(1, 6))]
    assert history_of(creeping).findings == ()
    finding, before = history_of(creeping, Settings(baseline="release/*")).findings
    assert (finding.runs, before.change_percent) == (1, 16.0)
    assert finding.text.endswith("20.0% more than the baseline release/* (100 ns)")
    # Another series has no such run, and is compared with the runs before.
    alone = [run(day, step, gpu_name="A100") for day, step in enumerate((100, 100, 100, 150))]
    assert [one.runs for one in history_of(alone, Settings(baseline="release/*")).findings] == [3]


def test_an_improvement_is_told_after_regressions() -> None:
    faster = [run(day, step, id=f"fast/{day}", name="fast") for day, step in enumerate((100, 100, 100, 100, 80))]
    findings = history_of([*series(100, 100, 100, 100, 120), *faster]).findings
    assert [(one.kind, one.family, one.change_percent) for one in findings] == [("regression", "job", 20.0), ("improvement", "fast", -20.0)]


@pytest.mark.parametrize(
    "changes",
    [{"gpu_name": "A100"}, {"gpus": 4}, {"ranks": 16}, {"status": "failed"}, {"status": "partial"}, {"name": "another"},
     {"state": "failed"}, {"gpus": None}],
)  # fmt: skip
def test_runs_that_are_not_alike_are_not_compared(changes: dict[str, Any]) -> None:
    assert history_of([*series(100, 100, 100, 100), run(5, 150, **changes)]).findings == ()
    assert history_of([run(day, 100, **changes) for day in range(4)] + [run(5, 150)]).findings == ()
    assert len(history_of([*series(100, 100, 100, 100), *(run(4.5 + i / 10, 300, **changes) for i in range(4)), run(5, 150)]).findings) == 1


def test_runs_whose_status_is_not_known_are_compared() -> None:
    assert len(history_of([run(day, 100, status="unknown") for day in range(4)] + [run(5, 150, status=None)]).findings) == 1


def test_the_order_is_that_of_the_times_not_of_the_list() -> None:
    rows = series(100, 101, 99, 100, 130)
    random.Random(1).shuffle(rows)
    assert [one.id for one in history_of(rows).findings] == ["job/0004.000"]
    # Without an epoch the time of the report stands for that of the run.
    relative = [run(day, step, started_ns=None) for day, step in enumerate((100, 101, 99, 100, 130))]
    assert [one.id for one in history_of(relative[::-1]).findings] == ["job/0004.000"]


def test_what_is_long_past_is_in_the_trend_but_no_finding() -> None:
    old = series(100, 100, 100, 100, 130)
    later = [run(100 + day, 100, id=f"new/{day}", name="new") for day in range(4)]
    past = history_of([*old, *later])
    assert past.findings == ()
    assert marks(past)["job/0004.000"] == "regression"
    (family,) = [one for one in past.families if one.name == "job"]
    assert [point.mark for point in family.points] == [None, None, None, None, "regression"]
    # A regression that the next run does not have is listed while it belongs to the last night.
    assert [one.id for one in history_of(series(100, 100, 100, 100, 130, 100)).findings] == ["job/0004.000"]
    assert history_of(series(100, 100, 100, 100, 130, 100, 100)).findings == ()


def test_a_clock_that_is_ahead_hides_no_regression() -> None:
    """Findings of runs that ended 30 days before the last end are left out."""
    rows = series(100, 101, 99, 100, 130)
    ahead = run(3650, 100, id="ahead/1", name="ahead", reported_at_ns=START + 5 * DAY)
    assert [one.id for one in history_of([*rows, ahead]).findings] == ["job/0004.000"]
    # In its own family, it takes the place of its report.
    ahead = run(3650, 100, reported_at_ns=START + 3 * DAY + DAY // 4)
    assert [one.id for one in history_of([*rows, ahead]).findings] == ["job/0004.000"]


# -- the same, computed again ----------------------------------------------------------------------------------------------

FACTORS = {3: 3.7, 4: 2.2, 5: 2.0, 6: 1.5, 7: 1.45}


def plainly(rows: list[Row], settings: Settings) -> dict[str, tuple[float | None, int, str | None]]:
    """Base, number of runs and mark of each run, run by run."""
    results: dict[str, tuple[float | None, int, str | None]] = {}
    before: dict[Any, list[int]] = {}
    alike = [row for row in rows if row.state == "reported" and row.status in ("completed", "unknown", None) and row.step_median_ns]
    for row in sorted(alike, key=lambda row: (row.started_ns if row.started_ns is not None else row.reported_at_ns or 0, row.id)):
        assert row.step_median_ns is not None
        earlier = before.setdefault((row.name, row.gpu_name, row.gpus, row.ranks), [])
        kept = earlier[-settings.history :]
        base, mark = (statistics.median(kept) if kept else None), None
        if base is not None and len(kept) >= settings.least:
            deviation = statistics.median(abs(one - base) for one in kept)
            room = settings.deviations * max(1.4826 * FACTORS.get(len(kept), 1 + 2 / len(kept)) * deviation, 0.01 * base)
            share = (settings.threshold_percent or 0) / 100
            if row.step_median_ns > base * (1 + share) and row.step_median_ns > base + room:
                mark = "regression"
            if row.step_median_ns < base * (1 - share) and row.step_median_ns < base - room:
                mark = "improvement"
        results[row.id] = (base, len(kept), mark)
        earlier.append(row.step_median_ns)
    return results


ROWS = st.lists(
    st.builds(
        dict,
        step_median_ns=st.one_of(st.none(), st.integers(900, 1300), st.just(1000)),
        gpu_name=st.sampled_from(["H100", "H100", "H100", None]),
        gpus=st.sampled_from([8, 8, 8, None]),
        name=st.sampled_from(["job", "job", "other"]),
        status=st.sampled_from(["completed", "completed", "unknown", None, "failed"]),
        state=st.sampled_from(["reported", "reported", "reported", "failed"]),
    ),
    max_size=40,
)


@given(ROWS, st.integers(3, 12), st.sampled_from([1.0, 5.0, 10.0]), st.sampled_from([0.0, 1.0, 3.0]), st.randoms(use_true_random=False))
def test_steps_are_judged_as_plain_python_judges_them(
    given_rows: list[dict[str, Any]], most: int, threshold: float, deviations: float, chance: random.Random
) -> None:
    settings = Settings(history=most, metrics=with_limits((), threshold), deviations=deviations)
    rows = [run(day, **more) for day, more in enumerate(given_rows)]
    chance.shuffle(rows)
    past = history_of(rows, settings)
    expected = plainly(rows, settings)
    actual = {row["id"]: row for row in past.steps.iter_rows(named=True)}
    assert {name: (row["step_base_ns"], row["step_runs"], row["step_mark"]) for name, row in actual.items()} == expected


# -- noise -----------------------------------------------------------------------------------------------------------------


def noisy(noise: float, seeds: int, length: int, shift: float = 1.0, kind: str = "normal") -> list[Row]:
    """Return ``seeds`` families with noisy step times, and a shift of the last."""
    rows = []
    for seed in range(seeds):
        chance = random.Random(f"{seed} {noise} {kind}")
        for day in range(length):
            # Some real step times have a tail: one night in ten is several deviations slower.
            tail = 4 * noise * chance.random() if kind == "tailed" and chance.random() < 0.1 else 0.0
            value = 2e8 * (1 + noise * chance.gauss(0, 1) + tail) * (shift if day == length - 1 else 1.0)
            rows.append(run(day, round(value), id=f"{seed}/{day:03}", name=f"job{seed}x"))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "kind"), [(0.005, "normal"), (0.02, "normal"), (0.03, "normal"), (0.05, "normal"), (0.02, "tailed")])
def test_noise_alone_is_hardly_ever_a_regression(noise: float, kind: str) -> None:
    """Expect under 1% of 5,100 evaluated runs, and far less with small noise."""
    steps = history_of(noisy(noise, 300, 20, kind=kind)).steps.filter(pl.col("step_runs") >= 3)
    assert len(steps) == 300 * 17
    alarms = (steps["step_mark"] == "regression").sum() / len(steps)
    assert alarms < (0.01 if kind == "tailed" or noise > 0.03 else 0.002 if noise == 0.03 else 0.001)


@pytest.mark.slow
@pytest.mark.parametrize(("length", "noise", "least"), [(4, 0.005, 0.98), (6, 0.01, 0.98), (9, 0.01, 0.99), (9, 0.02, 0.93)])
def test_fifteen_percent_are_found_in_the_next_night(length: int, noise: float, least: float) -> None:
    findings = history_of(noisy(noise, 300, length, shift=1.15)).findings
    assert len([one for one in findings if one.kind == "regression"]) / 300 >= least


# -- new issues and trends -------------------------------------------------------------------------------------------------


def test_an_issue_is_new_after_three_fine_runs() -> None:
    def verdicts(*values: str | None) -> History:
        return history_of([run(day, verdicts={} if one is None else {"IOBottleneck": one}) for day, one in enumerate(values)])

    (results,) = verdicts(FINE, FINE, FINE, ISSUE).findings
    assert (results.kind, results.rule, results.id, results.runs) == ("new_issue", "IOBottleneck", "job/0003.000", 3)
    assert verdicts(FINE, FINE, ISSUE).findings == ()
    assert verdicts(FINE, ISSUE, FINE, FINE, ISSUE).findings == ()
    # Where a rule did not run or had nothing to look at, the run before counts.
    assert len(verdicts(FINE, "NotEvaluated", FINE, None, FINE, "Error", ISSUE).findings) == 1
    assert verdicts(FINE, FINE, FINE, ISSUE, ISSUE, ISSUE).findings == ()


def test_rules_of_ones_own_are_looked_at_and_the_summary_of_all_is_not() -> None:
    rows = [run(day, verdicts={"My Rule": one, "ProfilerReport": one}) for day, one in enumerate((FINE, FINE, FINE, ISSUE))]
    assert [one.rule for one in history_of(rows).findings] == ["My Rule"]


def test_a_family_tells_its_newest_run_against_those_before() -> None:
    rows = [
        run(
            day,
            step,
            gpu_active_percent=active,
            gpu_utilization_percent=active,
            gpu_busy_percent=10.0 + day,
            verdicts={"IOBottleneck": one, "StepOutlier": other},
        )
        for day, (step, active, one, other) in enumerate(
            ((100, 50.0, FINE, ISSUE), (102, None, FINE, ISSUE), (101, 60.0, FINE, ISSUE), (103, 40.0, ISSUE, FINE))
        )
    ]
    (family,) = history_of([*rows, run(5, 900, gpus=1, status="failed")]).families
    step, active = family.trends["step_median_ns"], family.trends["gpu_active_percent"]
    assert (step.newest, step.base, step.runs) == (103, 101.0, 3)
    assert (active.newest, active.base, active.runs) == (40.0, 55.0, 2)
    assert family.trends["gpu_utilization_percent"] == active
    assert [point.gpu_utilization_percent for point in family.points] == [50.0, None, 60.0, 40.0, None]
    busy = family.trends["gpu_busy_percent"]
    assert (busy.newest, busy.base, busy.runs) == (13.0, 11.0, 3)
    assert [(one.rule, one.before, one.after) for one in family.changes] == [("IOBottleneck", FINE, ISSUE), ("StepOutlier", ISSUE, FINE)]
    assert [(point.step_median_ns, point.comparable, point.issues) for point in family.points][-2:] == [(103, True, 1), (900, False, 0)]


def test_nothing_and_nothing_to_compare() -> None:
    assert history_of([]).findings == ()
    past = history_of([run(1, None, status=None, started_ns=None, reported_at_ns=None, duration_ns=None, gpu_name=None)])
    assert (past.findings, [one.runs for one in past.families]) == ((), [1])


def test_a_family_has_the_changes_of_the_runs_that_are_like_the_newest() -> None:
    rows = [run(day, 100 if day % 20 < 8 else 125, gpu_busy_percent=60.0 if day < 12 else 40.0) for day in range(40)]
    small = [run(day + 0.5, 300 if day < 36 else 500, id=f"job/{day}", gpus=1) for day in range(30, 42)]
    (family,) = history_of([*small, *rows, run(60, 125)]).families
    assert [(change.metric, change.id, change.change_percent, change.last) for change in family.change_points] == [
        ("step", "job/0008.000", 25.0, False),
        ("step", "job/0020.000", -20.0, False),
        ("step", "job/0028.000", 25.0, True),
        ("gpu-busy", "job/0012.000", -20.0, True),
    ]
    (family,) = history_of([*small, *rows]).families
    assert [(change.id, round(change.change_percent)) for change in family.change_points] == [("job/36", 67)]
    off = Settings(metrics=with_limits(["step=off"], 10.0))
    assert [change.metric for change in history_of(rows, off).families[0].change_points] == ["gpu-busy"]


def priced(day: int, cost: float, price: float = 2.0, currency: str = "USD") -> Row:
    return run(day, cost_per_step=cost, price_per_gpu_hour=price, currency=currency)


def test_costs_are_compared_at_one_price_in_one_currency() -> None:
    (finding,) = history_of([priced(day, cost) for day, cost in enumerate((1.0, 1.0, 1.0, 1.25))]).findings
    assert finding.metric == "cost"
    assert finding.text == "cost per step 1.25 USD, 25.0% more than the median of the 3 comparable runs before (1.00 USD)"
    for change in ({"price": 2.5}, {"currency": "EUR"}):
        past = history_of([*(priced(day, 1.0) for day in range(4)), priced(4, 1.25, **change)])  # type: ignore[arg-type]
        assert past.findings == ()
        trend = past.families[0].trends["cost_per_step"]
        assert (trend.newest, trend.base, past.families[0].currency) == (1.25, None, change.get("currency", "USD"))
    # Runs with an older price are left out of the runs before.
    mixed = [priced(day, 9.0, price=1.0) if day % 2 else priced(day, 1.0) for day in range(8)]
    assert [one.change_percent for one in history_of([*mixed, priced(9, 1.25)]).findings] == [25.0]
    assert history_of([run(day, cost_per_step=None) for day in range(12)]).families[0].change_points == ()


# -- a period --------------------------------------------------------------------------------------------------------------


def between(rows: list[Row], since: float, until: float) -> tuple[list[str], list[tuple[str, str]]]:
    frame = table.frame(rows, family=pl.Series(["job"] * len(rows), dtype=pl.String))
    findings, changes = changes_between(frame, Settings(), START + round(since * DAY), START + round(until * DAY))
    return [finding.id for finding in findings], [(change.metric, change.id) for change in changes]


def test_what_became_worse_in_a_period() -> None:
    rows = [run(day, 100 if day < 10 else 130) for day in range(20)]
    assert between(rows, 9, 16) == (["job/0010.000", "job/0011.000", "job/0012.000", "job/0013.000"], [("step", "job/0010.000")])
    # Later runs do not count, and three runs are too few for a level.
    assert between(rows, 7, 13) == (["job/0010.000", "job/0011.000", "job/0012.000"], [])
    assert between(rows, 14, 20) == ([], [])
    faster = [run(day, 100 if day < 10 else 70) for day in range(20)]
    assert between(faster, 9, 16) == ([], [])
    # 9% is less than the limit; and a level that came back does not count.
    assert between([run(day, 100 if day < 10 else 109) for day in range(20)], 9, 16) == ([], [])
    back = [run(day, 130 if 8 <= day < 14 else 100) for day in range(20)]
    assert between(back, 7, 20)[1] == []
