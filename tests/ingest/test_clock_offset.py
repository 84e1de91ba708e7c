"""Are planted clock offsets found within what is said of their uncertainty, and is nothing shifted where they cannot be told?"""

from __future__ import annotations

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from postrun.ingest.clock_offset import (
    DOUBTFUL_CORRELATION,
    DOUBTFUL_SAMPLES,
    HOUR_NS,
    QUARTER_NS,
    SECOND,
    Activity,
    Offset,
    Series,
    Unclear,
    activity_of_samples,
    busy_offset,
    commensurate,
    event_offset,
    series_of,
    step_offset,
    told,
    zone_of,
    zone_offset,
)

BASE = 1_700_000_000 * SECOND


def activity(bursts: list[tuple[float, float]]) -> Activity:
    """Busy from each time to each, in seconds after BASE; known in between."""
    start = np.array([BASE + round(a * SECOND) for a, _ in bursts])
    end = np.array([BASE + round(b * SECOND) for _, b in bursts])
    return Activity(start, end, np.ones(len(start)), ((int(start[0]), int(end[-1])),))


def irregular(seed: int, seconds: float) -> list[tuple[float, float]]:
    random = np.random.default_rng(seed)
    bursts, time = [], 0.0
    while time < seconds:
        busy, idle = random.uniform(0.5, 6), random.uniform(0.3, 5)
        bursts.append((time, time + busy))
        time += busy + idle
    return bursts


def sampled(
    bursts: list[tuple[float, float]], shift_ns: int, interval: float = 1.0, noise: float = 0.0, seed: int = 1, rest: float = 60
) -> Series:
    """What a driver would say of these, in whole percent, by a clock that is ``shift_ns`` behind; worked out burst by burst."""
    random = np.random.default_rng(seed)
    window = min(interval, 1.0)
    times = np.arange(-rest, bursts[-1][1] + rest, interval)
    values = []
    for time in times:
        busy = sum(max(0.0, min(b, time) - max(a, time - window)) for a, b in bursts if a < time and b > time - window)
        values.append(min(100.0, max(0.0, round(100 * busy / window + random.normal(0, noise)))))
    return series_of(BASE + np.round(times * SECOND).astype(np.int64) - shift_ns, np.array(values))


@settings(max_examples=examples(25))
@given(
    st.integers(0, 1000), st.integers(-12 * HOUR_NS, 12 * HOUR_NS), st.sampled_from([0.2, 0.5, 1.0, 2.0]), st.floats(0, 8),
    st.integers(100, 250),
)  # fmt: skip
def test_a_planted_offset_is_found_within_the_uncertainty(seed: int, shift: int, interval: float, noise: float, seconds: int) -> None:
    bursts = irregular(seed, seconds)
    found = busy_offset([sampled(bursts, shift, interval, noise)], [activity(bursts)])
    assert isinstance(found, Offset), found
    assert abs(found.shift_ns - shift) <= found.uncertainty_ns
    assert found.uncertainty_ns <= 4 * SECOND
    assert found.uncertainty_ns >= min(interval, 1.0) * SECOND * 0.99
    assert "correlation" in found.evidence


def test_several_gpus_are_taken_together() -> None:
    first, second = irregular(1, 80), irregular(2, 80)
    # Each alone has samples of 40 seconds only.
    found = busy_offset([sampled(first, 5 * SECOND), sampled(second, 5 * SECOND)], [activity(first), activity(second)])
    assert isinstance(found, Offset)
    assert abs(found.shift_ns - 5 * SECOND) <= found.uncertainty_ns
    crossed = busy_offset([sampled(first, 5 * SECOND), sampled(second, 900 * SECOND)], [activity(first), activity(second)])
    assert isinstance(crossed, Unclear)


