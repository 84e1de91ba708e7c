/* trace_columns.c - decodes the bytes of a block into columns of values (docs/trace-format.md).
 *
 * Nothing is trusted: a varint, a run or a text that does not fit makes the block malformed (-EBADMSG), and so do remaining bytes. */
#include "trace_columns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "varints.h"

static uint32_t get32(const uint8_t *at) { return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24; }

static uint64_t get64(const uint8_t *at) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
#else
    return (uint64_t)get32(at) | (uint64_t)get32(at + 4) << 32;
#endif
}

/* ---------------------------------------------------------------- workspace */

void prt_workspace_free(struct prt_workspace *w) {
    for (size_t i = 0; i < PRT_COLUMN_IDS; i++) {
        free(w->values[i]);
    }
    free(w->names);
    free(w->last);
    *w = (struct prt_workspace){0};
}

void prt_workspace_begin(struct prt_workspace *w, const struct prt_payload *payload) {
    w->payload = payload;
    memset(w->known, 0, sizeof w->known);
}

/* Room for `count` elements of 8 bytes and PRT_SLACK more; the old content is lost. */
static int room(void *pointer, size_t *capacity, size_t count) {
    if (count <= *capacity) {
        return 0;
    }
    void *old;
    memcpy(&old, pointer, sizeof old);
    free(old);
    void *fresh = malloc((count + PRT_SLACK) * 8);
    memcpy(pointer, &fresh, sizeof fresh);
    *capacity = fresh ? count : 0;
    return fresh ? 0 : -ENOMEM;
}

int prt_payload_find(struct prt_payload *p, const uint8_t *data, size_t length) {
    memset(p->columns, 0, sizeof p->columns);
    for (size_t at = 0; at < length;) {
        if (length - at < 8) {
            return -EBADMSG;
        }
        uint32_t size = get32(data + at + 4);
        uint8_t id = data[at], encoding = data[at + 1];
        at += 8;
        if (size > length - at) {
            return -EBADMSG;
        }
        if (id < PRT_COLUMN_IDS && !p->columns[id].at) {
            p->columns[id].at = data + at;
            p->columns[id].length = size;
            p->columns[id].encoding = encoding;
        }
        at += size;
    }
    return 0;
}

/* ---------------------------------------------------------------- numbers */

struct run {
    const uint8_t *at, *end;
    size_t left;
};

/* The next run: its length, 0 when malformed. */
static inline size_t next_run(struct run *r, uint64_t *value) {
    uint64_t length;
    if (r->end - r->at >= 2 && (r->at[0] | r->at[1]) < 128) { /* most are so short */
        length = r->at[0];
        *value = r->at[1];
        r->at += 2;
    } else if (!(r->at = prt_varint(r->at, r->end, &length)) || !(r->at = prt_varint(r->at, r->end, value))) {
        return 0;
    }
    if (length > r->left) {
        return 0;
    }
    *value = prt_unzigzag(*value);
    r->left -= (size_t)length;
    return (size_t)length;
}

/* ---------------------------------------------------------------- encodings */

/* Rows are written as int64 or, `narrow`, as int32. The compiler makes two functions of each that takes this. */
static inline void put(void *values, size_t i, int64_t value, int narrow) {
    if (narrow) {
        ((int32_t *)values)[i] = (int32_t)value;
    } else {
        ((int64_t *)values)[i] = value;
    }
}

static inline uint64_t beyond_narrow(int64_t value) { return ((uint64_t)value + 0x80000000u) >> 32; } /* not 0 if it does not fit */

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* Runs are written eight rows at a time, up to seven too many: PRT_SLACK. */
static ALWAYS_INLINE int put_runs(struct prt_workspace *w, struct run r, void *values, int narrow) {
    uint64_t beyond = 0;
    w->complete = 1;
    for (size_t row = 0; r.left;) {
        uint64_t value;
        size_t length = next_run(&r, &value);
        if (!length) {
            return -EBADMSG;
        }
        w->complete &= (int64_t)value != PRT_MISSING;
        beyond |= beyond_narrow((int64_t)value);
        for (size_t i = 0; i < length; i += 8) {
            for (size_t k = 0; k < 8; k++) {
                put(values, row + i + k, (int64_t)value, narrow);
            }
        }
        row += length;
    }
    if (r.at != r.end) {
        return -EBADMSG;
    }
    return narrow && beyond ? PRT_TOO_WIDE : 0;
}

