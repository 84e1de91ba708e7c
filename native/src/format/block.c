/* block.c - encodes columns of values as the bytes of a block (docs/trace-format.md).
 *
 * Each integer column is encoded as differences to several values that a reader already knows (none, the previous row, the last row of the
 * same name, the end of the last row of the same stream), plain and run-length coded. The shortest result is written. */
#include "block.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "zstd_loader.h"

static const uint8_t file_magic[8] = {0x89, 'P', 'R', 'T', '\r', '\n', 0x1A, '\n'};

/* ---------------------------------------------------------------- bytes */

void prt_bytes_free(prt_bytes *bytes) {
    free(bytes->data);
    *bytes = (prt_bytes){0};
}

static int reserve(prt_bytes *b, size_t more) {
    if (b->failed) {
        return -ENOMEM;
    }
    if (more <= b->capacity - b->length) {
        return 0;
    }
    size_t capacity = b->capacity ? b->capacity : 4096;
    while (capacity - b->length < more) {
        if (capacity > SIZE_MAX / 2) {
            b->failed = 1;
            return -ENOMEM;
        }
        capacity *= 2;
    }
    uint8_t *data = realloc(b->data, capacity);
    if (!data) {
        b->failed = 1;
        return -ENOMEM;
    }
    b->data = data;
    b->capacity = capacity;
    return 0;
}

static void put16(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}
static void put32(uint8_t *at, uint32_t value) {
    put16(at, value & 0xFFFFu);
    put16(at + 2, value >> 16);
}
static void put64(uint8_t *at, uint64_t value) {
    put32(at, (uint32_t)value);
    put32(at + 4, (uint32_t)(value >> 32));
}

static uint64_t zigzag(uint64_t value) { return (value << 1) ^ (0u - (value >> 63)); }

static size_t varint_length(uint64_t value) {
    unsigned bits = 64u - (unsigned)__builtin_clzll(value | 1u);
    return (bits + 6u) * 37u >> 8; /* (bits + 6) / 7 */
}

static uint8_t *put_varint(uint8_t *at, uint64_t value) {
    for (; value >= 128; value >>= 7) {
        *at++ = (uint8_t)(value | 128u);
    }
    *at++ = (uint8_t)value;
    return at;
}

/* ---------------------------------------------------------------- encodings of a column */

/* The writer's view of a block: which columns others refer to, and room for two versions of a column. */
struct work {
    const prt_block *block;
    const int64_t *names, *durations, *devices, *streams; /* NULL: no such column, or not to be referred to */
    int64_t *last;                                        /* by name */
    uint64_t *best, *trial;                               /* residuals of the rows */
    size_t best_size;
    enum prt_encoding encoding;
};

static size_t plain_size(const uint64_t *residuals, size_t count) {
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size += varint_length(residuals[i]);
    }
    return size;
}

static size_t run_size(const uint64_t *residuals, size_t count, size_t give_up) {
    size_t size = 0;
    for (size_t i = 0; i < count && size < give_up;) {
        size_t run = 1;
        while (i + run < count && residuals[i + run] == residuals[i]) {
            run++;
        }
        size += varint_length(run) + varint_length(residuals[i]);
        i += run;
    }
    return size;
}

/* Keeps the residuals in `trial` if they are shorter than the best so far. */
static void consider(struct work *w, size_t size, enum prt_encoding encoding) {
    if (size >= w->best_size) {
        return;
    }
    w->best_size = size;
    w->encoding = encoding;
    uint64_t *better = w->trial;
    w->trial = w->best;
    w->best = better;
}

/* Tries the residuals in `trial` plain and, unless `runs` is PRT_FIXED64, run-length coded. */
static void try_residuals(struct work *w, enum prt_encoding plain, enum prt_encoding runs) {
    size_t size = plain_size(w->trial, w->block->count);
    enum prt_encoding encoding = plain;
    if (runs != PRT_FIXED64) {
        size_t coded = run_size(w->trial, w->block->count, size);
        if (coded < size) {
            size = coded;
            encoding = runs;
        }
    }
    consider(w, size, encoding);
}

static void try_values(struct work *w, const int64_t *values) {
    size_t count = w->block->count;
    int negative = 0;
    for (size_t i = 0; i < count; i++) {
        negative |= values[i] < 0;
    }
    for (size_t i = 0; i < count; i++) {
        w->trial[i] = zigzag((uint64_t)values[i]);
    }
    try_residuals(w, PRT_ZIGZAG, PRT_RLE);
    if (negative) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        w->trial[i] = (uint64_t)values[i];
    }
    try_residuals(w, PRT_VARINT, PRT_FIXED64);
}

