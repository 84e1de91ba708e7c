/* cupti_records.c - turns a buffer of CUPTI's activity records into rows.
 *
 * CUPTI steps from record to record. Only the beginning of each record is read, which is the same in all versions. Texts are interned in
 * the callback that delivers the buffer: CUPTI owns them and may free them later. */
#define _GNU_SOURCE
#include "cupti_records.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/clock.h"
#include "cupti_loader.h"
#include "device_rows.h"
#include "postrun.h"

#define PAGEABLE 1
#define NAME_MAX_CALL 64
#define DAY_NS (86400 * (int64_t)1000000000)

/* ---------------------------------------------------------------- calls */

enum call_kind { CALL_LAUNCH, CALL_SYNC, CALL_OTHER }; /* as in docs/trace-format.md */
struct call {
    char text[NAME_MAX_CALL];
    uint8_t kind, noisy, graph;
    _Atomic uint32_t name; /* 0: not registered yet. Relaxed: every thread stores the same id */
};
static struct call calls[2][CUPTI_CALLS]; /* of the driver, of the runtime; only pages with calls are touched */
static bool learnt;

static bool takes(const char **text, const char *word) {
    size_t length = strlen(word);
    bool is = strncmp(*text, word, length) == 0;
    *text += is ? length : 0;
    return is;
}

/* The same rule as for calls in traces of profilers (ingest/kernels/categories.py). */
static enum call_kind kind_of(const char *name) {
    const char *rest = name;
    if (takes(&rest, "cuda") || takes(&rest, "cu")) {
        const char *memory = rest;
        if (strncmp(rest, "LaunchHostFunc", 14) == 0) {
            return CALL_OTHER;
        }
        if (takes(&memory, "Mem") && (takes(&memory, "cpy") || takes(&memory, "set"))) {
            return CALL_LAUNCH;
        }
        (void)takes(&rest, "Module");
        if (takes(&rest, "Launch") || takes(&rest, "GraphLaunch")) {
            return CALL_LAUNCH;
        }
    }
    return strcasestr(name, "synchronize") ? CALL_SYNC : CALL_OTHER;
}

/* They do no work on a device, wait for nothing, and occur by the thousand. */
static bool is_noisy(const char *name) {
    static const char *const noisy[] = {"cudaGetLastError",
                                        "cudaPeekAtLastError",
                                        "cudaGetDevice",
                                        "cudaSetDevice",
                                        "cudaGetDeviceCount",
                                        "cudaDeviceGetAttribute",
                                        "cudaStreamIsCapturing",
                                        "cudaStreamGetCaptureInfo",
                                        "cudaThreadExchangeStreamCaptureMode",
                                        "cudaPointerGetAttributes",
                                        "cudaFuncGetAttributes",
                                        "cudaFuncSetAttribute",
                                        "cudaGetFuncBySymbol",
                                        "cudaGetDriverEntryPoint",
                                        "cudaOccupancyMaxActiveBlocksPerMultiprocessor",
                                        "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
                                        "cudaDriverGetVersion",
                                        "cudaRuntimeGetVersion",
                                        "cudaStreamGetPriority",
                                        "__cudaPushCallConfiguration",
                                        "__cudaPopCallConfiguration",
                                        "cuGetProcAddress",
                                        "cuCtxGetCurrent",
                                        "cuCtxSetCurrent",
                                        "cuCtxPushCurrent",
                                        "cuCtxPopCurrent",
                                        "cuCtxGetDevice",
                                        "cuCtxGetStreamPriorityRange",
                                        "cuDeviceGet",
                                        "cuDeviceGetCount",
                                        "cuDeviceGetAttribute",
                                        "cuDeviceGetName",
                                        "cuDeviceGetUuid",
                                        "cuDeviceTotalMem",
                                        "cuDriverGetVersion",
                                        "cuGetErrorName",
                                        "cuGetErrorString",
                                        "cuDevicePrimaryCtxGetState",
                                        "cuFuncGetAttribute",
                                        "cuFuncSetAttribute",
                                        "cuKernelGetFunction",
                                        "cuModuleGetFunction",
                                        "cuPointerGetAttribute",
                                        "cuPointerGetAttributes",
                                        "cuStreamIsCapturing",
                                        "cuStreamGetCaptureInfo",
                                        "cuThreadExchangeStreamCaptureMode"};
    for (size_t i = 0; i < sizeof noisy / sizeof *noisy; i++) {
        const char *rest = name;
        if (takes(&rest, noisy[i]) && (*rest == 0 || strncmp(rest, "_v", 2) == 0)) {
            return true;
        }
    }
    return false;
}

