"""Derives the training steps of a run, with the start and end of the device work of each -> ``step``.

Steps come from annotations on the host: ``ProfilerStep#N``, ``step_N`` (also "step N", "step-N", "stepN", in any case), ``step`` with
a value, ranges that TensorFlow's profiler marks as steps (their phase is ``step``), and the phase events ``Step:ModeKeys.<PHASE>`` of the
hosted profiler. A process with ProfilerStep#N has no step_N: both mean the same. But if another tool marked all steps and the profiler was
on for only some of them (each ProfilerStep#N is mostly one step_N, and there are more of those), step_N are the steps.
"""

from __future__ import annotations

from typing import Final

from ..store.format_names import CAPTURE
from ..store.store import Store
from ..store.time_limits import EARLIEST_NS, LATEST_NS

# Families: 0 phase events, 1 ProfilerStep#N, 2 step_N. `value` is the step's number if the source has one.
_CANDIDATES: Final = r"""
CREATE TEMP TABLE step_candidate AS
WITH named AS (
    SELECT a.node, a.process, a.value, a.start_ns, a.duration_ns, n.text,
        CASE
            WHEN regexp_matches(n.text, '^Step:ModeKeys\.') OR regexp_matches(coalesce(a.phase, ''), '^Step:ModeKeys\.') THEN 0
            WHEN regexp_full_match(n.text, 'ProfilerStep#\d+') THEN 1
            WHEN regexp_full_match(n.text, '(?i)step[_ -]?\d+') OR (lower(n.text) = 'step' AND a.value IS NOT NULL) THEN 2
            WHEN a.phase = 'step' THEN 2
        END AS family,
        nullif(coalesce(nullif(regexp_extract(n.text, '^Step:ModeKeys\.(\w+)', 1), ''),
            regexp_extract(a.phase, '^Step:ModeKeys\.(\w+)', 1)), '') AS phase
    FROM annotation a
    JOIN name n ON n.id = a.name
    WHERE a.side = 'host' AND coalesce(a.complete, true)
),
-- How much of each ProfilerStep#N the longest part of one step_N in it has, and whether there are such steps before or after them.
shared AS (
    SELECT p.process, p.start_ns, any_value(p.duration_ns) AS duration_ns,
        max(least(p.start_ns + p.duration_ns, s.start_ns + s.duration_ns) - greatest(p.start_ns, s.start_ns)) AS longest_ns
    FROM named AS p JOIN named AS s ON s.process = p.process AND s.family = 2
        AND s.start_ns < p.start_ns + p.duration_ns AND p.start_ns < s.start_ns + s.duration_ns
    WHERE p.family = 1 GROUP BY p.process, p.start_ns
),
one_of_theirs AS (
    SELECT n.process FROM named AS n LEFT JOIN shared USING (process, start_ns) WHERE n.family = 1
    GROUP BY n.process HAVING avg(CAST(coalesce(2 * longest_ns > shared.duration_ns, false) AS INT)) >= 0.9
),
wider AS (
    SELECT process FROM named WHERE family > 0 GROUP BY process
    HAVING count(*) FILTER (family = 2) > count(*) FILTER (family = 1)
        AND (min(start_ns + duration_ns) FILTER (family = 2) <= min(start_ns) FILTER (family = 1)
            OR max(start_ns) FILTER (family = 2) >= max(start_ns + duration_ns) FILTER (family = 1))
),
families AS (
    SELECT process, CASE WHEN process IN (FROM one_of_theirs) AND process IN (FROM wider) THEN 2 ELSE min(family) END AS best
    FROM named WHERE family > 0 GROUP BY process
),
-- The same step annotated on a second thread, or a second time inside of itself, is one step.
once AS (
    SELECT * FROM named QUALIFY family = 0 OR value IS NULL OR start_ns >= coalesce(max(start_ns + duration_ns) OVER (
        PARTITION BY process, family, value ORDER BY start_ns, duration_ns DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), start_ns)
)
SELECT row_number() OVER (ORDER BY named.process, family, start_ns, duration_ns) AS id, node, named.process AS process, family,
    phase, start_ns, duration_ns, start_ns + duration_ns AS end_ns,
    coalesce(value, row_number() OVER (PARTITION BY named.process, family, phase ORDER BY start_ns) - 1) AS index
FROM once AS named
LEFT JOIN families ON families.process IS NOT DISTINCT FROM named.process
WHERE family = 0 OR family = best
"""

# Steps during which a recording's window of device activity opened or closed: a part of their device work was not recorded.
_CUT: Final = f"""
CREATE TEMP TABLE step_cut AS
SELECT DISTINCT s.id FROM step_candidate s JOIN profile_window w ON w.process = s.process JOIN source f ON f.id = w.source
WHERE f.format = '{CAPTURE}'
    AND ((s.start_ns < w.first_ns AND w.first_ns < s.end_ns) OR (s.start_ns < w.last_ns AND w.last_ns < s.end_ns))
"""