static void try_differences(struct work *w, const int64_t *values, int64_t base) {
    uint64_t before = (uint64_t)base;
    for (size_t i = 0; i < w->block->count; i++) {
        w->trial[i] = zigzag((uint64_t)values[i] - before);
        before = (uint64_t)values[i];
    }
    try_residuals(w, PRT_DELTA, PRT_RLE_DELTA);
}

static void try_same_name(struct work *w, const int64_t *values) {
    if (!w->names || values == w->names) {
        return;
    }
    for (size_t i = 0; i < w->block->count; i++) {
        w->last[w->names[i]] = 0;
    }
    for (size_t i = 0; i < w->block->count; i++) {
        int64_t *last = &w->last[w->names[i]];
        w->trial[i] = zigzag((uint64_t)values[i] - (uint64_t)*last);
        *last = values[i];
    }
    try_residuals(w, PRT_DELTA_SAME, PRT_RLE_SAME);
}

struct stream_end {
    uint64_t device, stream, end;
};

static void try_gaps(struct work *w, const int64_t *starts) {
    if (!w->durations) {
        return;
    }
    struct stream_end ends[PRT_STREAMS_MAX];
    size_t known = 0, at = 0;
    for (size_t i = 0; i < w->block->count; i++) {
        uint64_t device = w->devices ? (uint64_t)w->devices[i] : 0, stream = w->streams ? (uint64_t)w->streams[i] : 0;
        if (at >= known || ends[at].device != device || ends[at].stream != stream) {
            for (at = 0; at < known && (ends[at].device != device || ends[at].stream != stream);) {
                at++;
            }
            if (at == known) {
                if (known == PRT_STREAMS_MAX) {
                    return;
                }
                ends[known++] = (struct stream_end){device, stream, (uint64_t)w->block->first_time};
            }
        }
        w->trial[i] = zigzag((uint64_t)starts[i] - ends[at].end);
        ends[at].end = (uint64_t)starts[i] + (uint64_t)w->durations[i];
    }
    try_residuals(w, PRT_GAP, PRT_FIXED64);
}

/* ---------------------------------------------------------------- columns */

static uint8_t *begin_column(prt_bytes *out, const prt_column *column, enum prt_encoding encoding, size_t length) {
    if (length > PRT_RAW_MAX || reserve(out, length + 8)) {
        return NULL;
    }
    uint8_t *at = out->data + out->length;
    at[0] = column->id;
    at[1] = (uint8_t)encoding;
    put16(at + 2, 0);
    put32(at + 4, (uint32_t)length);
    out->length += length + 8;
    return at + 8;
}

static int put_fixed(prt_bytes *out, const prt_column *column, size_t count) {
    uint8_t *at = begin_column(out, column, PRT_FIXED64, count * 8);
    if (!at) {
        return out->failed ? -ENOMEM : -EINVAL;
    }
    const uint8_t *values = column->values;
    for (size_t i = 0; i < count; i++) {
        uint64_t value;
        memcpy(&value, values + i * 8, 8);
        put64(at + i * 8, value);
    }
    return 0;
}

static int put_integers(struct work *w, prt_bytes *out, const prt_column *column) {
    const int64_t *values = column->values;
    size_t count = w->block->count;
    w->best_size = SIZE_MAX;
    size_t equal = 1;
    while (equal < count && values[equal] == values[0]) {
        equal++;
    }
    if (equal == count && count >= 4 && column->kind != PRT_COLUMN_TIME) { /* one run is the shortest */
        uint64_t value = zigzag((uint64_t)values[0]);
        uint8_t *run = begin_column(out, column, PRT_RLE, varint_length(count) + varint_length(value));
        if (!run) {
            return out->failed ? -ENOMEM : -EINVAL;
        }
        put_varint(put_varint(run, count), value);
        return 0;
    }
    if (column->kind == PRT_COLUMN_TIME) {
        try_differences(w, values, w->block->first_time);
        if (column->id == 2) {
            try_gaps(w, values);
        }
    } else {
        try_values(w, values);
        if (equal < count) {
            if (column->kind == PRT_COLUMN_INT) {
                try_differences(w, values, 0);
            }
            try_same_name(w, values);
        }
    }
    if (w->best_size >= count * 8) {
        return put_fixed(out, column, count);
    }
    uint8_t *at = begin_column(out, column, w->encoding, w->best_size);
    if (!at) {
        return out->failed ? -ENOMEM : -EINVAL;
    }
    if (w->encoding != PRT_RLE && w->encoding != PRT_RLE_DELTA && w->encoding != PRT_RLE_SAME) {
        for (size_t i = 0; i < count; i++) {
            at = put_varint(at, w->best[i]);
        }
        return 0;
    }
    for (size_t i = 0; i < count;) {
        size_t run = 1;
        while (i + run < count && w->best[i + run] == w->best[i]) {
            run++;
        }
        at = put_varint(put_varint(at, run), w->best[i]);
        i += run;
    }
    return 0;
}

