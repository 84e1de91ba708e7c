/* gpu_periodic.c - decides when a periodic window of GPU activity opens and closes.
 *
 * A process with steps gets windows of whole steps: after a warm-up, then at the first step after each interval. Before its first step it
 * gets windows of seconds. Steps change `phase` outside the gate, so a step never waits for a flush of CUPTI; everything else happens
 * behind the gate. Steps are not watched between windows, so begin and end take the fast path. */
#define _GNU_SOURCE
#include "gpu_periodic.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ring.h"
#include "gpu_window.h"

#define MIB 20             /* bits of a MiB */
#define STEP_SHARE 3       /* a window of steps lasts at most this part of the interval: slow steps must not fill it */
#define POLL_NS 250000000  /* how often the size of an open window is checked: rows arrive with each flush, once a second */

/* TIMED: no step so far. WARMUP: counts steps. DUE: the next step opens a window. OPENING, CLOSING: a step is on its way through the gate.
 * OPEN: a window of steps is open. RESTING: until the next one is due. */
enum phase { OFF, TIMED, WARMUP, DUE, OPENING, OPEN, CLOSING, RESTING };

/* All accesses are sequentially consistent. The thread that changes `phase` by compare-and-exchange does the work of the new phase:
 * steps (postrun_periodic_step_begins() and _ends()) compete with the GPU thread (postrun_periodic_closes() and _opened()). */
static _Atomic uint32_t phase;
static _Atomic int64_t warmup, steps, begun, in_window; /* begun: steps of the session while they were counted */
/* postrun_step_named() sets it and then loads `phase`. postrun_periodic_arm() stores `phase` and then loads it: one of them sees the other. */
static _Atomic bool step_names; /* a step's name was registered in this process */

/* Behind the gate. */
static struct periodic policy;
static int64_t next_at, opened_at; /* opened_at: of the last window; 0: none yet */
static uint64_t opened_bytes;
static bool is_open, is_timed; /* the open window: of seconds */

/* ---------------------------------------------------------------- the environment */

static const char *const words[] = {"warmup", "steps", "seconds", "every", "mib", "total_mib"};

static bool read_value(struct periodic *p, size_t word, const char **at) {
    int64_t number = 0;
    bool read = word == 2 || word == 3 ? postrun_window_seconds(at, &number) : postrun_window_number(at, &number);
    bool count = word == 0 || word == 1, size = word == 4 || word == 5;
    if (!read || (number == 0 && word != 0) || (count && number > 1000000000) || (size && number > 1 << 24)) {
        return false;
    }
    switch (word) {
    case 0: p->warmup = number; break;
    case 1: p->steps = number; break;
    case 2: p->seconds_ns = number; break;
    case 3: p->every_ns = number; break;
    case 4: p->bytes = (uint64_t)number << MIB; break;
    default: p->total_bytes = (uint64_t)number << MIB; break;
    }
    return true;
}

static bool read_list(struct periodic *p, const char *at) {
    for (;;) {
        const char *sign = strchr(at, '=');
        size_t word = 0, count = sizeof words / sizeof *words, length = sign ? (size_t)(sign - at) : 0;
        while (word < count && !(strlen(words[word]) == length && strncmp(words[word], at, length) == 0)) {
            word++;
        }
        at = sign ? sign + 1 : at;
        if (word == count || !read_value(p, word, &at) || (*at && *at != ',')) {
            return false;
        }
        if (!*at++) {
            return true;
        }
    }
}

bool postrun_periodic_read(struct periodic *p, bool wanted, char *why, size_t size) {
    const char *text = getenv("POSTRUN_GPU_WINDOWS");
    *p = (struct periodic){false, 10, 20, 20000000000, 600000000000, (uint64_t)16 << MIB, (uint64_t)256 << MIB};
    if (!text || !*text) {
        p->wanted = wanted;
        return true;
    }
    if (strcmp(text, "auto") != 0 && !read_list(p, text)) {
        snprintf(why, size,
                 "POSTRUN_GPU_WINDOWS=%.60s: auto is expected, or a list such as warmup=10,steps=20,seconds=20,every=600,mib=16,"
                 "total_mib=256",
                 text);
        return false;
    }
    if (p->seconds_ns >= p->every_ns) {
        snprintf(why, size, "POSTRUN_GPU_WINDOWS=%.60s: seconds has to be less than every", text);
        return false;
    }
    p->wanted = true;
    return true;
}

void postrun_periodic_text(const struct periodic *p, char *text, size_t size) {
    snprintf(text, size, "warmup=%" PRId64 ",steps=%" PRId64 ",seconds=%.9g,every=%.9g,mib=%" PRIu64 ",total_mib=%" PRIu64, p->warmup,
             p->steps, (double)p->seconds_ns / 1e9, (double)p->every_ns / 1e9, p->bytes >> MIB, p->total_bytes >> MIB);
}

/* ---------------------------------------------------------------- behind the gate */

