/* trace_reader.h - creates the Python type TraceReader and the functions that write blocks. */
#ifndef POSTRUN_TRACE_READER_H
#define POSTRUN_TRACE_READER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

int add_trace_reader(PyObject *module); /* -1 with an exception set */

#endif
