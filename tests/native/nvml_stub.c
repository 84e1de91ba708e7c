/* A made-up libnvidia-ml.so.1 that follows the file in NVML_STUB, a line each:
 *
 *     devices COUNT
 *     driver TEXT
 *     name DEVICE TEXT, uuid DEVICE TEXT     the rest of the line
 *     mig DEVICE COUNT                       is divided into COUNT MIG devices, MIG-DEVICE-PART
 *     fail FUNCTION DEVICE FIRST LAST CODE   calls number FIRST to LAST (from 1; 0: for ever) of this device (-1: of any, or none)
 *     value FUNCTION DEVICE FIRST LAST VALUE [VALUE]   their results instead of the defaults below
 *     delay FUNCTION DEVICE FIRST LAST MS    how long they take
 *     xid wait DEVICE CALL 0 CODE            an event of this device, starting with this call of nvmlEventSetWait
 *
 * A field of nvmlDeviceGetFieldValues is also a function: field82. Its second value is the type.
 *
 * When it is shut down it appends to the file in NVML_STUB_LOG how often each function was called for each device.
 * -DOLD: a driver of 2016, without later functions; -DBROKEN: one that cannot count; -DPOSTRUN_NVML_TYPES: with the vendor's nvml.h. */
#define _GNU_SOURCE
#ifdef POSTRUN_NVML_TYPES
#include "nvml_vendor.h"
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sampler/nvml_loader.h"

#define DEVICES 80
#define PARTS 8
#define RULES 512
enum function {
    INIT,
    SHUTDOWN,
    DRIVER,
    COUNT,
    HANDLE,
    UUID,
    NAME,
    UTILIZATION,
    MEMORY,
    MEMORY_V2,
    POWER,
    CLOCK,
    THROTTLE,
    MIG_MODE,
    MIG_COUNT,
    MIG_HANDLE,
    MEMORY_CLOCK,
    TEMPERATURE,
    FIELDS,
    EVENT_SET,
    REGISTER,
    WAIT,
    FREE_SET,
    FIELD_3,
    FIELD_4,
    FIELD_5,
    FIELD_6,
    FIELD_74,
    FIELD_75,
    FIELD_76,
    FIELD_77,
    FIELD_79,
    FIELD_82,
    FIELD_83,
    FIELD_138,
    FIELD_139,
    FIELD_142,
    FIELD_143,
    FIELD_144,
    FIELD_145,
    FIELD_197,
    FIELD_198,
    FIELD_202,
    FIELD_204,
    FUNCTIONS
};
#ifndef OLD
static const struct {
    unsigned id;
    int type;
    unsigned long long first, step; /* the value: first + step * (call + device) */
} made_up[FUNCTIONS - FIELD_3] = {
    {3, 3, 0, 0},
    {4, 3, 0, 0},
    {5, 3, 7, 0},
    {6, 3, 1, 0},
    {74, 3, 1000, 1000000000},
    {75, 3, 0, 500000000},
    {76, 3, 0, 0},
    {77, 3, 0, 0},
    {79, 3, 0, 0},
    {82, 1, 60, 1},
    {83, 3, 5000000, 1500000},
    {138, 3, 1024, 1048576},
    {139, 3, 0, 2097152},
    {142, 1, 2, 0},
    {143, 1, 0, 0},
    {144, 1, 0, 0},
    {145, 1, 0, 0},
    {197, 3, 1ull << 40, 5000000000},
    {198, 3, 1ull << 41, 10000000000},
    {202, 3, 0, 1000000000},
    {204, 3, 0, 2000000000},
};
#endif
static const char *const function_names[FUNCTIONS] = {
    "init",      "shutdown",  "driver",   "count",    "handle",   "uuid",      "name",       "utilization",  "memory",
    "memory_v2", "power",     "clock",    "throttle", "mig_mode", "mig_count", "mig_handle", "memory_clock", "temperature",
    "fields",    "event_set", "register", "wait",     "free_set", "field3",    "field4",     "field5",       "field6",
    "field74",   "field75",   "field76",  "field77",  "field79",  "field82",   "field83",    "field138",     "field139",
    "field142",  "field143",  "field144", "field145", "field197", "field198",  "field202",   "field204",
};
struct rule {
    char verb[8];
    int function, device;
    long first, last;
    unsigned long long value[2];
    int second, done; /* the second value was given; the event was delivered */
};
struct device {
    int number, part; /* part -1: the whole GPU */
};
static struct device devices[DEVICES][PARTS + 1];
static char names[DEVICES][200], uuids[DEVICES][200], driver[200];
static int parts[DEVICES], device_count, references;
static struct rule rules[RULES];
static int rule_count;
static int sets; /* of events */
static long calls[FUNCTIONS][DEVICES + 1]; /* the last: of none */

