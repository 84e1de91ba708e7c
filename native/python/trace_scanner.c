/* trace_scanner.c - the Python type of the scanner (src/scan), used by ingest/chrome_trace/scan.py. */
#include "trace_scanner.h"

#include <string.h>

#include "scan/trace_scan.h"

typedef struct {
    PyObject_HEAD trace_scan *scan;
    int busy; /* another thread scans without the GIL */
} scanner;

/* ---------------------------------------------------------------- arguments */

enum { MOST_PARTS = 64 };

typedef struct {
    enum trace_scan_kind *kinds;
    trace_scan_text *keys, *categories;
    size_t *key_columns;
    trace_scan_options options;
} arguments;

static int read_kinds(PyObject *sequence, arguments *a, size_t offset) {
    Py_ssize_t count = PySequence_Size(sequence);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        if (!item) {
            return -1;
        }
        enum trace_scan_kind kind = TRACE_SCAN_INT;
        int known = PyUnicode_Check(item) != 0;
        if (known && PyUnicode_CompareWithASCIIString(item, "int") == 0) {
            kind = TRACE_SCAN_INT;
        } else if (known && PyUnicode_CompareWithASCIIString(item, "text") == 0) {
            kind = TRACE_SCAN_TEXT;
        } else if (known && PyUnicode_CompareWithASCIIString(item, "int3") == 0) {
            kind = TRACE_SCAN_INT3;
        } else {
            PyErr_Format(PyExc_ValueError, "unknown kind %R", item);
            known = 0;
        }
        Py_DECREF(item);
        if (!known) {
            return -1;
        }
        a->kinds[offset + (size_t)i] = kind;
    }
    return 0;
}

/* The bytes of a bytes object that its list keeps alive. */
static int read_text(PyObject *bytes, trace_scan_text *text) {
    char *at;
    Py_ssize_t length;
    if (!bytes || PyBytes_AsStringAndSize(bytes, &at, &length)) {
        return -1;
    }
    text->at = (const uint8_t *)at;
    text->length = (size_t)length;
    return 0;
}

static int read_keys(PyObject *list, arguments *a) {
    for (size_t i = 0; i < a->options.key_count; i++) {
        PyObject *pair = PyList_GetItem(list, (Py_ssize_t)i);
        if (!pair || !PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "keys are (bytes, column) pairs");
            return -1;
        }
        if (read_text(PyTuple_GetItem(pair, 0), &a->keys[i])) {
            return -1;
        }
        size_t column = PyLong_AsSize_t(PyTuple_GetItem(pair, 1));
        if (PyErr_Occurred()) {
            return -1;
        }
        if (column >= a->options.all + a->options.parts) {
            PyErr_SetString(PyExc_ValueError, "no such column");
            return -1;
        }
        a->key_columns[i] = column;
    }
    return 0;
}

static int read_categories(PyObject *list, arguments *a) {
    for (size_t i = 0; i < a->options.wide_category_count; i++) {
        if (read_text(PyList_GetItem(list, (Py_ssize_t)i), &a->categories[i])) {
            return -1;
        }
    }
    return 0;
}

static trace_scan *make_scan(PyObject *kinds, PyObject *sparse_kinds, PyObject *wide_kinds, PyObject *keys, PyObject *categories,
                             arguments *a) {
    trace_scan_options *o = &a->options;
    Py_ssize_t dense = PySequence_Size(kinds), sparse = PySequence_Size(sparse_kinds), wide = PySequence_Size(wide_kinds);
    if (dense < 0 || sparse < 0 || wide < 0) {
        return NULL;
    }
    o->dense = (size_t)dense;
    o->narrow = o->dense + (size_t)sparse;
    o->all = o->narrow + (size_t)wide;
    o->key_count = (size_t)PyList_Size(keys);
    o->wide_category_count = (size_t)PyList_Size(categories);
    o->kinds = a->kinds = PyMem_Calloc(o->all + 1, sizeof *a->kinds);
    o->keys = a->keys = PyMem_Calloc(o->key_count + 1, sizeof *a->keys);
    o->key_columns = a->key_columns = PyMem_Calloc(o->key_count + 1, sizeof *a->key_columns);
    o->wide_categories = a->categories = PyMem_Calloc(o->wide_category_count + 1, sizeof *a->categories);
    if (!a->kinds || !a->keys || !a->key_columns || !a->categories) {
        PyErr_NoMemory();
        return NULL;
    }
    if (read_kinds(kinds, a, 0) || read_kinds(sparse_kinds, a, o->dense) || read_kinds(wide_kinds, a, o->narrow) || read_keys(keys, a) ||
        read_categories(categories, a)) {
        return NULL;
    }
    trace_scan *scan = trace_scan_new(o);
    if (!scan) {
        PyErr_NoMemory();
    }
    return scan;
}

