/* reader_arrow.c - exports the blocks of a table as an Arrow stream: one batch per block, decoded when it is requested. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader.h"
#include "reader_internal.h"

/* ---------------------------------------------------------------- tables */

enum column_kind {
    WIDE,     /* int64; INT64_MIN is null */
    NARROW,   /* int32; a value that does not fit is null */
    NAME,     /* id of a string; 0 is null */
    RANGE,    /* ticks -> start_ns and, of the next column, ... */
    LENGTH,   /* ... duration_ns */
    TIME,     /* ticks -> ns */
    NUMBER,   /* double */
    TEXT,     /* utf8 */
    SOURCE    /* of the block header, int32 */
};

struct column {
    const char *name;
    uint8_t id;
    uint8_t kind;
};

#define COLUMNS_MAX 17
struct table {
    const char *name;
    uint16_t type;
    uint8_t count;
    struct column columns[COLUMNS_MAX];
};

#define SPAN \
    {"name", 1, NAME}, {"start_ns", 2, RANGE}, { "duration_ns", 3, LENGTH }
#define PLACE \
    {"device", 4, NARROW}, {"context", 5, WIDE}, {"stream", 6, WIDE}, { "correlation", 7, WIDE }

static const struct table tables[] = {
    {"meta", PRT_META, 2, {{"key", 1, TEXT}, {"value", 2, TEXT}}},
    {"strings", PRT_STRINGS, 2, {{"id", 1, WIDE}, {"text", 2, TEXT}}},
    {"clock", PRT_CLOCK, 4, {{"ticks", 1, WIDE}, {"monotonic_ns", 2, WIDE}, {"realtime_ns", 3, WIDE}, {"uncertainty_ns", 4, WIDE}}},
    {"process",
     PRT_PROCESS,
     8,
     {{"pid", 1, WIDE},
      {"parent_pid", 2, WIDE},
      {"start_ns", 3, WIDE},
      {"command", 4, TEXT},
      {"host", 5, TEXT},
      {"rank", 6, WIDE},
      {"local_rank", 7, WIDE},
      {"world_size", 8, WIDE}}},
    {"thread", PRT_THREAD, 3, {{"source", 1, WIDE}, {"tid", 2, WIDE}, {"name", 3, TEXT}}},
    {"annotation", PRT_ANNOTATION, 7, {{"source", 0, SOURCE}, SPAN, {"value", 4, WIDE}, {"depth", 5, NARROW}, {"flags", 6, NARROW}}},
    {"counter", PRT_COUNTER, 4, {{"source", 0, SOURCE}, {"name", 1, NAME}, {"time_ns", 2, TIME}, {"value", 3, NUMBER}}},
    {"api", PRT_API, 6, {SPAN, {"correlation", 4, WIDE}, {"kind", 5, NARROW}, {"tid", 6, WIDE}}},
    {"kernel",
     PRT_KERNEL,
     16,
     {SPAN,
      PLACE,
      {"grid_x", 8, NARROW},
      {"grid_y", 9, NARROW},
      {"grid_z", 10, NARROW},
      {"block_x", 11, NARROW},
      {"block_y", 12, NARROW},
      {"block_z", 13, NARROW},
      {"registers", 14, NARROW},
      {"shared_memory", 15, NARROW},
      {"graph_node", 16, WIDE}}},
    {"memcpy", PRT_MEMCPY, 10, {SPAN, PLACE, {"copy_kind", 8, NARROW}, {"bytes", 9, WIDE}, {"pageable", 10, NARROW}}},
    {"memset", PRT_MEMSET, 8, {SPAN, PLACE, {"bytes", 9, WIDE}}},
    {"sync", PRT_SYNC, 8, {SPAN, PLACE, {"type", 8, NARROW}}},
    {"metric", PRT_METRIC, 4, {{"metric", 1, NAME}, {"unit", 2, NARROW}, {"time_ns", 3, TIME}, {"value", 4, NUMBER}}},
    {"loss", PRT_LOSS, 5, {{"source", 1, WIDE}, {"reason", 2, NARROW}, {"count", 3, WIDE}, {"first_ns", 4, TIME}, {"last_ns", 5, TIME}}},
    {"end", PRT_END, 3, {{"blocks", 1, WIDE}, {"written", 2, WIDE}, {"lost", 3, WIDE}}},
    {"external", PRT_EXTERNAL, 3, {{"correlation", 1, WIDE}, {"kind", 2, NARROW}, {"id", 3, WIDE}}},
};
#define TABLES (sizeof tables / sizeof *tables)

