/* trace_scan.c - how does the text of a Chrome trace become typed columns?
 *
 * The text is cut into units: an event, or a top-level member. A unit is read only when it is there completely, and leaves
 * nothing behind if it cannot be read, so results do not depend on how the text was cut into chunks. Work is linear: a
 * unit that cannot be read is left behind at the byte that showed it. The same rules stand in ingest/trace_scan_python.py. */
#include "trace_scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

typedef const uint8_t *text;

/* ---------------------------------------------------------------- defects */

enum defect {
    CONTROL_CHARACTER,
    INVALID_ESCAPE,
    INVALID_UTF8,
    LONE_SURROGATE,
    BARE_WORD,
    EMPTY_VALUE,
    BARE_QUOTE,
    TRAILING_COMMA,
    MISSING_COMMA,
    NOT_AN_EVENT,
    NO_PHASE,
    NO_TIMESTAMP,
    NUMBER_OUT_OF_RANGE,
    LOST_EVENT,
    LOST_BYTES,
    TOO_LONG,
    TOO_DEEP,
    TRUNCATED,
    BROKEN_MEMBER,
    TRAILING_GARBAGE,
    NOT_JSON,
    EMPTY,
    TEXT_CUT,
    TEXT_LEFT_OUT,
    METADATA_LEFT_OUT,
    DEFECTS
};
static const char *const defect_codes[DEFECTS] = {
    "control_character",   "invalid_escape",   "invalid_utf8",  "lone_surrogate", "bare_word", "empty_value",
    "bare_quote",          "trailing_comma",   "missing_comma", "not_an_event",   "no_phase",  "no_timestamp",
    "number_out_of_range", "lost_event",       "lost_bytes",    "too_long",       "too_deep",  "truncated",
    "broken_member",       "trailing_garbage", "not_json",      "empty",          "text_cut",  "text_left_out",
    "metadata_left_out",
};

/* ---------------------------------------------------------------- types */

typedef struct {
    uint8_t *bytes;
    size_t length, capacity;
} buffer;

typedef struct {
    uint32_t hash;
    uint32_t id; /* plus one; 0: free */
} string_entry;

typedef struct { /* every distinct text, in order of first use */
    string_entry *entries;
    size_t mask;
    buffer bytes;
    size_t *ends; /* of text i in bytes */
    size_t count, capacity;
    uint64_t seed;
} string_table;

enum value_kind { ABSENT, NULL_VALUE, TRUE_VALUE, FALSE_VALUE, NUMBER, PLAIN_STRING, RAW_STRING, OBJECT, ARRAY };
typedef struct {
    enum value_kind kind;
    text at; /* of a string: behind the quote */
    size_t length;
} value;

enum field { PHASE, CATEGORY, NAME, PID, TID, TIME, DURATION, FIELDS, ARGS = FIELDS, KNOWN_KEYS };
static const char *const field_keys[KNOWN_KEYS] = {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"};

typedef struct { /* keys -> numbers */
    struct key_entry {
        uint8_t *key; /* NULL: free */
        size_t length, number;
        uint64_t head, tail; /* its first eight bytes, and its last if it is longer */
    } *entries;
    size_t mask;
} key_table;

enum state { AT_START, IN_ARRAY, IN_OBJECT, AT_TAIL, LOST, AT_END };
enum outcome { DONE, NEED_MORE, BROKEN, NO_MEMORY };

struct trace_scan {
    /* options */
    enum trace_scan_kind *kinds;
    size_t narrow, all;
    key_table fields, keys;
    buffer *wide_categories;
    size_t wide_category_count;
    size_t event_limit, member_limit, text_limit, string_limit, total_limit;
    unsigned depth_limit;
    /* text */
    buffer carry;
    size_t retry_at;
    text start, end; /* of the text being scanned */
    int64_t base;    /* offset of start in the file */
    int final, no_memory;
    /* where in the document */
    enum state state;
    int root, after_element, after_comma, anything;
    size_t member_bytes;
    int64_t lost_from;
    enum defect lost_kind;
    size_t lost_example_length;
    uint8_t lost_example[TRACE_SCAN_EXAMPLE];
    /* the unit being read */
    int64_t note_count[DEFECTS];
    text note_first[DEFECTS];
    int noted;
    text broken_at;
    enum defect broken_reason; /* DEFECTS: none */
    value field[FIELDS];
    value *args;     /* one per column */
    value *elements; /* three per column: the first ones of an array */
    uint8_t stack[TRACE_SCAN_DEPTH_MAX];
    buffer scratch, category_scratch, cut, cut_category;
    /* results */
    trace_scan_table events, wide;
    int64_t event_count;
    string_table strings, counted;
    size_t strings_taken;
    int64_t *counts;
    size_t counts_capacity;
    trace_scan_metadata *metadata;
    size_t metadata_count, metadata_capacity, metadata_bytes;
    trace_scan_member *members;
    size_t member_count, member_capacity;
    trace_scan_defect defects[DEFECTS];
};

/* ---------------------------------------------------------------- memory */

static int reserve(buffer *b, size_t capacity) {
    if (capacity <= b->capacity && b->bytes) {
        return 0; /* also no bytes have an address */
    }
    size_t larger = b->capacity ? b->capacity : 256;
    while (larger < capacity) {
        if (larger > SIZE_MAX / 2) {
            return -1;
        }
        larger *= 2;
    }
    uint8_t *bytes = realloc(b->bytes, larger);
    if (!bytes) {
        return -1;
    }
    b->bytes = bytes;
    b->capacity = larger;
    return 0;
}

static int append(buffer *b, const void *bytes, size_t length) {
    if (length > SIZE_MAX - b->length || reserve(b, b->length + length)) {
        return -1;
    }
    if (length) {
        memcpy(b->bytes + b->length, bytes, length);
    }
    b->length += length;
    return 0;
}

/* Room for one more element of an array that has count of capacity in use. */
static int grow(void **array, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) {
        return 0;
    }
    size_t larger = *capacity ? *capacity * 2 : 16;
    if (larger > SIZE_MAX / size) {
        return -1;
    }
    void *moved = realloc(*array, larger * size);
    if (!moved) {
        return -1;
    }
    *array = moved;
    *capacity = larger;
    return 0;
}

static int copy_text(trace_scan_text *to, text at, size_t length) {
    uint8_t *bytes = malloc(length + 1);
    if (!bytes) {
        return -1;
    }
    if (length) {
        memcpy(bytes, at, length);
    }
    to->at = bytes;
    to->length = length;
    return 0;
}

/* ---------------------------------------------------------------- tables of texts */

static uint64_t load8(text p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static uint64_t load_short(text p, size_t n) { /* n < 8 */
    uint64_t word = 0;
    for (size_t i = 0; i < n; i++) {
        word |= (uint64_t)p[i] << (8 * i);
    }
    return word;
}

static uint64_t mix(uint64_t h) {
    h ^= h >> 32;
    h *= 0x9E3779B97F4A7C15u;
    return h ^ (h >> 29);
}

static uint64_t hash_text(text p, size_t n, uint64_t seed) {
    uint64_t h = seed ^ (n * 0xFF51AFD7ED558CCDu);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        h = mix(h ^ load8(p + i));
    }
    if (i < n) {
        h = mix(h ^ (n >= 8 ? load8(p + n - 8) : load_short(p + i, n - i)));
    }
    return mix(h);
}

static size_t string_start(const string_table *t, size_t id) { return id ? t->ends[id - 1] : 0; }

static int rehash(string_table *t) {
    size_t size = t->entries ? (t->mask + 1) * 2 : 1024;
    string_entry *entries = calloc(size, sizeof *entries);
    if (!entries) {
        return -1;
    }
    for (size_t id = 0; id < t->count; id++) {
        size_t from = string_start(t, id);
        uint64_t hash = hash_text(t->bytes.bytes + from, t->ends[id] - from, t->seed);
        size_t i = hash & (size - 1);
        while (entries[i].id) {
            i = (i + 1) & (size - 1);
        }
        entries[i] = (string_entry){(uint32_t)(hash >> 32), (uint32_t)id + 1};
    }
    free(t->entries);
    t->entries = entries;
    t->mask = size - 1;
    return 0;
}

/* The entry of a text, or the free one where it would be; the table has entries. */
static size_t slot_of(const string_table *t, text p, size_t n, uint64_t hash) {
    size_t i = hash & t->mask;
    for (; t->entries[i].id; i = (i + 1) & t->mask) {
        if (t->entries[i].hash != (uint32_t)(hash >> 32)) {
            continue;
        }
        size_t id = t->entries[i].id - 1, from = string_start(t, id);
        if (t->ends[id] - from == n && (n == 0 || memcmp(t->bytes.bytes + from, p, n) == 0)) {
            break;
        }
    }
    return i;
}

