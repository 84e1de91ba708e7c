/* intervals.c - the Python functions of interval algebra (src/intervals), used by analysis/toolkit/intervals.py. Tables are objects with
 * __arrow_c_stream__, such as frames of Polars; so are the results. */
#include "intervals.h"

#include <errno.h>
#include <stdlib.h>

#include "intervals/intervals.h"

/* ---------------------------------------------------------------- results */

typedef struct {
    PyObject_HEAD struct ArrowArrayStream *stream; /* NULL: taken */
} result_object;

static void drop_stream(struct ArrowArrayStream *stream) {
    if (stream && stream->release) {
        stream->release(stream);
    }
    free(stream);
}

static void drop_capsule(PyObject *capsule) { drop_stream(PyCapsule_GetPointer(capsule, "arrow_array_stream")); }

static PyObject *result_stream(PyObject *object, PyObject *args, PyObject *keywords) {
    static char *names[] = {"requested_schema", NULL};
    result_object *self = (result_object *)object;
    PyObject *requested = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O", names, &requested)) {
        return NULL;
    }
    struct ArrowArrayStream *stream = self->stream;
    if (!stream) {
        PyErr_SetString(PyExc_ValueError, "the table has been taken already");
        return NULL;
    }
    PyObject *capsule = PyCapsule_New(stream, "arrow_array_stream", drop_capsule);
    if (capsule) {
        self->stream = NULL;
    }
    return capsule;
}