size_t prt_tables(void) { return TABLES; }
const char *prt_table_name(size_t table) { return table < TABLES ? tables[table].name : NULL; }

/* ---------------------------------------------------------------- schema */

static const char *format_of(uint8_t kind) {
    switch (kind) {
    case NARROW:
    case NAME:
    case SOURCE: return "i";
    case NUMBER: return "g";
    case TEXT: return "u";
    default: return "l";
    }
}

/* All memory of a schema, in one piece that its root releases. Children that are moved out own nothing: their release does nothing on
 * static text, and the piece lives until the last of them is released. */
struct schema_piece {
    atomic_size_t holders;
    struct ArrowSchema children[COLUMNS_MAX], dictionaries[COLUMNS_MAX], *pointers[COLUMNS_MAX];
};

static void drop_piece(struct schema_piece *piece) {
    if (atomic_fetch_sub(&piece->holders, 1) == 1) {
        free(piece);
    }
}

static void release_schema(struct ArrowSchema *s) {
    struct schema_piece *piece = s->private_data;
    for (int64_t i = 0; i < s->n_children; i++) {
        if (s->children[i]->release) {
            s->children[i]->release(s->children[i]);
        }
    }
    if (s->dictionary && s->dictionary->release) {
        s->dictionary->release(s->dictionary);
    }
    s->release = NULL;
    drop_piece(piece);
}

static struct ArrowSchema schema_of(struct schema_piece *piece, const char *format, const char *name) {
    atomic_fetch_add(&piece->holders, 1);
    return (struct ArrowSchema){
        .format = format, .name = name, .flags = ARROW_FLAG_NULLABLE, .release = release_schema, .private_data = piece};
}

static int table_schema(const struct table *t, int name_ids, struct ArrowSchema *out) {
    struct schema_piece *piece = calloc(1, sizeof *piece);
    if (!piece) {
        return ENOMEM;
    }
    for (size_t i = 0; i < t->count; i++) {
        piece->children[i] = schema_of(piece, format_of(t->columns[i].kind), t->columns[i].name);
        if (t->columns[i].kind == NAME && !name_ids) {
            piece->dictionaries[i] = schema_of(piece, "u", "");
            piece->children[i].dictionary = &piece->dictionaries[i];
        }
        piece->pointers[i] = &piece->children[i];
    }
    *out = schema_of(piece, "+s", "");
    out->flags = 0;
    out->n_children = t->count;
    out->children = piece->pointers;
    return 0;
}

/* ---------------------------------------------------------------- arrays */

/* A column of a batch, or the dictionary of names. */
struct array_piece {
    const void *buffers[3];
    void *owned[3];
    struct constant *constant; /* whose values the array shows */
    struct ArrowArray dictionary;
    prt_reader *reader; /* whose names a dictionary shows */
};

/* Rows that all have one value: created once, exported by each batch whose block has one run. */
struct constant {
    atomic_size_t holders;
    int64_t value;
    size_t rows;
    void *values; /* int32 in narrow columns, else int64 */
};

static void drop_constant(struct constant *c) {
    if (!c || atomic_fetch_sub(&c->holders, 1) != 1) {
        return;
    }
    free(c->values);
    free(c);
}

