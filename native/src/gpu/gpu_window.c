/* gpu_window.c - the window of GPU activity that the environment requests, by steps, by time or by signal. */
#define _GNU_SOURCE
#include "gpu_window.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/names.h"
#include "core/ring.h"
#include "core/step_name.h"
#include "gpu_periodic.h"
#include "postrun.h"

/* ---------------------------------------------------------------- the environment */

bool postrun_window_number(const char **text, int64_t *number) {
    char *end;
    if (**text < '0' || **text > '9') {
        return false;
    }
    errno = 0;
    *number = strtoll(*text, &end, 10);
    *text = end;
    return errno == 0;
}

/* Seconds, with at most nine decimal places; without the program's locale. */
bool postrun_window_seconds(const char **text, int64_t *ns) {
    int64_t whole = 0, part = 0, unit = 1000000000;
    bool digits = postrun_window_number(text, &whole);
    if (**text == '.') {
        for (++*text; **text >= '0' && **text <= '9'; ++*text, digits = true) {
            unit /= 10;
            part += unit * (**text - '0');
        }
    }
    *ns = whole < INT64_MAX / 2000000000 ? whole * 1000000000 + part : INT64_MAX / 2;
    return digits;
}

static bool read_pair(const char *text, bool (*read)(const char **, int64_t *), int64_t *first, int64_t *end) {
    return read(&text, first) && *text++ == ':' && read(&text, end) && *text == 0 && *first < *end;
}

bool postrun_window_read(struct gpu_window *window, char *why, size_t size) {
    const char *steps = getenv("POSTRUN_GPU_STEPS"), *time = getenv("POSTRUN_GPU_TIME"), *signal = getenv("POSTRUN_GPU_SIGNAL");
    memset(window, 0, sizeof *window);
    if (steps && *steps) {
        window->by_steps = true;
        if (!read_pair(steps, postrun_window_number, &window->first_step, &window->end_step)) {
            snprintf(why, size, "POSTRUN_GPU_STEPS=%.60s: two whole numbers A:B are expected, A less than B", steps);
            return false;
        }
    }
    if (time && *time) {
        window->by_time = true;
        if (!read_pair(time, postrun_window_seconds, &window->first_ns, &window->end_ns)) {
            snprintf(why, size, "POSTRUN_GPU_TIME=%.60s: two numbers of seconds A:B are expected, A less than B", time);
            return false;
        }
    }
    if (signal && *signal) {
        window->by_signal = true;
        const char *name = strncmp(signal, "SIG", 3) == 0 ? signal + 3 : signal;
        window->signal = strcmp(name, "USR1") == 0 ? SIGUSR1 : strcmp(name, "USR2") == 0 ? SIGUSR2 : 0;
        if (!window->signal) {
            snprintf(why, size, "POSTRUN_GPU_SIGNAL=%.60s: USR1 or USR2 is expected", signal);
            return false;
        }
    }
    return true;
}

/* ---------------------------------------------------------------- the lock of the program's language */

/* postrun_lock_hooks() stores release_lock last: postrun_window_unlocked(), which loads it first, never has one without the other. */
static void *(*_Atomic release_lock)(void);
static void (*_Atomic acquire_lock)(void *);

void postrun_lock_hooks(void *(*release)(void), void (*acquire)(void *)) {
    atomic_store(&release_lock, NULL);
    atomic_store(&acquire_lock, acquire);
    atomic_store(&release_lock, acquire ? release : NULL);
}

void postrun_window_unlocked(void (*act)(bool), bool open) {
    void *(*release)(void) = atomic_load(&release_lock);
    void (*acquire)(void *) = atomic_load(&acquire_lock);
    void *held = release && acquire ? release() : NULL;
    act(open);
    if (held) {
        acquire(held);
    }
}

/* ---------------------------------------------------------------- steps */

/* postrun_steps_watch() stores them before postrun_steps_watched; the step functions run only while that is set. `place` is changed by
 * compare-and-exchange, so one step alone opens or closes the window. */
static _Atomic int64_t first_step, end_step, counted, seen_step; /* the last one that began; -1: none */
static _Atomic uint32_t place; /* 0: before the window, 1: in it, 2: behind it */

/* The number of a range that is a step: its value, else the number at the end of its name; -1: it has none. False: it is not a step. */
static bool is_step(uint32_t name, int64_t value, int64_t *number) {
    if (name == 0 || name > postrun_names_count()) {
        return false;
    }
    prt_text text = postrun_names_text(name);
    if (!step_name(text.at, text.length, number)) {
        return false;
    }
    if (value != POSTRUN_NO_VALUE) {
        *number = value;
    }
    return true;
}

