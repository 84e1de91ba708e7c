/* record.c - the recording calls: begin, end, ranges by handle, counters (the hot path).
 *
 * A range costs two clock readings: its start stays on the thread's own stack, its end becomes one record in the thread's ring. These
 * calls allocate no memory, take no lock and make no system call, except in a thread's first record and to wake the drain thread when a
 * ring is half full. Nothing waits for a thread that is suspended between two lines of a call: its record carries the number of its
 * session, and the next session skips it. */
#include <errno.h>
#include <string.h>

#include "postrun.h"
#include "ring.h"

#define HANDLE_UNHELD UINT64_MAX /* there was no memory for the range */

/* pairs with drain.c: drain_thread() */
static inline void publish(struct thread *thread, uint64_t head) { atomic_store_explicit(&thread->head, head, memory_order_release); }

static inline void add_one(_Atomic uint64_t *counter) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1, memory_order_relaxed);
}

static inline void finish(struct thread *thread, struct record *record, uint64_t head, uint32_t depth, int64_t now) {
    struct frame *frame = &thread->stack[depth];
    record->start = atomic_load_explicit(&frame->start, memory_order_relaxed);
    record->end = now;
    record->value = atomic_load_explicit(&frame->value, memory_order_relaxed);
    record->what = thread->stamp | RECORD_WHAT(atomic_load_explicit(&frame->name, memory_order_relaxed), depth, RECORD_RANGE);
    publish(thread, head + 1);
}

/* Begin and end in every case but the usual one. They are functions of their own, and are jumped to, so that the usual case needs no
 * room on the program's stack. */
static __attribute__((noinline)) void begin_slowly(uint32_t name, int64_t value) {
    uint32_t session = atomic_load_explicit(&postrun_session, memory_order_relaxed);
    struct thread *thread = session == SESSION_NONE ? NULL : recording_thread(session);
    if (!thread) {
        return;
    }
    if (UNLIKELY(atomic_load_explicit(&postrun_steps_watched, memory_order_relaxed))) {
        postrun_step_begins(name, value);
    }
    uint32_t depth = atomic_load_explicit(&thread->depth, memory_order_relaxed);
    if (depth < STACK_DEPTH) {
        struct frame *frame = &thread->stack[depth];
        atomic_store_explicit(&frame->name, name, memory_order_relaxed);
        atomic_store_explicit(&frame->value, value, memory_order_relaxed);
        atomic_store_explicit(&frame->start, clock_ticks(), memory_order_relaxed);
    } else {
        add_one(&thread->beyond);
    }
    atomic_store_explicit(&thread->depth, depth + 1, memory_order_release); /* pairs with drain.c: close_frames() */
}

static __attribute__((noinline)) void end_slowly(void) {
    uint32_t session = atomic_load_explicit(&postrun_session, memory_order_relaxed);
    struct thread *thread = session == SESSION_NONE || session == SESSION_LAZY ? NULL : postrun_self;
    if (thread && atomic_load_explicit(&thread->session, memory_order_relaxed) != session) {
        thread = postrun_thread_attach(false); /* its start counted the loss */
    }
    if (!thread) {
        return;
    }
    uint32_t depth = atomic_load_explicit(&thread->depth, memory_order_relaxed);
    if (depth == 0) {
        add_one(&thread->unbalanced);
        return;
    }
    depth--;
    if (depth < STACK_DEPTH) { /* else of a begin that was too deep, and counted */
        int64_t now = clock_ticks();
        uint64_t head = atomic_load_explicit(&thread->head, memory_order_relaxed);
        struct record *record = ring_slot(thread, head, 1);
        if (record) {
            finish(thread, record, head, depth, now);
        } else {
            postrun_ring_lost(thread, now);
        }
    }
    atomic_store_explicit(&thread->depth, depth, memory_order_release); /* pairs with drain.c: close_frames() */
    if (UNLIKELY(atomic_load_explicit(&postrun_steps_watched, memory_order_relaxed)) && depth < STACK_DEPTH) {
        struct frame *frame = &thread->stack[depth];
        postrun_step_ends(atomic_load_explicit(&frame->name, memory_order_relaxed),
                          atomic_load_explicit(&frame->value, memory_order_relaxed));
    }
}

void postrun_begin(uint32_t name, int64_t value) {
    uint32_t session = atomic_load_explicit(&postrun_session, memory_order_relaxed);
    if (session == SESSION_NONE) {
        return;
    }
    struct thread *thread = postrun_self;
    uint32_t depth = atomic_load_explicit(&thread->depth, memory_order_relaxed);
    if (UNLIKELY(atomic_load_explicit(&thread->session, memory_order_relaxed) != session) || UNLIKELY(depth >= STACK_DEPTH) ||
        UNLIKELY(!atomic_load_explicit(&postrun_direct, memory_order_relaxed))) {
        begin_slowly(name, value);
        return;
    }
    struct frame *frame = &thread->stack[depth];
    atomic_store_explicit(&frame->name, name, memory_order_relaxed);
    atomic_store_explicit(&frame->value, value, memory_order_relaxed);
    atomic_store_explicit(&frame->start, clock_counter(), memory_order_relaxed);
    atomic_store_explicit(&thread->depth, depth + 1, memory_order_release); /* pairs with drain.c: close_frames() */
}

