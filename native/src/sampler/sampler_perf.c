/* sampler_perf.c - cycles, instructions and instruction TLB misses of the machine's cores (perf_event_open).
 *
 * There is one group of events per core, over all processes, read at once. Most users lack the permission: the kernel's answer is recorded
 * once, and nothing is counted. If the cores have fewer counters than events, the kernel alternates between events, and counts are scaled
 * to the full time. */
#define _DEFAULT_SOURCE 1
#include "sampler.h"

#if !defined(__linux__)

void postrun_sampler_perf_open(struct sampler *sampler) {
    (void)sampler;
    postrun_session_capability("perf", "counters are read on Linux only");
}
void postrun_sampler_perf_sample(struct sampler *sampler) { (void)sampler; }
void postrun_sampler_perf_close(struct sampler *sampler) { (void)sampler; }

#else

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ITLB_MISSES (PERF_COUNT_HW_CACHE_ITLB | PERF_COUNT_HW_CACHE_OP_READ << 8 | PERF_COUNT_HW_CACHE_RESULT_MISS << 16)

static const struct {
    uint32_t type;
    uint64_t config;
    enum sampler_metric metric;
    const char *key;
} events[SAMPLER_PERF_EVENTS] = {
    /* the ones first that matter most, if descriptors are few */
    [PERF_REF_CYCLES] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_REF_CPU_CYCLES, M_PERF_REF_CYCLES, "perf.ref_cycles"},
    [PERF_ITLB_MISSES] = {PERF_TYPE_HW_CACHE, ITLB_MISSES, M_PERF_ITLB_MISSES, "perf.itlb_misses"},
    [PERF_CYCLES] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, M_PERF_CYCLES, "perf.cycles"},
    [PERF_INSTRUCTIONS] = {PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, M_PERF_INSTRUCTIONS, "perf.instructions"},
};

