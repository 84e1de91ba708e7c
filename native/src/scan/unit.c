/* unit.c - cuts the text of a Chrome trace into units and determines what is lost of a damaged one.
 *
 * A unit is an event or a top-level member. It is read only once its text is complete, and leaves nothing behind if it cannot be read:
 * results do not depend on where chunks end. Work is linear: reading continues after the byte at which a unit broke. */
#include "scanner.h"

static const char *const defect_codes[DEFECTS] = {
    "control_character",   "invalid_escape",       "invalid_utf8",  "lone_surrogate", "bare_word", "empty_value",
    "bare_quote",          "trailing_comma",       "missing_comma", "not_an_event",   "no_phase",  "no_timestamp",
    "number_out_of_range", "lost_event",           "lost_bytes",    "too_long",       "too_deep",  "truncated",
    "broken_member",       "trailing_garbage",     "not_json",      "empty",          "text_cut",  "text_left_out",
    "metadata_left_out",   "combination_left_out",
};

/* ---------------------------------------------------------------- notes and defects */

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

/* ---------------------------------------------------------------- the course of the document */

static int is_event_start(text p, text end) { return p < end && *p == '{' && scan_is_event_key(skip_some_white(p + 1, end), end); }

/* Behind the bracket of `"traceEvents": [`, or NULL. */
static text behind_trace_events(text p, text end) {
    if (!scan_is_text(p, end, "\"traceEvents\"")) {
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
    return scan_is_text(p, end, "\"ph\"") && scan_is_event_key(p, end);
}

/* Each of these reads one item at *at and moves *at behind it (1), or needs more text and changes nothing (0). */

/* Text after start is lost; look for the next start of an event from *at on. */
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

/* Longest text that identifies the start of an event or of the array of events: 143 bytes, plus a margin. */
#define RESTART_LONGEST 160

static int resynchronize(trace_scan *s, text *at) {
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

/* The unit at start is longer than the available text. */
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
    enum outcome o = scan_key(s, &p, end, &key);
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
    o = scan_value(s, &p, end, 0);
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
        for (size_t i = 0; i < s->present_count; i++) {
            s->args[s->present[i]].kind = ABSENT;
        }
        s->present_count = 0;
        s->is_sparse = 0;
        o = scan_value(s, &p, end, 1);
        if (o == DONE && columns_add(s, start, p)) {
            o = NO_MEMORY;
        }
    } else {
        value v;
        if (*start == '"') {
            o = scan_simple_string(&p, end, &v);
            if (o == DONE) {
                text follows = skip_white(p, end);
                if (follows >= end) {
                    o = NEED_MORE;
                } else if (*follows != ',' && *follows != ']') {
                    o = broken(s, follows);
                } else if (v.kind == RAW_STRING) {
                    scan_note_string(s, v.at, v.length);
                }
            }
        } else if (*start == '[') {
            o = scan_value(s, &p, end, 0);
        } else {
            o = scan_word(s, &p, end, &v);
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
        if (scan_is_text(p, s->end, "\xEF\xBB\xBF")) {
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
        if (!scan_is_text(key, s->end, "\"ph\"") || !scan_is_event_key(key, s->end)) {
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

/* Scans all complete units of the text; returns the number of scanned bytes. */
static size_t scan(trace_scan *s, text start, size_t length) {
    s->start = start;
    s->end = start + length;
    text p = start;
    int more = 1;
    while (more && !s->no_memory) {
        switch (s->state) {
        case AT_START: more = at_start(s, &p); break;
        case LOST: more = resynchronize(s, &p); break;
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

/* ---------------------------------------------------------------- making and freeing */

trace_scan *trace_scan_new(const trace_scan_options *options) {
    trace_scan *s = calloc(1, sizeof *s);
    if (!s) {
        return NULL;
    }
    s->event_limit = options->event_limit;
    s->member_limit = options->member_limit;
    for (int i = 0; i < DEFECTS; i++) {
        s->defects[i].code = defect_codes[i];
    }
    if (lexer_new(s, options) || columns_new(s, options)) {
        trace_scan_free(s);
        return NULL;
    }
    return s;
}

void trace_scan_free(trace_scan *s) {
    if (!s) {
        return;
    }
    for (size_t i = 0; i < s->member_count; i++) {
        free((void *)s->members[i].key.at);
        free((void *)s->members[i].raw.at);
    }
    free(s->members);
    free(s->carry.bytes);
    lexer_free(s);
    columns_free(s);
    free(s);
}

size_t trace_scan_member_count(const trace_scan *s) { return s->member_count; }
const trace_scan_member *trace_scan_member_at(const trace_scan *s, size_t index) { return &s->members[index]; }
size_t trace_scan_defect_codes(void) { return DEFECTS; }
const trace_scan_defect *trace_scan_defect_at(const trace_scan *s, size_t index) { return &s->defects[index]; }
