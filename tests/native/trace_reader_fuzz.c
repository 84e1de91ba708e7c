/* trace_reader_fuzz.c - fuzz target of the .prt reader: a trace file in, invariants of the Arrow batches checked.
 *
 * Each file is read from memory and from a file descriptor: the results must be equal. Some files change while they are read. Mutations know
 * blocks, columns, their encodings and zstd frames, and mostly fix the checksums so that the decoders are reached. Prints how many files
 * were read, how many rows they had, how many were refused and how many problems the reader reported. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/block.h"
#include "format/zstd_loader.h"
#include "reader/reader.h"

#include "fuzz.h"

static uint64_t total_files, total_rows, total_refused, total_problems;

/* ---------------------------------------------------------------- what the reader returns */

static void check_texts(const struct ArrowArray *a, uint64_t *digest) {
    const int32_t *offsets = a->buffers[1];
    const uint8_t *bytes = a->buffers[2];
    CHECK(offsets[0] == 0);
    for (int64_t i = 0; i < a->length; i++) {
        CHECK(offsets[i + 1] >= offsets[i]);
        check_utf8(bytes + offsets[i], (size_t)(offsets[i + 1] - offsets[i]));
    }
    *digest = digest_of(*digest, offsets, ((size_t)a->length + 1) * 4);
    *digest = digest_of(*digest, bytes, (size_t)offsets[a->length]);
}

static void check_column(const prt_reader *reader, const struct ArrowSchema *schema, const struct ArrowArray *a, uint64_t *digest) {
    size_t count = (size_t)a->length, width = schema->format[0] == 'i' ? 4 : 8;
    const uint8_t *there = a->buffers[0];
    int64_t missing = 0;
    for (size_t i = 0; there && i < count; i++) {
        missing += !(there[i / 8] >> (i & 7) & 1);
    }
    CHECK(a->offset == 0 && a->null_count == missing);
    CHECK(a->n_buffers == (schema->format[0] == 'u' ? 3 : 2) && a->n_children == 0);
    CHECK((a->dictionary != NULL) == (schema->dictionary != NULL));
    *digest = digest_of(*digest, &missing, sizeof missing);
    if (schema->format[0] == 'u') {
        check_texts(a, digest);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (!there || there[i / 8] >> (i & 7) & 1) {
            *digest = digest_of(*digest, (const uint8_t *)a->buffers[1] + i * width, width);
        }
    }
    int names = strcmp(schema->name, "name") == 0 || strcmp(schema->name, "metric") == 0;
    const int32_t *indices = a->buffers[1];
    for (size_t i = 0; names && i < count; i++) {
        CHECK((there && !(there[i / 8] >> (i & 7) & 1)) || (indices[i] >= 0 && (size_t)indices[i] < prt_reader_names(reader)));
    }
    if (a->dictionary) {
        CHECK((size_t)a->dictionary->length == prt_reader_names(reader));
        if (next_random(16) == 0) {
            check_texts(a->dictionary, digest);
        }
    }
}

static void read_table(prt_reader *reader, size_t table, uint64_t *digest) {
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    CHECK(!prt_reader_stream(reader, table, &stream) && !stream.get_schema(&stream, &schema));
    for (;;) {
        struct ArrowArray batch;
        if (stream.get_next(&stream, &batch)) {
            CHECK(stream.get_last_error(&stream));
            break;
        }
        if (!batch.release) {
            break;
        }
        CHECK(batch.length > 0 && batch.n_children == schema.n_children);
        total_rows += (uint64_t)batch.length;
        for (int64_t i = 0; i < batch.n_children; i++) {
            CHECK(batch.children[i]->length == batch.length);
            check_column(reader, schema.children[i], batch.children[i], digest);
        }
        batch.release(&batch);
    }
    schema.release(&schema);
    stream.release(&stream);
}

