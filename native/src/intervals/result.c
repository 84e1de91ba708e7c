/* result.c - the columns of a result, and their export as an Arrow stream of one batch. */
#include "result.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int interval_refuse(char *message, const char *text) {
    snprintf(message, INTERVAL_MESSAGE, "%s", text);
    return -EINVAL;
}

size_t interval_width(char format) {
    switch (format) {
    case 'b':
    case 'c':
    case 'C': return 1;
    case 's':
    case 'S': return 2;
    case 'i':
    case 'I': return 4;
    case 'l': return 8;
    default: return 0;
    }
}

interval_column *interval_add(interval_table *t, char format) {
    void *values = t->count < INTERVAL_COLUMNS_MAX ? calloc(t->rows + 1, interval_width(format)) : NULL;
    if (!values) {
        return NULL;
    }
    t->columns[t->count] = (interval_column){format, values, NULL};
    return &t->columns[t->count++];
}

void interval_set(interval_column *c, size_t width, size_t row, int64_t value) {
    switch (width) {
    case 1: ((uint8_t *)c->values)[row] = (uint8_t)value; break;
    case 2: ((uint16_t *)c->values)[row] = (uint16_t)value; break;
    case 4: ((uint32_t *)c->values)[row] = (uint32_t)value; break;
    default: ((int64_t *)c->values)[row] = value;
    }
}

int interval_set_null(interval_column *c, size_t rows, size_t row) {
    if (!c->valid) {
        if (!(c->valid = malloc(rows + 1))) {
            return -ENOMEM;
        }
        memset(c->valid, 1, rows + 1);
    }
    c->valid[row] = 0;
    return 0;
}

void interval_table_free(interval_table *t) {
    for (size_t i = 0; i < t->count; i++) {
        free(t->columns[i].values);
        free(t->columns[i].valid);
    }
    *t = (interval_table){0};
}

/* ---------------------------------------------------------------- export */

static const char *const NAMES[INTERVAL_COLUMNS_MAX] = {"0",  "1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9",  "10", "11", "12",
                                                        "13", "14", "15", "16", "17", "18", "19", "20", "21", "22", "23", "24", "25"};

static const char *format_text(char format) {
    switch (format) {
    case 'b': return "b";
    case 'c': return "c";
    case 'C': return "C";
    case 's': return "s";
    case 'S': return "S";
    case 'i': return "i";
    case 'I': return "I";
    default: return "l";
    }
}

struct schema_parent {
    struct ArrowSchema children[INTERVAL_COLUMNS_MAX], *pointers[INTERVAL_COLUMNS_MAX];
};

static void release_child_schema(struct ArrowSchema *s) { s->release = NULL; } /* its texts are static */

static void release_schema(struct ArrowSchema *s) {
    for (int64_t i = 0; i < s->n_children; i++) {
        if (s->children[i]->release) {
            s->children[i]->release(s->children[i]);
        }
    }
    free(s->private_data);
    s->release = NULL;
}

struct array_child {
    const void *buffers[2];
    void *owned[2];
};

struct array_parent {
    const void *buffers[1];
    struct ArrowArray children[INTERVAL_COLUMNS_MAX], *pointers[INTERVAL_COLUMNS_MAX];
};

static void release_child(struct ArrowArray *a) {
    struct array_child *child = a->private_data;
    free(child->owned[0]);
    free(child->owned[1]);
    free(child);
    a->release = NULL;
}

static void release_parent(struct ArrowArray *a) {
    struct array_parent *parent = a->private_data;
    for (int64_t i = 0; i < a->n_children; i++) {
        if (parent->children[i].release) { /* else the consumer has moved it */
            parent->children[i].release(&parent->children[i]);
        }
    }
    free(parent);
    a->release = NULL;
}

struct batch {
    int taken;
    size_t count;
    char formats[INTERVAL_COLUMNS_MAX];
    struct ArrowArray array;
};

