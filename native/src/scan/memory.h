/* memory.h - growing buffers and arrays, and the hash that the tables of the scanner use. */
#ifndef POSTRUN_SCAN_MEMORY_H
#define POSTRUN_SCAN_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "trace_scan.h"

typedef const uint8_t *text;

typedef struct {
    uint8_t *bytes;
    size_t length, capacity;
} buffer;

static inline int reserve(buffer *b, size_t capacity) {
    if (capacity <= b->capacity && b->bytes) {
        return 0; /* also no bytes have an address */
    }
    size_t larger = b->capacity ? b->capacity : 256;
    while (larger < capacity) {
        if (larger > SIZE_MAX / 2) {
            return -1;
        }
        larger *= 2;
    }
    uint8_t *bytes = realloc(b->bytes, larger);
    if (!bytes) {
        return -1;
    }
    b->bytes = bytes;
    b->capacity = larger;
    return 0;
}

static inline int append(buffer *b, const void *bytes, size_t length) {
    if (length > SIZE_MAX - b->length || reserve(b, b->length + length)) {
        return -1;
    }
    if (length) {
        memcpy(b->bytes + b->length, bytes, length);
    }
    b->length += length;
    return 0;
}

/* Room for one more element of an array that has count of capacity in use. */
static inline int grow(void **array, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) {
        return 0;
    }
    size_t larger = *capacity ? *capacity * 2 : 16;
    if (larger > SIZE_MAX / size) {
        return -1;
    }
    void *moved = realloc(*array, larger * size);
    if (!moved) {
        return -1;
    }
    *array = moved;
    *capacity = larger;
    return 0;
}

static inline int copy_text(trace_scan_text *to, text at, size_t length) {
    uint8_t *bytes = malloc(length + 1);
    if (!bytes) {
        return -1;
    }
    if (length) {
        memcpy(bytes, at, length);
    }
    to->at = bytes;
    to->length = length;
    return 0;
}

static inline uint64_t load8(text p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static inline uint64_t load_short(text p, size_t n) { /* n < 8 */
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++) {
        word |= (uint64_t)p[i] << (8 * i);
    }
    return word;
}

static inline uint64_t mix(uint64_t h) {
    h ^= h >> 32;
    h *= 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

#endif
