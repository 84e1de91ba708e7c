/* ring.h - the state that a recording thread shares with the drain thread. ring.c describes the protocol. */
#ifndef POSTRUN_RING_H
#define POSTRUN_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"

#pragma GCC visibility push(hidden) /* so that the hot path needs no table of addresses */

#define STACK_DEPTH 64
#define HANDLE_CACHE 32

enum record_kind { RECORD_RANGE, RECORD_HANDLE, RECORD_SOURCE, RECORD_COUNTER };

struct record {
    int64_t start, end; /* of a counter: time, 0. Of RECORD_SOURCE (the handle behind it began on another thread): its number, 0 */
    int64_t value;      /* of a counter: the bits of the double */
    uint64_t what;      /* name, depth << 32, kind << 40, session << 48 */
};
_Static_assert(sizeof(struct record) == 32, "two records in a cache line");
#define RECORD_WHAT(name, depth, kind) ((uint64_t)(name) | (uint64_t)(depth) << 32 | (uint64_t)(kind) << 40)

struct frame { /* a range that is open; read by the drain thread when the session stops */
    _Atomic int64_t start, value;
    _Atomic uint32_t name;
};

/* One recording thread. The thread creates it with its first record and marks it when it exits; the drain thread frees it. */
struct thread {
    /* the thread's own */
    _Atomic uint32_t session; /* the session it is set up for; written last */
    _Atomic uint32_t depth;
    uint64_t stamp;           /* session << 48 */
    uint64_t tail_seen;       /* tail when last looked at */
    uint64_t mask, half;
    struct record *ring;
    _Atomic uint64_t head;
    _Atomic uint64_t lost, unbalanced, beyond; /* records that found no room; ends without a begin; begins too deep */
    _Atomic int64_t lost_first, lost_last;
    _Atomic int64_t exited; /* ticks; 0: lives */
    uint32_t number, tid;
    char name[16];
    uint32_t handles[HANDLE_CACHE], handle_count;
    struct frame stack[STACK_DEPTH];

    /* the drain thread's */
    _Alignas(64) _Atomic uint64_t tail;
    uint32_t met; /* the session in which it was last seen */
    _Atomic uint64_t lost_taken;
    uint64_t unbalanced_taken, beyond_taken;
    struct record last; /* that was drained, of a range */
    size_t mapped;

    _Atomic(struct thread *) next;
};

#define SESSION_NONE 0u
#define SESSION_LAZY UINT32_MAX         /* a forked child, which starts with its first record */
extern _Atomic uint32_t postrun_session; /* number of the running session; every recording call looks here first */
extern _Thread_local struct thread *postrun_self __attribute__((tls_model("initial-exec")));

/* The clock is the processor's counter and steps are not watched: begin and end need not check anything else. */
extern _Atomic bool postrun_direct;
extern _Atomic bool postrun_steps_watched;
void postrun_step_begins(uint32_t name, int64_t value); /* gpu_window.c: while steps are watched, before a begin and behind an end */
void postrun_step_ends(uint32_t name, int64_t value);
void postrun_step_named(void); /* gpu_periodic.c: names.c registered the name of a step */

extern _Atomic uint64_t postrun_stray_lost; /* records of threads that could get no ring */
extern _Atomic uint32_t postrun_ring_records;

struct thread *postrun_thread_attach(bool counts); /* NULL: not recording, or no memory (a record lost, if it counts) */
bool postrun_ring_has_room(struct thread *thread, uint64_t head, uint64_t records); /* looks at the tail anew; wakes the drain thread */
void postrun_ring_lost(struct thread *thread, int64_t ticks);

extern _Atomic(struct thread *) postrun_threads;      /* the newest; new ones appear at the front at any time */
void postrun_thread_remove(struct thread *thread);    /* of one that exited; only by the one who drains */
void postrun_threads_init(void);
void postrun_threads_forked(void);

/* The thread set up for the running session, or NULL. */
static inline struct thread *recording_thread(uint32_t session) {
    struct thread *thread = postrun_self;
    if (LIKELY(atomic_load_explicit(&thread->session, memory_order_relaxed) == session)) {
        return thread;
    }
    return postrun_thread_attach(true);
}

/* The slot of the next record, or NULL if there is no room for `records`. */
static inline struct record *ring_slot(struct thread *thread, uint64_t head, uint64_t records) {
    if (UNLIKELY(head - thread->tail_seen >= thread->half) && !postrun_ring_has_room(thread, head, records)) {
        return NULL;
    }
    return &thread->ring[head & thread->mask];
}

/* record.c: deeper than the thread's own depth by this much */
uint64_t postrun_range_begin_deeper(uint32_t name, int64_t value, uint32_t deeper);

/* handles.c: ranges by handle */
struct open_range {
    uint64_t handle;
    int64_t start, value;
    uint32_t name, session, number, depth;
};
uint64_t postrun_handle_open(struct thread *thread, const struct open_range *range); /* 0: no memory */
bool postrun_handle_close(struct thread *thread, uint64_t handle, struct open_range *range);
/* Closes one open range per call (`at` starts at 0); false: none is left. */
bool postrun_handle_close_next(uint32_t *at, struct open_range *range);
void postrun_handles_return(struct thread *thread); /* on its exit */
void postrun_handles_forked(void);

/* session.c */
void postrun_session_wake(void);     /* the drain thread, before its time */
void postrun_session_start_lazy(void);
void postrun_session_sweep(void);    /* frees threads that exited while nothing records, unless another thread is doing so */
void postrun_session_forked(void);
int postrun_session_environment(void); /* starts if POSTRUN_CAPTURE=1 */

#pragma GCC visibility pop
#endif
