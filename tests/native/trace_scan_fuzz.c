/* trace_scan_driver.c - does the scanner keep its memory and its promise that chunks do not matter, on damaged text?
 *
 * usage: trace_scan_driver FILE ROUNDS SEED: each round damages the text a little, scans it whole and in random chunks, and
 * compares a digest of all results. ROUNDS 0 scans the text once as it is. Prints rows and defects summed over the rounds. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace_scan.h"

static uint64_t random_state;

static uint64_t next_random(uint64_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return below ? random_state % below : 0;
}

typedef struct {
    uint64_t digest;
    size_t rows, strings;
    int64_t defects;
} result;

static void add(result *r, const void *bytes, size_t length) {
    const uint8_t *p = bytes;
    for (size_t i = 0; i < length; i++) r->digest = (r->digest ^ p[i]) * 0x100000001B3u;
}

static void add_text(result *r, trace_scan_text t) {
    add(r, &t.length, sizeof t.length);
    add(r, t.at, t.length);
}

/* By row, as batches end where chunks do. */
static void add_rows(result *r, const trace_scan_table *t) {
    for (size_t row = 0; row < t->rows; row++)
        for (size_t c = 0; c < t->column_count; c++)
            add(r, (const char *)t->columns[c].values + row * t->columns[c].width, t->columns[c].width);
    r->rows += t->rows;
}

static void take(trace_scan *s, result *events, result *rest) {
    add_rows(events, trace_scan_events(s));
    add_rows(events, trace_scan_wide(s)); /* rounds take once only, see scan_text */
    for (size_t i = 0; i < trace_scan_string_count(s); i++) add_text(rest, trace_scan_string(s, i));
    rest->strings += trace_scan_string_count(s);
    for (size_t i = 0; i < trace_scan_metadata_count(s); i++) {
        add(rest, &trace_scan_metadata_at(s, i)->before, sizeof(int64_t));
        add_text(rest, trace_scan_metadata_at(s, i)->raw);
    }
    trace_scan_clear(s);
}

static result scan_text(const uint8_t *data, size_t length, int cut, size_t event_limit) {
    static const enum trace_scan_kind kinds[] = {TRACE_SCAN_INT, TRACE_SCAN_INT, TRACE_SCAN_TEXT, TRACE_SCAN_INT3, TRACE_SCAN_INT3,
                                                 TRACE_SCAN_TEXT};
    static const char *const names[] = {"correlation", "External id", "Input Dims", "grid", "block", "Call stack"};
    trace_scan_text keys[6], wide = {(const uint8_t *)"kernel", 6};
    size_t columns[6];
    for (size_t i = 0; i < 6; i++) {
        keys[i] = (trace_scan_text){(const uint8_t *)names[i], strlen(names[i])};
        columns[i] = i;
    }
    trace_scan_options options = {kinds, 3, 6, keys, columns, 6, &wide, 1, event_limit, 64 << 20, 256};
    trace_scan *s = trace_scan_new(&options);
    result events = {14695981039346656037u, 0, 0, 0}, rest = events;
    int failed = !s;
    for (size_t i = 0; !failed && i < length;) {
        size_t n = cut ? 1 + next_random(next_random(8) ? 300 : 20000) : length;
        if (n > length - i) n = length - i;
        uint8_t *copy = malloc(n); /* of exactly this size, so that reading beyond it is seen */
        if (!copy) abort();
        memcpy(copy, data + i, n);
        failed = trace_scan_feed(s, copy, n);
        free(copy);
        i += n;
    }
    if (failed || trace_scan_finish(s)) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    take(s, &events, &rest);
    for (size_t i = 0; i < trace_scan_member_count(s); i++) {
        add_text(&rest, trace_scan_member_at(s, i)->key);
        add_text(&rest, trace_scan_member_at(s, i)->raw);
        add(&rest, &trace_scan_member_at(s, i)->broken, sizeof(int));
    }
    for (size_t i = 0; i < trace_scan_count_count(s); i++) {
        trace_scan_count c = trace_scan_count_at(s, i);
        add_text(&rest, c.phase);
        add_text(&rest, c.category);
        add(&rest, &c.count, sizeof c.count);
    }
    for (size_t i = 0; i < trace_scan_defect_codes(); i++) {
        const trace_scan_defect *d = trace_scan_defect_at(s, i);
        events.defects += d->count;
        add(&rest, &d->count, sizeof d->count);
        add(&rest, &d->first_offset, sizeof d->first_offset);
        add(&rest, d->example, d->example_length);
    }
    trace_scan_free(s);
    add(&events, &rest.digest, sizeof rest.digest);
    events.strings = rest.strings;
    return events;
}

/* One to eight places: bytes changed, removed, doubled, or structure put in. */
static size_t damage(uint8_t *data, size_t length) {
    static const char structure[] = "\"{}[],:\\\n0e.-\xff";
    for (uint64_t n = 1 + next_random(8); n > 0 && length > 1; n--) {
        size_t at = next_random(length);
        size_t piece = 1 + next_random(next_random(3) ? 4 : 2000);
        if (piece > length - at) piece = length - at;
        switch (next_random(4)) {
        case 0:
            data[at] = (uint8_t)next_random(256);
            break;
        case 1:
            data[at] = (uint8_t)structure[next_random(sizeof structure - 1)];
            break;
        case 2:
            memmove(data + at, data + at + piece, length - at - piece);
            length -= piece;
            break;
        default:
            memmove(data + at, data + next_random(length - piece + 1), piece);
        }
    }
    return length;
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    FILE *file = fopen(argv[1], "rb");
    if (!file || fseek(file, 0, SEEK_END)) return 2;
    size_t length = (size_t)ftell(file);
    rewind(file);
    uint8_t *original = malloc(length + 1), *damaged = malloc(length + 1);
    if (!original || !damaged || fread(original, 1, length, file) != length) return 2;
    fclose(file);
    random_state = strtoull(argv[3], NULL, 10) * 2654435761u + 88172645463325252u;
    uint64_t rounds = strtoull(argv[2], NULL, 10), rows = 0;
    int64_t defects = 0;
    for (uint64_t round = 0; round < (rounds ? rounds : 1); round++) {
        memcpy(damaged, original, length);
        size_t left = rounds ? damage(damaged, length) : length;
        size_t limit = next_random(4) ? 16 << 20 : 1000;
        result whole = scan_text(damaged, left, 0, limit);
        result cut = rounds ? scan_text(damaged, left, 1, limit) : whole;
        if (whole.digest != cut.digest || whole.rows != cut.rows) {
            fprintf(stderr, "round %" PRIu64 ": %zu rows whole, %zu in chunks\n", round, whole.rows, cut.rows);
            FILE *out = fopen("damaged.json", "wb");
            if (out) {
                fwrite(damaged, 1, left, out);
                fclose(out);
            }
            return 1;
        }
        rows += whole.rows;
        defects += whole.defects;
    }
    printf("%" PRIu64 " %" PRId64 "\n", rows, defects);
    free(original);
    free(damaged);
    return 0;
}