static void read_tables(prt_reader *reader, uint64_t size, uint64_t *digest) {
    CHECK(prt_reader_size(reader) == size);
    for (size_t table = 0; table < prt_tables(); table++) {
        read_table(reader, table, digest);
    }
    for (size_t i = 0; i < prt_reader_problem_count(reader); i++) {
        prt_problem p = prt_reader_problem(reader, i);
        CHECK(p.code < PRT_PROBLEMS && prt_problem_name(p.code) && p.offset <= size);
        *digest = digest_of(*digest, &p.code, sizeof p.code);
        total_problems++;
    }
    for (size_t i = 0; i < prt_reader_names(reader); i += 1 + next_random(prt_reader_names(reader))) {
        size_t length;
        const char *name = prt_reader_name(reader, i, &length);
        check_utf8((const uint8_t *)name, length);
    }
}

static uint64_t read_memory(const uint8_t *data, size_t length, const prt_reader_options *options) {
    uint8_t *copy = malloc(length ? length : 1); /* of exactly this size, so that the sanitizer sees a read beyond it */
    char message[100];
    prt_reader *reader;
    uint64_t digest = 1;
    CHECK(copy);
    memcpy(copy, data, length);
    total_files++;
    if (prt_reader_open_memory(&reader, copy, length, options, message, sizeof message)) {
        CHECK(strlen(message) > 0);
        total_refused++;
    } else {
        read_tables(reader, length, &digest);
        prt_reader_release(reader);
    }
    free(copy);
    return digest;
}

/* changes: the file is cut or overwritten after it was opened. */
static uint64_t read_file(const uint8_t *data, size_t length, const prt_reader_options *options, int changes) {
    static int fd = -1;
    static char path[64];
    char message[100];
    prt_reader *reader;
    uint64_t digest = 1;
    if (fd < 0) {
        fd = memfd_create("trace", MFD_CLOEXEC);
        CHECK(fd >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, data, length, 0) == (ssize_t)length);
    if (prt_reader_open(&reader, path, options, message, sizeof message)) {
        CHECK(strlen(message) > 0);
        return digest;
    }
    if (changes && length) {
        off_t at = (off_t)next_random(length);
        uint8_t noise[64];
        for (size_t i = 0; i < sizeof noise; i++) {
            noise[i] = (uint8_t)next_random(256);
        }
        CHECK(next_random(2) ? ftruncate(fd, at) == 0 : pwrite(fd, noise, sizeof noise, at) > 0);
    }
    read_tables(reader, length, &digest);
    prt_reader_release(reader);
    return digest;
}

static void run_input(const uint8_t *data, size_t length) {
    prt_reader_options options = {
        .row_limit = next_random(4) ? 20000 : 0,
        .name_ids = next_random(2) == 0,
        .unpacked_limit = next_random(3) ? 0 : next_random(20000),
    };
    uint64_t state = random_state, digest = read_memory(data, length, &options);
    int from_file = as_it_is || next_random(4) == 0, changes = !from_file && next_random(4) == 0;
    if (from_file || changes) {
        random_state = state; /* the second reading draws the same numbers */
        uint64_t again = read_file(data, length, &options, changes);
        CHECK(changes || again == digest);
    }
}

static void print_totals(void) {
    printf("%" PRIu64 " files, %" PRIu64 " rows, %" PRIu64 " refused, %" PRIu64 " problems\n", total_files, total_rows, total_refused,
           total_problems);
}

/* ---------------------------------------------------------------- blocks */

static uint32_t get32(const uint8_t *at) { return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24; }
static void put32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

/* The blocks by their lengths. */
static size_t find_blocks(const uint8_t *data, size_t length, size_t *offsets, size_t most) {
    size_t count = 0, at = PRT_FILE_HEADER;
    while (count < most && at + PRT_BLOCK_HEADER <= length && memcmp(data + at, "PRBK", 4) == 0) {
        offsets[count++] = at;
        uint32_t stored = get32(data + at + 8);
        if (stored > length - at - PRT_BLOCK_HEADER) {
            break;
        }
        at += PRT_BLOCK_HEADER + stored;
    }
    return count;
}

