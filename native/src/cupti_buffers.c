/* cupti_buffers.c - where do the buffers come from that CUPTI fills?
 *
 * From a pool with a cap. Above it a library that can bear it is declined; an older one crashes then, and gets a small buffer instead; and
 * when there are too many of these, one that all share and nobody reads. */
#define _GNU_SOURCE
#include "cupti_buffers.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#define KEPT 4u
#define SMALL 65536u
#define SMALL_MAX 64u
#define HEAD 64u /* in front of each: which list it is of; keeps the alignment */

struct head {
    struct head *next;
    bool small;
};
static _Alignas(64) uint8_t shared[SMALL];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct head *kept;
static uint32_t kept_count, held, small_held;
static uint32_t limit = (128u << 20) / CUPTI_BUFFER;

void postrun_buffers_limit(size_t bytes) {
    size_t buffers = bytes / CUPTI_BUFFER;
    pthread_mutex_lock(&lock);
    limit = buffers < 1 ? 1 : buffers > 4096 ? 4096 : (uint32_t)buffers;
    pthread_mutex_unlock(&lock);
}

static uint8_t *bytes_of(struct head *head) { return (uint8_t *)head + HEAD; }

static struct head *make(size_t size, bool small) {
    void *memory = NULL;
    if (posix_memalign(&memory, HEAD, HEAD + size) != 0) {
        return NULL;
    }
    struct head *head = memory;
    *head = (struct head){NULL, small};
    return head;
}

uint8_t *postrun_buffer_get(size_t *size, int may_decline) {
    pthread_mutex_lock(&lock);
    struct head *head = NULL;
    bool small = held >= limit;
    if (!small && kept) {
        head = kept;
        kept = head->next;
        kept_count--;
    }
    bool room = small ? !may_decline && small_held < SMALL_MAX : true;
    held += !small;
    small_held += small && room;
    pthread_mutex_unlock(&lock);
    if (!head && room) {
        head = make(small ? SMALL : CUPTI_BUFFER, small);
        if (!head) {
            pthread_mutex_lock(&lock);
            held -= !small;
            small_held -= small;
            pthread_mutex_unlock(&lock);
        }
    }
    *size = head ? small ? SMALL : CUPTI_BUFFER : may_decline ? 0 : sizeof shared;
    return head ? bytes_of(head) : may_decline ? NULL : shared;
}

int postrun_buffer_is_shared(const uint8_t *buffer) { return buffer == shared; }

void postrun_buffer_put(uint8_t *buffer) {
    if (!buffer || buffer == shared) {
        return;
    }
    struct head *head = (struct head *)(void *)(buffer - HEAD), *unused = head;
    pthread_mutex_lock(&lock);
    if (head->small) {
        small_held--;
    } else {
        held--;
        if (kept_count < KEPT) {
            head->next = kept;
            kept = head;
            kept_count++;
            unused = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    free(unused);
}

void postrun_buffers_trim(void) {
    pthread_mutex_lock(&lock);
    struct head *list = kept;
    kept = NULL;
    kept_count = 0;
    pthread_mutex_unlock(&lock);
    while (list) {
        struct head *next = list->next;
        free(list);
        list = next;
    }
}

void postrun_buffers_forked(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    kept = NULL;
    kept_count = held = small_held = 0;
}
