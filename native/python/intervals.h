/* intervals.h - creates the functions of interval algebra and the Python type of their results. */
#ifndef POSTRUN_PYTHON_INTERVALS_H
#define POSTRUN_PYTHON_INTERVALS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

int add_intervals(PyObject *module); /* -1 with an exception set */

#endif