static int get_run_differences(struct prt_workspace *w, struct run r, uint64_t before, int64_t *values) {
    uint64_t signs = 0;
    while (r.left) {
        uint64_t step;
        size_t length = next_run(&r, &step);
        if (!length) {
            return -EBADMSG;
        }
        for (size_t i = 0; i < length; i++) {
            signs |= (uint64_t)(values[i] = (int64_t)(before + step * (uint64_t)(i + 1)));
        }
        before += step * (uint64_t)length;
        values += length;
    }
    w->complete = !(signs >> 63);
    return r.at == r.end ? 0 : -EBADMSG;
}

/* Makes the names ready that DELTA_SAME and RLE_SAME refer to, and a last value of 0 for each. */
static int begin_same(struct prt_workspace *w, uint8_t id) {
    const int64_t *names;
    if (id == 1) {
        return -EBADMSG;
    }
    int status = prt_kept_integers(w, 1, &names);
    if (status) {
        return status < 0 ? status : -EBADMSG;
    }
    size_t count = w->payload->count;
    if (!count) {
        return 0; /* no row refers to a name, and there may be no memory for names yet */
    }
    if (w->known[1] < 2) { /* not yet checked in this block */
        if ((status = room(&w->names, &w->name_capacity, count))) {
            return status;
        }
        uint64_t all = 0;
        uint32_t largest = 0;
        for (size_t i = 0; i < count; i++) {
            uint32_t name = (uint32_t)names[i];
            all |= (uint64_t)names[i];
            w->names[i] = name;
            largest = name > largest ? name : largest;
        }
        if (all >= PRT_SAME_MAX) {
            return -EBADMSG; /* a power of two */
        }
        for (size_t i = 0; i < PRT_SLACK; i++) {
            w->names[count + i] = 0;
        }
        if (largest >= w->last_capacity) {
            size_t wanted = largest < 4096 ? 4096 : PRT_SAME_MAX;
            if ((status = room(&w->last, &w->last_capacity, wanted))) {
                return status;
            }
        }
        w->known[1] = 2;
        w->largest_name = largest;
    }
    if (w->largest_name < count) {
        memset(w->last, 0, (w->largest_name + 1) * sizeof *w->last);
    } else {
        for (size_t i = 0; i < count + PRT_SLACK; i++) {
            w->last[w->names[i]] = 0;
        }
    }
    return 0;
}
_Static_assert((PRT_SAME_MAX & (PRT_SAME_MAX - 1)) == 0, "begin_same looks at bits");

static ALWAYS_INLINE int put_run_same(struct prt_workspace *w, struct run r, uint8_t id, void *values, int narrow) {
    int status = begin_same(w, id);
    if (status) {
        return status;
    }
    const uint32_t *names = w->names;
    int64_t *last = w->last;
    uint64_t beyond = 0, signs = 0;
    for (size_t row = 0; r.left;) {
        uint64_t step;
        size_t length = next_run(&r, &step);
        if (!length) {
            return -EBADMSG;
        }
        if (!step) {
            for (size_t i = 0; i < length; i += 8) { /* as in put_runs; the names behind the last are 0 */
                for (size_t k = 0; k < 8; k++) {
                    put(values, row + i + k, last[names[row + i + k]], narrow);
                }
            }
        } else {
            for (size_t i = 0; i < length; i++) {
                int64_t value = last[names[row + i]] = (int64_t)((uint64_t)last[names[row + i]] + step);
                beyond |= beyond_narrow(value);
                signs |= (uint64_t)value;
                put(values, row + i, value, narrow);
            }
        }
        row += length;
    }
    w->complete = !(signs >> 63);
    if (r.at != r.end) {
        return -EBADMSG;
    }
    return narrow && beyond ? PRT_TOO_WIDE : 0;
}

