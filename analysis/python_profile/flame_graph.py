"""Flame graphs of Python profiles: trees of frames, each with its time.

Pyinstrument keeps the tree. cProfile keeps the time of a function per direct caller, but not the calls above. Its tree is an estimate: the
time of a function is divided over its callers by their shares of its cumulative time, on every level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...ingest.store.store import Store
from ..report.python_profile import FlameFrame
from .names import kind_of, short_names

LEAST_PERCENT: Final = 0.5  # of all time; smaller frames are folded into the frame "other" of their caller
DEEPEST: Final = 40  # levels; deeper frames are also folded
REMAINDER: Final = "other"
RECURSION: Final = "recursion"
_FOLDED: Final = "(other)"
_RECURSIVE: Final = "(recursive calls)"
_MANY_FRAMES: Final = 300_000


@dataclass(slots=True)
class Node:
    """A function on one path from the root."""

    function: str
    total_s: float
    own_s: float
    children: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Tree:
    """Frames in drawing order. ``functions``: number of distinct functions among them."""

    total_s: float
    frames: tuple[FlameFrame, ...]
    functions: int


def called_tree(store: Store, windows: Sequence[int]) -> Tree:
    """Estimate the tree of windows of cProfile from their direct calls."""
    chosen = _chosen(windows)
    times = store.frame(f"""
        SELECT function, any_value(file ORDER BY file) AS file, {_sum("total_s")} AS own, {_sum("cumulative_s")} AS total
        FROM python_profile WHERE "window" IN ({chosen}) GROUP BY function
    """).rows()
    own_times = {function: seconds for function, _, seconds, _ in times}
    total = {function: seconds for function, _, _, seconds in times}
    least = sum(own_times.values()) * LEAST_PERCENT / 100
    pairs = f"""
        SELECT a.function AS caller, b.function AS callee, {_sum("c.cumulative_s")} AS total
        FROM python_call AS c JOIN python_profile AS a ON a."window" = c."window" AND a.id = c.caller
        JOIN python_profile AS b ON b."window" = c."window" AND b.id = c.callee WHERE c."window" IN ({chosen}) GROUP BY ALL
    """
    calls = {(caller, callee): seconds for caller, callee, seconds in store.frame(f"FROM ({pairs}) WHERE total > {least!r}").rows()}
    called = dict(store.frame(f"SELECT callee, {_sum('total')} FROM ({pairs}) WHERE caller <> callee GROUP BY callee").rows())
    return _drawn(estimated(own_times, total, calls, called), {function: file for function, file, _, _ in times})


def estimated(
    own_times: Mapping[str, float], total: Mapping[str, float], calls: Mapping[tuple[str, str], float], called: Mapping[str, float]
) -> list[Node]:
    """Return the roots of the estimated tree.

    ``own_times``, ``total``: seconds of each function, without and with its calls. ``calls``: seconds of the callee with its calls, by
    (caller, callee). ``called``: the sum of these over all callers except the function itself.

    A function is a root with the time in which no other function called it. The callees of a frame get the part of their time that the
    frame has of its function's time. Functions that call each other in a circle are expanded again as long as the path contains a new call
    of the circle. Among the callees of such a function, those that lead back to it come first, because the others may run inside of them.
    """
    graph = _Graph(own_times, total, calls, called)
    roots = [graph.opened(function, seconds) for function, seconds in graph.roots()]
    rest = graph.total_own - sum(node.total_s for node in roots)
    if rest > 1e-6 * graph.total_own:  # keeps the axis as long as all own times, even if no frame is wide enough
        roots.append(Node(_FOLDED, rest, rest))
    return roots


class _Graph:
    def __init__(
        self,
        own_times: Mapping[str, float],
        total: Mapping[str, float],
        calls: Mapping[tuple[str, str], float],
        called: Mapping[str, float],
    ) -> None:
        self.own_times, self.total, self.called = own_times, total, called
        self.below: dict[str, list[tuple[str, float]]] = {}
        for (caller, callee), seconds in sorted(calls.items()):
            if caller != callee and callee in total and total.get(caller, 0.0) > 0:
                self.below.setdefault(caller, []).append((callee, seconds))
        self.total_own = sum(own_times.values())
        self.least = self.total_own * LEAST_PERCENT / 100
        self.circle = _circles(self.below)

    def roots(self) -> list[tuple[str, float]]:
        """Return functions with the time in which none called them, longest first."""
        inside: dict[str, float] = {}  # called by a function of its own circle
        members: dict[int, list[str]] = {}
        for caller, callees in self.below.items():
            for callee, seconds in callees:
                if self._back(caller, callee):
                    inside[callee] = inside.get(callee, 0.0) + seconds
        for function, number in self.circle.items():
            members.setdefault(number, []).append(function)
        root_times = {}
        for function, seconds in self.total.items():
            called = self.called.get(function, 0.0)
            if seconds - called > max(self.least, 1e-6 * seconds):
                # Calls within the circle are part of the time of the outermost one.
                root_times[function] = seconds - max(0.0, called - inside.get(function, 0.0))
        for some in members.values():
            first = max(sorted(some), key=lambda one: self.total[one])
            outside = sum(self.called.get(one, 0.0) - inside.get(one, 0.0) for one in some)
            if len(some) > 1 and not root_times.keys() & set(some) and self.total[first] > self.least and outside < self.total[first] / 2:
                root_times[first] = self.total[first]
        return sorted(root_times.items(), key=lambda one: (-one[1], one[0]))

    def opened(self, root: str, seconds: float) -> Node:
        top = Node(root, seconds, 0.0)
        todo: list[tuple[Node, int, frozenset[tuple[str, ...]]]] = [(top, 0, frozenset())]
        while todo:
            node, depth, used = todo.pop()
            function = node.function
            every = max(self.total[function], self.called.get(function, 0.0))  # times of calls within calls count again
            node.own_s = min(node.total_s, self.own_times[function] * node.total_s / every) if every > 0 else node.total_s
            part = min(1.0, node.total_s / self.total[function]) if self.total[function] > 0 else 0.0
            room = node.total_s - node.own_s
            below = self.below.get(function, ())
            circled = [(callee, part * time) for callee, time in below if self._back(function, callee)]
            back = [one for one in circled if (function, one[0]) not in used] or [one for one in circled if self._leads_on(one[0], used)]
            out = ""
            if not back and 2 * sum(time for callee, time in below if not self._back(function, callee)) < room:
                # The rest is in calls that leave the circle elsewhere: allow the path to such a call once more.
                out = "out"
                back = [one for one in circled if (function, one[0], out) not in used and self._leads_on(one[0], None)]
            back.sort(key=lambda one: (-one[1], one[0]))
            # If no call leads back any more, the other calls fill the time of a function in a circle.
            filled = 1.0 if circled and not back else part
            plain = [(callee, filled * time) for callee, time in below if not self._back(function, callee)]
            shares = []
            for callee, time in back:
                shares.append((callee, min(time, room)))
                room -= shares[-1][1]
            wanted = sum(time for _, time in plain)
            fit = min(1.0, room / wanted) if wanted > 0 else 0.0
            shares += [(callee, time * fit) for callee, time in plain]
            room -= wanted * fit
            for callee, time in shares:
                if time < self.least or time <= 0 or depth + 1 >= DEEPEST:
                    room += time
                    continue
                child = Node(callee, time, 0.0)
                node.children.append(child)
                todo.append(
                    (child, depth + 1, used | {(function, callee), (function, callee, out)} if self._back(function, callee) else used)
                )
            node.children.sort(key=lambda one: (-one.total_s, one.function))
            if room >= self.least and room > 0:
                node.children.append(Node(_RECURSIVE if circled else _FOLDED, room, room))
        return top

    def _leads_on(self, function: str, used: frozenset[tuple[str, ...]] | None) -> bool:
        """Return whether ``function`` leads to a call in its circle not in ``used``.

        None for ``used``: whether it leads to a call out of its circle.
        """
        seen, todo = {function}, [function]
        while todo:
            caller = todo.pop()
            for callee, seconds in self.below.get(caller, ()):
                back = self._back(caller, callee)
                if seconds >= self.least and (not back if used is None else back and (caller, callee) not in used):
                    return True
                if back and callee not in seen:
                    seen.add(callee)
                    todo.append(callee)
        return False

    def _back(self, caller: str, callee: str) -> bool:
        """Return whether the calls of ``callee`` can lead back to ``caller``."""
        number = self.circle.get(caller)
        return number is not None and number == self.circle.get(callee)


def _circles(below: Mapping[str, list[tuple[str, float]]]) -> dict[str, int]:
    """Number the strongly connected component of every function (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    circle: dict[str, int] = {}
    stack: list[str] = []
    for start in sorted(below):
        if start in order:
            continue
        order[start] = low[start] = len(order)
        stack.append(start)
        path = [(start, iter(below.get(start, ())))]
        while path:
            function, callees = path[-1]
            for callee, _ in callees:
                if callee not in order:
                    order[callee] = low[callee] = len(order)
                    stack.append(callee)
                    path.append((callee, iter(below.get(callee, ()))))
                    break
                if callee not in circle:
                    low[function] = min(low[function], order[callee])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[function])
                if low[function] == order[function]:
                    while True:
                        member = stack.pop()
                        circle[member] = order[function]
                        if member == function:
                            break
    return circle


