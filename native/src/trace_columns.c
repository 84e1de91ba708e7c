/* trace_columns.c - how do the bytes of a block become columns of values? (docs/trace-format.md)
 *
 * Nothing is believed: a varint, a run or a text that does not fit makes the block malformed (-EBADMSG), and so do bytes left over. */
#include "trace_columns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

static uint64_t unzigzag(uint64_t value) { return (value >> 1) ^ (0u - (value & 1u)); }

/* ---------------------------------------------------------------- workspace */

void prt_workspace_free(struct prt_workspace *w) {
    for (size_t i = 0; i < PRT_COLUMN_IDS; i++) free(w->values[i]);
    free(w->residuals);
    free(w->last);
    *w = (struct prt_workspace){0};
}

void prt_workspace_begin(struct prt_workspace *w, const struct prt_payload *payload) {
    w->payload = payload;
    memset(w->known, 0, sizeof w->known);
}

/* Room for `count` elements of 8 bytes; what was there is lost. */
static int room(void *pointer, size_t *capacity, size_t count) {
    if (count <= *capacity) return 0;
    void *old;
    memcpy(&old, pointer, sizeof old);
    free(old);
    void *fresh = malloc(count * 8);
    memcpy(pointer, &fresh, sizeof fresh);
    *capacity = fresh ? count : 0;
    return fresh ? 0 : -ENOMEM;
}

