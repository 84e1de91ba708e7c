/* trace_scan_fuzz.c - fuzz target of the trace scanner: JSON text in, invariants of the decoded columns checked.
 *
 * Each text is scanned as a whole and in random chunks, with the same limits: the results must be equal. Mutations know tokens, balanced
 * values and the members of events. Prints the sums of rows and defects. */
#include "scan/trace_scan.h"

#include "fuzz.h"

static const char *const argument_keys[] = {"correlation", "External id", "Input Dims", "grid",
                                            "block",       "Call stack",  "Input type", "Concrete Inputs"};
static const enum trace_scan_kind kinds[] = {TRACE_SCAN_INT,  TRACE_SCAN_INT,  TRACE_SCAN_TEXT,
                                             TRACE_SCAN_INT3, TRACE_SCAN_INT3, TRACE_SCAN_TEXT};
enum { ARGUMENTS = 6, PARTS = 2, DENSE = 2, NARROW = 4, TEXT_COLUMNS = 5 };

static uint64_t total_rows;
static int64_t total_defects;

/* ---------------------------------------------------------------- one scan */

typedef struct {
    uint64_t events, sparse, wide, strings, combinations, metadata, rest;
    size_t rows, string_count, combination_count;
    int64_t last_event, defects;
} result;

static void add(uint64_t *digest, const void *bytes, size_t length) { *digest = digest_of(*digest, bytes, length); }

static void add_text(uint64_t *digest, trace_scan_text t) {
    add(digest, &t.length, sizeof t.length);
    add(digest, t.at, t.length);
}

static void add_rows(result *r, uint64_t *digest, const trace_scan_table *t, size_t strings) {
    int64_t last = -1;
    for (size_t row = 0; row < t->rows; row++) { /* by row, because batches end where chunks do */
        for (size_t c = 0; c < t->column_count; c++) {
            const trace_scan_column *column = &t->columns[c];
            add(digest, (const char *)column->values + row * column->width, column->width);
            if (column->width == TRACE_SCAN_I32) {
                int32_t id = ((const int32_t *)column->values)[row];
                CHECK(id >= -1 && id < (int64_t)(c + 1 < t->column_count ? strings : r->combination_count));
            }
        }
        int64_t number = ((const int64_t *)t->columns[0].values)[row];
        uint8_t phase = ((const uint8_t *)t->columns[1].values)[row];
        CHECK(number > last);
        CHECK(phase == 'X' || phase == 'B' || phase == 'E' || phase == 'i');
        CHECK(((const int64_t *)t->columns[6].values)[row] != TRACE_SCAN_MISSING);
        last = number;
    }
    r->rows += t->rows;
    r->last_event = last > r->last_event ? last : r->last_event;
}

/* Sparse arguments, with the number of the event instead of its row: batches end where chunks do. */
static void add_sparse(result *r, const trace_scan_table *t, const trace_scan_table *events) {
    int64_t last = -1;
    for (size_t row = 0; row < t->rows; row++) {
        int64_t of = ((const int64_t *)t->columns[0].values)[row];
        CHECK(of > last && of < (int64_t)events->rows);
        add(&r->sparse, &((const int64_t *)events->columns[0].values)[of], sizeof of);
        for (size_t c = 1; c < t->column_count; c++) {
            const trace_scan_column *column = &t->columns[c];
            add(&r->sparse, (const char *)column->values + row * column->width, column->width);
            CHECK(column->width != TRACE_SCAN_I32 || ((const int32_t *)column->values)[row] < (int64_t)r->string_count);
        }
        last = of;
    }
}

/* A combination: lengths and texts of its parts, which fill it. */
static void add_combination(result *r, trace_scan_text key) {
    size_t at = 0;
    for (int part = 0; part < PARTS; part++) {
        uint32_t length;
        CHECK(at + sizeof length <= key.length);
        memcpy(&length, key.at + at, sizeof length);
        at += sizeof length;
        CHECK(length == 0 || length - 1 <= key.length - at);
        check_utf8(key.at + at, length ? length - 1 : 0);
        at += length ? length - 1 : 0;
    }
    CHECK(at == key.length);
    add_text(&r->combinations, key);
}