static void release_array(struct ArrowArray *a) {
    struct array_piece *piece = a->private_data;
    if (a->dictionary && a->dictionary->release) {
        a->dictionary->release(a->dictionary);
    }
    for (size_t i = 0; i < 3; i++) {
        free(piece->owned[i]);
    }
    drop_constant(piece->constant);
    prt_reader_release(piece->reader);
    free(piece);
    a->release = NULL;
}

static struct array_piece *begin_array(struct ArrowArray *a, int64_t length, int64_t buffers) {
    struct array_piece *piece = calloc(1, sizeof *piece);
    *a = (struct ArrowArray){0};
    if (!piece) {
        return NULL;
    }
    *a = (struct ArrowArray){
        .length = length, .n_buffers = buffers, .buffers = piece->buffers, .release = release_array, .private_data = piece};
    return piece;
}

/* The memory of buffer `index`, aligned to a cache line, and PRT_SLACK elements more. */
static void *buffer(struct array_piece *piece, size_t index, size_t size) {
    void *memory = aligned_alloc(64, (size + 63 + PRT_SLACK * 8) / 64 * 64);
    piece->owned[index] = memory;
    piece->buffers[index] = memory;
    return memory;
}

static int add_dictionary(struct ArrowArray *a, prt_reader *r) {
    struct array_piece *piece = a->private_data, *names = begin_array(&piece->dictionary, (int64_t)r->name_count, 3);
    if (!names) {
        return -ENOMEM;
    }
    prt_reader_hold(r);
    names->reader = r;
    names->buffers[1] = r->name_offsets;
    names->buffers[2] = r->name_bytes;
    a->dictionary = &piece->dictionary;
    return 0;
}

/* The validity of rows, if `missing` says that some are null. */
static int set_validity(struct ArrowArray *a, const int64_t *values, int64_t low, int64_t high) {
    size_t count = (size_t)a->length, missing = 0;
    uint8_t *bits = buffer(a->private_data, 0, (count + 7) / 8);
    if (!bits) {
        return -ENOMEM;
    }
    memset(bits, 0, (count + 7) / 8);
    for (size_t i = 0; i < count; i++) {
        int there = values[i] >= low && values[i] <= high;
        bits[i / 8] = (uint8_t)(bits[i / 8] | there << (i & 7));
        missing += !there;
    }
    a->null_count = (int64_t)missing;
    return 0;
}

/* A column that the block does not have: all its buffers are the reader's zeros. */
static void all_null(struct ArrowArray *a, prt_reader *r) {
    struct array_piece *piece = a->private_data;
    for (size_t i = 0; i < 3; i++) {
        free(piece->owned[i]);
        piece->owned[i] = NULL;
        piece->buffers[i] = r->zeros;
    }
    prt_reader_hold(r);
    piece->reader = r;
    a->null_count = a->length;
}

/* ---------------------------------------------------------------- a batch */

struct stream {
    prt_reader *reader;
    const struct table *table;
    size_t next; /* entry */
    struct prt_block_source source;
    struct prt_workspace workspace;
    struct constant *constants[COLUMNS_MAX];
    uint64_t out_of_range, unresolved;
    char error[128];
};

static struct constant *make_constant(int64_t value, size_t rows, int narrow) {
    struct constant *made = malloc(sizeof *made);
    void *values = malloc(rows * (narrow ? 4 : 8));
    if (!made || !values) {
        free(made);
        free(values);
        return NULL;
    }
    for (size_t i = 0; i < rows; i++) {
        if (narrow) {
            ((int32_t *)values)[i] = (int32_t)value;
        } else {
            ((int64_t *)values)[i] = value;
        }
    }
    *made = (struct constant){.value = value, .rows = rows, .values = values};
    atomic_init(&made->holders, 1);
    return made;
}

