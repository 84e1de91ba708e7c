/* scanner.h - the state that the parts of the scanner share, and the functions that they call of each other.
 *
 * unit.c cuts the text into units and decides what is lost, lexer.c reads one unit into values, columns.c turns the values into rows. */
#ifndef POSTRUN_SCAN_SCANNER_H
#define POSTRUN_SCAN_SCANNER_H

#include "digits.h"
#include "memory.h"

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
    COMBINATION_LEFT_OUT,
    DEFECTS
};

/* ---------------------------------------------------------------- types */

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

typedef struct { /* keys -> numbers */
    struct key_entry {
        uint8_t *key; /* NULL: free */
        size_t length, number;
        uint64_t head, tail; /* its first eight bytes, and its last if it is longer */
    } *entries;
    size_t mask;
} key_table;

/* Text between two values of an event that profilers write the same way again and again: white space, a key, its colon, white space. */
enum { SEPARATORS = 256, SEPARATOR_BYTES = 48 };
typedef struct {
    uint8_t text[SEPARATOR_BYTES];
    uint8_t length; /* 0: free */
    uint8_t place;  /* see place_of in lexer.c */
    uint8_t next[4]; /* the separators that came after it, the latest first */
    int number;      /* of its key; -1: the value is not read */
} separator;

/* A phase and a category, with what columns.c has found for them. */
enum { KINDS_OF_EVENT = 64, SHORT_CATEGORY = 40 };
typedef struct {
    uint8_t letter; /* of the phase; 0: free */
    uint8_t length, has_category, wide;
    uint8_t category[SHORT_CATEGORY];
    int32_t count_id, category_id; /* -1: not known */
} kind_of_event;

enum state { AT_START, IN_ARRAY, IN_OBJECT, AT_TAIL, LOST, AT_END };
enum outcome { DONE, NEED_MORE, BROKEN, NO_MEMORY };

struct trace_scan {
    /* options */
    enum trace_scan_kind *kinds;
    size_t dense, narrow, all, parts;
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
    /* position in the document */
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
    value *args;     /* one per column, and one per part */
    size_t *present; /* the columns of args that are not ABSENT, in any order */
    size_t present_count;
    int is_sparse;   /* whether one of them is beyond the dense ones */
    value *elements; /* three per column: the first ones of an array */
    uint8_t stack[TRACE_SCAN_DEPTH_MAX];
    buffer scratch, category_scratch, cut, cut_category, combination;
    /* what was found before, so that it need not be found again */
    separator separators[SEPARATORS]; /* the first one: the start of an event */
    kind_of_event known[KINDS_OF_EVENT];
    /* results */
    trace_scan_table events, sparse, wide;
    int64_t event_count;
    string_table strings, counted, combined;
    size_t strings_taken, combined_taken;
    int64_t *counts;
    size_t counts_capacity;
    trace_scan_metadata *metadata;
    size_t metadata_count, metadata_capacity, metadata_bytes;
    trace_scan_member *members;
    size_t member_count, member_capacity;
    trace_scan_defect defects[DEFECTS];
};

/* ---------------------------------------------------------------- characters */

static inline int is_white(uint8_t c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static inline text skip_white(text p, text end) {
    while (p < end && is_white(*p)) {
        p++;
    }
    return p;
}

/* At most 64 white characters. */
static inline text skip_some_white(text p, text end) { return skip_white(p, end - p > 64 ? p + 64 : end); }

static inline int is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

static inline unsigned hex_digit(uint8_t c) { /* 16: none */
    if (c >= '0' && c <= '9') {
        return (unsigned)(c - '0');
    }
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10) : 16;
}

/* ---------------------------------------------------------------- notes */

/* Notes a defect of the current unit at `at`. unit.c counts the notes when the unit is complete, and discards them otherwise. */
static inline void note(trace_scan *s, enum defect code, text at) {
    if (s->note_count[code]++ == 0) {
        s->note_first[code] = at;
    }
    s->noted = 1;
}

/* Ends the reading of a unit that cannot be read beyond `at`. */
static inline enum outcome broken(trace_scan *s, text at) {
    s->broken_at = at;
    s->broken_reason = DEFECTS;
    return BROKEN;
}

/* ---------------------------------------------------------------- lexer.c */

int lexer_new(trace_scan *s, const trace_scan_options *options); /* -1: out of memory */
void lexer_free(trace_scan *s);

/* Each reads the item at *at and moves *at behind it. `end`: the end of the text. */
enum outcome scan_value(trace_scan *s, text *at, text end, int event); /* event: fills s->field, s->args and s->elements */
enum outcome scan_key(trace_scan *s, text *at, text end, value *key);  /* a quoted key and its colon; a decoded key is in s->scratch */
enum outcome scan_simple_string(text *at, text end, value *v);         /* a string that ends at its first unescaped quote */
enum outcome scan_word(trace_scan *s, text *at, text end, value *v);   /* a number, true, false or null */

int scan_is_number(text p, text end);
int scan_is_text(text p, text end, const char *what);
int scan_is_event_key(text p, text end); /* whether p is at the quoted key of an event and its colon */

void scan_note_string(trace_scan *s, text p, size_t length);                 /* notes the defects of a string's content */
int scan_decode_into(trace_scan *s, buffer *b, text p, size_t length);       /* the decoded string; -1: out of memory */
int scan_repair_utf8_into(buffer *b, text p, size_t length); /* the text with U+FFFD for invalid UTF-8; -1: out of memory */

/* ---------------------------------------------------------------- columns.c */

int columns_new(trace_scan *s, const trace_scan_options *options); /* -1: out of memory */
void columns_free(trace_scan *s);
int columns_add(trace_scan *s, text start, text end); /* appends the event in s->field and s->args as a row; -1: out of memory */

#endif