/* A descriptor of 3 or more, or a negative errno. */
static int open_event(int event, int core, int leader) {
    struct perf_event_attr attributes;
    memset(&attributes, 0, sizeof attributes);
    attributes.size = sizeof attributes;
    attributes.type = events[event].type;
    attributes.config = events[event].config;
    attributes.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    long fd = syscall(SYS_perf_event_open, &attributes, -1, core, leader, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    if (fd < 3) {
        int moved = fcntl((int)fd, F_DUPFD_CLOEXEC, 3), error = errno;
        close((int)fd);
        return moved < 0 ? -error : moved;
    }
    return (int)fd;
}

static void tell(const char *key, int error) {
    char why[160];
    const char *word = postrun_sampler_error(-error);
    if (error == -EACCES || error == -EPERM) {
        snprintf(why, sizeof why, "perf_event_open: %s; counters of all processes need CAP_PERFMON or kernel.perf_event_paranoid 0", word);
    } else if (error == -ENOENT || error == -ENODEV || error == -EOPNOTSUPP) {
        snprintf(why, sizeof why, "perf_event_open: this machine (or virtual machine) has no such counter");
    } else if (word != NULL) {
        snprintf(why, sizeof why, "perf_event_open: %s", word);
    } else {
        snprintf(why, sizeof why, "perf_event_open: error %d", -error);
    }
    postrun_session_capability(key, why);
}

static void close_groups(struct sampler *sampler) {
    for (int g = 0; g < sampler->groups; g++) {
        for (int i = SAMPLER_PERF_EVENTS - 1; i >= 0; i--) {
            postrun_sampler_close(&sampler->group[g].fd[i]);
        }
    }
    free(sampler->group);
    sampler->group = NULL;
    sampler->groups = 0;
}

/* Opens the chosen events on every core. 0, or the error of the event whose index goes to *failed. */
static int open_groups(struct sampler *sampler, int cores, int *failed) {
    *failed = 0;
    sampler->group = calloc((size_t)cores, sizeof *sampler->group);
    if (sampler->group == NULL) {
        return -ENOMEM;
    }
    for (size_t core = 0; core < sampler->core_count && sampler->groups < cores; core++) {
        if (sampler->cores[core].seen == 0) {
            continue;
        }
        struct perf_group *group = &sampler->group[sampler->groups++];
        for (int i = 0; i < SAMPLER_PERF_EVENTS; i++) {
            group->fd[i] = -1;
        }
        for (int i = 0; i < sampler->events; i++) {
            int fd = open_event(sampler->event[i], (int)core, i == 0 ? -1 : group->fd[0]);
            if (fd < 0) {
                *failed = i;
                return fd;
            }
            group->fd[i] = fd;
        }
        if (ioctl(group->fd[0], PERF_EVENT_IOC_ID, &group->id) != 0) {
            return -errno;
        }
    }
    return 0;
}

static void leave_out(struct sampler *sampler, int place) {
    sampler->events--;
    memmove(&sampler->event[place], &sampler->event[place + 1], (size_t)(sampler->events - place) * sizeof sampler->event[0]);
}

void postrun_sampler_perf_open(struct sampler *sampler) {
    int cores = 0, core = -1;
    for (size_t i = 0; i < sampler->core_count; i++) {
        if (sampler->cores[i].seen != 0) {
            core = core < 0 ? (int)i : core;
            cores++;
        }
    }
    if (sampler->made_up || cores == 0) {
        return;
    }
    for (int event = 0; event < SAMPLER_PERF_EVENTS; event++) { /* each alone, so that one that is missing takes no other with it */
        int fd = open_event(event, core, -1);
        if (fd < 0) {
            tell(events[event].key, fd);
            continue;
        }
        close(fd);
        sampler->event[sampler->events++] = event;
    }
    /* The program needs its descriptors itself: the limit is an eighth of those that it may open. */
    struct rlimit limit;
    rlim_t most = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur / 8 : 8192;
    while (sampler->events > 0 && (rlim_t)sampler->events * (rlim_t)cores > most) {
        char why[160];
        snprintf(why, sizeof why, "would need %d descriptors, one per core, of the %llu that perf counters may take: raise ulimit -n",
                 cores, (unsigned long long)most);
        postrun_session_capability(events[sampler->event[sampler->events - 1]].key, why);
        leave_out(sampler, sampler->events - 1);
    }
    while (sampler->events > 0) {
        int failed, error = open_groups(sampler, cores, &failed);
        if (error == 0) {
            return;
        }
        close_groups(sampler);
        const char *key = events[sampler->event[failed]].key;
        if (error == -EINVAL && failed > 0) {
            postrun_session_capability(key, "perf_event_open: the cores have too few counters to count this beside the others");
        } else {
            tell(key, error);
        }
        leave_out(sampler, failed);
    }
}

void postrun_sampler_perf_sample(struct sampler *sampler) {
    double sum[SAMPLER_PERF_EVENTS] = {0};
    int known = sampler->groups > 0 && sampler->elapsed_s > 0;
    for (int g = 0; g < sampler->groups; g++) {
        struct perf_group *group = &sampler->group[g];
        uint64_t now[3 + SAMPLER_PERF_EVENTS], id = 0; /* number of events, time enabled, time running, values */
        size_t size = (3 + (size_t)sampler->events) * sizeof now[0];
        /* read cannot name a place, so the descriptor must still be ours: a program that closes all it sees may have given it to a socket. */
        if (group->fd[0] < 0 || ioctl(group->fd[0], PERF_EVENT_IOC_ID, &id) != 0 || id != group->id ||
            read(group->fd[0], now, size) != (ssize_t)size || now[0] != (uint64_t)sampler->events) {
            known = 0;
            continue;
        }
        sampler->anything = 1;
        int64_t enabled = sampler_difference(now[1], group->enabled), running = sampler_difference(now[2], group->running);
        if (group->seen == 0 || group->seen + 1 != sampler->number || enabled < 0 || running < 0 || (running == 0 && enabled > 0)) {
            known = 0;
        }
        double scale = running > 0 ? (double)enabled / (double)running : 1;
        for (int i = 0; i < sampler->events; i++) {
            int64_t counted = sampler_difference(now[3 + i], group->value[i]);
            if (counted < 0) {
                known = 0;
            }
            sum[i] += (double)counted * scale;
            group->value[i] = now[3 + i];
        }
        group->enabled = now[1];
        group->running = now[2];
        group->seen = sampler->number;
    }
    for (int i = 0; known && i < sampler->events; i++) {
        postrun_sampler_emit(sampler, events[sampler->event[i]].metric, -1, sum[i] / sampler->elapsed_s);
    }
}

void postrun_sampler_perf_close(struct sampler *sampler) { close_groups(sampler); }

#endif
