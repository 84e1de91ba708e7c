/* sampler.h - the state that the parts of the system sampler share: open files and the values that were read last. */
#ifndef POSTRUN_SAMPLER_H
#define POSTRUN_SAMPLER_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/capture.h"

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

/* ---------------------------------------------------------------- files and text */

struct sampler;

/* Opens ROOT/NAME for reading; a descriptor of 3 or more (0 to 2 belong to the program even while they are closed), or a negative errno. */
int postrun_sampler_open(const char *root, const char *name);
void postrun_sampler_close(int *fd); /* and sets it to -1 */

/* The whole file from its beginning, as text ended by NUL in the sampler's buffer, valid until the next read. `single`: the kernel
 * delivers all of this file at once, so a short read is the end. Returns bytes read, or a negative errno. Allocates only if a file is
 * longer than any before. */
int64_t postrun_sampler_read(struct sampler *sampler, int fd, int single, char **text);

/* The next line that is ended by a newline (which becomes NUL), or NULL. A last line without one was cut off, maybe within a number. */
static inline char *sampler_line(char **at, const char *end) {
    char *line = *at, *newline = line < end ? memchr(line, '\n', (size_t)(end - line)) : NULL;
    if (newline == NULL) {
        return NULL;
    }
    *newline = '\0';
    *at = newline + 1;
    return line;
}

/* A decimal number behind blanks and before a blank or the end. 1, or 0 for anything else, also for numbers beyond 64 bits. */
static inline int sampler_number(const char **at, uint64_t *value) {
    const char *p = *at;
    while (*p == ' ' || *p == '\t') {
        p++;
    }
    if (*p < '0' || *p > '9') {
        return 0;
    }
    uint64_t number = 0;
    for (; *p >= '0' && *p <= '9'; p++) {
        unsigned digit = (unsigned)(*p - '0');
        if (number > (UINT64_MAX - digit) / 10) {
            return 0;
        }
        number = number * 10 + digit;
    }
    if (*p != ' ' && *p != '\t' && *p != '\0') {
        return 0;
    }
    *at = p;
    *value = number;
    return 1;
}

/* How far a counter went. Negative: it ran backwards. */
static inline int64_t sampler_difference(uint64_t now, uint64_t before) {
    uint64_t difference = now - before;
    return difference <= INT64_MAX ? (int64_t)difference : -(int64_t)(UINT64_MAX - difference) - 1;
}

/* The word for an errno value. */
const char *postrun_sampler_error(int error);

/* ---------------------------------------------------------------- state */

enum sampler_metric {
    M_CPU_UTILIZATION,
    M_CPU_IOWAIT,
    M_MEMORY_USED,
    M_DISK_IOPS,
    M_DISK_READ,
    M_DISK_WRITE,
    M_NETWORK_RECEIVE,
    M_NETWORK_TRANSMIT,
    M_CPU_QUOTA,
    M_THROTTLED,
    M_CGROUP_MEMORY_USED,
    M_CGROUP_MEMORY_LIMIT,
    M_PSI_CPU_SOME,
    M_PSI_MEMORY_SOME,
    M_PSI_MEMORY_FULL,
    M_PSI_IO_SOME,
    M_PSI_IO_FULL,
    M_PERF_REF_CYCLES,
    M_PERF_ITLB_MISSES,
    M_PERF_CYCLES,
    M_PERF_INSTRUCTIONS,
    M_GPU_UTILIZATION,
    M_GPU_MEMORY_CONTROLLER,
    M_GPU_MEMORY_USED_PERCENT,
    M_GPU_MEMORY_USED,
    M_GPU_MEMORY_TOTAL,
    M_GPU_POWER,
    M_GPU_SM_CLOCK,
    M_GPU_THROTTLE_REASONS,
    M_GPU_TEMPERATURE,
    M_GPU_MEMORY_TEMPERATURE,
    M_GPU_MEMORY_CLOCK,
    M_GPU_THROTTLE_POWER,
    M_GPU_THROTTLE_THERMAL,
    M_GPU_THROTTLE_SYNC_BOOST,
    M_GPU_THROTTLE_BOARD_LIMIT,
    M_GPU_THROTTLE_RELIABILITY,
    M_GPU_PCIE_TRANSMIT,
    M_GPU_PCIE_RECEIVE,
    M_GPU_NVLINK_TRANSMIT,
    M_GPU_NVLINK_RECEIVE,
    M_GPU_ENERGY,
    M_GPU_ECC_CORRECTED,
    M_GPU_ECC_UNCORRECTED,
    M_GPU_ECC_CORRECTED_LIFETIME,
    M_GPU_ECC_UNCORRECTED_LIFETIME,
    M_GPU_ROWS_CORRECTED,
    M_GPU_ROWS_UNCORRECTED,
    M_GPU_ROWS_PENDING,
    M_GPU_ROWS_FAILED,
    M_GPU_XID,
    M_INFINIBAND_TRANSMIT,
    M_INFINIBAND_RECEIVE,
    M_INFINIBAND_LINK_ACTIVE,
    M_INFINIBAND_LINK_RATE,
    M_INFINIBAND_SYMBOL_ERRORS,
    M_INFINIBAND_LINK_DOWNED,
    M_INFINIBAND_LINK_RECOVERIES,
    M_INFINIBAND_RECEIVE_ERRORS,
    M_INFINIBAND_TRANSMIT_DISCARDS,
    M_INFINIBAND_TRANSMIT_WAIT,
    M_ROCE_OUT_OF_SEQUENCE,
    M_ROCE_SEQUENCE_ERRORS,
    M_ROCE_ACK_TIMEOUTS,
    M_ROCE_CONGESTION_NOTIFICATIONS,
    M_COST,
    M_INTERVAL,
    SAMPLER_METRICS
};