static int get_runs(struct prt_workspace *w, struct run r, int64_t *values) { return put_runs(w, r, values, 0); }
static int get_narrow_runs(struct prt_workspace *w, struct run r, int32_t *values) { return put_runs(w, r, values, 1); }
static int get_run_same(struct prt_workspace *w, struct run r, uint8_t id, int64_t *values) { return put_run_same(w, r, id, values, 0); }
static int get_narrow_run_same(struct prt_workspace *w, struct run r, uint8_t id, int32_t *values) {
    return put_run_same(w, r, id, values, 1);
}

/* ---------------------------------------------------------------- gaps */

struct stream_end {
    uint64_t device, stream, end;
    uint8_t used;
};
#define SLOTS (2 * PRT_STREAMS_MAX)

struct gaps {
    const int64_t *durations, *devices, *streams; /* NULL: zeros */
    uint64_t first, device, stream, end;          /* of the row before */
    int several;
    size_t known;
    struct stream_end *at, ends[SLOTS];
};

/* The end of the last row of this stream; NULL when the block has too many streams. */
static struct stream_end *find_stream(struct gaps *g, uint64_t device, uint64_t stream) {
    size_t slot = (size_t)((device * 31 + stream) % SLOTS);
    while (g->ends[slot].used && (g->ends[slot].device != device || g->ends[slot].stream != stream)) {
        slot = (slot + 1) % SLOTS;
    }
    if (!g->ends[slot].used) {
        if (++g->known > PRT_STREAMS_MAX) {
            return NULL;
        }
        g->ends[slot] = (struct stream_end){device, stream, g->first, 1};
    }
    return &g->ends[slot];
}

/* A column that GAP refers to: NULL if it is missing. */
static int referred(struct prt_workspace *w, int there, uint8_t id, const int64_t **values) {
    *values = NULL;
    if (!there) {
        return 0;
    }
    int status = prt_kept_integers(w, id, values);
    if (status == 1) {
        *values = NULL;
    }
    return status < 0 ? status : 0;
}

/* Whether a requested column is one run. */
static int is_constant(const struct prt_workspace *w, uint8_t id) {
    int64_t value;
    return prt_constant(w, id, &value);
}

static int begin_gaps(struct prt_workspace *w, struct gaps *g) {
    const struct prt_payload *p = w->payload;
    int status = referred(w, 1, 3, &g->durations);
    if (!status) {
        status = referred(w, p->type >= PRT_KERNEL, 4, &g->devices);
    }
    if (!status) {
        status = referred(w, p->type >= PRT_API, 6, &g->streams);
    }
    if (status) {
        return status;
    }
    if (g->devices && is_constant(w, 4)) {
        g->devices = NULL; /* one is as good as the other */
    }
    if (g->streams && is_constant(w, 6)) {
        g->streams = NULL;
    }
    g->several = g->devices || g->streams;
    g->first = g->end = (uint64_t)p->first_time;
    if (!g->several) {
        return 0;
    }
    g->known = 0;
    for (size_t i = 0; i < SLOTS; i++) {
        g->ends[i].used = 0;
    }
    g->device = g->devices && p->count ? (uint64_t)g->devices[0] : 0;
    g->stream = g->streams && p->count ? (uint64_t)g->streams[0] : 0;
    g->at = find_stream(g, g->device, g->stream);
    return 0;
}

static inline uint64_t value_of(const int64_t *values, size_t row) { return values ? (uint64_t)values[row] : 0; }