/* The id of a text, or -1 if it has none. */
static int32_t known_id(const string_table *t, text p, size_t n) {
    return t->entries ? (int32_t)t->entries[slot_of(t, p, n, hash_text(p, n, t->seed))].id - 1 : -1;
}

/* The id of a text, or -1 without memory (also when 2^31 ids are used up). */
static int32_t intern(string_table *t, text p, size_t n) {
    if ((!t->entries || t->count * 2 > t->mask) && rehash(t)) {
        return -1;
    }
    uint64_t hash = hash_text(p, n, t->seed);
    size_t i = slot_of(t, p, n, hash);
    if (t->entries[i].id) {
        return (int32_t)t->entries[i].id - 1;
    }
    if (t->count >= INT32_MAX || grow((void **)&t->ends, t->count, &t->capacity, sizeof *t->ends) || append(&t->bytes, p, n)) {
        return -1;
    }
    t->ends[t->count] = t->bytes.length;
    t->entries[i] = (string_entry){(uint32_t)(hash >> 32), (uint32_t)t->count + 1};
    return (int32_t)t->count++;
}

static trace_scan_text string_at(const string_table *t, size_t id) {
    size_t from = string_start(t, id);
    return (trace_scan_text){t->bytes.bytes + from, t->ends[id] - from};
}

static void free_strings(string_table *t) {
    free(t->entries);
    free(t->bytes.bytes);
    free(t->ends);
}

/* The first eight bytes of a key, zeros behind a shorter one; there is text up to end. */
static uint64_t key_head(text key, size_t length, text end) {
    if (length >= 8) {
        return load8(key);
    }
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (end - key >= 8) {
        return load8(key) & (((uint64_t)1 << 8 * length) - 1);
    }
#else
    (void)end;
#endif
    return load_short(key, length);
}

static uint64_t key_tail(text key, size_t length) { return length > 8 ? load8(key + length - 8) : 0; }

static size_t hash_key(uint64_t head, uint64_t tail, size_t length) { return (size_t)mix(head ^ tail * 0xC4CEB9FE1A85EC53u ^ length); }

static int make_keys(key_table *t, size_t count) {
    size_t size = 16;
    while (size < count * 4) {
        size *= 2;
    }
    t->entries = calloc(size, sizeof *t->entries);
    t->mask = size - 1;
    return t->entries ? 0 : -1;
}

static int add_key(key_table *t, text key, size_t length, size_t number) {
    uint64_t head = key_head(key, length, key + length), tail = key_tail(key, length);
    size_t i = hash_key(head, tail, length) & t->mask;
    while (t->entries[i].key) {
        i = (i + 1) & t->mask;
    }
    trace_scan_text copy;
    if (copy_text(&copy, key, length)) {
        return -1;
    }
    t->entries[i] = (struct key_entry){(uint8_t *)copy.at, length, number, head, tail};
    return 0;
}

static const struct key_entry *find_key(const key_table *t, text key, size_t length, text end) {
    uint64_t head = key_head(key, length, end), tail = key_tail(key, length);
    for (size_t i = hash_key(head, tail, length) & t->mask; t->entries[i].key; i = (i + 1) & t->mask) {
        const struct key_entry *e = &t->entries[i];
        if (e->length == length && e->head == head && e->tail == tail && (length <= 16 || memcmp(e->key, key, length) == 0)) {
            return e;
        }
    }
    return NULL;
}

static void free_keys(key_table *t) {
    if (t->entries) {
        for (size_t i = 0; i <= t->mask; i++) {
            free(t->entries[i].key);
        }
    }
    free(t->entries);
}

/* ---------------------------------------------------------------- notes and defects */

static void note(trace_scan *s, enum defect code, text at) {
    if (s->note_count[code]++ == 0) {
        s->note_first[code] = at;
    }
    s->noted = 1;
}

static void forget_notes(trace_scan *s) {
    if (!s->noted) {
        return;
    }
    memset(s->note_count, 0, sizeof s->note_count);
    s->noted = 0;
}

static void defect(trace_scan *s, enum defect code, int64_t offset, text example, size_t length, int64_t count) {
    trace_scan_defect *d = &s->defects[code];
    if (d->count == 0) {
        d->first_offset = offset;
        d->example_length = length < TRACE_SCAN_EXAMPLE ? length : TRACE_SCAN_EXAMPLE;
        if (d->example_length) {
            memcpy(d->example, example, d->example_length);
        }
    }
    d->count += count;
}

static void defect_here(trace_scan *s, enum defect code, text at, text end) {
    defect(s, code, s->base + (at - s->start), at, (size_t)(end - at), 1);
}

static void commit_notes(trace_scan *s, text end) {
    if (!s->noted) {
        return;
    }
    for (int code = 0; code < DEFECTS; code++) {
        if (!s->note_count[code]) {
            continue;
        }
        text at = s->note_first[code];
        defect(s, code, s->base + (at - s->start), at, (size_t)(end - at), s->note_count[code]);
    }
    forget_notes(s);
}

static enum outcome broken(trace_scan *s, text at) {
    s->broken_at = at;
    s->broken_reason = DEFECTS;
    return BROKEN;
}

/* ---------------------------------------------------------------- strings */

static int is_white(uint8_t c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static text skip_white(text p, text end) {
    while (p < end && is_white(*p)) {
        p++;
    }
    return p;
}

/* The first quote or backslash at or after p, or end; *odd is set if a control character or a byte above 127 came before. */
static text find_quote(text p, text end, int *odd) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), space = _mm_set1_epi8(' ');
    while (end - p >= 16) {
        __m128i block = _mm_loadu_si128((const __m128i *)(const void *)p);
        unsigned found = (unsigned)_mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash)));
        unsigned strange = (unsigned)_mm_movemask_epi8(_mm_cmplt_epi8(block, space)); /* signed: bytes above 127 too */
        if (found) {
            unsigned first = (unsigned)__builtin_ctz(found);
            if (strange & ((1u << first) - 1)) {
                *odd = 1;
            }
            return p + first;
        }
        if (strange) {
            *odd = 1;
        }
        p += 16;
    }
#endif
    for (; p < end && *p != '"' && *p != '\\'; p++) {
        if (*p < 0x20 || *p >= 0x80) {
            *odd = 1;
        }
    }
    return p;
}

/* Length of the character at p, or of the longest start of one (Unicode 15, 3.9, "maximal subparts"); *valid says which. */
static size_t utf8_length(text p, text end, int *valid) {
    uint8_t c = *p;
    size_t length = c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    *valid = 0;
    if (c < 0xC2 || c > 0xF4) {
        return 1;
    }
    for (size_t i = 1; i < length; i++) {
        uint8_t from = i > 1 ? 0x80 : c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
        uint8_t to = i > 1 ? 0xBF : c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
        if (p + i >= end || p[i] < from || p[i] > to) {
            return i;
        }
    }
    *valid = 1;
    return length;
}

static size_t put_utf8(uint8_t *out, uint32_t c) {
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xC0 | c >> 6);
        out[1] = (uint8_t)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xE0 | c >> 12);
        out[1] = (uint8_t)(0x80 | (c >> 6 & 63));
        out[2] = (uint8_t)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | c >> 18);
    out[1] = (uint8_t)(0x80 | (c >> 12 & 63));
    out[2] = (uint8_t)(0x80 | (c >> 6 & 63));
    out[3] = (uint8_t)(0x80 | (c & 63));
    return 4;
}

static unsigned hex_digit(uint8_t c) { /* 16: none */
    if (c >= '0' && c <= '9') {
        return (unsigned)(c - '0');
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10) : 16;
}

static int hex4(text p, text end, uint32_t *unit) {
    if (end - p < 4) {
        return 0;
    }
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t digit = hex_digit(p[i]);
        if (digit > 15) {
            return 0;
        }
        result = result << 4 | digit;
    }
    *unit = result;
    return 1;
}

