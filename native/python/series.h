/* series.h - functions over series of numbers (src/series), whose columns are buffers. */
#ifndef POSTRUN_PYTHON_SERIES_H
#define POSTRUN_PYTHON_SERIES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

PyObject *py_sort_series(PyObject *module, PyObject *args);
PyObject *py_window_ranks(PyObject *module, PyObject *args);
PyObject *py_count_below(PyObject *module, PyObject *args);

#endif