def sampled_tree(store: Store, windows: Sequence[int]) -> Tree:
    """Merge the trees of windows of Pyinstrument, adding up equal paths."""
    chosen = _chosen(windows)
    all_time, count = store.frame(f'SELECT {_sum("total_s")}, count(*) FROM python_frame WHERE "window" IN ({chosen})').row(0)
    least = (all_time or 0.0) * LEAST_PERCENT / 100
    limit = least / max(1, len(windows)) if count > _MANY_FRAMES else -1.0
    rows = store.frame(f"""
        SELECT f."window", f.id, f.parent, p.function, p.file, f.total_s AS own, f.cumulative_s AS total
        FROM python_frame AS f JOIN python_profile AS p ON p."window" = f."window" AND p.id = f.function
        WHERE f."window" IN ({chosen}) AND f.cumulative_s >= {limit!r} ORDER BY f."window", f.id
    """).rows()
    top = Node("", 0.0, 0.0)
    known: dict[int, dict[str, Node]] = {id(top): {}}
    places: dict[tuple[int, int], Node] = {}
    for window, number, parent, function, _, own_time, total in rows:
        above = top if parent is None else places.get((window, parent))
        if above is None:
            continue
        node = known[id(above)].get(function)
        if node is None:
            node = known[id(above)][function] = Node(function, 0.0, 0.0)
            known[id(node)] = {}
            above.children.append(node)
        node.total_s += total
        node.own_s += own_time
        places[window, number] = node
    return _drawn(_folded(top.children, least), {function: file for _, _, _, function, file, _, _ in rows})


