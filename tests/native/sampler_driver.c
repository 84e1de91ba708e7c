/* Plays the system sampler: takes commands from standard input, prints what the sampler hands over.
 *
 *     sampler_driver INTERVAL_MS PROC_ROOT SYS_ROOT     ("-": the machine's own)
 *
 *     sample TICKS          one sample; metrics and capabilities, then "done RESULT INTERVAL_MS ALLOCATIONS"
 *     cost NS               processor time of each following sample
 *     error NUMBER          what postrun_session_metric returns from now on
 *     perf EVENT ERRNO      opening this event (0 to 3, see sampler.h) fails; 0: opens a made-up counter
 *     full EVENT            this event opens alone, not in a group
 *     counters CORE N ...   what the next read of this core's group gives, N numbers
 *     steal CORE            this core's descriptor belongs to somebody else now
 *     time COUNT            COUNT samples of now; prints the processor time of each in ns
 *
 * Linked with -Wl,--wrap for the calls that are made up. Ticks are nanoseconds. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "sampler/sampler.h"

#define CORES 64
static char names[128][64];
static uint32_t name_count;
static int metric_error, quiet, perf_on;
static int64_t fake_cost = -1, fake_clock;
static long allocations;
static int perf_errno[SAMPLER_PERF_EVENTS], perf_full[SAMPLER_PERF_EVENTS], pipe_in[CORES], leader_fd[CORES], stolen[CORES];

/* ---------------------------------------------------------------- what session.c and clock.c provide */

uint32_t postrun_name(const char *text, size_t length) {
    if (name_count == 127) {
        abort();
    }
    snprintf(names[++name_count], sizeof names[0], "%.*s", (int)length, text);
    return name_count;
}
double postrun_clock_rate(void) { return 1e9; }
int64_t postrun_clock_monotonic(void) { return 0; }
int postrun_session_metric(uint32_t name, int32_t unit, int64_t ticks, double value) {
    if (!quiet) {
        printf("metric %s %d %lld %.17g\n", names[name], unit, (long long)ticks, value);
    }
    return metric_error;
}
int postrun_metadata(const char *key, const char *value) { return key != NULL && value != NULL ? 0 : -EINVAL; }
int postrun_session_capability(const char *key, const char *why) {
    if (!quiet) {
        printf("capability %s %s\n", key, why);
    }
    return 0;
}

/* ---------------------------------------------------------------- calls that are made up */

void *__real_malloc(size_t);
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
int __real_clock_gettime(clockid_t, struct timespec *);
void *__wrap_malloc(size_t size) {
    allocations++;
    return __real_malloc(size);
}
void *__wrap_calloc(size_t count, size_t size) {
    allocations++;
    return __real_calloc(count, size);
}
void *__wrap_realloc(void *at, size_t size) {
    allocations++;
    return __real_realloc(at, size);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *now) {
    if (id != CLOCK_THREAD_CPUTIME_ID || fake_cost < 0) {
        return __real_clock_gettime(id, now);
    }
    fake_clock += fake_cost;
    now->tv_sec = (time_t)(fake_clock / 1000000000);
    now->tv_nsec = (long)(fake_clock % 1000000000);
    return 0;
}

static int event_of(const struct perf_event_attr *attributes) {
    if (attributes->type == PERF_TYPE_HW_CACHE) {
        return attributes->config == 0x10004 ? PERF_ITLB_MISSES : -1; /* misses << 16 | reads << 8 | instruction TLB */
    }
    switch (attributes->config) {
    case PERF_COUNT_HW_CPU_CYCLES: return PERF_CYCLES;
    case PERF_COUNT_HW_INSTRUCTIONS: return PERF_INSTRUCTIONS;
    case PERF_COUNT_HW_REF_CPU_CYCLES: return PERF_REF_CYCLES;
    default: return -1;
    }
}

