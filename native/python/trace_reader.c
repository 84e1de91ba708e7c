/* trace_reader.c - the Python type TraceReader, on top of reader.c, and the functions that write blocks; used by ingest/prt/format.py. */
#include "trace_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/block.h"
#include "reader/reader.h"

typedef struct {
    PyObject_HEAD prt_reader *reader;
} reader_object;

/* ---------------------------------------------------------------- opening */

static PyObject *open_failed(int status, const char *message, PyObject *path) {
    if (status == -ENOMEM) {
        return PyErr_NoMemory();
    }
    if (status == -EINVAL || status == -ENOTSUP) {
        return PyErr_Format(PyExc_ValueError, "%s", message);
    }
    errno = -status;
    return PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    static char *names[] = {"path", "row_limit", "name_ids", "unpacked_limit", NULL};
    PyObject *path;
    unsigned long long row_limit = 0, unpacked_limit = 0;
    int name_ids = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&|KpK", names, PyUnicode_FSConverter, &path, &row_limit, &name_ids,
                                     &unpacked_limit)) {
        return NULL;
    }
    prt_reader_options options = {row_limit, name_ids, unpacked_limit};
    prt_reader *reader = NULL;
    char message[200] = "";
    const char *text = PyBytes_AsString(path);
    int status;
    Py_BEGIN_ALLOW_THREADS status = prt_reader_open(&reader, text, &options, message, sizeof message);
    Py_END_ALLOW_THREADS if (status) {
        open_failed(status, message, path);
        Py_DECREF(path);
        return NULL;
    }
    Py_DECREF(path);
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    reader_object *self = (reader_object *)allocate(type, 0);
    if (!self) {
        prt_reader_release(reader);
        return NULL;
    }
    self->reader = reader;
    return (PyObject *)self;
}

static void reader_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    prt_reader_release(((reader_object *)object)->reader);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

/* ---------------------------------------------------------------- streams */

static void drop_stream(PyObject *capsule) {
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    if (!stream) {
        PyErr_Clear();
        return;
    }
    if (stream->release) {
        stream->release(stream);
    }
    free(stream);
}

static PyObject *reader_stream(PyObject *object, PyObject *name) {
    if (!PyUnicode_Check(name)) {
        return PyErr_Format(PyExc_TypeError, "the name of a table is needed, not %R", name);
    }
    size_t table = 0;
    while (table < prt_tables() && PyUnicode_CompareWithASCIIString(name, prt_table_name(table)) != 0) {
        table++;
    }
    if (table == prt_tables()) {
        return PyErr_Format(PyExc_KeyError, "%U", name);
    }
    struct ArrowArrayStream *stream = calloc(1, sizeof *stream);
    if (!stream) {
        return PyErr_NoMemory();
    }
    if (prt_reader_stream(((reader_object *)object)->reader, table, stream)) {
        free(stream);
        return PyErr_NoMemory();
    }
    PyObject *capsule = PyCapsule_New(stream, "arrow_array_stream", drop_stream);
    if (!capsule) {
        stream->release(stream);
        free(stream);
    }
    return capsule;
}

/* Decodes a table and discards it, to measure the cost of decoding alone. */
static PyObject *reader_drain(PyObject *object, PyObject *name) {
    PyObject *capsule = reader_stream(object, name);
    if (!capsule) {
        return NULL;
    }
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    long long rows = 0;
    int status = 0;
    Py_BEGIN_ALLOW_THREADS for (;;) {
        struct ArrowArray batch;
        status = stream->get_next(stream, &batch);
        if (status || !batch.release) {
            break;
        }
        rows += batch.length;
        batch.release(&batch);
    }
    Py_END_ALLOW_THREADS Py_DECREF(capsule);
    if (status) {
        return PyErr_NoMemory();
    }
    return PyLong_FromLongLong(rows);
}

/* ---------------------------------------------------------------- content of the file */

static PyObject *number_or_none(int64_t value) {
    if (value == INT64_MIN) {
        Py_RETURN_NONE;
    }
    return PyLong_FromLongLong(value);
}