static int get_gaps(struct gaps *g, size_t row, size_t count, const uint64_t *gap_of, int64_t *values) {
    uint64_t end = g->end;
    if (!g->several) {
        if (g->durations) {
            for (size_t i = 0; i < count; i++) {
                uint64_t gap = gap_of[i];
                values[i] = (int64_t)(end + gap);
                end += gap + (uint64_t)g->durations[row + i];
            }
        } else {
            for (size_t i = 0; i < count; i++) {
                values[i] = (int64_t)(end += gap_of[i]);
            }
        }
        g->end = end;
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t device = value_of(g->devices, row + i), stream = value_of(g->streams, row + i);
        if (device != g->device || stream != g->stream) {
            g->at->end = end;
            if (!(g->at = find_stream(g, device, stream))) {
                return -EBADMSG;
            }
            end = g->at->end;
            g->device = device;
            g->stream = stream;
        }
        uint64_t gap = gap_of[i];
        values[i] = (int64_t)(end + gap);
        end += gap + value_of(g->durations, row + i);
    }
    g->end = end;
    return 0;
}

/* ---------------------------------------------------------------- a number a row */

#define PIECE 1024 /* rows at a time: intermediate values stay in the nearest cache */

/* The rows of a column that has a number for each, as int64 in `values` or as int32 in `narrow`. */
static int get_numbers(struct prt_workspace *w, uint8_t id, uint64_t base, int64_t *values, int32_t *narrow) {
    const struct prt_payload *p = w->payload;
    const uint8_t *at = p->columns[id].at, *end = at + p->columns[id].length;
    const uint8_t encoding = p->columns[id].encoding;
    uint64_t numbers[PIECE], beyond = 0, signs = 0;
    int64_t wide[PIECE], *last = NULL;
    struct gaps gaps;
    int status = 0;
    if (encoding == PRT_DELTA_SAME) {
        status = begin_same(w, id);
        last = w->last;
    } else if (encoding == PRT_GAP) {
        if (id != 2 || p->type < PRT_ANNOTATION || p->type > PRT_SYNC || p->type == PRT_COUNTER) {
            return -EBADMSG;
        }
        status = begin_gaps(w, &gaps);
    }
    if (status) {
        return status;
    }
    size_t some;
    for (size_t row = 0; row < p->count; row += some) {
        some = p->count - row < PIECE ? p->count - row : PIECE;
        int64_t *to = narrow ? wide : values + row;
        uint64_t *raw = encoding == PRT_VARINT || encoding == PRT_ZIGZAG ? (uint64_t *)to : numbers;
        at = encoding == PRT_VARINT ? prt_varints(at, end, some, raw) : prt_zigzags(at, end, some, raw);
        if (!at) {
            return -EBADMSG;
        }
        switch (encoding) {
        case PRT_VARINT:
        case PRT_ZIGZAG:
            for (size_t i = 0; i < some; i++) {
                signs |= raw[i];
            }
            break;
        case PRT_DELTA:
            for (size_t i = 0; i < some; i++) {
                to[i] = (int64_t)(base += numbers[i]);
                signs |= base;
            }
            break;
        case PRT_DELTA_SAME:
            for (size_t i = 0; i < some; i++) {
                uint32_t name = w->names[row + i];
                uint64_t value = (uint64_t)last[name] + numbers[i];
                to[i] = last[name] = (int64_t)value;
                signs |= value;
            }
            break;
        default: /* GAP */
            if ((status = get_gaps(&gaps, row, some, numbers, to))) {
                return status;
            }
            signs = UINT64_MAX;
        }
        for (size_t i = 0; narrow && i < some; i++) {
            beyond |= (uint64_t)to[i] + 0x80000000u;
            narrow[row + i] = (int32_t)to[i];
        }
    }
    if (at != end) {
        return -EBADMSG;
    }
    w->complete = !(signs >> 63);
    return narrow && beyond >> 32 ? PRT_TOO_WIDE : 0;
}

/* ---------------------------------------------------------------- columns */

