/* clients.c - another client of CUPTI in the same process: it profiles before, within or after a window, or only listens to calls.
 *
 * Types are declared here, so that no header of CUPTI is needed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>

#include "modes.h"
#include "session.h"

#define KERNEL_KIND 10 /* CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL */
#define DRIVER_API 1   /* CUPTI_CB_DOMAIN_DRIVER_API */
#define LAUNCH_KERNEL 307 /* CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel */
#define BUFFER_BYTES (1u << 20)
#define BUFFERS 256
#define PHASES 8
#define TIMED 2000

static struct {
    int (*subscribe)(void **, void (*)(void *, int, uint32_t, const void *), void *);
    int (*unsubscribe)(void *);
    int (*enable_callback)(uint32_t, void *, int, uint32_t);
    int (*register_callbacks)(void (*)(uint8_t **, size_t *, size_t *), void (*)(void *, uint32_t, uint8_t *, size_t, size_t));
    int (*enable)(int);
    int (*disable)(int);
    int (*flush)(uint32_t);
    int (*next)(uint8_t *, size_t, void **);
    int (*finalize)(void);
} cupti;
static void *subscriber;
static _Atomic long records;
static uint8_t *own[BUFFERS];
static _Atomic int own_count;

static void load(const char *path) {
    static const char *const names[] = {
        "cuptiSubscribe",      "cuptiUnsubscribe",     "cuptiEnableCallback",   "cuptiActivityRegisterCallbacks",
        "cuptiActivityEnable", "cuptiActivityDisable", "cuptiActivityFlushAll", "cuptiActivityGetNextRecord",
        "cuptiFinalize",
    };
    void *library = dlopen(path, RTLD_NOW);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *at = library ? dlsym(library, names[i]) : NULL;
        if (!at) {
            fprintf(stderr, "%s: no %s: %s\n", path, names[i], dlerror());
            exit(72);
        }
        memcpy((char *)&cupti + i * sizeof at, &at, sizeof at);
    }
}

static void listen(void *user, int domain, uint32_t id, const void *data) {
    (void)user;
    (void)domain;
    (void)id;
    (void)data;
}

static void requested(uint8_t **buffer, size_t *size, size_t *most) {
    int index = atomic_fetch_add(&own_count, 1);
    *buffer = index < BUFFERS ? aligned_alloc(8, BUFFER_BYTES) : NULL;
    *size = *buffer ? BUFFER_BYTES : 0;
    *most = 0;
    if (*buffer) {
        own[index] = *buffer;
    }
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)context;
    (void)stream;
    (void)size;
    int mine = 0;
    for (int i = 0; i < BUFFERS && i < atomic_load(&own_count); i++) {
        mine |= own[i] == buffer;
    }
    for (void *record = NULL; mine && valid && cupti.next(buffer, valid, &record) == 0;) {
        uint32_t kind;
        memcpy(&kind, record, sizeof kind);
        atomic_fetch_add(&records, kind == KERNEL_KIND);
    }
}

enum client { LISTENS, PROFILES, SEIZES }; /* SEIZES: profiles without a subscription, and without regard to a subscriber */

/* 0, or why the client cannot do it. */
static int client_begins(enum client how) {
    int error = how == SEIZES ? 0 : cupti.subscribe(&subscriber, listen, NULL);
    if (error != 0) {
        subscriber = NULL;
        return error;
    }
    if (how == LISTENS) {
        return cupti.enable_callback(1, subscriber, DRIVER_API, LAUNCH_KERNEL);
    }
    error = cupti.register_callbacks(requested, completed);
    return error ? error : cupti.enable(KERNEL_KIND);
}

static void client_ends(enum client how, int error, int finalizes) {
    if (error != 0) {
        return;
    }
    if (how != LISTENS) {
        cupti.flush(1);
        cupti.disable(KERNEL_KIND);
        cupti.flush(1);
    }
    if (subscriber) {
        cupti.unsubscribe(subscriber);
        subscriber = NULL;
    }
    if (finalizes) {
        cupti.finalize();
    }
}

static struct {
    int64_t begin, end;
    long launched;
    int window, client;
} phases[PHASES];
static int phase_count;

