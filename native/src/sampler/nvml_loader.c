/* nvml_loader.c - loads NVML, the driver's library for managing GPUs, if it is installed.
 *
 * Lists of processes are never requested: the driver holds its lock for milliseconds meanwhile. */
#include "nvml_loader.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct nvml functions;
static int loaded;
static char problem[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
    size_t place;
    const char *name, *older; /* names that the function has in older drivers */
    int needed;
} wanted[] = {
    {offsetof(struct nvml, init), "nvmlInit_v2", "nvmlInit", 1},
    {offsetof(struct nvml, shutdown), "nvmlShutdown", NULL, 1},
    {offsetof(struct nvml, driver_version), "nvmlSystemGetDriverVersion", NULL, 0},
    {offsetof(struct nvml, count), "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount", 1},
    {offsetof(struct nvml, handle), "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex", 1},
    {offsetof(struct nvml, uuid), "nvmlDeviceGetUUID", NULL, 0},
    {offsetof(struct nvml, name), "nvmlDeviceGetName", NULL, 0},
    {offsetof(struct nvml, utilization), "nvmlDeviceGetUtilizationRates", NULL, 0},
    {offsetof(struct nvml, memory), "nvmlDeviceGetMemoryInfo", NULL, 0},
    {offsetof(struct nvml, memory_v2), "nvmlDeviceGetMemoryInfo_v2", NULL, 0},
    {offsetof(struct nvml, power), "nvmlDeviceGetPowerUsage", NULL, 0},
    {offsetof(struct nvml, clock), "nvmlDeviceGetClockInfo", NULL, 0},
    {offsetof(struct nvml, throttle_reasons), "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", 0},
    {offsetof(struct nvml, temperature), "nvmlDeviceGetTemperature", NULL, 0},
    {offsetof(struct nvml, fields), "nvmlDeviceGetFieldValues", NULL, 0},
    {offsetof(struct nvml, event_set), "nvmlEventSetCreate", NULL, 0},
    {offsetof(struct nvml, register_events), "nvmlDeviceRegisterEvents", NULL, 0},
    {offsetof(struct nvml, wait_event), "nvmlEventSetWait_v2", NULL, 0}, /* the older one has a shorter structure */
    {offsetof(struct nvml, free_event_set), "nvmlEventSetFree", NULL, 0},
    {offsetof(struct nvml, mig_mode), "nvmlDeviceGetMigMode", NULL, 0},
    {offsetof(struct nvml, mig_count), "nvmlDeviceGetMaxMigDeviceCount", NULL, 0},
    {offsetof(struct nvml, mig_handle), "nvmlDeviceGetMigDeviceHandleByIndex", NULL, 0},
};

static void load(void) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        int missing = !why || strstr(why, "No such file") != NULL;
        snprintf(problem, sizeof problem, "%s", missing ? "no libnvidia-ml.so.1 on this machine: no driver of NVIDIA GPUs" : why);
        return;
    }
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        void *at = dlsym(library, wanted[i].name);
        if (!at && wanted[i].older) {
            at = dlsym(library, wanted[i].older);
        }
        if (!at && wanted[i].needed) {
            snprintf(problem, sizeof problem, "libnvidia-ml.so.1 has no %s", wanted[i].name);
            dlclose(library);
            return;
        }
        /* A function pointer is not an object pointer in C: its bytes are copied, as POSIX allows. */
        memcpy((char *)&functions + wanted[i].place, &at, sizeof at);
    }
    loaded = 1;
}

const struct nvml *postrun_nvml(const char **why) {
    pthread_once(&once, load);
    *why = problem;
    return loaded ? &functions : NULL;
}

const char *postrun_nvml_error(int code) {
    switch (code) {
    case NVML_UNINITIALIZED: return "NVML was shut down by another part of the program";
    case NVML_INVALID_ARGUMENT: return "the driver does not know the device or the question";
    case NVML_NOT_SUPPORTED: return "not supported";
    case NVML_NO_PERMISSION: return "not permitted to this user";
    case NVML_NOT_FOUND: return "not found";
    case NVML_INSUFFICIENT_POWER: return "its power cables are not attached properly";
    case NVML_DRIVER_NOT_LOADED: return "the NVIDIA driver is not loaded";
    case NVML_TIMED_OUT: return "no answer in time";
    case NVML_IRQ_ISSUE: return "the kernel has trouble with its interrupts";
    case NVML_LIBRARY_NOT_FOUND: return "a library of the driver is missing";
    case NVML_FUNCTION_NOT_FOUND: return "the driver is too old for it";
    case NVML_GPU_IS_LOST: return "has fallen off the bus";
    case NVML_RESET_REQUIRED: return "needs a reset";
    case NVML_VERSION_MISMATCH:
        return "the driver and its library are of different versions: restart the machine, or load the driver again";
    case NVML_IN_USE: return "in use";
    case NVML_NO_MEMORY: return "no memory";
    case NVML_NO_DATA: return "no data";
    case NVML_ARGUMENT_VERSION: return "the driver wants another version of the question";
    case NVML_IS_DEPRECATED: return "no longer supported";
    case NVML_NOT_READY: return "not ready";
    case NVML_GPU_NOT_FOUND: return "no GPU found";
    case NVML_UNKNOWN: return "unknown error of the driver";
    default: return NULL;
    }
}