/* Not cudaGraphicsMapResources and its like. */
static bool is_of_graphs(const char *name) {
    const char *graph = strstr(name, "Graph");
    return graph && strncmp(graph, "Graphics", 8) != 0;
}

/* "cudaLaunchKernel_ptsz_v7000" is cudaLaunchKernel; "cuMemAlloc_v2" stays. */
static void plain_name(const char *name, char *text) {
    snprintf(text, NAME_MAX_CALL, "%s", name);
    char *version = strstr(text, "_v");
    if (version && strspn(version + 2, "0123456789") >= 4) {
        *version = 0;
    }
    char *stream = strstr(text, "_pts");
    stream = stream ? stream : strstr(text, "_ptds");
    if (stream && (strncmp(stream, "_ptsz", 5) == 0 || strncmp(stream, "_ptds", 5) == 0)) {
        memmove(stream, stream + 5, strlen(stream + 5) + 1);
    }
}

void postrun_cupti_learn_calls(const struct cupti *cupti) {
    if (learnt || !cupti->callback_name) {
        return;
    }
    learnt = true;
    for (int domain = CUPTI_DRIVER_API; domain <= CUPTI_RUNTIME_API; domain++) {
        int failed = 0;
        for (uint32_t id = 1; id < CUPTI_CALLS && failed < 100; id++) {
            const char *name = NULL;
            if (cupti->callback_name(domain, id, &name) != 0) {
                failed++;
            } else if (name && *name) {
                struct call *call = &calls[domain - 1][id];
                plain_name(name, call->text);
                call->kind = (uint8_t)kind_of(call->text);
                call->noisy = is_noisy(call->text);
                call->graph = is_of_graphs(call->text);
                failed = 0;
            }
        }
    }
}

uint32_t postrun_cupti_call_id(int domain, const char *name) {
    for (uint32_t id = 1; id < CUPTI_CALLS; id++) {
        if (strcmp(calls[domain - 1][id].text, name) == 0) {
            return id;
        }
    }
    return 0;
}

void postrun_cupti_switch_noisy_off(const struct cupti *cupti, void *subscriber) {
    for (int domain = CUPTI_DRIVER_API; domain <= CUPTI_RUNTIME_API; domain++) {
        int (*act)(uint32_t, uint8_t) = domain == CUPTI_DRIVER_API ? cupti->driver_api : cupti->runtime_api;
        int (*act_2)(void *, uint32_t, uint8_t) = domain == CUPTI_DRIVER_API ? cupti->driver_api_2 : cupti->runtime_api_2;
        for (uint32_t id = 1; id < CUPTI_CALLS; id++) {
            if (calls[domain - 1][id].noisy && subscriber && act_2) {
                act_2(subscriber, id, 0);
            } else if (calls[domain - 1][id].noisy && !subscriber && act) {
                act(id, 0);
            }
        }
    }
}

static uint32_t name_text(const char *text) { return postrun_name(text, strlen(text)); }