static size_t boundary(const uint8_t *data, size_t length) {
    size_t offsets[512], count = find_blocks(data, length, offsets, 512);
    if (!count || next_random(8) == 0) {
        return next_random(length + 1);
    }
    return next_random(count + 1) ? offsets[next_random(count)] : length;
}

static void fix_checksums(uint8_t *data, size_t length) {
    size_t offsets[512], count = find_blocks(data, length, offsets, 512);
    for (size_t i = 0; i < count; i++) {
        uint8_t *h = data + offsets[i];
        size_t stored = get32(h + 8);
        if (stored > length - offsets[i] - PRT_BLOCK_HEADER) {
            continue;
        }
        if (!h[6]) {
            put32(h + 12, (uint32_t)stored);
        }
        put32(h + 40, prt_crc32c(0, h, 40));
        put32(h + 44, prt_crc32c(prt_crc32c(0, h, 44), h + PRT_BLOCK_HEADER, stored));
    }
    if (length >= PRT_FILE_HEADER && next_random(8)) {
        put32(data + 60, prt_crc32c(0, data, 60));
    }
}

/* ---------------------------------------------------------------- columns */

typedef struct {
    uint8_t at[32768];
    size_t length;
} payload;

static void put(payload *p, const void *bytes, size_t length) {
    if (length <= sizeof p->at - p->length) {
        memcpy(p->at + p->length, bytes, length);
        p->length += length;
    }
}

static uint64_t any_number(void) {
    static const uint64_t limits[] = {
        0,         1,          2,          63,        64,         127,        128,           255, 256, 1u << 20, (1u << 20) - 1,
        INT32_MAX, UINT32_MAX, 1ull << 32, INT64_MAX, 1ull << 63, UINT64_MAX, UINT64_MAX - 1};
    switch (next_random(6)) {
    case 0: return limits[next_random(sizeof limits / sizeof *limits)];
    case 1: return next_random(UINT64_MAX);
    case 2: return next_random(1u << 20);
    default: return next_random(9);
    }
}

static void put_varint(payload *p, uint64_t value) {
    uint8_t bytes[12];
    size_t n = 0;
    for (; value > 127; value >>= 7) {
        bytes[n++] = (uint8_t)(value | 128);
    }
    bytes[n++] = (uint8_t)value;
    if (next_random(200) == 0) { /* too long, or not the shortest */
        memset(bytes, next_random(2) ? 0x80 : 0xFF, 10);
        n = 8 + next_random(4);
        bytes[n - 1] &= 0x7F;
    }
    put(p, bytes, n);
}

/* `count` rows in an encoding, mostly as the format requires. */
static void put_rows(payload *p, uint8_t encoding, uint32_t count) {
    static const char *const texts[] = {"",    "a",   "kernel", "\xC3\xA9", "\xFF", "\xF0\x9F\x98", "clock.ticks_per_second",
                                        "1e9", "inf", "-1"};
    uint32_t rows = next_random(32) ? count : (uint32_t)next_random(count + 3);
    if (encoding == PRT_SCALED) {
        uint8_t exponent = (uint8_t)next_random(next_random(8) ? 10 : 256);
        put(p, &exponent, 1);
    }
    for (uint32_t i = 0; i < rows;) {
        uint64_t number = any_number();
        switch (encoding) {
        case PRT_FIXED64: put(p, &number, 8); break;
        case PRT_RLE:
        case PRT_RLE_DELTA:
        case PRT_RLE_SAME: {
            uint64_t run = next_random(4) ? 1 + next_random(rows - i) : next_random(64) ? rows - i : number;
            put_varint(p, run);
            put_varint(p, number);
            i += run < rows - i ? (uint32_t)run : rows - i;
            i += run == 0;
            continue;
        }
        case PRT_BYTES: {
            const char *text = texts[next_random(sizeof texts / sizeof *texts)];
            put_varint(p, next_random(64) ? strlen(text) : number);
            put(p, text, strlen(text));
            break;
        }
        default: put_varint(p, number);
        }
        i++;
    }
}

