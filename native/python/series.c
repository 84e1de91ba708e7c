/* series.c - functions over series of numbers (src/series), used by analysis/toolkit/ordered.py. Columns are buffers of contiguous numbers. */
#include "series.h"

#include <errno.h>

#include "series/series.h"

enum { MOST = 5 };

typedef struct {
    Py_buffer views[MOST];
    size_t count;
} columns;

static void release(columns *c) {
    while (c->count) {
        PyBuffer_Release(&c->views[--c->count]);
    }
}

/* Takes the buffers of all arguments, whose items have these sizes. */
static int take(PyObject *args, columns *c, const size_t *sizes, size_t count) {
    c->count = 0;
    if (PyTuple_Size(args) != (Py_ssize_t)count) {
        PyErr_Format(PyExc_TypeError, "takes %zu buffers", count);
        return -1;
    }
    for (size_t i = 0; i < count; i++) {
        if (PyObject_GetBuffer(PyTuple_GetItem(args, (Py_ssize_t)i), &c->views[i], PyBUF_SIMPLE)) {
            release(c);
            return -1;
        }
        c->count++;
        if ((size_t)c->views[i].len % sizes[i] || (uintptr_t)c->views[i].buf % sizes[i]) {
            PyErr_SetString(PyExc_ValueError, "a buffer is not an array of numbers of its type");
            release(c);
            return -1;
        }
    }
    return 0;
}

static size_t length(const columns *c, size_t number, size_t size) { return (size_t)c->views[number].len / size; }

static int refuse(int result) {
    if (result == -EINVAL) {
        PyErr_SetString(PyExc_ValueError, "series, windows or ranks do not fit");
    } else if (result) {
        PyErr_NoMemory();
    }
    return result;
}

PyObject *py_sort_series(PyObject *module, PyObject *args) {
    (void)module;
    columns c;
    if (take(args, &c, (const size_t[]){sizeof(double), sizeof(int64_t)}, 2)) {
        return NULL;
    }
    size_t rows = length(&c, 0, sizeof(double));
    PyObject *sorted = PyBytes_FromStringAndSize(NULL, c.views[0].len);
    PyObject *ranks = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(rows * sizeof(uint32_t)));
    int result = -ENOMEM;
    if (sorted && ranks) {
        double *values = (double *)(void *)PyBytes_AsString(sorted);
        uint32_t *numbers = (uint32_t *)(void *)PyBytes_AsString(ranks);
        Py_BEGIN_ALLOW_THREADS result = series_sort(c.views[0].buf, rows, c.views[1].buf, length(&c, 1, sizeof(int64_t)), values, numbers);
        Py_END_ALLOW_THREADS
    }
    release(&c);
    PyObject *both = refuse(result) ? NULL : PyTuple_Pack(2, sorted, ranks);
    Py_XDECREF(sorted);
    Py_XDECREF(ranks);
    return both;
}

PyObject *py_window_ranks(PyObject *module, PyObject *args) {
    (void)module;
    columns c;
    if (take(args, &c, (const size_t[]){sizeof(uint32_t), sizeof(int64_t), sizeof(int64_t), sizeof(int64_t), sizeof(double)}, 5)) {
        return NULL;
    }
    size_t windows = length(&c, 2, sizeof(int64_t)), fractions = length(&c, 4, sizeof(double));
    PyObject *out = NULL;
    int result = -EINVAL;
    if (length(&c, 3, sizeof(int64_t)) == windows && (!fractions || windows <= PY_SSIZE_T_MAX / (2 * sizeof(uint32_t)) / fractions)) {
        out = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(windows * fractions * 2 * sizeof(uint32_t)));
        result = -ENOMEM;
    }
    if (out) {
        uint32_t *numbers = (uint32_t *)(void *)PyBytes_AsString(out);
        Py_BEGIN_ALLOW_THREADS result =
            series_windows(c.views[0].buf, length(&c, 0, sizeof(uint32_t)), c.views[1].buf, length(&c, 1, sizeof(int64_t)), c.views[2].buf,
                           c.views[3].buf, windows, c.views[4].buf, fractions, numbers);
        Py_END_ALLOW_THREADS
    }
    release(&c);
    if (refuse(result)) {
        Py_CLEAR(out);
    }
    return out;
}

PyObject *py_count_below(PyObject *module, PyObject *args) {
    (void)module;
    columns c;
    if (take(args, &c, (const size_t[]){sizeof(double), sizeof(int64_t), sizeof(double)}, 3)) {
        return NULL;
    }
    size_t series = length(&c, 1, sizeof(int64_t)), limits = length(&c, 2, sizeof(double));
    PyObject *out = NULL;
    int result = -EINVAL;
    if (series ? limits % series == 0 : !limits) {
        out = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(limits * sizeof(int64_t)));
        result = -ENOMEM;
    }
    if (out) {
        int64_t *counts = (int64_t *)(void *)PyBytes_AsString(out);
        Py_BEGIN_ALLOW_THREADS result = series_below(c.views[0].buf, length(&c, 0, sizeof(double)), c.views[1].buf, series, c.views[2].buf,
                                                     series ? limits / series : 0, counts);
        Py_END_ALLOW_THREADS
    }
    release(&c);
    if (refuse(result)) {
        Py_CLEAR(out);
    }
    return out;
}