enum core_field { CORE_USER, CORE_NICE, CORE_SYSTEM, CORE_IDLE, CORE_IOWAIT, CORE_IRQ, CORE_SOFTIRQ, CORE_STEAL, CORE_FIELDS };
#define SAMPLER_CORES_MAX 8192
struct sampler_core {
    uint64_t seen; /* number of the sample that read it last */
    uint64_t ticks[CORE_FIELDS];
};

/* Disks and network interfaces: named counters, some of which are summed. */
#define SAMPLER_NAME 64
#define SAMPLER_COUNTERS 4
#define SAMPLER_DEVICES_MAX 65536
struct sampler_device {
    char name[SAMPLER_NAME];
    uint64_t seen;
    uint64_t value[SAMPLER_COUNTERS];
    int kind; /* of the sums below, the one it belongs to */
};
struct sampler_devices {
    struct sampler_device *device;
    uint64_t broken;              /* the last sample with a line that could not be read; 0: none */
    size_t count, capacity, next; /* next: the probable index of the next line's device, as the order seldom changes */
};

enum psi_file { PSI_CPU, PSI_MEMORY, PSI_IO, PSI_FILES };
struct sampler_psi {
    int fd;
    uint64_t seen[2], total[2]; /* some, full */
};

#define SAMPLER_LEVELS 16
struct sampler_cgroup {
    int version;                   /* 1, 2, or 0: none found */
    int levels;                    /* the process's own cgroup first, then its parents */
    int limit[SAMPLER_LEVELS];     /* cpu.max, cpu.cfs_quota_us; memory.max, memory.limit_in_bytes */
    int period[SAMPLER_LEVELS];    /* cpu.cfs_period_us */
    int statistic[SAMPLER_LEVELS]; /* cpu.stat; memory.current, memory.usage_in_bytes */
    int tightest;                  /* level, -1: no limit */
    double value;                  /* of that limit */
    uint64_t seen, periods, throttled;
};
enum cgroup_part { CGROUP_CPU, CGROUP_MEMORY, CGROUP_PARTS };

enum perf_event { PERF_REF_CYCLES, PERF_ITLB_MISSES, PERF_CYCLES, PERF_INSTRUCTIONS, SAMPLER_PERF_EVENTS };
struct perf_group { /* the events of one core, read at once */
    int fd[SAMPLER_PERF_EVENTS];
    uint64_t id;                   /* of the leader */
    uint64_t seen, enabled, running, value[SAMPLER_PERF_EVENTS];
};

struct sampler {
    char proc[PATH_MAX], sys[PATH_MAX];
    int made_up; /* other roots than the machine's own: no perf counters */
    uint32_t names[SAMPLER_METRICS];
    uint32_t asked_ms, interval_ms;
    int dear, cheap; /* samples in a row that cost too much, or little */
    int backed_off;
    uint64_t number; /* of this sample, from 1 */
    int64_t ticks, last_ticks;
    double elapsed_s; /* since the last sample; 0: unknown */
    int error;        /* first error of postrun_session_metric in this sample */
    int anything;     /* was read in this sample */
    char *buffer;
    size_t capacity;

    int stat, meminfo, diskstats, net;
    struct sampler_core *cores;
    size_t core_count;
    int cores_off; /* neither they nor perf counters are sampled any more */
    struct sampler_devices disks, interfaces;
    int block_folder; /* sys/block is there */
    struct sampler_psi psi[PSI_FILES];
    struct sampler_cgroup cgroup[CGROUP_PARTS];
    int64_t limits_ticks; /* when the limits were read last */
    int limits_known;
    int event[SAMPLER_PERF_EVENTS]; /* events of a group, in the order of its values */
    int events, groups;
    struct perf_group *group;
    const struct gpu_visible *gpu_wanted; /* NULL: no samples of GPUs */
    int64_t gpu_patience_ns;              /* how long a sample waits for the GPUs; 0: the default */
    int64_t gpu_waiting_ns;               /* after which GPUs that do not answer are reported; 0: the default */
    struct gpus *gpus;
    struct infiniband *infiniband; /* NULL: no ports */
};

void postrun_sampler_emit(struct sampler *sampler, enum sampler_metric metric, int32_t unit, double value);

/* Each part: open once, sample, close. Opening never fails; missing sources are recorded as capabilities. */
void postrun_sampler_proc_open(struct sampler *sampler);
void postrun_sampler_proc_sample(struct sampler *sampler);
void postrun_sampler_proc_close(struct sampler *sampler);
void postrun_sampler_cgroup_open(struct sampler *sampler);
void postrun_sampler_cgroup_sample(struct sampler *sampler);
void postrun_sampler_cgroup_close(struct sampler *sampler);
void postrun_sampler_infiniband_open(struct sampler *sampler);
void postrun_sampler_infiniband_sample(struct sampler *sampler);
void postrun_sampler_infiniband_close(struct sampler *sampler);
void postrun_sampler_perf_open(struct sampler *sampler); /* after the first postrun_sampler_proc_sample, which lists the cores */
void postrun_sampler_perf_sample(struct sampler *sampler);
void postrun_sampler_perf_close(struct sampler *sampler);
void postrun_sampler_gpu_open(struct sampler *sampler);
int64_t postrun_sampler_gpu_sample(struct sampler *sampler); /* returns the cost on another thread, in ns */
void postrun_sampler_gpu_close(struct sampler *sampler);     /* emits late values */

#endif
