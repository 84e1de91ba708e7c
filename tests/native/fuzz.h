/* fuzz.h - what the fuzz targets share: random numbers, checks, and a main for compilers without libFuzzer.
 *
 * A target defines mutate() and run_input(). With -DPOSTRUN_LIBFUZZER and clang -fsanitize=fuzzer, coverage leads the mutations. Else
 * `PROGRAM ROUNDS SEED FILE...` runs ROUNDS mutations of randomly chosen files, or, if ROUNDS is 0, each file as it is. */
#ifndef POSTRUN_FUZZ_H
#define POSTRUN_FUZZ_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FUZZ_LARGEST (256u << 10)

/* Changes the input in place and returns its new length, at most `most`. */
static size_t mutate(uint8_t *data, size_t length, size_t most);
/* A random place where a piece of the input begins, or its length. */
static size_t boundary(const uint8_t *data, size_t length);
/* Reads the input; aborts if an invariant does not hold. */
static void run_input(const uint8_t *data, size_t length);
static void print_totals(void);

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                      \
        }                                                                                 \
    } while (0)

static int as_it_is; /* ROUNDS is 0: generous limits, so that a test knows the totals */
static uint64_t random_state = 1;

static void set_random(uint64_t seed) { random_state = (seed + 1) * 0x9E3779B97F4A7C15u | 1; }

static uint64_t next_random(uint64_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return below ? random_state % below : 0;
}

static uint64_t digest_of(uint64_t digest, const void *bytes, size_t length) {
    const uint8_t *at = bytes;
    for (size_t i = 0; i < length; i++) {
        digest = (digest ^ at[i]) * 0x100000001B3u;
    }
    return digest;
}

static void check_utf8(const uint8_t *at, size_t length) {
    for (size_t i = 0; i < length;) {
        uint32_t c = at[i], least = c < 0xE0 ? 0x80 : c < 0xF0 ? 0x800 : 0x10000;
        size_t more = c < 0x80 ? 0 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : 3;
        CHECK(c < 0x80 || (c >= 0xC2 && c <= 0xF4));
        CHECK(more < length - i);
        c &= more ? 0x3Fu >> more : 0x7Fu;
        for (size_t k = 1; k <= more; k++) {
            CHECK((at[i + k] & 0xC0) == 0x80);
            c = c << 6 | (at[i + k] & 0x3F);
        }
        CHECK(!more || (c >= least && c <= 0x10FFFF && (c < 0xD800 || c > 0xDFFF)));
        i += more + 1;
    }
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

/* Replaces `removed` bytes at `at` by `size` others, if the result fits; returns the new length. */
static size_t replace(uint8_t *data, size_t length, size_t most, size_t at, size_t removed, const void *piece, size_t size) {
    if (length - removed + size > most) {
        return length;
    }
    memmove(data + at + size, data + at + removed, length - at - removed);
    if (size) {
        memcpy(data + at, piece, size);
    }
    return length - removed + size;
}

static double slowest_s;
static size_t slowest_length;

static void run_timed(const uint8_t *data, size_t length) {
    clock_t before = clock();
    run_input(data, length);
    double seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    if (seconds > slowest_s) {
        slowest_s = seconds;
        slowest_length = length;
    }
}

#ifdef POSTRUN_LIBFUZZER

size_t LLVMFuzzerMutate(uint8_t *data, size_t length, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t length, size_t most, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *first, size_t first_length, const uint8_t *second, size_t second_length, uint8_t *out,
                                 size_t most, unsigned seed);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);
int LLVMFuzzerInitialize(int *count, char ***arguments);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t length, size_t most, unsigned seed) {
    set_random(seed);
    return mutate(data, length, most);
}

static size_t any_bytes(uint8_t *data, size_t length, size_t most) { return LLVMFuzzerMutate(data, length, most); }

/* The first input with a piece of the second in it. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *first, size_t first_length, const uint8_t *second, size_t second_length, uint8_t *out,
                                 size_t most, unsigned seed) {
    set_random(seed);
    size_t at = boundary(first, first_length), until = boundary(first, first_length);
    size_t from = boundary(second, second_length), to = boundary(second, second_length);
    size_t length = first_length < most ? first_length : most;
    memcpy(out, first, length);
    if (at > length || from >= to) {
        return length;
    }
    size_t removed = until > at && until <= length ? until - at : 0;
    return replace(out, length, most, at, removed, second + from, to - from);
}

static void print_slowest(void) {
    fprintf(stderr, "slowest input: %.0f ms, %zu bytes\n", slowest_s * 1000, slowest_length);
    print_totals();
    fflush(stdout);
}

int LLVMFuzzerInitialize(int *count, char ***arguments) {
    (void)count;
    (void)arguments;
    atexit(print_slowest);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
    set_random(digest_of(1, data, length)); /* the same options for the same input */
    run_timed(data, length);
    return 0;
}

#else

static size_t any_bytes(uint8_t *data, size_t length, size_t most) {
    (void)most;
    if (length) {
        change_byte(data + next_random(length));
    }
    return length;
}

static size_t load(const char *path, uint8_t **data) {
    FILE *file = fopen(path, "rb");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    size_t length = (size_t)ftell(file);
    rewind(file);
    *data = malloc(length + 1);
    CHECK(*data && fread(*data, 1, length, file) == length);
    fclose(file);
    return length;
}

int main(int count, char **arguments) {
    if (count < 4) {
        return 2;
    }
    uint64_t rounds = strtoull(arguments[1], NULL, 10), seeds = (uint64_t)count - 3;
    as_it_is = rounds == 0;
    set_random(strtoull(arguments[2], NULL, 10));
    uint8_t **data = calloc(seeds, sizeof *data);
    size_t *lengths = calloc(seeds, sizeof *lengths), most = FUZZ_LARGEST;
    CHECK(data && lengths);
    for (uint64_t i = 0; i < seeds; i++) {
        lengths[i] = load(arguments[3 + i], &data[i]);
        most = lengths[i] > most / 2 ? 2 * lengths[i] : most;
        if (as_it_is) {
            run_timed(data[i], lengths[i]);
        }
    }
    uint8_t *changed = malloc(most);
    CHECK(changed);
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t i = next_random(seeds);
        if (lengths[i]) {
            memcpy(changed, data[i], lengths[i]);
        }
        size_t length = mutate(changed, lengths[i], most);
        uint8_t *exact = malloc(length ? length : 1);
        CHECK(exact);
        memcpy(exact, changed, length);
        FILE *kept = fopen("last-input", "wb"); /* what a crash was about */
        CHECK(kept && fwrite(exact, 1, length, kept) == length && fclose(kept) == 0);
        run_timed(exact, length);
        free(exact);
        CHECK(slowest_s < 10);
    }
    for (uint64_t i = 0; i < seeds; i++) {
        free(data[i]);
    }
    free(data);
    free(lengths);
    free(changed);
    print_totals();
    return 0;
}

#endif

#endif