void postrun_end(void) {
    uint32_t session = atomic_load_explicit(&postrun_session, memory_order_relaxed);
    if (session == SESSION_NONE) {
        return;
    }
    struct thread *thread = postrun_self;
    uint32_t depth = atomic_load_explicit(&thread->depth, memory_order_relaxed) - 1;
    uint64_t head = atomic_load_explicit(&thread->head, memory_order_relaxed);
    if (UNLIKELY(atomic_load_explicit(&thread->session, memory_order_relaxed) != session) || UNLIKELY(depth >= STACK_DEPTH) ||
        UNLIKELY(!atomic_load_explicit(&postrun_direct, memory_order_relaxed)) || UNLIKELY(head - thread->tail_seen >= thread->half)) {
        end_slowly();
        return;
    }
    finish(thread, &thread->ring[head & thread->mask], head, depth, clock_counter());
    atomic_store_explicit(&thread->depth, depth, memory_order_release); /* pairs with drain.c: close_frames() */
}

uint64_t postrun_range_begin(uint32_t name, int64_t value) { return postrun_range_begin_deeper(name, value, 0); }

uint64_t postrun_range_begin_deeper(uint32_t name, int64_t value, uint32_t deeper) {
    uint32_t session = atomic_load_explicit(&postrun_session, memory_order_relaxed);
    if (session == SESSION_NONE) {
        return 0;
    }
    struct thread *thread = recording_thread(session);
    if (UNLIKELY(!thread)) {
        return atomic_load(&postrun_session) == SESSION_NONE ? 0 : HANDLE_UNHELD;
    }
    if (UNLIKELY(atomic_load_explicit(&postrun_steps_watched, memory_order_relaxed))) {
        postrun_step_begins(name, value);
    }
    uint32_t depth = atomic_load_explicit(&thread->depth, memory_order_relaxed) + deeper;
    struct open_range range = {0, clock_ticks(), value, name, session, thread->number, depth < STACK_DEPTH ? depth : STACK_DEPTH};
    range.session = atomic_load_explicit(&thread->session, memory_order_relaxed); /* a lazy start may have given another */
    uint64_t handle = postrun_handle_open(thread, &range);
    if (UNLIKELY(handle == 0)) {
        postrun_ring_lost(thread, range.start);
        return HANDLE_UNHELD;
    }
    return handle;
}

int postrun_range_end(uint64_t handle) {
    if (handle == 0 || handle == HANDLE_UNHELD) {
        return 0;
    }
    uint32_t session = atomic_load_explicit(&postrun_session, memory_order_relaxed);
    struct thread *thread = session == SESSION_NONE || session == SESSION_LAZY ? NULL : recording_thread(session);
    struct open_range range;
    int64_t now = thread ? clock_ticks() : 0;
    if (!postrun_handle_close(thread, handle, &range)) {
        return -EINVAL;
    }
    if (!thread) {
        return atomic_load(&postrun_session) == range.session ? 0 : -EINVAL; /* no memory for a ring: counted; else no longer recording */
    }
    if (range.session != atomic_load_explicit(&thread->session, memory_order_relaxed)) {
        return -EINVAL; /* of a session that has stopped in between */
    }
    if (UNLIKELY(atomic_load_explicit(&postrun_steps_watched, memory_order_relaxed))) {
        postrun_step_ends(range.name, range.value);
    }
    uint64_t head = atomic_load_explicit(&thread->head, memory_order_relaxed);
    uint64_t records = range.number == thread->number ? 1 : 2;
    struct record *record = ring_slot(thread, head, records);
    if (UNLIKELY(!record)) {
        postrun_ring_lost(thread, now);
        return 0;
    }
    if (records == 2) {
        *record = (struct record){range.number, 0, 0, thread->stamp | RECORD_WHAT(0, 0, RECORD_SOURCE)};
        record = &thread->ring[(head + 1) & thread->mask];
    }
    *record = (struct record){range.start, now, range.value, thread->stamp | RECORD_WHAT(range.name, range.depth, RECORD_HANDLE)};
    publish(thread, head + records);
    return 0;
}

int postrun_range_drop(uint64_t handle) {
    uint32_t session = atomic_load_explicit(&postrun_session, memory_order_relaxed);
    struct open_range range;
    if (handle == 0 || handle == HANDLE_UNHELD) {
        return 0;
    }
    struct thread *thread = session == SESSION_NONE || session == SESSION_LAZY ? NULL : recording_thread(session);
    return postrun_handle_close(thread, handle, &range) ? 0 : -EINVAL;
}

void postrun_counter(uint32_t name, double value) {
    uint32_t session = atomic_load_explicit(&postrun_session, memory_order_relaxed);
    if (session == SESSION_NONE) {
        return;
    }
    struct thread *thread = recording_thread(session);
    if (UNLIKELY(!thread)) {
        return;
    }
    int64_t now = clock_ticks();
    uint64_t head = atomic_load_explicit(&thread->head, memory_order_relaxed);
    struct record *record = ring_slot(thread, head, 1);
    if (UNLIKELY(!record)) {
        postrun_ring_lost(thread, now);
        return;
    }
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    *record = (struct record){now, 0, bits, thread->stamp | RECORD_WHAT(name, 0, RECORD_COUNTER)};
    publish(thread, head + 1);
}