/* The repaired text of a string's inside into out (room for 3 bytes each), its length returned; or, with out NULL, the notes. */
static size_t decode_string(trace_scan *s, text p, size_t length, uint8_t *out) {
    text end = p + length;
    size_t n = 0;
    uint8_t character[4];
    while (p < end) {
        uint8_t c = *p;
        size_t size = 1, from = 1;
        character[0] = c;
        if (c >= 0x80) {
            int valid;
            from = utf8_length(p, end, &valid);
            if (valid) {
                size = from;
                memcpy(character, p, size);
            } else {
                size = put_utf8(character, 0xFFFD);
                if (!out) {
                    note(s, INVALID_UTF8, p);
                }
            }
        } else if (c == '\\') {
            uint8_t follows = p + 1 < end ? p[1] : 0;
            uint32_t unit, low;
            static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
            const char *letter = follows ? strchr(letters, follows) : NULL;
            if (letter) {
                character[0] = (uint8_t)meanings[letter - letters];
                from = 2;
            } else if (follows == 'u' && hex4(p + 2, end, &unit)) {
                from = 6;
                if (unit >= 0xD800 && unit < 0xDC00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u' && hex4(p + 8, end, &low) &&
                    low >= 0xDC00 && low < 0xE000) {
                    unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                    from = 12;
                }
                if (unit >= 0xD800 && unit < 0xE000) {
                    if (!out) {
                        note(s, LONE_SURROGATE, p);
                    }
                    unit = 0xFFFD;
                }
                size = put_utf8(character, unit);
            } else if (!out) {
                note(s, INVALID_ESCAPE, p);
            }
        } else if (!out && c == '"') {
            note(s, BARE_QUOTE, p);
        } else if (!out && c < 0x20) {
            note(s, CONTROL_CHARACTER, p);
        }
        if (out) {
            memcpy(out + n, character, size);
        }
        n += size;
        p += from;
    }
    return n;
}

/* The decoded text of a string that needs it, in b; -1 without memory. */
static int decode_into(trace_scan *s, buffer *b, text p, size_t length) {
    if (length > SIZE_MAX / 4 || reserve(b, length * 3 + 4)) {
        return -1;
    }
    b->length = decode_string(s, p, length, b->bytes);
    return 0;
}

/* Text as it stands, in b, with bad UTF-8 replaced. */
static int repair_utf8_into(buffer *b, text p, size_t length) {
    if (length > SIZE_MAX / 4 || reserve(b, length * 3 + 4)) {
        return -1;
    }
    text end = p + length;
    size_t n = 0;
    while (p < end) {
        int valid = 1;
        size_t from = *p < 0x80 ? 1 : utf8_length(p, end, &valid);
        if (valid) {
            memcpy(b->bytes + n, p, from);
            n += from;
        } else {
            n += put_utf8(b->bytes + n, 0xFFFD);
        }
        p += from;
    }
    b->length = n;
    return 0;
}

static const char *const event_keys[] = {"ph",  "cat", "name", "pid", "tid",  "ts",    "dur", "args", "id",
                                         "id2", "s",   "bp",   "tts", "tdur", "cname", "sf",  "scope"};

/* At most 64 white characters. */
static text skip_some_white(text p, text end) { return skip_white(p, end - p > 64 ? p + 64 : end); }

/* Whether p is at the quoted key of an event and its colon. */
static int is_event_key(text p, text end) {
    if (p >= end || *p != '"') {
        return 0;
    }
    p++;
    if (p >= end || *p < 'a' || *p > 't') {
        return 0; /* the usual bare quote */
    }
    for (size_t i = 0; i < sizeof event_keys / sizeof *event_keys; i++) {
        size_t n = strlen(event_keys[i]);
        if ((size_t)(end - p) <= n || memcmp(p, event_keys[i], n) != 0 || p[n] != '"') {
            continue;
        }
        text colon = skip_some_white(p + n + 1, end);
        return colon < end && *colon == ':';
    }
    return 0;
}

static int is_event_start(text p, text end) { return p < end && *p == '{' && is_event_key(skip_some_white(p + 1, end), end); }

static int is_text(text p, text end, const char *what) {
    size_t n = strlen(what);
    return (size_t)(end - p) >= n && memcmp(p, what, n) == 0;
}

/* Behind the bracket of `"traceEvents": [`, or NULL. */
static text behind_trace_events(text p, text end) {
    if (!is_text(p, end, "\"traceEvents\"")) {
        return NULL;
    }
    p = skip_some_white(p + 13, end);
    if (p >= end || *p != ':') {
        return NULL;
    }
    p = skip_some_white(p + 1, end);
    return p < end && *p == '[' ? p + 1 : NULL;
}

/* Whether p is at a bracket and an event that begins as the profiler writes it. */
static int is_event_array(text p, text end) {
    if (p >= end || *p != '[') {
        return 0;
    }
    p = skip_some_white(p + 1, end);
    if (p >= end || *p != '{') {
        return 0;
    }
    p = skip_some_white(p + 1, end);
    return is_text(p, end, "\"ph\"") && is_event_key(p, end);
}

/* The brace that opens an event right before the quote, inside a string that begins at from; or NULL. */
static text brace_before(text quote, text from) {
    text p = quote;
    while (p > from && quote - p < 64 && is_white(p[-1])) {
        p--;
    }
    return p > from && p[-1] == '{' ? p - 1 : NULL;
}

/* Whether a backslash and a quote, p behind them, end a string all the same: the next key follows. */
static int next_key_follows(text p, text end) {
    p = skip_some_white(p, end);
    if (p >= end || *p != ',') {
        return 0;
    }
    p = skip_some_white(p + 1, end);
    if (p >= end || *p != '"') {
        return 0;
    }
    p++;
    text after = skip_white(p, end);
    if (after < end && (*after == ',' || *after == '}' || *after == ']')) {
        return 0;
    }
    text from = p;
    while (p < end && p - from < 64 && *p >= 0x20 && *p != '"' && *p != '\\') {
        p++;
    }
    if (p == from || p >= end || *p != '"') {
        return 0;
    }
    p = skip_some_white(p + 1, end);
    return p < end && *p == ':';
}

/* Whether the quote ends a value string, by what follows it. DONE: yes; BROKEN: no, it is bare. */
static enum outcome ends_string(text quote, text end, int in_array, unsigned depth) {
    text p = skip_white(quote + 1, end);
    if (p >= end) {
        return NEED_MORE;
    }
    if (*p == ',') {
        if (in_array) {
            return DONE;
        }
        p = skip_white(p + 1, end);
        if (p >= end) {
            return NEED_MORE;
        }
        return *p == '"' || *p == '}' ? DONE : BROKEN;
    }
    if (*p != (in_array ? ']' : '}')) {
        return BROKEN;
    }
    if (depth < 2) {
        return DONE;
    }
    p = skip_white(p + 1, end);
    if (p >= end) {
        return NEED_MORE;
    }
    return *p == ',' || *p == '}' || *p == ']' ? DONE : BROKEN;
}

/* The value string at the quote *at. */
static enum outcome read_string(trace_scan *s, text *at, text end, int in_array, unsigned depth, value *v) {
    text from = *at + 1, p = from;
    int odd = 0;
    for (;;) {
        p = find_quote(p, end, &odd);
        if (p >= end) {
            return NEED_MORE;
        }
        if (*p == '"') {
            enum outcome ends = ends_string(p, end, in_array, depth);
            if (ends == NEED_MORE) {
                return NEED_MORE;
            }
            if (ends == DONE) {
                break;
            }
            odd = 1;
            if (is_event_key(p, end)) {
                text brace = brace_before(p, from);
                if (brace) {
                    return broken(s, brace);
                }
            }
            p++;
        } else {
            odd = 1;
            if (p + 1 >= end) {
                return NEED_MORE;
            }
            if (p[1] == '"' && next_key_follows(p + 2, end)) {
                p++;
                break;
            }
            p += 2;
            if (p > end) {
                return NEED_MORE;
            }
        }
    }
    v->kind = odd ? RAW_STRING : PLAIN_STRING;
    v->at = from;
    v->length = (size_t)(p - from);
    if (odd) {
        decode_string(s, from, v->length, NULL);
    }
    *at = p + 1;
    return DONE;
}

/* The inside of a string that ends at its first unescaped quote; *at behind the quote. */
static enum outcome read_simple_string(text *at, text end, value *v) {
    text from = *at + 1, p = from;
    int odd = 0;
    for (;;) {
        p = find_quote(p, end, &odd);
        if (p >= end) {
            return NEED_MORE;
        }
        if (*p == '"') {
            break;
        }
        odd = 1;
        if (end - p < 2) {
            return NEED_MORE;
        }
        p += 2;
    }
    v->kind = odd ? RAW_STRING : PLAIN_STRING;
    v->at = from;
    v->length = (size_t)(p - from);
    *at = p + 1;
    return DONE;
}

