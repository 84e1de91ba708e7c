/* sampler_gpu.h - the state of the thread that queries the GPUs' driver. */
#ifndef POSTRUN_SAMPLER_GPU_H
#define POSTRUN_SAMPLER_GPU_H

#include <pthread.h>
#include <stdint.h>

#include "gpu/gpu_visible.h"
#include "nvml_loader.h"
#include "sampler.h"

#define GPUS_MAX 64
#define GPU_READINGS (GPUS_MAX * 40)
#define GPU_FIELDS 20 /* of nvmlDeviceGetFieldValues */

enum gpu_question {
    ASK_UTILIZATION,
    ASK_MEMORY,
    ASK_POWER,
    ASK_SM_CLOCK,
    ASK_THROTTLE_REASONS,
    ASK_TEMPERATURE, /* at each sample */
    ASK_MEMORY_CLOCK,
    ASK_MEMORY_TEMPERATURE,
    ASK_THROTTLE_TIME,
    ASK_PCIE,
    ASK_NVLINK,
    ASK_ENERGY,
    ASK_ECC,
    ASK_REMAPPED_ROWS,
    ASK_XID,
    GPU_QUESTIONS
};
enum gpu_group { GPU_TRAFFIC, GPU_HEALTH, GPU_GROUPS }; /* of fields that are read together */
#define EACH_SAMPLE (ASK_TEMPERATURE + 1)
enum gpu_answer { ANSWER_FINE, ANSWER_SOMETIMES, ANSWER_NEVER };

struct gpu_asked { /* a question to one GPU */
    enum gpu_answer answer;
    int code;                  /* the last problem: of the driver; NVML_OK: a value that cannot be */
    int failures;              /* in a row */
    unsigned long long absurd; /* that value */
};

struct gpu {
    nvml_device handle;
    int there, met;     /* is queried; was queried at the start */
    int lost;           /* code that ended its queries */
    int asleep, slow;   /* samples in which it is not queried; it has been so before */
    int mig, old_memory; /* is divided (MIG); the driver has only the first version of the memory query */
    char uuid[NVML_TEXT + 1], name[NVML_TEXT + 1];
    char *parts; /* UUIDs of MIG devices */
    unsigned long long total;
    struct gpu_asked asked[GPU_QUESTIONS];
    int64_t due[GPU_GROUPS]; /* ticks at which each group of fields is read next; 0: now */
    int begun[GPU_GROUPS];   /* was read before */
    int64_t health_at; /* and at which its health was read */
    enum { WINDOW_NONE, WINDOW_WANTED, WINDOW_BEGUN, WINDOW_DONE } window; /* of bytes over PCIe, if the counter may have 32 bits */
    uint32_t window_bytes[2]; /* at its start: sent, received */
    int64_t window_ns, window_ticks; /* its start, its end */
    double window_rate[2];
    int nvlink_bytes; /* the driver has the newer counters of NVLink only */
    struct gpu_counter {
        int known;
        unsigned long long first, last;
        int64_t at; /* ticks */
    } counter[GPU_FIELDS];
};

struct gpu_reading {
    enum sampler_metric metric;
    int32_t unit;
    int64_t ticks;
    double value;
};

struct gpus {
    pthread_t thread;
    uint32_t interval_ms;
    struct gpu_visible visible;

    /* the thread's */
    const struct nvml *nvml;
    struct gpu *gpu;
    int count;
    uint32_t changed; /* bits of the queries with something new to report */
    struct gpu_reading fresh[GPU_READINGS];
    size_t fresh_count;
    int64_t base_ticks, base_ns; /* of the last sample, by both clocks */
    int64_t stamp;               /* ticks of the readings that follow */
    nvml_event_set xids; /* NULL: none */
    int xid_failures;    /* in a row */

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t news; /* signals a change of any of these */
    int ready, ended;    /* the thread: has opened the driver's library and found GPUs; will do no more */
    int stop, abandoned; /* the sampler: requests no more; has left without waiting */
    int asked, answered;
    int64_t ticks, asked_ns; /* of the requested sample */
    int64_t cost_ns;         /* of the answer: time in the driver */
    struct gpu_reading reading[GPU_READINGS];
    size_t count_read;
    int told_waiting;
};

#pragma GCC visibility push(hidden)

/* Records a fact, or a missing capability, unless the sampler has left. */
void postrun_gpus_fact(struct gpus *gpus, const char *key, const char *value);
void postrun_gpus_capability(struct gpus *gpus, const char *what, const char *why);

/* gpu_devices.c: 1 if there are GPUs. All of these run on the query thread. */
int postrun_gpus_open(struct gpus *gpus);
void postrun_gpus_read(struct gpus *gpus); /* into fresh */
void postrun_gpus_read_last(struct gpus *gpus); /* at the end: adds the last values to fresh */
void postrun_gpus_close(struct gpus *gpus);
int64_t postrun_gpus_now(const struct gpus *gpus); /* ticks */
void postrun_gpu_put(struct gpus *gpus, enum sampler_metric metric, int unit, double value);
/* Evaluates the driver's answer for the next query; 1: it is a value. */
int postrun_gpu_judge(struct gpus *gpus, struct gpu *gpu, enum gpu_question question, int code);
/* The same of a value: whether it is `sound`. */
int postrun_gpu_sound(struct gpus *gpus, struct gpu *gpu, enum gpu_question question, int sound, unsigned long long value);

/* gpu_fields.c */
void postrun_gpu_fields_read(struct gpus *gpus, struct gpu *gpu, int number); /* those that are due */
void postrun_gpu_health_read(struct gpus *gpus, struct gpu *gpu, int number); /* at once */

int postrun_gpu_windows_begin(struct gpus *gpus); /* whether there are any */
void postrun_gpu_windows_end(struct gpus *gpus);
void postrun_gpu_windows_put(struct gpus *gpus); /* into fresh */

/* gpu_xid.c */
void postrun_gpu_xids_open(struct gpus *gpus);
void postrun_gpu_xids_read(struct gpus *gpus);
void postrun_gpu_xids_close(struct gpus *gpus);

#pragma GCC visibility pop

#endif
