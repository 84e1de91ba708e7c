/* capture.c - the Python functions and types of postrun.capture, on top of record.c and session.c.
 *
 * A name costs one comparison: a small table finds texts by their address. An annotation costs no allocation: the memory of the most
 * recent ones is kept. A range that began in another session, or before a fork, never ends a range of this one: `generation` distinguishes
 * them. */
#include "capture.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#include "core/step_name.h"
#include "postrun.h"

#define CACHED_LENGTH_MAX 255 /* longer texts are not kept alive */

/* Without a GIL, an object is used by one thread at a time, and no memory is kept: the allocator is fast and aware of threads. */
#ifdef Py_GIL_DISABLED
#define ALONE(object) Py_BEGIN_CRITICAL_SECTION(object)
#define ALONE_END() Py_END_CRITICAL_SECTION()
#define SPARE_MAX 0
#else
#define ALONE(object) {
#define ALONE_END() }
#define SPARE_MAX 64
#endif

static _Atomic uint32_t generation = 1; /* of the process, as the library's session is */

static void next_generation(void) { atomic_fetch_add(&generation, 1); }

static uint32_t now_generation(void) { return atomic_load_explicit(&generation, memory_order_relaxed); }

/* ---------------------------------------------------------------- names */

static uint32_t name_of_text(PyObject *text, bool *keep) {
    Py_ssize_t length;
    const char *bytes = PyUnicode_AsUTF8AndSize(text, &length);
    if (bytes) {
        *keep = length <= CACHED_LENGTH_MAX;
        return postrun_name(bytes, (size_t)length);
    }
    PyErr_Clear(); /* half a surrogate pair */
    *keep = false;
    PyObject *encoded = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
    char *at;
    uint32_t id = 0;
    if (encoded && PyBytes_AsStringAndSize(encoded, &at, &length) == 0) {
        id = postrun_name(at, (size_t)length);
    }
    Py_XDECREF(encoded);
    PyErr_Clear();
    return id;
}

static inline name_place *name_set(capture_state *state, PyObject *text) {
    uint64_t mixed = (uint64_t)(uintptr_t)text * 0x9e3779b97f4a7c15u;
    return state->names[mixed >> 55]; /* 9 bits: NAME_SETS */
}
_Static_assert(NAME_SETS == 512, "name_set takes 9 bits");

#ifdef Py_GIL_DISABLED
/* Only interned texts, the program's constants, are kept, and never pushed out. */
static uint32_t name_slowly(name_place set[2], PyObject *text) {
    bool keep = false;
    uint32_t id = name_of_text(text, &keep);
    cached_name *fresh = keep && id && PyUnicode_CHECK_INTERNED(text) ? PyMem_RawMalloc(sizeof *fresh) : NULL;
    if (!fresh) {
        return id;
    }
    *fresh = (cached_name){Py_NewRef(text), id};
    for (size_t i = 0; i < 2; i++) {
        cached_name *found = NULL;
        if (atomic_compare_exchange_strong(&set[i], &found, fresh)) {
            return id;
        }
        if (found->text == text) {
            break;
        }
    }
    Py_DECREF(fresh->text);
    PyMem_RawFree(fresh);
    return id;
}

static inline uint32_t name_id(capture_state *state, PyObject *text) {
    name_place *set = name_set(state, text);
    for (size_t i = 0; i < 2; i++) {
        const cached_name *found = atomic_load_explicit(&set[i], memory_order_acquire); /* pairs with name_slowly() */
        if (found && found->text == text) {
            return found->id;
        }
    }
    return name_slowly(set, text);
}

static void names_clear(capture_state *state) {
    for (size_t i = 0; i < 2 * NAME_SETS; i++) {
        cached_name *found = atomic_exchange(&state->names[i / 2][i % 2], NULL);
        if (found) {
            Py_DECREF(found->text);
        }
        PyMem_RawFree(found);
    }
}
#else
/* A new text enters the second place of its set, and the first place when it occurs again: texts that are used once push no constant
 * out. */
static uint32_t name_slowly(cached_name set[2], PyObject *text) {
    if (set[1].text == text) {
        cached_name found = set[1];
        set[1] = set[0];
        set[0] = found;
        return found.id;
    }
    bool keep = false;
    uint32_t id = name_of_text(text, &keep);
    if (keep && id) {
        PyObject *before = set[1].text;
        Py_INCREF(text);
        set[1] = (cached_name){text, id};
        Py_XDECREF(before);
    }
    return id;
}

static inline uint32_t name_id(capture_state *state, PyObject *text) {
    cached_name *set = name_set(state, text);
    return set[0].text == text ? set[0].id : name_slowly(set, text);
}

static void names_clear(capture_state *state) {
    for (size_t i = 0; i < 2 * NAME_SETS; i++) {
        Py_CLEAR(state->names[i / 2][i % 2].text);
    }
}
#endif

static inline bool is_name(PyObject *object) {
    if (PyUnicode_CheckExact(object) || PyUnicode_Check(object)) {
        return true;
    }
    PyErr_Format(PyExc_TypeError, "a name is a str, not %R", object);
    return false;
}

/* ---------------------------------------------------------------- arguments */

static int read_value(PyObject *object, int64_t *value) {
    if (object == Py_None) {
        return 0;
    }
    int overflow;
    long long number;
    if (PyLong_CheckExact(object)) {
        number = PyLong_AsLongLongAndOverflow(object, &overflow);
    } else {
        PyObject *index = PyNumber_Index(object);
        if (!index) {
            return -1;
        }
        number = PyLong_AsLongLongAndOverflow(index, &overflow);
        Py_DECREF(index);
    }
    if (number == -1 && !overflow && PyErr_Occurred()) {
        return -1;
    }
    if (overflow || number == POSTRUN_NO_VALUE) {
        PyErr_SetString(PyExc_OverflowError, "a value has 64 bits; -2**63 stands for none");
        return -1;
    }
    *value = number;
    return 0;
}