/* A column of one value that is not null: 0; 1: it is not one; -ENOMEM. */
static int constant_column(struct stream *s, const struct column *c, struct ArrowArray *a) {
    struct array_piece *piece = a->private_data;
    int narrow = c->kind == NARROW;
    int64_t value;
    if (!prt_constant(&s->workspace, c->id, &value) || value == PRT_MISSING) {
        return 1;
    }
    if (narrow && value != (int32_t)value) {
        return 1;
    }
    struct constant **kept = &s->constants[c - s->table->columns];
    if (!*kept || (*kept)->value != value || (*kept)->rows < (size_t)a->length) {
        drop_constant(*kept);
        if (!(*kept = make_constant(value, (size_t)a->length, narrow))) {
            return -ENOMEM;
        }
    }
    atomic_fetch_add(&(*kept)->holders, 1);
    piece->constant = *kept;
    piece->buffers[1] = (*kept)->values;
    return 0;
}

static int wide_column(struct stream *s, const struct column *c, struct ArrowArray *a) {
    size_t count = (size_t)a->length;
    int status = constant_column(s, c, a);
    if (status != 1) {
        return status;
    }
    int64_t *values = buffer(a->private_data, 1, count * 8);
    if (!values) {
        return -ENOMEM;
    }
    status = 0;
    const int64_t *kept = NULL;
    if (s->workspace.known[c->id]) {
        status = prt_kept_integers(&s->workspace, c->id, &kept);
        if (!status) {
            memcpy(values, kept, count * 8);
        }
    } else {
        status = prt_integers(&s->workspace, c->id, values);
    }
    if (status || (!kept && s->workspace.complete)) {
        return status;
    }
    size_t missing = 0;
    for (size_t i = 0; i < count; i++) {
        missing += values[i] == PRT_MISSING;
    }
    return missing ? set_validity(a, values, PRT_MISSING + 1, INT64_MAX) : 0;
}

static int narrow_column(struct stream *s, const struct column *c, struct ArrowArray *a) {
    size_t count = (size_t)a->length;
    int status = constant_column(s, c, a);
    if (status != 1) {
        return status;
    }
    int32_t *values = buffer(a->private_data, 1, count * 4);
    if (!values) {
        return -ENOMEM;
    }
    status = prt_narrow_integers(&s->workspace, c->id, values);
    if (status != PRT_TOO_WIDE) {
        return status;
    }
    const int64_t *wide;
    if ((status = prt_kept_integers(&s->workspace, c->id, &wide))) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        values[i] = (int32_t)wide[i];
        s->out_of_range += (wide[i] < INT32_MIN || wide[i] > INT32_MAX) && wide[i] != PRT_MISSING;
    }
    return set_validity(a, wide, INT32_MIN, INT32_MAX);
}

static int name_column(struct stream *s, const struct column *c, struct ArrowArray *a) {
    size_t count = (size_t)a->length;
    const int64_t *ids;
    int status = prt_kept_integers(&s->workspace, c->id, &ids);
    if (status) {
        return status;
    }
    int32_t *values = buffer(a->private_data, 1, count * 4);
    if (!values) {
        return -ENOMEM;
    }
    const prt_reader *r = s->reader;
    uint64_t outside = 0; /* borrows into the high bit if an id is not in 1 .. names_whole */
    for (size_t i = 0; i < count; i++) {
        values[i] = (int32_t)ids[i];
        outside |= ((uint64_t)ids[i] - 1) | (r->names_whole - (uint64_t)ids[i]);
    }
    if (outside >> 63 == 0) {
        return 0;
    }
    uint64_t last = r->name_count - 1, unknown = 0, none = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t id = (uint64_t)ids[i] < last ? (uint64_t)ids[i] : last;
        values[i] = (int32_t)id;
        none += !id;
        unknown += !r->name_known[id];
    }
    s->unresolved += unknown - none;
    if (none) {
        status = set_validity(a, ids, 1, INT64_MAX);
        if (status) {
            return status;
        }
        uint8_t *bits = ((struct array_piece *)a->private_data)->owned[0];
        for (size_t i = 0; i < count; i++) { /* negative ids are names that are not known */
            if (ids[i] < 0) {
                bits[i / 8] = (uint8_t)(bits[i / 8] | 1 << (i & 7));
                a->null_count--;
            }
        }
    }
    return 0;
}

