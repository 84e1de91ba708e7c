/* sampler_gpu.c - samples the GPUs, on a thread of its own.
 *
 * They are sampled with the system's counters, but on another thread: without persistence mode the driver takes seconds to start, and a
 * failing GPU can block its caller for any time. The sampler waits a moment for the answer. A later answer is written later, with the time
 * of its request. */
#define _GNU_SOURCE
#include "sampler_gpu.h"

#if !defined(__linux__)

void postrun_sampler_gpu_open(struct sampler *sampler) {
    if (sampler->gpu_wanted) {
        postrun_session_capability("gpu.samples", "GPUs are sampled on Linux only");
    }
}
int64_t postrun_sampler_gpu_sample(struct sampler *sampler) {
    (void)sampler;
    return 0;
}
void postrun_sampler_gpu_close(struct sampler *sampler) { (void)sampler; }

#else

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define PATIENCE_NS 50000000     /* of a sample */
#define LAST_PATIENCE_NS 2000000000 /* of the end */
#define WINDOW_NS 20000000       /* of bytes over PCIe */
#define WAITING_NS 10000000000   /* after which a GPU that does not answer is reported */

/* ---------------------------------------------------------------- the query thread */

void postrun_gpus_fact(struct gpus *gpus, const char *key, const char *value) {
    pthread_mutex_lock(&gpus->lock);
    if (!gpus->abandoned) {
        postrun_metadata(key, value);
    }
    pthread_mutex_unlock(&gpus->lock);
}

void postrun_gpus_capability(struct gpus *gpus, const char *what, const char *why) {
    pthread_mutex_lock(&gpus->lock);
    if (!gpus->abandoned) {
        postrun_session_capability(what, why);
    }
    pthread_mutex_unlock(&gpus->lock);
}

static int64_t now_ns(clockid_t id) {
    struct timespec now;
    return clock_gettime(id, &now) == 0 ? (int64_t)now.tv_sec * 1000000000 + now.tv_nsec : 0;
}

/* Waiting inside of the driver counts, as the driver may hold its lock over it; waiting for a core does not. */
static int64_t read_at_cost(struct gpus *gpus) {
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    int64_t processor = now_ns(CLOCK_THREAD_CPUTIME_ID), wall = now_ns(CLOCK_MONOTONIC);
    postrun_gpus_read(gpus);
    processor = now_ns(CLOCK_THREAD_CPUTIME_ID) - processor;
    wall = now_ns(CLOCK_MONOTONIC) - wall;
    getrusage(RUSAGE_THREAD, &after);
    return after.ru_nivcsw == before.ru_nivcsw && wall > processor ? wall : processor;
}

static void destroy(struct gpus *gpus) {
    pthread_mutex_destroy(&gpus->lock);
    pthread_cond_destroy(&gpus->news);
    free(gpus);
}

/* Under the lock, which is open meanwhile: the sampler has its answer and is not kept. */
static void watch_windows(struct gpus *gpus) {
    pthread_mutex_unlock(&gpus->lock);
    int begun = postrun_gpu_windows_begin(gpus);
    pthread_mutex_lock(&gpus->lock);
    if (!begun) {
        return;
    }
    int64_t until = now_ns(CLOCK_MONOTONIC) + WINDOW_NS;
    struct timespec time = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    while (!gpus->stop && !gpus->abandoned && pthread_cond_timedwait(&gpus->news, &gpus->lock, &time) != ETIMEDOUT) {
    }
    pthread_mutex_unlock(&gpus->lock);
    postrun_gpu_windows_end(gpus);
    pthread_mutex_lock(&gpus->lock);
}

static void *ask(void *argument) {
    struct gpus *gpus = argument;
    pthread_setname_np(pthread_self(), "postrun-gpus");
    int ready = postrun_gpus_open(gpus);
    pthread_mutex_lock(&gpus->lock);
    gpus->ready = ready;
    while (ready && !gpus->abandoned) {
        if (gpus->asked && !gpus->answered) {
            pthread_mutex_unlock(&gpus->lock);
            int64_t cost = read_at_cost(gpus);
            pthread_mutex_lock(&gpus->lock);
            memcpy(gpus->reading, gpus->fresh, gpus->fresh_count * sizeof *gpus->fresh);
            gpus->count_read = gpus->fresh_count;
            gpus->cost_ns = cost;
            gpus->answered = 1;
            pthread_cond_broadcast(&gpus->news);
            watch_windows(gpus);
        } else if (gpus->stop) {
            pthread_mutex_unlock(&gpus->lock);
            gpus->fresh_count = 0;
            postrun_gpus_read_last(gpus);
            pthread_mutex_lock(&gpus->lock);
            size_t room = GPU_READINGS - gpus->count_read, more = gpus->fresh_count < room ? gpus->fresh_count : room;
            memcpy(gpus->reading + gpus->count_read, gpus->fresh, more * sizeof *gpus->fresh);
            gpus->count_read += more;
            gpus->answered |= more > 0;
            break;
        } else {
            pthread_cond_wait(&gpus->news, &gpus->lock);
        }
    }
    gpus->ready = 0;
    pthread_mutex_unlock(&gpus->lock);
    postrun_gpus_close(gpus);
    pthread_mutex_lock(&gpus->lock);
    int abandoned = gpus->abandoned;
    gpus->ended = 1;
    pthread_cond_broadcast(&gpus->news);
    pthread_mutex_unlock(&gpus->lock);
    if (abandoned) {
        destroy(gpus);
    }
    return NULL;
}