static void take(trace_scan *s, result *r) {
    size_t fresh = trace_scan_string_count(s);
    r->string_count += fresh;
    size_t combinations = trace_scan_combination_count(s);
    r->combination_count += combinations;
    for (size_t i = 0; i < combinations; i++) {
        add_combination(r, trace_scan_combination(s, i));
    }
    add_rows(r, &r->events, trace_scan_events(s), r->string_count);
    add_sparse(r, trace_scan_sparse(s), trace_scan_events(s));
    add_rows(r, &r->wide, trace_scan_wide(s), r->string_count);
    for (size_t i = 0; i < fresh; i++) {
        trace_scan_text t = trace_scan_string(s, i);
        check_utf8(t.at, t.length);
        add_text(&r->strings, t);
    }
    for (size_t i = 0; i < trace_scan_metadata_count(s); i++) {
        const trace_scan_metadata *m = trace_scan_metadata_at(s, i);
        CHECK(m->before >= 0 && m->before <= (int64_t)r->rows);
        add(&r->metadata, &m->before, sizeof m->before);
        add_text(&r->metadata, m->raw);
    }
    trace_scan_clear(s);
    CHECK(trace_scan_events(s)->rows == 0 && trace_scan_sparse(s)->rows == 0 && trace_scan_wide(s)->rows == 0 &&
          trace_scan_string_count(s) == 0);
}

static void take_rest(trace_scan *s, result *r, size_t length) {
    for (size_t i = 0; i < trace_scan_member_count(s); i++) {
        const trace_scan_member *m = trace_scan_member_at(s, i);
        check_utf8(m->key.at, m->key.length);
        add_text(&r->rest, m->key);
        add_text(&r->rest, m->raw);
        add(&r->rest, &m->broken, sizeof m->broken);
    }
    for (size_t i = 0; i < trace_scan_count_count(s); i++) {
        trace_scan_count c = trace_scan_count_at(s, i);
        CHECK(c.count > 0);
        check_utf8(c.phase.at, c.phase.length);
        check_utf8(c.category.at, c.category.length);
        add_text(&r->rest, c.phase);
        add_text(&r->rest, c.category);
        add(&r->rest, &c.count, sizeof c.count);
    }
    for (size_t i = 0; i < trace_scan_defect_codes(); i++) {
        const trace_scan_defect *d = trace_scan_defect_at(s, i);
        CHECK(d->count >= 0 && d->first_offset >= 0 && d->first_offset <= (int64_t)length);
        CHECK(d->example_length <= TRACE_SCAN_EXAMPLE);
        r->defects += d->count;
        add(&r->rest, &d->count, sizeof d->count);
        add(&r->rest, &d->first_offset, sizeof d->first_offset);
        add(&r->rest, d->example, d->example_length);
    }
    CHECK(r->last_event + 1 == (int64_t)r->rows);
}

/* chunk: the largest size of a chunk; 0 scans the text as a whole. */
static result scan_text(const uint8_t *data, size_t length, const trace_scan_options *options, size_t chunk) {
    result r = {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, -1, 0};
    trace_scan *s = trace_scan_new(options);
    CHECK(s);
    for (size_t i = 0; i < length;) {
        size_t n = chunk ? 1 + next_random(chunk) : length;
        if (n > length - i) {
            n = length - i;
        }
        uint8_t *copy = malloc(n); /* of exactly this size, so that the sanitizer sees a read beyond it */
        CHECK(copy);
        memcpy(copy, data + i, n);
        CHECK(trace_scan_feed(s, copy, n) == 0);
        free(copy);
        i += n;
        if (chunk && next_random(4) == 0) {
            take(s, &r);
        }
    }
    CHECK(trace_scan_finish(s) == 0);
    take(s, &r);
    take_rest(s, &r, length);
    trace_scan_free(s);
    return r;
}

