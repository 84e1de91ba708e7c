/* redact_text.h - growing text and classes of characters, for the parts of the redaction. */
#ifndef POSTRUN_REDACT_TEXT_H
#define POSTRUN_REDACT_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "redact.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

struct buffer {
    char *data;
    size_t length, capacity;
    bool failed;
};

static inline void put(struct buffer *b, const char *text, size_t length) {
    if (length >= b->capacity - b->length) {
        size_t capacity = (b->length + length + 1) * 2;
        char *data = length < SIZE_MAX / 8 && b->length < SIZE_MAX / 8 ? realloc(b->data, capacity) : NULL;
        if (!data) {
            b->failed = true;
            return;
        }
        b->data = data;
        b->capacity = capacity;
    }
    if (length) {
        memcpy(b->data + b->length, text, length);
    }
    b->length += length;
    b->data[b->length] = 0;
}

static inline void put_mask(struct buffer *b) { put(b, REDACT_MASK, sizeof REDACT_MASK - 1); }

static inline char *finish(struct buffer *b) {
    put(b, "", 0);
    if (b->failed) {
        free(b->data);
        return NULL;
    }
    return b->data;
}

static inline bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
static inline bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
static inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
static inline bool is_alnum(char c) { return is_upper(c) || is_lower(c) || is_digit(c); }
static inline bool in(char c, const char *set) { return c && strchr(set, c); }
static inline bool is_blank(char c) { return c == ' ' || c == '\t'; }
static inline bool is_space(char c) { return in(c, " \t\r\n\f\v"); }

static inline size_t find_in(const char *text, size_t from, size_t to, const char *set) {
    while (from < to && !in(text[from], set)) {
        from++;
    }
    return from;
}

static inline bool is_name_of(const char *name, size_t length, const char *other) {
    return strlen(other) == length && memcmp(name, other, length) == 0;
}

static inline bool begins(const char *text, size_t size, size_t at, const char *word) {
    size_t length = strlen(word);
    return at + length <= size && memcmp(text + at, word, length) == 0;
}

#endif
