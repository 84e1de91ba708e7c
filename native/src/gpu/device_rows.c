/* device_rows.c - the queue of GPU activity between the callbacks of CUPTI and the thread that writes blocks.
 *
 * A callback puts a batch of rows into the queue, which is bounded; the drain thread takes all batches at once. */
#define _GNU_SOURCE
#include "device_rows.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define QUEUE_WORDS (8u << 20) /* 64 MiB wait at most */
#define MARGIN_NS 1000000  /* difference between times of a GPU and of the machine: 1 ms, far more than observed */

const struct device_shape postrun_device_shapes[DEVICE_TABLES] = {
    [DEVICE_API] = {PRT_API, 6, 1, {1, 2, 3, 4, 5, 6}},
    [DEVICE_KERNEL] = {PRT_KERNEL, 16, 1, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}},
    [DEVICE_MEMCPY] = {PRT_MEMCPY, 9, 0, {2, 3, 4, 5, 6, 7, 8, 9, 10}},
    [DEVICE_MEMSET] = {PRT_MEMSET, 7, 0, {2, 3, 4, 5, 6, 7, 9}},
    [DEVICE_SYNC] = {PRT_SYNC, 7, 0, {2, 3, 4, 5, 6, 7, 8}},
    [DEVICE_EXTERNAL] = {PRT_EXTERNAL, 3, NO_START, {1, 2, 3}},
    [DEVICE_CONTEXT] = {0, 2, NO_START, {0, 0}},
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct { /* under the lock */
    uint32_t session; /* 0: none */
    struct device_batch *first, **last;
    size_t words;
    uint64_t no_room, dropped, untimed; /* not reported yet */
    struct device_counts counts;
} queue = {.last = &queue.first};

/* The thread that opens or closes a window stores them, behind the gate; in_a_window() loads them on the threads of CUPTI. */
static _Atomic int64_t opened[2] = {INT64_MAX, INT64_MAX}, closed[2] = {INT64_MIN, INT64_MIN}; /* the last window, and the one before */
static _Atomic int64_t check_from = INT64_MAX; /* launches of kernels that start then or later; GPU thread -> drain thread */
static _Atomic uint64_t bytes; /* of blocks that were written; drain thread -> GPU thread */

uint32_t postrun_device_columns(enum device_table table) { return postrun_device_shapes[table].count; }

void postrun_device_rows_open(int64_t ns) {
    atomic_store(&opened[1], atomic_load(&opened[0]));
    atomic_store(&closed[1], atomic_load(&closed[0]));
    atomic_store(&closed[0], INT64_MAX - MARGIN_NS);
    atomic_store(&opened[0], ns);
}

void postrun_device_rows_close(int64_t ns) { atomic_store(&closed[0], ns); }

void postrun_device_rows_check_launches(int64_t from_ns) { atomic_store(&check_from, from_ns); }

static bool in_a_window(int64_t start, int64_t end) {
    for (int i = 0; i < 2; i++) {
        if (end >= atomic_load_explicit(&opened[i], memory_order_relaxed) - MARGIN_NS &&
            start <= atomic_load_explicit(&closed[i], memory_order_relaxed) + MARGIN_NS) {
            return true;
        }
    }
    return false;
}

void postrun_device_add(struct device_batch *batch, enum device_table table, const int64_t *values) {
    size_t count = postrun_device_shapes[table].count, start = postrun_device_shapes[table].start;
    if (start != NO_START && !in_a_window(values[start], values[start] + values[start + 1])) { /* others belong to rows with times */
        batch->outside++;
        return;
    }
    if (batch->capacity - batch->count < count + 1) {
        size_t capacity = batch->capacity ? batch->capacity * 2 : 4096;
        int64_t *words = realloc(batch->words, capacity * sizeof *words);
        if (!words) {
            batch->no_room++;
            return;
        }
        batch->words = words;
        batch->capacity = capacity;
    }
    batch->words[batch->count] = table;
    memcpy(batch->words + batch->count + 1, values, count * sizeof *values);
    batch->count += count + 1;
    batch->rows += table != DEVICE_CONTEXT;
}