static PyObject *scanner_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *kinds, *sparse_kinds, *wide_kinds, *keys, *categories;
    Py_ssize_t event_limit, member_limit, depth_limit, text_limit, string_limit, total_limit, parts = 0;
    if (keywords && PyDict_Size(keywords)) {
        PyErr_SetString(PyExc_TypeError, "TraceScanner takes positional arguments only");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOOO!O!nnnnnn|n", &kinds, &sparse_kinds, &wide_kinds, &PyList_Type, &keys, &PyList_Type, &categories,
                          &event_limit, &member_limit, &depth_limit, &text_limit, &string_limit, &total_limit, &parts)) {
        return NULL;
    }
    if (event_limit < 1 || member_limit < 1 || text_limit < 1 || parts < 0 || parts > MOST_PARTS || string_limit < 1 || total_limit < 1 ||
        depth_limit < 1 || depth_limit > TRACE_SCAN_DEPTH_MAX) {
        PyErr_Format(PyExc_ValueError, "limits must be positive, the depth at most %d", TRACE_SCAN_DEPTH_MAX);
        return NULL;
    }
    arguments a = {0};
    a.options.parts = (size_t)parts;
    a.options.event_limit = (size_t)event_limit;
    a.options.member_limit = (size_t)member_limit;
    a.options.text_limit = (size_t)text_limit;
    a.options.string_limit = (size_t)string_limit;
    a.options.total_limit = (size_t)total_limit;
    a.options.depth_limit = (unsigned)depth_limit;
    trace_scan *scan = make_scan(kinds, sparse_kinds, wide_kinds, keys, categories, &a);
    PyMem_Free(a.kinds);
    PyMem_Free(a.keys);
    PyMem_Free(a.key_columns);
    PyMem_Free(a.categories);
    if (!scan) {
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    scanner *self = (scanner *)allocate(type, 0);
    if (!self) {
        trace_scan_free(scan);
        return NULL;
    }
    self->scan = scan;
    return (PyObject *)self;
}

static void scanner_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    trace_scan_free(((scanner *)object)->scan);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* ---------------------------------------------------------------- scanning */

static int refuse_if_busy(scanner *self) {
    if (!self->busy) {
        return 0;
    }
    PyErr_SetString(PyExc_RuntimeError, "another thread is using this scanner");
    return -1;
}

static PyObject *scanner_feed(PyObject *object, PyObject *data) {
    scanner *self = (scanner *)object;
    Py_buffer view;
    if (refuse_if_busy(self) || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)) {
        return NULL;
    }
    int failed;
    self->busy = 1;
    Py_BEGIN_ALLOW_THREADS failed = trace_scan_feed(self->scan, view.buf, (size_t)view.len);
    Py_END_ALLOW_THREADS self->busy = 0;
    PyBuffer_Release(&view);
    if (failed) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

