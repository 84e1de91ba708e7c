/* sampler_gpu.h - what the thread that asks the GPUs' driver has in hand. */
#ifndef POSTRUN_SAMPLER_GPU_H
#define POSTRUN_SAMPLER_GPU_H

#include <pthread.h>
#include <stdint.h>

#include "gpu_visible.h"
#include "nvml_loader.h"
#include "sampler.h"

#define GPUS_MAX 64
#define GPU_READINGS (GPUS_MAX * 8)

enum gpu_question { ASK_UTILIZATION, ASK_MEMORY, ASK_POWER, ASK_SM_CLOCK, ASK_THROTTLE_REASONS, GPU_QUESTIONS };
enum gpu_answer { ANSWER_FINE, ANSWER_SOMETIMES, ANSWER_NEVER };

struct gpu_asked { /* a question to one GPU */
    enum gpu_answer answer;
    int code;                  /* the last problem: of the driver; NVML_OK: a value that cannot be */
    int failures;              /* in a row */
    unsigned long long absurd; /* that value */
};

struct gpu {
    nvml_device handle;
    int there, met;     /* is asked; was so at the start */
    int lost;           /* code for which it is asked no more */
    int asleep, slow;   /* samples in which it is not asked; it has been so before */
    int mig, old_memory; /* is divided; the driver knows only the first version of the question for memory */
    char uuid[NVML_TEXT + 1], name[NVML_TEXT + 1];
    char *parts; /* UUIDs of MIG devices */
    unsigned long long total;
    struct gpu_asked asked[GPU_QUESTIONS];
};

struct gpu_reading {
    enum sampler_metric metric;
    int32_t unit;
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
    uint32_t changed; /* bits of the questions of which there is something new to tell */
    struct gpu_reading fresh[GPU_READINGS];
    size_t fresh_count;

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t news; /* of any of these */
    int ready, ended;    /* the thread: has opened the driver's library and found GPUs; will do no more */
    int stop, abandoned; /* the sampler: wants no more; has gone without waiting */
    int asked, answered;
    int64_t ticks, asked_ns; /* of the sample that was asked for */
    int64_t cost_ns;         /* of the answer: time in the driver */
    struct gpu_reading reading[GPU_READINGS];
    size_t count_read;
    int told_waiting;
};

#pragma GCC visibility push(hidden)

/* A fact, or a capability that is missing, unless nobody listens any more. */
void postrun_gpus_fact(struct gpus *gpus, const char *key, const char *value);
void postrun_gpus_capability(struct gpus *gpus, const char *what, const char *why);

/* gpu_devices.c: 1 where there are GPUs, all in the thread of its own. */
int postrun_gpus_open(struct gpus *gpus);
void postrun_gpus_read(struct gpus *gpus); /* into fresh */
void postrun_gpus_close(struct gpus *gpus);

#pragma GCC visibility pop

#endif
