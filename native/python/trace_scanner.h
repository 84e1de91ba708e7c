/* trace_scanner.h - creates the Python type TraceScanner. */
#ifndef POSTRUN_TRACE_SCANNER_H
#define POSTRUN_TRACE_SCANNER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

int add_trace_scanner(PyObject *module); /* -1 with an exception set */

#endif
