"""Recording works from threads without a GIL, and from interpreters besides the first.

Each test runs if this Python has the feature; the file contains the recorded data, and the program the expected data.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import pytest
from postrun import native
from postrun.ingest.prt.format import TraceFile

pytestmark = pytest.mark.skipif(not native.available(), reason="this installation has no C library")

BESIDE = """
import sys
from postrun import capture
INSIDE = '''
from postrun import capture
for i in range(100):
    with capture.annotate("inside", value=i):
        capture.begin("deeper")
        capture.end()
handle = capture.annotation_begin("by handle")
capture.annotation_end(handle)
'''
with capture.session(sample_ms=0):
    with capture.annotate("around"):
        if sys.version_info >= (3, 14):
            from concurrent import interpreters
            for _ in range(3):
                other = interpreters.create()
                other.exec(INSIDE)
                other.close()
        else:
            if sys.version_info >= (3, 13):
                import _interpreters
            else:
                import _xxsubinterpreters as _interpreters
            for _ in range(3):
                other = _interpreters.create()
                failed = _interpreters.run_string(other, INSIDE)
                assert failed is None, failed
                _interpreters.destroy(other)
    with capture.annotate("after"):
        pass
"""
THREADS = """
import sys, threading, time, warnings
from postrun import capture
names = [f"name {i}" for i in range(2000)]
shared = capture.annotate("shared")
done = threading.Event()
failed = []

def work(number):
    try:
        turn = 0
        while not done.is_set():
            turn += 1
            with capture.annotate("step", value=turn):
                capture.begin("inner")
                capture.end()
                with capture.annotate(names[turn % 2000]):
                    capture.counter("loss", 0.5)
            capture.annotation_end(capture.annotation_begin("by handle"))
            with shared:
                repr(shared)
            if turn % 16 == 0:
                time.sleep(0.001)
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for turn in range(6):
    with capture.session(sample_ms=0, ring_records=1 << 16):
        time.sleep(0.01)
        capture.flush()
done.set()
for thread in threads:
    thread.join()
assert not failed, failed
"""


def run(script: str, folder: Path) -> None:
    known = {key: value for key, value in os.environ.items() if not key.startswith("POSTRUN_")}
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", script],
        env={**known, "POSTRUN_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(
    all(importlib.util.find_spec(name) is None for name in ("_interpreters", "_xxsubinterpreters")) or sys.version_info < (3, 12),
    reason="this Python makes no interpreters with a GIL of their own",
)
def test_other_interpreters_record_into_the_session_of_the_process(tmp_path: Path) -> None:
    run(BESIDE, tmp_path)
    (file,) = tmp_path.glob("*.prt")
    trace = TraceFile(file)
    names = Counter(trace.table("annotation").arrow()["name"].to_pylist())
    assert names == {"around": 1, "after": 1, "inside": 300, "deeper": 300, "by handle": 3}
    assert trace.problems() == []


def test_threads_record_while_sessions_begin_and_end(tmp_path: Path) -> None:
    run(THREADS, tmp_path)
    files = [TraceFile(path) for path in tmp_path.glob("*.prt")]
    assert len(files) == 6
    names = Counter(name for file in files for name in file.table("annotation").arrow()["name"].to_pylist())
    assert set(names) <= {"step", "inner", "by handle", "shared", *(f"name {i}" for i in range(2000))}
    assert min(names[name] for name in ("step", "inner", "by handle", "shared")) > 0
    assert [problem.code for file in files for problem in file.problems()] == []


def test_a_build_without_gil_does_not_switch_it_on() -> None:
    if not sysconfig.get_config_var("Py_GIL_DISABLED"):
        pytest.skip("this Python has a GIL")
    script = "import sys, postrun.capture; assert not sys._is_gil_enabled()"
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