static const double powers[10] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};

/* Whether value is exactly number / 10^exponent, with the bits that division gives (so no NaN and no -0). */
static int scaled(double value, unsigned exponent, int64_t *number) {
    double product = value * powers[exponent];
    if (!(fabs(product) < 9007199254740992.0)) {
        return 0;
    }
    *number = (int64_t)(product < 0 ? product - 0.5 : product + 0.5);
    double back = (double)*number / powers[exponent];
    return memcmp(&back, &value, sizeof back) == 0;
}

static int put_doubles(struct work *w, prt_bytes *out, const prt_column *column) {
    const double *values = column->values;
    size_t count = w->block->count;
    unsigned exponent = 0;
    int64_t number = 0;
    for (size_t i = 0; i < count && exponent < 10;) {
        if (scaled(values[i], exponent, &number)) {
            i++;
        } else {
            exponent++;
            i = 0;
        }
    }
    if (exponent == 10) {
        return put_fixed(out, column, count);
    }
    uint64_t before = 0;
    for (size_t i = 0; i < count; i++) {
        if (!scaled(values[i], exponent, &number)) {
            return -EINVAL; /* cannot be: it was so above */
        }
        w->trial[i] = zigzag((uint64_t)number - before);
        before = (uint64_t)number;
    }
    size_t size = plain_size(w->trial, count) + 1;
    if (size >= count * 8) {
        return put_fixed(out, column, count);
    }
    uint8_t *at = begin_column(out, column, PRT_SCALED, size);
    if (!at) {
        return out->failed ? -ENOMEM : -EINVAL;
    }
    *at++ = (uint8_t)exponent;
    for (size_t i = 0; i < count; i++) {
        at = put_varint(at, w->trial[i]);
    }
    return 0;
}

static int put_texts(prt_bytes *out, const prt_column *column, size_t count) {
    const prt_text *texts = column->values;
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        if (texts[i].length > PRT_RAW_MAX || size > PRT_RAW_MAX) {
            return -EINVAL;
        }
        size += varint_length(texts[i].length) + texts[i].length;
    }
    uint8_t *at = begin_column(out, column, PRT_BYTES, size);
    if (!at) {
        return out->failed ? -ENOMEM : -EINVAL;
    }
    for (size_t i = 0; i < count; i++) {
        at = put_varint(at, texts[i].length);
        if (texts[i].length) {
            memcpy(at, texts[i].at, texts[i].length);
        }
        at += texts[i].length;
    }
    return 0;
}

static int put_column(struct work *w, prt_bytes *out, const prt_column *column) {
    switch (column->kind) {
    case PRT_COLUMN_TEXT: return put_texts(out, column, w->block->count);
    case PRT_COLUMN_DOUBLE: return put_doubles(w, out, column);
    case PRT_COLUMN_INT:
    case PRT_COLUMN_TIME:
    case PRT_COLUMN_DURATION: return put_integers(w, out, column);
    default: return -EINVAL;
    }
}

/* ---------------------------------------------------------------- blocks */

static const int64_t *integers(const prt_block *block, uint8_t id) {
    for (size_t i = 0; i < block->column_count; i++) {
        const prt_column *c = &block->columns[i];
        if (c->id == id) {
            return c->kind == PRT_COLUMN_TEXT || c->kind == PRT_COLUMN_DOUBLE ? NULL : c->values;
        }
    }
    return NULL;
}