int prt_payload_find(struct prt_payload *p, const uint8_t *data, size_t length) {
    memset(p->columns, 0, sizeof p->columns);
    for (size_t at = 0; at < length;) {
        if (length - at < 8) return -EBADMSG;
        uint32_t size = get32(data + at + 4);
        uint8_t id = data[at], encoding = data[at + 1];
        at += 8;
        if (size > length - at) return -EBADMSG;
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

/* The number at `at`; NULL where it does not end before `end` or does not fit 64 bits. */
static const uint8_t *get_varint(const uint8_t *at, const uint8_t *end, uint64_t *value) {
    uint64_t result = 0;
    for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
        uint64_t byte = *at++;
        if (shift == 63 && byte > 1) return NULL;
        result |= (byte & 127u) << shift;
        if (byte < 128) {
            *value = result;
            return at;
        }
    }
    return NULL;
}

#define LAST_BYTES 0x8080808080808080u
#define PAIRS 0x8000800080008000u

/* Takes the seven low bits of each byte of `word` together. */
static uint64_t join(uint64_t word) {
    word = (word & 0x007F007F007F007Fu) | (word & 0x7F007F007F007F00u) >> 1;
    word = (word & 0x00003FFF00003FFFu) | (word & 0x3FFF00003FFF0000u) >> 2;
    return (word & 0x000000000FFFFFFFu) | (word & 0x0FFFFFFF00000000u) >> 4;
}

static int get_varints(const uint8_t *at, const uint8_t *end, size_t count, uint64_t *values) {
    size_t i = 0;
    while (i < count && end - at >= 8) {
        uint64_t word = get64(at), ends = ~word & LAST_BYTES;
        if (ends == LAST_BYTES && count - i >= 8) { /* eight numbers of one byte */
            for (size_t k = 0; k < 8; k++) values[i + k] = at[k];
            i += 8;
            at += 8;
            continue;
        }
        if (ends == PAIRS && count - i >= 4) { /* four numbers of two bytes */
            word = (word & 0x007F007F007F007Fu) | (word & 0x7F007F007F007F00u) >> 1;
            for (size_t k = 0; k < 4; k++) values[i + k] = word >> 16 * k & 0xFFFFu;
            i += 4;
            at += 8;
            continue;
        }
        if (!ends) { /* longer than eight bytes */
            if (!(at = get_varint(at, end, &values[i++]))) return -EBADMSG;
            continue;
        }
        uint64_t upto = ends ^ (ends - 1), more = ends & (ends - 1);
        unsigned first = ((unsigned)__builtin_ctzll(ends) >> 3) + 1;
        values[i] = join(word & upto);
        if (!more || count - i < 2) {
            i++;
            at += first;
            continue;
        }
        values[i + 1] = join((word & (more ^ (more - 1)) & ~upto) >> (8 * first)); /* a second one in the same word */
        i += 2;
        at += ((unsigned)__builtin_ctzll(more) >> 3) + 1;
    }
    for (; i < count; i++)
        if (!(at = get_varint(at, end, &values[i]))) return -EBADMSG;
    return at == end ? 0 : -EBADMSG;
}

struct run {
    const uint8_t *at, *end;
    size_t left;
};

/* The next run: its length, 0 when malformed. */
static size_t next_run(struct run *r, uint64_t *value) {
    uint64_t length;
    if (!(r->at = get_varint(r->at, r->end, &length)) || !(r->at = get_varint(r->at, r->end, value))) return 0;
    if (length > r->left) return 0;
    *value = unzigzag(*value);
    r->left -= (size_t)length;
    return (size_t)length;
}

/* ---------------------------------------------------------------- encodings */

static int get_runs(struct prt_workspace *w, struct run r, int64_t *values) {
    w->complete = 1;
    while (r.left) {
        uint64_t value;
        size_t length = next_run(&r, &value);
        if (!length) return -EBADMSG;
        w->complete &= (int64_t)value != PRT_MISSING;
        for (size_t i = 0; i < length; i++) values[i] = (int64_t)value;
        values += length;
    }
    return r.at == r.end ? 0 : -EBADMSG;
}

static int get_run_differences(struct run r, uint64_t before, int64_t *values) {
    while (r.left) {
        uint64_t step;
        size_t length = next_run(&r, &step);
        if (!length) return -EBADMSG;
        for (size_t i = 0; i < length; i++) values[i] = (int64_t)(before + step * (uint64_t)(i + 1));
        before += step * (uint64_t)length;
        values += length;
    }
    return r.at == r.end ? 0 : -EBADMSG;
}

/* The names that DELTA_SAME and RLE_SAME refer to, and a last value of 0 for each. */
static int begin_same(struct prt_workspace *w, uint8_t id, const int64_t **names) {
    if (id == 1) return -EBADMSG;
    int status = prt_kept_integers(w, 1, names);
    if (status) return status < 0 ? status : -EBADMSG;
    size_t count = w->payload->count;
    if (w->known[1] < 2) { /* not yet checked in this block */
        uint64_t largest = 0;
        for (size_t i = 0; i < count; i++) largest = (uint64_t)(*names)[i] > largest ? (uint64_t)(*names)[i] : largest;
        if (largest >= PRT_SAME_MAX) return -EBADMSG;
        if (largest >= w->last_capacity) {
            size_t wanted = largest + 1 < 4096 ? 4096 : PRT_SAME_MAX;
            if ((status = room(&w->last, &w->last_capacity, wanted))) return status;
        }
        w->known[1] = 2;
        w->largest_name = (size_t)largest;
    }
    if (w->largest_name < count) memset(w->last, 0, (w->largest_name + 1) * sizeof *w->last);
    else
        for (size_t i = 0; i < count; i++) w->last[(*names)[i]] = 0;
    return 0;
}

static int get_run_same(struct prt_workspace *w, struct run r, uint8_t id, int64_t *values) {
    const int64_t *names;
    int status = begin_same(w, id, &names);
    if (status) return status;
    int64_t *last = w->last;
    while (r.left) {
        uint64_t step;
        size_t length = next_run(&r, &step);
        if (!length) return -EBADMSG;
        if (!step) {
            for (size_t i = 0; i < length; i++) values[i] = last[names[i]];
        } else {
            for (size_t i = 0; i < length; i++) values[i] = last[names[i]] = (int64_t)((uint64_t)last[names[i]] + step);
        }
        values += length;
        names += length;
    }
    return r.at == r.end ? 0 : -EBADMSG;
}

static int get_same(struct prt_workspace *w, uint8_t id, int64_t *values) {
    const int64_t *names;
    int status = begin_same(w, id, &names);
    if (status) return status;
    int64_t *last = w->last;
    for (size_t i = 0; i < w->payload->count; i++)
        values[i] = last[names[i]] = (int64_t)((uint64_t)last[names[i]] + unzigzag(w->residuals[i]));
    return 0;
}

struct stream_end {
    uint64_t device, stream, end;
    uint8_t used;
};
#define SLOTS (2 * PRT_STREAMS_MAX)

/* The end of the last row of this stream; NULL when the block has too many streams. */
static struct stream_end *find_stream(struct stream_end *ends, size_t *known, uint64_t device, uint64_t stream, uint64_t first) {
    size_t slot = (size_t)((device * 31 + stream) % SLOTS);
    while (ends[slot].used && (ends[slot].device != device || ends[slot].stream != stream)) slot = (slot + 1) % SLOTS;
    if (!ends[slot].used) {
        if (++*known > PRT_STREAMS_MAX) return NULL;
        ends[slot] = (struct stream_end){device, stream, first, 1};
    }
    return &ends[slot];
}

/* A column that GAP refers to: zeros where there is none. */
static int referred(struct prt_workspace *w, int there, uint8_t id, const int64_t **values) {
    *values = NULL;
    if (!there) return 0;
    int status = prt_kept_integers(w, id, values);
    if (status == 1) *values = NULL;
    return status < 0 ? status : 0;
}

static int all_equal(const int64_t *values, size_t count) {
    if (!values || !count) return 1;
    uint64_t different = 0;
    for (size_t i = 1; i < count; i++) different |= (uint64_t)(values[i] ^ values[0]);
    return !different;
}

static int get_gaps(struct prt_workspace *w, int64_t *values) {
    const struct prt_payload *p = w->payload;
    const int64_t *durations, *devices, *streams;
    int status = referred(w, 1, 3, &durations);
    if (!status) status = referred(w, p->type >= PRT_KERNEL, 4, &devices);
    if (!status) status = referred(w, p->type >= PRT_API, 6, &streams);
    if (status) return status;
    if (all_equal(devices, p->count) && all_equal(streams, p->count)) {
        uint64_t end = (uint64_t)p->first_time;
        for (size_t i = 0; i < p->count; i++) {
            uint64_t start = end + unzigzag(w->residuals[i]);
            values[i] = (int64_t)start;
            end = start + (durations ? (uint64_t)durations[i] : 0);
        }
        return 0;
    }
    struct stream_end ends[SLOTS];
    for (size_t i = 0; i < SLOTS; i++) ends[i].used = 0;
    size_t known = 0;
    struct stream_end *at = NULL;
    for (size_t i = 0; i < p->count; i++) {
        uint64_t device = devices ? (uint64_t)devices[i] : 0, stream = streams ? (uint64_t)streams[i] : 0;
        if (!at || at->device != device || at->stream != stream) {
            at = find_stream(ends, &known, device, stream, (uint64_t)p->first_time);
            if (!at) return -EBADMSG;
        }
        uint64_t start = at->end + unzigzag(w->residuals[i]);
        values[i] = (int64_t)start;
        at->end = start + (durations ? (uint64_t)durations[i] : 0);
    }
    return 0;
}

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
    if (!at) return 1;
    const uint8_t *end = at + p->columns[id].length;
    uint64_t base = is_time(p->type, id) ? (uint64_t)p->first_time : 0;
    struct run r = {at, end, count};
    switch (p->columns[id].encoding) {
    case PRT_FIXED64:
        if (p->columns[id].length != count * 8) return -EBADMSG;
        for (size_t i = 0; i < count; i++) values[i] = (int64_t)get64(at + i * 8);
        return 0;
    case PRT_RLE: return get_runs(w, r, values);
    case PRT_RLE_DELTA: return get_run_differences(r, base, values);
    case PRT_RLE_SAME: return get_run_same(w, r, id, values);
    case PRT_VARINT:
    case PRT_ZIGZAG:
    case PRT_DELTA:
    case PRT_DELTA_SAME:
    case PRT_GAP: break;
    case PRT_BYTES:
    case PRT_SCALED: return -EBADMSG;
    default: w->unknown_encodings++; return 1;
    }
    if (p->columns[id].length < count) return -EBADMSG;
    int status;
    if (p->columns[id].encoding == PRT_GAP) { /* first what it refers to: that uses the residuals, too */
        const int64_t *unused;
        if (id != 2 || p->type < PRT_ANNOTATION || p->type > PRT_SYNC || p->type == PRT_COUNTER) return -EBADMSG;
        if ((status = referred(w, 1, 3, &unused)) || (status = referred(w, p->type >= PRT_KERNEL, 4, &unused)) ||
            (status = referred(w, p->type >= PRT_API, 6, &unused)))
            return status;
    } else if (p->columns[id].encoding == PRT_DELTA_SAME) {
        const int64_t *unused;
        if (id == 1 || (status = prt_kept_integers(w, 1, &unused)) == 1) return -EBADMSG;
        if (status) return status;
    }
    if ((status = room(&w->residuals, &w->residual_capacity, count))) return status;
    if ((status = get_varints(at, end, count, w->residuals))) return status;
    switch (p->columns[id].encoding) {
    case PRT_VARINT:
        for (size_t i = 0; i < count; i++) values[i] = (int64_t)w->residuals[i];
        return 0;
    case PRT_ZIGZAG:
        for (size_t i = 0; i < count; i++) values[i] = (int64_t)unzigzag(w->residuals[i]);
        return 0;
    case PRT_DELTA:
        for (size_t i = 0; i < count; i++) values[i] = (int64_t)(base += unzigzag(w->residuals[i]));
        return 0;
    case PRT_DELTA_SAME: return get_same(w, id, values);
    default: return get_gaps(w, values);
    }
}

