/* stub_launches.c - a libcupti for tests of windows and buffers: each launch of the program becomes one kernel record.
 *
 * Built without the vendor's headers; the beginning of the record is that of native/src/gpu/cupti_records.h, which other tests compare with
 * them. STUB_THREAD_BUFFERS=1: a buffer for each thread, as CUPTI 13 has by default. STUB_SLOW_ATTACH=1: the first
 * call of a window takes 0.7 s. STUB_LOG as in stub_cuda.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/cupti_records.h"

#define EXPORT __attribute__((visibility("default")))
#define RECORD 256 /* bytes; CUPTI 13.5 has 248 */
#define LIMIT_REACHED 12
#ifndef VERSION
#define VERSION 130001
#endif

struct open_buffer {
    uint8_t *bytes;
    size_t size, used;
    pthread_t thread;
    struct open_buffer *next;
};
typedef void (*request_function)(uint8_t **, size_t *, size_t *);
typedef void (*complete_function)(void *, uint32_t, uint8_t *, size_t, size_t);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct open_buffer *open_buffers;
static request_function request;
static complete_function complete;
static _Atomic int kernels, subscribed;
static _Atomic uint64_t dropped, requests;
static int thread_buffers;

static __attribute__((constructor)) void loaded(void) { thread_buffers = getenv("STUB_THREAD_BUFFERS") != NULL; }

static void stub_log(const char *function) {
    void (*log)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "stub_log");
    void *cuda = log ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (cuda) {
        log = (void (*)(const char *))dlsym(cuda, "stub_log");
    }
    if (log) {
        log(function);
    }
}

static void deliver(struct open_buffer *b) {
    complete(NULL, 0, b->bytes, b->size, b->used);
    free(b);
}

/* Under the lock: the buffer that takes the next record of this thread, NULL: declined. */
static struct open_buffer *buffer_with_room(struct open_buffer **full) {
    struct open_buffer **at = &open_buffers;
    while (*at && thread_buffers && !pthread_equal((*at)->thread, pthread_self())) {
        at = &(*at)->next;
    }
    if (*at && (*at)->size - (*at)->used < RECORD) {
        *full = *at;
        *at = (*at)->next;
    } else if (*at) {
        return *at;
    }
    uint8_t *bytes = NULL;
    size_t size = 0, records = 0;
    request(&bytes, &size, &records);
    requests++;
    if (!bytes) {
        return NULL;
    }
    struct open_buffer *b = malloc(sizeof *b);
    *b = (struct open_buffer){bytes, size, 0, pthread_self(), open_buffers};
    open_buffers = b;
    return b;
}

/* Launches one kernel, which ends at once. Whether a record was made of it. With the highest bit of `correlation` its other numbers are
 * arbitrary, so that the row takes much room in a file. */
EXPORT int stub_launch(uint32_t correlation) {
    if (!kernels) {
        return 0;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct cupti_kernel kernel = {.kind = CUPTI_KERNEL, .context = 1, .stream = 7, .correlation = correlation, .name = "kernel"};
    kernel.start = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    kernel.end = kernel.start + 1000;
    for (uint64_t i = 0, x = correlation; correlation >> 31 && i < 3; i++) {
        x = (x + i + 1) * 0x9e3779b97f4a7c15u;
        kernel.grid[i] = (int32_t)(x >> 33), kernel.block[i] = (int32_t)(x >> 34 & 0x3fffffff), kernel.graph_node = x >> 1;
    }
    struct open_buffer *full = NULL;
    pthread_mutex_lock(&lock);
    struct open_buffer *b = buffer_with_room(&full);
    if (b) {
        memset(b->bytes + b->used, 0, RECORD);
        memcpy(b->bytes + b->used, &kernel, sizeof kernel);
        b->used += RECORD;
    } else {
        dropped++;
    }
    pthread_mutex_unlock(&lock);
    if (full) {
        deliver(full);
    }
    return b != NULL;
}
EXPORT uint64_t stub_requests(void) { return requests; }
EXPORT int stub_attached(void) { return kernels; }

EXPORT int cuptiGetVersion(uint32_t *version) {
    *version = VERSION;
    return 0;
}
EXPORT int cuptiActivityRegisterCallbacks(request_function r, complete_function c) {
    request = r;
    complete = c;
    if (getenv("STUB_SLOW_ATTACH")) {
        nanosleep(&(struct timespec){0, 700000000}, NULL);
    }
    return 0;
}
EXPORT int cuptiActivityEnable(int kind) {
    if (kind == CUPTI_KERNEL) {
        kernels = 1;
    }
    return 0;
}
EXPORT int cuptiActivityDisable(int kind) {
    if (kind == CUPTI_KERNEL) {
        kernels = 0;
    }
    return 0;
}
EXPORT int cuptiActivityFlushAll(uint32_t flag) {
    stub_log(flag ? "cuptiActivityFlushAll.forced" : "cuptiActivityFlushAll");
    pthread_mutex_lock(&lock);
    struct open_buffer *list = open_buffers;
    open_buffers = NULL;
    pthread_mutex_unlock(&lock);
    while (list) {
        struct open_buffer *next = list->next;
        deliver(list);
        list = next;
    }
    return 0;
}
EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record) {
    uint8_t *at = *record ? (uint8_t *)*record + RECORD : buffer;
    if (at >= buffer + valid) {
        return LIMIT_REACHED;
    }
    *record = at;
    return 0;
}
EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *records) {
    (void)context;
    (void)stream;
    *records = (size_t)atomic_exchange(&dropped, 0);
    return 0;
}
EXPORT int cuptiSubscribe(void **handle, void *callback, void *user) {
    (void)callback;
    (void)user;
    if (subscribed) {
        return 39;
    }
    subscribed = 1;
    *handle = &subscribed;
    return 0;
}
EXPORT int cuptiUnsubscribe(void *handle) {
    (void)handle;
    subscribed = 0;
    return 0;
}
EXPORT int cuptiEnableCallback(uint32_t enable, void *handle, int domain, uint32_t id) {
    (void)enable;
    (void)handle;
    (void)domain;
    (void)id;
    return 0;
}
EXPORT int cuptiFinalize(void) {
    stub_log("cuptiFinalize");
    kernels = 0;
    subscribed = 0;
    return 0;
}
EXPORT int cuptiGetCallbackName(int domain, uint32_t id, const char **text) {
    (void)domain;
    *text = id == 1 ? "cuDeviceGetCount" : NULL;
    return *text ? 0 : 1;
}
EXPORT int cuptiGetResultString(int error, const char **text) {
    (void)error;
    *text = "CUPTI_ERROR_OF_THE_STUB";
    return 0;
}