/* Whether differences of this column begin at the block's first time. */
static int is_time(uint16_t type, uint8_t id) {
    switch (type) {
    case PRT_CLOCK: return id == 1;
    case PRT_ANNOTATION:
    case PRT_COUNTER:
    case PRT_API:
    case PRT_KERNEL:
    case PRT_MEMCPY:
    case PRT_MEMSET:
    case PRT_SYNC: return id == 2;
    case PRT_METRIC: return id == 3;
    case PRT_LOSS: return id == 4 || id == 5;
    default: return 0;
    }
}

int prt_integers(struct prt_workspace *w, uint8_t id, int64_t *values) {
    const struct prt_payload *p = w->payload;
    size_t count = p->count;
    const uint8_t *at = p->columns[id].at;
    w->complete = 0;
    if (!at) {
        return 1;
    }
    uint64_t base = is_time(p->type, id) ? (uint64_t)p->first_time : 0;
    struct run r = {at, at + p->columns[id].length, count};
    switch (p->columns[id].encoding) {
    case PRT_FIXED64:
        if (p->columns[id].length != count * 8) {
            return -EBADMSG;
        }
        for (size_t i = 0; i < count; i++) {
            values[i] = (int64_t)get64(at + i * 8);
        }
        return 0;
    case PRT_RLE: return get_runs(w, r, values);
    case PRT_RLE_DELTA: return get_run_differences(w, r, base, values);
    case PRT_RLE_SAME: return get_run_same(w, r, id, values);
    case PRT_VARINT:
    case PRT_ZIGZAG:
    case PRT_DELTA:
    case PRT_DELTA_SAME:
    case PRT_GAP: return get_numbers(w, id, base, values, NULL);
    case PRT_BYTES:
    case PRT_SCALED: return -EBADMSG;
    default: w->unknown_encodings++; return 1;
    }
}

int prt_narrow_integers(struct prt_workspace *w, uint8_t id, int32_t *values) {
    const struct prt_payload *p = w->payload;
    const uint8_t *at = p->columns[id].at;
    if (!at) {
        return 1;
    }
    if (!w->known[id]) {
        struct run r = {at, at + p->columns[id].length, p->count};
        uint64_t base = is_time(p->type, id) ? (uint64_t)p->first_time : 0;
        switch (p->columns[id].encoding) {
        case PRT_RLE: return get_narrow_runs(w, r, values);
        case PRT_RLE_SAME: return get_narrow_run_same(w, r, id, values);
        case PRT_VARINT:
        case PRT_ZIGZAG:
        case PRT_DELTA:
        case PRT_DELTA_SAME: return get_numbers(w, id, base, NULL, values);
        default: break;
        }
    }
    const int64_t *wide;
    int status = prt_kept_integers(w, id, &wide);
    if (status) {
        return status;
    }
    uint64_t beyond = 0;
    for (size_t i = 0; i < p->count; i++) {
        values[i] = (int32_t)wide[i];
        beyond |= (uint64_t)wide[i] + 0x80000000u; /* high bits are set if it does not fit */
    }
    return beyond >> 32 ? PRT_TOO_WIDE : 0;
}

int prt_constant(const struct prt_workspace *w, uint8_t id, int64_t *value) {
    const struct prt_payload *p = w->payload;
    if (!p->columns[id].at || p->columns[id].encoding != PRT_RLE) {
        return 0;
    }
    uint64_t found = 0;
    struct run r = {p->columns[id].at, p->columns[id].at + p->columns[id].length, p->count};
    if (next_run(&r, &found) != p->count || !p->count || r.at != r.end) {
        return 0;
    }
    *value = (int64_t)found;
    return 1;
}