# A launch belongs to the step that began last before it, if that step has not ended; device work belongs to its launch. One host
# event per correlation, so that work is counted once, and a graph's many kernels go with their one launch.
_WORK: Final = """
WITH device AS (
    SELECT process, correlation, start_ns, duration_ns FROM device_event
    WHERE kind <> 'sync' AND correlation IS NOT NULL AND $block
),
launch AS (
    SELECT h.process, h.correlation, min(h.start_ns) AS start_ns
    FROM host_event h
    SEMI JOIN device d ON d.process = h.process AND d.correlation = h.correlation -- a third of all calls
    WHERE h.kind IN ('launch', 'call', 'sync') AND $processes
    GROUP BY h.process, h.correlation
),
launched AS (
    SELECT s.id, l.process, l.correlation
    FROM launch l
    ASOF JOIN step_candidate s ON l.process = s.process AND s.family = $family AND l.start_ns >= s.start_ns
    WHERE l.start_ns < s.end_ns
)
SELECT l.id, min(d.start_ns) AS first_ns, max(d.start_ns + d.duration_ns) AS last_ns, count(*) AS events
FROM device d
JOIN launched l ON l.process = d.process AND l.correlation = d.correlation
WHERE l.id NOT IN (SELECT id FROM step_cut)
GROUP BY l.id
"""

_STEPS: Final = """
INSERT INTO step
WITH work AS ($work)
SELECT s.node, s.process, s.phase, s.index, s.start_ns, s.duration_ns, w.first_ns, w.last_ns - w.first_ns, coalesce(w.events, 0)
FROM step_candidate s
LEFT JOIN work w ON w.id = s.id
WHERE s.family = $family
ORDER BY s.process, s.start_ns
"""

_BLOCK: Final = 250_000  # device events that are joined with their launches at a time, in some 100 MB of memory


def derive_steps(store: Store) -> int:
    """Fill the ``step`` table; return the number of steps.

    Device start and duration of a step: first start to last end of the kernels, copies and memsets whose launch call starts inside
    the step's host interval, on any thread of the process. ``index`` is the number in the source, else the position among the steps
    of the same process and phase. A step that is only partly inside a window of device activity has no device times.
    """
    if not store.next_event("annotation"):
        return 0
    connection = store.connection
    connection.execute(_CANDIDATES)
    try:
        connection.execute(_CUT)
        families = "SELECT DISTINCT family, (SELECT count(*) FROM device_event) FROM step_candidate ORDER BY family"
        for family, events in connection.execute(families).fetchall():
            work = _gathered(store, family) if events > _BLOCK else _work(family, "true")
            connection.execute(_STEPS.replace("$work", work).replace("$family", str(int(family))))
    finally:
        connection.execute("DROP TABLE IF EXISTS step_work")
        connection.execute("DROP TABLE IF EXISTS step_cut")
        connection.execute("DROP TABLE step_candidate")
    return int(connection.execute("SELECT count(*) FROM step").fetchall()[0][0])


def _work(family: int, processes: str, times: str = "true") -> str:
    """Return the query of the device work of each step, of some processes and times."""
    block = _WORK.replace("$block", f"{processes} AND {times}").replace("$processes", processes)
    return block.replace("$family", str(int(family)))


def _gathered(store: Store, family: int) -> str:
    """Fill ``step_work`` block by block; return the query of its sums."""
    execute = store.connection.execute
    execute("CREATE OR REPLACE TEMP TABLE step_work (id BIGINT, first_ns BIGINT, last_ns BIGINT, events BIGINT)")
    for first, last, events in _processes(store):
        # The events of a process are in neighboring rows, so that each block reads its part of the tables only.
        processes = f"process BETWEEN {int(first)} AND {int(last)}"
        for times in _times(store, processes, events) if events > _BLOCK else ("true",):
            execute("INSERT INTO step_work " + _work(family, processes, times))
    return "SELECT id, min(first_ns) AS first_ns, max(last_ns) AS last_ns, CAST(sum(events) AS BIGINT) AS events FROM step_work GROUP BY id"


def _processes(store: Store) -> list[tuple[int, int, int]]:
    """Divide the processes into blocks: first, last, and number of device events."""
    counts = "SELECT process, count(*) FROM device_event WHERE process IS NOT NULL GROUP BY process ORDER BY process"
    blocks: list[tuple[int, int, int]] = []
    for process, events in store.connection.execute(counts).fetchall():
        if blocks and blocks[-1][2] + events <= _BLOCK:
            first, _, before = blocks.pop()
            blocks.append((first, process, before + events))
        else:
            blocks.append((process, process, events))
    return blocks


def _times(store: Store, processes: str, events: int) -> list[str]:
    """Return conditions that divide the device events of a process by time."""
    shares = [block / (events // _BLOCK + 1) for block in range(1, events // _BLOCK + 1)]
    query = f"SELECT approx_quantile(start_ns, {shares}) FROM device_event WHERE {processes}"
    limits = sorted({*store.connection.execute(query).fetchall()[0][0]})
    spans = zip([EARLIEST_NS, *(limit + 1 for limit in limits)], [*limits, LATEST_NS], strict=True)
    return [f"start_ns BETWEEN {first} AND {last}" for first, last in spans]
