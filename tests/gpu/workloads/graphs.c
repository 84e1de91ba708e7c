/* graphs.c - CUDA graphs captured in a window, before the first one, or in an earlier one; captures while windows open and close. */
#include <pthread.h>
#include <stdatomic.h>

#include "modes.h"
#include "session.h"

#define KERNELS 5
#define COPIES 2

static void replay(long times) {
    for (long i = 0; i < times; i++) {
        device_graph_launch();
        device_synchronize_stream(1);
    }
}

/* graphs inside|before|across REPLAYS [off]: "across" captures in the first window and replays in all three. */
int mode_graphs(int argc, char **argv) {
    const char *order = argc > 1 ? argv[1] : "inside";
    long replays = NUMBER(2, 20);
    int recorded = argc <= 3, windows = strcmp(order, "across") == 0 ? 3 : 1;
    device_begin();
    if (strcmp(order, "before") == 0) {
        device_graph_build(KERNELS, COPIES);
        replay(2);
    }
    if (recorded) {
        session_start(POSTRUN_NO_GPU_YET);
    }
    for (int window = 0; window < windows; window++) {
        if (recorded) {
            session_window(1);
        }
        if (window == 0 && strcmp(order, "before") != 0) {
            device_graph_build(KERNELS, COPIES);
        }
        replay(replays);
        if (recorded) {
            session_window(0);
        }
    }
    uint64_t checksum = device_checksum();
    if (recorded) {
        session_stop();
    }
    printf("{\"replays\": %ld, \"kernels\": %d, \"copies\": %d, \"memsets\": 1, \"checksum\": \"%016" PRIx64 "\"}\n", replays * windows,
           KERNELS, COPIES, checksum);
    return 0;
}

static _Atomic int over;
static long captured, invalidated;

static void *capture_always(void *argument) {
    (void)argument;
    while (!atomic_load(&over)) {
        invalidated += device_capture() != 0;
        captured++;
    }
    return NULL;
}

/* captures WINDOWS [MS]: one thread captures graphs in global mode while another one opens and closes windows. With WINDOWS 0 the windows
 * are those of the environment, for MS. */
int mode_captures(int argc, char **argv) {
    long windows = NUMBER(1, 50), opened = 0;
    pthread_t other;
    device_begin();
    device_capture();
    if (windows > 0) {
        session_start(POSTRUN_NO_GPU_YET);
    }
    if (pthread_create(&other, NULL, capture_always, NULL) != 0) {
        return 72;
    }
    for (long i = 0; i < windows; i++) {
        opened += session_window(1) == 0;
        pause_ms(15 + i % 7);
        session_window(0);
        pause_ms(5 + i % 5);
    }
    if (windows == 0) {
        pause_ms(NUMBER(2, 8000));
    }
    atomic_store(&over, 1);
    pthread_join(other, NULL);
    session_stop();
    printf("{\"windows\": %ld, \"opened\": %ld, \"captured\": %ld, \"invalidated\": %ld}\n", windows, opened, captured, invalidated);
    return 0;
}