static PyObject *scanner_finish(PyObject *object, PyObject *unused) {
    scanner *self = (scanner *)object;
    (void)unused;
    if (refuse_if_busy(self)) {
        return NULL;
    }
    int failed;
    self->busy = 1;
    Py_BEGIN_ALLOW_THREADS failed = trace_scan_finish(self->scan);
    Py_END_ALLOW_THREADS self->busy = 0;
    if (failed) {
        return PyErr_NoMemory();
    }
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- results */

static PyObject *bytes_of(trace_scan_text t) { return PyBytes_FromStringAndSize((const char *)t.at, (Py_ssize_t)t.length); }

static PyObject *str_of(trace_scan_text t) { return PyUnicode_DecodeUTF8((const char *)t.at, (Py_ssize_t)t.length, "replace"); }

/* Arrow's validity bitmap of a column into bits; returns how many values are missing. */
static size_t find_missing(const trace_scan_column *c, size_t rows, uint8_t *bits) {
    const int64_t *wide = c->values;
    const int32_t *narrow = c->values;
    size_t missing = 0;
    for (size_t i = 0; i < rows; i += 8) {
        size_t n = rows - i < 8 ? rows - i : 8;
        unsigned byte = 0;
        for (size_t k = 0; k < n; k++) {
            unsigned there = c->width == TRACE_SCAN_I64 ? wide[i + k] != TRACE_SCAN_MISSING : narrow[i + k] >= 0;
            byte |= there << k;
            missing += 1 - there;
        }
        bits[i / 8] = (uint8_t)byte;
    }
    return missing;
}

static PyObject *column_of(const trace_scan_column *c, size_t rows) {
    PyObject *values = PyBytes_FromStringAndSize(rows ? c->values : NULL, (Py_ssize_t)(rows * c->width));
    if (!values) {
        return NULL;
    }
    if (c->width == TRACE_SCAN_U8 || rows == 0) {
        return Py_BuildValue("(NOi)", values, Py_None, 0);
    }
    size_t size = (rows + 7) / 8;
    PyObject *bitmap = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (!bitmap) {
        Py_DECREF(values);
        return NULL;
    }
    uint8_t *bits = (uint8_t *)PyBytes_AsString(bitmap);
    size_t missing = find_missing(c, rows, bits);
    if (missing) {
        return Py_BuildValue("(NNn)", values, bitmap, (Py_ssize_t)missing);
    }
    Py_DECREF(bitmap);
    return Py_BuildValue("(NOi)", values, Py_None, 0);
}

static PyObject *columns_of(const trace_scan_table *t) {
    PyObject *list = PyList_New((Py_ssize_t)t->column_count);
    for (size_t i = 0; list && i < t->column_count; i++) {
        PyObject *column = column_of(&t->columns[i], t->rows);
        if (!column || PyList_SetItem(list, (Py_ssize_t)i, column)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* A combination as a tuple with a str or None for each part. */
static PyObject *combination_of(trace_scan_text key) {
    PyObject *texts = PyList_New(0);
    for (size_t at = 0; texts && at < key.length;) {
        uint32_t length;
        memcpy(&length, key.at + at, sizeof length);
        at += sizeof length;
        PyObject *item = length ? str_of((trace_scan_text){key.at + at, length - 1}) : Py_NewRef(Py_None);
        at += length ? length - 1 : 0;
        if (!item || PyList_Append(texts, item)) {
            Py_CLEAR(texts);
        }
        Py_XDECREF(item);
    }
    PyObject *tuple = texts ? PyList_AsTuple(texts) : NULL;
    Py_XDECREF(texts);
    return tuple;
}

static PyObject *scanner_take(PyObject *object, PyObject *unused) {
    scanner *self = (scanner *)object;
    (void)unused;
    if (refuse_if_busy(self)) {
        return NULL;
    }
    const trace_scan_table *tables[] = {trace_scan_events(self->scan), trace_scan_sparse(self->scan), trace_scan_wide(self->scan)};
    size_t string_count = trace_scan_string_count(self->scan), metadata_count = trace_scan_metadata_count(self->scan);
    PyObject *columns[] = {columns_of(tables[0]), columns_of(tables[1]), columns_of(tables[2])};
    size_t combination_count = trace_scan_combination_count(self->scan);
    PyObject *strings = PyList_New((Py_ssize_t)string_count), *metadata = PyList_New((Py_ssize_t)metadata_count);
    PyObject *combinations = PyList_New((Py_ssize_t)combination_count);
    int failed = !columns[0] || !columns[1] || !columns[2] || !strings || !metadata || !combinations;
    for (size_t i = 0; !failed && i < combination_count; i++) {
        PyObject *tuple = combination_of(trace_scan_combination(self->scan, i));
        failed = !tuple || PyList_SetItem(combinations, (Py_ssize_t)i, tuple);
    }
    for (size_t i = 0; !failed && i < string_count; i++) {
        PyObject *text = str_of(trace_scan_string(self->scan, i));
        failed = !text || PyList_SetItem(strings, (Py_ssize_t)i, text);
    }
    for (size_t i = 0; !failed && i < metadata_count; i++) {
        const trace_scan_metadata *m = trace_scan_metadata_at(self->scan, i);
        PyObject *pair = Py_BuildValue("(LN)", (long long)m->before, bytes_of(m->raw));
        failed = !pair || PyList_SetItem(metadata, (Py_ssize_t)i, pair);
    }
    if (failed) {
        for (int i = 0; i < 3; i++) {
            Py_XDECREF(columns[i]);
        }
        Py_XDECREF(strings);
        Py_XDECREF(metadata);
        Py_XDECREF(combinations);
        return NULL;
    }
    PyObject *result = Py_BuildValue("(nNnNnNNNN)", (Py_ssize_t)tables[0]->rows, columns[0], (Py_ssize_t)tables[1]->rows, columns[1],
                                     (Py_ssize_t)tables[2]->rows, columns[2], strings, metadata, combinations);
    if (result) {
        trace_scan_clear(self->scan);
    }
    return result;
}

static PyObject *scanner_members(PyObject *object, PyObject *unused) {
    scanner *self = (scanner *)object;
    (void)unused;
    if (refuse_if_busy(self)) {
        return NULL;
    }
    size_t count = trace_scan_member_count(self->scan);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        const trace_scan_member *m = trace_scan_member_at(self->scan, i);
        PyObject *item = Py_BuildValue("(NNN)", bytes_of(m->key), bytes_of(m->raw), PyBool_FromLong(m->broken));
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *scanner_counts(PyObject *object, PyObject *unused) {
    scanner *self = (scanner *)object;
    (void)unused;
    if (refuse_if_busy(self)) {
        return NULL;
    }
    size_t count = trace_scan_count_count(self->scan);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        trace_scan_count c = trace_scan_count_at(self->scan, i);
        PyObject *item = Py_BuildValue("(NNL)", str_of(c.phase), str_of(c.category), (long long)c.count);
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *scanner_defects(PyObject *object, PyObject *unused) {
    scanner *self = (scanner *)object;
    (void)unused;
    if (refuse_if_busy(self)) {
        return NULL;
    }
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < trace_scan_defect_codes(); i++) {
        const trace_scan_defect *d = trace_scan_defect_at(self->scan, i);
        if (!d->count) {
            continue;
        }
        PyObject *item = Py_BuildValue("(sLLy#)", d->code, (long long)d->count, (long long)d->first_offset, (const char *)d->example,
                                       (Py_ssize_t)d->example_length);
        if (!item || PyList_Append(list, item)) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyMethodDef scanner_methods[] = {
    {"feed", scanner_feed, METH_O, "Scan the next chunk; releases the GIL."},
    {"finish", scanner_finish, METH_NOARGS, "The text has ended."},
    {"take", scanner_take, METH_NOARGS,
     "(rows, columns, the same of sparse and of wide events, new strings, metadata, new combinations) since the last call."},
    {"members", scanner_members, METH_NOARGS, "[(key, text, broken)] of the top level."},
    {"counts", scanner_counts, METH_NOARGS, "[(ph, cat, events)]."},
    {"defects", scanner_defects, METH_NOARGS, "[(code, count, first offset, example)]."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot scanner_slots[] = {
    {Py_tp_doc, "TraceScanner(kinds, sparse_kinds, wide_kinds, keys, wide_categories, event_limit, member_limit, depth_limit, text_limit, "
                "string_limit, "
                "total_limit, parts=0)"},
    {Py_tp_new, scanner_new},
    {Py_tp_dealloc, scanner_dealloc},
    {Py_tp_methods, scanner_methods},
    {0, NULL},
};

static PyType_Spec scanner_spec = {
    "postrun.native._native.TraceScanner", sizeof(scanner), 0, Py_TPFLAGS_DEFAULT, scanner_slots,
};

int add_trace_scanner(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &scanner_spec, NULL);
    if (!type) {
        return -1;
    }
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed;
}
