/* intervals_driver.c - random and broken Arrow tables for src/intervals, in memory of exact size: run with sanitizers.
 *
 * usage: intervals_driver SEED ROUNDS */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intervals/intervals.h"

static uint64_t state;

static uint64_t draw(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : 0;
}

/* ---------------------------------------------------------------- tables */

#define COLUMNS_MAX 30
#define BATCHES_MAX 3

struct source {
    size_t columns, batches, next;
    char formats[COLUMNS_MAX][3];
    int broken; /* what is wrong with it; 0: nothing */
    int64_t span;
};

static void release_nothing(struct ArrowSchema *s) { s->release = NULL; }

static void release_root(struct ArrowSchema *s) {
    for (int64_t i = 0; i < s->n_children; i++) {
        free(s->children[i]);
    }
    free(s->children);
    s->release = NULL;
}

static int source_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    struct source *s = stream->private_data;
    if (s->broken == 1) {
        return EIO;
    }
    struct ArrowSchema **children = calloc(s->columns + 1, sizeof *children);
    for (size_t i = 0; i < s->columns; i++) {
        children[i] = calloc(1, sizeof **children);
        *children[i] = (struct ArrowSchema){.format = s->formats[i], .name = "x", .release = release_nothing};
    }
    *out = (struct ArrowSchema){.format = s->broken == 2 ? "l" : "+s",
                                .name = "",
                                .n_children = (int64_t)s->columns,
                                .children = children,
                                .release = release_root};
    return 0;
}

static void release_column(struct ArrowArray *a) {
    free((void *)a->buffers[0]);
    free((void *)a->buffers[1]);
    free(a->buffers);
    free(a);
}

static void release_batch(struct ArrowArray *a) {
    for (int64_t i = 0; i < (int64_t)(intptr_t)a->private_data; i++) {
        release_column(a->children[i]);
    }
    free(a->children);
    free(a->buffers);
    a->release = NULL;
}

static size_t width(char format) { return strchr("cC", format) ? 1 : strchr("sS", format) ? 2 : strchr("iI", format) ? 4 : 8; }

static int64_t value(const struct source *s, char format) {
    if (format == 'l') {
        return s->span == INT64_MAX ? (int64_t)(draw(0), state) : (int64_t)draw((uint64_t)s->span) - s->span / 2;
    }
    return (int64_t)draw(draw(3) ? 3 : 300);
}

static struct ArrowArray *column(const struct source *s, const char *format, size_t rows) {
    struct ArrowArray *a = calloc(1, sizeof *a);
    size_t offset = draw(12), size = *format == 'b' ? (rows + offset + 7) / 8 : (rows + offset) * width(*format);
    uint8_t *data = malloc(size), *bits = NULL;
    for (size_t i = 0; i < size; i++) {
        data[i] = (uint8_t)(draw(256) >> 3);
    }
    for (size_t i = 0; *format != 'b' && i < rows + offset; i++) {
        int64_t v = value(s, *format);
        memcpy(data + i * width(*format), &v, width(*format)); /* little endian */
    }
    if (draw(2)) {
        bits = malloc((rows + offset + 7) / 8);
        for (size_t i = 0; i < (rows + offset + 7) / 8; i++) {
            bits[i] = (uint8_t)(draw(256) | draw(256));
        }
    }
    const void **buffers = calloc(2, sizeof *buffers);
    buffers[0] = bits;
    buffers[1] = data;
    *a = (struct ArrowArray){.length = (int64_t)rows, .null_count = -1, .offset = (int64_t)offset, .n_buffers = 2, .buffers = buffers};
    return a;
}

static int source_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    struct source *s = stream->private_data;
    *out = (struct ArrowArray){0};
    if (s->next++ >= s->batches) {
        return s->broken == 3 ? EIO : 0;
    }
    size_t rows = draw(2) ? draw(40) : draw(3000), offset = draw(5);
    struct ArrowArray **children = calloc(s->columns + 1, sizeof *children);
    for (size_t i = 0; i < s->columns; i++) {
        children[i] = column(s, s->formats[i], rows + offset);
    }
    *out = (struct ArrowArray){.length = (int64_t)rows,
                               .offset = (int64_t)offset,
                               .n_buffers = 1,
                               .buffers = calloc(1, sizeof(void *)),
                               .n_children = (int64_t)s->columns,
                               .children = children,
                               .release = release_batch,
                               .private_data = (void *)(intptr_t)s->columns};
    struct ArrowArray *some = s->columns ? children[draw(s->columns)] : out;
    switch (s->broken) {
    case 4: out->length = -1; break;
    case 5: out->n_children++; break;
    case 6: some->length--; break;
    case 7: some->offset = -1; break;
    case 8: some->n_buffers = 3; break;
    case 9: out->null_count = 1; break;
    case 10: out->length = INT64_MAX; break;
    case 11: some->dictionary = some; break;
    case 12: some->offset = INT64_MAX; break;
    case 13: out->offset = INT64_MAX; break;
    }
    return 0;
}

static void source_release(struct ArrowArrayStream *stream) {
    free(stream->private_data);
    stream->release = NULL;
}

