/* ring.c - the list of recording threads and their rings of records.
 *
 * Protocol between a recording thread (the owner) and the drain thread:
 *  - Each ring has one producer, its owner, and one consumer, the drain thread. `head` and `tail` only grow; `& mask` makes an index.
 *  - The owner writes a record at `head`, then stores `head` with release (record.c: publish()). The drain thread loads `head` with
 *    acquire, reads the records from `tail` to `head`, then stores `tail` with release: the owner, which loads `tail` with acquire, may
 *    overwrite them from then on. It loads `tail` only if the ring looks half full (ring_slot()), and then wakes the drain thread.
 *  - `postrun_session` is the switch. start_session() stores the session's number with release after everything that a recording call
 *    reads. A call that loads a number other than its thread's calls postrun_thread_attach(), which resets the thread and stores
 *    `thread->session` with release, last. The drain thread ignores a thread whose `session` is not its own.
 *  - A record carries the low 16 bits of its session's number (`stamp`): a call that was interrupted while a session stopped and another
 *    began writes an old stamp, and the drain thread skips its record.
 *  - Threads enter the list `postrun_threads` at the front by compare-and-exchange. The drain thread, or sweep_locked() while no session
 *    runs, removes and frees a thread after it loads `exited` with acquire; the owner stores `exited` with release as its last access.
 *  - Open ranges are in `stack`. `depth` is stored with release after a frame is written, so that close_frames() reads complete frames.
 *  - A thread that cannot have a ring counts its records in `postrun_stray_lost`. */
#define _GNU_SOURCE
#include "ring.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic bool postrun_direct;
_Atomic bool postrun_steps_watched;
_Atomic uint32_t postrun_session;
_Atomic uint64_t postrun_stray_lost;
_Atomic uint32_t postrun_ring_records;
_Atomic(struct thread *) postrun_threads;

static struct thread nobody; /* postrun_self of a thread that has recorded nothing yet */
static struct thread gone;   /* postrun_self of a thread that runs its last destructors */
_Thread_local struct thread *postrun_self __attribute__((tls_model("initial-exec"))) = &nobody;

static _Atomic uint32_t numbers; /* of threads, so far; only postrun_thread_attach() counts */
static pthread_key_t key;
static bool have_key;

static void thread_exit(void *argument) {
    struct thread *thread = argument;
    postrun_self = &gone;
    postrun_handles_return(thread);
    /* pairs with drain.c: drain_thread() and session.c: sweep_locked() */
    atomic_store_explicit(&thread->exited, clock_ticks(), memory_order_release);
    if (atomic_load_explicit(&postrun_session, memory_order_relaxed) == SESSION_NONE) {
        postrun_session_sweep();
    }
}

void postrun_threads_init(void) { have_key = pthread_key_create(&key, thread_exit) == 0; }

static struct thread *thread_new(uint32_t records, uint32_t number) {
    size_t head = (sizeof(struct thread) + 4095) & ~(size_t)4095;
    size_t size = head + (size_t)records * sizeof(struct record);
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); /* only the used part is touched */
    if (memory == MAP_FAILED) {
        return NULL;
    }
    struct thread *thread = memory;
    thread->ring = (struct record *)(void *)((char *)memory + head);
    thread->mask = records - 1;
    thread->half = records / 2;
    thread->mapped = size;
    thread->number = number ? number : atomic_fetch_add(&numbers, 1) + 1;
    thread->tid = (uint32_t)syscall(SYS_gettid);
    prctl(PR_GET_NAME, thread->name);
    if (have_key && pthread_setspecific(key, thread) != 0) {
        munmap(memory, size); /* otherwise the thread's exit would go unnoticed */
        return NULL;
    }
    return thread;
}