static void put_column(payload *p, uint8_t id, uint8_t encoding, uint32_t count) {
    size_t header = p->length;
    uint8_t bytes[8] = {id, encoding};
    put(p, bytes, sizeof bytes);
    put_rows(p, encoding, count);
    if (p->length >= header + 8) {
        put32(p->at + header + 4, (uint32_t)(p->length - header - 8));
    }
}

/* Where column `skip` of a payload begins; its length, headers included, in *size. */
static size_t find_column(const payload *p, uint64_t skip, size_t *size) {
    size_t at = 0;
    for (;;) {
        if (p->length - at < 8) {
            *size = 0;
            return p->length;
        }
        size_t left = p->length - at - 8, own = get32(p->at + at + 4);
        *size = 8 + (own < left ? own : left);
        if (!skip-- || at + *size >= p->length) {
            return at;
        }
        at += *size;
    }
}

/* Columns replaced, added, removed or damaged. */
static void change_columns(payload *p, uint32_t count) {
    for (uint64_t n = 1 + next_random(3); n > 0; n--) {
        size_t size, at = find_column(p, next_random(17), &size);
        payload fresh = {.length = 0};
        uint8_t id = at < p->length && next_random(8) ? p->at[at] : (uint8_t)next_random(18), encoding = (uint8_t)next_random(12);
        switch (next_random(5)) {
        case 0: p->length = replace(p->at, p->length, sizeof p->at, at, size, NULL, 0); break;
        case 1:
            if (at < p->length) {
                p->at[at + next_random(2)] = (uint8_t)next_random(18);
            }
            break;
        case 2:
            if (size > 8) {
                change_byte(p->at + at + 8 + next_random(size - 8));
            }
            break;
        case 3: p->length = any_bytes(p->at, p->length, sizeof p->at); break;
        default:
            put_column(&fresh, id, encoding, count);
            p->length = replace(p->at, p->length, sizeof p->at, at, next_random(8) ? size : 0, fresh.at, fresh.length);
        }
    }
}

/* All columns of a type of block, in encodings that suit them. */
static void put_columns(payload *p, uint8_t type, uint32_t count) {
    static const uint8_t integers[] = {PRT_FIXED64,   PRT_VARINT,     PRT_ZIGZAG,   PRT_DELTA, PRT_RLE,
                                       PRT_RLE_DELTA, PRT_DELTA_SAME, PRT_RLE_SAME, PRT_GAP};
    static const uint8_t columns[] = {0, 2, 2, 4, 8, 3, 6, 3, 6, 16, 10, 9, 8, 4, 5, 3, 3};
    uint8_t last = type < sizeof columns ? columns[type] : (uint8_t)next_random(18);
    for (uint8_t id = 1; id <= last; id++) {
        int text = (type == PRT_META && id < 3) || (type == PRT_STRINGS && id == 2) || (type == PRT_PROCESS && (id == 4 || id == 5)) ||
                   (type == PRT_THREAD && id == 3);
        int number = (type == PRT_COUNTER && id == 3) || (type == PRT_METRIC && id == 4);
        uint8_t encoding = text     ? PRT_BYTES
                           : number ? (next_random(2) ? PRT_FIXED64 : PRT_SCALED)
                                    : integers[next_random(id == 1   ? 6
                                                           : id == 2 ? 9
                                                                     : 8)];
        if (next_random(8)) {
            put_column(p, id, next_random(32) ? encoding : (uint8_t)next_random(12), count);
        }
    }
}

/* ---------------------------------------------------------------- mutation */