static uint32_t call_name(int domain, uint32_t id, uint8_t *kind, bool *noisy, bool *graph) {
    *kind = CALL_OTHER;
    *noisy = *graph = false;
    struct call *call = id < CUPTI_CALLS ? &calls[domain - 1][id] : NULL;
    if (!call || !call->text[0]) {
        char text[64];
        snprintf(text, sizeof text, "CUDA %s call %u", domain == CUPTI_DRIVER_API ? "driver" : "runtime", id);
        return name_text(text);
    }
    *kind = call->kind;
    *noisy = call->noisy;
    *graph = call->graph;
    uint32_t name = atomic_load_explicit(&call->name, memory_order_relaxed);
    if (!name && !*noisy) {
        name = name_text(call->text);
        atomic_store_explicit(&call->name, name, memory_order_relaxed);
    }
    return name;
}

/* ---------------------------------------------------------------- records */

/* CUPTI reports 0 for an unknown time. A time of another day is from another clock, that of a tool that used CUPTI before, or of WSL:
 * the real time is unknown. */
static bool is_time(const struct device_batch *batch, uint64_t time) {
    return time != 0 && time <= INT64_MAX && (int64_t)time > batch->now - DAY_NS && (int64_t)time < batch->now + DAY_NS;
}

/* Start and duration, in ns. */
static bool times(struct device_batch *batch, uint64_t start, uint64_t end, int64_t *row) {
    if (!is_time(batch, start) || !is_time(batch, end)) {
        batch->untimed++;
        return false;
    }
    batch->negative += end < start;
    row[0] = (int64_t)start;
    row[1] = end < start ? 0 : (int64_t)(end - start);
    return true;
}

static void read_kernel(const struct cupti *cupti, const void *record, size_t room, struct device_batch *batch) {
    struct cupti_kernel k = {0};
    bool nodes = cupti->version >= CUPTI_GRAPH_NODES;
    size_t size = nodes ? sizeof k : offsetof(struct cupti_kernel, graph_node);
    memcpy(&k, record, size < room ? size : room);
    int64_t row[DEVICE_WORDS] = {k.name ? name_text(k.name) : 0,
                                 0,
                                 0,
                                 k.device,
                                 k.context,
                                 k.stream,
                                 k.correlation,
                                 k.grid[0],
                                 k.grid[1],
                                 k.grid[2],
                                 k.block[0],
                                 k.block[1],
                                 k.block[2],
                                 k.registers,
                                 (int64_t)k.static_shared + k.dynamic_shared,
                                 nodes ? (int64_t)k.graph_node : 0};
    batch->graphs |= nodes && k.graph_node != 0;
    if (times(batch, k.start, k.end, row + 1)) {
        postrun_device_add(batch, DEVICE_KERNEL, row);
    }
}

static void add_copy(struct device_batch *batch, const struct cupti_memcpy *m, uint32_t correlation) {
    int64_t pageable = m->source == 0 && m->destination == 0 ? DEVICE_NONE : m->source == PAGEABLE || m->destination == PAGEABLE;
    int64_t row[DEVICE_WORDS] = {0, 0, m->device, m->context, m->stream, correlation, m->copy, (int64_t)m->bytes, pageable};
    if (times(batch, m->start, m->end, row)) {
        postrun_device_add(batch, DEVICE_MEMCPY, row);
    }
}

static void read_call(int domain, const struct cupti_call *c, int threads, struct device_batch *batch) {
    uint8_t kind;
    bool noisy, graph;
    uint32_t name = call_name(domain, c->id, &kind, &noisy, &graph);
    batch->graphs |= graph;
    if (noisy) { /* of a version that cannot switch it off */
        batch->ignored++;
        return;
    }
    int64_t row[DEVICE_WORDS] = {name, 0, 0, c->correlation, kind, threads ? (int64_t)c->thread : DEVICE_NONE};
    if (times(batch, c->start, c->end, row + 1)) {
        postrun_device_add(batch, DEVICE_API, row);
    }
}