/* ---------------------------------------------------------------- the sampler */

void postrun_sampler_gpu_open(struct sampler *sampler) {
    if (!sampler->gpu_wanted) {
        return;
    }
    struct gpus *gpus = calloc(1, sizeof *gpus);
    pthread_condattr_t monotonic;
    if (gpus == NULL || pthread_condattr_init(&monotonic) != 0) {
        free(gpus);
        postrun_session_capability("gpu.samples", postrun_sampler_error(ENOMEM));
        return;
    }
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&gpus->lock, NULL);
    pthread_cond_init(&gpus->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    gpus->visible = *sampler->gpu_wanted;
    gpus->interval_ms = sampler->asked_ms;
    if (sampler->gpu_patience_ns == 0) {
        sampler->gpu_patience_ns = PATIENCE_NS;
    }
    if (sampler->gpu_waiting_ns == 0) {
        sampler->gpu_waiting_ns = WAITING_NS;
    }
    int error = pthread_create(&gpus->thread, NULL, ask, gpus);
    if (error != 0) {
        postrun_session_capability("gpu.samples", strerror(error));
        destroy(gpus);
        return;
    }
    sampler->gpus = gpus;
}

/* Under the lock: until `done` or the thread's end. */
static void wait_for(struct gpus *gpus, const int *done, int64_t ns) {
    int64_t until = now_ns(CLOCK_MONOTONIC) + ns;
    struct timespec time = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    while (!*done && !gpus->ended && pthread_cond_timedwait(&gpus->news, &gpus->lock, &time) != ETIMEDOUT) {
    }
}

/* Under the lock: emits an answer; returns its cost. */
static int64_t take(struct sampler *sampler, struct gpus *gpus) {
    if (!gpus->answered) {
        return 0;
    }
    int64_t ticks = sampler->ticks;
    for (size_t i = 0; i < gpus->count_read; i++) {
        sampler->ticks = gpus->reading[i].ticks;
        postrun_sampler_emit(sampler, gpus->reading[i].metric, gpus->reading[i].unit, gpus->reading[i].value);
    }
    sampler->ticks = ticks;
    sampler->anything |= gpus->count_read > 0;
    gpus->count_read = 0;
    gpus->asked = gpus->answered = 0;
    return gpus->cost_ns;
}

int64_t postrun_sampler_gpu_sample(struct sampler *sampler) {
    struct gpus *gpus = sampler->gpus;
    if (gpus == NULL) {
        return 0;
    }
    int64_t cost = 0;
    pthread_mutex_lock(&gpus->lock);
    cost += take(sampler, gpus); /* a late answer */
    if (!gpus->asked && !gpus->ended) {
        gpus->asked = 1;
        gpus->ticks = sampler->ticks;
        gpus->asked_ns = now_ns(CLOCK_MONOTONIC);
        pthread_cond_broadcast(&gpus->news);
        wait_for(gpus, &gpus->answered, sampler->gpu_patience_ns);
        cost += take(sampler, gpus);
    } else if (gpus->asked && !gpus->ended && !gpus->told_waiting && now_ns(CLOCK_MONOTONIC) - gpus->asked_ns > sampler->gpu_waiting_ns) {
        gpus->told_waiting = 1;
        postrun_session_capability("gpu.samples", gpus->ready ? "the driver did not answer for more than 10 s: samples of GPUs are missing"
                                                              : "the driver took more than 10 s to begin: samples of GPUs are missing");
    }
    pthread_mutex_unlock(&gpus->lock);
    return cost;
}

void postrun_sampler_gpu_close(struct sampler *sampler) {
    struct gpus *gpus = sampler->gpus;
    if (gpus == NULL) {
        return;
    }
    sampler->gpus = NULL;
    pthread_mutex_lock(&gpus->lock);
    gpus->stop = 1;
    pthread_cond_broadcast(&gpus->news);
    wait_for(gpus, &gpus->ended, sampler->gpu_patience_ns > LAST_PATIENCE_NS ? sampler->gpu_patience_ns : LAST_PATIENCE_NS);
    take(sampler, gpus);
    int ended = gpus->ended;
    if (!ended) {
        gpus->abandoned = 1; /* when the driver lets it go, it cleans up itself */
        postrun_session_capability("gpu.samples", "the driver did not answer at the end: samples of GPUs are missing");
        pthread_detach(gpus->thread);
    }
    pthread_mutex_unlock(&gpus->lock);
    if (ended) {
        pthread_join(gpus->thread, NULL);
        destroy(gpus);
    }
}

#endif
