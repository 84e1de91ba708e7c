/* sampling.c - the sample thread, which samples the system at the times of a grid while the session runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "core/waiting.h"
#include "session.h"

void *postrun_sample_loop(void *argument) {
    struct session *s = argument;
    pthread_setname_np(pthread_self(), "postrun-sampler");
    struct sampler *sampler = postrun_sampler_new(s->config.sample_ms, NULL, NULL);
    if (!sampler) {
        postrun_session_capability("sampler", strerror(ENOMEM));
        return NULL;
    }
    if (!(s->config.flags & POSTRUN_NO_GPU_SAMPLES)) {
        postrun_sampler_gpus(sampler, &s->visible);
    }
    int64_t begin = postrun_clock_monotonic(), due = begin;
    int64_t end = s->config.sample_for_s ? begin + (int64_t)s->config.sample_for_s * 1000000000 : INT64_MAX;
    int64_t cores_end = s->config.cpu_for_s ? begin + (int64_t)s->config.cpu_for_s * 1000000000 : INT64_MAX;
    while (!atomic_load(&s->stopping) && due < end) {
        if (due >= cores_end) {
            postrun_sampler_without_cores(sampler);
        }
        postrun_sampler_sample(sampler, clock_ticks());
        int64_t interval = (int64_t)postrun_sampler_interval_ms(sampler) * NS_PER_MS, now = postrun_clock_monotonic();
        due += interval;
        if (due <= now) { /* late: at the next moment of the grid */
            due += (now - due) / interval * interval + interval;
        }
        while (!atomic_load(&s->stopping) && now < due) {
            postrun_wait(&s->sampler_stop, due - now);
            now = postrun_clock_monotonic();
        }
    }
    postrun_sampler_free(sampler);
    return NULL;
}
