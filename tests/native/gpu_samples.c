/* Records samples of GPUs into a folder.
 *
 *     gpu_samples FOLDER samples COUNT INTERVAL_MS PATIENCE_MS   a sampler that samples the GPUs alone, as fast as it goes
 *     gpu_samples FOLDER long COUNT INTERVAL_MS                  the same, with times that are so far apart, and a core at 20 %
 *     gpu_samples FOLDER session FLAGS MS                        a session with its own sampler, for so long
 *     gpu_samples FOLDER cycles COUNT                            sessions with a sample each, one after the other
 *     gpu_samples FOLDER stuck MS                                the driver takes longer than a session; another one, then waits so long */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/capture.h"
#include "core/clock.h"
#include "gpu/gpu_visible.h"
#include "sampler/sampler.h"

static void check(int result, const char *what) {
    if (result != 0) {
        fprintf(stderr, "%s: %d\n", what, result);
        exit(1);
    }
}

static void rest(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void begin(const char *folder, uint32_t sample_ms, uint32_t flags) {
    postrun_config config = POSTRUN_CONFIG_INIT;
    config.directory = folder;
    config.sample_ms = sample_ms;
    config.flags = flags;
    check(postrun_configure(&config), "postrun_configure");
    check(postrun_start(), "postrun_start");
}

static uint32_t interval;

static void samples(long count, uint32_t interval_ms, long patience_ms, int apart) {
    static struct gpu_visible visible;
    postrun_gpu_visible_take(&visible);
    struct sampler *sampler = postrun_sampler_new(interval_ms, "/not-there", "/not-there");
    if (sampler == NULL) {
        exit(1);
    }
    sampler->gpu_patience_ns = patience_ms * 1000000;
    sampler->gpu_waiting_ns = getenv("WAITING_NS") ? atol(getenv("WAITING_NS")) : 0;
    postrun_sampler_gpus(sampler, &visible);
    int64_t begun = clock_ticks();
    double step = postrun_clock_rate() * interval_ms / 1000;
    uint32_t core = postrun_name("cpu_utilization", 15);
    for (long i = 0; i < count; i++) {
        int64_t ticks = apart ? begun + (int64_t)(step * (double)i) : clock_ticks();
        if (apart) {
            postrun_session_metric(core, 0, ticks, 20);
        }
        postrun_sampler_sample(sampler, ticks);
    }
    interval = postrun_sampler_interval_ms(sampler);
    postrun_sampler_free(sampler);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        return 2;
    }
    long first = atol(argv[3]), second = argc > 4 ? atol(argv[4]) : 0;
    if (strcmp(argv[2], "samples") == 0) {
        begin(argv[1], 0, 0);
        samples(first, (uint32_t)second, atol(argv[5]), 0);
        check(postrun_stop(), "postrun_stop");
    } else if (strcmp(argv[2], "long") == 0) {
        begin(argv[1], 0, 0);
        samples(first, (uint32_t)second, 60000, 1);
        check(postrun_stop(), "postrun_stop");
    } else if (strcmp(argv[2], "session") == 0) {
        begin(argv[1], 100, (uint32_t)first);
        rest(second);
        check(postrun_stop(), "postrun_stop");
    } else if (strcmp(argv[2], "cycles") == 0) {
        for (long i = 0; i < first; i++) {
            begin(argv[1], 0, 0);
            samples(1, 100, 60000, 0);
            check(postrun_stop(), "postrun_stop");
        }
    } else {
        begin(argv[1], 0, 0);
        samples(2, 100, 50, 0);
        check(postrun_stop(), "postrun_stop");
        begin(argv[1], 0, 0);
        rest(first);
        check(postrun_stop(), "postrun_stop");
    }
    printf("interval %u\n", interval);
    return 0;
}