/* The key at the quote *at and its colon; a decoded key stands in s->scratch. */
static enum outcome read_key(trace_scan *s, text *at, text end, value *key) {
    enum outcome o = read_simple_string(at, end, key);
    if (o != DONE) {
        return o;
    }
    text quote = *at - 1, colon = skip_white(*at, end);
    if (colon >= end) {
        return NEED_MORE;
    }
    if (*colon != ':') {
        return broken(s, quote);
    }
    *at = colon + 1;
    if (key->kind == RAW_STRING) {
        decode_string(s, key->at, key->length, NULL);
        if (decode_into(s, &s->scratch, key->at, key->length)) {
            return NO_MEMORY;
        }
        key->at = s->scratch.bytes;
        key->length = s->scratch.length;
    }
    return DONE;
}

/* ---------------------------------------------------------------- numbers */

static int is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

static int is_number(text p, text end) {
    if (p < end && (*p == '+' || *p == '-')) {
        p++;
    }
    text whole = p;
    while (p < end && is_digit(*p)) {
        p++;
    }
    int digits = p > whole;
    if (p < end && *p == '.') {
        text fraction = ++p;
        while (p < end && is_digit(*p)) {
            p++;
        }
        if (!digits && p == fraction) {
            return 0;
        }
    } else if (!digits) {
        return 0;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) {
            p++;
        }
        text exponent = p;
        while (p < end && is_digit(*p)) {
            p++;
        }
        if (p == exponent) {
            return 0;
        }
    }
    return p == end;
}

/* A number's text times 10^decimals, cut towards zero; 0 if that does not fit int64. */
static int scale_number(text p, text end, int decimals, int64_t *result) {
    static const int64_t powers[] = {1, 10, 100, 1000};
    int negative = *p == '-';
    if (*p == '+' || *p == '-') {
        p++;
    }
    text q = p; /* the usual case: at most 18 digits, which fit for certain, no exponent */
    int64_t whole = 0;
    while (q < end && q - p < 18 && is_digit(*q)) {
        whole = whole * 10 + (*q++ - '0');
    }
    if (q - p + decimals <= 18) {
        int left = decimals;
        if (q < end && *q == '.') {
            q++;
            while (q < end && is_digit(*q) && left > 0) {
                whole = whole * 10 + (*q++ - '0'), left--;
            }
            while (q < end && is_digit(*q)) {
                q++;
            }
        }
        if (q == end) {
            whole *= powers[left];
            *result = negative ? -whole : whole;
            return 1;
        }
    }
    uint8_t digits[20]; /* the first ones that count */
    int64_t count = 0, fraction = 0, power = 0;
    int in_fraction = 0;
    for (; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            in_fraction = 1;
            continue;
        }
        fraction += in_fraction;
        if (count == 0 && *p == '0') {
            continue;
        }
        if (count < 20) {
            digits[count] = (uint8_t)(*p - '0');
        }
        count++;
    }
    if (count == 0) {
        *result = 0;
        return 1;
    }
    if (p < end) {
        p++;
        int down = *p == '-';
        if (*p == '+' || *p == '-') {
            p++;
        }
        for (; p < end; p++) {
            power = power < 1000000000 ? power * 10 + (*p - '0') : power;
        }
        if (power > 1000000000) {
            power = 1000000000;
        }
        if (down) {
            power = -power;
        }
    }
    int64_t point = count - fraction + power + decimals; /* digits before the decimal point */
    uint64_t number = 0;
    if (point > 19) {
        return 0;
    }
    for (int64_t i = 0; i < point; i++) {
        number = number * 10 + (i < count ? digits[i] : 0);
    }
    if (number > INT64_MAX) {
        return 0;
    }
    *result = negative ? -(int64_t)number : (int64_t)number;
    return 1;
}

static void strip(text *p, text *end) {
    while (*p < *end && is_white(**p)) {
        ++*p;
    }
    while (*p < *end && is_white((*end)[-1])) {
        --*end;
    }
}

enum numeric { NOT_NUMERIC, NUMERIC, OUT_OF_RANGE };

/* The number a string stands for: decimal, or hexadecimal if allowed. */
static enum numeric number_of_text(text p, text end, int decimals, int hexadecimal, int64_t *result) {
    strip(&p, &end);
    if (p == end) {
        return NOT_NUMERIC;
    }
    if (is_number(p, end)) {
        return scale_number(p, end, decimals, result) ? NUMERIC : OUT_OF_RANGE;
    }
    if (!hexadecimal || end - p < 3 || *p != '0' || (p[1] != 'x' && p[1] != 'X')) {
        return NOT_NUMERIC;
    }
    uint64_t number = 0;
    int too_large = 0;
    for (p += 2; p < end; p++) {
        unsigned digit = hex_digit(*p);
        if (digit > 15) {
            return NOT_NUMERIC;
        }
        if (number >> 60) {
            too_large = 1;
        }
        number = number << 4 | digit;
    }
    if (too_large || number > INT64_MAX) {
        return OUT_OF_RANGE;
    }
    *result = (int64_t)number;
    return NUMERIC;
}

/* ---------------------------------------------------------------- values */

/* A number, true, false or null at *at; anything else printable is null with a note. */
static enum outcome read_word(trace_scan *s, text *at, text end, value *v) {
    text from = *at, p = from;
    while (p < end && is_digit(*p)) {
        p++;
    }
    int simple = p > from; /* a number without sign and exponent */
    if (simple && p < end && *p == '.') {
        do {
            p++;
        } while (p < end && is_digit(*p));
    }
    if (p < end && *p != ',' && *p != '}' && *p != ']' && !is_white(*p)) {
        simple = 0;
        while (p < end && *p > ' ' && *p < 0x7F && *p != ',' && *p != ':' && *p != '[' && *p != ']' && *p != '{' && *p != '}' &&
               *p != '"') {
            p++;
        }
    }
    if (p >= end) {
        return NEED_MORE;
    }
    if (p == from || (!is_white(*p) && (*p < 0x20 || *p >= 0x7F))) {
        return broken(s, p);
    }
    size_t n = (size_t)(p - from);
    v->at = from;
    v->length = n;
    if (simple || is_number(from, p)) {
        v->kind = NUMBER;
    } else if (n == 4 && memcmp(from, "true", 4) == 0) {
        v->kind = TRUE_VALUE;
    } else if (n == 5 && memcmp(from, "false", 5) == 0) {
        v->kind = FALSE_VALUE;
    } else {
        v->kind = NULL_VALUE;
        if (n != 4 || memcmp(from, "null", 4) != 0) {
            note(s, BARE_WORD, from);
        }
    }
    *at = p;
    return DONE;
}

