/* capture_check.h - shared by the test programs of the recording library: a check that names its line on failure, and the statistics. */
#ifndef CAPTURE_CHECK_H
#define CAPTURE_CHECK_H

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <postrun.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)
#define EQUAL(a, b) check_equal((int64_t)(a), (int64_t)(b), #a " == " #b, __FILE__, __LINE__)

static inline void check(int holds, const char *condition, const char *file, int line) {
    if (!holds) {
        fprintf(stderr, "%s:%d: not so: %s (errno %d)\n", file, line, condition, errno);
        _exit(1);
    }
}

static inline void check_equal(int64_t a, int64_t b, const char *condition, const char *file, int line) {
    if (a != b) {
        fprintf(stderr, "%s:%d: not so: %s: %" PRId64 " and %" PRId64 "\n", file, line, condition, a, b);
        _exit(1);
    }
}

static inline int others_sleep(void) {
    int threads = 0, sleeping = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks));) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid()) {
            continue;
        }
        char path[300], line[512] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) {
            continue; /* it ended */
        }
        const char *state = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
        fclose(file);
        threads++;
        sleeping += state && state[1] == ' ' && state[2] == 'S';
    }
    closedir(tasks);
    return sleeping == threads;
}

/* Called by the main thread before it forks. A thread that starts allocates memory, and a child that is forked then inherits the locked
 * allocator of a sanitizer. A thread may also sleep while another one has the lock, so several looks in a row must agree. */
static inline void wait_until_others_sleep(void) {
    for (int looks = 0; looks < 10; usleep(1000)) {
        looks = others_sleep() ? looks + 1 : 0;
    }
}

static inline uint32_t name_of(const char *text) { return postrun_name(text, strlen(text)); }

static inline postrun_statistics statistics(void) {
    postrun_statistics s = {.size = sizeof s};
    postrun_get_statistics(&s);
    return s;
}

static inline void configure(const char *folder, uint32_t ring, uint32_t drain_ms, uint64_t rotate, uint32_t flags) {
    postrun_config c = POSTRUN_CONFIG_INIT;
    c.directory = folder;
    c.ring_records = ring;
    c.drain_ms = drain_ms;
    c.rotate_bytes = rotate;
    c.flags = flags;
    EQUAL(postrun_configure(&c), 0);
}

static inline void start(const char *folder) {
    configure(folder, 0, 0, 0, 0);
    EQUAL(postrun_start(), 0);
}

/* For the reader of the file: "key value" lines. */
static inline void tell(const char *key, uint64_t value) { printf("%s %" PRIu64 "\n", key, value); }

static inline void tell_statistics(void) {
    postrun_statistics s = statistics();
    tell("recorded", s.recorded);
    tell("written", s.written);
    tell("lost", s.lost);
    tell("unbalanced", s.unbalanced);
    tell("bytes", s.bytes);
    tell("blocks", s.blocks);
    printf("error %d\n", s.error);
    fflush(stdout);
}

#endif
