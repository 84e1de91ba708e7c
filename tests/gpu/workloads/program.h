/* program.h - shared by the modes of the program `workload`. Each mode prints one JSON object, its report, as its last line. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "device.h"

#define NUMBER(index, fallback) (argc > (index) ? strtol(argv[index], NULL, 10) : (fallback))

static inline int64_t program_time(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}
static inline int64_t realtime_ns(void) { return program_time(CLOCK_REALTIME); }

static inline void pause_ms(long ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

#endif
