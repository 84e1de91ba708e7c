/* trace_reader_fuzz.c - does the reader keep its memory and come to an end, whatever file it is given?
 *
 * usage: trace_reader_fuzz SECONDS SEED FILE...: mutates the files (bytes, lengths, columns, whole blocks copied and cut out, and then, mostly,
 * the checksums put right so that the decoders are reached), reads every table of each and touches every value. SECONDS 0 reads the files as
 * they are. Prints how many files were read, how many rows they had and how many were refused.
 *
 * With -DPOSTRUN_LIBFUZZER and clang -fsanitize=fuzzer the same mutations are led by coverage. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "block.h"
#include "reader.h"

#define LARGEST (256u << 10)

static size_t largest = LARGEST;

static uint64_t random_state;

static uint64_t next_random(uint64_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return below ? random_state % below : 0;
}

static volatile uint64_t sink;
static uint64_t files, rows, refused, problems;

static void touch(const void *bytes, size_t length) {
    const uint8_t *at = bytes;
    uint64_t sum = 0;
    for (size_t i = 0; i < length; i++) sum += at[i];
    sink += sum;
}

static void touch_text(const struct ArrowArray *a) {
    const int32_t *offsets = a->buffers[1];
    touch(offsets, ((size_t)a->length + 1) * 4);
    for (int64_t i = 0; i < a->length; i++)
        if (offsets[i + 1] < offsets[i]) abort();
    if (offsets[0] < 0) abort();
    touch(a->buffers[2], (size_t)offsets[a->length]);
}

static void touch_column(const struct ArrowSchema *schema, const struct ArrowArray *a) {
    size_t count = (size_t)a->length;
    if (a->buffers[0]) touch(a->buffers[0], (count + 7) / 8);
    if (schema->format[0] == 'u') {
        touch_text(a);
        return;
    }
    touch(a->buffers[1], count * (schema->format[0] == 'i' ? 4 : 8));
    if (!schema->dictionary) return;
    const int32_t *indices = a->buffers[1];
    const uint8_t *there = a->buffers[0];
    for (size_t i = 0; i < count; i++)
        if ((!there || there[i / 8] >> (i & 7) & 1) && (indices[i] < 0 || indices[i] >= a->dictionary->length)) abort();
    if (next_random(16) == 0) touch_text(a->dictionary);
}

static void read_table(prt_reader *reader, size_t table) {
    struct ArrowArrayStream stream;
    struct ArrowSchema schema;
    if (prt_reader_stream(reader, table, &stream) || stream.get_schema(&stream, &schema)) abort();
    for (;;) {
        struct ArrowArray batch;
        if (stream.get_next(&stream, &batch) || !batch.release) break;
        rows += (uint64_t)batch.length;
        for (int64_t i = 0; i < batch.n_children; i++) {
            if (batch.children[i]->length != batch.length) abort();
            touch_column(schema.children[i], batch.children[i]);
        }
        batch.release(&batch);
    }
    schema.release(&schema);
    stream.release(&stream);
}

static void read_file(const uint8_t *data, size_t length) {
    uint8_t *copy = malloc(length ? length : 1); /* of exactly this size, so that reading beyond it is seen */
    if (!copy) abort();
    memcpy(copy, data, length);
    prt_reader_options options = {next_random(4) ? 20000 : 0, next_random(2) == 0};
    char message[100];
    prt_reader *reader;
    files++;
    if (prt_reader_open_memory(&reader, copy, length, &options, message, sizeof message)) {
        refused++;
    } else {
        for (size_t table = 0; table < prt_tables(); table++) read_table(reader, table);
        for (size_t i = 0; i < prt_reader_problem_count(reader); i++) {
            prt_problem p = prt_reader_problem(reader, i);
            touch(prt_problem_name(p.code), 1);
            problems++;
        }
        prt_reader_release(reader);
    }
    free(copy);
}

/* ---------------------------------------------------------------- mutation */

static uint32_t get32(const uint8_t *at) { return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24; }
static void put32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* The blocks as their lengths say. */
static size_t find_blocks(const uint8_t *data, size_t length, size_t *offsets, size_t most) {
    size_t count = 0, at = PRT_FILE_HEADER;
    while (count < most && at + PRT_BLOCK_HEADER <= length && memcmp(data + at, "PRBK", 4) == 0) {
        offsets[count++] = at;
        uint32_t stored = get32(data + at + 8);
        if (stored > length - at - PRT_BLOCK_HEADER) break;
        at += PRT_BLOCK_HEADER + stored;
    }
    return count;
}

static void mend(uint8_t *data, size_t length) {
    size_t offsets[512], count = find_blocks(data, length, offsets, 512);
    for (size_t i = 0; i < count; i++) {
        uint8_t *h = data + offsets[i];
        size_t stored = get32(h + 8);
        if (stored > length - offsets[i] - PRT_BLOCK_HEADER) continue;
        if (!h[6]) put32(h + 12, (uint32_t)stored);
        put32(h + 40, prt_crc32c(0, h, 40));
        put32(h + 44, prt_crc32c(prt_crc32c(0, h, 44), h + PRT_BLOCK_HEADER, stored));
    }
    if (length >= PRT_FILE_HEADER && next_random(8)) put32(data + 60, prt_crc32c(0, data, 60));
}