void postrun_step_begins(uint32_t name, int64_t value) {
    int64_t number;
    if (!is_step(name, value, &number)) {
        return;
    }
    if (postrun_periodic_armed()) {
        postrun_periodic_step_begins();
        return;
    }
    if (number < 0) {
        number = atomic_fetch_add(&counted, 1);
    }
    uint32_t before = 0, in = 1;
    int64_t end = atomic_load(&end_step);
    atomic_store_explicit(&seen_step, number, memory_order_relaxed);
    if (number >= end) {
        if (atomic_compare_exchange_strong(&place, &in, 2)) {
            postrun_window_unlocked(postrun_gpu_window, false);
        }
        postrun_steps_unwatch(); /* also if the first step seen is after the window */
    } else if (number >= atomic_load(&first_step) && atomic_compare_exchange_strong(&place, &before, 1)) {
        postrun_window_unlocked(postrun_gpu_window, true);
    }
}

void postrun_step_ends(uint32_t name, int64_t value) {
    int64_t number;
    if (postrun_periodic_armed()) {
        if (is_step(name, value, &number)) {
            postrun_periodic_step_ends();
        }
        return;
    }
    if (atomic_load_explicit(&place, memory_order_relaxed) != 1 || !is_step(name, value, &number)) {
        return;
    }
    if (number < 0) {
        number = atomic_load(&counted) - 1;
    }
    uint32_t in = 1;
    if (number >= atomic_load(&end_step) - 1 && atomic_compare_exchange_strong(&place, &in, 2)) {
        postrun_window_unlocked(postrun_gpu_window, false);
        postrun_steps_unwatch();
    }
}

void postrun_steps_watch(int64_t first, int64_t end) {
    atomic_store(&first_step, first);
    atomic_store(&end_step, end);
    atomic_store(&counted, 0);
    atomic_store(&seen_step, -1);
    atomic_store(&place, 0);
    postrun_steps_watch_all();
}

void postrun_steps_watch_all(void) {
    atomic_store(&postrun_steps_watched, true);
    atomic_store(&postrun_direct, false);
}

void postrun_steps_unwatch(void) {
    atomic_store(&place, 2); /* for a step that is on its way */
    atomic_store(&postrun_steps_watched, false);
    atomic_store(&postrun_direct, postrun_clock_has_counter);
}

void postrun_window_missed(const struct gpu_window *window, char *why, size_t size) {
    long long first = (long long)window->first_step, end = (long long)window->end_step, last = (long long)atomic_load(&seen_step);
    if (window->by_steps && last < 0) {
        snprintf(why, size, "it was asked for in steps %lld:%lld, but no step began: annotate them (a range named step)", first, end);
    } else if (window->by_steps && last >= end) {
        snprintf(why, size, "it was asked for in steps %lld:%lld, but the first step that began was %lld", first, end, last);
    } else if (window->by_steps) {
        snprintf(why, size, "it was asked for in steps %lld:%lld, but the last step that began was %lld", first, end, last);
    } else if (window->by_time) {
        snprintf(why, size, "it was asked for from second %.9g on, but the program ended before", (double)window->first_ns / 1e9);
    } else {
        snprintf(why, size, "it was asked for from a signal on (%s), but none came", window->signal == SIGUSR1 ? "USR1" : "USR2");
    }
}

/* ---------------------------------------------------------------- signals */

static _Atomic uint32_t came; /* handler() counts, postrun_signal_came() compares; nothing else depends on it */
static uint32_t seen;
static int watched;
static struct sigaction before;

static void handler(int number) {
    (void)number;
    atomic_fetch_add_explicit(&came, 1, memory_order_relaxed);
}

bool postrun_signal_watch(int number) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    if (sigaction(number, NULL, &before) != 0 || (before.sa_flags & SA_SIGINFO) ||
        (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)) {
        return false;
    }
    seen = atomic_load(&came);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    watched = sigaction(number, &action, NULL) == 0 ? number : 0;
    return watched != 0;
}

void postrun_signal_unwatch(void) {
    struct sigaction now;
    if (watched && sigaction(watched, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) && now.sa_handler == handler) {
        sigaction(watched, &before, NULL);
    }
    watched = 0;
}

bool postrun_signal_came(void) {
    bool is = seen != atomic_load(&came);
    seen += is;
    return is;
}