static int time_column(struct stream *s, const struct column *c, struct ArrowArray *a) {
    const int64_t *ticks;
    int status = prt_kept_integers(&s->workspace, c->id, &ticks);
    if (status) {
        return status;
    }
    int64_t *values = buffer(a->private_data, 1, (size_t)a->length * 8);
    if (!values) {
        return -ENOMEM;
    }
    prt_clock_times(&s->reader->clock, ticks, (size_t)a->length, values);
    return 0;
}

static int length_column(struct stream *s, const struct column *c, struct ArrowArray *a) {
    size_t count = (size_t)a->length;
    const int64_t *starts, *durations;
    int status = prt_kept_integers(&s->workspace, c->id, &durations);
    if (!status) {
        status = prt_kept_integers(&s->workspace, 2, &starts);
    }
    if (status) {
        return status;
    }
    int64_t *values = buffer(a->private_data, 1, count * 8);
    if (!values) {
        return -ENOMEM;
    }
    prt_clock_durations(&s->reader->clock, starts, durations, count, values);
    return 0;
}

static int source_column(const struct prt_entry *e, struct ArrowArray *a) {
    int32_t *values = buffer(a->private_data, 1, (size_t)a->length * 4);
    if (!values) {
        return -ENOMEM;
    }
    for (int64_t i = 0; i < a->length; i++) {
        values[i] = (int32_t)(e->source & 0x7FFFFFFFu);
    }
    return 0;
}

static int number_column(struct stream *s, const struct column *c, struct ArrowArray *a) {
    double *values = buffer(a->private_data, 1, (size_t)a->length * 8);
    return values ? prt_doubles(&s->workspace, c->id, values) : -ENOMEM;
}

static int text_column(struct stream *s, const struct column *c, struct ArrowArray *a) {
    struct array_piece *piece = a->private_data;
    int32_t *offsets = buffer(piece, 1, ((size_t)a->length + 1) * 4);
    uint8_t *bytes = buffer(piece, 2, s->workspace.payload->columns[c->id].length + 1u);
    return offsets && bytes ? prt_texts(&s->workspace, c->id, offsets, bytes) : -ENOMEM;
}

static int decode_column(struct stream *s, const struct prt_entry *e, const struct column *c, struct ArrowArray *a) {
    struct array_piece *piece = begin_array(a, e->count, c->kind == TEXT ? 3 : 2);
    if (!piece) {
        return -ENOMEM;
    }
    int status;
    switch (c->kind) {
    case WIDE: status = wide_column(s, c, a); break;
    case NARROW: status = narrow_column(s, c, a); break;
    case NAME: status = name_column(s, c, a); break;
    case RANGE:
    case TIME: status = time_column(s, c, a); break;
    case LENGTH: status = length_column(s, c, a); break;
    case NUMBER: status = number_column(s, c, a); break;
    case TEXT: status = text_column(s, c, a); break;
    default: status = source_column(e, a);
    }
    if (status == 1) {
        all_null(a, s->reader);
        status = 0;
    }
    if (!status && c->kind == NAME && !s->reader->options.name_ids) {
        status = add_dictionary(a, s->reader);
    }
    return status;
}

struct batch_piece {
    struct ArrowArray children[COLUMNS_MAX], *pointers[COLUMNS_MAX];
    const void *buffers[1];
};

static void release_batch(struct ArrowArray *a) {
    for (int64_t i = 0; i < a->n_children; i++) {
        if (a->children[i]->release) {
            a->children[i]->release(a->children[i]);
        }
    }
    free(a->private_data);
    a->release = NULL;
}

