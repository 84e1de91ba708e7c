/* read.c - reads Arrow tables into rows, in blocks, and numbers their groups. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "result.h"
#include "rows.h"

#define BLOCK 1024 /* rows that are converted at once */

/* Gives an array room for `count` elements. `pointer`: to the pointer to it, whatever its type. */
static int resize(void *pointer, size_t count, size_t size) {
    void *array;
    memcpy(&array, pointer, sizeof array);
    array = count > SIZE_MAX / size ? NULL : realloc(array, count * size);
    if (!array) {
        return -ENOMEM;
    }
    memcpy(pointer, &array, sizeof array);
    return 0;
}

int interval_grow(void *pointer, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) {
        return 0;
    }
    size_t more = *capacity + *capacity / 2 + 64;
    int status = resize(pointer, more, size);
    *capacity = status ? *capacity : more;
    return status;
}

/* ---------------------------------------------------------------- columns */

/* The values of some rows as int64, 0 where null; returns whether one is null. */
static int load(const struct ArrowArray *a, char format, size_t from, size_t count, int64_t *values, uint8_t *null) {
    size_t at = (size_t)a->offset + from;
    const uint8_t *bits = a->buffers[0], *data = a->buffers[1];
    data += format == 'b' ? 0 : at * interval_width(format);
    switch (format) {
#define LOAD(type)                                             \
    for (size_t i = 0; i < count; i++) {                       \
        type value;                                            \
        memcpy(&value, data + i * sizeof value, sizeof value); \
        values[i] = value;                                     \
    }                                                          \
    break
    case 'c': LOAD(int8_t);
    case 'C': LOAD(uint8_t);
    case 's': LOAD(int16_t);
    case 'S': LOAD(uint16_t);
    case 'i': LOAD(int32_t);
    case 'I': LOAD(uint32_t);
    case 'l': LOAD(int64_t);
#undef LOAD
    default:
        for (size_t i = 0; i < count; i++) {
            values[i] = data[(at + i) / 8] >> ((at + i) & 7) & 1;
        }
    }
    if (!bits) {
        return 0;
    }
    int some = 0;
    for (size_t i = 0; i < count; i++) {
        null[i] = !(bits[(at + i) / 8] >> ((at + i) & 7) & 1);
        values[i] = null[i] ? 0 : values[i];
        some |= null[i];
    }
    return some;
}

/* Refuses a batch whose memory cannot be that of its schema. */
static int check_batch(const struct ArrowArray *batch, const char *formats, size_t columns, char *message) {
    if (batch->length < 0 || batch->offset < 0 || batch->length > INT64_MAX / 16 || batch->offset > INT64_MAX / 16 ||
        batch->n_children != (int64_t)columns || (columns && !batch->children)) {
        return interval_refuse(message, "a batch does not have the columns of its schema");
    }
    if (batch->null_count > 0 || (batch->n_buffers > 0 && batch->buffers && batch->buffers[0])) {
        return interval_refuse(message, "the rows of a table cannot be null");
    }
    for (size_t i = 0; i < columns; i++) {
        const struct ArrowArray *a = batch->children[i];
        if (!a || a->offset < 0 || a->offset > INT64_MAX / 16 || a->length < batch->offset + batch->length || a->n_buffers != 2 ||
            !a->buffers || a->dictionary || (!a->buffers[1] && batch->length)) {
            return interval_refuse(message, "a column does not fit its schema");
        }
        if (formats[i] == 0) {
            return interval_refuse(message, "a column has a type that has no place in interval algebra");
        }
    }
    return 0;
}

static int read_schema(struct ArrowArrayStream *stream, size_t columns, char *formats, char *message) {
    struct ArrowSchema schema = {0};
    int status = stream->get_schema(stream, &schema);
    if (status) {
        return status == ENOMEM ? -ENOMEM : interval_refuse(message, "the schema of a table cannot be read");
    }
    if (!schema.format || strcmp(schema.format, "+s") != 0 || schema.n_children != (int64_t)columns || (columns && !schema.children)) {
        snprintf(message, INTERVAL_MESSAGE, "a table must have %zu columns", columns);
        status = -EINVAL;
    }
    for (size_t i = 0; !status && i < columns; i++) {
        const char *format = schema.children[i] ? schema.children[i]->format : NULL;
        if (!format || strlen(format) != 1 || !interval_width(*format) || schema.children[i]->dictionary) {
            status = interval_refuse(message, "a column must be of integers of at most 64 bits with a sign, or of booleans");
        } else {
            formats[i] = *format;
        }
    }
    if (schema.release) {
        schema.release(&schema);
    }
    return status;
}

/* ---------------------------------------------------------------- groups */

