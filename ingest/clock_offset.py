"""By how much do the times of two sources of one machine differ, and how sure is that?

Three kinds of evidence, none of which needs a common clock: sampled utilisation against device activity, the same events in two tracers,
and, for logs of local time only, that no other whole number of hours makes the log overlap the run. What is not clear is not applied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

SECOND: Final = 10**9
QUARTER_NS: Final = 900 * SECOND
HOUR_NS: Final = 3600 * SECOND
FURTHEST_ZONE_NS: Final = 14 * HOUR_NS
"""No time zone is further from UTC."""
ZONE_SHIFTS: Final = range(-FURTHEST_ZONE_NS, 12 * HOUR_NS + 1, QUARTER_NS)
"""What brings local times to UTC: time zones are those from UTC-12:00 to UTC+14:00, at whole quarter hours."""
ZONES: Final = "UTC-12:00 to UTC+14:00 in quarter hours"
WRONG_CLOCK_NS: Final = 60 * SECOND
"""Clocks that nobody sets are off by this, and rarely by more."""
DRIVER_WINDOW_NS: Final = SECOND
"""A driver's utilisation is of the time since it looked last, at most this."""
LEAST_SAMPLES: Final = 12
LEAST_CORRELATION: Final = 0.6
LEAST_MARGIN: Final = 0.1
LEAST_COVERED: Final = 0.8
LEAST_EVENTS: Final = 5
DOUBTFUL_SAMPLES: Final = 100
DOUBTFUL_CORRELATION: Final = 0.35
"""Where this many samples fit the activity nowhere better than this, they may be of another machine."""
LEAST_SPREAD: Final = 0.1
"""Of the busy share; with less of it (standard deviation) that says nothing."""
_MOST_BINS: Final = 1 << 20

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Offset:
    """``shift_ns`` is to be added to the times of the source. ``evidence``: half a sentence."""

    shift_ns: int
    uncertainty_ns: int
    evidence: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """Why nothing can be told; half a sentence. ``correlation``: the highest of all shifts, over ``samples``, where none fits.
    ``period_ns``: where several fit, how far apart, known to ``period_error_ns`` in a quarter of an hour."""

    reason: str
    correlation: float = 1.0
    samples: int = 0
    period_ns: int | None = None
    period_error_ns: int = 0


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one GPU: ``value`` in percent, of the ``window_ns`` before each time."""

    time_ns: Ints
    value: Floats
    window_ns: int


@dataclass(frozen=True, slots=True)
class Activity:
    """When a GPU was busy: disjoint intervals in order with their share (1: all the time), inside of windows in which that is known."""

    start_ns: Ints
    end_ns: Ints
    share: Floats
    known: tuple[tuple[int, int], ...]


def series_of(time_ns: Sequence[int] | Ints, value: Sequence[float] | Floats) -> Series:
    """Samples in order of time, with the window that they are taken to be of: their usual distance, but a second at most."""
    times, values = np.asarray(time_ns, np.int64), np.asarray(value, np.float64)
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    gaps = np.diff(times)
    gaps = gaps[gaps > 0]
    usual = int(np.median(gaps)) if len(gaps) else SECOND
    return Series(times, values, max(min(usual, DRIVER_WINDOW_NS), 10**6))


def activity_of_samples(series: Series, interval_ns: int) -> Activity:
    """Another sampler's values as activity: each of the time since the one before, where that is not too long ago."""
    gap = np.diff(series.time_ns, prepend=series.time_ns[:1] - interval_ns)
    start = series.time_ns - np.minimum(np.maximum(gap, 0), 3 * interval_ns)
    keep = start < series.time_ns
    start, end, share = start[keep], series.time_ns[keep], series.value[keep] / 100
    breaks = np.flatnonzero(start[1:] > end[:-1]) + 1
    known = tuple((int(s[0]), int(e[-1])) for s, e in zip(np.split(start, breaks), np.split(end, breaks), strict=True) if len(s))
    return Activity(start, end, share, known)


