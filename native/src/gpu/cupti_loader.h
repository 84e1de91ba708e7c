/* cupti_loader.h - the functions of libcupti, which is loaded at run time and never linked. */
#ifndef POSTRUN_CUPTI_LOADER_H
#define POSTRUN_CUPTI_LOADER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

#pragma GCC visibility push(hidden)

#define CUPTI_OLDEST 12u            /* of CUDA 10: from this version, records have the layout of cupti_records.h */
#define CUPTI_GRAPH_NODES 13u       /* kernel records name the graph node */
#define CUPTI_12_4 22u              /* of CUDA 12.4: it records no kernels in some programs */
#define CUPTI_GRAPHS_SURVIVE 24u    /* of CUDA 12.6: programs with CUDA graphs survive that it is finalized and attached again */
#define CUPTI_MAY_DECLINE 27u       /* a callback may decline to give a buffer; earlier versions crash */
#define CUPTI_13 130000u            /* of CUDA 13.0: it hangs and crashes; Update 1 does not */
#define CUPTI_CLOCK_WORKS 130100u   /* a timestamp callback costs no kernel its times, as from CUDA 12.6 Update 2 (also 24) to 13.0 */
#define CUPTI_GRAPH_LAUNCHES 130101u /* kernels of graphs name their launch also after the first time that kernels are recorded */
#define CUPTI_MULTIPLE_FIELD 130200u /* struct cupti_subscription has `multiple` */
#define CUPTI_MULTIPLE 130301u      /* several clients can record; of CUDA 13.3 Update 1: before, it may crash then */
#define CUPTI_MAX_LIMIT_REACHED 12
#define CUPTI_OTHER_SUBSCRIBER 39
#define CUPTI_DRIVER_API 1
#define CUPTI_RUNTIME_API 2
#define CUPTI_FLUSH_FORCED 1u
#define CUPTI_THREAD_ID_DEFAULT 0
#define CUPTI_THREAD_ID_SYSTEM 1
#define CUPTI_ATTRIBUTE_THREAD_IDS 21
#define CUPTI_ATTRIBUTE_CLOCK 22
#define CUPTI_CALLS 2048 /* numbers of calls in a domain are below; by far */

typedef void (*cupti_request)(uint8_t **buffer, size_t *size, size_t *records);
typedef void (*cupti_complete)(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);
typedef void (*cupti_callback)(void *user, int domain, uint32_t id, const void *data);
struct cupti_subscription {
    size_t size;
    const char *name;
    char *other; /* the name of another subscriber is put here */
    size_t other_size;
    uint8_t multiple, padding[7]; /* since CUPTI_MULTIPLE_FIELD */
};
typedef void (*cupti_request_2)(uint8_t **buffer, size_t *size, size_t *records, const void *information);
typedef void (*cupti_complete_2)(uint8_t *buffer, size_t size, size_t valid, const void *information);

struct cupti {
    char path[PATH_MAX];
    uint32_t version;
    int (*get_version)(uint32_t *);
    int (*register_callbacks)(cupti_request, cupti_complete);
    int (*enable)(int);
    int (*disable)(int);
    int (*flush_all)(uint32_t);
    int (*next_record)(uint8_t *, size_t, void **);
    /* those that may be missing */
    int (*dropped)(void *, uint32_t, size_t *);
    int (*result_string)(int, const char **);
    int (*callback_name)(int, uint32_t, const char **);
    int (*finalize)(void);
    int (*thread_id_type)(int);
    int (*timestamp)(uint64_t (*)(void));
    int (*driver_api)(uint32_t, uint8_t);
    int (*runtime_api)(uint32_t, uint8_t);
    int (*subscribe)(void **, cupti_callback, void *);
    int (*subscribe_2)(void **, cupti_callback, void *, struct cupti_subscription *);
    int (*unsubscribe)(void *);
    int (*enable_callback)(uint32_t, void *, int, uint32_t);
    /* those of one of several clients */
    int (*register_callbacks_2)(void *, cupti_request_2, cupti_complete_2);
    int (*enable_2)(void *, int, void *);
    int (*disable_2)(void *, int, void *);
    int (*next_record_2)(void *, uint8_t *, size_t, void **);
    int (*dropped_2)(void *, void *, uint32_t, size_t *);
    int (*driver_api_2)(void *, uint32_t, uint8_t);
    int (*runtime_api_2)(void *, uint32_t, uint8_t);
    int (*set_attribute_2)(void *, int, size_t *, void *);
    int (*enabled_kinds)(void *, int *, uint32_t *, uint32_t *);
};

/* The library, loaded at the first call and kept; NULL, and why. Only if the CUDA driver is READY: some versions crash without it. One
 * call at a time. */
const struct cupti *postrun_cupti(char *why, size_t size);
void postrun_cupti_places(void); /* reads POSTRUN_CUPTI, CUDA_HOME and CUDA_PATH, on the thread that begins the session */
/* "function: NAME (number): advice to the user" */
void postrun_cupti_tell_error(const struct cupti *cupti, const char *function, int error, char *why, size_t size);

#pragma GCC visibility pop
#endif