static void run_input(const uint8_t *data, size_t length) {
    static const size_t chunks[] = {1, 3, 20, 300, 5000, 20000};
    trace_scan_text keys[ARGUMENTS + PARTS], wide = {(const uint8_t *)"kernel", 6};
    size_t columns[ARGUMENTS + PARTS];
    for (size_t i = 0; i < ARGUMENTS + PARTS; i++) {
        keys[i] = (trace_scan_text){(const uint8_t *)argument_keys[i], strlen(argument_keys[i])};
        columns[i] = i;
    }
    trace_scan_options options = {.kinds = kinds, .dense = DENSE, .narrow = NARROW, .all = ARGUMENTS, .keys = keys, .key_columns = columns};
    options.key_count = ARGUMENTS + PARTS;
    options.parts = PARTS;
    options.wide_categories = &wide;
    options.wide_category_count = 1;
    options.event_limit = 16 << 20;
    options.member_limit = 64 << 20;
    options.depth_limit = 256;
    if (!as_it_is) {
        options.event_limit = next_random(4) ? options.event_limit : 1000;
        options.member_limit = next_random(4) ? options.member_limit : 500;
        options.depth_limit = next_random(4) ? options.depth_limit : 5;
        options.text_limit = next_random(2) ? 0 : 1 + next_random(40);
        options.string_limit = next_random(3) ? 0 : 1 + next_random(20);
        options.total_limit = next_random(3) ? 0 : 1 + next_random(500);
    }
    result whole = scan_text(data, length, &options, 0);
    result cut = scan_text(data, length, &options, chunks[next_random(length < 20000 ? 5 : 6)]);
    CHECK(whole.events == cut.events);
    CHECK(whole.sparse == cut.sparse);
    CHECK(whole.wide == cut.wide);
    CHECK(whole.strings == cut.strings);
    CHECK(whole.combinations == cut.combinations);
    CHECK(whole.metadata == cut.metadata);
    CHECK(whole.rest == cut.rest);
    CHECK(whole.rows == cut.rows);
    total_rows += whole.rows;
    total_defects += whole.defects;
}

static void print_totals(void) { printf("%" PRIu64 " rows, %" PRId64 " defects\n", total_rows, total_defects); }

/* ---------------------------------------------------------------- generated text */

typedef struct {
    uint8_t at[4096];
    size_t length;
} piece;

static void put(piece *p, const void *bytes, size_t length) {
    if (length <= sizeof p->at - p->length) {
        memcpy(p->at + p->length, bytes, length);
        p->length += length;
    }
}

static void put_word(piece *p, const char *word) { put(p, word, strlen(word)); }

#define ANY(list) (list)[next_random(sizeof(list) / sizeof *(list))]

static void put_digits(piece *p, uint64_t count) {
    for (int same = next_random(2) == 0; count > 0; count--) {
        put(p, &"0123456789"[same ? 9 : next_random(10)], 1);
    }
}

static void put_number(piece *p) {
    static const char *const numbers[] = {"0",
                                          "-0",
                                          "1",
                                          "-1",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "-9223372036854775808",
                                          "9223372036854775.807",
                                          "9223372036854775.808",
                                          "18446744073709551615",
                                          "999999999999999999",
                                          "9999999999999999999",
                                          "1e18",
                                          "1e19",
                                          "1e-400",
                                          "1e400",
                                          "0x7fffffffffffffff",
                                          "0xffffffffffffffff",
                                          "NaN",
                                          "-Infinity",
                                          "1.",
                                          ".5",
                                          "+7",
                                          "1e",
                                          "0.0000000000000000000001e22",
                                          "4294967296"};
    if (next_random(3) == 0) {
        put_word(p, ANY(numbers));
        return;
    }
    put_word(p, next_random(4) ? "" : "-");
    put_digits(p, next_random(2) ? 1 + next_random(4) : 15 + next_random(8));
    if (next_random(3) == 0) {
        put_word(p, ".");
        put_digits(p, next_random(6));
    }
    if (next_random(6) == 0) {
        put_word(p, next_random(2) ? "e" : "E-");
        put_digits(p, 1 + next_random(next_random(4) ? 2 : 20));
    }
}