def busy_offset(
    samples: Sequence[Series], activity: Sequence[Activity], *, furthest_ns: int | None = None, zones: bool = False
) -> Offset | Unclear:
    """What is to be added to the times of ``samples`` so that they fit ``activity``, GPU by GPU in the same order; all together.

    The correlation of the values with the busy share of the window before each is taken at every shift, a quarter of a window apart, that
    leaves ``LEAST_COVERED`` of the shorter one inside of the other. The best has to be clear: no shift apart from it comes near.
    ``zones``: only the shifts of time zones are looked at, within a window of each.
    """
    pairs = [(one, other) for one, other in zip(samples, activity, strict=True) if len(one.time_ns) and other.known]
    if not pairs:
        return Unclear("there are no samples of a GPU whose activity is known")
    window = int(np.median([one.window_ns for one, _ in pairs]))
    first = min(int(one.time_ns[0]) for one, _ in pairs)
    last = max(int(one.time_ns[-1]) for one, _ in pairs)
    begin = min(other.known[0][0] for _, other in pairs)
    end = max(other.known[-1][1] for _, other in pairs)
    step = max(window // 4, 1, (last - first) // _MOST_BINS, (end - begin) // _MOST_BINS)
    bins, places = (last - first) // step + 1, (end - begin) // step + 1
    size = 1 << int(bins + places).bit_length()
    n = sx = sy = sxx = syy = sxy = np.zeros(size)
    reachable = 0.0
    for one, other in pairs:
        where = ((one.time_ns - first) // step).astype(np.int64)
        count = np.bincount(where, minlength=bins).astype(np.float64)
        total = np.bincount(where, one.value / 100, minlength=bins)
        square = np.bincount(where, (one.value / 100) ** 2, minlength=bins)
        # Value at a time: busy share of the window before it, where all of that is known.
        ends = begin + (np.arange(places, dtype=np.int64) + 1) * step
        starts, width = ends - window, float(window)
        known = (_measure(other.known, ends) - _measure(other.known, starts)) / width > 0.99
        busy = np.where(known, (_covered(other, ends) - _covered(other, starts)) / width, 0.0)
        mask = known.astype(np.float64)
        reachable += min(float(count.sum()), float(mask.sum()) * step / max(_usual(one), step))
        spectra = [np.fft.rfft(array, size) for array in (count, total, square)]
        others = [np.conj(np.fft.rfft(array, size)) for array in (mask, busy, busy**2)]
        product = [[np.fft.irfft(mine * theirs, size) for theirs in others] for mine in spectra]
        n, sx, sy = n + product[0][0], sx + product[1][0], sy + product[0][1]
        sxx, syy, sxy = sxx + product[2][0], syy + product[0][2], sxy + product[1][1]
    n = np.round(n)
    # Lag k: bin i + k of the samples stands at place i of the activity.
    lags = np.arange(size)
    lags = np.where(lags >= bins, lags - size, lags)
    shift = begin - first - lags * step + step // 2
    usable = (n >= max(LEAST_SAMPLES, LEAST_COVERED * reachable)) & (lags > -places)
    if furthest_ns is not None:
        usable &= np.abs(shift) <= furthest_ns
    if zones:
        zone = np.clip(np.round(shift / QUARTER_NS) * QUARTER_NS, ZONE_SHIFTS[0], ZONE_SHIFTS[-1])
        usable &= np.abs(shift - zone) <= max(window, step)
    if not usable.any():
        return Unclear(f"fewer than {LEAST_SAMPLES} samples are of the time in which the GPU's activity is known")
    # A quiet or always busy GPU says nothing; rounding of the transform is far below.
    vx, vy = n * sxx - sx**2, n * syy - sy**2
    tells = usable & (vx > 1e-6 * n**2) & (vy > 1e-6 * n**2)
    if not tells.any():
        return Unclear("the utilisation does not change enough to tell")
    r = np.full(size, -1.0)
    r[tells] = np.clip((n * sxy - sx * sy)[tells] / np.sqrt(vx[tells] * vy[tells]), -1.0, 1.0)
    order = np.argsort(shift, kind="stable")
    found = _peak(shift[order], r[order], usable[order], n[order], max(window, step), step, edges=not zones)
    most = int(np.argmax(r))
    if isinstance(found, Unclear) and min(vx[most], vy[most]) < (LEAST_SPREAD * n[most]) ** 2:
        return replace(found, samples=0)  # what is always about as busy fits nothing well, of one machine or not
    if zones and isinstance(found, Offset):
        return replace(found, evidence=f"{found.evidence}; only time zones were compared, {ZONES}")
    return found


def _usual(one: Series) -> float:
    gaps = np.diff(one.time_ns)
    gaps = gaps[gaps > 0]
    return float(np.median(gaps)) if len(gaps) else float(SECOND)


def _peak(shift: Ints, r: Floats, usable: npt.NDArray[np.bool_], n: Floats, window: int, step: int, *, edges: bool) -> Offset | Unclear:
    best = int(np.argmax(r))
    top = float(r[best])
    if top < LEAST_CORRELATION:
        reason = f"utilisation and activity do not fit at any shift (highest correlation {max(top, 0.0):.2f})"
        return Unclear(reason, max(top, 0.0), int(n[best]))
    noise = (1 - top * top) / float(np.sqrt(n[best]))
    margin = max(LEAST_MARGIN, 3 * noise)
    near = r >= top - margin
    low = high = best
    while low > 0 and near[low - 1]:
        low -= 1
    while high < len(r) - 1 and near[high + 1]:
        high += 1
    beside = r.copy()
    beside[low : high + 1] = -1.0
    peaks = beside[1:-1][(beside[1:-1] >= beside[:-2]) & (beside[1:-1] >= beside[2:])]
    second = float(beside.max()) if len(beside) else -1.0
    if second >= top - margin:
        apart = abs(int(shift[int(np.argmax(beside))]) - int(shift[best]))
        alike = np.flatnonzero((beside[1:-1] >= top - margin) & (beside[1:-1] >= beside[:-2]) & (beside[1:-1] >= beside[2:])) + 1
        period, error = _period(np.abs(shift[alike] - shift[best]), step)
        reason = f"several shifts fit alike (correlations {top:.2f} and {second:.2f}, {apart / SECOND:.4g} s apart)"
        return Unclear(reason, period_ns=period, period_error_ns=error)
    cut_low = low > 0 and not usable[low - 1] and r[low] > top - margin / 2
    cut_high = high < len(r) - 1 and not usable[high + 1] and r[high] > top - margin / 2
    if edges and (cut_low or cut_high):
        return Unclear("the best shift is at the edge of what the samples cover")
    if int(shift[high]) - int(shift[low]) > 120 * window:
        return Unclear("the utilisation changes too slowly to tell")
    close = r >= top - max(2 * noise, 0.02)
    left = right = best
    while left > low and close[left - 1]:
        left -= 1
    while right < high and close[right + 1]:
        right += 1
    middle = (int(shift[left]) + int(shift[right])) // 2
    uncertainty = max(window, (int(shift[right]) - int(shift[left])) // 2 + step)
    other = max(float(peaks.max(initial=0.0)), 0.0)
    return Offset(middle, uncertainty, f"correlation {top:.2f} over {int(n[best])} samples, next best {other:.2f}")


def _period(distances: Ints, step: int) -> tuple[int | None, int]:
    """The distance of shifts that fit alike, from ever farther ones; and by how much it can be wrong in a quarter of an hour."""
    found = sorted(int(one) for one in distances if one > 0)
    if not found:
        return None, 0
    period, times = float(found[0]), 1
    for distance in found:
        count = round(distance / period)
        # A count is sure where the error so far, times the count, is far below a period.
        if count > times and count * step / times < period / 4 and abs(distance - count * period) <= count * step / times + step:
            period, times = distance / count, count
    return round(period), round(QUARTER_NS / period * step / times)


def commensurate(unclear: Unclear) -> bool:
    """Whether a load that repeats looks the same a quarter of an hour later, or that cannot be told: then time zones cannot be told apart
    from shifts by a period."""
    if unclear.period_ns is None:
        return False
    rest = QUARTER_NS % unclear.period_ns
    apart = min(rest, unclear.period_ns - rest)
    return apart <= max(2 * unclear.period_error_ns, DRIVER_WINDOW_NS)


def _measure(known: Sequence[tuple[int, int]], at: Ints) -> Floats:
    """How much of the windows lies before each time."""
    starts, ends = np.array([s for s, _ in known], np.int64), np.array([e for _, e in known], np.int64)
    return _before(starts, ends, np.ones(len(starts)), at)


def _covered(activity: Activity, at: Ints) -> Floats:
    return _before(activity.start_ns, activity.end_ns, activity.share, at)


def _before(start: Ints, end: Ints, share: Floats, at: Ints) -> Floats:
    whole = np.concatenate([[0.0], np.cumsum((end - start) * share)])
    place = np.searchsorted(start, at, side="right")
    inside = np.zeros(len(at))
    some = place > 0
    last = place[some] - 1
    inside[some] = np.clip(at[some] - start[last], 0, (end - start)[last]) * share[last]
    done: Floats = whole[np.maximum(place - 1, 0)] + inside
    return done


def event_offset(mine: dict[Any, int], theirs: dict[Any, int], *, closest_ns: int, what: str) -> Offset | Unclear:
    """What is to be added to the times of ``mine`` so that its events stand where those of the same key stand in ``theirs``.

    Nine tenths of the differences have to lie within ``closest_ns`` of their median.
    """
    keys = mine.keys() & theirs.keys()
    if len(keys) < LEAST_EVENTS:
        return Unclear(f"the sources have only {len(keys)} {what} in common" if keys else f"the sources have no {what} in common")
    differences = np.array(sorted(theirs[key] - mine[key] for key in keys), np.int64)
    middle = int(differences[len(differences) // 2])
    spread = int(np.sort(np.abs(differences - middle))[int(0.9 * (len(differences) - 1))])
    if spread > closest_ns:
        return Unclear(f"the differences of {len(keys)} common {what} vary by {spread / 1e6:.3g} ms")
    return Offset(middle, max(spread, 1), f"median of {len(keys)} common {what}")


def step_offset(mine: dict[int, tuple[int, int]], theirs: dict[int, tuple[int, int]]) -> Offset | Unclear:
    """As :func:`event_offset`, for steps (number -> start and duration) of one process.

    The numbers may count from different steps: the durations of equal numbers have to agree better than those of neighbours do.
    """
    keys = sorted(mine.keys() & theirs.keys())
    if len(keys) < LEAST_EVENTS:
        return Unclear(f"the sources have only {len(keys)} steps of equal number")
    usual = float(np.median([mine[key][1] for key in keys]))

    def mismatch(by: int) -> float:
        both = [key for key in mine if key + by in theirs]
        return float(np.mean([abs(mine[key][1] - theirs[key + by][1]) for key in both])) if len(both) >= LEAST_EVENTS - 2 else np.inf

    here, beside = mismatch(0), min(mismatch(by) for by in (-3, -2, -1, 1, 2, 3))
    if not here < 0.5 * beside:
        return Unclear("the durations of steps of equal number do not tell whether they are the same steps")
    starts = ({key: mine[key][0] for key in keys}, {key: theirs[key][0] for key in keys})
    return event_offset(*starts, closest_ns=int(0.2 * usual), what="steps of equal number")


def zone_offset(log: tuple[int, int], run: tuple[int, int]) -> Offset | Unclear:
    """The only whole number of hours, else of quarter hours, that lays a log of local times over a run that it does not touch.

    Over it: one of the two lies inside the other, but for a minute at each end.
    """
    if _touch(log, run):
        return Unclear("the log overlaps the run as it stands")
    for unit in (HOUR_NS, QUARTER_NS):
        fitting = [shift for shift in ZONE_SHIFTS if not shift % unit and _over((log[0] + shift, log[1] + shift), run)]
        if len(fitting) == 1:
            said = "whole hours" if unit == HOUR_NS else "quarter hours"
            return Offset(fitting[0], 0, f"an assumption: it is the only number of {said} that lays the log over the run")
        if fitting:
            return Unclear(f"{len(fitting)} different time zones would lay the log over the run")
    return Unclear("no time zone lays the log over the run")


def _touch(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _over(one: tuple[int, int], other: tuple[int, int]) -> bool:
    inner, outer = sorted((one, other), key=lambda span: span[1] - span[0])
    return outer[0] - 60 * SECOND <= inner[0] and inner[1] <= outer[1] + 60 * SECOND


def zone_of(offset: Offset) -> Offset | None:
    """``offset`` as that of a time zone, where one is within the uncertainty or a second of it; as it is, where the clock may have been up
    to ``WRONG_CLOCK_NS`` off besides; None where it is further from every time zone."""
    whole = round(offset.shift_ns / QUARTER_NS) * QUARTER_NS
    off = abs(whole - offset.shift_ns)
    if whole not in ZONE_SHIFTS or off > max(offset.uncertainty_ns, WRONG_CLOCK_NS):
        return None
    return replace(offset, shift_ns=whole) if off <= max(offset.uncertainty_ns, SECOND) else offset


def told(shift_ns: int) -> str:
    """A shift as people say it: +7 h 0 min, -1.25 s."""
    sign, size = "-" if shift_ns < 0 else "+", abs(shift_ns)
    if size >= 60 * SECOND:
        minutes, rest = divmod(round(size / SECOND), 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        parts = [f"{days:,} d"] if days else []
        parts += [f"{hours} h"] if hours or days else []
        return sign + " ".join([*parts, f"{minutes} min", *([f"{rest} s"] if rest else [])])
    if size >= SECOND:
        return f"{sign}{size / SECOND:.4g} s"
    return f"{sign}{size / 1e6:.4g} ms" if size >= 10**6 else f"{sign}{size / 1e3:.4g} us"