static void change_byte(uint8_t *at) {
    static const uint8_t interesting[] = {0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 0x7F, 0x80, 0xFE, 0xFF};
    switch (next_random(4)) {
    case 0: *at ^= (uint8_t)(1u << next_random(8)); break;
    case 1: *at = interesting[next_random(sizeof interesting)]; break;
    case 2: *at = (uint8_t)(*at + next_random(5) - 2); break;
    default: *at = (uint8_t)next_random(256);
    }
}

/* The header of a column, or the count, type or length of a block, or bytes of a payload. */
static void change_block(uint8_t *data, size_t length) {
    size_t offsets[512], count = find_blocks(data, length, offsets, 512);
    if (!count) return;
    size_t at = offsets[next_random(count)], end = at + PRT_BLOCK_HEADER + get32(data + at + 8);
    if (end > length) end = length;
    switch (next_random(5)) {
    case 0: change_byte(data + at + 4 + next_random(36)); return;
    case 1: put32(data + at + 16, (uint32_t)next_random(next_random(8) ? 100 : 2u << 20)); return;
    case 2: { /* a column header */
        size_t column = at + PRT_BLOCK_HEADER;
        for (uint64_t skip = next_random(12); skip && column + 8 <= end && get32(data + column + 4) < end - column - 8; skip--)
            column += 8 + get32(data + column + 4);
        if (column + 8 > end) return;
        if (next_random(3) == 0) data[column] = (uint8_t)next_random(18);
        else if (next_random(2)) data[column + 1] = (uint8_t)next_random(12);
        else change_byte(data + column + 4 + next_random(2));
        return;
    }
    default:
        if (end > at + PRT_BLOCK_HEADER)
            for (uint64_t i = 1 + next_random(4); i; i--) change_byte(data + at + PRT_BLOCK_HEADER + next_random(end - at - PRT_BLOCK_HEADER));
    }
}

static size_t splice(uint8_t *data, size_t length) {
    size_t offsets[512], count = find_blocks(data, length, offsets, 512);
    size_t from = next_random(length + 1), to = next_random(length + 1), size = next_random(next_random(2) ? 16 : 600);
    if (count && next_random(2)) { /* whole blocks */
        from = offsets[next_random(count)];
        to = offsets[next_random(count)];
        size = PRT_BLOCK_HEADER + get32(data + from + 8);
    }
    if (size > length - from) size = length - from;
    if (next_random(2) && length + size <= largest) { /* copied to another place */
        uint8_t *piece = malloc(size + 1);
        if (!piece) abort();
        memcpy(piece, data + from, size);
        memmove(data + to + size, data + to, length - to);
        memcpy(data + to, piece, size);
        free(piece);
        return length + size;
    }
    memmove(data + from, data + from + size, length - from - size);
    return length - size;
}

static size_t mutate(uint8_t *data, size_t length) {
    for (uint64_t rounds = 1 + next_random(6); rounds && length; rounds--) {
        switch (next_random(8)) {
        case 0: change_byte(data + next_random(length)); break;
        case 1: length = splice(data, length); break;
        case 2:
            if (next_random(8) == 0) length = next_random(length + 1);
            break;
        default: change_block(data, length);
        }
    }
    if (next_random(10)) mend(data, length);
    return length;
}

#ifdef POSTRUN_LIBFUZZER

size_t LLVMFuzzerMutate(uint8_t *data, size_t length, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t length, size_t most, unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t length, size_t most, unsigned seed) {
    random_state = (seed + 1) * 0x9E3779B97F4A7C15u;
    largest = most;
    if (next_random(2)) return mutate(data, length);
    length = LLVMFuzzerMutate(data, length, most);
    if (next_random(10)) mend(data, length);
    return length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
    random_state = ((uint64_t)prt_crc32c(0, data, length) + 1) * 0x9E3779B97F4A7C15u; /* the same options for the same file */
    read_file(data, length);
    return 0;
}

#else

struct seed {
    uint8_t *data;
    size_t length;
};

static int load(const char *path, struct seed *seed) {
    FILE *file = fopen(path, "rb");
    if (!file) return -1;
    seed->data = malloc(LARGEST);
    if (!seed->data) abort();
    seed->length = fread(seed->data, 1, LARGEST, file);
    return fclose(file);
}

int main(int count, char **arguments) {
    if (count < 4) return 2;
    double seconds = strtod(arguments[1], NULL);
    random_state = strtoull(arguments[2], NULL, 10) * 0x9E3779B97F4A7C15u + 1;
    size_t seed_count = (size_t)count - 3;
    struct seed *seeds = calloc(seed_count, sizeof *seeds);
    uint8_t *data = malloc(2 * LARGEST);
    if (!seeds || !data) abort();
    for (size_t i = 0; i < seed_count; i++) {
        if (load(arguments[3 + i], &seeds[i])) return 2;
        read_file(seeds[i].data, seeds[i].length);
    }
    clock_t began = clock();
    while ((double)(clock() - began) / CLOCKS_PER_SEC < seconds) {
        const struct seed *s = &seeds[next_random(seed_count)];
        memcpy(data, s->data, s->length);
        clock_t before = clock();
        read_file(data, mutate(data, s->length));
        if ((double)(clock() - before) / CLOCKS_PER_SEC > 10) {
            fprintf(stderr, "a file took %.1f s\n", (double)(clock() - before) / CLOCKS_PER_SEC);
            return 1;
        }
    }
    for (size_t i = 0; i < seed_count; i++) free(seeds[i].data);
    free(seeds);
    free(data);
    printf("%" PRIu64 " files, %" PRIu64 " rows, %" PRIu64 " refused, %" PRIu64 " problems\n", files, rows, refused, problems);
    return 0;
}

#endif
