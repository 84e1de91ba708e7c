/* cycles.c - many starts and stops, with another thread that launches all the time: the growth of the process and the time of a cycle. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>

#include "modes.h"
#include "session.h"

#define SETTLE_MS 50 /* until threads that only wait for the device have ended */

static _Atomic int over;

static void *launch_always(void *argument) {
    (void)argument;
    while (!atomic_load(&over)) {
        for (int i = 0; i < 10; i++) {
            device_launch_small(DEVICE_BETA);
        }
        device_synchronize();
        usleep(500);
    }
    return NULL;
}

static long entries(const char *folder) {
    DIR *listed = opendir(folder);
    long count = 0;
    while (listed && readdir(listed)) {
        count++;
    }
    if (listed) {
        closedir(listed);
    }
    return count;
}

struct usage {
    long resident_kib, device_kib, threads, descriptors;
};

static struct usage usage_now(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &pages, &resident) != 2) {
        exit(72);
    }
    fclose(file);
    return (struct usage){resident * (sysconf(_SC_PAGESIZE) / 1024), -(long)(device_free_memory() >> 10), entries("/proc/self/task"),
                          entries("/proc/self/fd")};
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* cycles COUNT FROM sessions|windows: usage is compared between cycle FROM and the last one. */
int mode_cycles(int argc, char **argv) {
    long cycles = NUMBER(1, 1000), from = NUMBER(2, 100);
    int sessions = argc > 3 && strcmp(argv[3], "sessions") == 0;
    int64_t *ns = calloc((size_t)cycles, sizeof *ns);
    struct usage first = {0, 0, 0, 0};
    pthread_t other;
    device_begin();
    if (!sessions) {
        session_start(POSTRUN_NO_GPU_YET);
    }
    if (pthread_create(&other, NULL, launch_always, NULL) != 0) {
        return 72;
    }
    for (long i = 0; i < cycles; i++) {
        int64_t begin = program_time(CLOCK_MONOTONIC), work;
        if (sessions) {
            session_start(0);
        } else {
            session_window(1);
        }
        work = program_time(CLOCK_MONOTONIC);
        for (int k = 0; k < 10; k++) {
            device_launch_small(DEVICE_ALPHA);
        }
        device_synchronize();
        begin += program_time(CLOCK_MONOTONIC) - work; /* the work is not part of the cycle's own time */
        if (sessions) {
            session_stop();
        } else {
            session_window(0);
        }
        ns[i] = program_time(CLOCK_MONOTONIC) - begin;
        if (i == from) {
            pause_ms(SETTLE_MS);
            first = usage_now();
        }
    }
    pause_ms(SETTLE_MS);
    struct usage last = usage_now();
    atomic_store(&over, 1);
    pthread_join(other, NULL);
    if (!sessions) {
        session_stop();
    }
    qsort(ns, (size_t)cycles, sizeof *ns, ascending);
    printf("{\"cycles\": %ld, \"kernels\": %ld, \"median_ms\": %.3f, \"maximum_ms\": %.3f, \"resident_kib\": %ld, \"device_kib\": %ld,"
           " \"threads\": %ld, \"descriptors\": %ld}\n",
           cycles, cycles * 10, (double)ns[cycles / 2] / 1e6, (double)ns[cycles - 1] / 1e6, last.resident_kib - first.resident_kib,
           last.device_kib - first.device_kib, last.threads - first.threads, last.descriptors - first.descriptors);
    free(ns);
    return 0;
}