static void result_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    drop_stream(((result_object *)object)->stream);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef result_methods[] = {
    {"__arrow_c_stream__", (PyCFunction)(void (*)(void))result_stream, METH_VARARGS | METH_KEYWORDS,
     "The table, once, as an Arrow stream."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot result_slots[] = {
    {Py_tp_doc, "A table of interval algebra, for a consumer of Arrow streams."},
    {Py_tp_dealloc, result_dealloc},
    {Py_tp_methods, result_methods},
    {0, NULL},
};

static PyType_Spec result_spec = {
    "postrun.native._native.IntervalTable", sizeof(result_object), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, result_slots,
};

/* ---------------------------------------------------------------- arguments */

typedef struct {
    size_t count;
    PyObject *capsules[INTERVAL_CLASSES_MAX];
    struct ArrowArrayStream *streams[INTERVAL_CLASSES_MAX];
} tables;

static void release_tables(tables *t) {
    for (size_t i = 0; i < t->count; i++) {
        Py_DECREF(t->capsules[i]); /* which releases its stream */
    }
}

static int take_table(tables *t, PyObject *object) {
    PyObject *capsule = PyObject_CallMethod(object, "__arrow_c_stream__", NULL);
    if (!capsule) {
        return -1;
    }
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    if (stream && !stream->release) {
        PyErr_SetString(PyExc_ValueError, "the stream of a table has been released");
    }
    if (PyErr_Occurred()) {
        Py_DECREF(capsule);
        return -1;
    }
    t->capsules[t->count] = capsule;
    t->streams[t->count++] = stream;
    return 0;
}

static int take_tables(tables *t, PyObject *tuple) {
    Py_ssize_t count = PyTuple_Size(tuple);
    if (count < 1 || count > INTERVAL_CLASSES_MAX) {
        PyErr_Format(PyExc_ValueError, "1 to %d tables are needed", INTERVAL_CLASSES_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (take_table(t, PyTuple_GetItem(tuple, i))) {
            return -1;
        }
    }
    return 0;
}

/* The result of a function: `table`, or the error of `status`. */
static PyObject *result_of(PyObject *module, int status, interval_table *table, const char *message) {
    struct ArrowArrayStream *stream = NULL;
    PyObject *type = NULL;
    result_object *result = NULL;
    if (status == -EINVAL) {
        PyErr_SetString(PyExc_ValueError, message);
        goto done;
    }
    if (status || !(stream = calloc(1, sizeof *stream)) || interval_table_export(table, stream)) {
        PyErr_NoMemory();
        goto done;
    }
    if (!(type = PyObject_GetAttrString(module, "IntervalTable"))) {
        goto done;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot((PyTypeObject *)type, Py_tp_alloc);
    if ((result = (result_object *)allocate((PyTypeObject *)type, 0))) {
        result->stream = stream;
        stream = NULL;
    }
done:
    Py_XDECREF(type);
    drop_stream(stream);
    interval_table_free(table);
    return (PyObject *)result;
}

/* ---------------------------------------------------------------- functions */

typedef int over_tables(struct ArrowArrayStream *const *, size_t, unsigned, unsigned, unsigned, interval_table *, char *);

static PyObject *call_over_tables(PyObject *module, PyObject *args, over_tables *function) {
    PyObject *tuple, *result = NULL;
    unsigned int keys, classes, wanted;
    tables t = {0};
    if (!PyArg_ParseTuple(args, "O!III", &PyTuple_Type, &tuple, &keys, &classes, &wanted)) {
        return NULL;
    }
    if (!take_tables(&t, tuple)) {
        interval_table table = {0};
        char message[INTERVAL_MESSAGE] = "";
        int status;
        Py_BEGIN_ALLOW_THREADS status = function(t.streams, t.count, keys, classes, wanted, &table, message);
        Py_END_ALLOW_THREADS result = result_of(module, status, &table, message);
    }
    release_tables(&t);
    return result;
}

static PyObject *segments(PyObject *module, PyObject *args) { return call_over_tables(module, args, interval_segments); }

static PyObject *lengths(PyObject *module, PyObject *args) { return call_over_tables(module, args, interval_lengths); }

typedef int over_rows(struct ArrowArrayStream *, unsigned, interval_table *, char *);

static PyObject *call_over_rows(PyObject *module, PyObject *args, over_rows *function) {
    PyObject *rows, *result = NULL;
    unsigned int keys;
    tables t = {0};
    if (!PyArg_ParseTuple(args, "OI", &rows, &keys)) {
        return NULL;
    }
    if (!take_table(&t, rows)) {
        interval_table table = {0};
        char message[INTERVAL_MESSAGE] = "";
        int status;
        Py_BEGIN_ALLOW_THREADS status = function(t.streams[0], keys, &table, message);
        Py_END_ALLOW_THREADS result = result_of(module, status, &table, message);
    }
    release_tables(&t);
    return result;
}

static PyObject *gaps(PyObject *module, PyObject *args) { return call_over_rows(module, args, interval_gaps); }

static PyObject *outermost(PyObject *module, PyObject *args) { return call_over_rows(module, args, interval_outermost); }

static PyObject *nested(PyObject *module, PyObject *args) { return call_over_rows(module, args, interval_nested); }

typedef int over_two(struct ArrowArrayStream *, struct ArrowArrayStream *, unsigned, unsigned, interval_table *, char *);

static int covered_by(struct ArrowArrayStream *rows, struct ArrowArrayStream *with, unsigned keys, unsigned orders, interval_table *out,
                      char *message) {
    (void)orders;
    return interval_covered(rows, with, keys, out, message);
}

static PyObject *call_over_two(PyObject *module, PyObject *args, over_two *function) {
    PyObject *rows, *with, *result = NULL;
    unsigned int keys, orders = 0;
    tables t = {0};
    if (!PyArg_ParseTuple(args, "OOI|I", &rows, &with, &keys, &orders)) {
        return NULL;
    }
    if (!take_table(&t, rows) && !take_table(&t, with)) {
        interval_table table = {0};
        char message[INTERVAL_MESSAGE] = "";
        int status;
        Py_BEGIN_ALLOW_THREADS status = function(t.streams[0], t.streams[1], keys, orders, &table, message);
        Py_END_ALLOW_THREADS result = result_of(module, status, &table, message);
    }
    release_tables(&t);
    return result;
}

static PyObject *covered(PyObject *module, PyObject *args) { return call_over_two(module, args, covered_by); }

static PyObject *innermost(PyObject *module, PyObject *args) { return call_over_two(module, args, interval_innermost); }

static PyObject *first(PyObject *module, PyObject *args) { return call_over_two(module, args, interval_first); }

static PyMethodDef functions[] = {
    {"interval_segments", segments, METH_VARARGS, "interval_segments(tables, keys, classes, wanted): keys, start, end, classes."},
    {"interval_lengths", lengths, METH_VARARGS, "interval_lengths(tables, keys, classes, wanted): keys, classes, length."},
    {"interval_gaps", gaps, METH_VARARGS, "interval_gaps(rows, keys): row number, start, end."},
    {"interval_outermost", outermost, METH_VARARGS, "interval_outermost(rows, keys): row numbers."},
    {"interval_nested", nested, METH_VARARGS, "interval_nested(rows, keys): the row number around it, or null, and an end per row."},
    {"interval_covered", covered, METH_VARARGS, "interval_covered(rows, segments, keys): a length per row."},
    {"interval_innermost", innermost, METH_VARARGS, "interval_innermost(points, ranges, keys, orders): a row number or null per point."},
    {"interval_first", first, METH_VARARGS, "interval_first(points, rows, keys, orders=0): a row number or null per point."},
    {NULL, NULL, 0, NULL},
};

int add_intervals(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &result_spec, NULL);
    if (!type) {
        return -1;
    }
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed ? failed : PyModule_AddFunctions(module, functions);
}
