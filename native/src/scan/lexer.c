/* lexer.c - reads the JSON text of one unit into values: strings, numbers, words, keys, objects and arrays.
 *
 * Damaged text is repaired if its meaning is certain, with a note; otherwise the reading ends at the byte that cannot be read. */
#include "scanner.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

static const char *const field_keys[KNOWN_KEYS] = {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"};

/* ---------------------------------------------------------------- keys */

/* The first eight bytes of a key, zeros behind a shorter one; there is text up to end. */
static uint64_t key_head(text key, size_t length, text end) {
    if (length >= 8) {
        return load8(key);
    }
#ifdef LITTLE_ENDIAN_WORDS
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

/* ---------------------------------------------------------------- strings */

int scan_is_text(text p, text end, const char *what) {
    size_t n = strlen(what);
    return (size_t)(end - p) >= n && memcmp(p, what, n) == 0;
}

/* The first quote or backslash at or after p, or end; *odd is set if a control character or a byte above 127 precedes it. */
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

/* The length of the character at p, or of the longest start of one (Unicode 15, 3.9, "maximal subparts"); *valid: which of them. */
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

void scan_note_string(trace_scan *s, text p, size_t length) { decode_string(s, p, length, NULL); }

int scan_decode_into(trace_scan *s, buffer *b, text p, size_t length) {
    if (length > SIZE_MAX / 4 || reserve(b, length * 3 + 4)) {
        return -1;
    }
    b->length = decode_string(s, p, length, b->bytes);
    return 0;
}

/* The text unchanged, in b, with invalid UTF-8 replaced. */
int scan_repair_utf8_into(buffer *b, text p, size_t length) {
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

/* Whether p is at the quoted key of an event and its colon. */
int scan_is_event_key(text p, text end) {
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

/* The brace that opens an event right before the quote, inside a string that begins at from; or NULL. */
static text brace_before(text quote, text from) {
    text p = quote;
    while (p > from && quote - p < 64 && is_white(p[-1])) {
        p--;
    }
    return p > from && p[-1] == '{' ? p - 1 : NULL;
}

/* Whether a backslash and a quote, p behind them, end a string nevertheless: the next key follows. */
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

/* Whether the quote ends a value string, by the text behind it. DONE: yes; BROKEN: no, it is bare. */
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
            if (scan_is_event_key(p, end)) {
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
        scan_note_string(s, from, v->length);
    }
    *at = p + 1;
    return DONE;
}

/* The inside of a string that ends at its first unescaped quote; *at behind the quote. */
enum outcome scan_simple_string(text *at, text end, value *v) {
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

/* The key at the quote *at and its colon; a decoded key is in s->scratch. */
enum outcome scan_key(trace_scan *s, text *at, text end, value *key) {
    enum outcome o = scan_simple_string(at, end, key);
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
        scan_note_string(s, key->at, key->length);
        if (scan_decode_into(s, &s->scratch, key->at, key->length)) {
            return NO_MEMORY;
        }
        key->at = s->scratch.bytes;
        key->length = s->scratch.length;
    }
    return DONE;
}

/* ---------------------------------------------------------------- numbers and words */

int scan_is_number(text p, text end) {
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

/* A number, true, false or null at *at; anything else printable is null with a note. */
enum outcome scan_word(trace_scan *s, text *at, text end, value *v) {
    text from = *at, p = skip_digits(from, end);
    int simple = p > from; /* a number without sign and exponent */
    if (simple && p < end && *p == '.') {
        p = skip_digits(p + 1, end);
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
    if (simple || scan_is_number(from, p)) {
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

/* ---------------------------------------------------------------- separators */

/* Where a separator is: what its key means depends on that alone. */
static unsigned place_of(unsigned depth, int in_args) { return depth == 2 ? 2 + (unsigned)in_args : depth; }

static int is_separator(const separator *known, text p, text end, unsigned place) {
    size_t n = known->length;
    if (known->place != place || (size_t)(end - p) < n) {
        return 0;
    }
    if (n < 8) {
        return key_head(p, n, end) == load8(known->text);
    }
    for (size_t i = 0; i + 8 < n; i += 8) {
        if (load8(p + i) != load8(known->text + i)) {
            return 0;
        }
    }
    return load8(p + n - 8) == load8(known->text + n - 8);
}

/* The separator at p, if it came after the previous one before; or NULL. */
static separator *expected_separator(trace_scan *s, const separator *previous, text p, text end, unsigned place) {
    for (size_t i = 0; i < sizeof previous->next; i++) {
        separator *next = &s->separators[previous->next[i]];
        if (is_separator(next, p, end, place)) {
            return next;
        }
    }
    return NULL;
}

/* Remembers the separator from p to its end as the one that follows `previous`. */
static separator *add_separator(trace_scan *s, separator *previous, text p, text end, unsigned place, int number) {
    size_t n = (size_t)(end - p);
    if (n > SEPARATOR_BYTES) {
        return previous;
    }
    uint64_t hash = mix(n << 8 | place) ^ key_tail(p, n);
    uint8_t slot = (uint8_t)(1 + mix(hash ^ mix(key_head(p, n, end))) % (SEPARATORS - 1));
    separator *known = &s->separators[slot];
    if (!is_separator(known, p, end, place) || known->length != n) {
        *known = (separator){.length = (uint8_t)n, .place = (uint8_t)place, .number = number};
        memcpy(known->text, p, n); /* zeros behind it */
    }
    memmove(previous->next + 1, previous->next, sizeof previous->next - 1);
    previous->next[0] = slot;
    return known;
}

/* The destination of the value of a key. */
static value *target_of(trace_scan *s, unsigned place, int number, value *ignored) {
    if (number < 0 || place > 3) {
        return ignored;
    }
    if (place == 1) {
        return number == ARGS ? ignored : &s->field[number];
    }
    value *target = &s->args[number];
    if (target->kind == ABSENT) {
        s->present[s->present_count++] = (size_t)number;
        s->is_sparse |= (size_t)number >= s->dense && (size_t)number < s->all;
        target->kind = NULL_VALUE; /* counted once, also if it comes twice */
    }
    return target;
}

/* The number of a key of an event at that place; -1: the value is not read. */
static int key_number(const trace_scan *s, unsigned place, const value *key, text end) {
    const key_table *keys = place == 1 ? &s->fields : place == 3 ? &s->keys : NULL;
    const struct key_entry *found =
        keys ? find_key(keys, key->at, key->length, key->kind == RAW_STRING ? key->at + key->length : end) : NULL; /* decoded: elsewhere */
    return found ? (int)found->number : -1;
}

enum expect { VALUE, FIRST_KEY, KEY, FIRST_ELEMENT, ELEMENT, AFTER };

/* Where the reading of an event's object is. */
typedef struct {
    text at;
    value *target; /* destination of the next value */
    separator *previous; /* the last one */
    unsigned depth; /* 1: the event; 2: an object in it, such as its args */
    int in_args;
} position;

/* Reads members as long as they are laid out like earlier ones and their values are plain strings and numbers. All else stays for
 * scan_value: the return value is what it expects next. */
static enum expect read_usual_members(trace_scan *s, position *here, text end, value *ignored) {
    separator *known = expected_separator(s, here->previous, here->at, end, place_of(here->depth, here->in_args));
    while (known) {
        if (here->depth == 1) {
            here->in_args = known->number == ARGS;
        }
        unsigned place = place_of(here->depth, here->in_args);
        text from = here->at + known->length, q;
        value *target = target_of(s, place, known->number, ignored);
        here->target = target;
        here->previous = known;
        here->at = from;
        if (from >= end) {
            return VALUE;
        }
        if (*from == '"') {
            int odd = 0;
            q = find_quote(++from, end, &odd);
            if (odd || end - q < 2 || *q != '"' || q[1] != ',' || !(known = expected_separator(s, known, q + 2, end, place))) {
                return VALUE;
            }
            *target = (value){PLAIN_STRING, from, (size_t)(q - from)}; /* a key follows: the string ends here for certain */
            here->at = q + 2;
        } else {
            q = skip_digits(from, end);
            if (q == from) {
                return VALUE;
            }
            if (q < end && *q == '.') {
                q = skip_digits(q + 1, end);
            }
            if (q >= end || (*q != ',' && *q != '}' && !is_white(*q))) {
                return VALUE;
            }
            *target = (value){NUMBER, from, (size_t)(q - from)};
            here->at = q;
            if (*q != ',') {
                return AFTER;
            }
            here->at = q + 1;
            known = expected_separator(s, known, q + 1, end, place);
        }
    }
    return KEY;
}

/* The value at or after *at. With event set, the members of the object and of its args go to s->field and s->args. */
enum outcome scan_value(trace_scan *s, text *at, text end, int event) {
    enum expect expect = VALUE;
    text p = *at;
    unsigned depth = 0;
    int in_args = 0;
    value ignored, *target = &ignored; /* destination of the next value */
    value *container[3] = {&ignored, &ignored, &ignored}; /* destination of the array or object opened at this depth */
    value *element = NULL; /* destination of the next element of an argument ... */
    int elements_left = 0; /* ... of three */
    separator *previous = &s->separators[0];
    for (;;) {
        if (event && (expect == FIRST_KEY || expect == KEY) && depth <= 2) {
            position here = {p, target, previous, depth, in_args};
            enum expect next = read_usual_members(s, &here, end, &ignored);
            if (next != KEY || here.at > p) {
                expect = next;
            }
            p = here.at, target = here.target, previous = here.previous, in_args = here.in_args;
        }
        text before = p;
        p = skip_white(p, end);
        if (p >= end) {
            return NEED_MORE;
        }
        uint8_t c = *p;
        enum outcome o;
        if (expect == FIRST_KEY || expect == KEY) {
            if (c == '"') {
                value key;
                if ((o = scan_key(s, &p, end, &key)) != DONE) {
                    return o;
                }
                target = &ignored;
                if (event && depth <= 2) {
                    unsigned place = place_of(depth, in_args);
                    int number = key_number(s, place, &key, end);
                    in_args = depth == 2 ? in_args : number == ARGS;
                    target = target_of(s, place, number, &ignored);
                    text follows = skip_white(p, end);
                    if (key.kind == PLAIN_STRING && follows < end) {
                        previous = add_separator(s, previous, before, follows, place, number);
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
                if ((o = scan_word(s, &p, end, target)) != DONE) {
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

/* ---------------------------------------------------------------- making and freeing */

int lexer_new(trace_scan *s, const trace_scan_options *o) {
    s->depth_limit = o->depth_limit < TRACE_SCAN_DEPTH_MAX ? o->depth_limit : TRACE_SCAN_DEPTH_MAX;
    s->args = calloc(o->all + o->parts + 1, sizeof *s->args);
    s->elements = calloc(o->all + o->parts + 1, 3 * sizeof *s->elements);
    s->present = calloc(o->all + o->parts + 1, sizeof *s->present);
    if (!s->args || !s->present || !s->elements || make_keys(&s->fields, KNOWN_KEYS) || make_keys(&s->keys, o->key_count)) {
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
    return 0;
}

void lexer_free(trace_scan *s) {
    free_keys(&s->fields);
    free_keys(&s->keys);
    free(s->args);
    free(s->present);
    free(s->elements);
    free(s->scratch.bytes);
}
