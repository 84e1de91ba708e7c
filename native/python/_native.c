/* _native.c - the extension module postrun.native._native (limited API, CPython 3.11 or later). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>

#include "capture.h"
#include "intervals.h"
#include "postrun.h"
#include "series.h"
#include "trace_reader.h"
#include "trace_scanner.h"

static PyObject *py_version(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyUnicode_FromString(postrun_version());
}

static PyMethodDef methods[] = {
    {"version", py_version, METH_NOARGS, "Version of the loaded libpostrun."},
    {"sort_series", py_sort_series, METH_VARARGS, "sort_series(values, ends) -> (sorted values, ranks)"},
    {"window_ranks", py_window_ranks, METH_VARARGS, "window_ranks(ranks, ends, first, last, fractions) -> ranks"},
    {"count_below", py_count_below, METH_VARARGS, "count_below(sorted values, ends, limits) -> counts"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_trace_scanner},
    {Py_mod_exec, add_trace_reader},
    {Py_mod_exec, add_intervals},
    {Py_mod_exec, add_capture},
    {0, NULL},
    {0, NULL},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native",    "Python face of libpostrun.", sizeof(capture_state), methods, slots, capture_traverse,
    capture_clear,         capture_free,
};

/* Slots of newer versions of Python, which older versions reject; the limited API of 3.11 has no names for them. All state belongs to
 * the module or to the library, and any thread may call it. */
static void tell_newer(void) {
    PyModuleDef_Slot *next = slots + 4;
    if (Py_Version >= 0x030C0000) {
        *next++ = (PyModuleDef_Slot){3, (void *)2}; /* Py_mod_multiple_interpreters: each with a GIL of its own */
    }
    if (Py_Version >= 0x030D0000) {
        *next++ = (PyModuleDef_Slot){4, (void *)1}; /* Py_mod_gil: not used */
    }
}

PyMODINIT_FUNC PyInit__native(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, tell_newer);
    return PyModuleDef_Init(&definition);
}
