/* cupti_attach.c - how does CUPTI come into the process, and out again?
 *
 * Only one tool can use it at a time, and none is locked out longer than needed: whether another one is there is asked by subscribing for
 * a moment. Detaching follows the vendor's advice: it is done at the end of a call into the driver, one that is made for it. */
#define _GNU_SOURCE
#include "cupti_attach.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
#include "clock.h"
#include "cuda_driver.h"
#include "cupti_buffers.h"
#include "cupti_loader.h"
#include "cupti_records.h"
#include "device_rows.h"

#define CALL_EXIT 1 /* of callbacks */

struct kind {
    int kind;
    const char *name; /* NULL: not worth a word where it is missing */
};
/* GRAPH_TRACE is not among them: with it there are no records of single kernels. */
static const struct kind kinds[] = {
    {CUPTI_KERNEL, "kernels"}, {CUPTI_MEMCPY, "memcpy"}, {CUPTI_MEMSET, "memset"}, {CUPTI_MEMCPY_PEER, "memcpy_peer"},
    {CUPTI_RUNTIME, "runtime"}, {CUPTI_DRIVER, "driver"}, {CUPTI_SYNCHRONIZATION, "synchronization"},
    {CUPTI_EXTERNAL, NULL}, {CUPTI_CONTEXT, NULL}, {CUPTI_OVERHEAD, NULL},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static const struct cupti *cupti; /* set before the callbacks are given away, and kept */
static bool enabled[KINDS];
static _Atomic int system_threads;
static _Atomic uint64_t declined, dropped_told; /* buffers; records */
static bool own_left; /* a subscription of ours that could not be ended */
static _Atomic bool graphs; /* the program uses CUDA graphs */
static _Atomic int finalize_error;
static _Atomic uint32_t finalized; /* 0: not asked for, 1: asked for, 2: done */

/* ---------------------------------------------------------------- callbacks */

static void requested(uint8_t **buffer, size_t *size, size_t *records) {
    *records = 0;
    *buffer = postrun_buffer_get(size, cupti->version >= CUPTI_MAY_DECLINE);
    if (!*buffer) {
        atomic_fetch_add(&declined, 1);
    }
}

static uint64_t dropped(void *context, uint32_t stream) {
    size_t records = 0;
    if (!cupti->dropped || cupti->dropped(context, stream, &records) != 0) {
        return 0;
    }
    atomic_fetch_add(&dropped_told, records);
    return records;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    if (!buffer) {
        return;
    }
    struct device_batch batch = {0};
    enum buffer_origin origin = postrun_buffer_origin(buffer);
    if (origin != BUFFER_OWN) {
        batch.dropped += valid > 0;
    } else if (valid > 0 && valid <= size) {
        postrun_cupti_read(cupti, buffer, valid, atomic_load_explicit(&system_threads, memory_order_relaxed), &batch);
    }
    if (batch.graphs) {
        atomic_store(&graphs, true);
    }
    batch.dropped += dropped(context, stream);
    postrun_device_rows_put(&batch);
    if (origin == BUFFER_OWN) {
        postrun_buffer_put(buffer);
    }
}

/* What CUPTI takes by itself, but under WSL; and not what a tool told it that used it before. */
static uint64_t timestamp(void) { return (uint64_t)postrun_clock_realtime(); }

static void nothing(void *user, int domain, uint32_t id, const void *data) {
    (void)user;
    (void)domain;
    (void)id;
    (void)data;
}

static void leaving(void *user, int domain, uint32_t id, const void *data) {
    (void)user;
    (void)domain;
    (void)id;
    uint32_t site = 0, asked = 1;
    if (data) {
        memcpy(&site, data, sizeof site);
    }
    if (site == CALL_EXIT && atomic_compare_exchange_strong(&finalized, &asked, 2)) {
        atomic_store(&finalize_error, cupti->finalize());
    }
}

/* ---------------------------------------------------------------- other tools */

struct tool {
    const char *file, *variable, *name;
};
static const struct tool tools[] = {
    {"libToolsInjection", NULL, "NVIDIA Nsight Systems"},
    {NULL, "NSYS_PROFILING_SESSION_ID", "NVIDIA Nsight Systems"},
    {"libcuda-injection", NULL, "NVIDIA Nsight Compute"},
    {"libTreeLauncherTargetInjection", NULL, "NVIDIA Nsight Compute"},
    {"libsanitizer-collection", NULL, "NVIDIA Compute Sanitizer"},
    {"libcudadebugger", NULL, "cuda-gdb"},
    {"libkineto", NULL, "PyTorch's profiler (Kineto)"},
    {"libtorch_cpu.so", NULL, "PyTorch's profiler (Kineto)"},
    {"libproton", NULL, "Triton's profiler (Proton)"},
    {"libtensorflow", NULL, "TensorFlow's profiler"},
    {"xla_cuda_plugin", NULL, "JAX's profiler"},
    {"libTAU", NULL, "TAU"},
    {"libscorep", NULL, "Score-P"},
};

static int look(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    bool *mapped = argument;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    for (size_t i = 0; slash && i < sizeof tools / sizeof *tools; i++) {
        if (tools[i].file && strncmp(slash + 1, tools[i].file, strlen(tools[i].file)) == 0) {
            mapped[i] = true;
        }
    }
    return 0;
}

static void guess_other(char *name, size_t size) {
    bool mapped[sizeof tools / sizeof *tools] = {false};
    dl_iterate_phdr(look, mapped);
    for (size_t i = 0; i < sizeof tools / sizeof *tools; i++) {
        if (mapped[i] || (tools[i].variable && getenv(tools[i].variable))) {
            snprintf(name, size, "probably %s", tools[i].name);
            return;
        }
    }
    snprintf(name, size, "which one is not known");
}

static void name_other(const char *told, char *name, size_t size) {
    if (told && told[0]) {
        snprintf(name, size, "%.63s", told);
    } else {
        guess_other(name, size);
    }
}

static int subscribe(void **subscriber, cupti_callback callback, char *other, size_t size) {
    char told[64] = "";
    int error = 0;
    *subscriber = NULL;
    if (cupti->subscribe_2) {
        struct cupti_subscription wishes = {sizeof wishes, "postrun", told, sizeof told};
        error = cupti->subscribe_2(subscriber, callback, NULL, &wishes);
    } else if (cupti->subscribe) {
        error = cupti->subscribe(subscriber, callback, NULL);
    }
    told[sizeof told - 1] = 0;
    if (error == CUPTI_OTHER_SUBSCRIBER && own_left) {
        *subscriber = NULL;
        return 0;
    }
    if (error == CUPTI_OTHER_SUBSCRIBER) {
        name_other(told, other, size);
    }
    return error;
}

static void unsubscribe(void *subscriber) {
    if (subscriber && cupti->unsubscribe && cupti->unsubscribe(subscriber) != 0) {
        own_left = true;
    }
}

/* Whether another tool has subscribed. */
static bool other_is_there(char *other, size_t size) {
    void *subscriber;
    int error = subscribe(&subscriber, nothing, other, size);
    if (error == 0) {
        unsubscribe(subscriber);
    }
    return error == CUPTI_OTHER_SUBSCRIBER;
}

static void tell_other(const char *other, char *why, size_t size) { snprintf(why, size, "another profiler uses CUPTI: %s", other); }

/* ---------------------------------------------------------------- attach and detach */

static void disable_all(void) {
    for (size_t i = KINDS; i-- > 0;) {
        if (enabled[i]) {
            cupti->disable(kinds[i].kind);
            enabled[i] = false;
        }
    }
}

/* Why it has to stay in the process, with all kinds disabled. NULL: it need not. */
static const char *has_to_stay(void) {
    const char *wish = getenv("TEARDOWN_CUPTI"); /* PyTorch sets it to 0 where it compiles to CUDA graphs */
    if (!cupti->finalize) {
        return "this CUPTI cannot be detached";
    }
    if (cupti->version < CUPTI_GRAPHS_SURVIVE && atomic_load(&graphs)) {
        return "the program uses CUDA graphs, and before CUDA 12.6 it may crash when CUPTI comes back after it was detached";
    }
    return wish && strcmp(wish, "0") == 0 ? "TEARDOWN_CUPTI=0" : NULL;
}

/* Out of the process: at the end of a call into the driver, else, where none can be listened to, right away. */
static void finalize(void) {
    char other[128];
    const char *stays = has_to_stay();
    if (stays) {
        postrun_metadata("cupti.stays", stays);
        return;
    }
    uint32_t id = postrun_cupti_call_id(CUPTI_DRIVER_API, "cuDeviceGetCount");
    void *subscriber;
    atomic_store(&finalized, 1);
    int error = subscribe(&subscriber, leaving, other, sizeof other);
    if (error == CUPTI_OTHER_SUBSCRIBER) {
        return;
    }
    bool listens = error == 0 && subscriber && id && cupti->enable_callback;
    if (listens && cupti->enable_callback(1, subscriber, CUPTI_DRIVER_API, id) == 0) {
        postrun_cuda_call();
    }
    uint32_t asked = 1;
    if (atomic_compare_exchange_strong(&finalized, &asked, 2)) {
        if (error == 0) {
            unsubscribe(subscriber);
        }
        atomic_store(&finalize_error, cupti->finalize());
    } else if (atomic_load(&finalize_error)) {
        unsubscribe(subscriber);
    }
    if (atomic_load(&finalize_error)) {
        char text[480];
        postrun_cupti_tell_error(cupti, "cuptiFinalize", atomic_load(&finalize_error), text, sizeof text);
        postrun_metadata("cupti.stays", text);
    }
    own_left = own_left && atomic_load(&finalize_error) != 0; /* with CUPTI its subscribers go */
    if (atomic_load(&finalize_error) == 0) {
        postrun_buffers_abandon();
    }
}

static bool fail(void) {
    disable_all();
    finalize();
    postrun_buffers_trim();
    return false;
}

static bool enable_kinds(char *why, size_t size) {
    for (size_t i = 0; i < KINDS; i++) {
        char text[480];
        int error = cupti->enable(kinds[i].kind);
        enabled[i] = error == 0;
        if (error == 0) {
            continue;
        }
        if (error == CUPTI_OTHER_SUBSCRIBER) {
            char other[128];
            guess_other(other, sizeof other);
            tell_other(other, text, sizeof text);
        } else {
            postrun_cupti_tell_error(cupti, "cuptiActivityEnable", error, text, sizeof text);
        }
        if (kinds[i].kind == CUPTI_KERNEL) {
            snprintf(why, size, "%s", text);
            return false;
        }
        if (kinds[i].name) {
            char key[64];
            snprintf(key, sizeof key, "gpu.%s", kinds[i].name);
            postrun_session_capability(key, text);
        }
    }
    return true;
}

bool postrun_cupti_attach(char *why, size_t size) {
    const struct cupti *library = postrun_cupti(why, size);
    if (!library) {
        return false;
    }
    if (!cupti) { /* callbacks that come late may be looking */
        cupti = library;
    }
    postrun_cupti_learn_calls(cupti);
    char other[128];
    if (other_is_there(other, sizeof other)) {
        tell_other(other, why, size);
        return false;
    }
    int error = cupti->thread_id_type ? cupti->thread_id_type(CUPTI_THREAD_ID_SYSTEM) : 1;
    atomic_store(&system_threads, error == 0);
    if (cupti->timestamp) { /* before any kind is enabled */
        cupti->timestamp(timestamp);
    }
    error = cupti->register_callbacks(requested, completed);
    if (error) {
        if (error == CUPTI_OTHER_SUBSCRIBER) {
            guess_other(other, sizeof other);
            tell_other(other, why, size);
        } else {
            postrun_cupti_tell_error(cupti, "cuptiActivityRegisterCallbacks", error, why, size);
        }
        return fail();
    }
    if (!enable_kinds(why, size)) {
        return fail();
    }
    atomic_store(&declined, 0);
    atomic_store(&dropped_told, 0);
    postrun_cupti_noisy(CUPTI_DRIVER_API, cupti->driver_api);
    postrun_cupti_noisy(CUPTI_RUNTIME_API, cupti->runtime_api);
    char version[32];
    snprintf(version, sizeof version, "%u", cupti->version);
    postrun_metadata("cupti.version", version);
    postrun_metadata("cupti.library", cupti->path);
    return true;
}

void postrun_cupti_flush(void) { cupti->flush_all(0); }

/* What was lost and is not told yet, as no buffer came after it. */
static void last_losses(void) {
    uint64_t records = dropped(NULL, 0), buffers = atomic_load(&declined);
    if (records == 0 && atomic_load(&dropped_told) == 0) {
        records = buffers; /* at least one each */
    }
    if (records) {
        postrun_device_rows_lost(records);
    }
}

/* What CUPTI still has, finished or not. */
static void flush_rest(void) {
    int error = cupti->flush_all(CUPTI_FLUSH_FORCED);
    if (error) {
        char why[480], text[400];
        postrun_cupti_tell_error(cupti, "cuptiActivityFlushAll", error, text, sizeof text);
        snprintf(why, sizeof why, "what CUPTI still had at the end is missing: %s", text);
        postrun_session_capability("gpu.records", why);
    }
}

bool postrun_cupti_detach(bool whole, char *other, size_t size) {
    if (!whole) {
        flush_rest();
        last_losses();
        return true;
    }
    if (other_is_there(other, size)) {
        memset(enabled, 0, sizeof enabled); /* they may be the other's by now */
        postrun_buffers_abandon(); /* it gets them now, and does not know them */
        return false;
    }
    cupti->flush_all(0);
    disable_all();
    flush_rest();
    last_losses();
    finalize();
    postrun_buffers_trim();
    return true;
}

void postrun_cupti_forked(void) {
    memset(enabled, 0, sizeof enabled);
    postrun_buffers_forked();
}