static int stream_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    const struct batch *b = stream->private_data;
    struct schema_parent *parent = calloc(1, sizeof *parent);
    if (!parent) {
        return ENOMEM;
    }
    for (size_t i = 0; i < b->count; i++) {
        parent->children[i] = (struct ArrowSchema){
            .format = format_text(b->formats[i]), .name = NAMES[i], .flags = ARROW_FLAG_NULLABLE, .release = release_child_schema};
        parent->pointers[i] = &parent->children[i];
    }
    *out = (struct ArrowSchema){.format = "+s",
                                .name = "",
                                .n_children = (int64_t)b->count,
                                .children = parent->pointers,
                                .release = release_schema,
                                .private_data = parent};
    return 0;
}

static int stream_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    struct batch *b = stream->private_data;
    *out = (struct ArrowArray){0};
    if (!b->taken) {
        *out = b->array;
        b->taken = 1;
    }
    return 0;
}

static const char *stream_error(struct ArrowArrayStream *stream) {
    (void)stream;
    return NULL;
}

static void stream_release(struct ArrowArrayStream *stream) {
    struct batch *b = stream->private_data;
    if (!b->taken) {
        b->array.release(&b->array);
    }
    free(b);
    stream->release = NULL;
}

/* A bit per value, of bytes that are 0 or 1. */
static uint8_t *packed(const uint8_t *bytes, size_t count) {
    uint8_t *bits = calloc(count / 8 + 1, 1);
    for (size_t i = 0; bits && i < count; i++) {
        bits[i / 8] = (uint8_t)(bits[i / 8] | (bytes[i] & 1) << (i & 7));
    }
    return bits;
}

/* Makes the Arrow array of a column, which owns the values then; -ENOMEM leaves the column as it is. */
static int export_column(interval_column *c, size_t rows, struct ArrowArray *out) {
    struct array_child *child = calloc(1, sizeof *child);
    uint8_t *valid = c->valid ? packed(c->valid, rows) : NULL, *bits = c->format == 'b' ? packed(c->values, rows) : NULL;
    if (!child || (c->valid && !valid) || (c->format == 'b' && !bits)) {
        free(child);
        free(valid);
        free(bits);
        return -ENOMEM;
    }
    int64_t missing = 0;
    for (size_t i = 0; c->valid && i < rows; i++) {
        missing += !c->valid[i];
    }
    if (bits) {
        free(c->values);
        c->values = bits;
    }
    free(c->valid);
    child->owned[0] = valid;
    child->owned[1] = c->values;
    child->buffers[0] = child->owned[0];
    child->buffers[1] = child->owned[1];
    *c = (interval_column){0};
    *out = (struct ArrowArray){.length = (int64_t)rows,
                               .null_count = missing,
                               .n_buffers = 2,
                               .buffers = child->buffers,
                               .release = release_child,
                               .private_data = child};
    return 0;
}

int interval_table_export(interval_table *t, struct ArrowArrayStream *out) {
    struct batch *b = calloc(1, sizeof *b);
    struct array_parent *parent = calloc(1, sizeof *parent);
    if (!b || !parent) {
        free(b);
        free(parent);
        return -ENOMEM;
    }
    b->count = t->count;
    b->array = (struct ArrowArray){.length = (int64_t)t->rows,
                                   .n_buffers = 1,
                                   .buffers = parent->buffers,
                                   .n_children = (int64_t)t->count,
                                   .children = parent->pointers,
                                   .release = release_parent,
                                   .private_data = parent};
    for (size_t i = 0; i < t->count; i++) {
        parent->pointers[i] = &parent->children[i];
        b->formats[i] = t->columns[i].format;
        if (export_column(&t->columns[i], t->rows, &parent->children[i])) {
            b->array.n_children = (int64_t)i;
            b->array.release(&b->array);
            free(b);
            return -ENOMEM;
        }
    }
    interval_table_free(t);
    *out = (struct ArrowArrayStream){stream_schema, stream_next, stream_error, stream_release, b};
    return 0;
}