static int begin_work(struct work *w, const prt_block *block) {
    *w = (struct work){.block = block};
    w->best = malloc((size_t)block->count * sizeof *w->best + 1);
    w->trial = malloc((size_t)block->count * sizeof *w->trial + 1);
    if (!w->best || !w->trial) {
        return -ENOMEM;
    }
    if (block->type >= PRT_ANNOTATION && block->type <= PRT_SYNC && block->type != PRT_COUNTER) {
        w->durations = integers(block, 3);
    }
    if (block->type >= PRT_KERNEL && block->type <= PRT_SYNC) {
        w->devices = integers(block, 4);
    }
    if (block->type >= PRT_API && block->type <= PRT_SYNC) {
        w->streams = integers(block, 6);
    }
    const int64_t *names = integers(block, 1);
    if (!names) {
        return 0;
    }
    int64_t largest = 0;
    for (size_t i = 0; i < block->count; i++) {
        if (names[i] < 0 || names[i] >= PRT_SAME_MAX) {
            return 0;
        }
        if (names[i] > largest) {
            largest = names[i];
        }
    }
    w->last = malloc(((size_t)largest + 1) * sizeof *w->last);
    if (!w->last) {
        return -ENOMEM;
    }
    w->names = names;
    return 0;
}

/* Replaces the payload behind `start` by the compressed one, if that is shorter. */
static int compress_payload(prt_bytes *out, size_t start, int level, int *compressed) {
    const struct prt_zstd *zstd = prt_zstd();
    size_t raw = out->length - start;
    if (!zstd || raw < 64) {
        return 0;
    }
    size_t bound = zstd->compress_bound(raw);
    uint8_t *packed = malloc(bound);
    if (!packed) {
        return -ENOMEM;
    }
    size_t size = zstd->compress(packed, bound, out->data + start, raw, level);
    if (!zstd->is_error(size) && size < raw) {
        memcpy(out->data + start, packed, size);
        out->length = start + size;
        *compressed = 1;
    }
    free(packed);
    return 0;
}

static int write_block(prt_bytes *out, const prt_block *block, struct work *w, int zstd_level) {
    size_t begin = out->length, start = begin + PRT_BLOCK_HEADER;
    int failed = reserve(out, PRT_BLOCK_HEADER);
    if (failed) {
        return failed;
    }
    out->length = start;
    for (size_t i = 0; i < block->column_count; i++) {
        if ((failed = put_column(w, out, &block->columns[i]))) {
            return failed;
        }
        if (out->length - start > PRT_RAW_MAX) {
            return -EINVAL;
        }
    }
    size_t raw = out->length - start;
    int compressed = 0;
    if (zstd_level && (failed = compress_payload(out, start, zstd_level, &compressed))) {
        return failed;
    }
    size_t stored = out->length - start;
    if (stored > PRT_STORED_MAX) {
        return -EINVAL;
    }
    uint8_t *header = out->data + begin;
    memcpy(header, "PRBK", 4);
    put16(header + 4, block->type);
    header[6] = compressed ? 2 : 0;
    header[7] = 0;
    put32(header + 8, (uint32_t)stored);
    put32(header + 12, (uint32_t)raw);
    put32(header + 16, block->count);
    put32(header + 20, block->source);
    put64(header + 24, block->sequence);
    put64(header + 32, (uint64_t)block->first_time);
    put32(header + 40, prt_crc32c(0, header, 40));
    put32(header + 44, prt_crc32c(prt_crc32c(0, header, 44), out->data + start, stored));
    return 0;
}

int prt_block_write(prt_bytes *out, const prt_block *block, int zstd_level) {
    if (block->count > PRT_COUNT_MAX) {
        return -EINVAL;
    }
    size_t before = out->length;
    struct work w;
    int failed = begin_work(&w, block);
    if (!failed) {
        failed = write_block(out, block, &w, zstd_level);
    }
    if (failed) {
        out->length = before;
    }
    free(w.best);
    free(w.trial);
    free(w.last);
    return failed;
}

int prt_file_header_write(prt_bytes *out, const prt_file_header *header) {
    int failed = reserve(out, PRT_FILE_HEADER);
    if (failed) {
        return failed;
    }
    uint8_t *at = out->data + out->length;
    memcpy(at, file_magic, sizeof file_magic);
    put16(at + 8, PRT_MAJOR);
    put16(at + 10, PRT_MINOR);
    put32(at + 12, PRT_FILE_HEADER);
    put32(at + 16, header->compatible);
    put32(at + 20, header->incompatible);
    memcpy(at + 24, header->session, 16);
    put32(at + 40, header->pid);
    put32(at + 44, header->parent);
    put64(at + 48, (uint64_t)header->created_ns);
    put32(at + 56, header->number);
    put32(at + 60, prt_crc32c(0, at, 60));
    out->length += PRT_FILE_HEADER;
    return 0;
}
