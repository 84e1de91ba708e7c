/* stub_cuda.c - a libcuda.so.1 for tests: returns the results in the environment, and logs its callers.
 *
 * STUB_ERRORS "cuInit=100;cuDeviceGetCount=999", STUB_DEVICES "2", STUB_DRIVER "12040", STUB_LOG: a file that gets a line "pid function" for each call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT _Atomic(void (*)(void)) stub_cuda_hook; /* libcupti's: at the end of a call */
static _Atomic int initialized;
static _Thread_local void *current;

EXPORT void stub_log(const char *function) {
    const char *path = getenv("STUB_LOG");
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        char line[128];
        int length = snprintf(line, sizeof line, "%d %s\n", (int)getpid(), function);
        if (write(fd, line, (size_t)length) != length) {
            abort();
        }
        close(fd);
    }
}

EXPORT int stub_error(const char *function) {
    const char *errors = getenv("STUB_ERRORS");
    size_t length = strlen(function);
    for (; errors && *errors; errors = strchr(errors, ';'), errors = errors ? errors + 1 : NULL) {
        if (strncmp(errors, function, length) == 0 && errors[length] == '=') {
            return atoi(errors + length + 1);
        }
    }
    return 0;
}

#define CALL(name)                    \
    do {                              \
        stub_log(name);               \
        int error = stub_error(name); \
        if (error) {                  \
            return error;             \
        }                             \
    } while (0)

EXPORT int cuInit(unsigned flags) {
    (void)flags;
    CALL("cuInit");
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (!initialized && path) {
        void *library = dlopen(path, RTLD_NOW);
        int (*inject)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
        if (inject && inject() != 1) {
            abort();
        }
    }
    initialized = 1;
    return 0;
}
EXPORT int cuDeviceGetCount(int *count) {
    CALL("cuDeviceGetCount");
    if (!initialized) {
        return 3;
    }
    const char *devices = getenv("STUB_DEVICES");
    *count = devices ? atoi(devices) : 1;
    void (*hook)(void) = stub_cuda_hook;
    if (hook) {
        hook();
    }
    return 0;
}
EXPORT int cuDeviceGet(int *device, int index) {
    CALL("cuDeviceGet");
    *device = index;
    return 0;
}
EXPORT int cuDeviceGetName(char *name, int size, int device) {
    CALL("cuDeviceGetName");
    snprintf(name, (size_t)size, "Stub GPU %d", device);
    return 0;
}
EXPORT int cuDeviceGetUuid_v2(uint8_t *uuid, int device) {
    CALL("cuDeviceGetUuid");
    for (int i = 0; i < 16; i++) {
        uuid[i] = (uint8_t)(i * 16 + device);
    }
    return 0;
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    CALL("cuDeviceTotalMem");
    *bytes = (size_t)80 << 30 | (size_t)device;
    return 0;
}
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    CALL("cuDeviceGetAttribute");
    *value = attribute == 16 ? 132 : attribute == 75 ? 9 : attribute == 76 ? device : -1;
    return 0;
}
EXPORT int cuDriverGetVersion(int *version) {
    CALL("cuDriverGetVersion");
    const char *told = getenv("STUB_DRIVER");
    *version = told ? atoi(told) : 13050;
    return 0;
}
EXPORT int cuGetErrorName(int error, const char **name) {
    if (error == 999999) {
        return 1;
    }
    *name = error == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OF_THE_STUB";
    return 0;
}
EXPORT int cuCtxGetCurrent(void **context) {
    CALL("cuCtxGetCurrent");
    *context = current;
    return 0;
}
EXPORT int cuCtxSetCurrent(void *context) {
    CALL("cuCtxSetCurrent");
    current = context;
    return 0;
}
EXPORT int cuCtxSynchronize(void) {
    CALL("cuCtxSynchronize");
    const char *seconds = getenv("STUB_BUSY");
    if (seconds) {
        sleep((unsigned)atoi(seconds));
    }
    return 0;
}
EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
    CALL("cuThreadExchangeStreamCaptureMode");
    *mode = 0;
    return 0;
}