/* The value at or after *at. With event set, the members of the object and of its args go to s->field and s->args. */
static enum outcome read_value(trace_scan *s, text *at, text end, int event) {
    enum { VALUE, FIRST_KEY, KEY, FIRST_ELEMENT, ELEMENT, AFTER } expect = VALUE;
    text p = *at;
    unsigned depth = 0;
    int in_args = 0;
    value ignored, *target = &ignored; /* where the next value goes */
    value *container[3] = {&ignored, &ignored, &ignored}; /* where the array or object opened at this depth goes */
    value *element = NULL; /* where the next element of an argument goes ... */
    int elements_left = 0; /* ... of three */
    for (;;) {
        p = skip_white(p, end);
        if (p >= end) {
            return NEED_MORE;
        }
        uint8_t c = *p;
        enum outcome o;
        if (expect == FIRST_KEY || expect == KEY) {
            if (c == '"') {
                value key;
                if ((o = read_key(s, &p, end, &key)) != DONE) {
                    return o;
                }
                target = &ignored;
                if (event && depth <= 2) {
                    const struct key_entry *found = NULL;
                    text key_end = key.kind == RAW_STRING ? key.at + key.length : end; /* decoded: not in the text */
                    if (depth == 1) {
                        found = find_key(&s->fields, key.at, key.length, key_end);
                        in_args = found && found->number == ARGS;
                        if (found && !in_args) {
                            target = &s->field[found->number];
                        }
                    } else if (in_args) {
                        found = find_key(&s->keys, key.at, key.length, key_end);
                        if (found) {
                            target = &s->args[found->number];
                        }
                    }
                }
                expect = VALUE;
            } else if (c == '}') {
                if (expect == KEY) {
                    note(s, TRAILING_COMMA, p);
                }
                expect = AFTER;
            } else if (c == ',') {
                note(s, TRAILING_COMMA, p);
                expect = KEY;
                p++;
            } else {
                return broken(s, p);
            }
            continue;
        }
        if (expect == AFTER) {
            int in_array = s->stack[depth - 1] == '[';
            if (c == ',') {
                expect = in_array ? ELEMENT : KEY;
                p++;
                continue;
            }
            if (c != (in_array ? ']' : '}')) {
                return broken(s, p);
            }
            p++;
            depth--;
            if (depth < 3 && container[depth] != &ignored) {
                container[depth]->length = (size_t)(p - container[depth]->at);
            }
        } else if (c == ']' && (expect == FIRST_ELEMENT || expect == ELEMENT)) {
            if (expect == ELEMENT) {
                note(s, TRAILING_COMMA, p);
            }
            expect = AFTER;
            continue;
        } else {
            if (expect != VALUE) {
                target = depth == 3 && elements_left ? element++ : &ignored;
                elements_left -= target != &ignored;
            }
            if (c == '{' || c == '[') {
                if (depth >= s->depth_limit) {
                    s->broken_at = p;
                    s->broken_reason = TOO_DEEP;
                    return BROKEN;
                }
                target->kind = c == '{' ? OBJECT : ARRAY;
                target->at = p;
                if (depth < 3) {
                    container[depth] = target;
                }
                if (depth == 2) {
                    elements_left = 0;
                    if (c == '[' && target != &ignored) {
                        element = &s->elements[3 * (target - s->args)];
                        element[0].kind = element[1].kind = element[2].kind = ABSENT;
                        elements_left = 3;
                    }
                }
                target = &ignored;
                s->stack[depth++] = c;
                expect = c == '{' ? FIRST_KEY : FIRST_ELEMENT;
                p++;
                continue;
            }
            if (c == '"') {
                int in_array = depth && s->stack[depth - 1] == '[';
                if ((o = read_string(s, &p, end, in_array, depth, target)) != DONE) {
                    return o;
                }
            } else if (c == ',' || c == '}' || c == ']') {
                note(s, EMPTY_VALUE, p);
                target->kind = NULL_VALUE;
            } else {
                if ((o = read_word(s, &p, end, target)) != DONE) {
                    return o;
                }
            }
        }
        if (depth == 0) {
            *at = p;
            return DONE;
        }
        expect = AFTER;
    }
}

/* ---------------------------------------------------------------- rows */

static int reserve_row(trace_scan_table *t) {
    if (t->rows < t->capacity) {
        return 0;
    }
    size_t capacity = t->capacity ? t->capacity * 2 : 1024;
    for (size_t i = 0; i < t->column_count; i++) {
        void *values = realloc(t->columns[i].values, capacity * t->columns[i].width);
        if (!values) {
            return -1;
        }
        t->columns[i].values = values;
    }
    t->capacity = capacity;
    return 0;
}

/* The text of a value; 0: it has none, -1: no memory. */
static int text_of(trace_scan *s, const value *v, buffer *b, trace_scan_text *out) {
    switch (v->kind) {
    case NUMBER:
    case PLAIN_STRING: *out = (trace_scan_text){v->at, v->length}; return 1;
    case TRUE_VALUE: *out = (trace_scan_text){(text) "true", 4}; return 1;
    case FALSE_VALUE: *out = (trace_scan_text){(text) "false", 5}; return 1;
    case RAW_STRING:
        if (decode_into(s, b, v->at, v->length)) {
            return -1;
        }
        break;
    case OBJECT:
    case ARRAY:
        if (repair_utf8_into(b, v->at, v->length)) {
            return -1;
        }
        break;
    default: return 0;
    }
    *out = (trace_scan_text){b->bytes, b->length};
    return 1;
}

static uint32_t crc32_of(text p, size_t n) {
    static const uint32_t nibble[16] = {
        0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u, 0x4DB26158u, 0x5005713Cu,
        0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu, 0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu,
    };
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return ~crc;
}

/* Cuts a text of valid UTF-8 that is too long, as cut_bytes of ingest/limits.py does; the result is in b. 1: it was cut, -1: no memory. */
static int cut_text(const trace_scan *s, trace_scan_text *t, buffer *b) {
    enum { MARK = 64 };
    if (t->length <= s->text_limit) {
        return 0;
    }
    size_t end = s->text_limit > MARK ? s->text_limit - MARK : 0;
    while (end && (t->at[end] & 0xC0) == 0x80) {
        end--;
    }
    char mark[MARK];
    int length = snprintf(mark, sizeof mark, "\xE2\x80\xA6 [%zu bytes, %08x]", t->length, (unsigned)crc32_of(t->at, t->length));
    b->length = 0;
    if (append(b, t->at, end) || append(b, mark, (size_t)length)) {
        return -1;
    }
    *t = (trace_scan_text){b->bytes, b->length};
    return 1;
}

static int is_full(const trace_scan *s, const string_table *t, size_t more) {
    return t->count >= s->string_limit || more > s->total_limit || t->bytes.length > s->total_limit - more;
}

/* Id of a text: one that is too long is cut, and when the table is full, new ones are one text. -1, *failed: no memory. */
static int32_t intern_text(trace_scan *s, trace_scan_text t, text at, int *failed) {
    static const char left_out[] = "(names beyond the limit)";
    int was_cut = cut_text(s, &t, &s->cut);
    if (was_cut > 0) {
        note(s, TEXT_CUT, at);
    }
    int32_t id = was_cut < 0 ? -1 : known_id(&s->strings, t.at, t.length);
    if (id < 0 && was_cut >= 0) {
        if (is_full(s, &s->strings, t.length)) {
            note(s, TEXT_LEFT_OUT, at);
            t = (trace_scan_text){(text)left_out, sizeof left_out - 1};
        }
        id = intern(&s->strings, t.at, t.length);
    }
    if (id < 0) {
        *failed = 1;
    }
    return id;
}

/* Id of a value's text, -1: it has none; *failed: no memory. */
static int32_t text_id(trace_scan *s, const value *v, text at, int *failed) {
    trace_scan_text t;
    int has = text_of(s, v, &s->scratch, &t);
    if (has < 0) {
        *failed = 1;
    }
    return has > 0 ? intern_text(s, t, at, failed) : -1;
}

/* The number of a text, or missing; a note if it is out of range. */
static int64_t checked_number(trace_scan *s, const value *v, trace_scan_text t, int decimals, int hexadecimal, text at) {
    int64_t number = 0;
    enum numeric n;
    if (v->kind == NUMBER) {
        n = scale_number(t.at, t.at + t.length, decimals, &number) ? NUMERIC : OUT_OF_RANGE;
    } else {
        n = number_of_text(t.at, t.at + t.length, decimals, hexadecimal, &number);
    }
    if (n == OUT_OF_RANGE) {
        note(s, NUMBER_OUT_OF_RANGE, at);
    }
    return n == NUMERIC ? number : TRACE_SCAN_MISSING;
}

static int64_t int_of(trace_scan *s, const value *v, text at, int *failed) {
    trace_scan_text t;
    switch (v->kind) {
    case TRUE_VALUE: return 1;
    case FALSE_VALUE: return 0;
    case NUMBER:
    case PLAIN_STRING:
    case RAW_STRING:
        if (text_of(s, v, &s->scratch, &t) >= 0) {
            return checked_number(s, v, t, 0, 1, at);
        }
        *failed = 1;
        return TRACE_SCAN_MISSING;
    default: return TRACE_SCAN_MISSING;
    }
}

static int64_t time_of(trace_scan *s, const value *v, text at, int *failed) {
    trace_scan_text t;
    if (v->kind != NUMBER && v->kind != PLAIN_STRING && v->kind != RAW_STRING) {
        return TRACE_SCAN_MISSING;
    }
    if (text_of(s, v, &s->scratch, &t) >= 0) {
        return checked_number(s, v, t, 3, 0, at);
    }
    *failed = 1;
    return TRACE_SCAN_MISSING;
}

/* A pid or tid: its number, or what stands for its text. */
static int64_t id_of(trace_scan *s, const value *v, text at, int *failed) {
    if (v->kind == NUMBER) {
        return int_of(s, v, at, failed);
    }
    if (v->kind != PLAIN_STRING && v->kind != RAW_STRING) {
        return TRACE_SCAN_MISSING;
    }
    int64_t number = 0;
    trace_scan_text t;
    if (text_of(s, v, &s->scratch, &t) < 0) {
        *failed = 1;
        return TRACE_SCAN_MISSING;
    }
    if (number_of_text(t.at, t.at + t.length, 0, 1, &number) == NUMERIC) {
        return number;
    }
    return -((int64_t)1 << 62) - intern_text(s, t, at, failed);
}

