/* cupti_buffers.c - the pool of buffers that CUPTI fills with records.
 *
 * The pool has a limit. Returned buffers are kept until the window closes, because new memory costs the launching thread a page fault per
 * page. Above the limit, a version of CUPTI that handles it is given no buffer. An older version would crash: it gets a small buffer, and
 * if there are too many of these, one buffer that all share and nobody reads.
 *
 * Buffers are mapped, not allocated: on the program's heap, each window could leave a hole of a buffer's size, which the program's next
 * allocations would split, so that the next window's buffer would not fit. */
#define _GNU_SOURCE
#include "cupti_buffers.h"

#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>

#define SMALL 65536u
#define SMALL_MAX 64u
#define HEAD 64u /* in front of each: which list it is of; keeps the alignment */

struct head {
    struct head *next, *previous;
    uint32_t generation;
    bool small;
};
static _Alignas(64) uint8_t shared[SMALL];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct head *kept, *given; /* of ours; those that CUPTI has */
static uint32_t held, small_held, generation; /* held: by CUPTI; with the kept ones never more than the limit */
static uint32_t limit = (128u << 20) / CUPTI_BUFFER;

void postrun_buffers_limit(size_t bytes) {
    size_t buffers = bytes / CUPTI_BUFFER;
    pthread_mutex_lock(&lock);
    limit = buffers < 1 ? 1 : buffers > 32768 ? 32768 : (uint32_t)buffers;
    pthread_mutex_unlock(&lock);
}

static uint8_t *bytes_of(struct head *head) { return (uint8_t *)head + HEAD; }

static size_t mapped(bool small) { return small ? SMALL : CUPTI_BUFFER; }

static struct head *make(bool small) {
    void *memory = mmap(NULL, mapped(small), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    struct head *head = memory;
    *head = (struct head){NULL, NULL, 0, small};
    return head;
}

static void give(struct head *head, uint32_t counted) { /* under the lock; counted: the generation in which it was */
    head->generation = counted;
    head->previous = NULL;
    head->next = given;
    if (given) {
        given->previous = head;
    }
    given = head;
}

static void take_back(struct head *head) { /* under the lock */
    if (head->next) {
        head->next->previous = head->previous;
    }
    if (head->previous) {
        head->previous->next = head->next;
    } else {
        given = head->next;
    }
}

uint8_t *postrun_buffer_get(size_t *size, int may_decline) {
    pthread_mutex_lock(&lock);
    struct head *head = NULL;
    bool small = held >= limit;
    if (!small && kept) {
        head = kept;
        kept = head->next;
        give(head, generation);
    }
    uint32_t counted = generation;
    bool room = small ? !may_decline && small_held < SMALL_MAX : true;
    held += !small;
    small_held += small && room;
    pthread_mutex_unlock(&lock);
    if (!head && room) {
        head = make(small);
        pthread_mutex_lock(&lock);
        if (head) {
            give(head, counted);
        } else if (counted == generation) {
            held -= !small;
            small_held -= small;
        }
        pthread_mutex_unlock(&lock);
    }
    *size = head ? mapped(small) - HEAD : may_decline ? 0 : sizeof shared;
    return head ? bytes_of(head) : may_decline ? NULL : shared;
}

/* The header in front of a buffer is read only if the buffer is known to be ours. */
enum buffer_origin postrun_buffer_origin(const uint8_t *buffer) {
    if (buffer == shared) {
        return BUFFER_SHARED;
    }
    pthread_mutex_lock(&lock);
    struct head *head = given;
    while (head && bytes_of(head) != buffer) {
        head = head->next;
    }
    pthread_mutex_unlock(&lock);
    return head ? BUFFER_OWN : BUFFER_FOREIGN;
}

void postrun_buffer_put(uint8_t *buffer) {
    struct head *head = (struct head *)(void *)(buffer - HEAD), *unused = head;
    pthread_mutex_lock(&lock);
    take_back(head);
    if (head->generation == generation) {
        held -= !head->small;
        small_held -= head->small;
        if (!head->small) {
            head->next = kept;
            kept = head;
            unused = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    if (unused) {
        munmap(unused, mapped(unused->small));
    }
}

void postrun_buffers_trim(void) {
    pthread_mutex_lock(&lock);
    struct head *list = kept;
    kept = NULL;
    pthread_mutex_unlock(&lock);
    while (list) {
        struct head *next = list->next;
        munmap(list, mapped(false));
        list = next;
    }
}

void postrun_buffers_abandon(void) {
    pthread_mutex_lock(&lock);
    generation++;
    held = small_held = 0;
    pthread_mutex_unlock(&lock);
}

void postrun_buffers_forked(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    kept = given = NULL;
    held = small_held = 0;
}
