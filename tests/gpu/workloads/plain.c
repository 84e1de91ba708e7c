/* plain.c - a CUDA program that knows nothing of postrun: `plain ATTACH_MS counts SCALE`, `plain ATTACH_MS ends HOW MS FILE`.
 *
 * ATTACH_MS is the time in which the recorder attaches, after CUDA has been initialized.
 *
 * The static CUDA runtime is linked, so that only the driver loads what CUDA_INJECTION64_PATH names. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "work.h"

#define MOST_LAUNCHES 65536

static void *leave(void *argument) {
    (void)argument;
    exit(4);
}

/* One launch a millisecond, each with its time in FILE, which survives the process; then the end. */
static int ends(long attach_ms, const char *how, long ms, const char *path) {
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, MOST_LAUNCHES * sizeof(int64_t)) != 0) {
        return 72;
    }
    int64_t *times = mmap(NULL, MOST_LAUNCHES * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (times == MAP_FAILED) {
        return 72;
    }
    device_begin();
    pause_ms(attach_ms);
    int64_t last = program_time(CLOCK_MONOTONIC) + ms * 1000000;
    for (int i = 0; i < MOST_LAUNCHES - 1 && program_time(CLOCK_MONOTONIC) < last; i++) {
        device_launch_small(DEVICE_ALPHA);
        device_synchronize();
        times[i] = realtime_ns();
        usleep(1000);
    }
    times[MOST_LAUNCHES - 1] = realtime_ns();
    if (strcmp(how, "kill") == 0) {
        raise(SIGKILL);
    } else if (strcmp(how, "terminate") == 0) {
        raise(SIGTERM);
    } else if (strcmp(how, "abort") == 0) {
        abort();
    } else if (strcmp(how, "_exit") == 0) {
        _exit(3);
    } else if (strcmp(how, "thread") == 0) {
        pthread_t other;
        pthread_create(&other, NULL, leave, NULL);
        pthread_join(other, NULL);
    } else if (strcmp(how, "exec") == 0) {
        execl("/bin/sh", "sh", "-c", "exit 6", (char *)NULL);
    }
    return 5;
}

int main(int argc, char **argv) {
    long attach_ms = NUMBER(1, 500);
    if (argc > 2 && strcmp(argv[2], "counts") == 0) {
        long scale = NUMBER(3, 1000);
        device_begin();
        pause_ms(attach_ms);
        known_work(scale);
        device_synchronize();
        report_known_work(scale);
        return 7; /* an exit code to be kept */
    }
    if (argc > 5 && strcmp(argv[2], "ends") == 0) {
        return ends(attach_ms, argv[3], NUMBER(4, 3000), argv[5]);
    }
    fprintf(stderr, "plain: unknown mode\n");
    return 64;
}
