/* drain.c - the drain thread, which empties the rings of all threads every drain_ms, and earlier when a ring is half full. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "core/waiting.h"
#include "session.h"

#define TABLE_NS 60000000000 /* the whole table of names is written again after this time */
#define TABLE_BYTES (64u << 20) /* or this many bytes */

static _Atomic uint32_t wake_word; /* postrun_session_wake() sets it, the drain loop takes it (waiting.c) */

void postrun_session_wake(void) { postrun_wake(&wake_word); }

static void meet(struct session *s, struct thread *thread) {
    pthread_mutex_lock(&postrun_state_lock);
    thread->met = s->number;
    atomic_store_explicit(&thread->lost_taken, 0, memory_order_relaxed);
    thread->unbalanced_taken = thread->beyond_taken = 0;
    thread->last = (struct record){INT64_MIN, 0, 0, 0};
    pthread_mutex_unlock(&postrun_state_lock);
    postrun_file_thread(s, thread);
}

static void take_counts(struct session *s, struct thread *thread) {
    uint64_t lost = atomic_load_explicit(&thread->lost, memory_order_acquire); /* pairs with ring.c: postrun_ring_lost() */
    uint64_t taken = atomic_load_explicit(&thread->lost_taken, memory_order_relaxed);
    uint64_t unbalanced = atomic_load_explicit(&thread->unbalanced, memory_order_relaxed);
    uint64_t beyond = atomic_load_explicit(&thread->beyond, memory_order_relaxed);
    int64_t now = clock_ticks();
    if (lost > taken) {
        int64_t first = atomic_load_explicit(&thread->lost_first, memory_order_relaxed);
        int64_t last = atomic_load_explicit(&thread->lost_last, memory_order_relaxed);
        pthread_mutex_lock(&postrun_state_lock);
        atomic_store_explicit(&thread->lost_taken, lost, memory_order_relaxed);
        pthread_mutex_unlock(&postrun_state_lock);
        postrun_loss(s, thread->number, PRT_LOSS_RING, lost - taken, first < last ? first : last, last);
    }
    if (beyond > thread->beyond_taken) {
        postrun_loss_note(s, thread->number, PRT_LOSS_DEPTH, beyond - thread->beyond_taken, now, now);
    }
    pthread_mutex_lock(&postrun_state_lock);
    postrun_totals.unbalanced += unbalanced - thread->unbalanced_taken + beyond - thread->beyond_taken;
    thread->unbalanced_taken = unbalanced;
    thread->beyond_taken = beyond;
    pthread_mutex_unlock(&postrun_state_lock);
}

/* Ends, at `now`, the ranges that are still open on a thread that records no more, or no longer matters. The frame of the last drained
 * record may still be there, because a thread that is ending a range removes the frame after it wrote the record. */
static void close_frames(struct session *s, struct thread *thread, int64_t now) {
    const struct record *last = &thread->last;
    /* pairs with record.c: postrun_begin() and postrun_end() */
    uint32_t depth = atomic_load_explicit(&thread->depth, memory_order_acquire), closed = 0;
    for (uint32_t i = 0; i < depth && i < STACK_DEPTH; i++) {
        struct frame *frame = &thread->stack[i];
        struct record record = {atomic_load_explicit(&frame->start, memory_order_relaxed), now,
                                atomic_load_explicit(&frame->value, memory_order_relaxed),
                                RECORD_WHAT(atomic_load_explicit(&frame->name, memory_order_relaxed), i, RECORD_RANGE)};
        if (record.start != last->start || record.what != (last->what & 0xffffffffffff)) {
            if (s->rows->count == ROWS) {
                postrun_rows_write(s, thread->number);
            }
            postrun_rows_add(s, &record, FLAG_STOPPED);
            closed++;
        }
    }
    pthread_mutex_lock(&postrun_state_lock);
    postrun_totals.recorded += closed;
    pthread_mutex_unlock(&postrun_state_lock);
}

static void drain_thread(struct session *s, struct thread *thread, bool final) {
    /* pairs with ring.c: thread_exit() and postrun_thread_attach() */
    int64_t exited = atomic_load_explicit(&thread->exited, memory_order_acquire);
    if (atomic_load_explicit(&thread->session, memory_order_acquire) == s->number) { /* pairs with ring.c: postrun_thread_attach() */
        if (thread->met != s->number) {
            meet(s, thread);
        }
        struct rows *rows = s->rows;
        uint64_t stamp = (uint64_t)(s->number & 0xffff);
        uint64_t tail = atomic_load_explicit(&thread->tail, memory_order_relaxed);
        uint64_t head = atomic_load_explicit(&thread->head, memory_order_acquire); /* pairs with record.c: publish() */
        uint32_t source = thread->number;
        while (tail != head) {
            uint64_t taken = 0;
            for (; tail != head && rows->count < ROWS && rows->readings < ROWS; tail++) {
                const struct record *record = &thread->ring[tail & thread->mask];
                if (record->what >> 48 != stamp) {
                    continue; /* written by a call that was still under way when the session before had stopped */
                }
                enum record_kind kind = record->what >> 40 & 0xff;
                if (kind == RECORD_SOURCE) {
                    source = (uint32_t)record->start;
                    continue;
                }
                taken++;
                if (kind == RECORD_COUNTER) {
                    uint32_t i = rows->readings++;
                    rows->counter[i] = (int64_t)(record->what & UINT32_MAX);
                    rows->time[i] = record->start;
                    memcpy(&rows->reading[i], &record->value, sizeof(double));
                } else if (source != thread->number) {
                    postrun_rows_add_foreign(s, source, record, FLAG_HANDLE);
                    source = thread->number;
                } else {
                    postrun_rows_add(s, record, kind == RECORD_HANDLE ? FLAG_HANDLE : 0);
                    thread->last = *record;
                }
            }
            pthread_mutex_lock(&postrun_state_lock);
            postrun_totals.recorded += taken;
            /* pairs with ring.c: postrun_ring_has_room() and postrun_thread_attach() */
            atomic_store_explicit(&thread->tail, tail, memory_order_release);
            pthread_mutex_unlock(&postrun_state_lock);
            if (rows->count == ROWS || rows->readings == ROWS) {
                postrun_rows_write(s, thread->number);
            }
            if (tail == head && (final || exited)) {
                head = atomic_load_explicit(&thread->head, memory_order_acquire); /* pairs with record.c: publish() */
            }
        }
        if (final || exited) {
            close_frames(s, thread, exited ? exited : clock_ticks());
        }
        postrun_rows_write(s, thread->number);
        take_counts(s, thread);
    }
    if (exited) {
        pthread_mutex_lock(&postrun_state_lock);
        postrun_thread_remove(thread);
        pthread_mutex_unlock(&postrun_state_lock);
    }
}

