/* capture_kill.c FOLDER - records until it is killed. */
#include "capture_check.h"

#include <stdatomic.h>

#define MOST_WAITING 4000 /* records, of both threads together: neither ring is ever full, even if the drain thread does not run for long */

static uint64_t waiting(void) {
    postrun_statistics now = {.size = sizeof now};
    postrun_get_statistics(&now);
    return now.recorded - now.written;
}

static void *record(void *unused) {
    char text[32];
    for (int64_t i = 0;; i++) {
        snprintf(text, sizeof text, "name %d", (int)(i % 3000));
        postrun_begin(name_of("step"), i);
        postrun_begin(name_of(text), POSTRUN_NO_VALUE);
        postrun_counter(name_of("number"), (double)i);
        postrun_end();
        postrun_end();
        if (i % 16 == 0) {
            do {
                usleep(100);
            } while (waiting() > MOST_WAITING);
        }
    }
    return unused;
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    configure(argv[1], 0, 10, 100000, 0);
    EQUAL(postrun_start(), 0);
    pthread_t other;
    EQUAL(pthread_create(&other, NULL, record, NULL), 0);
    puts("recording");
    fflush(stdout);
    record(NULL);
}