void postrun_device_batches_free(struct device_batch *batch) {
    while (batch) {
        struct device_batch *next = batch->next;
        free(batch->words);
        free(batch);
        batch = next;
    }
}

static struct device_batch *take_all(void) { /* under the lock */
    struct device_batch *batch = queue.first;
    queue.first = NULL;
    queue.last = &queue.first;
    queue.words = 0;
    return batch;
}

void postrun_device_rows_begin(uint32_t number) {
    pthread_mutex_lock(&lock);
    struct device_batch *old = take_all();
    queue.session = number;
    queue.no_room = queue.dropped = queue.untimed = 0;
    memset(&queue.counts, 0, sizeof queue.counts);
    pthread_mutex_unlock(&lock);
    postrun_device_batches_free(old);
}

void postrun_device_rows_end(uint32_t number) {
    pthread_mutex_lock(&lock);
    struct device_batch *old = NULL;
    if (queue.session == number) {
        old = take_all();
        queue.session = 0;
    }
    pthread_mutex_unlock(&lock);
    postrun_device_batches_free(old);
}

void postrun_device_rows_put(struct device_batch *batch) {
    struct device_batch *kept = batch->count ? malloc(sizeof *kept) : NULL;
    pthread_mutex_lock(&lock);
    bool ours = queue.session != 0, room = kept && queue.words + batch->count <= QUEUE_WORDS;
    if (ours) {
        uint64_t no_room = batch->no_room + (batch->count && !room ? batch->rows : 0);
        queue.no_room += no_room;
        queue.dropped += batch->dropped;
        queue.untimed += batch->untimed;
        queue.counts.no_room += no_room;
        queue.counts.dropped += batch->dropped;
        queue.counts.untimed += batch->untimed;
        queue.counts.unknown += batch->unknown;
        queue.counts.overhead += batch->overhead;
        queue.counts.negative += batch->negative;
        queue.counts.ignored += batch->ignored;
        queue.counts.outside += batch->outside;
    }
    if (ours && room) {
        queue.counts.rows += batch->rows;
        *kept = *batch;
        kept->next = NULL;
        *queue.last = kept;
        queue.last = &kept->next;
        queue.words += batch->count;
        kept = NULL;
        batch->words = NULL;
    }
    pthread_mutex_unlock(&lock);
    free(kept);
    free(batch->words);
    memset(batch, 0, sizeof *batch);
}

void postrun_device_rows_lost(uint64_t records) {
    pthread_mutex_lock(&lock);
    if (queue.session) {
        queue.dropped += records;
        queue.counts.dropped += records;
    }
    pthread_mutex_unlock(&lock);
}

void postrun_device_rows_counts(struct device_counts *counts) {
    pthread_mutex_lock(&lock);
    *counts = queue.counts;
    pthread_mutex_unlock(&lock);
}

uint64_t postrun_device_rows_bytes(void) { return atomic_load(&bytes); }

void postrun_device_rows_wrote(uint64_t more) { atomic_fetch_add(&bytes, more); }

int64_t postrun_device_rows_checked_from(void) { return atomic_load(&check_from); }

void postrun_device_rows_wrong_launches(uint64_t wrong) {
    pthread_mutex_lock(&lock);
    queue.counts.wrong_launches += wrong;
    pthread_mutex_unlock(&lock);
}

bool postrun_device_rows_take(uint32_t number, struct device_taken *taken) {
    pthread_mutex_lock(&lock);
    bool ours = queue.session == number;
    if (ours) {
        *taken = (struct device_taken){take_all(), queue.no_room + queue.dropped, queue.untimed};
        queue.no_room = queue.dropped = queue.untimed = 0;
    }
    pthread_mutex_unlock(&lock);
    return ours;
}

void postrun_device_rows_forked(void) {
    atomic_store(&bytes, 0);
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    queue.first = NULL; /* the parent's */
    queue.last = &queue.first;
    queue.words = 0;
    queue.session = 0;
}