static int decode_block(struct stream *s, const struct prt_entry *e, struct ArrowArray *out) {
    struct batch_piece *piece = calloc(1, sizeof *piece);
    if (!piece) {
        return -ENOMEM;
    }
    *out = (struct ArrowArray){.length = e->count,
                               .n_buffers = 1,
                               .buffers = piece->buffers,
                               .n_children = s->table->count,
                               .children = piece->pointers,
                               .release = release_batch,
                               .private_data = piece};
    for (size_t i = 0; i < COLUMNS_MAX; i++) {
        piece->pointers[i] = &piece->children[i];
    }
    const uint8_t *data;
    struct prt_payload payload = {.type = e->type, .count = e->count, .first_time = e->first_time};
    int status = prt_block_payload(&s->source, e, &data);
    if (!status) {
        status = prt_payload_find(&payload, data, e->raw);
    }
    if (!status) {
        prt_workspace_begin(&s->workspace, &payload);
    }
    for (size_t i = 0; !status && i < s->table->count; i++) {
        status = decode_column(s, e, &s->table->columns[i], &piece->children[i]);
    }
    if (status) {
        release_batch(out);
        *out = (struct ArrowArray){0};
    }
    return status;
}

static void report(struct stream *s, const struct prt_entry *e, int status) {
    if (status) {
        prt_reader_report_block(s->reader, status == -ENOTSUP ? PRT_NO_ZSTD : status == -EIO ? PRT_UNREADABLE : PRT_UNDECODABLE, e);
    }
    const uint64_t counts[] = {s->out_of_range, s->unresolved, s->workspace.unknown_encodings};
    static const enum prt_problem_code codes[] = {PRT_OUT_OF_RANGE, PRT_UNRESOLVED_NAME, PRT_UNKNOWN_ENCODING};
    for (size_t i = 0; i < 3; i++) {
        if (!counts[i]) {
            continue;
        }
        prt_problem p = {.code = codes[i], .offset = e->offset, .rows = counts[i], .first_ns = PRT_MISSING, .last_ns = PRT_MISSING};
        prt_reader_report(s->reader, p);
    }
}

/* ---------------------------------------------------------------- the stream */

static int stream_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    struct stream *s = stream->private_data;
    return table_schema(s->table, s->reader->options.name_ids, out);
}

static int stream_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    struct stream *s = stream->private_data;
    prt_reader *r = s->reader;
    *out = (struct ArrowArray){0};
    while (s->next < r->entry_count) {
        const struct prt_entry *e = &r->entries[s->next++];
        if (e->type != s->table->type || !e->count) {
            continue;
        }
        int status = decode_block(s, e, out);
        if (status == -ENOMEM) {
            snprintf(s->error, sizeof s->error, "not enough memory for a block of %lu rows", (unsigned long)e->count);
            return ENOMEM;
        }
        if ((status || s->out_of_range || s->unresolved || s->workspace.unknown_encodings) && prt_reader_first_telling(r, s->next - 1)) {
            report(s, e, status);
        }
        s->out_of_range = s->unresolved = s->workspace.unknown_encodings = 0;
        if (!status) {
            return 0;
        }
    }
    return 0;
}

static const char *stream_error(struct ArrowArrayStream *stream) {
    struct stream *s = stream->private_data;
    return s->error[0] ? s->error : NULL;
}

static void stream_release(struct ArrowArrayStream *stream) {
    struct stream *s = stream->private_data;
    prt_block_source_free(&s->source);
    prt_workspace_free(&s->workspace);
    for (size_t i = 0; i < COLUMNS_MAX; i++) {
        drop_constant(s->constants[i]);
    }
    prt_reader_release(s->reader);
    free(s);
    stream->release = NULL;
}

int prt_reader_stream(prt_reader *reader, size_t table, struct ArrowArrayStream *out) {
    if (table >= TABLES) {
        return -EINVAL;
    }
    struct stream *s = calloc(1, sizeof *s);
    if (!s) {
        return -ENOMEM;
    }
    prt_reader_hold(reader);
    s->reader = reader;
    s->table = &tables[table];
    s->source.input = &reader->input;
    *out = (struct ArrowArrayStream){stream_schema, stream_next, stream_error, stream_release, s};
    return 0;
}