long __real_syscall(long, const void *, int, int, int, unsigned long);
long __wrap_syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    const struct perf_event_attr *attributes = va_arg(list, const struct perf_event_attr *);
    int process = va_arg(list, int), core = va_arg(list, int), leader = va_arg(list, int);
    unsigned long flags = va_arg(list, unsigned long);
    va_end(list);
    if (!perf_on) {
        return __real_syscall(number, attributes, process, core, leader, flags);
    }
    int event = event_of(attributes), ends[2];
    if (number != SYS_perf_event_open || process != -1 || core < 0 || core >= CORES || event < 0 ||
        attributes->size != sizeof *attributes) {
        abort();
    }
    errno = perf_errno[event] != 0 ? perf_errno[event] : perf_full[event] && leader >= 0 ? EINVAL : 0;
    if (errno != 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return -1;
    }
    if (leader < 0) {
        pipe_in[core] = ends[1];
        leader_fd[core] = ends[0];
    } else if (leader != leader_fd[core]) {
        abort();
    }
    return ends[0];
}

int __real_ioctl(int, unsigned long, void *);
int __wrap_ioctl(int fd, unsigned long request, ...) {
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (!perf_on || request != PERF_EVENT_IOC_ID) {
        return __real_ioctl(fd, request, argument);
    }
    for (int core = 0; core < CORES; core++) {
        if (leader_fd[core] == fd && stolen[core]) {
            errno = ENOTTY;
            return -1;
        }
    }
    *(uint64_t *)argument = (uint64_t)fd + 1000;
    return 0;
}

/* ---------------------------------------------------------------- commands */

static int64_t now_ns(clockid_t id) {
    struct timespec now;
    __real_clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        return 2;
    }
    struct sampler *sampler = postrun_sampler_new((uint32_t)strtoul(argv[1], NULL, 10), strcmp(argv[2], "-") == 0 ? NULL : argv[2],
                                                  strcmp(argv[3], "-") == 0 ? NULL : argv[3]);
    if (sampler == NULL) {
        return 3;
    }
    char line[4096];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char *rest;
        long long first;
        char *space = strchr(line, ' ');
        first = space != NULL ? strtoll(space, &rest, 10) : 0;
        if (strncmp(line, "sample ", 7) == 0) {
            long before = allocations;
            int result = postrun_sampler_sample(sampler, first);
            printf("done %d %u %ld\n", result, postrun_sampler_interval_ms(sampler), allocations - before);
        } else if (strncmp(line, "cost ", 5) == 0) {
            fake_cost = first;
        } else if (strncmp(line, "error ", 6) == 0) {
            metric_error = (int)first;
        } else if (strncmp(line, "perf ", 5) == 0) {
            perf_on = 1;
            perf_errno[first] = (int)strtol(rest, &rest, 10);
        } else if (strncmp(line, "full ", 5) == 0) {
            perf_full[first] = 1;
        } else if (strncmp(line, "steal ", 6) == 0) {
            stolen[first] = 1;
        } else if (strncmp(line, "counters ", 9) == 0) {
            long count = strtol(rest, &rest, 10);
            for (long i = 0; i < count; i++) {
                uint64_t value = strtoull(rest, &rest, 10);
                if (write(pipe_in[first], &value, sizeof value) != (ssize_t)sizeof value) {
                    return 4;
                }
            }
        } else if (strncmp(line, "time ", 5) == 0) {
            quiet = 1;
            for (long long i = 0; i < first; i++) {
                int64_t begun = now_ns(CLOCK_THREAD_CPUTIME_ID);
                postrun_sampler_sample(sampler, now_ns(CLOCK_MONOTONIC));
                printf("%lld\n", (long long)(now_ns(CLOCK_THREAD_CPUTIME_ID) - begun));
            }
            quiet = 0;
            puts("end");
        } else {
            return 5;
        }
        fflush(stdout);
    }
    postrun_sampler_free(sampler);
    postrun_sampler_free(NULL);
    return 0;
}
