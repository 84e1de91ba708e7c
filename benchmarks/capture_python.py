"""Measures the cost of an annotation in a Python program, compared with a C function that does nothing.

    python benchmarks/capture_python.py [--rounds 300]

Compiles an extension module (limited API, as the library's own) whose functions do nothing: the floor, which the interpreter itself
takes. Every kind is timed in turn, in batches that fit into a thread's ring, so that a change of the processor's speed meets all alike;
of many batches the tenth percentile, the empty loop subtracted. Nanoseconds for one pair, and the difference to its floor.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from postrun import capture

BATCH = 2000
FLOOR = r"""
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
typedef struct { PyObject_HEAD void *next; } nothing;
static PyTypeObject *type;
static nothing *spare;
static PyObject *begin(PyObject *m, PyObject *name) { (void)m; (void)name; Py_RETURN_NONE; }
static PyObject *end(PyObject *m, PyObject *u) { (void)m; (void)u; Py_RETURN_NONE; }
static PyObject *annotate(PyObject *m, PyObject *name) {
    (void)m; (void)name;
    nothing *self = spare;
    if (self) spare = self->next;
    else if (!(self = PyObject_Malloc(sizeof *self))) return PyErr_NoMemory();
    return PyObject_Init((PyObject *)self, type);
}
static void gone(PyObject *o) { ((nothing *)o)->next = spare; spare = (nothing *)o; Py_DECREF(type); }
static PyObject *enter(PyObject *o, PyObject *u) { (void)u; Py_INCREF(o); return o; }
static PyObject *leave(PyObject *o, PyObject *const *a, Py_ssize_t n) { (void)o; (void)a; (void)n; Py_RETURN_NONE; }
static PyMethodDef own[] = {{"__enter__", enter, METH_NOARGS, ""},
    {"__exit__", (PyCFunction)(void (*)(void))leave, METH_FASTCALL, ""}, {0}};
static PyType_Slot slots[] = {{Py_tp_dealloc, gone}, {Py_tp_methods, own}, {0, 0}};
static PyType_Spec spec = {"capture_floor.nothing", sizeof(nothing), 0, Py_TPFLAGS_DEFAULT, slots};
static PyTypeObject *plain_type;
static PyObject *plain(PyObject *m, PyObject *name) { (void)m; (void)name; return (PyObject *)PyObject_New(nothing, plain_type); }
static void plain_gone(PyObject *o) { PyObject_Free(o); Py_DECREF(plain_type); }
static PyObject *plain_leave(PyObject *o, PyObject *a) { (void)o; (void)a; Py_RETURN_NONE; }
static PyMethodDef plain_own[] = {{"__enter__", enter, METH_NOARGS, ""}, {"__exit__", plain_leave, METH_VARARGS, ""}, {0}};
static PyType_Slot plain_slots[] = {{Py_tp_dealloc, plain_gone}, {Py_tp_methods, plain_own}, {0, 0}};
static PyType_Spec plain_spec = {"capture_floor.plain", sizeof(nothing), 0, Py_TPFLAGS_DEFAULT, plain_slots};
#ifdef __x86_64__
#include <x86intrin.h>
#define CLOCK() ((long long)__rdtsc())
#else
#define CLOCK() 0
#endif
static PyTypeObject *clocked_type;
static nothing *clocked_spare;
static volatile long long times[2];
static PyObject *clocked(PyObject *m, PyObject *name) {
    (void)m; (void)name;
    nothing *self = clocked_spare;
    if (self) clocked_spare = self->next;
    else if (!(self = PyObject_Malloc(sizeof *self))) return PyErr_NoMemory();
    return PyObject_Init((PyObject *)self, clocked_type);
}
static void clocked_gone(PyObject *o) { ((nothing *)o)->next = clocked_spare; clocked_spare = (nothing *)o; Py_DECREF(clocked_type); }
static PyObject *clocked_enter(PyObject *o, PyObject *u) { (void)u; times[0] = CLOCK(); Py_INCREF(o); return o; }
static PyObject *clocked_leave(PyObject *o, PyObject *const *a, Py_ssize_t n) {
    (void)o; (void)a; (void)n; times[1] = CLOCK(); Py_RETURN_NONE;
}
static PyMethodDef clocked_own[] = {{"__enter__", clocked_enter, METH_NOARGS, ""},
    {"__exit__", (PyCFunction)(void (*)(void))clocked_leave, METH_FASTCALL, ""}, {0}};
