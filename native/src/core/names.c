/* names.c - the table of names: text -> id and id -> text.
 *
 * Names are added under a lock and looked up without one: the table contains pointers to entries that never change and are never freed. A
 * larger table replaces a full one. Old tables are kept, because a thread may still read them; together they are not larger than the
 * newest. */
#define _GNU_SOURCE
#include "names.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "postrun.h"
#include "ring.h"
#include "step_name.h"

#define TEXT_MAX 4095
#define PAGE 4096      /* entries of a page of the list by id */
#define PAGES 1024     /* 4,194,304 names; after that every new text is the one below */
#define OVERFLOW_TEXT "(too many names)"
#define ARENA 65536

struct name {
    uint64_t hash;
    uint32_t id, length;
    char text[];
};
typedef _Atomic(struct name *) slot;
struct table {
    size_t mask;
    struct table *older;
    slot slots[];
};
typedef _Atomic(struct name **) page;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct table *) current;
static page pages[PAGES];
static _Atomic uint32_t count;
static char *arena; /* room for entries */
static size_t arena_left;

static uint64_t hash_of(const char *text, size_t length) {
    uint64_t hash = 0x9e3779b97f4a7c15u ^ length;
    while (length) {
        uint64_t word = 0;
        size_t n = length < 8 ? length : 8;
        memcpy(&word, text, n);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
        text += n;
        length -= n;
    }
    return hash;
}

static struct name *find(struct table *table, uint64_t hash, const char *text, size_t length) {
    if (!table) {
        return NULL;
    }
    for (size_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        struct name *name = atomic_load_explicit(&table->slots[i], memory_order_acquire); /* pairs with put() */
        if (!name || (name->hash == hash && name->length == length && memcmp(name->text, text, length) == 0)) {
            return name;
        }
    }
}

static void put(struct table *table, struct name *name) {
    size_t i = name->hash & table->mask;
    while (atomic_load_explicit(&table->slots[i], memory_order_relaxed)) {
        i = (i + 1) & table->mask;
    }
    atomic_store_explicit(&table->slots[i], name, memory_order_release); /* pairs with find() */
}

static struct name *entry(uint32_t id) {
    struct name **list = atomic_load_explicit(&pages[(id - 1) / PAGE], memory_order_acquire); /* pairs with add() */
    return list[(id - 1) % PAGE];
}

static struct table *with_room(uint32_t names) { /* a table that takes one more */
    struct table *table = atomic_load_explicit(&current, memory_order_relaxed);
    if (table && names < table->mask / 2) {
        return table;
    }
    size_t size = table ? (table->mask + 1) * 2 : 512;
    struct table *larger = calloc(1, sizeof *larger + size * sizeof(slot));
    if (!larger) {
        return table && names < table->mask ? table : NULL;
    }
    larger->mask = size - 1;
    larger->older = table;
    for (uint32_t id = 1; id <= names; id++) {
        put(larger, entry(id));
    }
    atomic_store_explicit(&current, larger, memory_order_release); /* pairs with postrun_name() */
    return larger;
}

static struct name *make(uint64_t hash, const char *text, size_t length) {
    size_t size = (sizeof(struct name) + length + 7) & ~(size_t)7;
    if (size > arena_left) {
        char *more = malloc(ARENA);
        if (!more) {
            return NULL;
        }
        arena = more;
        arena_left = ARENA;
    }
    struct name *name = (struct name *)(void *)arena;
    arena += size;
    arena_left -= size;
    name->hash = hash;
    name->length = (uint32_t)length;
    memcpy(name->text, text, length);
    return name;
}

/* Under the lock. A fork at any point leaves the child a table that works: an entry has its number before it can be found. */
static struct name *add(uint64_t hash, const char *text, size_t length) {
    uint32_t names = atomic_load_explicit(&count, memory_order_relaxed);
    struct table *table = with_room(names);
    if (!table) {
        return NULL;
    }
    struct name **list = atomic_load_explicit(&pages[names / PAGE], memory_order_relaxed);
    if (!list) {
        list = calloc(PAGE, sizeof *list);
        if (!list) {
            return NULL;
        }
        atomic_store_explicit(&pages[names / PAGE], list, memory_order_release); /* pairs with entry() */
    }
    struct name *name = make(hash, text, length);
    if (!name) {
        return NULL;
    }
    name->id = names + 1;
    list[names % PAGE] = name;
    atomic_store_explicit(&count, names + 1, memory_order_release); /* pairs with postrun_names_count() */
    put(table, name);
    int64_t number;
    if (step_name(name->text, length, &number)) {
        postrun_step_named();
    }
    return name;
}

uint32_t postrun_name(const char *text, size_t length) {
    if (!text) {
        return 0;
    }
    if (length > TEXT_MAX) {
        for (length = TEXT_MAX; length > TEXT_MAX - 3 && ((unsigned char)text[length] & 0xc0) == 0x80;) {
            length--; /* not inside a character */
        }
    }
    uint64_t hash = hash_of(text, length);
    struct name *name = find(atomic_load_explicit(&current, memory_order_acquire), hash, text, length); /* pairs with with_room() */
    if (name) {
        return name->id;
    }
    pthread_mutex_lock(&lock);
    name = find(atomic_load_explicit(&current, memory_order_relaxed), hash, text, length);
    if (!name && atomic_load_explicit(&count, memory_order_relaxed) >= PAGE * PAGES - 1) {
        text = OVERFLOW_TEXT;
        length = sizeof OVERFLOW_TEXT - 1;
        hash = hash_of(text, length);
        name = find(atomic_load_explicit(&current, memory_order_relaxed), hash, text, length);
    }
    if (!name) {
        name = add(hash, text, length);
    }
    pthread_mutex_unlock(&lock);
    return name ? name->id : 0;
}

/* pairs with add() */
uint32_t postrun_names_count(void) { return atomic_load_explicit(&count, memory_order_acquire); }

prt_text postrun_names_text(uint32_t id) {
    struct name *name = entry(id);
    return (prt_text){name->text, name->length};
}

void postrun_names_forked(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    arena_left = 0; /* another thread may have been allocating from it */
}
