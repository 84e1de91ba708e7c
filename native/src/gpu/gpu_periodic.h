/* gpu_periodic.h - bounded windows of GPU activity that open repeatedly: POSTRUN_GPU_WINDOWS. */
#ifndef POSTRUN_GPU_PERIODIC_H
#define POSTRUN_GPU_PERIODIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct periodic {
    bool wanted;
    int64_t warmup, steps; /* steps before the first window; steps in a window */
    int64_t seconds_ns;    /* length of a window while the process has no steps */
    int64_t every_ns;      /* between the starts of two windows; a step window lasts at most a third of it */
    uint64_t bytes, total_bytes; /* of GPU rows in the file: in a window, and in the process before its last window */
};

/* Reads POSTRUN_GPU_WINDOWS: `auto`, or a list of `name=value` that replace the defaults. `wanted`: also if it is not set. False: it is
 * malformed; `why`. */
bool postrun_periodic_read(struct periodic *periodic, bool wanted, char *why, size_t size);
void postrun_periodic_text(const struct periodic *periodic, char *text, size_t size); /* the values in use, for metadata */

/* The rest is called behind the gate of gpu.c, except for the steps. `now`: monotonic ns; `written`: bytes of GPU rows in the process. */
void postrun_periodic_arm(const struct periodic *periodic, int64_t now);
void postrun_periodic_disarm(void);
bool postrun_periodic_armed(void);

/* Whether a time window is due, with CUDA in use and no window open. Both shorten `wait` to the next time something may be due. */
bool postrun_periodic_opens(int64_t now, int64_t *wait);
/* Why the open window has to close now: "time", "size", "steps" (of a time window: a step began); NULL: it stays open. */
const char *postrun_periodic_closes(int64_t now, uint64_t written, int64_t *wait);
bool postrun_periodic_step_waits(bool opens); /* whether a step still waits for its window to open or close */
void postrun_periodic_opened(int64_t now, uint64_t written);
void postrun_periodic_closed(void);
void postrun_periodic_later(int64_t at); /* no window could be opened: not again before `at`; 0: at the next step */
bool postrun_periodic_spent(uint64_t written); /* whether the process has written all that its windows may */
bool postrun_periodic_missed(char *why, size_t size); /* whether the session ends during the warm-up, before its first window */

/* A step begins or ends; on its thread, while steps are watched. */
void postrun_periodic_step_begins(void);
void postrun_periodic_step_ends(void);

/* gpu.c: opens or closes the window that a step waits for; wakes the watching thread. */
void postrun_gpu_periodic(bool open);
void postrun_gpu_wake(void);

#pragma GCC visibility pop
#endif