static void put_inside_of_string(piece *p) {
    static const char *const texts[] = {"",
                                        "kernel",
                                        "cpu_op",
                                        "aten::mm",
                                        "X",
                                        "B",
                                        "E",
                                        "i",
                                        "M",
                                        "ph",
                                        "cat",
                                        "name",
                                        "pid",
                                        "tid",
                                        "ts",
                                        "dur",
                                        "args",
                                        "traceEvents",
                                        "correlation",
                                        "External id",
                                        "Input Dims",
                                        "grid",
                                        "block",
                                        "Call stack",
                                        "Spans",
                                        "\xC3\xA9",
                                        "\xF0\x9F\x98\x80",
                                        "0x1f",
                                        " 12 ",
                                        "process_name"};
    static const char *const odd[] = {
        "\\",  "\\\"", "\\\\", "\\u12", "\\u0000", "\\uD83D\\uDE00", "\\uD800",        "\\uDC00",          "\\uD800\\uD800",
        "\\x", "\\n",  "\n",   "\x01",  "\xFF",    "\xC0\x80",       "\xED\xA0\x80",   "\xF4\x90\x80\x80", "\xE2\x82",
        "\"",  "\",",  "\"}",  "\"]",   "\": ",    "\",\"ph\":",     "{\"ph\":\"X\",", "\\\",\"ts\":1"};
    for (uint64_t n = next_random(3) ? 1 : next_random(4); n > 0; n--) {
        switch (next_random(6)) {
        case 0: put_word(p, ANY(odd)); break;
        case 1: put_number(p); break;
        case 2:
            for (uint64_t k = next_random(next_random(4) ? 20 : 1500); k > 0; k--) {
                put(p, "a", 1);
            }
            break;
        default: put_word(p, ANY(texts));
        }
    }
}

static void put_string(piece *p) {
    put_word(p, "\"");
    put_inside_of_string(p);
    put_word(p, "\"");
}

static void put_white(piece *p) {
    static const char *const white[] = {"",     "",   "",     " ",
                                        "\n  ", "\t", "\r\n", "                                                                      "};
    put_word(p, ANY(white));
}

static void put_value(piece *p, unsigned depth) {
    static const char *const words[] = {"true", "false", "null", "nul", "undefined", "", "-", "tru e"};
    put_white(p);
    switch (next_random(depth ? 8 : 6)) {
    case 0: put_word(p, ANY(words)); break;
    case 1:
    case 2: put_string(p); break;
    case 6: /* an array */
        put_word(p, "[");
        for (uint64_t n = next_random(5); n > 0; n--) {
            put_value(p, depth - 1);
            put_word(p, n > 1 || next_random(8) == 0 ? "," : "");
        }
        put_word(p, "]");
        break;
    case 7: /* an object */
        put_word(p, "{");
        for (uint64_t n = next_random(4); n > 0; n--) {
            put_string(p);
            put_word(p, ":");
            put_value(p, depth - 1);
            put_word(p, n > 1 || next_random(8) == 0 ? "," : "");
        }
        put_word(p, "}");
        break;
    default: put_number(p);
    }
    put_white(p);
}

/* Members in random order: each is usual, odd or left out. */
static void put_event(piece *p) {
    static const char *const usual[][2] = {{"ph", "\"X\""}, {"cat", "\"kernel\""},        {"name", "\"k\""}, {"pid", "0"},
                                           {"tid", "7"},    {"ts", "1712195495519689.5"}, {"dur", "3.25"}};
    size_t first = next_random(7);
    put_word(p, "{");
    for (size_t i = 0; i < 7; i++) {
        const char *const *member = usual[next_random(3) ? i : (first + i) % 7];
        if (next_random(16) == 0) {
            continue;
        }
        put_word(p, "\"");
        put_word(p, member[0]);
        put_word(p, "\":");
        if (next_random(4)) {
            put_word(p, member[1]);
        } else {
            put_value(p, 2);
        }
        put_word(p, ",");
    }
    put_word(p, "\"args\":{");
    for (uint64_t n = next_random(4); n > 0; n--) {
        put_word(p, "\"");
        put_word(p, ANY(argument_keys));
        put_word(p, "\":");
        put_value(p, 2);
        put_word(p, n > 1 ? "," : "");
    }
    put_word(p, "}}");
    put_white(p);
}

