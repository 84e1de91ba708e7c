/* fork.c - runs when the process loads the library, forks and exits.
 *
 * A forked child has the memory of its parent, but none of its other threads. Data that they were changing may be half changed, and a lock
 * that they held stays locked. The child therefore takes nothing over: it frees nothing, takes no lock and waits for nobody. */
#define _GNU_SOURCE
#include "fork.h"

#include <pthread.h>

#include "core/names.h"
#include "core/ring.h"
#include "gpu/gpu.h"
#include "postrun.h"
#include "session.h"

void postrun_forked(void) {
    postrun_names_forked();
    postrun_threads_forked();
    postrun_handles_forked();
    postrun_gpu_forked();
    postrun_device_blocks_forked();
    postrun_session_forked();
}

static __attribute__((constructor)) void loaded(void) {
    postrun_threads_init();
    pthread_atfork(NULL, NULL, postrun_forked);
    postrun_session_environment();
}

static __attribute__((destructor)) void unloaded(void) { postrun_stop(); }