/* Counts an event of a phase and a category; when the table is full, those of a new pair by their phase alone. */
static int count_event(trace_scan *s, trace_scan_text phase, trace_scan_text category) {
    uint8_t small[256];
    if (cut_text(s, &phase, &s->cut) < 0 || cut_text(s, &category, &s->cut_category) < 0) {
        return -1;
    }
    uint32_t length = (uint32_t)phase.length;
    size_t n = sizeof length + phase.length + category.length;
    uint8_t *key = n <= sizeof small ? small : malloc(n);
    if (!key) {
        return -1;
    }
    memcpy(key, &length, sizeof length);
    memcpy(key + sizeof length, phase.at, phase.length);
    if (category.length) {
        memcpy(key + sizeof length + phase.length, category.at, category.length);
    }
    int32_t id = known_id(&s->counted, key, n);
    if (id < 0 && is_full(s, &s->counted, n)) {
        length = phase.length == 1;
        memcpy(key, &length, sizeof length);
        n = sizeof length + length;
    }
    if (id < 0) {
        id = intern(&s->counted, key, n);
    }
    if (key != small) {
        free(key);
    }
    if (id < 0) {
        return -1;
    }
    size_t before = s->counts_capacity;
    if (grow((void **)&s->counts, (size_t)id, &s->counts_capacity, sizeof *s->counts)) {
        return -1;
    }
    if (s->counts_capacity > before) {
        memset(s->counts + before, 0, (s->counts_capacity - before) * sizeof *s->counts);
    }
    s->counts[id]++;
    return 0;
}

static int is_wide(const trace_scan *s, trace_scan_text category) {
    for (size_t i = 0; i < s->wide_category_count; i++) {
        if (s->wide_categories[i].length == category.length && memcmp(s->wide_categories[i].bytes, category.at, category.length) == 0) {
            return 1;
        }
    }
    return 0;
}

#define METADATA_BYTES 64 /* what an M event takes in addition to its text */

/* Puts the event that has been read into the columns; -1 without memory. */
static int commit_event(trace_scan *s, text start, text end) {
    trace_scan_text phase, category = {(text) "", 0};
    const value *ph = &s->field[PHASE];
    buffer phase_text = {0};
    if (ph->kind == PLAIN_STRING) {
        phase = (trace_scan_text){ph->at, ph->length};
    } else if (ph->kind == RAW_STRING) {
        if (decode_into(s, &phase_text, ph->at, ph->length)) {
            return -1;
        }
        phase = (trace_scan_text){phase_text.bytes, phase_text.length};
    } else {
        note(s, NO_PHASE, start);
        return 0;
    }
    uint8_t letter = phase.length == 1 ? phase.at[0] : 0;
    int has_category = text_of(s, &s->field[CATEGORY], &s->category_scratch, &category);
    int failed = has_category < 0 || count_event(s, phase, category);
    free(phase_text.bytes);
    if (failed) {
        return -1;
    }
    if (letter == 'M' && s->metadata_bytes + (size_t)(end - start) + METADATA_BYTES > s->member_limit) {
        note(s, METADATA_LEFT_OUT, start);
    } else if (letter == 'M') {
        s->metadata_bytes += (size_t)(end - start) + METADATA_BYTES;
        if (grow((void **)&s->metadata, s->metadata_count, &s->metadata_capacity, sizeof *s->metadata)) {
            return -1;
        }
        trace_scan_metadata *m = &s->metadata[s->metadata_count];
        m->before = s->event_count;
        if (copy_text(&m->raw, start, (size_t)(end - start))) {
            return -1;
        }
        s->metadata_count++;
    }
    int instant = letter == 'i';
    if (!instant && letter != 'X' && letter != 'B' && letter != 'E') {
        return 0;
    }
    int wide = has_category && is_wide(s, category);
    if (instant && !wide) {
        return 0;
    }
    int64_t time = time_of(s, &s->field[TIME], start, &failed);
    if (failed) {
        return -1;
    }
    if (time == TRACE_SCAN_MISSING) {
        if (!instant) {
            note(s, NO_TIMESTAMP, start);
        }
        return 0;
    }
    trace_scan_table *t = wide ? &s->wide : &s->events;
    if (reserve_row(t)) {
        return -1;
    }
    size_t row = t->rows, column = 0;
#define PUT(type, what) (((type *)t->columns[column].values)[row] = (what), column++)
    PUT(int64_t, s->event_count);
    PUT(uint8_t, letter);
    int32_t category_id = has_category ? intern_text(s, category, start, &failed) : -1;
    PUT(int32_t, category_id);
    PUT(int32_t, text_id(s, &s->field[NAME], start, &failed));
    PUT(int64_t, id_of(s, &s->field[PID], start, &failed));
    PUT(int64_t, id_of(s, &s->field[TID], start, &failed));
    PUT(int64_t, time);
    PUT(int64_t, time_of(s, &s->field[DURATION], start, &failed));
    for (size_t i = 0; i < (wide ? s->all : s->narrow); i++) {
        const value *v = &s->args[i];
        if (s->kinds[i] == TRACE_SCAN_INT) {
            PUT(int64_t, int_of(s, v, start, &failed));
        } else if (s->kinds[i] == TRACE_SCAN_TEXT) {
            PUT(int32_t, text_id(s, v, start, &failed));
        } else {
            for (int n = 0; n < 3; n++) {
                PUT(int64_t, v->kind == ARRAY ? int_of(s, &s->elements[3 * i + n], start, &failed) : TRACE_SCAN_MISSING);
            }
        }
    }
#undef PUT
    if (failed) {
        return -1;
    }
    t->rows++;
    s->event_count++;
    return 0;
}

/* ---------------------------------------------------------------- the course of the document */

/* Each of these reads one thing at *at and moves behind it (1), or needs more text and changes nothing (0). */

/* Text from start on is lost; look for the next start of an event from *at on. */
static int lose(trace_scan *s, text start, text *at, enum defect kind, enum defect reason) {
    forget_notes(s);
    s->lost_from = s->base + (start - s->start);
    s->lost_kind = kind;
    size_t length = (size_t)((*at > start ? *at : start + 1) - start);
    s->lost_example_length = length < TRACE_SCAN_EXAMPLE ? length : TRACE_SCAN_EXAMPLE;
    memcpy(s->lost_example, start, s->lost_example_length);
    if (reason != DEFECTS) {
        defect(s, reason, s->lost_from, s->lost_example, s->lost_example_length, 1);
    }
    s->state = LOST;
    return 1;
}

static void enter_array(trace_scan *s) {
    s->after_element = s->after_comma = 0;
    s->state = IN_ARRAY;
}

/* Longest text that tells the start of an event or of the array of events: 143 bytes, and some. */
#define RESTART_LONGEST 160

static int resynchronise(trace_scan *s, text *at) {
    text p = *at, behind = NULL;
    for (; p < s->end; p++) {
        if (*p == '{' ? is_event_start(p, s->end) : *p == '"' && (behind = behind_trace_events(p, s->end)) != NULL) {
            break;
        }
    }
    if (p >= s->end && !s->final) {
        if (s->end - *at <= RESTART_LONGEST) {
            return 0;
        }
        *at = s->end - RESTART_LONGEST;
        return 1;
    }
    int64_t lost = s->base + (p - s->start) - s->lost_from;
    enum defect kind = s->lost_kind == LOST_EVENT && p >= s->end && !s->anything ? NOT_JSON : s->lost_kind;
    if (kind != BROKEN_MEMBER) {
        defect(s, kind, s->lost_from, s->lost_example, s->lost_example_length, kind != TRAILING_GARBAGE ? 1 : lost ? lost : 1);
    }
    if (kind == LOST_EVENT || kind == BROKEN_MEMBER) {
        defect(s, LOST_BYTES, s->lost_from, s->lost_example, s->lost_example_length, lost);
    }
    if (p >= s->end) {
        s->state = AT_END;
    } else {
        enter_array(s);
    }
    *at = behind ? behind : p;
    return 1;
}

/* The unit from start on is longer than the text that is there. */
static int cut(trace_scan *s, text start, size_t limit, text *at) {
    if ((size_t)(s->end - start) >= limit) {
        *at = start + limit;
        return lose(s, start, at, LOST_EVENT, TOO_LONG);
    }
    forget_notes(s);
    if (s->final) {
        defect_here(s, TRUNCATED, start, s->end);
        defect(s, LOST_BYTES, s->base + (start - s->start), start, (size_t)(s->end - start), s->end - start);
        s->state = AT_END;
    }
    return 0;
}

