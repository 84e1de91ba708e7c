/* capture.h - adds the Python functions and types of the recording library to the module. */
#ifndef POSTRUN_PYTHON_CAPTURE_H
#define POSTRUN_PYTHON_CAPTURE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define NAME_SETS 512u

typedef struct {
    PyObject *text; /* strong: the address cannot become that of another text */
    uint32_t id;
} cached_name;

#ifdef Py_GIL_DISABLED
typedef _Atomic(cached_name *) name_place; /* written once: other threads read it at the same time */
#else
typedef cached_name name_place;
#endif

typedef struct { /* the state of one interpreter's module */
    PyTypeObject *annotation, *range, *bound;
    PyObject *decorator, *value_text;
    void *spare; /* memory of released annotations */
    void *spare_bound; /* and of their methods */
    unsigned int spare_count, spare_bound_count;
    PyObject *watcher; /* receives steps; never released while the module exists, as another thread may be calling it */
    PyObject *step_range; /* of the open step, if it is a range by handle; only compared */
    unsigned long step_thread; /* of the step that is open, 0: none */
    unsigned int step_depth; /* ranges of that thread inside this step */
    unsigned char telling; /* ranges of the watcher itself are not steps */
    name_place names[NAME_SETS][2];
} capture_state;

int add_capture(PyObject *module);
int capture_traverse(PyObject *module, visitproc visit, void *arg);
int capture_clear(PyObject *module);
void capture_free(void *module);

#endif
