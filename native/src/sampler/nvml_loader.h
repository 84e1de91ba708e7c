/* nvml_loader.h - the functions of NVML that are used here; loaded at run time, never linked. */
#ifndef POSTRUN_NVML_LOADER_H
#define POSTRUN_NVML_LOADER_H

#include <stddef.h>

/* As the library defines them since its version 11; a test compares them with the vendor's header, with types of its own. */
#ifndef POSTRUN_NVML_TYPES
typedef void *nvml_device;
typedef int nvml_result;
typedef unsigned nvml_clock;
typedef unsigned nvml_sensor;
typedef void *nvml_event_set;
struct nvml_utilization {
    unsigned gpu, memory; /* per cent of the time since the driver looked last */
};
struct nvml_memory {
    unsigned long long total, free, used; /* bytes; used includes what the driver reserves for itself */
};
struct nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
union nvml_value {
    double dVal;
    int siVal;
    unsigned uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    signed long long sllVal;
    unsigned short usVal;
};
struct nvml_field {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    int valueType;
    nvml_result nvmlReturn;
    union nvml_value value;
};
struct nvml_event {
    nvml_device device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
};
#endif

#define NVML_MEMORY_V2 ((unsigned)(sizeof(struct nvml_memory_v2) | 2u << 24))
#define NVML_SM_CLOCK 1u
#define NVML_MEMORY_CLOCK 2u
#define NVML_GPU_SENSOR 0u
#define NVML_XID_EVENT 8ull
#define NVML_ALL_LINKS 0xffffffffu /* scope of a field of NVLink: the sum over the links */
#define NVML_TEXT 96 /* bytes of the longest name, UUID or version */

enum nvml_value_type {
    NVML_DOUBLE = 0,
    NVML_UNSIGNED = 1,
    NVML_UNSIGNED_LONG = 2,
    NVML_UNSIGNED_LONG_LONG = 3,
    NVML_SIGNED_LONG_LONG = 4,
    NVML_SIGNED = 5,
    NVML_UNSIGNED_SHORT = 6,
};

enum nvml_field_id {
    NVML_ECC_CORRECTED_VOLATILE = 3,
    NVML_ECC_UNCORRECTED_VOLATILE = 4,
    NVML_ECC_CORRECTED_AGGREGATE = 5,
    NVML_ECC_UNCORRECTED_AGGREGATE = 6,
    NVML_HELD_BY_POWER = 74,
    NVML_HELD_BY_HEAT = 75,
    NVML_HELD_BY_SYNC_BOOST = 76,
    NVML_HELD_BY_BOARD_LIMIT = 77,
    NVML_HELD_BY_RELIABILITY = 79,
    NVML_MEMORY_TEMPERATURE = 82,
    NVML_ENERGY = 83,
    NVML_NVLINK_KIB_SENT = 138,
    NVML_NVLINK_KIB_RECEIVED = 139,
    NVML_ROWS_CORRECTED = 142,
    NVML_ROWS_UNCORRECTED = 143,
    NVML_ROWS_PENDING = 144,
    NVML_ROWS_FAILED = 145,
    NVML_PCIE_BYTES_SENT = 197,
    NVML_PCIE_BYTES_RECEIVED = 198,
    NVML_NVLINK_BYTES_SENT = 202,
    NVML_NVLINK_BYTES_RECEIVED = 204,
};

enum nvml_code {
    NVML_OK = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_POWER = 8,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_TIMED_OUT = 10,
    NVML_IRQ_ISSUE = 11,
    NVML_LIBRARY_NOT_FOUND = 12,
    NVML_FUNCTION_NOT_FOUND = 13,
    NVML_GPU_IS_LOST = 15,
    NVML_RESET_REQUIRED = 16,
    NVML_VERSION_MISMATCH = 18,
    NVML_IN_USE = 19,
    NVML_NO_MEMORY = 20,
    NVML_NO_DATA = 21,
    NVML_ARGUMENT_VERSION = 25,
    NVML_IS_DEPRECATED = 26,
    NVML_NOT_READY = 27,
    NVML_GPU_NOT_FOUND = 28,
    NVML_UNKNOWN = 999,
};

/* NULL: the library has no such function, also not under an older name. */
struct nvml {
    nvml_result (*init)(void), (*shutdown)(void);
    nvml_result (*driver_version)(char *, unsigned);
    nvml_result (*count)(unsigned *);
    nvml_result (*handle)(unsigned, nvml_device *);
    nvml_result (*uuid)(nvml_device, char *, unsigned);
    nvml_result (*name)(nvml_device, char *, unsigned);
    nvml_result (*utilization)(nvml_device, struct nvml_utilization *);
    nvml_result (*memory)(nvml_device, struct nvml_memory *);
    nvml_result (*memory_v2)(nvml_device, struct nvml_memory_v2 *);
    nvml_result (*power)(nvml_device, unsigned *); /* mW */
    nvml_result (*clock)(nvml_device, nvml_clock, unsigned *); /* MHz */
    nvml_result (*throttle_reasons)(nvml_device, unsigned long long *);
    nvml_result (*temperature)(nvml_device, nvml_sensor, unsigned *); /* degrees Celsius */
    nvml_result (*fields)(nvml_device, int, struct nvml_field *);
    nvml_result (*event_set)(nvml_event_set *);
    nvml_result (*register_events)(nvml_device, unsigned long long, nvml_event_set);
    nvml_result (*wait_event)(nvml_event_set, struct nvml_event *, unsigned); /* ms */
    nvml_result (*free_event_set)(nvml_event_set);
    nvml_result (*mig_mode)(nvml_device, unsigned *, unsigned *); /* now; after the next reset */
    nvml_result (*mig_count)(nvml_device, unsigned *);
    nvml_result (*mig_handle)(nvml_device, unsigned, nvml_device *);
};

#pragma GCC visibility push(hidden)

/* The library, loaded at the first call; NULL, and why not. It stays loaded. */
const struct nvml *postrun_nvml(const char **why);
const char *postrun_nvml_error(int code); /* NULL: no word for it */

#pragma GCC visibility pop

#endif