static int function_of(const char *name) {
    for (int i = 0; i < FUNCTIONS; i++) {
        if (strcmp(function_names[i], name) == 0) {
            return i;
        }
    }
    abort();
}

static void read_script(void) {
    const char *path = getenv("NVML_STUB");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[400];
    if (!file) {
        abort();
    }
    device_count = rule_count = 0;
    snprintf(driver, sizeof driver, "535.104.05");
    for (int i = 0; i < DEVICES; i++) {
        snprintf(names[i], sizeof names[i], "NVIDIA Stub X100");
        snprintf(uuids[i], sizeof uuids[i], "GPU-%08d-aaaa-bbbb-cccc-%012d", i * 1111, i);
        parts[i] = -1;
        for (int j = 0; j <= PARTS; j++) {
            devices[i][j] = (struct device){i, j - 1};
        }
    }
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char verb[8], function[20];
        int device = 0, length = 0;
        struct rule rule;
        memset(&rule, 0, sizeof rule);
        if (sscanf(line, "devices %d", &device_count) == 1) {
            continue;
        }
        if (sscanf(line, "driver %199[^\n]", driver) == 1) {
            continue;
        }
        if (sscanf(line, "name %d %n", &device, &length) == 1) {
            snprintf(names[device], sizeof names[0], "%s", line + length);
        } else if (sscanf(line, "uuid %d %n", &device, &length) == 1) {
            snprintf(uuids[device], sizeof uuids[0], "%s", line + length);
        } else if (sscanf(line, "mig %d %d", &device, &length) == 2) {
            parts[device] = length;
        } else if ((length = sscanf(line, "%7s %19s %d %ld %ld %llu %llu", verb, function, &rule.device, &rule.first, &rule.last,
                                    &rule.value[0], &rule.value[1])) >= 6) {
            rule.second = length == 7;
            snprintf(rule.verb, sizeof rule.verb, "%s", verb);
            rule.function = function_of(function);
            if (rule_count == RULES) {
                abort();
            }
            rules[rule_count++] = rule;
        } else {
            abort();
        }
    }
    fclose(file);
}

static const struct rule *rule_for(const char *verb, enum function function, int device, long call) {
    for (int i = 0; i < rule_count; i++) {
        if (strcmp(rules[i].verb, verb) == 0 && rules[i].function == (int)function &&
            (rules[i].device == device || rules[i].device == -1) && call >= rules[i].first &&
            (rules[i].last == 0 || call <= rules[i].last)) {
            return &rules[i];
        }
    }
    return NULL;
}

/* Counts a call; its number, and the code that it is to give. */
static int called(enum function function, int device, long *number) {
    long call = ++calls[function][device < 0 ? DEVICES : device];
    if (number) {
        *number = call;
    }
    if (references == 0) {
        abort(); /* never without nvmlInit */
    }
    const struct rule *delay = rule_for("delay", function, device, call), *fail = rule_for("fail", function, device, call);
    if (delay) {
        struct timespec time = {(time_t)(delay->value[0] / 1000), (long)(delay->value[0] % 1000) * 1000000};
        nanosleep(&time, NULL);
    }
    return fail ? (int)fail->value[0] : 0;
}

static struct device *device_of(nvml_device handle) {
    struct device *device = (struct device *)handle;
    if (device < &devices[0][0] || device > &devices[DEVICES - 1][PARTS]) {
        abort();
    }
    return device;
}

static unsigned long long valued(enum function function, int device, long call, int which, unsigned long long otherwise) {
    const struct rule *rule = rule_for("value", function, device, call);
    return rule ? rule->value[which] : otherwise;
}

static void give(char *to, unsigned size, const char *text) {
    if (size < 2) {
        abort();
    }
    strncpy(to, text, size); /* as a driver that fills the whole of it */
}

static nvml_result init(void) {
    if (references == 0) {
        read_script();
    }
    references++;
    int code = called(INIT, -1, NULL);
    references -= code != 0;
    return (nvml_result)code;
}

#ifdef OLD
nvml_result nvmlInit(void);
nvml_result nvmlInit(void) { return init(); }
#else
nvml_result nvmlInit_v2(void);
nvml_result nvmlInit_v2(void) { return init(); }
#endif