static PyType_Slot clocked_slots[] = {{Py_tp_dealloc, clocked_gone}, {Py_tp_methods, clocked_own}, {0, 0}};
static PyType_Spec clocked_spec = {"capture_floor.clocked", sizeof(nothing), 0, Py_TPFLAGS_DEFAULT, clocked_slots};
static PyMethodDef functions[] = {{"clocked", clocked, METH_O, ""}, {"plain", plain, METH_O, ""}, {"begin", begin, METH_O, ""},
    {"end", end, METH_NOARGS, ""}, {"annotate", annotate, METH_O, ""}, {0}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "capture_floor", "", -1, functions, 0, 0, 0, 0};
PyMODINIT_FUNC PyInit_capture_floor(void) {
    type = (PyTypeObject *)PyType_FromSpec(&spec);
    plain_type = (PyTypeObject *)PyType_FromSpec(&plain_spec);
    clocked_type = (PyTypeObject *)PyType_FromSpec(&clocked_spec);
    return type && plain_type && clocked_type ? PyModule_Create(&definition) : NULL;
}
"""


def floor_module(folder: Path) -> Any:
    compiler = shutil.which("cc")
    if compiler is None:
        sys.exit("a C compiler (cc) is needed for the floor")
    source, built = folder / "capture_floor.c", folder / "capture_floor.abi3.so"
    source.write_text(FLOOR)
    include = sysconfig.get_paths()["include"]
    subprocess.run([compiler, "-O3", "-shared", "-fPIC", "-isystem", include, str(source), "-o", str(built)], check=True)
    spec = importlib.util.spec_from_file_location("capture_floor", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Plain:
    """A context manager in plain Python that keeps two times."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        self.begun = time.perf_counter_ns()

    def __exit__(self, *exc: object) -> None:
        self.ended = time.perf_counter_ns()


def timed(body: str, **names: Any) -> Callable[[], float]:
    """Seconds of a batch of ``body``."""
    space: dict[str, Any] = {"clock": time.perf_counter, "batch": range(BATCH), **names}
    exec(f"def run():\n begun = clock()\n for i in batch:\n  {body}\n return clock() - begun", space)
    run: Callable[[], float] = space["run"]
    return run


def measured(kinds: dict[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Nanoseconds for one pair of each kind."""
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, run in kinds.items():
            capture.flush()
            times[kind].append(run())
    best = {kind: sorted(values)[len(values) // 10] / BATCH * 1e9 for kind, values in times.items()}
    empty = best.pop("empty")
    return {kind: value - empty for kind, value in best.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        floor = floor_module(Path(folder))
        texts = [f"step_{i}" for i in range(BATCH)]
        pair, block = "m.begin('step'); m.end()", "with m.annotate('step'): pass"
        kinds = {
            "empty": timed("pass"),
            "floor: begin, end": timed(pair, m=floor),
            "floor: with": timed(block, m=floor),
            "floor: with, the clock read twice": timed("with m.clocked('step'): pass", m=floor),
            "floor: with, no free list": timed("with m.plain('step'): pass", m=floor),
            "begin, end": timed(pair, m=capture),
            "begin with value, end": timed("m.begin('step', i); m.end()", m=capture),
            "with annotate": timed(block, m=capture),
            "with annotate, value=i": timed("with m.annotate('step', value=i): pass", m=capture),
            "with annotate(f'step_{i}')": timed("with m.annotate(f'step_{i}'): pass", m=capture),
            "f'step_{i}' alone": timed("f'step_{i}'"),
            "with annotate, 2000 names in turn": timed("with m.annotate(texts[i]): pass", m=capture, texts=texts),
            "annotation_begin, annotation_end": timed("m.annotation_end(m.annotation_begin('step'))", m=capture),
            "decorated function": timed("f()", f=capture.annotate("step")(lambda: None)),
            "function alone": timed("f()", f=lambda: None),
            "counter": timed("m.counter('loss', 1.5)", m=capture),
            "plain Python context manager": timed("with m('step'): pass", m=Plain),
            "contextlib.nullcontext": timed("with m('step'): pass", m=contextlib.nullcontext),
        }
        off = measured(kinds, rounds)
        with capture.session(Path(folder) / "traces", sample_ms=0):
            on = measured(kinds, rounds)
            lost = capture.statistics()["lost"]
    print(f"Python {sys.version.split()[0]}; ns for one pair, in brackets above its floor; {lost} records lost")
    print(f"{'':36}{'recording':>18}{'not recording':>18}")
    for kind in on:
        against = "floor: with" if "with annotate" in kind else "floor: begin, end" if "begin" in kind and "floor" not in kind else None
        cells = [f"{t[kind]:.1f}" + (f" ({t[kind] - t[against]:+.1f})" if against else "") for t in (on, off)]
        print(f"{kind:36}{cells[0]:>18}{cells[1]:>18}")


if __name__ == "__main__":
    main()