struct thread *postrun_thread_attach(bool counts) {
    uint32_t session = atomic_load_explicit(&postrun_session, memory_order_acquire); /* pairs with session.c: start_session() */
    if (session == SESSION_LAZY) {
        postrun_session_start_lazy();
        session = atomic_load_explicit(&postrun_session, memory_order_acquire); /* pairs with session.c: start_session() */
    }
    if (session == SESSION_NONE || session == SESSION_LAZY) {
        return NULL;
    }
    struct thread *thread = postrun_self;
    if (thread == &gone) {
        atomic_fetch_add(&postrun_stray_lost, counts);
        return NULL;
    }
    uint32_t records = atomic_load(&postrun_ring_records);
    uint32_t number = 0;
    if (thread != &nobody && thread->mask != records - 1) { /* rings have another size now */
        number = thread->number;
        postrun_self = &nobody;
        postrun_handles_return(thread);
        /* pairs with drain.c: drain_thread() and session.c: sweep_locked() */
        atomic_store_explicit(&thread->exited, clock_ticks(), memory_order_release);
        thread = &nobody;
    }
    bool fresh = thread == &nobody;
    if (fresh) {
        thread = thread_new(records, number);
        if (!thread) {
            atomic_fetch_add(&postrun_stray_lost, counts);
            return NULL;
        }
    }
    thread->stamp = (uint64_t)(session & 0xffff) << 48;
    thread->tail_seen = atomic_load_explicit(&thread->tail, memory_order_acquire); /* pairs with drain.c: drain_thread() */
    atomic_store_explicit(&thread->depth, 0, memory_order_relaxed);
    atomic_store_explicit(&thread->lost, 0, memory_order_relaxed);
    atomic_store_explicit(&thread->lost_taken, 0, memory_order_relaxed); /* it is not drained before it is set up */
    atomic_store_explicit(&thread->unbalanced, 0, memory_order_relaxed);
    atomic_store_explicit(&thread->beyond, 0, memory_order_relaxed);
    /* pairs with drain.c: drain_thread() and session.c: postrun_get_statistics() */
    atomic_store_explicit(&thread->session, session, memory_order_release);
    if (fresh) {
        struct thread *first = atomic_load(&postrun_threads);
        do {
            atomic_store_explicit(&thread->next, first, memory_order_relaxed);
        } while (!atomic_compare_exchange_weak(&postrun_threads, &first, thread));
        postrun_self = thread;
    }
    return thread;
}

void postrun_thread_remove(struct thread *thread) {
    struct thread *expected = thread;
    struct thread *next = atomic_load(&thread->next);
    if (!atomic_compare_exchange_strong(&postrun_threads, &expected, next)) {
        struct thread *before = expected; /* the front: not this one, and this one is behind it */
        while (atomic_load(&before->next) != thread) {
            before = atomic_load(&before->next);
        }
        atomic_store(&before->next, next);
    }
    munmap(thread, thread->mapped);
}

bool postrun_ring_has_room(struct thread *thread, uint64_t head, uint64_t records) {
    thread->tail_seen = atomic_load_explicit(&thread->tail, memory_order_acquire); /* pairs with drain.c: drain_thread() */
    uint64_t used = head - thread->tail_seen;
    if (used >= thread->half) {
        postrun_session_wake();
    }
    return used + records <= thread->mask + 1;
}

void postrun_ring_lost(struct thread *thread, int64_t ticks) {
    uint64_t lost = atomic_load_explicit(&thread->lost, memory_order_relaxed);
    if (lost == atomic_load_explicit(&thread->lost_taken, memory_order_relaxed)) { /* the first since the last report */
        atomic_store_explicit(&thread->lost_first, ticks, memory_order_relaxed);
    }
    atomic_store_explicit(&thread->lost_last, ticks, memory_order_relaxed);
    atomic_store_explicit(&thread->lost, lost + 1, memory_order_release); /* pairs with drain.c: take_counts() */
}

/* In a child everything inherited is left as it is: other threads that used it do not exist here. */
void postrun_threads_forked(void) {
    if (postrun_self != &nobody) {
        postrun_self = &nobody;
        if (have_key) {
            pthread_setspecific(key, NULL);
        }
    }
    atomic_store(&postrun_threads, NULL);
    atomic_store(&postrun_stray_lost, 0);
}
