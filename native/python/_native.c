/* _native.c - the Python face of libpostrun (limited API, CPython 3.11 and later). */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "capture.h"
#include "postrun.h"
#include "trace_reader.h"
#include "trace_scanner.h"

static PyObject *py_version(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyUnicode_FromString(postrun_version());
}

static PyMethodDef methods[] = {
    {"version", py_version, METH_NOARGS, "Version of the loaded libpostrun."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_trace_scanner}, {Py_mod_exec, add_trace_reader}, {Py_mod_exec, add_capture}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Python face of libpostrun.", sizeof(capture_state), methods, slots,
    capture_traverse, capture_clear, capture_free,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
