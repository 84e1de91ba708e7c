/* capture_hot_path.c - what does recording cost? Prints one "name value" a line; capture_hot_path.py builds and reads it.
 *
 * Times are nanoseconds for one call pair: batches that fit into the ring, all kinds in turn, so that a change of the processor's speed meets
 * all alike. Of many batches the tenth percentile: those that nobody interrupted. */
#define _GNU_SOURCE
#include <postrun.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef WITH_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

#if defined(__x86_64__)
#include <x86intrin.h>
static inline uint64_t counter(void) { return __rdtsc(); }
#elif defined(__aarch64__)
static inline uint64_t counter(void) {
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
}
#else
static inline uint64_t counter(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
#endif

enum { BATCH = 2000, BATCHES = 400 };

static int64_t clock_ns(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint32_t name;
static volatile uint64_t sink;

typedef void kind(void);
static void two_counters(void) {
    uint64_t sum = 0;
    for (int i = 0; i < BATCH; i++) {
        sum += counter();
        sum += counter();
    }
    sink = sum;
}
static void two_clocks(void) {
    int64_t sum = 0;
    for (int i = 0; i < BATCH; i++) {
        sum += clock_ns(CLOCK_MONOTONIC);
        sum += clock_ns(CLOCK_MONOTONIC);
    }
    sink = (uint64_t)sum;
}
static void pair(void) {
    for (int i = 0; i < BATCH; i++) {
        postrun_begin(name, i);
        postrun_end();
    }
}
#ifdef WITH_NVTX
static void nvtx_pair(void) { /* no tool is attached: it records nothing */
    for (int i = 0; i < BATCH; i++) {
        nvtxRangePushA("step");
        nvtxRangePop();
    }
}
#endif
static void two_calls(void) { /* of a function that does nothing, in the same library */
    for (int i = 0; i < BATCH; i++) {
        sink = (uintptr_t)postrun_version();
        sink = (uintptr_t)postrun_version();
    }
}
static void handle(void) {
    for (int i = 0; i < BATCH; i++) {
        postrun_range_end(postrun_range_begin(name, i));
    }
}
static void count(void) {
    for (int i = 0; i < BATCH; i++) {
        postrun_counter(name, i);
    }
}

static double time_of(kind *run) {
    int64_t begin = clock_ns(CLOCK_MONOTONIC);
    run();
    return (double)(clock_ns(CLOCK_MONOTONIC) - begin) / BATCH;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double typical(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 10];
}

static void measure(const char *const *names, kind *const *kinds, int n, const char *prefix) {
    static double times[8][BATCHES];
    for (int i = 0; i < BATCHES; i++) {
        for (int k = 0; k < n; k++) {
            times[k][i] = time_of(kinds[k]);
        }
        postrun_flush(); /* the ring is empty again */
    }
    for (int k = 0; k < n; k++) {
        printf("%s%s %.3f\n", prefix, names[k], typical(times[k], BATCHES));
    }
}

/* Two threads at once: each in its own batches, the ring drained in between. */
static pthread_barrier_t both;
static void *one_of_two(void *result) {
    double times[BATCHES], floors[BATCHES];
    pair();
    for (int i = 0; i < BATCHES; i++) {
        pthread_barrier_wait(&both);
        floors[i] = time_of(two_counters);
        times[i] = time_of(pair);
        if (pthread_barrier_wait(&both) == PTHREAD_BARRIER_SERIAL_THREAD) {
            postrun_flush();
        }
    }
    ((double *)result)[0] = typical(times, BATCHES);
    ((double *)result)[1] = typical(floors, BATCHES);
    return NULL;
}

static int64_t resident_kib(void) {
    char line[256];
    int64_t kib = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            kib = atoll(line + 6);
        }
    }
    if (file) {
        fclose(file);
    }
    return kib;
}

int main(int argc, char **argv) {
    postrun_config config = POSTRUN_CONFIG_INIT;
    config.directory = argc > 1 ? argv[1] : "bench-traces";
    double seconds = argc > 2 ? atof(argv[2]) : 3;
    if (postrun_configure(&config) != 0) {
        return 1;
    }
    name = postrun_name("step", 4);
    two_counters();
    measure((const char *const[]){"pair", "range", "counter", "calls"}, (kind *const[]){pair, handle, count, two_calls}, 4, "disabled_");

    int64_t before = resident_kib();
    if (postrun_start() != 0) {
        return 1;
    }
    usleep(300000);
    printf("idle_kib %ld\n", (long)(resident_kib() - before));
    pair();
    measure((const char *const[]){"rdtsc", "clock_gettime", "pair", "range", "counter"},
            (kind *const[]){two_counters, two_clocks, pair, handle, count}, 5, "");

#ifdef WITH_NVTX
    nvtx_pair();
    measure((const char *const[]){"nvtx_pair"}, (kind *const[]){nvtx_pair}, 1, "");
#endif

    pthread_t other;
    double results[2][2];
    pthread_barrier_init(&both, NULL, 2);
    if (pthread_create(&other, NULL, one_of_two, results[0]) != 0) {
        return 1;
    }
    one_of_two(results[1]);
    pthread_join(other, NULL);
    printf("two_threads_pair %.3f\n", (results[0][0] + results[1][0]) / 2);
    printf("two_threads_rdtsc %.3f\n", (results[0][1] + results[1][1]) / 2);

    /* Draining at 100,000 pairs/s: processor time of the process less this thread's. */
    int64_t process = clock_ns(CLOCK_PROCESS_CPUTIME_ID), self = clock_ns(CLOCK_THREAD_CPUTIME_ID), begin = clock_ns(CLOCK_MONOTONIC);
    int64_t recorded = 0, end = begin + (int64_t)(seconds * 1e9), now;
    while ((now = clock_ns(CLOCK_MONOTONIC)) < end) {
        for (; recorded * 10000 < now - begin; recorded++) { /* one each 10 us */
            postrun_begin(name, recorded);
            postrun_end();
        }
        usleep(900);
    }
    int64_t drained = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - process - (clock_ns(CLOCK_THREAD_CPUTIME_ID) - self);
    printf("drain_percent %.4f\n", 100 * (double)drained / (double)(now - begin));
    printf("pairs_per_s %.0f\n", (double)recorded / ((double)(now - begin) / 1e9));
    printf("after_kib %ld\n", (long)(resident_kib() - before));
    postrun_stop();
    postrun_statistics s = {.size = sizeof s};
    postrun_get_statistics(&s);
    printf("bytes_per_record %.3f\nlost %lu\n", (double)s.bytes / (double)s.written, (unsigned long)s.lost);
    return s.error ? 1 : 0;
}
