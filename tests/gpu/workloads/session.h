/* session.h - recording sessions of the program `workload`: into $POSTRUN_DIR, with GPU activity. */
#ifndef SESSION_H
#define SESSION_H

#include <postrun.h>

#include "program.h"

/* Starts a session or exits with 71. `flags`: 0, or POSTRUN_NO_GPU_YET. */
static inline void session_start(uint32_t flags) {
    postrun_config config = POSTRUN_CONFIG_INIT;
    config.flags = POSTRUN_GPU | POSTRUN_NO_GPU_SAMPLES | flags;
    int error = postrun_configure(&config);
    if (error == 0) {
        error = postrun_start();
    }
    if (error != 0) {
        fprintf(stderr, "postrun_start: %s\n", strerror(-error));
        exit(71);
    }
}

/* Opens or closes a window; an error is printed, and left to the check of the records. */
static inline int session_window(int on) {
    int error = postrun_gpu(on);
    if (error != 0) {
        char reason[512] = "";
        postrun_gpu_reason(reason, sizeof reason);
        fprintf(stderr, "postrun_gpu(%d): %s: %s\n", on, strerror(-error), reason);
    }
    return error;
}

static inline void session_stop(void) {
    int error = postrun_stop();
    if (error != 0) {
        fprintf(stderr, "postrun_stop: %s\n", strerror(-error));
        exit(71);
    }
}

#endif