static int no_memory(trace_scan *s) {
    s->no_memory = 1;
    return 0;
}

static int add_member(trace_scan *s, const value *key, text from, text to, int is_broken) {
    if (grow((void **)&s->members, s->member_count, &s->member_capacity, sizeof *s->members)) {
        return -1;
    }
    trace_scan_member *m = &s->members[s->member_count];
    if (copy_text(&m->key, key->at, key->length)) {
        return -1;
    }
    if (copy_text(&m->raw, from, (size_t)(to - from))) {
        free((void *)m->key.at);
        return -1;
    }
    m->broken = is_broken;
    s->member_count++;
    return 0;
}

static int member(trace_scan *s, text *at) {
    text start = *at, p = start;
    text end = (size_t)(s->end - start) > s->member_limit ? start + s->member_limit : s->end;
    forget_notes(s);
    if (s->after_element) {
        note(s, MISSING_COMMA, start);
    }
    value key;
    enum outcome o = read_key(s, &p, end, &key);
    if (o == DONE && (p = skip_white(p, end)) >= end) {
        o = NEED_MORE;
    }
    if (o == NEED_MORE) {
        return cut(s, start, s->member_limit, at);
    }
    if (o == NO_MEMORY) {
        return no_memory(s);
    }
    if (o == BROKEN) {
        *at = s->broken_at;
        return lose(s, start, at, LOST_EVENT, s->broken_reason);
    }
    int trace_events = key.length == 11 && memcmp(key.at, "traceEvents", 11) == 0;
    if (!trace_events && *p == '[' && !s->final && s->end - p < 2 * RESTART_LONGEST) {
        return 0;
    }
    if (*p == '[' && (trace_events || is_event_array(p, s->end))) {
        commit_notes(s, p);
        if (!trace_events) {
            defect_here(s, BROKEN_MEMBER, start, p); /* its key was damaged */
        }
        enter_array(s);
        *at = p + 1;
        return 1;
    }
    /* a decoded key must outlive the reading of the value */
    buffer name = {0};
    if (append(&name, key.at, key.length)) {
        return no_memory(s);
    }
    key.at = name.bytes;
    text from = p;
    int result = 1, failed = 0;
    o = read_value(s, &p, end, 0);
    if (o == NEED_MORE) {
        if (s->final || (size_t)(s->end - start) >= s->member_limit) {
            failed = add_member(s, &key, from, end, 1);
            defect_here(s, BROKEN_MEMBER, start, end);
        }
        result = cut(s, start, s->member_limit, at);
    } else if (o == BROKEN) {
        failed = add_member(s, &key, from, s->broken_at, 1);
        defect_here(s, BROKEN_MEMBER, start, s->broken_at);
        *at = s->broken_at;
        lose(s, start, at, BROKEN_MEMBER, s->broken_reason);
    } else if (o == NO_MEMORY) {
        failed = 1;
    } else {
        commit_notes(s, p);
        s->member_bytes += (size_t)(p - from);
        if (trace_events || s->member_bytes > s->member_limit) {
            defect_here(s, BROKEN_MEMBER, start, p);
        } else {
            failed = add_member(s, &key, from, p, 0);
        }
        s->anything = 1;
        s->after_element = 1;
        s->after_comma = 0;
        *at = p;
    }
    free(name.bytes);
    return failed ? no_memory(s) : result;
}

static int element(trace_scan *s, text *at) {
    text start = *at, p = start;
    text end = (size_t)(s->end - start) > s->event_limit ? start + s->event_limit : s->end;
    forget_notes(s);
    if (s->after_element) {
        note(s, MISSING_COMMA, start);
    }
    enum outcome o;
    if (*start == '{') {
        for (int i = 0; i < FIELDS; i++) {
            s->field[i].kind = ABSENT;
        }
        for (size_t i = 0; i < s->all; i++) {
            s->args[i].kind = ABSENT;
        }
        o = read_value(s, &p, end, 1);
        if (o == DONE && commit_event(s, start, p)) {
            o = NO_MEMORY;
        }
    } else {
        value v;
        if (*start == '"') {
            o = read_simple_string(&p, end, &v);
            if (o == DONE) {
                text follows = skip_white(p, end);
                if (follows >= end) {
                    o = NEED_MORE;
                } else if (*follows != ',' && *follows != ']') {
                    o = broken(s, follows);
                } else if (v.kind == RAW_STRING) {
                    decode_string(s, v.at, v.length, NULL);
                }
            }
        } else if (*start == '[') {
            o = read_value(s, &p, end, 0);
        } else {
            o = read_word(s, &p, end, &v);
            if (o == DONE && s->note_count[BARE_WORD]) {
                o = broken(s, start);
            }
        }
        if (o == DONE) {
            note(s, NOT_AN_EVENT, start);
        }
    }
    if (o == NEED_MORE) {
        return cut(s, start, s->event_limit, at);
    }
    if (o == NO_MEMORY) {
        return no_memory(s);
    }
    if (o == BROKEN) {
        *at = s->broken_at;
        return lose(s, start, at, LOST_EVENT, s->broken_reason);
    }
    commit_notes(s, p);
    s->anything = 1;
    s->after_element = 1;
    s->after_comma = 0;
    *at = p;
    return 1;
}

static int at_start(trace_scan *s, text *at) {
    text p = *at;
    if (s->base + (p - s->start) == 0) {
        if (!s->final && s->end - p < 3) {
            return 0;
        }
        if (is_text(p, s->end, "\xEF\xBB\xBF")) {
            *at = p + 3;
            return 1;
        }
    }
    p = skip_white(p, s->end);
    if (p >= s->end) {
        if (p > *at) {
            *at = p;
            return 1;
        }
        if (s->final) {
            defect(s, EMPTY, 0, NULL, 0, 1);
            s->state = AT_END;
        }
        return 0;
    }
    if (*p != '{' && *p != '[') {
        *at = p;
        return lose(s, p, at, LOST_EVENT, DEFECTS);
    }
    if (*p == '{') {
        if (!s->final && s->end - p < RESTART_LONGEST) {
            return 0;
        }
        text key = skip_some_white(p + 1, s->end);
        if (!is_text(key, s->end, "\"ph\"") || !is_event_key(key, s->end)) {
            s->root = '{';
            s->after_element = s->after_comma = 0;
            s->state = IN_OBJECT;
            *at = p + 1;
            return 1;
        }
    }
    s->root = '[';
    enter_array(s);
    *at = p + (*p == '[');
    return 1;
}

static int comma(trace_scan *s, text p, text *at) {
    if (!s->after_element) {
        defect_here(s, TRAILING_COMMA, p, p + 1);
    }
    s->after_element = 0;
    s->after_comma = 1;
    *at = p + 1;
    return 1;
}

static int in_array_or_object(trace_scan *s, text *at) {
    text p = skip_white(*at, s->end);
    if (p >= s->end) {
        if (s->final) {
            if (s->state != AT_TAIL && s->root == '{') {
                defect_here(s, TRUNCATED, p, p);
            }
            s->state = AT_END;
        }
        if (p == *at) {
            return 0;
        }
        *at = p;
        return 1;
    }
    if (s->state == AT_TAIL) {
        *at = p;
        return lose(s, p, at, TRAILING_GARBAGE, DEFECTS);
    }
    if (*p == ',') {
        return comma(s, p, at);
    }
    int array = s->state == IN_ARRAY;
    if (*p != (array ? ']' : '}')) {
        *at = p;
        if (array) {
            return element(s, at);
        }
        return *p == '"' ? member(s, at) : lose(s, p, at, LOST_EVENT, DEFECTS);
    }
    if (s->after_comma) {
        defect_here(s, TRAILING_COMMA, p, p + 1);
    }
    if (array && s->root != '[') {
        s->state = IN_OBJECT;
        s->after_element = 1;
        s->after_comma = 0;
    } else {
        s->state = AT_TAIL;
    }
    *at = p + 1;
    return 1;
}

/* Scans text as far as it goes; returns how many bytes are done with. */
static size_t scan(trace_scan *s, text start, size_t length) {
    s->start = start;
    s->end = start + length;
    text p = start;
    int more = 1;
    while (more && !s->no_memory) {
        switch (s->state) {
        case AT_START: more = at_start(s, &p); break;
        case LOST: more = resynchronise(s, &p); break;
        case AT_END:
            p = s->end;
            more = 0;
            break;
        default: more = in_array_or_object(s, &p);
        }
    }
    forget_notes(s); /* they point into the text */
    s->base += p - start;
    return (size_t)(p - start);
}