static PyObject *reader_problems(PyObject *object, PyObject *unused) {
    (void)unused;
    prt_reader *reader = ((reader_object *)object)->reader;
    size_t count = prt_reader_problem_count(reader);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        prt_problem p = prt_reader_problem(reader, i);
        PyObject *item =
            Py_BuildValue("(sKKKKNN)", prt_problem_name(p.code), (unsigned long long)p.offset, (unsigned long long)p.bytes,
                          (unsigned long long)p.blocks, (unsigned long long)p.rows, number_or_none(p.first_ns), number_or_none(p.last_ns));
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *reader_header(PyObject *object, PyObject *unused) {
    (void)unused;
    prt_reader *reader = ((reader_object *)object)->reader;
    const prt_reader_header *h = prt_reader_get_header(reader);
    return Py_BuildValue("{s:I,s:I,s:I,s:I,s:y#,s:I,s:I,s:L,s:I,s:K}", "major", (unsigned)h->major, "minor", (unsigned)h->minor,
                         "compatible", h->compatible, "incompatible", h->incompatible, "session", (const char *)h->session,
                         (Py_ssize_t)sizeof h->session, "pid", h->pid, "parent_pid", h->parent, "created_ns", (long long)h->created_ns,
                         "number", h->number, "bytes", (unsigned long long)prt_reader_size(reader));
}

static PyObject *reader_counts(PyObject *object, PyObject *unused) {
    (void)unused;
    PyObject *list = PyList_New(0);
    for (unsigned type = 1; list && type < PRT_TYPES; type++) {
        prt_type_count c = prt_reader_count(((reader_object *)object)->reader, type);
        PyObject *item = Py_BuildValue("(sKKKK)", prt_table_name(type - 1), (unsigned long long)c.blocks, (unsigned long long)c.rows,
                                       (unsigned long long)c.stored, (unsigned long long)c.raw);
        if (!item || PyList_Append(list, item)) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *reader_names(PyObject *object, PyObject *unused) {
    (void)unused;
    prt_reader *reader = ((reader_object *)object)->reader;
    size_t count = prt_reader_names(reader);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        size_t length;
        const char *text = prt_reader_name(reader, i, &length);
        PyObject *item = PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item)) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyMethodDef reader_methods[] = {
    {"stream", reader_stream, METH_O, "The rows of a table as a capsule that holds an Arrow C stream."},
    {"drain", reader_drain, METH_O, "Decodes a table and throws it away; the number of rows. Releases the GIL."},
    {"problems", reader_problems, METH_NOARGS, "[(code, offset, bytes, blocks, rows, first_ns, last_ns)] known so far."},
    {"header", reader_header, METH_NOARGS, "The file header."},
    {"counts", reader_counts, METH_NOARGS, "[(table, blocks, rows, stored bytes, raw bytes)] of intact blocks."},
    {"names", reader_names, METH_NOARGS, "The text of each name id."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, "TraceReader(path, row_limit=0, name_ids=False, unpacked_limit=0)"},
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, reader_methods},
    {0, NULL},
};

static PyType_Spec reader_spec = {
    "postrun.native._native.TraceReader", sizeof(reader_object), 0, Py_TPFLAGS_DEFAULT, reader_slots,
};

/* ---------------------------------------------------------------- writing */

#define COLUMNS_MAX 32

typedef struct {
    prt_column columns[COLUMNS_MAX];
    Py_buffer views[COLUMNS_MAX];
    prt_text *texts[COLUMNS_MAX];
    size_t count;
} column_arguments;

static void release_columns(column_arguments *a) {
    for (size_t i = 0; i < a->count; i++) {
        if (a->views[i].obj) {
            PyBuffer_Release(&a->views[i]);
        }
        PyMem_Free(a->texts[i]);
    }
}

static int read_texts(PyObject *list, prt_text **texts, size_t rows) {
    if (!PyList_Check(list) || (size_t)PyList_Size(list) != rows) {
        PyErr_SetString(PyExc_ValueError, "a column of texts is a list of bytes, one for each row");
        return -1;
    }
    *texts = PyMem_Calloc(rows + 1, sizeof **texts);
    if (!*texts) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < rows; i++) {
        char *at;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyList_GetItem(list, (Py_ssize_t)i), &at, &length)) {
            return -1;
        }
        (*texts)[i] = (prt_text){at, (size_t)length};
    }
    return 0;
}