/* A column that is being decoded refers to nothing that refers to it: 1, 3, 4, 6 are neither GAP nor, if 1, relative to a name. */
int prt_kept_integers(struct prt_workspace *w, uint8_t id, const int64_t **values) {
    if (!w->known[id]) {
        size_t count = w->payload->count;
        int status = room(&w->values[id], &w->capacity[id], count ? count : 1);
        if (!status) status = prt_integers(w, id, w->values[id]);
        if (status) return status;
        if (!w->known[id]) w->known[id] = 1;
    }
    *values = w->values[id];
    return 0;
}

int prt_doubles(struct prt_workspace *w, uint8_t id, double *values) {
    static const double powers[10] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9};
    const struct prt_payload *p = w->payload;
    size_t count = p->count;
    const uint8_t *at = p->columns[id].at;
    if (!at) return 1;
    const uint8_t *end = at + p->columns[id].length;
    if (p->columns[id].encoding == PRT_FIXED64) {
        if (p->columns[id].length != count * 8) return -EBADMSG;
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
        if (p->columns[id].encoding == PRT_SCALED && !count && end - at == 1 && *at <= 9) return 0;
        return -EBADMSG;
    }
    int status = room(&w->residuals, &w->residual_capacity, count);
    if (status) return status;
    double divisor = powers[*at];
    if ((status = get_varints(at + 1, end, count, w->residuals))) return status;
    uint64_t number = 0;
    for (size_t i = 0; i < count; i++) {
        number += unzigzag(w->residuals[i]);
        values[i] = (double)(int64_t)number / divisor;
    }
    return 0;
}