static void put_document(piece *p) {
    int array = next_random(3) == 0;
    put_word(p, next_random(16) ? "" : "\xEF\xBB\xBF");
    if (!array) {
        put_word(p, "{");
        for (uint64_t n = next_random(3); n > 0; n--) {
            put_string(p);
            put_word(p, ":");
            put_value(p, 3);
            put_word(p, ",");
        }
        put_word(p, "\"traceEvents\":");
    }
    put_word(p, "[");
    for (uint64_t n = next_random(5); n > 0; n--) {
        put_event(p);
        put_word(p, n > 1 ? "," : "");
    }
    put_word(p, array ? "]" : "],\"z\":0}");
}

/* ---------------------------------------------------------------- mutation */

static size_t token_length(const uint8_t *at, size_t left) {
    size_t n = 1;
    if (*at == '"') {
        while (n < left && at[n] != '"') {
            n += at[n] == '\\' && n + 1 < left ? 2 : 1;
        }
        return n < left ? n + 1 : left;
    }
    if (strchr("{}[]:,", *at)) {
        return 1;
    }
    while (n < left && !strchr("{}[]:,\"", at[n])) {
        n++;
    }
    return n;
}

/* The start of a random token. */
static size_t boundary(const uint8_t *data, size_t length) {
    size_t chosen = 0;
    uint64_t seen = 0;
    for (size_t i = 0; i < length; i += token_length(data + i, length - i)) {
        chosen = next_random(++seen) ? chosen : i;
    }
    return next_random(16) ? chosen : length;
}

/* Length of the value at a token: to the bracket that closes it. */
static size_t value_length(const uint8_t *at, size_t left) {
    size_t n = 0, depth = 0;
    while (n < left) {
        depth += at[n] == '{' || at[n] == '[';
        depth -= depth && (at[n] == '}' || at[n] == ']');
        n += token_length(at + n, left - n);
        if (!depth) {
            break;
        }
    }
    return n;
}

static size_t mutate_once(uint8_t *data, size_t length, size_t most) {
    static const char structure[] = "\"{}[],:\\\n0e.-\xff";
    piece p = {.length = 0};
    size_t at = boundary(data, length), size = at < length ? token_length(data + at, length - at) : 0;
    size_t whole = at < length ? value_length(data + at, length - at) : 0;
    switch (next_random(12)) {
    case 0: return any_bytes(data, length, most);
    case 1: put_number(&p); return replace(data, length, most, at, size, p.at, p.length);
    case 2: put_string(&p); return replace(data, length, most, at, size, p.at, p.length);
    case 3: put_value(&p, 4); return replace(data, length, most, at, whole, p.at, p.length);
    case 4: /* an event between others */
        put_event(&p);
        put_word(&p, ",");
        return replace(data, length, most, at, 0, p.at, p.length);
    case 5: return replace(data, length, most, at, next_random(2) ? size : whole, NULL, 0);
    case 6: { /* a value once more, elsewhere */
        size_t from = boundary(data, length), n = from < length ? value_length(data + from, length - from) : 0;
        uint8_t *copy = malloc(n + 1);
        CHECK(copy);
        memcpy(copy, data + from, n);
        copy[n] = ',';
        length = replace(data, length, most, at, next_random(2) ? whole : 0, copy, n + next_random(2));
        free(copy);
        return length;
    }
    case 7: /* in the middle of a token */
        put_inside_of_string(&p);
        return replace(data, length, most, at + next_random(size + 1), 0, p.at, p.length);
    case 8: return replace(data, length, most, next_random(length + 1), 0, &structure[next_random(sizeof structure - 1)], 1);
    case 9: put_white(&p); return replace(data, length, most, at, 0, p.at, p.length);
    case 10: return next_random(8) ? length : next_random(length + 1);
    default:
        if (next_random(16)) {
            return any_bytes(data, length, most);
        }
        put_document(&p);
        return replace(data, length, most, 0, length, p.at, p.length);
    }
}

static size_t mutate(uint8_t *data, size_t length, size_t most) {
    for (uint64_t n = 1 + next_random(next_random(4) ? 2 : 6); n > 0; n--) {
        length = mutate_once(data, length, most);
    }
    return length;
}