@pytest.mark.parametrize("period", [4.0, 20.0])
def test_periodic_utilisation_is_ambiguous(period: float) -> None:
    long = [(k * period, k * period + period / 2) for k in range(int(600 / period))]
    part = long[len(long) // 3 : len(long) // 2]  # a profile in the middle of a training that goes on and on
    found = busy_offset([sampled(long, 0)], [activity(part)])
    assert isinstance(found, Unclear)
    assert "several shifts fit alike" in found.reason


def test_whole_time_zones_can_tell_what_seconds_cannot() -> None:
    long = [(k * 7.0, k * 7.0 + 3) for k in range(130)]
    part = long[40:80]
    log = sampled(long, 5 * HOUR_NS + 2 * QUARTER_NS)
    assert isinstance(busy_offset([log], [activity(part)]), Unclear)
    found = busy_offset([log], [activity(part)], zones=True)
    assert isinstance(found, Offset)
    assert zone_of(found) == Offset(5 * HOUR_NS + 2 * QUARTER_NS, found.uncertainty_ns, found.evidence)


@pytest.mark.parametrize(("period", "expected"), [(60.0, True), (20.0, True), (7.0, False), (62.3, False)])
def test_a_load_that_repeats_in_whole_parts_of_a_quarter_hour_does_not_tell_time_zones(period: float, expected: bool) -> None:
    long = [(k * period, k * period + 0.4 * period) for k in range(int(1500 / period))]
    part = [burst for burst in long if 500 < burst[0] < 1000]
    found = busy_offset([sampled(long, 2 * HOUR_NS + 60 * SECOND)], [activity(part)])
    assert isinstance(found, Unclear)
    assert found.period_ns == pytest.approx(period * SECOND, rel=0.01)
    assert commensurate(found) is expected


def test_time_zones_alone_are_told_to_be_all_that_was_compared() -> None:
    bursts = irregular(3, 200)
    found = busy_offset([sampled(bursts, HOUR_NS)], [activity(bursts)], zones=True)
    assert isinstance(found, Offset)
    assert "only time zones were compared, UTC-12:00 to UTC+14:00 in quarter hours" in found.evidence
    for hours, found_there in ((12, True), (13, False), (-14, True), (-15, False)):
        assert isinstance(busy_offset([sampled(bursts, hours * HOUR_NS)], [activity(bursts)], zones=True), Offset) is found_there


def test_a_gpu_that_is_always_about_as_busy_raises_no_doubt() -> None:
    random = np.random.default_rng(1)
    times = BASE + np.arange(600) * SECOND
    steady = activity([(0.5 * k, 0.5 * k + random.uniform(0.45, 0.499)) for k in range(1200)])
    found = busy_offset([series_of(times, random.integers(96, 100, 600))], [steady])
    assert isinstance(found, Unclear)
    assert "do not fit" in found.reason
    assert found.samples < DOUBTFUL_SAMPLES


def test_samples_that_fit_nowhere_say_how_many_they_are() -> None:
    found = busy_offset([sampled(irregular(7, 900), 0)], [activity(irregular(99, 800))])
    assert isinstance(found, Unclear)
    assert found.correlation < DOUBTFUL_CORRELATION
    assert found.samples >= DOUBTFUL_SAMPLES
    assert f"highest correlation {found.correlation:.2f}" in found.reason


@pytest.mark.parametrize(
    ("bursts", "samples", "reason"),
    [
        ([(0.0, 300.0)], [(0.0, 300.0)], "does not change enough"),
        ([(0.0, 2.0), (4.0, 5.0)], [(0.0, 2.0), (4.0, 5.0)], "fewer than 12 samples"),
        (irregular(1, 200), irregular(99, 200), "do not fit|several shifts"),
    ],
)
def test_what_cannot_tell_is_not_applied(bursts: list[tuple[float, float]], samples: list[tuple[float, float]], reason: str) -> None:
    found = busy_offset([sampled(samples, 0, rest=0 if "change" in reason else 60)], [activity(bursts)])
    assert isinstance(found, Unclear)
    assert any(part in found.reason for part in reason.split("|")), found.reason


@settings(max_examples=examples(20))
@given(st.integers(0, 10_000), st.integers(60, 300), st.integers(100, 2000))
def test_noise_alone_never_gives_an_offset(seed: int, seconds: int, longer: int) -> None:
    random = np.random.default_rng(seed)
    log = series_of(BASE + np.arange(seconds + longer) * SECOND, random.uniform(0, 100, seconds + longer))
    found = busy_offset([log], [activity(irregular(seed + 1, seconds))])
    assert isinstance(found, Unclear)


def test_another_sampler_is_activity_too() -> None:
    bursts = irregular(5, 200)
    theirs = sampled(bursts, 0, 0.5)
    found = busy_offset([sampled(bursts, -HOUR_NS)], [activity_of_samples(theirs, SECOND // 2)])
    assert isinstance(found, Offset)
    assert zone_of(found) == Offset(-HOUR_NS, found.uncertainty_ns, found.evidence)


@given(st.integers(-(10**15), 10**15), st.lists(st.integers(-400_000, 400_000), min_size=5, max_size=30))
def test_common_events_give_the_median_of_their_differences(shift: int, noise: list[int]) -> None:
    mine = {key: key * 10**9 for key in range(len(noise))}
    theirs = {key: start + shift + noise[key] for key, start in mine.items()}
    found = event_offset(mine, {**theirs, "other": 5}, closest_ns=10**6, what="kernels")
    assert isinstance(found, Offset)
    assert found.shift_ns == sorted(noise)[len(noise) // 2] + shift
    inside = sum(abs(one + shift - found.shift_ns) <= found.uncertainty_ns for one in noise)
    assert inside >= 0.8 * len(noise)


def test_events_that_disagree_or_are_few_tell_nothing() -> None:
    mine = {key: key * 10**9 for key in range(20)}
    assert isinstance(event_offset(mine, {key: 2 * start for key, start in mine.items()}, closest_ns=10**6, what="kernels"), Unclear)
    assert isinstance(event_offset(mine, {"a": 1}, closest_ns=10**6, what="kernels"), Unclear)


def test_steps_of_equal_number_need_durations_that_tell_them_from_their_neighbours() -> None:
    random = np.random.default_rng(3)
    durations = [int(1e9 * random.uniform(0.8, 1.2)) for _ in range(20)]
    starts = np.concatenate([[0], np.cumsum(durations)])
    mine = {k: (int(starts[k]), durations[k]) for k in range(20)}
    theirs = {k: (start + 7 * SECOND, duration + 1000) for k, (start, duration) in mine.items()}
    found = step_offset(mine, theirs)
    assert isinstance(found, Offset)
    assert found.shift_ns == 7 * SECOND
    assert isinstance(step_offset(mine, {k + 1: value for k, value in theirs.items()}), Unclear)
    regular = {k: (k * SECOND, SECOND) for k in range(20)}
    assert isinstance(step_offset(regular, {k: (start + 5, duration) for k, (start, duration) in regular.items()}), Unclear)


HOUR = HOUR_NS


@pytest.mark.parametrize(
    ("log", "run", "expected"),
    [
        ((0, 600 * SECOND), (7 * HOUR + 60 * SECOND, 7 * HOUR + 500 * SECOND), 7 * HOUR),
        ((5 * HOUR, 5 * HOUR + 600 * SECOND), (0, 300 * SECOND), -5 * HOUR),
        ((0, 600 * SECOND), (5 * HOUR + 2 * QUARTER_NS, 5 * HOUR + 2 * QUARTER_NS + 300 * SECOND), 5 * HOUR + 2 * QUARTER_NS),
        ((0, 600 * SECOND), (300 * SECOND, 900 * SECOND), None),  # overlaps
        ((0, 600 * SECOND), (5 * HOUR + 700 * SECOND, 5 * HOUR + 800 * SECOND), None),  # no quarter hour does
        ((0, 3 * HOUR), (8 * HOUR, 8 * HOUR + 60 * SECOND), None),  # three zones would do
        ((0, 600 * SECOND), (30 * HOUR, 31 * HOUR), None),  # too far
        ((0, 600 * SECOND), (12 * HOUR, 12 * HOUR + 500 * SECOND), 12 * HOUR),  # local time of UTC-12:00
        ((0, 600 * SECOND), (13 * HOUR, 13 * HOUR + 500 * SECOND), None),  # of UTC-13:00, which is no time zone
        ((14 * HOUR, 14 * HOUR + 600 * SECOND), (0, 500 * SECOND), -14 * HOUR),  # of UTC+14:00
        ((15 * HOUR, 15 * HOUR + 600 * SECOND), (0, 500 * SECOND), None),
    ],
)
def test_the_only_time_zone_that_fits(log: tuple[int, int], run: tuple[int, int], expected: int | None) -> None:
    found = zone_offset((BASE + log[0], BASE + log[1]), (BASE + run[0], BASE + run[1]))
    assert (found.shift_ns if isinstance(found, Offset) else None) == expected


@pytest.mark.parametrize(
    ("shift", "uncertainty", "expected"),
    [
        (-7 * HOUR + 400_000_000, SECOND, -7 * HOUR),
        (-7 * HOUR + 900_000_000, SECOND // 5, -7 * HOUR),  # within a second, as where a log agrees
        (-5 * HOUR - 3 * QUARTER_NS + 2 * SECOND, 3 * SECOND, -5 * HOUR - 3 * QUARTER_NS),
        (300_000_000, SECOND, 0),
        (-7 * HOUR + 200 * SECOND, SECOND, None),
        (-7 * HOUR + 61 * SECOND, SECOND, None), (-7 * HOUR + 40 * SECOND, SECOND, -7 * HOUR + 40 * SECOND),  # a clock that was off
        (30 * SECOND, SECOND, 30 * SECOND),
        (12 * HOUR, SECOND, 12 * HOUR), (12 * HOUR + QUARTER_NS, SECOND, None), (13 * HOUR, SECOND, None),
        (-14 * HOUR, SECOND, -14 * HOUR), (-14 * HOUR - QUARTER_NS, SECOND, None),
    ],
)  # fmt: skip
def test_only_time_zones_and_clocks_a_little_off_are_concluded(shift: int, uncertainty: int, expected: int | None) -> None:
    found = zone_of(Offset(shift, uncertainty, "planted"))
    assert (found and found.shift_ns) == expected


@pytest.mark.parametrize(
    ("shift", "text"),
    [
        (7 * HOUR, "+7 h 0 min"), (-5 * HOUR - 2 * QUARTER_NS, "-5 h 30 min"), (90 * SECOND, "+1 min 30 s"), (-1_250_000_000, "-1.25 s"),
        (200_000_000, "+200 ms"), (1500, "+1.5 us"), (20_000 * 24 * HOUR, "+20,000 d 0 h 0 min"),
    ],
)  # fmt: skip
def test_how_a_shift_is_told(shift: int, text: str) -> None:
    assert told(shift) == text
