/* basics.c - known counts, known times, windows. */
#include "modes.h"
#include "session.h"
#include "work.h"

/* counts SCALE: a session around the known work. */
int mode_counts(int argc, char **argv) {
    long scale = NUMBER(1, 1000);
    device_begin();
    session_start(0);
    known_work(scale);
    device_synchronize();
    session_stop();
    report_known_work(scale);
    return 0;
}

/* clock TIMES MS: host times around a kernel of known duration, and its duration by events. */
int mode_clock(int argc, char **argv) {
    long times = NUMBER(1, 100), ms = NUMBER(2, 10);
    int64_t *before = calloc((size_t)times, sizeof *before), *after = calloc((size_t)times, sizeof *after);
    double *event_ms = calloc((size_t)times, sizeof *event_ms);
    device_begin();
    device_timed_spin(1000000); /* the first launch loads the code */
    session_start(0);
    for (long i = 0; i < times; i++) {
        before[i] = realtime_ns();
        event_ms[i] = device_timed_spin(ms * 1000000);
        after[i] = realtime_ns();
    }
    session_stop();
    printf("{\"spins\": [");
    for (long i = 0; i < times; i++) {
        printf("%s[%" PRId64 ", %" PRId64 ", %.6f]", i ? ", " : "", before[i], after[i], event_ms[i]);
    }
    printf("]}\n");
    free(before);
    free(after);
    free(event_ms);
    return 0;
}

/* windows COUNT KERNELS IDLE_MS: postrun_alpha within the windows, postrun_gamma between them. */
int mode_windows(int argc, char **argv) {
    long windows = NUMBER(1, 20), kernels = NUMBER(2, 50), idle_ms = NUMBER(3, 2000), opened = 0;
    device_begin();
    session_start(POSTRUN_NO_GPU_YET);
    for (long window = 0; window < windows; window++) {
        opened += session_window(1) == 0;
        for (long i = 0; i < kernels; i++) {
            device_launch_small(DEVICE_ALPHA);
        }
        device_synchronize();
        session_window(0);
        for (int i = 0; i < 10; i++) {
            device_launch_small(DEVICE_GAMMA);
        }
        device_synchronize();
        pause_ms(idle_ms);
    }
    session_stop();
    printf("{\"windows\": %ld, \"opened\": %ld, \"kernels\": %ld}\n", windows, opened, kernels);
    return 0;
}