static uint64_t mixed(uint64_t x) { /* all bits depend on all bits */
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static uint64_t hash_of(const interval_groups *g, const int64_t *key, uint32_t nulls) {
    uint64_t hash = mixed(g->seed ^ nulls);
    for (unsigned k = 0; k < g->keys; k++) {
        hash = mixed(hash + 0x9E3779B97F4A7C15u + (uint64_t)key[k]);
    }
    return hash;
}

static int same_key(const interval_groups *g, size_t group, const int64_t *key, uint32_t nulls) {
    return g->nulls[group] == nulls && (!g->keys || memcmp(g->values + group * g->keys, key, g->keys * sizeof *key) == 0);
}

static int widen_table(interval_groups *g) {
    size_t slots = g->slot_count ? g->slot_count * 2 : 64;
    uint32_t *table = calloc(slots, sizeof *table);
    if (!table) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < g->count; i++) {
        size_t at = hash_of(g, g->values + i * g->keys, g->nulls[i]) & (slots - 1);
        while (table[at]) {
            at = (at + 1) & (slots - 1);
        }
        table[at] = (uint32_t)i + 1;
    }
    free(g->slots);
    g->slots = table;
    g->slot_count = slots;
    return 0;
}

static int group_of(interval_groups *g, const int64_t *key, uint32_t nulls, uint32_t *out) {
    if (g->count * 2 >= g->slot_count) {
        int status = widen_table(g);
        if (status) {
            return status;
        }
    }
    size_t at = hash_of(g, key, nulls) & (g->slot_count - 1);
    for (; g->slots[at]; at = (at + 1) & (g->slot_count - 1)) {
        if (same_key(g, g->slots[at] - 1, key, nulls)) {
            *out = g->slots[at] - 1;
            return 0;
        }
    }
    size_t capacity = g->capacity;
    int status = interval_grow(&g->nulls, g->count, &capacity, sizeof *g->nulls);
    if (!status && g->keys) {
        status = interval_grow(&g->values, g->count, &g->capacity, g->keys * sizeof *g->values);
    } else if (!status) {
        g->capacity = capacity;
    }
    if (status) {
        return status;
    }
    g->nulls[g->count] = nulls;
    if (g->keys) {
        memcpy(g->values + g->count * g->keys, key, g->keys * sizeof *key);
    }
    *out = (uint32_t)g->count;
    g->slots[at] = (uint32_t)++g->count;
    return 0;
}

/* ---------------------------------------------------------------- rows */

typedef struct {
    char formats[INTERVAL_KEYS_MAX + 2 + INTERVAL_CLASSES_MAX + INTERVAL_ORDERS_MAX];
    int64_t values[BLOCK], key[INTERVAL_KEYS_MAX][BLOCK], time[2][BLOCK];
    uint8_t null[BLOCK], missing[BLOCK];
    uint32_t key_nulls[BLOCK], marks[BLOCK];
    int64_t order[INTERVAL_ORDERS_MAX][BLOCK];
    int64_t last[INTERVAL_KEYS_MAX];
    uint32_t last_nulls, last_group;
    int known; /* last is the key of last_group */
} block;

/* Adds a row of a block; `i`: its place there. */
static int keep(interval_rows *out, interval row, const block *b, size_t i) {
    if (out->count == out->capacity) {
        size_t capacity = out->capacity + out->capacity / 2 + BLOCK;
        int status = resize(&out->rows, capacity, sizeof *out->rows);
        for (unsigned k = 0; !status && k < out->orders; k++) {
            status = resize(&out->order[k], capacity, sizeof *out->order[k]);
        }
        if (!status && out->orders) {
            status = resize(&out->numbers, capacity, sizeof *out->numbers);
        }
        if (status) {
            return status;
        }
        out->capacity = capacity;
    }
    if (out->orders) {
        for (unsigned k = 0; k < out->orders; k++) {
            out->order[k][out->count] = b->order[k][i];
        }
        out->numbers[out->count] = row.mark;
        row.mark = (uint32_t)out->count;
    }
    out->rows[out->count++] = row;
    return 0;
}