nvml_result nvmlShutdown(void);
nvml_result nvmlShutdown(void) {
    int code = called(SHUTDOWN, -1, NULL);
    if (references == 1 && sets != 0) {
        abort(); /* each is freed before */
    }
    const char *path = getenv("NVML_STUB_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (--references == 0 && file) {
        for (int f = 0; f < FUNCTIONS; f++) {
            for (int d = 0; d <= DEVICES; d++) {
                if (calls[f][d]) {
                    fprintf(file, "%s %d %ld\n", function_names[f], d == DEVICES ? -1 : d, calls[f][d]);
                }
            }
        }
        memset(calls, 0, sizeof calls);
    }
    if (file) {
        fclose(file);
    }
    return (nvml_result)code;
}

nvml_result nvmlSystemGetDriverVersion(char *text, unsigned size);
nvml_result nvmlSystemGetDriverVersion(char *text, unsigned size) {
    give(text, size, driver);
    return (nvml_result)called(DRIVER, -1, NULL);
}

#ifndef BROKEN
static nvml_result count(unsigned *count) {
    *count = (unsigned)device_count;
    return (nvml_result)called(COUNT, -1, NULL);
}
#endif
static nvml_result handle(unsigned index, nvml_device *device) {
    if (index >= (unsigned)device_count) {
        abort();
    }
    int code = called(HANDLE, (int)index, NULL);
    *device = code ? (nvml_device)(void *)&code : (nvml_device)(void *)&devices[index][0];
    return (nvml_result)code;
}
#ifdef OLD
nvml_result nvmlDeviceGetCount(unsigned *number);
nvml_result nvmlDeviceGetCount(unsigned *number) { return count(number); }
nvml_result nvmlDeviceGetHandleByIndex(unsigned index, nvml_device *device);
nvml_result nvmlDeviceGetHandleByIndex(unsigned index, nvml_device *device) { return handle(index, device); }
#else
#ifndef BROKEN
nvml_result nvmlDeviceGetCount_v2(unsigned *number);
nvml_result nvmlDeviceGetCount_v2(unsigned *number) { return count(number); }
#endif
nvml_result nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device);
nvml_result nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device) { return handle(index, device); }
#endif

nvml_result nvmlDeviceGetUUID(nvml_device device, char *text, unsigned size);
nvml_result nvmlDeviceGetUUID(nvml_device device, char *text, unsigned size) {
    const struct device *of = device_of(device);
    char part[40];
    snprintf(part, sizeof part, "MIG-%d-%d", of->number, of->part);
    give(text, size, of->part < 0 ? uuids[of->number] : part);
    return (nvml_result)called(UUID, of->number, NULL);
}
nvml_result nvmlDeviceGetName(nvml_device device, char *text, unsigned size);
nvml_result nvmlDeviceGetName(nvml_device device, char *text, unsigned size) {
    give(text, size, names[device_of(device)->number]);
    return (nvml_result)called(NAME, device_of(device)->number, NULL);
}

nvml_result nvmlDeviceGetUtilizationRates(nvml_device device, struct nvml_utilization *used);
nvml_result nvmlDeviceGetUtilizationRates(nvml_device device, struct nvml_utilization *used) {
    int d = device_of(device)->number;
    long n;
    int code = called(UTILIZATION, d, &n);
    if (parts[d] >= 0) {
        return (nvml_result)NVML_NOT_SUPPORTED;
    }
    used->gpu = (unsigned)valued(UTILIZATION, d, n, 0, (unsigned long long)(7 * d + 3 * n) % 101);
    used->memory = (unsigned)valued(UTILIZATION, d, n, 1, (unsigned long long)(5 * d + 2 * n) % 101);
    return (nvml_result)code;
}

#define GIB (1ull << 30)
nvml_result nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *memory);
nvml_result nvmlDeviceGetMemoryInfo(nvml_device device, struct nvml_memory *memory) {
    int d = device_of(device)->number;
    long n;
    int code = called(MEMORY, d, &n);
    memory->total = valued(MEMORY, d, n, 0, 16 * GIB * (unsigned)(d + 1));
    memory->used = valued(MEMORY, d, n, 1, GIB * (unsigned long long)((d + n) % 10) + GIB / 2); /* with what is reserved */
    memory->free = memory->total - memory->used;
    return (nvml_result)code;
}
#ifndef OLD
nvml_result nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *memory);
nvml_result nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct nvml_memory_v2 *memory) {
    int d = device_of(device)->number;
    long n;
    int code = called(MEMORY_V2, d, &n);
    if (memory->version != (sizeof *memory | 2u << 24)) {
        return (nvml_result)NVML_ARGUMENT_VERSION;
    }
    memory->total = valued(MEMORY_V2, d, n, 0, 16 * GIB * (unsigned)(d + 1));
    memory->used = valued(MEMORY_V2, d, n, 1, GIB * (unsigned long long)((d + n) % 10));
    memory->reserved = GIB / 2;
    memory->free = memory->total - memory->used - memory->reserved;
    return (nvml_result)code;
}
#endif