static int read_column(PyObject *item, column_arguments *a, size_t rows) {
    unsigned char id, kind;
    PyObject *values;
    size_t i = a->count++;
    if (!PyTuple_Check(item) || !PyArg_ParseTuple(item, "bbO", &id, &kind, &values)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "a column is (id, kind, values)");
        }
        return -1;
    }
    a->columns[i] = (prt_column){id, kind, NULL};
    if (kind == PRT_COLUMN_TEXT) {
        if (read_texts(values, &a->texts[i], rows)) {
            return -1;
        }
        a->columns[i].values = a->texts[i];
        return 0;
    }
    if (PyObject_GetBuffer(values, &a->views[i], PyBUF_C_CONTIGUOUS)) {
        return -1;
    }
    if ((size_t)a->views[i].len != rows * 8) {
        PyErr_SetString(PyExc_ValueError, "a column of numbers has 8 bytes for each row");
        return -1;
    }
    a->columns[i].values = a->views[i].buf;
    return 0;
}

static PyObject *bytes_of(prt_bytes *bytes, int status) {
    PyObject *result = NULL;
    if (status == -ENOMEM) {
        PyErr_NoMemory();
    } else if (status) {
        PyErr_SetString(PyExc_ValueError, "the block is larger than the format allows");
    } else {
        result = PyBytes_FromStringAndSize((const char *)bytes->data, (Py_ssize_t)bytes->length);
    }
    prt_bytes_free(bytes);
    return result;
}

static PyObject *write_trace_block(PyObject *module, PyObject *args) {
    (void)module;
    unsigned short type;
    unsigned int source, count;
    unsigned long long sequence;
    long long first_time;
    int level = 0;
    PyObject *list;
    if (!PyArg_ParseTuple(args, "HIIKLO!|i", &type, &source, &count, &sequence, &first_time, &PyList_Type, &list, &level)) {
        return NULL;
    }
    Py_ssize_t columns = PyList_Size(list);
    if (columns > COLUMNS_MAX || count > PRT_COUNT_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many columns or rows");
        return NULL;
    }
    column_arguments a = {.count = 0};
    for (Py_ssize_t i = 0; i < columns; i++) {
        if (read_column(PyList_GetItem(list, i), &a, count)) {
            release_columns(&a);
            return NULL;
        }
    }
    prt_block block = {type, source, count, sequence, first_time, a.columns, a.count};
    prt_bytes bytes = {0};
    int status;
    Py_BEGIN_ALLOW_THREADS status = prt_block_write(&bytes, &block, level);
    Py_END_ALLOW_THREADS release_columns(&a);
    return bytes_of(&bytes, status);
}

static PyObject *write_trace_header(PyObject *module, PyObject *args) {
    (void)module;
    prt_file_header header = {0};
    const char *session;
    Py_ssize_t size;
    long long created;
    if (!PyArg_ParseTuple(args, "y#IIIL|II", &session, &size, &header.pid, &header.parent, &header.number, &created, &header.compatible,
                          &header.incompatible)) {
        return NULL;
    }
    if (size != sizeof header.session) {
        PyErr_SetString(PyExc_ValueError, "a session id has 16 bytes");
        return NULL;
    }
    memcpy(header.session, session, sizeof header.session);
    header.created_ns = created;
    prt_bytes bytes = {0};
    return bytes_of(&bytes, prt_file_header_write(&bytes, &header));
}

static PyObject *zstd_available(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyBool_FromLong(prt_zstd_available());
}

static PyMethodDef functions[] = {
    {"write_trace_block", write_trace_block, METH_VARARGS,
     "write_trace_block(type, source, count, sequence, first_time, [(id, kind, values)], zstd_level=0): the bytes of a block."},
    {"write_trace_header", write_trace_header, METH_VARARGS,
     "write_trace_header(session, pid, parent_pid, number, created_ns, compatible=0, incompatible=0): the bytes of a file header."},
    {"zstd_available", zstd_available, METH_NOARGS, "Whether libzstd can be loaded."},
    {NULL, NULL, 0, NULL},
};

int add_trace_reader(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &reader_spec, NULL);
    if (!type) {
        return -1;
    }
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed ? failed : PyModule_AddFunctions(module, functions);
}