/* (name, value=None) of a fast call. */
static int read_slowly(capture_state *state, PyObject *const *args, Py_ssize_t count, PyObject *keywords, PyObject **name, int64_t *value) {
    PyObject *given[2] = {NULL, NULL};
    Py_ssize_t more = keywords ? PyTuple_Size(keywords) : 0;
    if (count + more > 2) {
        PyErr_Format(PyExc_TypeError, "a name and a value are taken, not %zd arguments", count + more);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        given[i] = args[i];
    }
    for (Py_ssize_t i = 0; i < more; i++) {
        PyObject *keyword = PyTuple_GetItem(keywords, i);
        size_t place = 1;
        if (keyword != state->value_text && PyUnicode_CompareWithASCIIString(keyword, "value") != 0) {
            if (PyUnicode_CompareWithASCIIString(keyword, "name") != 0) {
                PyErr_Format(PyExc_TypeError, "unknown argument %R; possible: name, value", keyword);
                return -1;
            }
            place = 0;
        }
        if (given[place]) {
            PyErr_Format(PyExc_TypeError, "argument %R is given twice", keyword);
            return -1;
        }
        given[place] = args[count + i];
    }
    if (!given[0]) {
        PyErr_SetString(PyExc_TypeError, "a name is needed");
        return -1;
    }
    *name = given[0];
    if (!is_name(*name)) {
        return -1;
    }
    return given[1] ? read_value(given[1], value) : 0;
}

static inline int read_arguments(capture_state *state, PyObject *const *args, Py_ssize_t count, PyObject *keywords, PyObject **name,
                                 int64_t *value) {
    *value = POSTRUN_NO_VALUE;
    if (count == 1 && !keywords && PyUnicode_CheckExact(args[0])) {
        *name = args[0];
        return 0;
    }
    if (count == 1 && keywords && PyUnicode_CheckExact(args[0]) && PyTuple_Size(keywords) == 1 &&
        PyTuple_GetItem(keywords, 0) == state->value_text) {
        *name = args[0];
        return read_value(args[1], value);
    }
    return read_slowly(state, args, count, keywords, name, value);
}

