"""Conversion of a cProfile dump to numbers, in a process without the package: a dump of `marshal` can crash the interpreter.

    python -I -S cprofile_child.py MEMORY_BYTES CPU_SECONDS MOST_FUNCTIONS MOST_CALLS MOST_TEXT

Input: the dump on standard input. Output: one byte on standard output, 0 and a message if it is not a dump, or 1 and numbers of 8 bytes and
texts in an order that cprofile_process.py knows. It opens no file.
"""

import contextlib
import marshal
import resource
import sys
from array import array
from typing import Any, Final

MOST_COUNT: Final = 10**12  # Of calls
MOST_SECONDS: Final = 10**9
MOST_LINE: Final = 2**31 - 1

Key = tuple[str, int, str]


class OddError(Exception):
    """An entry that no profiler writes."""


def main() -> None:
    memory, seconds, *most = map(int, sys.argv[1:])
    for limit, value in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NPROC, 0)):
        _limit(limit, value)
    _limit(resource.RLIMIT_CPU, seconds)
    try:
        answer = b"\1" + packed_profile(sys.stdin.buffer.read(), *most)
    except MemoryError:
        answer = b"\0it asks for more memory than a profile needs"
    except EOFError:
        answer = b"\0it breaks off"
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        answer = b"\0" + str(error)[:200].encode("utf-8", "backslashreplace")
    sys.stdout.buffer.write(answer)


def _limit(what: int, value: int) -> None:
    hard = resource.getrlimit(what)[1]
    with contextlib.suppress(OSError, ValueError):  # not on this system
        resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def packed_profile(data: bytes, most_functions: int, most_calls: int, most_text: int) -> bytes:
    """Pack functions and calls between them; of too many, those with the longest time."""
    stats = marshal.loads(data)
    if type(stats) is not dict:
        raise TypeError(f"it holds one {type(stats).__name__}, no table of functions")
    odd = negative = 0
    entries: list[tuple[Key, int, int, float, float, Any]] = []
    for key, entry in stats.items():
        try:
            file, line, name = _key(key)
            if type(entry) is not tuple or len(entry) != 5:
                raise OddError
            primitive, calls, own_time, cumulative, callers = entry
            entries.append(((file, line, name), _count(calls), _count(primitive), _seconds(own_time), _seconds(cumulative), callers))
        except OddError:
            odd += 1
    if stats and not entries:
        raise TypeError("its entries are not those of a profile")
    functions = len(entries)
    entries.sort(key=lambda entry: -entry[4])
    del entries[most_functions:]
    ids = {entry[0]: i for i, entry in enumerate(entries)}
    edges: list[tuple[int, int, int, int, float, float]] = []
    for callee, (_, _, _, _, _, callers) in enumerate(entries):
        if type(callers) is not dict:
            odd += 1
            continue
        for key, entry in callers.items():
            try:
                caller = ids.get(_key(key))
                # Dumps of the module profile contain the number of calls alone.
                calls, primitive, own_time, cumulative = (entry, entry, 0.0, 0.0) if type(entry) is int else _four(entry)
                row = (callee, _count(calls), _count(primitive), _seconds(own_time), _seconds(cumulative))
            except OddError:
                odd += 1
                continue
            if caller is not None:
                edges.append((caller, *row))
            elif functions <= most_functions:
                odd += 1
    calls_found = len(edges)
    if calls_found > most_calls:
        edges.sort(key=lambda edge: -edge[5])
        del edges[most_calls:]
    texts = []
    for (file, _, name), *_ in entries:
        texts += [_plain(file, most_text), _plain(name, most_text)]
    negative = sum((own < 0) + (cumulative < 0) for *_, own, cumulative, _ in entries)
    packed = "\0".join(texts).encode()
    numbers = array("q", [len(entries), len(edges), odd, negative, functions - len(entries), calls_found - len(edges), len(packed)])
    parts = [numbers.tobytes(), array("q", [key[1] for key, *_ in entries]).tobytes()]
    columns: list[Any] = [*zip(*entries, strict=True)] or [()] * 6
    parts += [array("q", counts).tobytes() for counts in columns[1:3]]
    parts += [array("d", [max(0.0, time) for time in times]).tobytes() for times in columns[3:5]]
    parts += [array("q", [edge[i] for edge in edges]).tobytes() for i in (0, 1, 2, 3)]
    parts += [array("d", [max(0.0, edge[i]) for edge in edges]).tobytes() for i in (4, 5)]
    return b"".join([*parts, packed])


def _key(key: Any) -> Key:
    if type(key) is tuple and len(key) == 3:
        file, line, name = key
        if type(file) is str and type(line) is int and type(name) is str and 0 <= line <= MOST_LINE:
            return file, line, name
    raise OddError


def _four(entry: Any) -> tuple[Any, Any, Any, Any]:
    if type(entry) is tuple and len(entry) == 4:
        return entry
    raise OddError


def _count(value: Any) -> int:
    if type(value) is int and 0 <= value <= MOST_COUNT:
        return value
    raise OddError


def _seconds(value: Any) -> float:
    if type(value) in (int, float) and -MOST_SECONDS <= value <= MOST_SECONDS:
        return float(value)
    raise OddError


def _plain(text: str, most: int) -> str:
    return text[:most].replace("\0", "\ufffd").encode("utf-8", "backslashreplace").decode()


if __name__ == "__main__":
    main()