nvml_result nvmlDeviceGetPowerUsage(nvml_device device, unsigned *power);
nvml_result nvmlDeviceGetPowerUsage(nvml_device device, unsigned *power) {
    int d = device_of(device)->number;
    long n;
    int code = called(POWER, d, &n);
    *power = (unsigned)valued(POWER, d, n, 0, (unsigned long long)(100000 + 1000 * d + n));
    return (nvml_result)code;
}
nvml_result nvmlDeviceGetClockInfo(nvml_device device, nvml_clock type, unsigned *clock);
nvml_result nvmlDeviceGetClockInfo(nvml_device device, nvml_clock type, unsigned *clock) {
    int d = device_of(device)->number;
    long n;
    if ((unsigned)type != 1 && (unsigned)type != 2) {
        abort();
    }
    enum function function = (unsigned)type == 1 ? CLOCK : MEMORY_CLOCK;
    int code = called(function, d, &n);
    *clock = (unsigned)valued(function, d, n, 0, (unsigned long long)((function == CLOCK ? 1000 : 2600) + 10 * d + n));
    return (nvml_result)code;
}
nvml_result nvmlDeviceGetTemperature(nvml_device device, nvml_sensor sensor, unsigned *degrees);
nvml_result nvmlDeviceGetTemperature(nvml_device device, nvml_sensor sensor, unsigned *degrees) {
    int d = device_of(device)->number;
    long n;
    int code = called(TEMPERATURE, d, &n);
    if ((unsigned)sensor != 0) {
        abort();
    }
    *degrees = (unsigned)valued(TEMPERATURE, d, n, 0, (unsigned long long)(40 + d + n / 4));
    return (nvml_result)code;
}

#ifndef OLD
nvml_result nvmlDeviceGetFieldValues(nvml_device device, int count, struct nvml_field *fields);
nvml_result nvmlDeviceGetFieldValues(nvml_device device, int count, struct nvml_field *fields) {
    int d = device_of(device)->number;
    int whole = called(FIELDS, d, NULL);
    for (int i = 0; i < count && !whole; i++) {
        enum function function = FIELD_3;
        while (function < FUNCTIONS && made_up[function - FIELD_3].id != fields[i].fieldId) {
            function++;
        }
        int nvlink = function == FIELD_138 || function == FIELD_139 || function == FIELD_202 || function == FIELD_204;
        if (function == FUNCTIONS || fields[i].scopeId != (nvlink ? 0xffffffffu : 0)) {
            abort();
        }
        long n;
        const struct rule *passed = rule_for("pass", function, d, calls[function][d] + 1);
        int code = called(function, d, &n);
        if (passed) {
            continue;
        }
        if (parts[d] >= 0 && function >= FIELD_142 && function <= FIELD_145) {
            code = NVML_NOT_SUPPORTED; /* as of divided GPUs */
        }
        unsigned long long value =
            valued(function, d, n, 0, made_up[function - FIELD_3].first + made_up[function - FIELD_3].step * (unsigned)(n + d));
        const struct rule *rule = rule_for("value", function, d, n);
        int type = rule && rule->second ? (int)rule->value[1] : made_up[function - FIELD_3].type;
        memset(&fields[i].value, 0xee, sizeof fields[i].value);
        fields[i].nvmlReturn = (nvml_result)code;
        fields[i].valueType = (__typeof__(fields[i].valueType))type;
        switch (type) {
        case NVML_DOUBLE: fields[i].value.dVal = (double)value; break;
        case NVML_UNSIGNED: fields[i].value.uiVal = (unsigned)value; break;
        case NVML_SIGNED: memcpy(&fields[i].value, &(int){(int)value}, sizeof(int)); break;
        case NVML_UNSIGNED_SHORT: memcpy(&fields[i].value, &(unsigned short){(unsigned short)value}, sizeof(short)); break;
        default: fields[i].value.ullVal = value;
        }
    }
    return (nvml_result)whole;
}

