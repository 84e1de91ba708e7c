/* cuda_driver.c - loads the CUDA driver and asks it about devices, contexts and completed work. */
#define _GNU_SOURCE
#include "cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/capture.h"
#include "core/clock.h"
#include "core/waiting.h"

/* The names of these in the driver's interface. */
#define NOT_INITIALIZED 3
#define DEINITIALIZED 4
#define MULTIPROCESSOR_COUNT 16
#define CAPABILITY_MAJOR 75
#define CAPABILITY_MINOR 76
#define CAPTURE_RELAXED 2

struct uuid {
    uint8_t bytes[16];
};
static struct {
    int (*init)(unsigned);
    int (*device_count)(int *);
    int (*device_get)(int *, int);
    int (*device_name)(char *, int, int);
    int (*device_uuid)(struct uuid *, int);
    int (*device_memory)(size_t *, int);
    int (*device_attribute)(int *, int, int);
    int (*driver_version)(int *);
    int (*error_name)(int, const char **);
    int (*context_current)(void **);
    int (*context_set)(void *);
    int (*context_synchronize)(void);
    int (*capture_mode)(int *);
} driver;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;
static char load_error[256];
static _Atomic bool used;   /* postrun_cuda_state() sets it, postrun_cuda_used() reads it on any thread */
static _Atomic int devices; /* the same for postrun_cuda_devices() */

static void *symbol(void *library, const char *name, const char *older) {
    void *at = dlsym(library, name);
    return at || !older ? at : dlsym(library, older);
}

/* A function pointer is not an object pointer in C: its bytes are copied, as POSIX allows. */
#define FIND(function, name, older)               \
    do {                                          \
        void *at = symbol(library, name, older);  \
        memcpy(&driver.function, &at, sizeof at); \
    } while (0)

static void load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *error = dlerror();
        snprintf(load_error, sizeof load_error, "no NVIDIA driver: %.200s", error ? error : "libcuda.so.1 cannot be loaded");
        return;
    }
    FIND(init, "cuInit", NULL);
    FIND(device_count, "cuDeviceGetCount", NULL);
    FIND(device_get, "cuDeviceGet", NULL);
    FIND(device_name, "cuDeviceGetName", NULL);
    FIND(device_uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid");
    FIND(device_memory, "cuDeviceTotalMem_v2", NULL);
    FIND(device_attribute, "cuDeviceGetAttribute", NULL);
    FIND(driver_version, "cuDriverGetVersion", NULL);
    FIND(error_name, "cuGetErrorName", NULL);
    FIND(context_current, "cuCtxGetCurrent", NULL);
    FIND(context_set, "cuCtxSetCurrent", NULL);
    FIND(context_synchronize, "cuCtxSynchronize", NULL);
    FIND(capture_mode, "cuThreadExchangeStreamCaptureMode", NULL);
    loaded = driver.init && driver.device_count;
    if (!loaded) {
        snprintf(load_error, sizeof load_error, "the NVIDIA driver lacks cuInit or cuDeviceGetCount");
    }
}

/* Advice to the user for an error. */
static const char *words(int error) {
    switch (error) {
    case 2: return "no memory, on the machine or on the GPU";
    case NOT_INITIALIZED:
        return "CUDA was used before this process was forked: start children with \"spawn\", or use CUDA in children only";
    case 34: return "libcuda.so.1 is the one that programs are built with: leave the folder \"stubs\" out of LD_LIBRARY_PATH";
    case 46: return "the GPU is in use by a process that has it for itself (nvidia-smi -q -d COMPUTE shows the mode)";
    case 100: return "the driver finds no GPU that this process may use: see CUDA_VISIBLE_DEVICES, and whether the container was given any";
    case 101: return "CUDA_VISIBLE_DEVICES names a GPU that is not there";
    case 802: return "the machine is not ready: where GPUs are joined by NVSwitch, the service nvidia-fabricmanager must run";
    case 803: return "the driver in the kernel and libcuda.so.1 are of different versions: restart the machine, or the container";
    case 804: return "this GPU does not run with the package cuda-compat: update the driver, or leave the package out of LD_LIBRARY_PATH";
    case 805: return "the MPS server cannot be reached: it has to run, and CUDA_MPS_PIPE_DIRECTORY to be its folder";
    case 999: return "the driver cannot go on: see nvidia-smi and the kernel's log";
    default: return "";
    }
}

static void tell_error(const char *function, int error, char *why, size_t size) {
    const char *name = NULL;
    if (!driver.error_name || driver.error_name(error, &name) != 0 || !name) {
        name = "unknown error";
    }
    const char *word = words(error);
    snprintf(why, size, "%s: %s (%d)%s%s", function, name, error, *word ? ": " : "", word);
}

