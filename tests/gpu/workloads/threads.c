/* threads.c - launches of many threads, streams and contexts. */
#define _GNU_SOURCE
#include <pthread.h>

#include "modes.h"
#include "session.h"

#define MOST_THREADS 256

static long launches;
static pthread_barrier_t start_line;

static void *launch(void *tid) {
    *(long *)tid = (long)gettid();
    pthread_barrier_wait(&start_line);
    for (long i = 0; i < launches; i++) {
        device_launch_small(DEVICE_ALPHA);
    }
    device_synchronize();
    return NULL;
}

static void in_second_context(void) {
    for (long i = 0; i < launches; i++) {
        device_launch_small(DEVICE_GAMMA);
    }
}

static void *use_second_context(void *error) {
    *(int *)error = device_second_context(in_second_context);
    return NULL;
}

/* threads COUNT LAUNCHES: postrun_alpha by threads, overlapping spins on streams, postrun_gamma in a second context. */
int mode_threads(int argc, char **argv) {
    static long tids[MOST_THREADS];
    pthread_t threads[MOST_THREADS], second;
    long count = NUMBER(1, 64);
    int context_error = 0;
    launches = NUMBER(2, 100);
    if (count > MOST_THREADS || pthread_barrier_init(&start_line, NULL, (unsigned)count) != 0) {
        return 72;
    }
    device_begin();
    session_start(0);
    for (long i = 0; i < count; i++) {
        if (pthread_create(&threads[i], NULL, launch, &tids[i]) != 0) {
            return 72;
        }
    }
    for (long i = 0; i < count; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int round = 0; round < 5; round++) {
        for (int stream = 1; stream <= DEVICE_STREAMS; stream++) {
            device_spin(5000000, stream);
        }
        device_synchronize();
    }
    if (pthread_create(&second, NULL, use_second_context, &context_error) != 0) {
        return 72;
    }
    pthread_join(second, NULL);
    device_synchronize();
    session_stop();
    printf("{\"threads\": %ld, \"launches\": %ld, \"streams\": %d, \"spins\": %d, \"context_error\": %d, \"tids\": [", count, launches,
           DEVICE_STREAMS, 5 * DEVICE_STREAMS, context_error);
    for (long i = 0; i < count; i++) {
        printf("%s%ld", i ? ", " : "", tids[i]);
    }
    printf("]}\n");
    return 0;
}