static void phase(long kernels, int window, int client) {
    phases[phase_count].begin = realtime_ns();
    for (long i = 0; i < kernels; i++) {
        device_launch_small(DEVICE_ALPHA);
    }
    device_synchronize();
    phases[phase_count].end = realtime_ns();
    pause_ms(5); /* so that it is clear to which phase a record belongs */
    phases[phase_count].launched = kernels;
    phases[phase_count].window = window;
    phases[phase_count++].client = client;
}

/* The smallest of five means, in ns: the cost of a launch. */
static double launch_ns(void) {
    double least = 1e18;
    for (int round = 0; round < 5; round++) {
        int64_t begin = program_time(CLOCK_MONOTONIC);
        for (int i = 0; i < TIMED; i++) {
            device_launch_small(DEVICE_BETA);
        }
        double mean = (double)(program_time(CLOCK_MONOTONIC) - begin) / TIMED;
        device_synchronize();
        least = mean < least ? mean : least;
    }
    return least;
}

/* In a window: launches before, while and after the client is there. `yields`: the recorder is asked to make room. */
static int client_inside(enum client how, int yields, int finalizes, long pause) {
    if (yields) {
        postrun_gpu_yield("the client of the suite");
    }
    int error = client_begins(how);
    pause_ms(pause);
    phase(100, 1, error == 0);
    client_ends(how, error, finalizes);
    if (yields) {
        postrun_gpu_yield(NULL);
        pause_ms(pause); /* the window opens again */
    }
    pause_ms(pause);
    phase(100, 1, 0);
    return error;
}

/* clients ORDER LIBRARY FINALIZES PAUSE_MS. ORDER: before, inside, yields (inside, and says so), seizes (inside, without a subscription),
 * stays (until after the window), after, listens (to calls only). */
int mode_clients(int argc, char **argv) {
    if (argc < 5) {
        return 64;
    }
    const char *order = argv[1];
    int finalizes = atoi(argv[3]), error = 0;
    long pause = atol(argv[4]);
    double before = 0, after = 0;
    device_begin();
    load(argv[2]);
    if (strcmp(order, "before") == 0) {
        error = client_begins(PROFILES);
        phase(100, 0, 1);
        client_ends(PROFILES, error, finalizes);
    }
    if (strcmp(order, "listens") == 0) {
        before = launch_ns();
    }
    session_start(POSTRUN_NO_GPU_YET);
    session_window(1);
    phase(100, 1, 0);
    if (strcmp(order, "inside") == 0 || strcmp(order, "yields") == 0) {
        error = client_inside(PROFILES, order[0] == 'y', finalizes, pause);
    } else if (strcmp(order, "seizes") == 0) {
        error = client_inside(SEIZES, 0, finalizes, pause);
    } else if (strcmp(order, "stays") == 0) {
        error = client_begins(PROFILES);
        pause_ms(pause);
        phase(100, 1, error == 0);
    } else if (strcmp(order, "listens") == 0) {
        error = client_begins(LISTENS);
    }
    session_window(0);
    if (strcmp(order, "after") == 0) {
        error = client_begins(PROFILES);
        phase(100, 0, 1);
        client_ends(PROFILES, error, finalizes);
    } else if (strcmp(order, "stays") == 0) {
        session_window(1);
        phase(100, 1, error == 0);
        session_window(0);
        client_ends(PROFILES, error, finalizes);
    } else if (strcmp(order, "listens") == 0) {
        phase(500, 0, 0);
        client_ends(LISTENS, error, 0);
        after = launch_ns();
    }
    session_stop();
    printf("{\"error\": %d, \"client_records\": %ld, \"launch_ns\": [%.1f, %.1f], \"phases\": [", error, atomic_load(&records), before,
           after);
    for (int i = 0; i < phase_count; i++) {
        printf("%s{\"begin\": %" PRId64 ", \"end\": %" PRId64 ", \"launched\": %ld, \"window\": %d, \"client\": %d}", i ? ", " : "",
               phases[i].begin, phases[i].end, phases[i].launched, phases[i].window, phases[i].client);
    }
    printf("]}\n");
    return 0;
}
