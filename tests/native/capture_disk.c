/* capture_disk.c BEHAVIOR FOLDER - a program goes on when its traces cannot be written. */
#include "capture_check.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

static uint64_t called;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void record(int count) { /* numbers that no encoding makes short */
    uint32_t name = name_of("step");
    for (int i = 0; i < count; i++, called++) {
        postrun_begin(name, (int64_t)rand() << 32 | rand());
        postrun_end();
    }
}

static void record_until_error(int expected) {
    double begin = now(), longest = 0;
    while (now() - begin < 20 && !statistics().error) {
        double before = now();
        record(100);
        double took = now() - before;
        longest = took > longest ? took : longest;
        usleep(500);
    }
    EQUAL(statistics().error, expected);
    EQUAL(postrun_recording(), 1);
    record(1000);
    EQUAL(postrun_flush(), expected);
    CHECK(longest < 5); /* recording waits for no disk */
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    const char *behavior = argv[1], *folder = argv[2];
    if (strcmp(behavior, "start") == 0) { /* cannot begin */
        configure(folder, 0, 0, 0, 0);
        int error = postrun_start();
        printf("start %d\n", error);
        CHECK(error < 0);
        EQUAL(postrun_recording(), 0);
        EQUAL(statistics().error, error);
        record(10);
        EQUAL(statistics().recorded, 0);
        EQUAL(postrun_stop(), -EALREADY);
        char path[4096];
        EQUAL(postrun_path(path, sizeof path), -ENOENT);
        return 0;
    }
    configure(folder, 1024, 5, 0, 0);
    if (strcmp(behavior, "limit") == 0) {
        /* SIGXFSZ is not ignored: it ends the program unless the library takes it away. */
        CHECK(setrlimit(RLIMIT_FSIZE, &(struct rlimit){200000, 200000}) == 0);
        EQUAL(postrun_start(), 0);
        record_until_error(-EFBIG);
    } else if (strcmp(behavior, "full") == 0) {
        EQUAL(postrun_start(), 0);
        record_until_error(-ENOSPC);
    } else if (strcmp(behavior, "deleted") == 0) {
        EQUAL(postrun_start(), 0);
        record(10);
        EQUAL(postrun_flush(), 0);
        char path[4096];
        CHECK(postrun_path(path, sizeof path) > 0);
        EQUAL(unlink(path), 0);
        EQUAL(rmdir(folder), 0);
        record_until_error(-ENOENT);
    } else if (strcmp(behavior, "closed") == 0) { /* the program closes all descriptors, and opens files of its own */
        EQUAL(postrun_start(), 0);
        for (int fd = 3; fd < 64; fd++) {
            close(fd);
        }
        char own[4200];
        snprintf(own, sizeof own, "%s/own", folder);
        int fds[8];
        for (int i = 0; i < 8; i++) {
            fds[i] = open(own, O_RDWR | O_CREAT, 0666);
        }
        CHECK(fds[7] > 0 && write(fds[7], "mine", 4) == 4);
        record_until_error(-EBADF);
        EQUAL(postrun_stop(), 0);
        EQUAL(lseek(fds[0], 0, SEEK_END), 4); /* and open */
        EQUAL(statistics().written + statistics().lost, called);
        return 0;
    } else if (strcmp(behavior, "gone") == 0) { /* the folder is gone when the next file is due */
        configure(folder, 1024, 5, 20000, 0);
        EQUAL(postrun_start(), 0);
        char path[4096], moved[4200];
        CHECK(postrun_path(path, sizeof path) > 0);
        snprintf(moved, sizeof moved, "%s.moved", folder);
        EQUAL(rename(folder, moved), 0);
        record_until_error(-ENOENT);
    } else {
        CHECK(!"known");
    }
    EQUAL(postrun_stop(), 0);
    postrun_statistics s = statistics();
    EQUAL(s.written + s.lost, called);
    CHECK(s.lost >= 1000);
    tell_statistics();
    return 0;
}