/* ---------------------------------------------------------------- text */

/* Bytes of the character at `at`, 0 where it is no UTF-8. */
static size_t character(const uint8_t *at, size_t left) {
    uint8_t c = at[0];
    if (c < 0x80) return 1;
    size_t size = c >= 0xC2 && c <= 0xDF ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
    if (!size || size > left) return 0;
    for (size_t i = 1; i < size; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    if ((c == 0xE0 && at[1] < 0xA0) || (c == 0xED && at[1] > 0x9F) || (c == 0xF0 && at[1] < 0x90) || (c == 0xF4 && at[1] > 0x8F)) return 0;
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
    if (!at) return 1;
    const uint8_t *end = at + p->columns[id].length;
    if (p->columns[id].encoding > PRT_RLE_SAME) {
        w->unknown_encodings++;
        return 1;
    }
    if (p->columns[id].encoding != PRT_BYTES) return -EBADMSG;
    int32_t used = 0;
    offsets[0] = 0;
    for (size_t i = 0; i < p->count; i++) {
        uint64_t length;
        if (!(at = get_varint(at, end, &length)) || length > (uint64_t)(end - at)) return -EBADMSG;
        put_text(bytes + used, at, (size_t)length);
        at += length;
        used += (int32_t)length;
        offsets[i + 1] = used;
    }
    return at == end ? 0 : -EBADMSG;
}