static int keep(trace_scan *s, text rest, size_t length) {
    s->carry.length = 0;
    if (append(&s->carry, rest, length)) {
        return -1;
    }
    s->retry_at = length + length / 2; /* so that a unit cut into many chunks is not read again for each */
    return 0;
}

int trace_scan_feed(trace_scan *s, const uint8_t *data, size_t length) {
    enum { TOP_UP = 4096 };
    while (length) {
        if (s->carry.length == 0) {
            size_t done = scan(s, data, length);
            return s->no_memory || keep(s, data + done, length - done) ? -1 : 0;
        }
        /* finish the unit that was cut with a copy of a little of the new text, then go on in the text itself */
        size_t old = s->carry.length;
        size_t wanted = s->retry_at > old + TOP_UP ? s->retry_at - old : TOP_UP;
        size_t taken = wanted < length ? wanted : length;
        if (append(&s->carry, data, taken)) {
            return -1;
        }
        data += taken;
        length -= taken;
        if (s->carry.length < s->retry_at) {
            continue;
        }
        size_t done = scan(s, s->carry.bytes, s->carry.length);
        if (s->no_memory) {
            return -1;
        }
        size_t rest = s->carry.length - done;
        if (done >= old && length) {
            data -= rest;
            length += rest;
            s->carry.length = 0;
        } else {
            memmove(s->carry.bytes, s->carry.bytes + done, rest);
            s->carry.length = rest;
            s->retry_at = rest + rest / 2;
        }
    }
    return 0;
}

int trace_scan_finish(trace_scan *s) {
    s->final = 1;
    uint8_t nothing = 0;
    scan(s, s->carry.bytes ? s->carry.bytes : &nothing, s->carry.length);
    s->carry.length = 0;
    return s->no_memory ? -1 : 0;
}

/* ---------------------------------------------------------------- making, freeing, asking */

static int make_table(trace_scan_table *t, const enum trace_scan_kind *kinds, size_t count) {
    static const enum trace_scan_width base[] = {TRACE_SCAN_I64, TRACE_SCAN_U8,  TRACE_SCAN_I32, TRACE_SCAN_I32,
                                                 TRACE_SCAN_I64, TRACE_SCAN_I64, TRACE_SCAN_I64, TRACE_SCAN_I64};
    t->columns = calloc(8 + 3 * count, sizeof *t->columns);
    if (!t->columns) {
        return -1;
    }
    for (size_t i = 0; i < 8; i++) {
        t->columns[t->column_count++].width = base[i];
    }
    for (size_t i = 0; i < count; i++) {
        for (int n = 0; n < (kinds[i] == TRACE_SCAN_INT3 ? 3 : 1); n++) {
            t->columns[t->column_count++].width = kinds[i] == TRACE_SCAN_TEXT ? TRACE_SCAN_I32 : TRACE_SCAN_I64;
        }
    }
    return 0;
}

static void free_table(trace_scan_table *t) {
    for (size_t i = 0; i < t->column_count; i++) {
        free(t->columns[i].values);
    }
    free(t->columns);
}

static int set_up(trace_scan *s, const trace_scan_options *o) {
    s->narrow = o->narrow;
    s->all = o->all;
    s->event_limit = o->event_limit;
    s->member_limit = o->member_limit;
    s->text_limit = o->text_limit ? o->text_limit : SIZE_MAX;
    s->string_limit = o->string_limit ? o->string_limit : SIZE_MAX;
    s->total_limit = o->total_limit ? o->total_limit : SIZE_MAX;
    s->depth_limit = o->depth_limit < TRACE_SCAN_DEPTH_MAX ? o->depth_limit : TRACE_SCAN_DEPTH_MAX;
    s->strings.seed = s->counted.seed = mix((uint64_t)(uintptr_t)s); /* no file can be made to collide everywhere */
    for (int i = 0; i < DEFECTS; i++) {
        s->defects[i].code = defect_codes[i];
    }
    s->kinds = malloc((o->all + 1) * sizeof *s->kinds);
    s->args = calloc(o->all + 1, sizeof *s->args);
    s->elements = calloc(o->all + 1, 3 * sizeof *s->elements);
    s->wide_categories = calloc(o->wide_category_count + 1, sizeof *s->wide_categories);
    if (!s->kinds || !s->args || !s->elements || !s->wide_categories) {
        return -1;
    }
    if (o->all) {
        memcpy(s->kinds, o->kinds, o->all * sizeof *s->kinds);
    }
    for (size_t i = 0; i < o->wide_category_count; i++) {
        s->wide_category_count = i + 1;
        if (reserve(&s->wide_categories[i], 1) || append(&s->wide_categories[i], o->wide_categories[i].at, o->wide_categories[i].length)) {
            return -1;
        }
    }
    if (make_keys(&s->fields, KNOWN_KEYS) || make_keys(&s->keys, o->key_count)) {
        return -1;
    }
    for (size_t i = 0; i < KNOWN_KEYS; i++) {
        if (add_key(&s->fields, (text)field_keys[i], strlen(field_keys[i]), i)) {
            return -1;
        }
    }
    for (size_t i = 0; i < o->key_count; i++) {
        if (add_key(&s->keys, o->keys[i].at, o->keys[i].length, o->key_columns[i])) {
            return -1;
        }
    }
    return make_table(&s->events, o->kinds, o->narrow) || make_table(&s->wide, o->kinds, o->all) ? -1 : 0;
}

trace_scan *trace_scan_new(const trace_scan_options *options) {
    trace_scan *s = calloc(1, sizeof *s);
    if (s && set_up(s, options)) {
        trace_scan_free(s);
        return NULL;
    }
    return s;
}

static void clear_metadata(trace_scan *s) {
    for (size_t i = 0; i < s->metadata_count; i++) {
        free((void *)s->metadata[i].raw.at);
    }
    s->metadata_count = 0;
}

void trace_scan_free(trace_scan *s) {
    if (!s) {
        return;
    }
    clear_metadata(s);
    free(s->metadata);
    for (size_t i = 0; i < s->member_count; i++) {
        free((void *)s->members[i].key.at);
        free((void *)s->members[i].raw.at);
    }
    free(s->members);
    for (size_t i = 0; i < s->wide_category_count; i++) {
        free(s->wide_categories[i].bytes);
    }
    free(s->wide_categories);
    free_table(&s->events);
    free_table(&s->wide);
    free_keys(&s->fields);
    free_keys(&s->keys);
    free_strings(&s->strings);
    free_strings(&s->counted);
    free(s->counts);
    free(s->kinds);
    free(s->args);
    free(s->elements);
    free(s->carry.bytes);
    free(s->scratch.bytes);
    free(s->category_scratch.bytes);
    free(s->cut.bytes);
    free(s->cut_category.bytes);
    free(s);
}

const trace_scan_table *trace_scan_events(const trace_scan *s) { return &s->events; }
const trace_scan_table *trace_scan_wide(const trace_scan *s) { return &s->wide; }
size_t trace_scan_string_count(const trace_scan *s) { return s->strings.count - s->strings_taken; }
trace_scan_text trace_scan_string(const trace_scan *s, size_t index) { return string_at(&s->strings, s->strings_taken + index); }
size_t trace_scan_metadata_count(const trace_scan *s) { return s->metadata_count; }
const trace_scan_metadata *trace_scan_metadata_at(const trace_scan *s, size_t index) { return &s->metadata[index]; }

void trace_scan_clear(trace_scan *s) {
    s->events.rows = s->wide.rows = 0;
    s->strings_taken = s->strings.count;
    clear_metadata(s);
}

size_t trace_scan_member_count(const trace_scan *s) { return s->member_count; }
const trace_scan_member *trace_scan_member_at(const trace_scan *s, size_t index) { return &s->members[index]; }
size_t trace_scan_count_count(const trace_scan *s) { return s->counted.count; }

trace_scan_count trace_scan_count_at(const trace_scan *s, size_t index) {
    trace_scan_text key = string_at(&s->counted, index);
    uint32_t length;
    memcpy(&length, key.at, sizeof length);
    key.at += sizeof length;
    return (trace_scan_count){{key.at, length}, {key.at + length, key.length - sizeof length - length}, s->counts[index]};
}

size_t trace_scan_defect_codes(void) { return DEFECTS; }
const trace_scan_defect *trace_scan_defect_at(const trace_scan *s, size_t index) { return &s->defects[index]; }