static void drain(struct session *s, bool all, bool final) {
    int64_t now = postrun_clock_monotonic();
    if (now >= s->anchor_due) {
        postrun_output_check(&s->out);
        postrun_file_anchor(s);
        s->anchor_due = now + ANCHOR_NS;
    }
    pthread_mutex_lock(&postrun_state_lock);
    size_t from = s->facts_written, facts = s->facts.count;
    pthread_mutex_unlock(&postrun_state_lock);
    if (from < facts) {
        postrun_file_facts(s, from);
    }
    for (struct thread *thread = atomic_load(&postrun_threads), *next; thread; thread = next) {
        next = atomic_load(&thread->next);
        drain_thread(s, thread, final);
    }
    if (final) {
        struct open_range range;
        uint32_t at = 0;
        while (postrun_handle_close_next(&at, &range)) {
            if (range.session == s->number) {
                struct record record = {range.start, clock_ticks(), range.value, RECORD_WHAT(range.name, range.depth, RECORD_HANDLE)};
                postrun_rows_add_foreign(s, range.number, &record, FLAG_HANDLE | FLAG_STOPPED);
                pthread_mutex_lock(&postrun_state_lock);
                postrun_totals.recorded++;
                pthread_mutex_unlock(&postrun_state_lock);
            }
        }
    }
    postrun_rows_write_foreign(s);
    postrun_rows_write_metrics(s, all);
    postrun_device_blocks_write(s, final);
    uint64_t stray = atomic_load(&postrun_stray_lost);
    int64_t ticks = clock_ticks();
    if (stray != s->stray_taken) {
        uint64_t taken = s->stray_taken;
        pthread_mutex_lock(&postrun_state_lock);
        s->stray_taken = stray;
        pthread_mutex_unlock(&postrun_state_lock);
        postrun_loss(s, 0, PRT_LOSS_RING, stray - taken, ticks, ticks);
    }
    if (all || now - s->losses_at >= ANCHOR_NS) {
        postrun_losses_write(s);
        s->losses_at = now;
    }
    bool due = now - s->table_at >= TABLE_NS || s->out.total_bytes - s->table_bytes >= TABLE_BYTES;
    if (due && s->out.records > s->records_at_table && !s->out.error) {
        postrun_file_tables(s);
    }
}

static void finish(struct session *s) {
    char rate[32];
    snprintf(rate, sizeof rate, "%.0f", postrun_clock_rate()); /* better known than at the start */
    pthread_mutex_lock(&postrun_state_lock);
    postrun_facts_add(&s->facts, "clock.ticks_per_second", rate, false);
    pthread_mutex_unlock(&postrun_state_lock);
    postrun_file_facts(s, s->facts_written);
    postrun_file_anchor(s);
    postrun_file_close(s);
}

static void tell_totals(struct session *s) {
    pthread_mutex_lock(&postrun_state_lock);
    postrun_totals.bytes = s->out.total_bytes;
    postrun_totals.blocks = s->out.total_blocks;
    postrun_totals.error = s->out.error;
    pthread_mutex_unlock(&postrun_state_lock);
}

void *postrun_drain_loop(void *argument) {
    struct session *s = argument;
    pthread_setname_np(pthread_self(), "postrun-drain");
    int64_t period = (int64_t)s->config.drain_ms * NS_PER_MS, due = postrun_clock_monotonic() + period;
    for (bool final = false; !final;) {
        int64_t now = postrun_clock_monotonic();
        postrun_wait(&wake_word, due - now);
        now = postrun_clock_monotonic();
        due = due > now ? due : now + period;
        final = atomic_load(&s->stopping);
        pthread_mutex_lock(&s->flush_lock);
        uint64_t wanted = s->flush_wanted;
        bool all = final || wanted != s->flush_done;
        pthread_mutex_unlock(&s->flush_lock);
        drain(s, all, final);
        if (final) {
            finish(s);
        }
        tell_totals(s);
        pthread_mutex_lock(&s->flush_lock);
        s->flush_done = wanted;
        pthread_cond_broadcast(&s->flushed);
        pthread_mutex_unlock(&s->flush_lock);
    }
    return NULL;
}
