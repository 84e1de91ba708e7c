/* handles.c - the table of ranges that are open by handle.
 *
 * A handle contains the number of a slot and how often the slot was used, so an old handle never closes a new range. Slots are in chunks
 * that are never freed. Free slots are in a small cache of each thread and in a common lock-free list. The thread that sets a slot's
 * handle to 0 owns the slot. */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "ring.h"

#define CHUNK 64u
#define CHUNKS 16384u /* 1,048,576 ranges open at once */
#define INDEX_BITS 20
#define EPOCH_SHIFT 56 /* a child's handles differ from its parent's */

struct slot {
    _Atomic uint64_t handle; /* 0: not open */
    uint64_t last;           /* handle it had before */
    struct open_range range;
    _Atomic uint32_t next;   /* in the common list: index + 1 */
};
typedef _Atomic(struct slot *) chunk;

static chunk chunks[CHUNKS];
static _Atomic uint32_t chunk_count;
/* The number above the index changes with every push and pop, so a compare-and-exchange never succeeds on a list that changed between. */
static _Atomic uint64_t common; /* index + 1 of the first, and above it how often it changed */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t epoch = 1;

static struct slot *slot_at(uint32_t index) {
    /* pairs with more_slots() */
    struct slot *slots = index / CHUNK < CHUNKS ? atomic_load_explicit(&chunks[index / CHUNK], memory_order_acquire) : NULL;
    return slots ? &slots[index % CHUNK] : NULL;
}

static void common_push(uint32_t index) {
    struct slot *slot = slot_at(index);
    uint64_t first = atomic_load(&common);
    do {
        atomic_store_explicit(&slot->next, (uint32_t)first, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak(&common, &first, ((first >> 32) + 1) << 32 | (index + 1)));
}

static bool common_pop(uint32_t *index) {
    uint64_t first = atomic_load(&common);
    for (;;) {
        if ((uint32_t)first == 0) {
            return false;
        }
        struct slot *slot = slot_at((uint32_t)first - 1);
        uint64_t next = atomic_load_explicit(&slot->next, memory_order_relaxed);
        if (atomic_compare_exchange_weak(&common, &first, ((first >> 32) + 1) << 32 | next)) {
            *index = (uint32_t)first - 1;
            return true;
        }
    }
}

static void give(struct thread *thread, uint32_t index) {
    if (thread && thread->handle_count < HANDLE_CACHE) {
        thread->handles[thread->handle_count++] = index;
    } else {
        common_push(index);
    }
}

static bool more_slots(uint32_t *index) {
    bool made = false;
    pthread_mutex_lock(&lock);
    uint32_t n = atomic_load(&chunk_count);
    struct slot *slots = n < CHUNKS ? calloc(CHUNK, sizeof *slots) : NULL;
    if (slots) {
        for (uint32_t i = 0; i < CHUNK; i++) {
            slots[i].last = epoch << EPOCH_SHIFT | (n * CHUNK + i);
        }
        atomic_store_explicit(&chunks[n], slots, memory_order_release); /* pairs with slot_at() */
        atomic_store_explicit(&chunk_count, n + 1, memory_order_release); /* pairs with postrun_handle_close_next() */
        made = true;
    }
    pthread_mutex_unlock(&lock);
    if (made) {
        *index = n * CHUNK;
        for (uint32_t i = 1; i < CHUNK; i++) {
            common_push(n * CHUNK + i);
        }
    }
    return made;
}

uint64_t postrun_handle_open(struct thread *thread, const struct open_range *range) {
    uint32_t index;
    if (LIKELY(thread->handle_count != 0)) {
        index = thread->handles[--thread->handle_count];
    } else if (!common_pop(&index) && !more_slots(&index)) {
        return 0;
    }
    struct slot *slot = slot_at(index);
    uint64_t handle = slot->last + (1u << INDEX_BITS);
    slot->last = handle;
    slot->range = *range;
    slot->range.handle = handle;
    /* pairs with postrun_handle_close() and postrun_handle_close_next() */
    atomic_store_explicit(&slot->handle, handle, memory_order_release);
    return handle; /* a stop may have closed the slot by now, and another thread may be using it */
}

bool postrun_handle_close(struct thread *thread, uint64_t handle, struct open_range *range) {
    uint32_t index = (uint32_t)(handle & ((1u << INDEX_BITS) - 1));
    struct slot *slot = slot_at(index);
    uint64_t expected = handle;
    if (!slot || handle == 0 || !atomic_compare_exchange_strong(&slot->handle, &expected, 0)) {
        return false;
    }
    *range = slot->range;
    give(thread, index);
    return true;
}

bool postrun_handle_close_next(uint32_t *at, struct open_range *range) {
    uint32_t end = atomic_load_explicit(&chunk_count, memory_order_acquire) * CHUNK; /* pairs with more_slots() */
    while (*at < end) {
        struct slot *slot = slot_at((*at)++);
        uint64_t handle = atomic_load_explicit(&slot->handle, memory_order_acquire); /* pairs with postrun_handle_open() */
        if (handle && postrun_handle_close(NULL, handle, range)) {
            return true;
        }
    }
    return false;
}

void postrun_handles_return(struct thread *thread) {
    while (thread->handle_count) {
        common_push(thread->handles[--thread->handle_count]);
    }
}

void postrun_handles_forked(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    uint32_t n = atomic_load(&chunk_count);
    for (uint32_t i = 0; i < n && i < CHUNKS; i++) {
        atomic_store(&chunks[i], NULL);
    }
    if (n < CHUNKS) {
        atomic_store(&chunks[n], NULL); /* one that was being made */
    }
    atomic_store(&chunk_count, 0);
    atomic_store(&common, 0);
    epoch = (epoch + 1) & 0xff ? (epoch + 1) & 0xff : 1;
}