static struct ArrowArrayStream table(unsigned keys, const char *key_formats, unsigned times, unsigned booleans, unsigned orders,
                                     int64_t span) {
    struct source *s = calloc(1, sizeof *s);
    s->batches = draw(BATCHES_MAX + 1);
    s->span = span;
    for (unsigned i = 0; i < keys + times + booleans + orders; i++) {
        s->formats[s->columns++][0] = i < keys                      ? key_formats[i]
                                      : i < keys + times            ? 'l'
                                      : i < keys + times + booleans ? 'b'
                                                                    : "lis"[draw(3)];
    }
    s->broken = draw(8) ? 0 : 1 + (int)draw(15);
    if (s->broken == 14) {
        strcpy(s->formats[draw(s->columns)], draw(2) ? "u" : "L");
    } else if (s->broken == 15) {
        s->columns -= 1;
    }
    return (struct ArrowArrayStream){source_schema, source_next, NULL, source_release, s};
}

/* ---------------------------------------------------------------- results */

static uint64_t digest(const struct ArrowArray *a, const char *format) {
    uint64_t sum = (uint64_t)a->null_count;
    for (int64_t i = 0; i < a->length; i++) {
        const uint8_t *bits = a->buffers[0], *data = a->buffers[1];
        if (bits && !(bits[i / 8] >> (i & 7) & 1)) {
            continue;
        }
        int64_t v = 0;
        if (*format == 'b') {
            v = data[i / 8] >> (i & 7) & 1;
        } else {
            memcpy(&v, data + (size_t)i * width(*format), width(*format));
        }
        sum = sum * 31 + (uint64_t)v;
    }
    return sum;
}

/* Reads the result as a consumer does, which moves a column out. */
static uint64_t take(int status, interval_table *t, const char *message, int64_t *rows) {
    uint64_t sum = (uint64_t)-status;
    if (status) {
        if (status != -EINVAL || !*message) {
            printf("unexpected: %d\n", status);
            exit(1);
        }
        interval_table_free(t);
        return sum;
    }
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    struct ArrowArray batch, end;
    if (interval_table_export(t, &stream) || stream.get_schema(&stream, &schema)) {
        exit(1);
    }
    if (draw(2)) { /* else the stream releases its batch */
        stream.get_next(&stream, &batch);
        stream.get_next(&stream, &end);
        if (end.release || batch.n_children != schema.n_children) {
            exit(1);
        }
        *rows += batch.length;
        for (int64_t i = 0; i < batch.n_children; i++) {
            sum = sum * 31 + digest(batch.children[i], schema.children[i]->format);
        }
        struct ArrowArray moved = {0};
        if (batch.n_children) {
            moved = *batch.children[0];
            batch.children[0]->release = NULL;
        }
        batch.release(&batch);
        if (moved.release) {
            moved.release(&moved);
        }
    }
    schema.release(&schema);
    stream.release(&stream);
    return sum;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        return 2;
    }
    state = strtoull(argv[1], NULL, 10) * 2654435761u + 1;
    int64_t rows = 0, refused = 0;
    uint64_t sum = 0;
    for (long round = strtol(argv[2], NULL, 10); round > 0; round--) {
        unsigned keys = (unsigned)draw(4), classes = (unsigned)draw(INTERVAL_CLASSES_MAX + 1), orders = (unsigned)draw(3);
        int64_t span = (int64_t[]){4, 1000, 1000000, INT64_MAX}[draw(4)];
        char formats[] = {"bcCsSiIl"[draw(8)], "bcCsSiIl"[draw(8)], "bcCsSiIl"[draw(8)], 0}, message[INTERVAL_MESSAGE] = "";
        size_t count = classes ? 1 : 1 + draw(3);
        unsigned wanted = draw(2) ? 0 : 1 + (unsigned)draw(3), way = (unsigned)draw(8);
        struct ArrowArrayStream streams[3], *pointers[3] = {&streams[0], &streams[1], &streams[2]};
        unsigned shape[3][3] = {{2, 0, 0}, {2, 0, 0}, {2, 0, 0}};
        if (way < 2) {
            shape[0][1] = classes;
        } else {
            count = way < 4 || way == 7 ? 1 : 2;
            shape[0][0] = way == 5 || way == 6 ? 1 : 2;
            shape[1][2] = way > 4 ? orders : 0;
        }
        for (size_t i = 0; i < count; i++) {
            streams[i] = table(keys, formats, shape[i][0], shape[i][1], shape[i][2], span);
        }
        interval_table t = {0};
        int status = way == 0   ? interval_segments(pointers, count, keys, classes, wanted, &t, message)
                     : way == 1 ? interval_lengths(pointers, count, keys, classes, wanted, &t, message)
                     : way == 2 ? interval_gaps(pointers[0], keys, &t, message)
                     : way == 3 ? interval_outermost(pointers[0], keys, &t, message)
                     : way == 4 ? interval_covered(pointers[0], pointers[1], keys, &t, message)
                     : way == 5 ? interval_innermost(pointers[0], pointers[1], keys, orders, &t, message)
                     : way == 6 ? interval_first(pointers[0], pointers[1], keys, orders, &t, message)
                                : interval_nested(pointers[0], keys, &t, message);
        refused += status != 0;
        sum = sum * 31 + take(status, &t, message, &rows);
        for (size_t i = 0; i < count; i++) {
            streams[i].release(&streams[i]);
        }
    }
    printf("%" PRId64 " rows, %" PRId64 " refused, %" PRIx64 "\n", rows, refused, sum);
    return 0;
}
