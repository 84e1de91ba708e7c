/* cupti_subscription.c - holds the subscription to CUPTI, detects its loss, and names other clients. */
#define _GNU_SOURCE
#include "cupti_subscription.h"

#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_driver.h"
#include "cupti_loader.h"
#include "cupti_records.h"

#define CALL_EXIT 1 /* of callbacks */

static void *held; /* NULL: none */
static void *_Atomic shared; /* the same, if other clients may have one also; postrun_subscribe() stores it, callbacks read it */
static bool listening; /* to the call that postrun_cuda_call makes */
static bool nsight_systems, never_shared, refused_shared; /* refused: by this version */
static const struct cupti *used;
static int (*_Atomic leaving)(void); /* called once, at the end of this thread's next call: called() takes it by exchange */
static _Atomic int leaving_result; /* called() stores it, postrun_unsubscribe_and() reads it */
static _Atomic uint32_t heard;     /* number of calls that called() has seen; cleared and read by the subscribing thread */
static _Thread_local bool calling;

/* ---------------------------------------------------------------- other tools */

struct tool {
    const char *file, *name;
};
static const struct tool tools[] = {
    {"libToolsInjection", "NVIDIA Nsight Systems"},
    {"libcuda-injection", "NVIDIA Nsight Compute"},
    {"libTreeLauncherTargetInjection", "NVIDIA Nsight Compute"},
    {"libsanitizer-collection", "NVIDIA Compute Sanitizer"},
    {"libcudadebugger", "cuda-gdb"},
    {"libkineto", "PyTorch's profiler (Kineto)"},
    {"libtorch_cpu.so", "PyTorch's profiler (Kineto)"},
    {"libproton", "Triton's profiler (Proton)"},
    {"libtensorflow", "TensorFlow's profiler"},
    {"xla_cuda_plugin", "JAX's profiler"},
    {"libTAU", "TAU"},
    {"libscorep", "Score-P"},
};
#define TOOLS (sizeof tools / sizeof *tools)

void postrun_subscription_environment(void) {
    const char *multiple = getenv("POSTRUN_CUPTI_MULTIPLE");
    nsight_systems = getenv("NSYS_PROFILING_SESSION_ID") != NULL;
    never_shared = multiple && strcmp(multiple, "0") == 0;
}

static int look(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    bool *mapped = argument;
    const char *slash = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    for (size_t i = 0; slash && i < TOOLS; i++) {
        if (strncmp(slash + 1, tools[i].file, strlen(tools[i].file)) == 0) {
            mapped[i] = true;
        }
    }
    return 0;
}

void postrun_subscription_guess(char *name, size_t size) {
    bool mapped[TOOLS] = {false};
    dl_iterate_phdr(look, mapped);
    mapped[0] |= nsight_systems;
    for (size_t i = 0; i < TOOLS; i++) {
        if (mapped[i]) {
            snprintf(name, size, "probably %s", tools[i].name);
            return;
        }
    }
    snprintf(name, size, "which one is not known");
}

/* ---------------------------------------------------------------- the callback */

static void called(void *user, int domain, uint32_t id, const void *data) {
    (void)user;
    (void)domain;
    (void)id;
    uint32_t site = 0;
    if (data) {
        memcpy(&site, data, sizeof site);
    }
    if (site != CALL_EXIT) {
        return;
    }
    atomic_fetch_add(&heard, 1);
    int (*act)(void) = calling ? atomic_exchange(&leaving, NULL) : NULL;
    if (act) {
        postrun_unsubscribe(used);
        atomic_store(&leaving_result, act());
    }
}

static void call(void) {
    calling = true;
    postrun_cuda_call();
    calling = false;
}

/* ---------------------------------------------------------------- the subscription */

static int try_to_subscribe(const struct cupti *cupti, bool multiple, char *name, size_t size) {
    *name = 0;
    if (cupti->subscribe_2) {
        struct cupti_subscription wishes = {0, "postrun", name, size, multiple, {0}};
        wishes.size = cupti->version >= CUPTI_MULTIPLE_FIELD ? sizeof wishes : offsetof(struct cupti_subscription, multiple);
        int error = cupti->subscribe_2(&held, called, NULL, &wishes);
        name[size - 1] = 0;
        return error;
    }
    return cupti->subscribe ? cupti->subscribe(&held, called, NULL) : 0;
}

static bool may_share(const struct cupti *cupti) {
    return cupti->version >= CUPTI_MULTIPLE && !never_shared && !refused_shared && cupti->subscribe_2 && cupti->enable_2 &&
           cupti->disable_2 && cupti->register_callbacks_2 && cupti->next_record_2 && cupti->dropped_2 && cupti->set_attribute_2 &&
           cupti->enabled_kinds;
}

int postrun_subscribe(const struct cupti *cupti, char *other, size_t size) {
    char name[64]; /* the vendor's minimum */
    if (held) { /* one that could not be ended */
        return 0;
    }
    used = cupti;
    int error = may_share(cupti) ? try_to_subscribe(cupti, true, name, sizeof name) : 1;
    atomic_store(&shared, error == 0 ? held : NULL);
    if (error) { /* the driver may be too old, or a client that is there refuses others */
        held = NULL;
        error = try_to_subscribe(cupti, false, name, sizeof name);
    }
    if (error) {
        held = NULL;
    }
    if (error == CUPTI_OTHER_SUBSCRIBER && name[0]) {
        snprintf(other, size, "%s", name);
    } else if (error == CUPTI_OTHER_SUBSCRIBER) {
        postrun_subscription_guess(other, size);
    }
    uint32_t id = postrun_cupti_call_id(CUPTI_DRIVER_API, "cuDeviceGetCount");
    listening = held && id && cupti->enable_callback && cupti->enable_callback(1, held, CUPTI_DRIVER_API, id) == 0;
    listening = listening && (call(), atomic_exchange(&heard, 0) > 0); /* only a notification that worked once can stop */
    return error;
}

bool postrun_subscription_lasts(void) {
    if (!held || !listening) {
        return true;
    }
    atomic_store(&heard, 0);
    call();
    return atomic_load(&heard) > 0;
}

void *postrun_subscription_shared(void) { return atomic_load(&shared); }

void postrun_subscription_never_shared(void) { refused_shared = true; }

void postrun_unsubscribe(const struct cupti *cupti) {
    if (held && cupti->unsubscribe && cupti->unsubscribe(held) == 0) {
        postrun_subscription_lost();
    }
}

int postrun_unsubscribe_and(const struct cupti *cupti, int (*act)(void)) {
    int result;
    bool done = false;
    if (held && listening) {
        atomic_store(&leaving, act);
        call();
        done = !atomic_exchange(&leaving, NULL);
    }
    if (done) {
        result = atomic_load(&leaving_result);
    } else {
        postrun_unsubscribe(cupti);
        result = act();
    }
    if (result == 0) { /* with CUPTI its subscriptions go */
        postrun_subscription_lost();
    }
    return result;
}

void postrun_subscription_lost(void) {
    held = NULL;
    atomic_store(&shared, NULL);
    listening = false;
}

void postrun_subscription_forked(void) { postrun_subscription_lost(); }