/* A column that is being decoded refers to nothing that refers to it: 1, 3, 4, 6 are neither GAP nor, if 1, relative to a name. */
int prt_kept_integers(struct prt_workspace *w, uint8_t id, const int64_t **values) {
    if (!w->known[id]) {
        size_t count = w->payload->count;
        int status = room(&w->values[id], &w->capacity[id], count ? count : 1);
        if (!status) {
            status = prt_integers(w, id, w->values[id]);
        }
        if (status) {
            return status;
        }
        if (!w->known[id]) {
            w->known[id] = 1;
        }
    }
    *values = w->values[id];
    return 0;
}

int prt_doubles(struct prt_workspace *w, uint8_t id, double *values) {
    static const double powers[10] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    const struct prt_payload *p = w->payload;
    size_t count = p->count;
    const uint8_t *at = p->columns[id].at;
    if (!at) {
        return 1;
    }
    const uint8_t *end = at + p->columns[id].length;
    if (p->columns[id].encoding == PRT_FIXED64) {
        if (p->columns[id].length != count * 8) {
            return -EBADMSG;
        }
        for (size_t i = 0; i < count; i++) {
            uint64_t bits = get64(at + i * 8);
            memcpy(&values[i], &bits, 8);
        }
        return 0;
    }
    if (p->columns[id].encoding > PRT_RLE_SAME) {
        w->unknown_encodings++;
        return 1;
    }
    if (p->columns[id].encoding != PRT_SCALED || at == end || *at > 9 || (size_t)(end - at) <= count) {
        if (p->columns[id].encoding == PRT_SCALED && !count && end - at == 1 && *at <= 9) {
            return 0;
        }
        return -EBADMSG;
    }
    double divisor = powers[*at++];
    uint64_t numbers[PIECE], number = 0;
    size_t some;
    for (size_t row = 0; row < count; row += some) {
        some = count - row < PIECE ? count - row : PIECE;
        if (!(at = prt_zigzags(at, end, some, numbers))) {
            return -EBADMSG;
        }
        for (size_t i = 0; i < some; i++) {
            number += numbers[i];
            values[row + i] = (double)(int64_t)number / divisor;
        }
    }
    return at == end ? 0 : -EBADMSG;
}

/* ---------------------------------------------------------------- text */

/* The length of the character at `at`, 0 if it is not UTF-8. */
static size_t character(const uint8_t *at, size_t left) {
    uint8_t c = at[0];
    if (c < 0x80) {
        return 1;
    }
    size_t size = c >= 0xC2 && c <= 0xDF ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
    if (!size || size > left) {
        return 0;
    }
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    if ((c == 0xE0 && at[1] < 0xA0) || (c == 0xED && at[1] > 0x9F) || (c == 0xF0 && at[1] < 0x90) || (c == 0xF4 && at[1] > 0x8F)) {
        return 0;
    }
    return size;
}

static void put_text(uint8_t *to, const uint8_t *at, size_t length) {
    for (size_t i = 0; i < length;) {
        size_t size = character(at + i, length - i);
        if (!size) {
            to[i++] = '?';
            continue;
        }
        memcpy(to + i, at + i, size);
        i += size;
    }
}

int prt_texts(struct prt_workspace *w, uint8_t id, int32_t *offsets, uint8_t *bytes) {
    const struct prt_payload *p = w->payload;
    const uint8_t *at = p->columns[id].at;
    if (!at) {
        return 1;
    }
    const uint8_t *end = at + p->columns[id].length;
    if (p->columns[id].encoding > PRT_RLE_SAME) {
        w->unknown_encodings++;
        return 1;
    }
    if (p->columns[id].encoding != PRT_BYTES) {
        return -EBADMSG;
    }
    int32_t used = 0;
    offsets[0] = 0;
    for (size_t i = 0; i < p->count; i++) {
        uint64_t length;
        if (!(at = prt_varint(at, end, &length)) || length > (uint64_t)(end - at)) {
            return -EBADMSG;
        }
        put_text(bytes + used, at, (size_t)length);
        at += length;
        used += (int32_t)length;
        offsets[i + 1] = used;
    }
    return at == end ? 0 : -EBADMSG;
}
