/* cupti_attach.c - attaches CUPTI to the process and detaches it.
 *
 * A window holds the subscription to CUPTI, so no other client takes over CUPTI unnoticed. If one does, CUPTI is not called again. All
 * kinds of records are disabled after a window. From CUDA 13.0, CUPTI then stays in the process. Earlier versions are detached at the end
 * of a driver call that is made for this purpose, as the vendor advises. */
#define _GNU_SOURCE
#include "cupti_attach.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/capture.h"
#include "core/clock.h"
#include "cupti_buffers.h"
#include "cupti_loader.h"
#include "cupti_records.h"
#include "cupti_subscription.h"
#include "device_rows.h"

struct kind {
    int kind;
    const char *name; /* NULL: not reported if it is missing */
};
/* GRAPH_TRACE is not among them: it replaces the records of single kernels. */
static const struct kind kinds[] = {
    {CUPTI_KERNEL, "kernels"},
    {CUPTI_MEMCPY, "memcpy"},
    {CUPTI_MEMSET, "memset"},
    {CUPTI_MEMCPY_PEER, "memcpy_peer"},
    {CUPTI_RUNTIME, "runtime"},
    {CUPTI_DRIVER, "driver"},
    {CUPTI_SYNCHRONIZATION, "synchronization"},
    {CUPTI_EXTERNAL, NULL},
    {CUPTI_CONTEXT, NULL},
    {CUPTI_OVERHEAD, NULL},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static const struct cupti *cupti; /* set before the callbacks are given away, and kept */
static bool enabled[KINDS];
static _Atomic int system_threads; /* attach stores it; the callback with records and detach read it */
static _Atomic uint64_t declined, dropped_told; /* buffers; records: CUPTI's callbacks count, the GPU thread reads */
static _Atomic bool graphs;                     /* the program uses CUDA graphs: the callback with records sets it, detach reads it */
static bool clock_set;                          /* in this process, once */
static uint32_t attached;                       /* how often */

enum wish { UNSET, NO, YES };
static struct { /* of the environment */
    _Atomic enum wish stay, teardown; /* stored on threads of the program, read by detach */
    enum wish clock;
} wishes;

static enum wish wish(const char *name) {
    const char *text = getenv(name);
    return !text || !*text ? UNSET : strcmp(text, "0") == 0 ? NO : YES;
}

void postrun_cupti_environment(void) {
    postrun_subscription_environment();
    wishes.clock = wish("POSTRUN_CUPTI_CLOCK");
    atomic_store(&wishes.stay, wish("POSTRUN_CUPTI_STAY"));
    postrun_cupti_teardown();
}

void postrun_cupti_teardown(void) { atomic_store(&wishes.teardown, wish("TEARDOWN_CUPTI")); }

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
    void *subscriber = postrun_subscription_shared();
    int error = subscriber       ? cupti->dropped_2(subscriber, context, stream, &records)
                : cupti->dropped ? cupti->dropped(context, stream, &records)
                                 : 1;
    if (error) {
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
        int threads = atomic_load_explicit(&system_threads, memory_order_relaxed);
        postrun_cupti_read(cupti, postrun_subscription_shared(), buffer, valid, threads, &batch);
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

static void requested_2(uint8_t **buffer, size_t *size, size_t *records, const void *information) {
    (void)information;
    requested(buffer, size, records);
}

/* Without a subscription its records can no longer be read. */
static void completed_2(uint8_t *buffer, size_t size, size_t valid, const void *information) {
    (void)information;
    if (postrun_subscription_shared()) {
        completed(NULL, 0, buffer, size, valid);
        return;
    }
    if (buffer && postrun_buffer_origin(buffer) == BUFFER_OWN) {
        postrun_buffer_put(buffer);
    }
    if (buffer && valid) {
        postrun_device_rows_lost(1);
    }
}

static uint64_t timestamp(void) { return (uint64_t)postrun_clock_realtime(); }

/* ---------------------------------------------------------------- the functions of one client, or of one of several */

static int enable_kind(int kind) {
    void *subscriber = postrun_subscription_shared();
    return subscriber ? cupti->enable_2(subscriber, kind, NULL) : cupti->enable(kind);
}

static void disable_all(void) {
    void *subscriber = postrun_subscription_shared();
    for (size_t i = KINDS; i-- > 0;) {
        if (enabled[i] && subscriber) {
            cupti->disable_2(subscriber, kinds[i].kind, NULL);
        } else if (enabled[i]) {
            cupti->disable(kinds[i].kind);
        }
        enabled[i] = false;
    }
}

static int register_callbacks(void) {
    void *subscriber = postrun_subscription_shared();
    return subscriber ? cupti->register_callbacks_2(subscriber, requested_2, completed_2) : cupti->register_callbacks(requested, completed);
}

/* False: this version cannot. */
static bool set_shared(int attribute, const void *value, size_t size) {
    size_t length = size;
    uint8_t copy[sizeof(void *)];
    memcpy(copy, value, size);
    return cupti->set_attribute_2(postrun_subscription_shared(), attribute, &length, copy) == 0;
}

static bool take_system_threads(void) {
    int32_t type = CUPTI_THREAD_ID_SYSTEM;
    if (postrun_subscription_shared()) {
        return set_shared(CUPTI_ATTRIBUTE_THREAD_IDS, &type, sizeof type);
    }
    return cupti->thread_id_type && cupti->thread_id_type(type) == 0;
}

/* ---------------------------------------------------------------- the clock */

static bool is_wsl(void) {
    char release[256] = "";
    FILE *file = fopen("/proc/sys/kernel/osrelease", "re");
    if (file) {
        release[fread(release, 1, sizeof release - 1, file)] = 0;
        fclose(file);
    }
    return strcasestr(release, "microsoft") || access("/dev/dxg", F_OK) == 0;
}

/* CUPTI takes the system's clock by itself, but not under WSL, nor if another client gave it another one. In some versions each callback
 * that is registered costs kernels their times. */
static void set_clock(void) {
    if (wishes.clock == NO) {
        return;
    }
    bool needed = wishes.clock == YES || is_wsl();
    uint64_t (*function)(void) = timestamp;
    if (postrun_subscription_shared()) { /* each subscription has its own clock */
        clock_set |= needed && set_shared(CUPTI_ATTRIBUTE_CLOCK, &function, sizeof function);
    } else if (!clock_set && cupti->timestamp && (needed || cupti->version >= CUPTI_CLOCK_WORKS)) {
        clock_set = cupti->timestamp(function) == 0;
    }
}

/* ---------------------------------------------------------------- attach and detach */

static void tell_other(const char *other, char *why, size_t size) { snprintf(why, size, "another profiler uses CUPTI: %s", other); }

/* Why it has to stay in the process, with all kinds disabled. NULL: it need not. */
static const char *has_to_stay(void) {
    enum wish stay = atomic_load(&wishes.stay), teardown = atomic_load(&wishes.teardown);
    if (!cupti->finalize) {
        return "this CUPTI cannot be detached";
    }
    if (cupti->version < CUPTI_GRAPHS_SURVIVE && atomic_load(&graphs)) {
        return "the program uses CUDA graphs, and before CUDA 12.6 it may crash when CUPTI comes back after it was detached";
    }
    if (postrun_subscription_shared()) {
        return "other profilers may use it at the same time";
    }
    if (clock_set && cupti->version >= CUPTI_GRAPHS_SURVIVE && cupti->version < CUPTI_CLOCK_WORKS) {
        return "its clock was set, which this version bears only once";
    }
    if (stay != UNSET) {
        return stay == YES ? "POSTRUN_CUPTI_STAY=1" : NULL;
    }
    if (teardown != UNSET) { /* PyTorch sets it to 0 if it compiles to CUDA graphs */
        return teardown == NO ? "TEARDOWN_CUPTI=0" : NULL;
    }
    return cupti->version >= CUPTI_13 ? "from CUDA 13.0 on it stays, with nothing enabled, as detaching it is less reliable" : NULL;
}

static void leave(void) {
    const char *stays = has_to_stay();
    if (stays) {
        postrun_metadata("cupti.stays", stays);
        if (atomic_load(&system_threads) && !postrun_subscription_shared()) {
            cupti->thread_id_type(CUPTI_THREAD_ID_DEFAULT); /* as other clients expect it */
        }
        postrun_unsubscribe(cupti);
        return;
    }
    int error = postrun_unsubscribe_and(cupti, cupti->finalize);
    if (error) {
        char text[480];
        postrun_cupti_tell_error(cupti, "cuptiFinalize", error, text, sizeof text);
        postrun_metadata("cupti.stays", text);
    } else {
        postrun_buffers_abandon();
    }
}

static bool fail(void) {
    disable_all();
    leave();
    postrun_buffers_trim();
    postrun_device_rows_close(postrun_clock_realtime());
    return false;
}

static bool enable_kinds(char *why, size_t size) {
    for (size_t i = 0; i < KINDS; i++) {
        char text[480];
        int error = enable_kind(kinds[i].kind);
        enabled[i] = error == 0;
        if (error == 0) {
            continue;
        }
        if (error == CUPTI_OTHER_SUBSCRIBER) {
            char other[128];
            postrun_subscription_guess(other, sizeof other);
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

#define NOT_SUBSCRIBED (-1)

/* The calls before anything is enabled: 0, an error of CUPTI, or NOT_SUBSCRIBED, as in `other`. */
static int prepare(char *other, size_t size) {
    if (postrun_subscribe(cupti, other, size) == CUPTI_OTHER_SUBSCRIBER) {
        return NOT_SUBSCRIBED;
    }
    atomic_store(&system_threads, take_system_threads());
    set_clock();
    return register_callbacks();
}

bool postrun_cupti_attach(char *why, size_t size) {
    const struct cupti *library = postrun_cupti(why, size);
    if (!library) {
        return false;
    }
    if (!cupti) { /* late callbacks may be reading it */
        cupti = library;
    }
    if (cupti->version == CUPTI_13) {
        snprintf(why, size,
                 "this CUPTI is of CUDA 13.0 without an update (13.0.48), which can hang or crash the program: Update 1 does not"
                 " (pip install \"nvidia-cuda-cupti>=13.0.85\")");
        return false;
    }
    postrun_cupti_learn_calls(cupti);
    char other[128];
    int error = prepare(other, sizeof other);
    if (error && postrun_subscription_shared()) { /* some versions refuse the callbacks of a second subscription */
        postrun_unsubscribe(cupti);
        postrun_subscription_never_shared();
        error = prepare(other, sizeof other);
    }
    if (error == NOT_SUBSCRIBED) {
        tell_other(other, why, size);
        return false;
    }
    int64_t now = postrun_clock_realtime();
    postrun_device_rows_open(now);
    postrun_device_rows_check_launches(attached > 0 && cupti->version < CUPTI_GRAPH_LAUNCHES ? now : INT64_MAX);
    if (error) {
        if (error == CUPTI_OTHER_SUBSCRIBER) {
            postrun_subscription_guess(other, sizeof other);
            tell_other(other, why, size);
        } else {
            postrun_cupti_tell_error(cupti, "cuptiActivityRegisterCallbacks", error, why, size);
        }
        return fail();
    }
    if (!enable_kinds(why, size)) {
        return fail();
    }
    attached++;
    atomic_store(&declined, 0);
    atomic_store(&dropped_told, 0);
    postrun_cupti_switch_noisy_off(cupti, postrun_subscription_shared());
    char version[32];
    snprintf(version, sizeof version, "%u", cupti->version);
    postrun_metadata("cupti.version", version);
    postrun_metadata("cupti.library", cupti->path);
    if (cupti->version == CUPTI_12_4) {
        postrun_metadata("cupti.warning",
                         "CUPTI of CUDA 12.4 records no kernels in some programs: that of CUDA 12.5 Update 1 or newer does");
    }
    return true;
}

bool postrun_cupti_lasts(void) { return postrun_subscription_lasts(); }

void postrun_cupti_flush(void) { cupti->flush_all(0); }

/* Losses that are not reported yet, because no buffer followed them. */
static void last_losses(void) {
    uint64_t records = dropped(NULL, 0), buffers = atomic_load(&declined);
    if (records == 0 && atomic_load(&dropped_told) == 0) {
        records = buffers; /* at least one each */
    }
    if (records) {
        postrun_device_rows_lost(records);
    }
}

/* Whether other clients record now: a forced flush would take their unfinished records. */
static bool others_record(void) {
    uint32_t ours = 0, all = 0;
    void *subscriber = postrun_subscription_shared();
    return subscriber && cupti->enabled_kinds(subscriber, NULL, NULL, &ours) == 0 && cupti->enabled_kinds(NULL, NULL, NULL, &all) == 0 &&
           all > ours;
}

/* The records that CUPTI still has, finished or not. */
static void flush_rest(void) {
    int error = cupti->flush_all(others_record() ? 0 : CUPTI_FLUSH_FORCED);
    if (error) {
        char why[480], text[400];
        postrun_cupti_tell_error(cupti, "cuptiActivityFlushAll", error, text, sizeof text);
        snprintf(why, sizeof why, "what CUPTI still had at the end is missing: %s", text);
        postrun_session_capability("gpu.records", why);
    }
}

/* Kernels of graphs may name the launch of another one. */
static void tell_graphs(void) {
    if (attached > 1 && cupti->version < CUPTI_GRAPH_LAUNCHES && atomic_load(&graphs)) {
        postrun_session_capability("gpu.graph_launches",
                                   "in all windows but the first, kernels of CUDA graphs may belong to another launch than the one"
                                   " recorded: CUPTI of CUDA 13.1 Update 1 fixes it");
    }
}

void postrun_cupti_detach(bool whole, int64_t end_ns) {
    postrun_device_rows_close(end_ns);
    if (!whole) {
        flush_rest();
        last_losses();
        tell_graphs();
        return;
    }
    cupti->flush_all(0);
    disable_all();
    flush_rest();
    last_losses();
    tell_graphs();
    leave();
    postrun_buffers_trim();
}

void postrun_cupti_lost(int64_t last_ns, char *other, size_t size) {
    postrun_subscription_guess(other, size);
    postrun_subscription_lost();
    postrun_device_rows_close(last_ns);
    memset(enabled, 0, sizeof enabled); /* they may be the other's by now */
    postrun_buffers_abandon();
    tell_graphs();
}

void postrun_cupti_forked(void) {
    memset(enabled, 0, sizeof enabled);
    postrun_subscription_forked();
    postrun_buffers_forked();
}