/* A block with this payload, compressed or not, instead of `removed` bytes at `at`. */
static size_t put_block(uint8_t *data, size_t length, size_t most, size_t at, size_t removed, const uint8_t *header, const payload *p) {
    static uint8_t block[PRT_BLOCK_HEADER + 2 * sizeof p->at];
    const struct prt_zstd *zstd = prt_zstd();
    size_t stored = p->length;
    memcpy(block, header, PRT_BLOCK_HEADER);
    memcpy(block + PRT_BLOCK_HEADER, p->at, p->length);
    block[6] = zstd && next_random(3) == 0 ? 2 : 0;
    if (block[6]) {
        size_t size = zstd->compress(block + PRT_BLOCK_HEADER, sizeof block - PRT_BLOCK_HEADER, p->at, p->length, 1);
        stored = zstd->is_error(size) ? 0 : size;
        if (stored && next_random(16) == 0) { /* the frame itself, its checksum or the size that it claims */
            change_byte(block + PRT_BLOCK_HEADER + next_random(stored));
        }
    }
    put32(block + 8, (uint32_t)stored);
    put32(block + 12, (uint32_t)(next_random(64) ? p->length : any_number()));
    return replace(data, length, most, at, removed, block, PRT_BLOCK_HEADER + stored);
}

/* A block of random columns between others. */
static size_t add_block(uint8_t *data, size_t length, size_t most) {
    uint8_t header[PRT_BLOCK_HEADER] = "PRBK", type = (uint8_t)(next_random(32) ? 1 + next_random(16) : next_random(256));
    uint32_t count = (uint32_t)next_random(next_random(8) ? 20 : 2000);
    uint64_t first = any_number(), sequence = next_random(40);
    static payload p;
    p.length = 0;
    put_columns(&p, type, count);
    header[4] = type;
    put32(header + 16, count);
    put32(header + 20, (uint32_t)any_number());
    memcpy(header + 24, &sequence, 8);
    memcpy(header + 32, &first, 8);
    return put_block(data, length, most, boundary(data, length), 0, header, &p);
}

/* The payload of a block, decompressed, changed and stored again. */
static size_t change_block(uint8_t *data, size_t length, size_t most) {
    size_t offsets[512], count = find_blocks(data, length, offsets, 512);
    if (!count) {
        return length;
    }
    size_t at = offsets[next_random(count)], stored = get32(data + at + 8);
    static payload p;
    if (stored > length - at - PRT_BLOCK_HEADER) {
        return length;
    }
    const uint8_t *body = data + at + PRT_BLOCK_HEADER;
    uint8_t header[PRT_BLOCK_HEADER];
    memcpy(header, data + at, PRT_BLOCK_HEADER);
    p.length = 0;
    if (!header[6]) {
        put(&p, body, stored);
    } else if (prt_zstd()) {
        size_t size = prt_zstd()->decompress(p.at, sizeof p.at, body, stored);
        p.length = prt_zstd()->is_error(size) ? 0 : size;
    }
    switch (next_random(6)) {
    case 0: change_byte(header + 4 + next_random(36)); break;
    case 1: put32(header + 16, (uint32_t)next_random(next_random(8) ? 100 : 2u << 20)); break;
    default: change_columns(&p, get32(header + 16) < 5000 ? get32(header + 16) : 5000);
    }
    return put_block(data, length, most, at, PRT_BLOCK_HEADER + stored, header, &p);
}

/* A piece removed, or copied to another place: mostly whole blocks. */
static size_t move_piece(uint8_t *data, size_t length, size_t most) {
    size_t from = boundary(data, length), to = boundary(data, length), at = boundary(data, length);
    if (from > to) {
        size_t swapped = from;
        from = to;
        to = swapped;
    }
    if (next_random(3) == 0) {
        return replace(data, length, most, from, to - from, NULL, 0);
    }
    uint8_t *copy = malloc(to - from + 1);
    CHECK(copy);
    memcpy(copy, data + from, to - from);
    length = replace(data, length, most, at, 0, copy, to - from);
    free(copy);
    return length;
}

static size_t mutate(uint8_t *data, size_t length, size_t most) {
    for (uint64_t rounds = 1 + next_random(4); rounds; rounds--) {
        switch (next_random(12)) {
        case 0: length = any_bytes(data, length, most); break;
        case 1: length = move_piece(data, length, most); break;
        case 2: length = next_random(8) ? length : next_random(length + 1); break;
        case 3:
        case 4: length = add_block(data, length, most); break;
        default: length = change_block(data, length, most);
        }
    }
    if (next_random(10)) {
        fix_checksums(data, length);
    }
    return length;
}
