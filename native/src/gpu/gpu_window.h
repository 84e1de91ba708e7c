/* gpu_window.h - the part of a session in which GPU activity is recorded, as the environment requests it. */
#ifndef POSTRUN_GPU_WINDOW_H
#define POSTRUN_GPU_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct gpu_window {
    bool by_steps, by_time, by_signal;
    int64_t first_step, end_step;  /* from the start of the first to the end of the one before `end_step` */
    int64_t first_ns, end_ns;      /* after the start of the session */
    int signal;
};
/* POSTRUN_GPU_STEPS, POSTRUN_GPU_TIME, POSTRUN_GPU_SIGNAL. False: one of them is malformed; `why`. */
bool postrun_window_read(struct gpu_window *window, char *why, size_t size);

/* The elements of the variables of windows; `text` moves behind the element. False: it is missing. */
bool postrun_window_number(const char **text, int64_t *number);
bool postrun_window_seconds(const char **text, int64_t *ns);

/* Why there was no window, after the end of one that had none. */
void postrun_window_missed(const struct gpu_window *window, char *why, size_t size);

/* Steps: while they are watched, begins and ends of ranges take the slower way. */
void postrun_steps_watch(int64_t first, int64_t end); /* calls postrun_gpu_window when it is time */
void postrun_steps_watch_all(void); /* for periodic windows */
void postrun_steps_unwatch(void);
void postrun_gpu_window(bool open); /* gpu.c */
void postrun_window_unlocked(void (*act)(bool open), bool open); /* calls it without the lock of the program's language */

/* Signals: false if the program has a handler of its own. */
bool postrun_signal_watch(int signal);
void postrun_signal_unwatch(void);
bool postrun_signal_came(void); /* since the last time; once for each signal */

#pragma GCC visibility pop
#endif
