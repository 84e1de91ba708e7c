/* columns.c - turns the values of an event into a row of typed columns, and owns the results until the caller takes them. */
#include <stdio.h>

#include "scanner.h"

/* ---------------------------------------------------------------- table of texts */

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

/* The index of a text's entry, or of the free entry for it; the table has entries. */
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

/* ---------------------------------------------------------------- numbers */

/* A number's text times 10^decimals, cut toward zero; 0 if that does not fit int64. */
static int scale_number(text p, text end, int decimals, int64_t *result) {
    static const int64_t powers[] = {1, 10, 100, 1000};
    int negative = *p == '-';
    if (*p == '+' || *p == '-') {
        p++;
    }
    text q = skip_digits(p, end);
    if (q - p + decimals <= 18) { /* the usual case: the digits fit for certain, no exponent */
        int64_t whole = number_of_digits(p, q);
        int left = decimals;
        if (q < end && *q == '.') {
            q++;
            while (q < end && is_digit(*q) && left > 0) {
                whole = whole * 10 + (*q++ - '0'), left--;
            }
            q = skip_digits(q, end);
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

/* The number in a string: decimal, or hexadecimal if allowed. */
static enum numeric number_of_text(text p, text end, int decimals, int hexadecimal, int64_t *result) {
    strip(&p, &end);
    if (p == end) {
        return NOT_NUMERIC;
    }
    if (scan_is_number(p, end)) {
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

static int is_ascii(text p, size_t n) {
    uint64_t high = n >= 8 ? load8(p + n - 8) : load_short(p, n);
    for (size_t i = 0; i + 8 <= n; i += 8) {
        high |= load8(p + i);
    }
    return !(high & 0x8080808080808080u);
}

/* The text of a value; 0: it has none, -1: no memory. */
static int text_of(trace_scan *s, const value *v, buffer *b, trace_scan_text *out) {
    switch (v->kind) {
    case NUMBER:
    case PLAIN_STRING: *out = (trace_scan_text){v->at, v->length}; return 1;
    case TRUE_VALUE: *out = (trace_scan_text){(text) "true", 4}; return 1;
    case FALSE_VALUE: *out = (trace_scan_text){(text) "false", 5}; return 1;
    case RAW_STRING:
        if (scan_decode_into(s, b, v->at, v->length)) {
            return -1;
        }
        break;
    case OBJECT:
    case ARRAY:
        if (is_ascii(v->at, v->length)) {
            *out = (trace_scan_text){v->at, v->length};
            return 1;
        }
        if (scan_repair_utf8_into(b, v->at, v->length)) {
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

/* Cuts a text of valid UTF-8 that is too long, as cut_bytes of ingest/store/limits.py does; the result is in b. 1: it was cut, -1: no memory. */
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

/* Id of the combination of the texts of the parts. -1: no part is there, or the table is full; also *failed: no memory. */
static int32_t combination_id(trace_scan *s, text at, int *failed) {
    buffer *key = &s->combination;
    int any = 0;
    key->length = 0;
    for (size_t i = s->all; i < s->all + s->parts; i++) {
        trace_scan_text t = {0};
        int has = text_of(s, &s->args[i], &s->scratch, &t);
        int was_cut = has > 0 ? cut_text(s, &t, &s->cut) : 0;
        if (was_cut > 0) {
            note(s, TEXT_CUT, at);
        }
        uint32_t length = has > 0 ? (uint32_t)t.length + 1 : 0;
        any |= has > 0;
        if (has < 0 || was_cut < 0 || append(key, &length, sizeof length) || (has > 0 && append(key, t.at, t.length))) {
            *failed = 1;
            return -1;
        }
    }
    if (!any) {
        return -1;
    }
    int32_t id = known_id(&s->combined, key->bytes, key->length);
    if (id < 0 && is_full(s, &s->combined, key->length)) {
        note(s, COMBINATION_LEFT_OUT, at);
        return -1;
    }
    if (id < 0 && (id = intern(&s->combined, key->bytes, key->length)) < 0) {
        *failed = 1;
    }
    return id;
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

/* A pid or tid: its number, or a number that represents its text. */
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

/* Counts an event of a phase and a category; when the table is full, those of a new pair by their phase alone. The id of the count, or -1. */
static int32_t count_event(trace_scan *s, trace_scan_text phase, trace_scan_text category) {
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
    return id;
}

static int is_wide(const trace_scan *s, trace_scan_text category) {
    for (size_t i = 0; i < s->wide_category_count; i++) {
        if (s->wide_categories[i].length == category.length && memcmp(s->wide_categories[i].bytes, category.at, category.length) == 0) {
            return 1;
        }
    }
    return 0;
}

#define METADATA_BYTES 64 /* memory of an M event in addition to its text */

/* The remembered facts of a phase of one letter and a category, and the event counted; NULL: out of memory. `spare`: memory for one that is not remembered. */
static kind_of_event *kind_of(trace_scan *s, trace_scan_text phase, trace_scan_text category, int has_category, kind_of_event *spare) {
    int is_short = phase.length == 1 && phase.at[0] && category.length <= SHORT_CATEGORY;
    if (is_short) {
        uint64_t first = category.length ? category.at[0] : 0, last = category.length ? category.at[category.length - 1] : 0;
        kind_of_event *known = &s->known[mix(phase.at[0] | category.length << 8 | first << 16 | last << 24) % KINDS_OF_EVENT];
        if (known->letter == phase.at[0] && known->length == category.length && known->has_category == has_category &&
            memcmp(known->category, category.at, category.length) == 0) {
            s->counts[known->count_id]++;
            return known;
        }
        spare = known;
    }
    *spare = (kind_of_event){.has_category = (uint8_t)has_category, .category_id = -1};
    spare->count_id = count_event(s, phase, category);
    if (spare->count_id < 0) {
        return NULL;
    }
    spare->wide = has_category && is_wide(s, category);
    if (is_short) {
        spare->letter = phase.at[0];
        spare->length = (uint8_t)category.length;
        memcpy(spare->category, category.at, category.length);
    }
    return spare;
}

/* The string id of the category of an event with a row; -1: none. */
static int32_t category_id(trace_scan *s, kind_of_event *kind, trace_scan_text category, text at, int *failed) {
    if (!kind->has_category || kind->category_id >= 0) {
        return kind->category_id;
    }
    int32_t id = intern_text(s, category, at, failed);
    if (id >= 0) {
        trace_scan_text stored = string_at(&s->strings, (size_t)id);
        if (stored.length == category.length && memcmp(stored.at, category.at, category.length) == 0) {
            kind->category_id = id; /* otherwise each event is counted as cut or left out */
        }
    }
    return id;
}

static void put_i64(trace_scan_table *t, size_t *column, int64_t number) { ((int64_t *)t->columns[(*column)++].values)[t->rows] = number; }
static void put_i32(trace_scan_table *t, size_t *column, int32_t number) { ((int32_t *)t->columns[(*column)++].values)[t->rows] = number; }

/* Puts arguments into the columns of the current row, from *column on. */
static void put_arguments(trace_scan *s, trace_scan_table *t, size_t *column, size_t from, size_t to, text start, int *failed) {
    for (size_t i = from; i < to; i++) {
        const value *v = &s->args[i];
        if (s->kinds[i] == TRACE_SCAN_INT) {
            put_i64(t, column, int_of(s, v, start, failed));
        } else if (s->kinds[i] == TRACE_SCAN_TEXT) {
            put_i32(t, column, text_id(s, v, start, failed));
        } else {
            for (int n = 0; n < 3; n++) {
                put_i64(t, column, v->kind == ARRAY ? int_of(s, &s->elements[3 * i + n], start, failed) : TRACE_SCAN_MISSING);
            }
        }
    }
}

/* Puts the event that has been read into the columns; -1 without memory. */
int columns_add(trace_scan *s, text start, text end) {
    trace_scan_text phase, category = {(text) "", 0};
    const value *ph = &s->field[PHASE];
    buffer phase_text = {0};
    if (ph->kind == PLAIN_STRING) {
        phase = (trace_scan_text){ph->at, ph->length};
    } else if (ph->kind == RAW_STRING) {
        if (scan_decode_into(s, &phase_text, ph->at, ph->length)) {
            return -1;
        }
        phase = (trace_scan_text){phase_text.bytes, phase_text.length};
    } else {
        note(s, NO_PHASE, start);
        return 0;
    }
    uint8_t letter = phase.length == 1 ? phase.at[0] : 0;
    int has_category = text_of(s, &s->field[CATEGORY], &s->category_scratch, &category), failed = 0;
    kind_of_event spare, *kind = has_category < 0 ? NULL : kind_of(s, phase, category, has_category, &spare);
    free(phase_text.bytes);
    if (!kind) {
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
    if (instant && !kind->wide) {
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
    trace_scan_table *t = kind->wide ? &s->wide : &s->events;
    int sparse = !kind->wide && s->is_sparse;
    if (reserve_row(t) || (sparse && reserve_row(&s->sparse))) {
        return -1;
    }
    size_t column = 0;
    put_i64(t, &column, s->event_count);
    ((uint8_t *)t->columns[column++].values)[t->rows] = letter;
    put_i32(t, &column, category_id(s, kind, category, start, &failed));
    put_i32(t, &column, text_id(s, &s->field[NAME], start, &failed));
    put_i64(t, &column, id_of(s, &s->field[PID], start, &failed));
    put_i64(t, &column, id_of(s, &s->field[TID], start, &failed));
    put_i64(t, &column, time);
    put_i64(t, &column, time_of(s, &s->field[DURATION], start, &failed));
    put_arguments(s, t, &column, 0, kind->wide ? s->all : s->dense, start, &failed);
    if (s->parts) {
        put_i32(t, &column, combination_id(s, start, &failed));
    }
    if (sparse) {
        column = 0;
        put_i64(&s->sparse, &column, (int64_t)t->rows);
        put_arguments(s, &s->sparse, &column, s->dense, s->narrow, start, &failed);
    }
    if (failed) {
        return -1;
    }
    t->rows++;
    s->sparse.rows += (size_t)sparse;
    s->event_count++;
    return 0;
}

/* ---------------------------------------------------------------- making and freeing */

static int make_table(trace_scan_table *t, const enum trace_scan_width *base, size_t base_count, const enum trace_scan_kind *kinds,
                      size_t count, int combined) {
    t->columns = calloc(base_count + 3 * count + 1, sizeof *t->columns);
    if (!t->columns) {
        return -1;
    }
    for (size_t i = 0; i < base_count; i++) {
        t->columns[t->column_count++].width = base[i];
    }
    for (size_t i = 0; i < count; i++) {
        for (int n = 0; n < (kinds[i] == TRACE_SCAN_INT3 ? 3 : 1); n++) {
            t->columns[t->column_count++].width = kinds[i] == TRACE_SCAN_TEXT ? TRACE_SCAN_I32 : TRACE_SCAN_I64;
        }
    }
    if (combined) {
        t->columns[t->column_count++].width = TRACE_SCAN_I32;
    }
    return 0;
}

static int make_tables(trace_scan *s) {
    static const enum trace_scan_width base[] = {TRACE_SCAN_I64, TRACE_SCAN_U8,  TRACE_SCAN_I32, TRACE_SCAN_I32,
                                                 TRACE_SCAN_I64, TRACE_SCAN_I64, TRACE_SCAN_I64, TRACE_SCAN_I64};
    static const enum trace_scan_width row[] = {TRACE_SCAN_I64};
    size_t columns = sizeof base / sizeof *base;
    int combined = s->parts > 0;
    return make_table(&s->events, base, columns, s->kinds, s->dense, combined) ||
           make_table(&s->sparse, row, 1, s->kinds + s->dense, s->narrow - s->dense, 0) ||
           make_table(&s->wide, base, columns, s->kinds, s->all, combined);
}

static void free_table(trace_scan_table *t) {
    for (size_t i = 0; i < t->column_count; i++) {
        free(t->columns[i].values);
    }
    free(t->columns);
}

int columns_new(trace_scan *s, const trace_scan_options *o) {
    s->dense = o->dense;
    s->narrow = o->narrow;
    s->all = o->all;
    s->parts = o->parts;
    s->text_limit = o->text_limit ? o->text_limit : SIZE_MAX;
    s->string_limit = o->string_limit ? o->string_limit : SIZE_MAX;
    s->total_limit = o->total_limit ? o->total_limit : SIZE_MAX;
    s->strings.seed = s->counted.seed = s->combined.seed = mix((uint64_t)(uintptr_t)s); /* no file can be made to collide everywhere */
    s->kinds = malloc((o->all + 1) * sizeof *s->kinds);
    s->wide_categories = calloc(o->wide_category_count + 1, sizeof *s->wide_categories);
    if (!s->kinds || !s->wide_categories) {
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
    return make_tables(s) ? -1 : 0;
}

static void clear_metadata(trace_scan *s) {
    for (size_t i = 0; i < s->metadata_count; i++) {
        free((void *)s->metadata[i].raw.at);
    }
    s->metadata_count = 0;
}

void columns_free(trace_scan *s) {
    clear_metadata(s);
    free(s->metadata);
    for (size_t i = 0; i < s->wide_category_count; i++) {
        free(s->wide_categories[i].bytes);
    }
    free(s->wide_categories);
    free_table(&s->events);
    free_table(&s->sparse);
    free_table(&s->wide);
    free_strings(&s->strings);
    free_strings(&s->counted);
    free_strings(&s->combined);
    free(s->counts);
    free(s->kinds);
    free(s->category_scratch.bytes);
    free(s->cut.bytes);
    free(s->cut_category.bytes);
    free(s->combination.bytes);
}

/* ---------------------------------------------------------------- results */

const trace_scan_table *trace_scan_events(const trace_scan *s) { return &s->events; }
const trace_scan_table *trace_scan_sparse(const trace_scan *s) { return &s->sparse; }
const trace_scan_table *trace_scan_wide(const trace_scan *s) { return &s->wide; }
size_t trace_scan_string_count(const trace_scan *s) { return s->strings.count - s->strings_taken; }
trace_scan_text trace_scan_string(const trace_scan *s, size_t index) { return string_at(&s->strings, s->strings_taken + index); }
size_t trace_scan_combination_count(const trace_scan *s) { return s->combined.count - s->combined_taken; }
trace_scan_text trace_scan_combination(const trace_scan *s, size_t index) { return string_at(&s->combined, s->combined_taken + index); }
size_t trace_scan_metadata_count(const trace_scan *s) { return s->metadata_count; }
const trace_scan_metadata *trace_scan_metadata_at(const trace_scan *s, size_t index) { return &s->metadata[index]; }

void trace_scan_clear(trace_scan *s) {
    s->events.rows = s->sparse.rows = s->wide.rows = 0;
    s->strings_taken = s->strings.count;
    s->combined_taken = s->combined.count;
    clear_metadata(s);
}

size_t trace_scan_count_count(const trace_scan *s) { return s->counted.count; }

trace_scan_count trace_scan_count_at(const trace_scan *s, size_t index) {
    trace_scan_text key = string_at(&s->counted, index);
    uint32_t length;
    memcpy(&length, key.at, sizeof length);
    key.at += sizeof length;
    return (trace_scan_count){{key.at, length}, {key.at + length, key.length - sizeof length - length}, s->counts[index]};
}