/* The beginning of a record, as much as the buffer has; alignment is not assumed. */
#define COPY(name, type)           \
    struct type name;              \
    memset(&name, 0, sizeof name); \
    memcpy(&name, record, sizeof name < room ? sizeof name : room)

static void read_record(const struct cupti *cupti, const void *record, size_t room, int threads, struct device_batch *batch) {
    uint32_t kind;
    if (room < sizeof kind) {
        batch->unknown++;
        return;
    }
    memcpy(&kind, record, sizeof kind);
    switch (kind) {
    case CUPTI_KERNEL: read_kernel(cupti, record, room, batch); break;
    case CUPTI_MEMCPY: {
        COPY(m, cupti_memcpy);
        add_copy(batch, &m, m.correlation);
        break;
    }
    case CUPTI_MEMCPY_PEER: {
        COPY(p, cupti_memcpy_peer);
        struct cupti_memcpy m = {p.kind,  p.copy, p.source, p.destination, p.flags,  p.bytes,
                                 p.start, p.end,  p.device, p.context,     p.stream, 0};
        add_copy(batch, &m, p.correlation);
        break;
    }
    case CUPTI_MEMSET: {
        COPY(m, cupti_memset);
        int64_t row[DEVICE_WORDS] = {0, 0, m.device, m.context, m.stream, m.correlation, (int64_t)m.bytes};
        if (times(batch, m.start, m.end, row)) {
            postrun_device_add(batch, DEVICE_MEMSET, row);
        }
        break;
    }
    case CUPTI_SYNCHRONIZATION: { /* its device is that of the context */
        COPY(s, cupti_sync);
        int64_t stream = s.stream == UINT32_MAX ? DEVICE_NONE : (int64_t)s.stream;
        int64_t row[DEVICE_WORDS] = {0, 0, DEVICE_NONE, s.context, stream, s.correlation, s.type};
        if (times(batch, s.start, s.end, row)) {
            postrun_device_add(batch, DEVICE_SYNC, row);
        }
        break;
    }
    case CUPTI_DRIVER:
    case CUPTI_RUNTIME: {
        COPY(c, cupti_call);
        read_call(kind == CUPTI_DRIVER ? CUPTI_DRIVER_API : CUPTI_RUNTIME_API, &c, threads, batch);
        break;
    }
    case CUPTI_EXTERNAL: {
        COPY(e, cupti_external);
        int64_t row[DEVICE_WORDS] = {e.correlation, e.external_kind, (int64_t)e.external};
        postrun_device_add(batch, DEVICE_EXTERNAL, row);
        break;
    }
    case CUPTI_CONTEXT: {
        COPY(c, cupti_context);
        int64_t row[DEVICE_WORDS] = {c.context, c.device};
        postrun_device_add(batch, DEVICE_CONTEXT, row);
        break;
    }
    case CUPTI_OVERHEAD: batch->overhead++; break;
    case CUPTI_CUDA_EVENT: break; /* before CUDA 12.9 they occur with the kind SYNCHRONIZATION */
    default: batch->unknown++;
    }
}

void postrun_cupti_read(const struct cupti *cupti, void *subscriber, uint8_t *buffer, size_t valid, int threads,
                        struct device_batch *batch) {
    const uint8_t *before = NULL;
    batch->now = postrun_clock_realtime();
    for (void *record = NULL; valid > 0;) {
        int error = subscriber ? cupti->next_record_2(subscriber, buffer, valid, &record) : cupti->next_record(buffer, valid, &record);
        if (error) {
            batch->dropped += error != CUPTI_MAX_LIMIT_REACHED; /* the rest of the buffer: the number is unknown */
            return;
        }
        const uint8_t *at = record;
        if (!at || at < buffer || at >= buffer + valid || (before && at <= before)) { /* runs in a circle */
            batch->dropped++;
            return;
        }
        before = at;
        read_record(cupti, at, (size_t)(buffer + valid - at), threads, batch);
    }
}
