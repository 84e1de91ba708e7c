/* cupti_records.h - the layout of CUPTI's activity records: their beginnings, which are the same from CUDA 10 to 13.
 *
 * These are own declarations; tests compare their offsets with those of the vendor's headers. */
#ifndef POSTRUN_CUPTI_RECORDS_H
#define POSTRUN_CUPTI_RECORDS_H

#include <stddef.h>
#include <stdint.h>

enum cupti_kind {
    CUPTI_MEMCPY = 1,
    CUPTI_MEMSET = 2,
    CUPTI_DRIVER = 4,
    CUPTI_RUNTIME = 5,
    CUPTI_CONTEXT = 9,
    CUPTI_KERNEL = 10,
    CUPTI_OVERHEAD = 17,
    CUPTI_MEMCPY_PEER = 22,
    CUPTI_CUDA_EVENT = 36,
    CUPTI_SYNCHRONIZATION = 38,
    CUPTI_EXTERNAL = 39
};

struct cupti_kernel {
    uint32_t kind;
    uint8_t cache[2];
    uint16_t registers;
    uint8_t partitioned[8];
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], static_shared, dynamic_shared;
    uint32_t local_thread, local_total, correlation;
    int64_t grid_id;
    const char *name;
    uint8_t between[32];
    uint64_t graph_node; /* since CUPTI_GRAPH_NODES */
};
struct cupti_memcpy {
    uint32_t kind;
    uint8_t copy, source, destination, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
};
struct cupti_memcpy_peer {
    uint32_t kind;
    uint8_t copy, source, destination, flags;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, source_device, source_context, destination_device, destination_context, correlation;
};
struct cupti_memset {
    uint32_t kind, value;
    uint64_t bytes, start, end;
    uint32_t device, context, stream, correlation;
};
struct cupti_sync {
    uint32_t kind, type;
    uint64_t start, end;
    uint32_t correlation, context, stream;
};
struct cupti_call {
    uint32_t kind, id;
    uint64_t start, end;
    uint32_t process, thread, correlation;
};
struct cupti_external {
    uint32_t kind, external_kind;
    uint64_t external;
    uint32_t correlation;
};
struct cupti_context {
    uint32_t kind, context, device;
};

#define AT(record, field, offset) _Static_assert(offsetof(struct record, field) == (offset), #record " " #field)
AT(cupti_kernel, registers, 6);
AT(cupti_kernel, start, 16);
AT(cupti_kernel, end, 24);
AT(cupti_kernel, device, 40);
AT(cupti_kernel, context, 44);
AT(cupti_kernel, stream, 48);
AT(cupti_kernel, grid, 52);
AT(cupti_kernel, block, 64);
AT(cupti_kernel, static_shared, 76);
AT(cupti_kernel, dynamic_shared, 80);
AT(cupti_kernel, correlation, 92);
AT(cupti_kernel, name, 104);
AT(cupti_kernel, graph_node, 144);
AT(cupti_memcpy, copy, 4);
AT(cupti_memcpy, bytes, 8);
AT(cupti_memcpy, start, 16);
AT(cupti_memcpy, device, 32);
AT(cupti_memcpy, correlation, 44);
AT(cupti_memcpy_peer, source_device, 44);
AT(cupti_memcpy_peer, correlation, 60);
AT(cupti_memset, bytes, 8);
AT(cupti_memset, correlation, 44);
AT(cupti_sync, start, 8);
AT(cupti_sync, correlation, 24);
AT(cupti_sync, stream, 32);
AT(cupti_call, start, 8);
AT(cupti_call, thread, 28);
AT(cupti_call, correlation, 32);
AT(cupti_external, correlation, 16);
#undef AT

struct cupti;
struct device_batch;

#pragma GCC visibility push(hidden)

/* Names of calls, in the tables of the library; called before anything is recorded. `id` of a call by its name, 0: it has none. */
void postrun_cupti_learn_calls(const struct cupti *cupti);
uint32_t postrun_cupti_call_id(int domain, const char *name);
/* Calls that are not worth a record get none, if this version can. `subscriber`: of one of several clients, else NULL. */
void postrun_cupti_switch_noisy_off(const struct cupti *cupti, void *subscriber);

/* The records of a buffer become rows of a batch. `threads`: their threads have the system's numbers. */
void postrun_cupti_read(const struct cupti *cupti, void *subscriber, uint8_t *buffer, size_t valid, int threads,
                        struct device_batch *batch);

#pragma GCC visibility pop
#endif