enum cuda_state postrun_cuda_state(bool initialize, char *why, size_t size) {
    pthread_once(&once, load);
    if (!loaded) {
        snprintf(why, size, "%s", load_error);
        return CUDA_ABSENT;
    }
    int error = initialize ? driver.init(0) : 0;
    if (error) {
        tell_error("cuInit", error, why, size);
        return CUDA_ABSENT;
    }
    int count = 0;
    error = driver.device_count(&count);
    if ((error == NOT_INITIALIZED || error == DEINITIALIZED) && !initialize) { /* DEINITIALIZED: the program ends */
        return CUDA_NOT_YET;
    }
    if (error) {
        tell_error("cuDeviceGetCount", error, why, size);
        return CUDA_ABSENT;
    }
    atomic_store(&used, true);
    if (count <= 0) {
        snprintf(why, size, "no CUDA device is visible");
        return CUDA_ABSENT;
    }
    atomic_store(&devices, count);
    return CUDA_READY;
}

bool postrun_cuda_used(void) { return atomic_load(&used); }

int postrun_cuda_devices(void) { return atomic_load(&devices); }

int postrun_cuda_version(void) {
    int version = 0;
    return loaded && driver.driver_version && driver.driver_version(&version) == 0 ? version : 0;
}

static void tell(int index, const char *fact, const char *value) {
    char key[64];
    snprintf(key, sizeof key, "cuda.%d.%s", index, fact);
    postrun_metadata(key, value);
}

static void tell_device(int index) {
    char text[256];
    int device, major, minor, value;
    if (driver.device_get(&device, index) != 0) {
        return;
    }
    memset(text, 0, sizeof text);
    if (driver.device_name && driver.device_name(text, sizeof text - 1, device) == 0 && text[0]) {
        tell(index, "name", text);
    }
    struct uuid uuid = {{0}};
    if (driver.device_uuid && driver.device_uuid(&uuid, device) == 0) {
        size_t at = (size_t)snprintf(text, sizeof text, "GPU-");
        for (int i = 0; i < 16; i++) {
            bool dash = i == 4 || i == 6 || i == 8 || i == 10;
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%02x", dash ? "-" : "", uuid.bytes[i]);
        }
        tell(index, "uuid", text);
    }
    size_t bytes;
    if (driver.device_memory && driver.device_memory(&bytes, device) == 0) {
        snprintf(text, sizeof text, "%zu", bytes);
        tell(index, "memory_bytes", text);
    }
    if (!driver.device_attribute) {
        return;
    }
    if (driver.device_attribute(&value, MULTIPROCESSOR_COUNT, device) == 0) {
        snprintf(text, sizeof text, "%d", value);
        tell(index, "sm_count", text);
    }
    if (driver.device_attribute(&major, CAPABILITY_MAJOR, device) == 0 && driver.device_attribute(&minor, CAPABILITY_MINOR, device) == 0) {
        snprintf(text, sizeof text, "%d.%d", major, minor);
        tell(index, "compute_capability", text);
    }
}

void postrun_cuda_tell_devices(void) {
    int version = postrun_cuda_version(), count = postrun_cuda_devices();
    if (version > 0) {
        char text[32];
        snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
        postrun_metadata("cuda.driver_supports", text);
    }
    for (int i = 0; driver.device_get && i < count && i < 64; i++) {
        tell_device(i);
    }
}

void postrun_cuda_call(void) {
    int count;
    driver.device_count(&count);
}

/* ---------------------------------------------------------------- waiting */

/* The driver waits without an end, also for work that never ends (another rank has failed): so a thread of its own does. */
struct waiter {
    void *context;
    _Atomic uint32_t done;    /* wait_for_device() wakes postrun_cuda_wait() with it (waiting.c) */
    _Atomic uint32_t holders; /* both threads; the one that lets go last frees the waiter */
};

static void let_go(struct waiter *waiter) {
    if (atomic_fetch_sub(&waiter->holders, 1) == 1) {
        free(waiter);
    }
}

static void *wait_for_device(void *argument) {
    struct waiter *waiter = argument;
    int mode = CAPTURE_RELAXED; /* so that graphs being captured by other threads are not spoiled */
    if (driver.capture_mode) {
        driver.capture_mode(&mode);
    }
    if (driver.context_set(waiter->context) == 0) {
        driver.context_synchronize();
        driver.context_set(NULL);
    }
    postrun_wake(&waiter->done);
    let_go(waiter);
    return NULL;
}

bool postrun_cuda_wait(int64_t ns) {
    void *context = NULL;
    if (!driver.context_current || !driver.context_set || !driver.context_synchronize || driver.context_current(&context) != 0 ||
        !context) {
        return true;
    }
    struct waiter *waiter = calloc(1, sizeof *waiter);
    if (!waiter) {
        return false;
    }
    waiter->context = context;
    atomic_store(&waiter->holders, 2);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    int error = pthread_create(&thread, &detached, wait_for_device, waiter);
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        free(waiter);
        return false;
    }
    int64_t end = postrun_clock_monotonic() + ns, now;
    while ((now = postrun_clock_monotonic()) < end && atomic_load(&waiter->done) == 0) {
        postrun_wait_keep(&waiter->done, end - now);
    }
    bool done = atomic_load(&waiter->done) != 0;
    let_go(waiter);
    return done;
}