def _folded(roots: list[Node], least: float) -> list[Node]:
    todo: list[tuple[Node, int]] = [(Node("", 0.0, 0.0, roots), -1)]
    top = todo[0][0]
    while todo:
        node, depth = todo.pop()
        kept = [child for child in node.children if child.total_s >= least and depth + 1 < DEEPEST]
        rest = sum(child.total_s for child in node.children) - sum(child.total_s for child in kept)
        node.children = sorted(kept, key=lambda one: (-one.total_s, one.function))
        todo += [(child, depth + 1) for child in kept]
        if rest >= least and rest > 0:
            node.children.append(Node(_FOLDED, rest, rest))
    return top.children


def _drawn(roots: list[Node], files: Mapping[str, str | None]) -> Tree:
    frames: list[FlameFrame] = []
    nodes: list[tuple[Node, int, float]] = []
    at = 0.0
    for root in roots:
        nodes.append((root, 0, at))
        at += root.total_s
    todo = nodes[::-1]
    placed: list[tuple[Node, int, float]] = []
    while todo:
        node, depth, start = todo.pop()
        placed.append((node, depth, start))
        inside = []
        for child in node.children:
            inside.append((child, depth + 1, start))
            start += child.total_s
        todo += inside[::-1]
    special = {_FOLDED: REMAINDER, _RECURSIVE: RECURSION}
    functions = {node.function for node, _, _ in placed} - special.keys()
    shorts = short_names((function, files.get(function)) for function in sorted(functions))
    for node, depth, start in placed:
        kind = special.get(node.function) or kind_of(files.get(node.function), node.function)
        short = shorts.get(node.function, node.function)
        # The last digits of sums depend on the order of addition.
        seconds = (round(value, 9) for value in (start, node.total_s, node.own_s))
        frames.append(FlameFrame(short, node.function, kind, depth, *seconds))
    return Tree(round(at, 9), tuple(frames), len(functions))


def _chosen(windows: Sequence[int]) -> str:
    return ", ".join(str(int(one)) for one in windows)


def _sum(column: str) -> str:
    """Return an SQL sum of seconds that does not depend on the order of the rows."""
    return f"(sum(round({column} * 1e9)::BIGINT) / 1e9)::DOUBLE"