static int read_block(const struct ArrowArray *batch, size_t from, size_t count, const interval_reading *how, interval_groups *g, block *b,
                      interval_rows *out) {
    size_t offset = (size_t)batch->offset + from, column = 0;
    memset(b->key_nulls, 0, sizeof b->key_nulls);
    memset(b->missing, 0, sizeof b->missing);
    for (unsigned k = 0; k < g->keys; k++, column++) {
        if (load(batch->children[column], b->formats[column], offset, count, b->key[k], b->null)) {
            for (size_t i = 0; i < count; i++) {
                b->key_nulls[i] |= (uint32_t)b->null[i] << k;
            }
        }
    }
    for (unsigned k = 0; k < how->times; k++, column++) {
        if (load(batch->children[column], b->formats[column], offset, count, b->time[k], b->null)) {
            for (size_t i = 0; i < count; i++) {
                b->missing[i] |= b->null[i];
            }
        }
    }
    for (size_t i = 0; i < count; i++) {
        b->marks[i] = how->numbered ? (uint32_t)(out->total + i) : how->classes ? 0 : how->mark;
    }
    for (unsigned k = 0; k < how->classes; k++, column++) {
        load(batch->children[column], b->formats[column], offset, count, b->values, b->null);
        for (size_t i = 0; i < count; i++) {
            b->marks[i] |= (uint32_t)(b->values[i] != 0) << k;
        }
    }
    for (unsigned k = 0; k < how->orders; k++, column++) {
        int some = load(batch->children[column], b->formats[column], offset, count, b->values, b->null);
        for (size_t i = 0; i < count; i++) {
            b->order[k][i] = some && b->null[i] ? INT64_MIN : b->values[i];
        }
    }
    const int64_t *ends = b->time[how->times - 1];
    for (size_t i = 0; i < count; i++) {
        int same = b->known && b->last_nulls == b->key_nulls[i];
        for (unsigned k = 0; same && k < g->keys; k++) {
            same = b->last[k] == b->key[k][i];
        }
        if (!same) {
            for (unsigned k = 0; k < g->keys; k++) {
                b->last[k] = b->key[k][i];
            }
            b->last_nulls = b->key_nulls[i];
            int status = group_of(g, b->last, b->last_nulls, &b->last_group);
            if (status) {
                return status;
            }
            b->known = 1;
        }
        if (b->missing[i] || (how->keyed && b->key_nulls[i]) || (!how->empty && ends[i] <= b->time[0][i]) ||
            (how->classes && !b->marks[i])) {
            continue;
        }
        interval row = {b->time[0][i], ends[i], b->last_group, b->marks[i]};
        int status = how->take ? how->take(how->context, &row, out) : 1;
        if (status > 0) {
            status = keep(out, row, b, i);
        }
        if (status) {
            return status;
        }
    }
    out->total += count;
    return 0;
}

/* Makes room for the results of the rows of a batch. */
static int reserve(interval_rows *out, size_t rows, const interval_reading *how) {
    size_t needed = out->total + rows;
    if (how->results && needed > out->result_capacity) {
        if (resize(&out->results, needed + needed / 2, sizeof *out->results)) {
            return -ENOMEM;
        }
        out->result_capacity = needed + needed / 2;
    }
    for (size_t i = out->total; how->results && i < needed; i++) {
        out->results[i] = how->initial;
    }
    return 0;
}

static int read_batch(const struct ArrowArray *batch, const interval_reading *how, interval_groups *g, block *b, interval_rows *out,
                      char *message) {
    if ((uint64_t)batch->length >= NO_ROW - out->total) {
        return interval_refuse(message, "a table has more than 4,294,967,294 rows");
    }
    size_t rows = (size_t)batch->length;
    int status = reserve(out, rows, how);
    for (size_t from = 0; !status && from < rows; from += BLOCK) {
        status = read_block(batch, from, rows - from < BLOCK ? rows - from : BLOCK, how, g, b, out);
    }
    return status;
}

int interval_read(struct ArrowArrayStream *stream, const interval_reading *how, interval_groups *g, interval_rows *out, char *message) {
    size_t columns = g->keys + how->times + how->classes + how->orders;
    block *b = calloc(1, sizeof *b);
    if (!b) {
        return -ENOMEM;
    }
    if (!g->seed) { /* so that no input can be made for this order of the slots; the results do not depend on it */
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        g->seed = mixed((uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 32 ^ (uint64_t)(uintptr_t)b) | 1;
    }
    out->orders = how->orders;
    int status = read_schema(stream, columns, b->formats, message);
    for (unsigned k = 0; !status && k < how->times; k++) {
        if (b->formats[g->keys + k] != 'l') {
            status = interval_refuse(message, "times must be int64");
        }
    }
    if (!status && !g->formats[0]) {
        memcpy(g->formats, b->formats, g->keys);
    }
    while (!status) {
        struct ArrowArray batch = {0};
        int error = stream->get_next(stream, &batch);
        if (error) {
            status = error == ENOMEM ? -ENOMEM : interval_refuse(message, "a batch of a table cannot be read");
            break;
        }
        if (!batch.release) {
            break;
        }
        status = check_batch(&batch, b->formats, columns, message);
        if (!status) {
            status = read_batch(&batch, how, g, b, out, message);
        }
        batch.release(&batch);
    }
    free(b);
    return status;
}

uint32_t interval_number(const interval_rows *r, const interval *row) { return r->numbers ? r->numbers[row->mark] : row->mark; }

void interval_groups_free(interval_groups *g) {
    free(g->values);
    free(g->nulls);
    free(g->slots);
    free(g->from_first);
    *g = (interval_groups){0};
}

void interval_rows_free(interval_rows *r) {
    free(r->rows);
    free(r->offsets);
    free(r->results);
    free(r->numbers);
    for (unsigned k = 0; k < INTERVAL_ORDERS_MAX; k++) {
        free(r->order[k]);
    }
    *r = (interval_rows){0};
}