static int registered[DEVICES];
nvml_result nvmlEventSetCreate(nvml_event_set *set);
nvml_result nvmlEventSetCreate(nvml_event_set *set) {
    int code = called(EVENT_SET, -1, NULL);
    *set = (nvml_event_set)(void *)&sets;
    sets += code == 0;
    memset(registered, 0, sizeof registered);
    return (nvml_result)code;
}
static void check_set(nvml_event_set set) {
    if ((void *)set != (void *)&sets || sets != 1) {
        abort();
    }
}
nvml_result nvmlDeviceRegisterEvents(nvml_device device, unsigned long long types, nvml_event_set set);
nvml_result nvmlDeviceRegisterEvents(nvml_device device, unsigned long long types, nvml_event_set set) {
    check_set(set);
    if (types != 8) {
        abort();
    }
    int d = device_of(device)->number, code = called(REGISTER, d, NULL);
    registered[d] = code == 0;
    return (nvml_result)code;
}
nvml_result nvmlEventSetWait_v2(nvml_event_set set, struct nvml_event *event, unsigned ms);
nvml_result nvmlEventSetWait_v2(nvml_event_set set, struct nvml_event *event, unsigned ms) {
    long n;
    int code = called(WAIT, -1, &n);
    check_set(set);
    if (ms != 0) {
        abort();
    }
    for (int i = 0; i < rule_count && !code; i++) {
        struct rule *rule = &rules[i];
        if (strcmp(rule->verb, "xid") != 0 || rule->done || rule->first > n || (rule->device < DEVICES && !registered[rule->device])) {
            continue;
        }
        rule->done = 1;
        event->device = (nvml_device)(void *)&devices[rule->device < DEVICES ? rule->device : 0][rule->device < DEVICES ? 0 : 1];
        event->eventType = 8;
        event->eventData = rule->value[0];
        return (nvml_result)0;
    }
    return (nvml_result)(code ? code : NVML_TIMED_OUT);
}
nvml_result nvmlEventSetFree(nvml_event_set set);
nvml_result nvmlEventSetFree(nvml_event_set set) {
    check_set(set);
    sets--;
    return (nvml_result)called(FREE_SET, -1, NULL);
}
#endif

static nvml_result throttle(nvml_device device, unsigned long long *reasons) {
    int d = device_of(device)->number;
    long n;
    int code = called(THROTTLE, d, &n);
    *reasons = valued(THROTTLE, d, n, 0, 1ull << (d + n) % 9);
    return (nvml_result)code;
}
#ifdef OLD
nvml_result nvmlDeviceGetCurrentClocksThrottleReasons(nvml_device device, unsigned long long *reasons);
nvml_result nvmlDeviceGetCurrentClocksThrottleReasons(nvml_device device, unsigned long long *reasons) { return throttle(device, reasons); }
#else
nvml_result nvmlDeviceGetCurrentClocksEventReasons(nvml_device device, unsigned long long *reasons);
nvml_result nvmlDeviceGetCurrentClocksEventReasons(nvml_device device, unsigned long long *reasons) { return throttle(device, reasons); }

nvml_result nvmlDeviceGetMigMode(nvml_device device, unsigned *now, unsigned *later);
nvml_result nvmlDeviceGetMigMode(nvml_device device, unsigned *now, unsigned *later) {
    int d = device_of(device)->number;
    *now = *later = parts[d] >= 0;
    return (nvml_result)called(MIG_MODE, d, NULL);
}
nvml_result nvmlDeviceGetMaxMigDeviceCount(nvml_device device, unsigned *number);
nvml_result nvmlDeviceGetMaxMigDeviceCount(nvml_device device, unsigned *number) {
    *number = 7;
    return (nvml_result)called(MIG_COUNT, device_of(device)->number, NULL);
}
nvml_result nvmlDeviceGetMigDeviceHandleByIndex(nvml_device device, unsigned index, nvml_device *part);
nvml_result nvmlDeviceGetMigDeviceHandleByIndex(nvml_device device, unsigned index, nvml_device *part) {
    int d = device_of(device)->number, code = called(MIG_HANDLE, d, NULL);
    if (index >= 7 || parts[d] < 0) {
        abort();
    }
    if ((int)index >= parts[d]) {
        return (nvml_result)NVML_NOT_FOUND;
    }
    *part = (nvml_device)(void *)&devices[d][index + 1];
    return (nvml_result)code;
}
#endif