void postrun_periodic_arm(const struct periodic *periodic, int64_t now) {
    policy = *periodic;
    next_at = now;
    opened_at = 0;
    is_open = is_timed = false;
    atomic_store(&warmup, policy.warmup);
    atomic_store(&steps, policy.steps);
    atomic_store(&begun, 0);
    atomic_store(&phase, TIMED);
    if (atomic_load(&step_names)) {
        postrun_steps_watch_all();
    }
}

void postrun_periodic_disarm(void) {
    if (atomic_exchange(&phase, OFF) != OFF) {
        postrun_steps_unwatch();
    }
    is_open = false;
}

bool postrun_periodic_armed(void) { return atomic_load_explicit(&phase, memory_order_relaxed) != OFF; }

static void shorten(int64_t *wait, int64_t to) { *wait = to < *wait ? to : *wait; }

bool postrun_periodic_opens(int64_t now, int64_t *wait) {
    uint32_t now_in = atomic_load(&phase);
    if ((now_in != TIMED && now_in != RESTING) || is_open) {
        return false;
    }
    if (now < next_at) {
        shorten(wait, next_at - now);
        return false;
    }
    if (now_in == RESTING) {
        postrun_steps_watch_all();
        atomic_store(&phase, DUE);
    }
    return now_in == TIMED;
}

const char *postrun_periodic_closes(int64_t now, uint64_t written, int64_t *wait) {
    uint32_t in = OPEN;
    if (!is_open) {
        return NULL;
    }
    int64_t limit = is_timed ? policy.seconds_ns : policy.every_ns / STEP_SHARE;
    const char *why = is_timed && atomic_load(&phase) != TIMED ? "steps"
                      : now - opened_at >= limit               ? "time"
                      : written - opened_bytes >= policy.bytes ? "size"
                                                               : NULL;
    if (!why) {
        shorten(wait, opened_at + limit - now);
        shorten(wait, POLL_NS);
    }
    /* A step that is closing the window is ahead. */
    return why && (is_timed || atomic_compare_exchange_strong(&phase, &in, CLOSING)) ? why : NULL;
}

bool postrun_periodic_step_waits(bool opens) { return atomic_load(&phase) == (opens ? OPENING : CLOSING); }

void postrun_periodic_opened(int64_t now, uint64_t written) {
    uint32_t opening = OPENING;
    is_open = true;
    opened_at = now;
    opened_bytes = written;
    next_at = now + policy.every_ns;
    atomic_store(&in_window, 1);
    is_timed = !atomic_compare_exchange_strong(&phase, &opening, OPEN);
}

void postrun_periodic_closed(void) {
    if (is_open && !is_timed) {
        postrun_steps_unwatch();
        atomic_store(&phase, RESTING);
    }
    is_open = false;
}

void postrun_periodic_later(int64_t at) {
    uint32_t opening = OPENING;
    if (atomic_load(&phase) == OPENING && at) {
        postrun_steps_unwatch();
    }
    atomic_compare_exchange_strong(&phase, &opening, at ? RESTING : DUE);
    next_at = at ? at : next_at;
}

bool postrun_periodic_spent(uint64_t written) { return written >= policy.total_bytes; }

bool postrun_periodic_missed(char *why, size_t size) {
    int64_t count = atomic_load(&begun);
    snprintf(why, size,
             "no window opened: the program ended after %" PRId64 " steps, and the first window opens after %" PRId64 " warm-up steps",
             count, policy.warmup);
    return postrun_periodic_armed() && opened_at == 0 && count > 0 && count <= policy.warmup;
}

/* ---------------------------------------------------------------- steps */

void postrun_periodic_step_begins(void) {
    uint32_t in = TIMED;
    if (atomic_compare_exchange_strong(&phase, &in, WARMUP)) {
        in = WARMUP;
        postrun_gpu_wake(); /* a window of seconds ends */
    }
    if (in == OPEN) {
        atomic_fetch_add(&in_window, 1);
    } else if ((in == WARMUP && atomic_fetch_add(&begun, 1) >= atomic_load(&warmup)) || in == DUE) {
        if (atomic_compare_exchange_strong(&phase, &in, OPENING)) {
            postrun_window_unlocked(postrun_gpu_periodic, true);
        }
    }
}

void postrun_periodic_step_ends(void) {
    uint32_t in = OPEN;
    if (atomic_load(&phase) == OPEN && atomic_load(&in_window) >= atomic_load(&steps) &&
        atomic_compare_exchange_strong(&phase, &in, CLOSING)) {
        postrun_window_unlocked(postrun_gpu_periodic, false);
    }
}

/* While the process has no name of a step there is nothing to watch for. */
void postrun_step_named(void) {
    if (!atomic_exchange(&step_names, true) && atomic_load(&phase) == TIMED) {
        postrun_steps_watch_all();
        if (atomic_load(&phase) == OFF) {
            postrun_steps_unwatch();
        }
    }
}