static PyObject *system_error(int error) {
    if (error == -ENOMEM) {
        return PyErr_NoMemory();
    }
    errno = -error;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* ---------------------------------------------------------------- the watcher of steps
 *
 * The watcher is called before the range of a step begins and after it has ended, on the program's thread: its work is not part of the
 * step. A step inside a step is not reported. Without a watcher this costs a comparison. */

static _Atomic bool watched;

#define WATCHED() __builtin_expect(atomic_load_explicit(&watched, memory_order_relaxed), 0)

static int tell(capture_state *state, bool begins, int64_t number) {
    state->telling = 1;
    PyObject *told = number < 0 ? PyObject_CallFunction(state->watcher, "OO", begins ? Py_True : Py_False, Py_None)
                                : PyObject_CallFunction(state->watcher, "OL", begins ? Py_True : Py_False, (long long)number);
    state->telling = 0;
    int wanted = told ? PyObject_IsTrue(told) : -1;
    Py_XDECREF(told);
    return wanted;
}

/* Before a range begins. 0, or -1: the watcher has raised. `range`: of one by handle. */
static int watch_begin(capture_state *state, PyObject *name, int64_t value, PyObject *range) {
    if (!state->watcher || state->telling) {
        return 0;
    }
    bool by_handle = state->step_range != NULL;
    if (state->step_thread && !(by_handle && range)) {
        if (!by_handle && !range && state->step_thread == PyThread_get_thread_ident()) {
            state->step_depth++;
        }
        return 0;
    }
    Py_ssize_t length;
    int64_t number;
    const char *text = PyUnicode_AsUTF8AndSize(name, &length);
    if (!text) {
        PyErr_Clear();
    }
    if (!text || !step_name(text, (size_t)length, &number)) {
        return 0;
    }
    if (value != POSTRUN_NO_VALUE) {
        number = value;
    }
    if (state->step_thread) { /* the one before has not been ended by its handle yet */
        state->step_thread = 0;
        state->step_range = NULL;
        if (tell(state, false, -1) < 0) {
            return -1;
        }
    }
    int wanted = tell(state, true, number);
    if (wanted <= 0) {
        return wanted;
    }
    state->step_depth = 0;
    state->step_range = range;
    state->step_thread = PyThread_get_thread_ident();
    return 0;
}

/* After a range has ended. */
static int watch_end(capture_state *state, PyObject *range) {
    if (!state->step_thread || state->telling || state->step_range != range) {
        return 0;
    }
    if (!range) {
        if (state->step_thread != PyThread_get_thread_ident()) {
            return 0;
        }
        if (state->step_depth) {
            state->step_depth--;
            return 0;
        }
    }
    state->step_thread = 0;
    state->step_range = NULL;
    return tell(state, false, -1) < 0 ? -1 : 0;
}

static PyObject *py_watch_steps(PyObject *module, PyObject *watcher) {
    capture_state *state = PyModule_GetState(module);
    state->step_thread = 0;
    state->step_range = NULL;
    if (watcher != Py_None && watcher != state->watcher) {
        if (state->watcher) {
            return PyErr_Format(PyExc_ValueError, "there is a watcher already");
        }
        Py_INCREF(watcher);
        state->watcher = watcher;
    }
    atomic_store(&watched, watcher != Py_None);
    Py_RETURN_NONE;
}

static PyObject *py_nvtx_steps(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyBool_FromLong(postrun_nvtx_steps());
}

/* ---------------------------------------------------------------- ranges on the thread's stack */

static PyObject *py_begin(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    capture_state *state = PyModule_GetState(module);
    PyObject *name;
    int64_t value;
    if (read_arguments(state, args, count, keywords, &name, &value)) {
        return NULL;
    }
    if (postrun_recording()) {
        if (WATCHED() && watch_begin(state, name, value, NULL)) {
            return NULL;
        }
        postrun_begin(name_id(state, name), value);
    }
    Py_RETURN_NONE;
}

static PyObject *py_end(PyObject *module, PyObject *unused) {
    (void)unused;
    postrun_end();
    if (WATCHED() && watch_end(PyModule_GetState(module), NULL)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- ranges by handle */

typedef struct {
    PyObject_HEAD uint64_t handle; /* 0: begun while nothing was recorded */
    uint32_t generation;
    bool ended;
} range_object;

static PyObject *range_begin(capture_state *state, PyObject *name, int64_t value) {
    range_object *self = PyObject_New(range_object, state->range);
    if (!self) {
        return NULL;
    }
    self->generation = now_generation();
    self->ended = false;
    self->handle = 0;
    if (postrun_recording()) {
        if (WATCHED() && watch_begin(state, name, value, (PyObject *)self)) {
            Py_DECREF((PyObject *)self);
            return NULL;
        }
        self->handle = postrun_range_begin(name_id(state, name), value);
    }
    return (PyObject *)self;
}

static void range_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *range_repr(PyObject *object) {
    range_object *self = (range_object *)object;
    const char *how = self->handle == 0                      ? "not recorded"
                      : self->ended                          ? "ended"
                      : self->generation == now_generation() ? "open"
                                                             : "stopped";
    return PyUnicode_FromFormat("<range, %s>", how);
}

static PyObject *py_range_begin(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    capture_state *state = PyModule_GetState(module);
    PyObject *name;
    int64_t value;
    if (read_arguments(state, args, count, keywords, &name, &value)) {
        return NULL;
    }
    return range_begin(state, name, value);
}

static PyObject *end_range(PyObject *module, PyObject *object, int (*end)(uint64_t)) {
    capture_state *state = PyModule_GetState(module);
    if (Py_TYPE(object) != state->range) {
        return PyErr_Format(PyExc_ValueError, "%R is no range that was begun", object);
    }
    range_object *self = (range_object *)object;
    bool before;
    ALONE(object);
    before = self->ended;
    self->ended = self->handle != 0;
    ALONE_END();
    if (before) {
        return PyErr_Format(PyExc_ValueError, "the range has been ended before");
    }
    /* one of a session that has stopped was closed there */
    if (self->handle && self->generation == now_generation()) {
        end(self->handle);
    }
    if (WATCHED() && watch_end(PyModule_GetState(module), object)) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *py_range_end(PyObject *module, PyObject *object) { return end_range(module, object, postrun_range_end); }

static PyObject *py_range_drop(PyObject *module, PyObject *object) { return end_range(module, object, postrun_range_drop); }

/* turn(range, number): the work of a hook between two steps, in one call that the watcher of steps does not see. */
static PyObject *py_turn(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    static _Atomic uint32_t step;
    capture_state *state = PyModule_GetState(module);
    int64_t number = POSTRUN_NO_VALUE;
    if (count != 2 || (args[0] != Py_None && Py_TYPE(args[0]) != state->range)) {
        return PyErr_Format(PyExc_TypeError, "a range or None, and a number or None are taken");
    }
    if (read_value(args[1], &number)) {
        return NULL;
    }
    if (args[0] != Py_None) {
        range_object *before = (range_object *)args[0];
        if (before->handle && !before->ended && before->generation == now_generation()) {
            postrun_range_end(before->handle);
        }
        before->ended = true;
    }
    if (number == POSTRUN_NO_VALUE || postrun_nvtx_steps()) {
        Py_RETURN_NONE;
    }
    if (!step) {
        step = postrun_name("step", 4);
    }
    range_object *self = PyObject_New(range_object, state->range);
    if (!self) {
        return NULL;
    }
    self->generation = now_generation();
    self->ended = false;
    self->handle = postrun_recording() ? postrun_range_begin(step, number) : 0;
    return (PyObject *)self;
}

static PyType_Slot range_slots[] = {
    {Py_tp_dealloc, range_dealloc},
    {Py_tp_repr, range_repr},
    {Py_tp_doc, "A range that may end in any order, on any thread."},
    {0, NULL},
};
static PyType_Spec range_spec = {
    .name = "postrun.native._native.Range",
    .basicsize = sizeof(range_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = range_slots,
};

/* ---------------------------------------------------------------- annotations */

typedef struct annotation {
    PyObject_HEAD capture_state *state; /* the type keeps the module alive */
    PyObject *name;       /* an exact str */
    int64_t value;
    PyObject *range;             /* of "async with" */
    uint32_t generation, entered; /* how often it was entered in that generation, and not left */
} annotation_object;

static PyObject *py_annotate(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *keywords) {
    capture_state *state = PyModule_GetState(module);
    PyObject *name;
    int64_t value;
    if (read_arguments(state, args, count, keywords, &name, &value)) {
        return NULL;
    }
    if (PyUnicode_CheckExact(name)) {
        Py_INCREF(name);
    } else if (!(name = PyUnicode_FromObject(name))) {
        return NULL;
    }
    annotation_object *self = state->spare;
    if (self) {
        state->spare = self->name; /* the link, while it is spare */
        state->spare_count--;
    } else if (!(self = PyObject_Malloc(sizeof *self))) {
        Py_DECREF(name);
        return PyErr_NoMemory();
    }
    PyObject_Init((PyObject *)self, state->annotation);
    self->state = state;
    self->name = name;
    self->value = value;
    self->range = NULL;
    self->generation = self->entered = 0;
    return (PyObject *)self;
}

static void annotation_dealloc(PyObject *object) {
    annotation_object *self = (annotation_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    capture_state *state = self->state;
    Py_DECREF(self->name);
    Py_XDECREF(self->range);
    if ((int)state->spare_count < SPARE_MAX) {
        self->name = state->spare;
        state->spare = self;
        state->spare_count++;
    } else {
        PyObject_Free(object);
    }
    Py_DECREF(type);
}

static PyObject *annotation_enter(PyObject *object, PyObject *unused) {
    (void)unused;
    if (postrun_recording()) {
        annotation_object *self = (annotation_object *)object;
        if (WATCHED() && watch_begin(self->state, self->name, self->value, NULL)) {
            return NULL;
        }
        uint32_t now = now_generation();
        ALONE(object);
        self->entered = self->generation == now ? self->entered + 1 : 1;
        self->generation = now;
        ALONE_END();
        postrun_begin(name_id(self->state, self->name), self->value);
    }
    Py_INCREF(object);
    return object;
}

static PyObject *annotation_exit(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    (void)args;
    (void)count;
    annotation_object *self = (annotation_object *)object;
    bool entered;
    ALONE(object);
    entered = self->entered && self->generation == now_generation();
    if (entered) {
        self->entered--;
    }
    ALONE_END();
    if (entered) {
        postrun_end();
        if (WATCHED() && watch_end(self->state, NULL)) {
            return NULL;
        }
    }
    Py_RETURN_NONE;
}

/* "async with": other tasks run in between, so this is a range by handle. The annotation itself is the awaitable, and is ready at once. */
static PyObject *annotation_async_enter(PyObject *object, PyObject *unused) {
    (void)unused;
    annotation_object *self = (annotation_object *)object;
    PyObject *range = self->range ? NULL : range_begin(self->state, self->name, self->value);
    bool taken;
    ALONE(object);
    taken = self->range != NULL;
    if (!taken) {
        self->range = range;
    }
    ALONE_END();
    if (taken) {
        Py_XDECREF(range);
        PyErr_SetString(PyExc_RuntimeError, "this annotation is entered already; make one for each \"async with\"");
        return NULL;
    }
    if (!range) {
        return NULL;
    }
    Py_INCREF(object);
    return object;
}

static PyObject *annotation_async_exit(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    (void)args;
    (void)count;
    annotation_object *self = (annotation_object *)object;
    range_object *range;
    ALONE(object);
    range = (range_object *)self->range;
    self->range = NULL;
    ALONE_END();
    if (range && range->handle && range->generation == now_generation()) {
        postrun_range_end(range->handle);
    }
    int raised = WATCHED() && range && watch_end(self->state, (PyObject *)range);
    Py_XDECREF((PyObject *)range);
    if (raised) {
        return NULL;
    }
    Py_INCREF(object);
    return object;
}

static PyObject *annotation_await(PyObject *object) {
    (void)object;
    PyObject *nothing = PyTuple_New(0);
    PyObject *iterator = nothing ? PyObject_GetIter(nothing) : NULL;
    Py_XDECREF(nothing);
    return iterator;
}

static PyObject *annotation_call(PyObject *object, PyObject *args, PyObject *keywords) {
    annotation_object *self = (annotation_object *)object;
    PyObject *function;
    if (keywords && PyDict_Size(keywords)) {
        PyErr_SetString(PyExc_TypeError, "a decorator takes one function");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O:annotate", &function)) {
        return NULL;
    }
    if (!self->state->decorator) {
        PyErr_SetString(PyExc_RuntimeError, "import postrun.capture to annotate functions");
        return NULL;
    }
    if (self->value == POSTRUN_NO_VALUE) {
        return PyObject_CallFunction(self->state->decorator, "OOO", function, self->name, Py_None);
    }
    return PyObject_CallFunction(self->state->decorator, "OOL", function, self->name, (long long)self->value);
}

static PyObject *annotation_repr(PyObject *object) {
    annotation_object *self = (annotation_object *)object;
    if (self->value == POSTRUN_NO_VALUE) {
        return PyUnicode_FromFormat("annotate(%R)", self->name);
    }
    return PyUnicode_FromFormat("annotate(%R, %lld)", self->name, (long long)self->value);
}

static PyMethodDef annotation_methods[] = {
    {"__enter__", annotation_enter, METH_NOARGS, "Begins the range."},
    {"__exit__", (PyCFunction)(void (*)(void))annotation_exit, METH_FASTCALL, "Ends the range."},
    {"__aenter__", annotation_async_enter, METH_NOARGS, "Begins the range."},
    {"__aexit__", (PyCFunction)(void (*)(void))annotation_async_exit, METH_FASTCALL, "Ends the range."},
    {NULL, NULL, 0, NULL},
};
static PyType_Slot annotation_slots[] = {
    {Py_tp_dealloc, annotation_dealloc},
    {Py_tp_methods, annotation_methods},
    {Py_tp_call, annotation_call},
    {Py_tp_repr, annotation_repr},
    {Py_am_await, annotation_await},
    {Py_tp_doc, "A range with a name: for \"with\", \"async with\", or as a decorator."},
    {0, NULL},
};
static PyType_Spec annotation_spec = {
    .name = "postrun.native._native.Annotation",
    .basicsize = sizeof(annotation_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = annotation_slots,
};

/* ---------------------------------------------------------------- __enter__ and __exit__ without an allocation
 *
 * Up to CPython 3.13 "with" creates two bound methods, each a garbage-collected object. The descriptors here create smaller ones, from
 * memory that is kept. On the type itself they return the plain methods (contextlib.ExitStack reads these). */

#define HAVE_VECTORCALL (1UL << 11) /* as in 3.8 to 3.13; named in the limited API since 3.12 */
#define MAKES_BOUND_METHODS (Py_Version < 0x030E0000)

typedef PyObject *(*fast_call)(PyObject *callable, PyObject *const *args, size_t count, PyObject *keywords);

typedef struct bound {
    PyObject_HEAD fast_call call;
    PyObject *owner; /* an annotation; the link while it is spare */
} bound_object;

typedef struct {
    PyObject_HEAD fast_call call;
    PyTypeObject *annotation;
    PyObject *plain; /* as the type itself shows it */
} method_object;

static PyObject *bound_enter(PyObject *object, PyObject *const *args, size_t count, PyObject *keywords) {
    (void)args;
    if ((count << 1) || (keywords && PyTuple_Size(keywords))) { /* the highest bit is a flag, not part of the number of arguments */
        PyErr_SetString(PyExc_TypeError, "__enter__() takes no arguments");
        return NULL;
    }
    return annotation_enter(((bound_object *)object)->owner, NULL);
}

static PyObject *bound_exit(PyObject *object, PyObject *const *args, size_t count, PyObject *keywords) {
    (void)count;
    if (keywords && PyTuple_Size(keywords)) {
        PyErr_SetString(PyExc_TypeError, "__exit__() takes no keyword arguments");
        return NULL;
    }
    return annotation_exit(((bound_object *)object)->owner, args, 0);
}

/* For who calls it with a tuple. */
static PyObject *bound_call(PyObject *object, PyObject *args, PyObject *keywords) {
    fast_call call = ((bound_object *)object)->call;
    if (keywords && PyDict_Size(keywords)) {
        PyErr_SetString(PyExc_TypeError, "no keyword arguments are taken");
        return NULL;
    }
    return call(object, NULL, (size_t)PyTuple_Size(args), NULL);
}

static void bound_dealloc(PyObject *object) {
    bound_object *self = (bound_object *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject *owner = self->owner;
    capture_state *state = ((annotation_object *)owner)->state;
    if ((int)state->spare_bound_count < SPARE_MAX) {
        self->owner = (PyObject *)state->spare_bound;
        state->spare_bound = self;
        state->spare_bound_count++;
    } else {
        PyObject_Free(object);
    }
    Py_DECREF(owner);
    Py_DECREF(type);
}

static PyObject *method_get(PyObject *object, PyObject *owner, PyObject *type) {
    (void)type;
    method_object *method = (method_object *)object;
    if (!method->plain) {
        return PyErr_Format(PyExc_RuntimeError, "the module is gone");
    }
    if (!owner || Py_TYPE(owner) != method->annotation) {
        Py_INCREF(method->plain);
        return method->plain;
    }
    capture_state *state = ((annotation_object *)owner)->state;
    bound_object *self = state->spare_bound;
    if (self) {
        state->spare_bound = self->owner;
        state->spare_bound_count--;
    } else if (!(self = PyObject_Malloc(sizeof *self))) {
        return PyErr_NoMemory();
    }
    PyObject_Init((PyObject *)self, state->bound);
    self->call = method->call;
    Py_INCREF(owner);
    self->owner = owner;
    return (PyObject *)self;
}

static int method_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((method_object *)object)->annotation);
    Py_VISIT(((method_object *)object)->plain);
    return 0;
}

static int method_clear(PyObject *object) {
    Py_CLEAR(((method_object *)object)->annotation);
    Py_CLEAR(((method_object *)object)->plain);
    return 0;
}

static void method_dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    method_clear(object);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMemberDef bound_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(bound_object, call), READONLY, NULL},
    {"__self__", T_OBJECT, offsetof(bound_object, owner), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};
static PyType_Slot bound_slots[] = {
    {Py_tp_dealloc, bound_dealloc},
    {Py_tp_call, bound_call},
    {Py_tp_members, bound_members},
    {0, NULL},
};
static PyType_Spec bound_spec = {
    .name = "postrun.native._native.BoundMethod",
    .basicsize = sizeof(bound_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE | HAVE_VECTORCALL,
    .slots = bound_slots,
};
static PyType_Slot method_slots[] = {
    {Py_tp_dealloc, method_dealloc},
    {Py_tp_traverse, method_traverse},
    {Py_tp_clear, method_clear},
    {Py_tp_descr_get, method_get},
    {0, NULL},
};
static PyType_Spec method_spec = {
    .name = "postrun.native._native.Method",
    .basicsize = sizeof(method_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = method_slots,
};

/* Replaces a method of annotations by a descriptor. */
static int replace_method(capture_state *state, PyTypeObject *type, const char *name, fast_call call) {
    PyObject *plain = PyObject_GetAttrString((PyObject *)state->annotation, name);
    method_object *method = plain ? PyObject_GC_New(method_object, type) : NULL;
    if (!method) {
        Py_XDECREF(plain);
        return -1;
    }
    method->call = call;
    method->annotation = state->annotation;
    Py_INCREF((PyObject *)method->annotation);
    method->plain = plain;
    PyObject_GC_Track(method);
    int failed = PyObject_SetAttrString((PyObject *)state->annotation, name, (PyObject *)method);
    Py_DECREF(method);
    return failed;
}

static int replace_methods(PyObject *module, capture_state *state) {
    state->bound = (PyTypeObject *)PyType_FromModuleAndSpec(module, &bound_spec, NULL);
    PyTypeObject *method = (PyTypeObject *)PyType_FromModuleAndSpec(module, &method_spec, NULL);
    int failed = !state->bound || !method || replace_method(state, method, "__enter__", bound_enter) ||
                 replace_method(state, method, "__exit__", bound_exit);
    Py_XDECREF((PyObject *)method);
    return failed ? -1 : 0;
}

static PyObject *py_set_decorator(PyObject *module, PyObject *decorator) {
    capture_state *state = PyModule_GetState(module);
    PyObject *before = state->decorator;
    Py_INCREF(decorator);
    state->decorator = decorator;
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- counters, facts */

static PyObject *py_counter(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 2) {
        return PyErr_Format(PyExc_TypeError, "a name and a value are needed, not %zd arguments", count);
    }
    if (!is_name(args[0])) {
        return NULL;
    }
    double value = PyFloat_AsDouble(args[1]);
    if (value == -1 && PyErr_Occurred()) {
        return NULL;
    }
    if (postrun_recording()) {
        postrun_counter(name_id(PyModule_GetState(module), args[0]), value);
    }
    Py_RETURN_NONE;
}

static PyObject *py_metadata(PyObject *module, PyObject *args) {
    (void)module;
    const char *key, *value;
    if (!PyArg_ParseTuple(args, "ss:metadata", &key, &value)) {
        return NULL;
    }
    int error = postrun_metadata(key, value);
    if (error == -EINVAL) {
        return PyErr_Format(PyExc_ValueError, "a key is needed, and key and value have at most 65536 bytes");
    }
    if (error) {
        return system_error(error);
    }
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- session */

static _Atomic bool begun_here; /* by Python, or by the environment of a Python program */
static _Atomic bool at_exit_known;

/* Python ends itself by SIGINT after an uncaught KeyboardInterrupt, and thereby skips the library's own end of the program. */
static void interpreter_ended(void) {
    atomic_store(&at_exit_known, false); /* another interpreter may begin */
    if (atomic_exchange(&begun_here, false)) {
        postrun_stop();
    }
}

static void stop_with_interpreter(void) {
    bool first = false;
    if (!atomic_compare_exchange_strong(&at_exit_known, &first, true)) {
        return;
    }
    const char *environment = getenv("POSTRUN_CAPTURE");
    if (environment && strcmp(environment, "1") == 0 && postrun_recording()) {
        atomic_store(&begun_here, true);
    }
    Py_AtExit(interpreter_ended); /* if 32 others have a handler already: as without one */
}

static PyObject *py_configure(PyObject *module, PyObject *args, PyObject *keywords) {
    (void)module;
    static char *names[] = {"directory",    "rotate_bytes", "ring_records", "drain_ms",  "sample_ms",
                            "sample_for_s", "zstd_level",   "follow_fork",  "gpu",       "gpu_later",
                            "gpu_bounded",  "cpu_for_s",    "rotate_s",     "file_mode", NULL};
    PyObject *directory = Py_None, *folder = NULL;
    unsigned long long rotate_bytes = 0;
    long long ring_records = 0, drain_ms = 0, sample_ms = 0, sample_for_s = 0, cpu_for_s = 0, rotate_s = 0, file_mode = 0;
    int zstd_level = 0, follow_fork = 0, gpu = 0, gpu_later = 0, gpu_bounded = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OKLLLLippppLLL:configure", names, &directory, &rotate_bytes, &ring_records,
                                     &drain_ms, &sample_ms, &sample_for_s, &zstd_level, &follow_fork, &gpu, &gpu_later, &gpu_bounded,
                                     &cpu_for_s, &rotate_s, &file_mode)) {
        return NULL;
    }
    const long long numbers[] = {ring_records, drain_ms, sample_ms, sample_for_s};
    for (size_t i = 0; i < 4; i++) {
        if (numbers[i] < 0 || numbers[i] > UINT32_MAX) {
            return PyErr_Format(PyExc_ValueError, "%s: %lld is out of range", names[2 + i], numbers[i]);
        }
    }
    if (cpu_for_s < 0 || cpu_for_s > UINT32_MAX) {
        return PyErr_Format(PyExc_ValueError, "cpu_for_s: %lld is out of range", cpu_for_s);
    }
    if (rotate_s < 0) {
        return PyErr_Format(PyExc_ValueError, "rotate_s: %lld is out of range", rotate_s);
    }
    if (file_mode < 0) {
        return PyErr_Format(PyExc_ValueError, "file_mode: %lld is out of range", file_mode);
    }
    if (directory != Py_None && !PyUnicode_FSConverter(directory, &folder)) {
        return NULL;
    }
    postrun_config config = POSTRUN_CONFIG_INIT;
    config.directory = folder ? PyBytes_AsString(folder) : NULL;
    config.rotate_bytes = rotate_bytes;
    config.ring_records = (uint32_t)ring_records;
    config.drain_ms = (uint32_t)drain_ms;
    config.sample_ms = (uint32_t)sample_ms;
    config.sample_for_s = (uint32_t)sample_for_s;
    config.cpu_for_s = (uint32_t)cpu_for_s;
    config.rotate_s = (uint64_t)rotate_s;
    config.file_mode = (uint64_t)file_mode;
    config.zstd_level = zstd_level;
    config.flags = (follow_fork ? POSTRUN_FOLLOW_FORK : 0) | (gpu ? POSTRUN_GPU : 0) | (gpu_later ? POSTRUN_NO_GPU_YET : 0) |
                   (gpu_bounded ? POSTRUN_GPU_BOUNDED : 0);
    int error;
    Py_BEGIN_ALLOW_THREADS error = postrun_configure(&config);
    Py_END_ALLOW_THREADS Py_XDECREF(folder);
    if (error == -EBUSY) {
        PyErr_SetString(PyExc_RuntimeError, "the configuration cannot change while recording; stop first");
        return NULL;
    }
    if (error == -EINVAL) {
        PyErr_SetString(PyExc_ValueError,
                        "out of range: sample_ms is 0, 100, 200, 500, 1000, 5000 or 60000; ring_records a power of two from 64 to 4194304; "
                        "rotate_bytes at least 4096; drain_ms at most 60000; zstd_level from -7 to 22; directory not empty; "
                        "file_mode from 0o600 to 0o666, without execute permissions");
        return NULL;
    }
    if (error) {
        return system_error(error);
    }
    Py_RETURN_NONE;
}

static PyObject *py_start(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    if (!postrun_recording()) {
        next_generation();
    }
    int error;
    Py_BEGIN_ALLOW_THREADS error = postrun_start();
    Py_END_ALLOW_THREADS if (error == -EALREADY) Py_RETURN_FALSE;
    if (error) {
        return system_error(error);
    }
    atomic_store(&begun_here, true);
    Py_RETURN_TRUE;
}

static PyObject *py_stop(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    int error;
    Py_BEGIN_ALLOW_THREADS atomic_store(&begun_here, false);
    error = postrun_stop();
    Py_END_ALLOW_THREADS if (error == -EALREADY) Py_RETURN_FALSE;
    if (error) {
        return system_error(error);
    }
    Py_RETURN_TRUE;
}

static PyObject *py_flush(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    int error;
    Py_BEGIN_ALLOW_THREADS error = postrun_flush();
    Py_END_ALLOW_THREADS if (error) return system_error(error);
    Py_RETURN_NONE;
}

static PyObject *py_recording(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyBool_FromLong(postrun_recording());
}

static PyObject *py_path(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    char path[PATH_MAX];
    int length = postrun_path(path, sizeof path);
    if (length == -ENOENT) {
        Py_RETURN_NONE;
    }
    if (length < 0) {
        return system_error(length);
    }
    return PyUnicode_DecodeFSDefaultAndSize(path, length);
}

static PyObject *py_statistics(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    postrun_statistics s = {.size = sizeof s};
    Py_BEGIN_ALLOW_THREADS postrun_get_statistics(&s);
    Py_END_ALLOW_THREADS return Py_BuildValue("{sKsKsKsKsKsKsi}", "recorded", (unsigned long long)s.recorded, "written",
                                              (unsigned long long)s.written, "lost", (unsigned long long)s.lost, "bytes",
                                              (unsigned long long)s.bytes, "blocks", (unsigned long long)s.blocks, "unbalanced",
                                              (unsigned long long)s.unbalanced, "error", (int)s.error);
}

static PyObject *py_now_ns(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    return PyLong_FromLongLong(postrun_now_ns());
}

/* ---------------------------------------------------------------- GPU activity */

static PyObject *py_gpu(PyObject *module, PyObject *on) {
    (void)module;
    int open = PyObject_IsTrue(on), error;
    if (open < 0) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS error = postrun_gpu(open);
    Py_END_ALLOW_THREADS if (error == -ENOTSUP) Py_RETURN_NONE;
    return PyBool_FromLong(error == 0);
}

static PyObject *py_gpu_yield(PyObject *module, PyObject *who) {
    (void)module;
    const char *name = NULL;
    int error;
    if (who != Py_None) {
        name = PyUnicode_AsUTF8AndSize(who, NULL);
        if (!name) {
            return NULL;
        }
    }
    Py_BEGIN_ALLOW_THREADS error = postrun_gpu_yield(name);
    Py_END_ALLOW_THREADS return PyBool_FromLong(error == 0);
}

static PyObject *py_gpu_when_used(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    Py_BEGIN_ALLOW_THREADS if (postrun_recording()) InitializeInjection(); /* else it would begin a session */
    Py_END_ALLOW_THREADS Py_RETURN_NONE;
}

static PyObject *py_gpu_driver(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    void *library;
    Py_BEGIN_ALLOW_THREADS library =
        dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL); /* never closed: its next user would have to load it again */
    Py_END_ALLOW_THREADS return PyBool_FromLong(library != NULL);
}

static PyObject *py_gpu_reason(PyObject *module, PyObject *unused) {
    (void)module;
    (void)unused;
    char text[512];
    postrun_gpu_reason(text, sizeof text);
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

/* ---------------------------------------------------------------- windows that steps open and close
 *
 * Opening or closing can take seconds, and work on the GPU may wait for a callback in Python meanwhile, so other threads must run. The
 * library calls these functions on the thread of the step, with or without the GIL: a C caller such as NVTX may have released it. */

static PyThreadState *(*state_of_thread)(void); /* not in the limited API under either name */

static void *release_gil(void) {
    PyThreadState *state = state_of_thread();
    /* Up to 3.11 this is the state of the thread that has the GIL, which may be another thread. */
    bool held = state && (Py_Version >= 0x030C0000 || state == PyGILState_GetThisThreadState());
    return held ? PyEval_SaveThread() : NULL;
}

static void acquire_gil(void *state) { PyEval_RestoreThread(state); }

static void find_gil(void) {
    void *at = dlsym(RTLD_DEFAULT, "PyThreadState_GetUnchecked"); /* since 3.13 */
    at = at ? at : dlsym(RTLD_DEFAULT, "_PyThreadState_UncheckedGet");
    memcpy(&state_of_thread, &at, sizeof at);
    if (state_of_thread) {
        postrun_lock_hooks(release_gil, acquire_gil);
    }
}

/* ---------------------------------------------------------------- module */

#define FAST(function) ((PyCFunction)(void (*)(void))(function))
static PyMethodDef functions[] = {
    {"begin", FAST(py_begin), METH_FASTCALL | METH_KEYWORDS, "begin(name, value=None): a range of this thread begins; ranges nest."},
    {"end", py_end, METH_NOARGS, "end(): the range of this thread that was begun last ends."},
    {"annotate", FAST(py_annotate), METH_FASTCALL | METH_KEYWORDS,
     "annotate(name, value=None): a range for \"with\" and \"async with\", or a decorator."},
    {"range_begin", FAST(py_range_begin), METH_FASTCALL | METH_KEYWORDS, "range_begin(name, value=None): a handle for range_end."},
    {"range_end", py_range_end, METH_O, "range_end(handle): ends the range, in any order and on any thread."},
    {"range_drop", py_range_drop, METH_O, "range_drop(handle): ends the range, which is not recorded."},
    {"turn", FAST(py_turn), METH_FASTCALL,
     "turn(range, number): ends the range of a step, and begins that of the next; None without a number, and where NVTX marks steps."},
    {"counter", FAST(py_counter), METH_FASTCALL, "counter(name, value): the value of a counter now."},
    {"metadata", py_metadata, METH_VARARGS, "metadata(key, value): a fact of the run."},
    {"configure", FAST(py_configure), METH_VARARGS | METH_KEYWORDS, "configure(**options): what the next session does."},
    {"start", py_start, METH_NOARGS, "start(): whether a session begins; False where one is recording."},
    {"stop", py_stop, METH_NOARGS, "stop(): whether a session ends; False where none is."},
    {"recording", py_recording, METH_NOARGS, "recording(): whether a session is recording."},
    {"flush", py_flush, METH_NOARGS, "flush(): writes everything recorded so far to the file."},
    {"path", py_path, METH_NOARGS, "path(): the file being written, or None."},
    {"statistics", py_statistics, METH_NOARGS, "statistics(): what the session has done so far."},
    {"gpu", py_gpu, METH_O,
     "gpu(on): opens or closes a window of GPU activity; whether it did, False where it is so already, None where it cannot be."},
    {"gpu_yield", py_gpu_yield, METH_O,
     "gpu_yield(who): closes the window of GPU activity for another profiler of the program; None: that one has ended."},
    {"gpu_when_used", py_gpu_when_used, METH_NOARGS, "gpu_when_used(): the session records GPU activity once the program has used CUDA."},
    {"gpu_driver", py_gpu_driver, METH_NOARGS, "gpu_driver(): whether the NVIDIA driver can be loaded; CUDA is not initialized."},
    {"gpu_reason", py_gpu_reason, METH_NOARGS, "gpu_reason(): why GPU activity is not recorded; empty where it is, or can be."},
    {"watch_steps", py_watch_steps, METH_O,
     "watch_steps(f): f(begins, number) is told of steps, whether it wants them, until watch_steps(None); always the same f."},
    {"nvtx_steps", py_nvtx_steps, METH_NOARGS, "nvtx_steps(): whether the program has marked a step with NVTX."},
    {"now_ns", py_now_ns, METH_NOARGS, "now_ns(): the time of the library's clock."},
    {"set_decorator", py_set_decorator, METH_O, "set_decorator(f): f(function, name, value) is what a decorator does."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject *add_type(PyObject *module, PyType_Spec *spec) {
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return type && PyModule_AddType(module, type) == 0 ? type : NULL;
}

int add_capture(PyObject *module) {
    static _Atomic bool told;
    bool first = false;
    if (atomic_compare_exchange_strong(&told, &first, true)) {
        pthread_atfork(NULL, NULL, next_generation);
        find_gil();
    }
    stop_with_interpreter();
    capture_state *state = PyModule_GetState(module);
    state->value_text = PyUnicode_InternFromString("value");
    if (!state->value_text) {
        return -1;
    }
    state->range = add_type(module, &range_spec);
    if (!state->range) {
        return -1;
    }
    state->annotation = add_type(module, &annotation_spec);
    if (!state->annotation) {
        return -1;
    }
    if (MAKES_BOUND_METHODS && replace_methods(module, state)) {
        return -1;
    }
    return PyModule_AddFunctions(module, functions);
}

int capture_traverse(PyObject *module, visitproc visit, void *arg) {
    capture_state *state = PyModule_GetState(module);
    if (state) {
        Py_VISIT(state->annotation);
        Py_VISIT(state->range);
        Py_VISIT(state->bound);
        Py_VISIT(state->decorator);
        Py_VISIT(state->watcher);
    }
    return 0;
}

int capture_clear(PyObject *module) {
    capture_state *state = PyModule_GetState(module);
    if (state) {
        Py_CLEAR(state->decorator);
        Py_CLEAR(state->watcher);
        Py_CLEAR(state->value_text);
        names_clear(state);
        Py_CLEAR(state->annotation);
        Py_CLEAR(state->range);
        Py_CLEAR(state->bound);
    }
    return 0;
}

void capture_free(void *module) {
    capture_clear(module);
    capture_state *state = PyModule_GetState(module);
    for (annotation_object *one = state ? state->spare : NULL, *next; one; one = next) {
        next = (annotation_object *)(void *)one->name;
        PyObject_Free(one);
    }
    for (bound_object *one = state ? state->spare_bound : NULL, *next; one; one = next) {
        next = (bound_object *)(void *)one->owner;
        PyObject_Free(one);
    }
    if (state) {
        state->spare = state->spare_bound = NULL;
    }
}
