/* clock.c - chooses the clock and relates its ticks to CLOCK_MONOTONIC and CLOCK_REALTIME.
 *
 * The processor's time-stamp counter costs a third of a clock_gettime call. It is used only if the kernel itself relies on it: it then
 * runs at one rate in every idle state and is the same on all processors. Otherwise ticks are nanoseconds of CLOCK_MONOTONIC. */
#define _GNU_SOURCE
#include "clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "capture.h"

#define NS_PER_S 1000000000

bool postrun_clock_has_counter;
static struct clock_anchor origin; /* the start of the measurement of the rate */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int64_t read_clock(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

int64_t postrun_clock_monotonic(void) { return read_clock(CLOCK_MONOTONIC); }

int64_t postrun_clock_realtime(void) { return read_clock(CLOCK_REALTIME); }

#if defined(__x86_64__)
/* The beginning of a small file as text: its length. */
static size_t read_text(const char *path, char *text, size_t size) {
    size_t length = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got;
        while (length + 1 < size && (got = read(fd, text + length, size - 1 - length)) > 0) {
            length += (size_t)got;
        }
        close(fd);
    }
    text[length] = 0;
    return length;
}

static bool counter_is_trusted(void) {
    static char text[8192]; /* the first processor is enough */
    read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource", text, sizeof text);
    if (strcmp(text, "tsc\n") != 0) {
        return false;
    }
    read_text("/proc/cpuinfo", text, sizeof text);
    return strstr(text, " constant_tsc") != NULL && strstr(text, " nonstop_tsc") != NULL;
}
#elif defined(__aarch64__)
static bool counter_is_trusted(void) { return true; }
#else
static bool counter_is_trusted(void) { return false; }
#endif

static void read_anchor(struct clock_anchor *anchor) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < 5; i++) { /* an interrupt between the clocks spoils one attempt, not five */
        int64_t before = clock_ticks();
        int64_t monotonic = postrun_clock_monotonic();
        int64_t realtime = postrun_clock_realtime();
        int64_t after = clock_ticks();
        if (after - before < best) {
            best = after - before;
            *anchor = (struct clock_anchor){before + best / 2, monotonic, realtime, best};
        }
    }
}

static void init(void) {
    postrun_clock_has_counter = counter_is_trusted();
    read_anchor(&origin);
}

void postrun_clock_init(void) { pthread_once(&once, init); }

enum clock_kind postrun_clock_kind(void) {
    postrun_clock_init();
    if (!postrun_clock_has_counter) {
        return CLOCK_SYSTEM;
    }
#if defined(__aarch64__)
    return CLOCK_CNTVCT;
#else
    return CLOCK_TSC;
#endif
}

double postrun_clock_rate(void) {
    if (postrun_clock_kind() == CLOCK_SYSTEM) {
        return NS_PER_S;
    }
#if defined(__aarch64__)
    uint64_t rate;
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(rate));
    return (double)rate;
#else
    struct clock_anchor now;
    read_anchor(&now);
    while (now.monotonic_ns - origin.monotonic_ns < 2000000) { /* only in the first 2 ms of a process: 50 ns of 2 ms are 25 ppm */
        nanosleep(&(struct timespec){0, 500000}, NULL);
        read_anchor(&now);
    }
    return (double)(now.ticks - origin.ticks) * NS_PER_S / (double)(now.monotonic_ns - origin.monotonic_ns);
#endif
}

void postrun_clock_anchor(struct clock_anchor *anchor) {
    double rate = postrun_clock_rate();
    read_anchor(anchor);
    anchor->uncertainty_ns = (int64_t)((double)anchor->uncertainty_ns / 2 * NS_PER_S / rate) + 1;
}

int64_t postrun_now_ns(void) { return postrun_clock_realtime(); }
