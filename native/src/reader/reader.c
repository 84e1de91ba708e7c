/* reader.c - opens a trace file: finds the intact blocks, and reports what is lost between them. */
#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/zstd_loader.h"
#include "reader_internal.h"

#define WINDOW (1u << 20)
#define SITES_MAX 1000
#define NAME_BYTES_MAX (128u << 20) /* NAME_TEXT_BYTES of ingest/store/limits.py */
#define NAME_SLACK 65536
#define NAMES_MAX (1u << 20)

static const uint8_t file_magic[8] = {0x89, 'P', 'R', 'T', '\r', '\n', 0x1A, '\n'};
static const uint8_t block_magic[4] = {'P', 'R', 'B', 'K'};

static uint32_t get16(const uint8_t *at) { return (uint32_t)at[0] | (uint32_t)at[1] << 8; }
static uint32_t get32(const uint8_t *at) { return get16(at) | get16(at + 2) << 16; }
static uint64_t get64(const uint8_t *at) { return get32(at) | (uint64_t)get32(at + 4) << 32; }

/* ---------------------------------------------------------------- problems */

static const char *const problem_names[PRT_PROBLEMS] = {
    "damaged",       "missing_blocks",  "truncated",        "no_end",       "bad_header",     "undecodable", "no_zstd",
    "unknown_codec", "unknown_type",    "unknown_encoding", "out_of_order", "row_limit",      "no_clock",    "bad_clock",
    "bad_string",    "unresolved_name", "out_of_range",     "unreadable",   "unpacked_limit",
};

const char *prt_problem_name(enum prt_problem_code code) { return problem_names[code]; }

static prt_problem problem_at(enum prt_problem_code code, uint64_t offset) {
    return (prt_problem){.code = code, .offset = offset, .first_ns = PRT_MISSING, .last_ns = PRT_MISSING};
}

static int64_t earlier(int64_t a, int64_t b) { return a == PRT_MISSING ? b : b == PRT_MISSING ? a : a < b ? a : b; }
static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* Kinds that need only one entry. */
static int told_together(enum prt_problem_code code) {
    return code != PRT_DAMAGED && code != PRT_MISSING_BLOCKS && code != PRT_UNDECODABLE;
}

void prt_reader_report(prt_reader *r, prt_problem p) {
    pthread_mutex_lock(&r->lock);
    size_t limit = told_together(p.code) ? 1 : SITES_MAX;
    if (r->sites[p.code] >= limit) { /* the last one of its kind takes it up */
        size_t i = r->problem_count;
        while (i && r->problems[i - 1].code != p.code) {
            i--;
        }
        prt_problem *same = &r->problems[i - 1];
        same->bytes += p.bytes;
        same->blocks += p.blocks;
        same->rows += p.rows;
        same->first_ns = earlier(same->first_ns, p.first_ns);
        same->last_ns = later(same->last_ns, p.last_ns);
        pthread_mutex_unlock(&r->lock);
        return;
    }
    if (r->problem_count == r->problem_capacity) {
        size_t capacity = r->problem_capacity ? r->problem_capacity * 2 : 16;
        prt_problem *problems = realloc(r->problems, capacity * sizeof *problems);
        if (!problems) {
            pthread_mutex_unlock(&r->lock);
            return; /* one problem less is reported, as no memory is left for more */
        }
        r->problems = problems;
        r->problem_capacity = capacity;
    }
    r->problems[r->problem_count++] = p;
    r->sites[p.code]++;
    pthread_mutex_unlock(&r->lock);
}

static int has_times(uint16_t type) { return type == PRT_METRIC || (type >= PRT_ANNOTATION && type <= PRT_SYNC); }

void prt_reader_report_block(prt_reader *r, enum prt_problem_code code, const struct prt_entry *e) {
    prt_problem p = problem_at(code, e->offset);
    p.bytes = PRT_BLOCK_HEADER + e->stored;
    p.blocks = 1;
    p.rows = e->count;
    if (has_times(e->type) && r->clock.count) {
        p.first_ns = p.last_ns = prt_clock_time(&r->clock, e->first_time);
    }
    prt_reader_report(r, p);
}

int prt_reader_first_telling(prt_reader *r, size_t entry) {
    pthread_mutex_lock(&r->lock);
    int first = !r->entries[entry].reported;
    r->entries[entry].reported = 1;
    pthread_mutex_unlock(&r->lock);
    return first;
}

size_t prt_reader_problem_count(prt_reader *r) {
    pthread_mutex_lock(&r->lock);
    size_t count = r->problem_count;
    pthread_mutex_unlock(&r->lock);
    return count;
}

prt_problem prt_reader_problem(prt_reader *r, size_t index) {
    pthread_mutex_lock(&r->lock);
    prt_problem p = r->problems[index];
    pthread_mutex_unlock(&r->lock);
    return p;
}

/* ---------------------------------------------------------------- bytes of the file */

static int read_fully(const struct prt_input *input, uint64_t offset, size_t size, uint8_t *to) {
    while (size) {
        ssize_t got = pread(input->fd, to, size, (off_t)offset);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return -EIO; /* cut off while it is read, or broken */
        }
        to += got;
        offset += (uint64_t)got;
        size -= (size_t)got;
    }
    return 0;
}

static int grow(uint8_t **bytes, size_t *capacity, size_t wanted) {
    if (wanted <= *capacity) {
        return 0;
    }
    free(*bytes);
    *bytes = malloc(wanted);
    *capacity = *bytes ? wanted : 0;
    return *bytes ? 0 : -ENOMEM;
}

void prt_block_source_free(struct prt_block_source *s) {
    free(s->stored);
    free(s->raw);
}

static int decompress(struct prt_block_source *s, const struct prt_entry *e, const uint8_t *stored, const uint8_t **payload) {
    const struct prt_zstd *zstd = prt_zstd();
    if (e->codec != 2 || !zstd) {
        return -ENOTSUP;
    }
    if (grow(&s->raw, &s->raw_capacity, e->raw + 1u)) {
        return -ENOMEM;
    }
    size_t size = zstd->decompress(s->raw, e->raw, stored, e->stored);
    if (zstd->is_error(size) || size != e->raw) {
        return -EBADMSG;
    }
    *payload = s->raw;
    return 0;
}

int prt_block_payload(struct prt_block_source *s, const struct prt_entry *e, const uint8_t **payload) {
    const uint8_t *stored;
    uint64_t at = e->offset + PRT_BLOCK_HEADER;
    if (s->input->memory) {
        stored = s->input->memory + at;
    } else {
        if (grow(&s->stored, &s->stored_capacity, e->stored + 1u)) {
            return -ENOMEM;
        }
        if (read_fully(s->input, at, e->stored, s->stored)) {
            return -EIO;
        }
        stored = s->stored;
    }
    if (e->codec) {
        return decompress(s, e, stored, payload);
    }
    *payload = stored;
    return 0;
}

/* ---------------------------------------------------------------- walk over the file */

struct string_list { /* in the order of STRINGS blocks */
    struct found_string {
        uint64_t id;
        size_t at, length;
    } *items;
    size_t count, capacity;
    uint8_t *bytes;
    size_t used, byte_capacity;
};

struct walk {
    prt_reader *reader;
    /* a piece of the file in memory */
    uint8_t *window;
    size_t window_capacity, window_size;
    uint64_t window_at;
    /* the blocks */
    uint64_t expected; /* sequence number */
    uint64_t rows, row_limit, unpacked, unpacked_limit;
    uint64_t wasted, waste_limit; /* bytes of payloads that failed their checksum */
    int ended;                    /* the last block is END */
    int64_t last_time;            /* ticks of the last block that has some */
    int have_time;
    size_t open_problem; /* the first of those whose range ends with the next block that has times */
    int unread;
    /* their content */
    struct prt_block_source source;
    struct prt_workspace workspace;
    struct prt_anchor *anchors;
    size_t anchor_count, anchor_capacity;
    struct string_list strings;
    double ticks_per_second;
    int64_t first_time;
    int have_first_time;
};

/* `size` bytes at `offset`, which are in the file; NULL with `unread` set if they cannot be read. */
static const uint8_t *view(struct walk *w, uint64_t offset, size_t size) {
    const struct prt_input *input = &w->reader->input;
    if (input->memory) {
        return input->memory + offset;
    }
    if (offset >= w->window_at && offset - w->window_at <= w->window_size && size <= w->window_size - (size_t)(offset - w->window_at)) {
        return w->window + (offset - w->window_at);
    }
    size_t wanted = size > WINDOW ? size : WINDOW;
    if (wanted > input->size - offset) {
        wanted = (size_t)(input->size - offset);
    }
    w->window_size = 0;
    w->unread = grow(&w->window, &w->window_capacity, wanted + 1);
    if (!w->unread) {
        w->unread = read_fully(input, offset, wanted, w->window);
    }
    if (w->unread) {
        return NULL;
    }
    w->window_at = offset;
    w->window_size = wanted;
    return w->window;
}

/* Whether an intact block begins at `offset`. `cut` is set if a block begins that extends beyond the end of the file. `skip` is the
 * distance to continue after if none begins: a byte, but the whole block once many bytes were in vain, so that work stays linear. */
static int block_at(struct walk *w, uint64_t offset, struct prt_entry *e, uint64_t *sequence, int *cut, uint64_t *skip) {
    uint64_t left = w->reader->input.size - offset;
    *cut = 0;
    *skip = 1;
    if (left < PRT_BLOCK_HEADER) {
        return 0;
    }
    const uint8_t *h = view(w, offset, PRT_BLOCK_HEADER);
    if (!h || memcmp(h, block_magic, 4) != 0 || get32(h + 40) != prt_crc32c(0, h, 40)) {
        return 0;
    }
    *e = (struct prt_entry){.offset = offset,
                            .first_time = (int64_t)get64(h + 32),
                            .stored = get32(h + 8),
                            .raw = get32(h + 12),
                            .count = get32(h + 16),
                            .source = get32(h + 20),
                            .type = (uint16_t)get16(h + 4),
                            .codec = h[6]};
    *sequence = get64(h + 24);
    if (e->stored > PRT_STORED_MAX || e->raw > PRT_RAW_MAX || e->count > PRT_COUNT_MAX || (!e->codec && e->raw != e->stored)) {
        return 0;
    }
    if (e->stored > left - PRT_BLOCK_HEADER) {
        *cut = 1;
        return 0;
    }
    if (!(h = view(w, offset, PRT_BLOCK_HEADER + (size_t)e->stored))) {
        return 0;
    }
    if (get32(h + 44) == prt_crc32c(prt_crc32c(0, h, 44), h + PRT_BLOCK_HEADER, e->stored)) {
        return 1;
    }
    w->wasted += e->stored;
    if (w->wasted > w->waste_limit) {
        *skip = PRT_BLOCK_HEADER + (uint64_t)e->stored;
    }
    return 0;
}

/* The next offset, at or after `offset`, at which a block may begin; the end of the file if there is none. */
static uint64_t next_magic(struct walk *w, uint64_t offset) {
    uint64_t size = w->reader->input.size;
    while (size - offset >= PRT_BLOCK_HEADER) {
        size_t piece = size - offset < WINDOW ? (size_t)(size - offset) : WINDOW;
        uint64_t window_end = w->window_at + w->window_size;
        if (offset >= w->window_at && offset + PRT_BLOCK_HEADER < window_end) {
            piece = (size_t)(window_end - offset);
        }
        const uint8_t *at = view(w, offset, piece);
        if (!at) {
            return size;
        }
        const uint8_t *end = at + piece - 3, *p = at;
        while (p < end && (p = memchr(p, block_magic[0], (size_t)(end - p)))) {
            if (memcmp(p, block_magic, 4) == 0) {
                return offset + (uint64_t)(p - at);
            }
            p++;
        }
        offset += piece - 3;
    }
    return size;
}

/* ---------------------------------------------------------------- blocks that the reader itself needs */

static int grow_array(void *pointer, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) {
        return 0;
    }
    size_t larger = *capacity ? *capacity * 2 : 64;
    void *old;
    memcpy(&old, pointer, sizeof old);
    void *moved = realloc(old, larger * size);
    if (!moved) {
        return -ENOMEM;
    }
    memcpy(pointer, &moved, sizeof moved);
    *capacity = larger;
    return 0;
}

static int take_anchors(struct walk *w, uint32_t count) {
    const int64_t *ticks, *monotonic, *realtime;
    int status = prt_kept_integers(&w->workspace, 1, &ticks);
    if (!status) {
        status = prt_kept_integers(&w->workspace, 2, &monotonic);
    }
    if (!status) {
        status = prt_kept_integers(&w->workspace, 3, &realtime);
    }
    for (uint32_t i = 0; !status && i < count; i++) {
        status = grow_array(&w->anchors, w->anchor_count, &w->anchor_capacity, sizeof *w->anchors);
        if (!status) {
            w->anchors[w->anchor_count++] = (struct prt_anchor){ticks[i], monotonic[i], realtime[i]};
        }
    }
    return status > 0 ? -EBADMSG : status;
}

/* The texts of a column: offsets and bytes to be freed. */
static int take_texts(struct walk *w, const struct prt_payload *p, uint8_t id, int32_t **offsets, uint8_t **bytes) {
    *offsets = malloc(((size_t)p->count + 1) * sizeof **offsets);
    *bytes = malloc((size_t)p->columns[id].length + 1);
    if (!*offsets || !*bytes) {
        return -ENOMEM;
    }
    int status = prt_texts(&w->workspace, id, *offsets, *bytes);
    return status > 0 ? -EBADMSG : status;
}

static int take_strings(struct walk *w, const struct prt_payload *p) {
    const int64_t *ids;
    int32_t *offsets = NULL;
    uint8_t *bytes = NULL;
    struct string_list *list = &w->strings;
    int status = prt_kept_integers(&w->workspace, 1, &ids);
    if (status > 0) {
        status = -EBADMSG;
    }
    if (!status) {
        status = take_texts(w, p, 2, &offsets, &bytes);
    }
    for (uint32_t i = 0; !status && i < p->count; i++) {
        size_t length = (size_t)(offsets[i + 1] - offsets[i]);
        if (ids[i] < 1 || list->used + length > NAME_BYTES_MAX) {
            prt_reader_report(w->reader, problem_at(PRT_BAD_STRING, 0));
            continue;
        }
        if ((status = grow_array(&list->items, list->count, &list->capacity, sizeof *list->items))) {
            break;
        }
        while (!status && list->byte_capacity - list->used < length) {
            size_t larger = list->byte_capacity ? list->byte_capacity * 2 : 65536;
            uint8_t *moved = realloc(list->bytes, larger);
            if (!moved) {
                status = -ENOMEM;
            } else {
                list->bytes = moved, list->byte_capacity = larger;
            }
        }
        if (status) {
            break;
        }
        if (length) {
            memcpy(list->bytes + list->used, bytes + offsets[i], length);
        }
        list->items[list->count++] = (struct found_string){(uint64_t)ids[i], list->used, length};
        list->used += length;
    }
    free(offsets);
    free(bytes);
    return status;
}

static int take_metadata(struct walk *w, const struct prt_payload *p) {
    static const char wanted[] = "clock.ticks_per_second";
    int32_t *keys = NULL, *values = NULL;
    uint8_t *key_bytes = NULL, *value_bytes = NULL;
    int status = take_texts(w, p, 1, &keys, &key_bytes);
    if (!status) {
        status = take_texts(w, p, 2, &values, &value_bytes);
    }
    for (uint32_t i = 0; !status && i < p->count; i++) {
        size_t key = (size_t)(keys[i + 1] - keys[i]), value = (size_t)(values[i + 1] - values[i]);
        if (key != sizeof wanted - 1 || memcmp(key_bytes + keys[i], wanted, key) != 0) {
            continue;
        }
        char text[40] = "";
        if (value < sizeof text) {
            memcpy(text, value_bytes + values[i], value);
        }
        w->ticks_per_second = strtod(text, NULL);
    }
    free(keys);
    free(values);
    free(key_bytes);
    free(value_bytes);
    return status;
}

static int take_block(struct walk *w, const struct prt_entry *e) {
    const uint8_t *data;
    struct prt_payload payload = {.type = e->type, .count = e->count, .first_time = e->first_time};
    int status = prt_block_payload(&w->source, e, &data);
    if (!status) {
        status = prt_payload_find(&payload, data, e->raw);
    }
    if (status) {
        return status;
    }
    prt_workspace_begin(&w->workspace, &payload);
    if (e->type == PRT_CLOCK) {
        return take_anchors(w, e->count);
    }
    return e->type == PRT_STRINGS ? take_strings(w, &payload) : take_metadata(w, &payload);
}

/* ---------------------------------------------------------------- the walk */

/* The range of problems whose end was not known yet, in ticks for now. */
static void close_problems(struct walk *w, int64_t time) {
    prt_reader *r = w->reader;
    for (; w->open_problem < r->problem_count; w->open_problem++) {
        prt_problem *p = &r->problems[w->open_problem];
        if (p->code == PRT_DAMAGED || p->code == PRT_MISSING_BLOCKS) {
            p->last_ns = time;
        }
    }
}

static int keep(struct walk *w, const struct prt_entry *e, uint64_t sequence, uint64_t lost_from) {
    prt_reader *r = w->reader;
    if (lost_from < e->offset || sequence > w->expected) {
        prt_problem p = problem_at(lost_from < e->offset ? PRT_DAMAGED : PRT_MISSING_BLOCKS, lost_from);
        p.bytes = e->offset - lost_from;
        p.blocks = sequence > w->expected ? sequence - w->expected : 0;
        if (w->have_time) {
            p.first_ns = w->last_time;
        }
        prt_reader_report(r, p);
    }
    if (sequence < w->expected) {
        prt_problem p = problem_at(PRT_OUT_OF_ORDER, e->offset);
        p.blocks = 1;
        prt_reader_report(r, p);
    }
    w->expected = sequence == UINT64_MAX ? sequence : sequence + 1;
    w->ended = e->type == PRT_END;
    if (has_times(e->type)) {
        if (!w->have_first_time) {
            w->first_time = e->first_time;
        }
        w->have_first_time = w->have_time = 1;
        w->last_time = e->first_time;
        close_problems(w, e->first_time);
    }
    if (e->type == 0 || e->type >= PRT_TYPES) {
        prt_reader_report_block(r, PRT_UNKNOWN_TYPE, e);
        return 0;
    }
    if (e->codec != 0 && e->codec != 2) {
        prt_reader_report_block(r, PRT_UNKNOWN_CODEC, e);
        return 0;
    }
    if (e->count > w->row_limit - w->rows) {
        prt_reader_report_block(r, PRT_ROW_LIMIT, e);
        return 0;
    }
    if (e->codec && e->raw > w->unpacked_limit - w->unpacked) {
        prt_reader_report_block(r, PRT_UNPACKED_LIMIT, e);
        return 0;
    }
    if (e->codec) {
        w->unpacked += e->raw;
    }
    w->rows += e->count;
    prt_type_count *c = &r->counts[e->type];
    c->blocks++;
    c->rows += e->count;
    c->stored += e->stored;
    c->raw += e->raw;
    int status = grow_array(&r->entries, r->entry_count, &r->entry_capacity, sizeof *r->entries);
    if (status) {
        return status;
    }
    r->entries[r->entry_count++] = *e;
    if (e->type > PRT_CLOCK) {
        return 0;
    }
    status = take_block(w, e);
    if (!status || status == -ENOMEM) {
        return status;
    }
    prt_reader_report_block(r, status == -ENOTSUP ? PRT_NO_ZSTD : status == -EIO ? PRT_UNREADABLE : PRT_UNDECODABLE, e);
    r->entries[r->entry_count - 1].reported = 1;
    return 0;
}

static int walk_blocks(struct walk *w, uint64_t offset) {
    prt_reader *r = w->reader;
    uint64_t size = r->input.size, lost_from = offset;
    int cut = 0, was_cut = 0;
    while (offset < size) {
        struct prt_entry e;
        uint64_t sequence, skip;
        if (block_at(w, offset, &e, &sequence, &cut, &skip)) {
            int status = keep(w, &e, sequence, lost_from);
            if (status) {
                return status;
            }
            offset += PRT_BLOCK_HEADER + (uint64_t)e.stored;
            lost_from = offset;
            was_cut = 0;
            continue;
        }
        if (w->unread == -ENOMEM) {
            return -ENOMEM;
        }
        if (w->unread) {
            break;
        }
        was_cut |= cut;
        offset = next_magic(w, offset + skip);
    }
    if (w->unread) {
        prt_problem p = problem_at(PRT_UNREADABLE, lost_from);
        p.bytes = size - lost_from;
        prt_reader_report(r, p);
    } else if (lost_from < size) {
        prt_problem p = problem_at(was_cut || size - lost_from < PRT_BLOCK_HEADER ? PRT_TRUNCATED : PRT_DAMAGED, lost_from);
        p.bytes = size - lost_from;
        p.blocks = 1; /* at least */
        if (w->have_time) {
            p.first_ns = w->last_time;
        }
        prt_reader_report(r, p);
    }
    if (!w->ended) {
        prt_problem p = problem_at(PRT_NO_END, size);
        if (w->have_time) {
            p.last_ns = w->last_time;
        }
        prt_reader_report(r, p);
    }
    return 0;
}

/* ---------------------------------------------------------------- results of the walk */

static int number_names(struct walk *w) {
    prt_reader *r = w->reader;
    const struct string_list *list = &w->strings;
    uint64_t largest = 0, bound = NAME_SLACK + 2 * (uint64_t)list->count;
    if (bound > NAMES_MAX) {
        bound = NAMES_MAX;
    }
    for (size_t i = 0; i < list->count; i++) {
        if (list->items[i].id >= bound) {
            prt_problem p = problem_at(PRT_BAD_STRING, 0);
            p.rows = 1;
            prt_reader_report(r, p);
        } else if (list->items[i].id > largest) {
            largest = list->items[i].id;
        }
    }
    /* After lost blocks, ids may follow whose texts are lost also: they are distinguished if that is cheap. */
    size_t count = (size_t)largest + (r->problem_count ? 4096 : 16) + 2;
    const struct found_string **by_id = calloc(count, sizeof(const struct found_string *));
    r->name_offsets = malloc((count + 1) * sizeof *r->name_offsets);
    r->name_known = calloc(count, 1);
    size_t bytes = list->used + count * 20;
    r->name_bytes = malloc(bytes);
    if (!by_id || !r->name_offsets || !r->name_known || !r->name_bytes) {
        free(by_id);
        return -ENOMEM;
    }
    for (size_t i = 0; i < list->count; i++) {
        const struct found_string *s = &list->items[i];
        if (s->id >= bound) {
            continue;
        }
        const struct found_string *known = by_id[s->id];
        if (!known) {
            by_id[s->id] = s;
        } else if (known->length != s->length || (s->length && memcmp(list->bytes + known->at, list->bytes + s->at, s->length) != 0)) {
            prt_problem p = problem_at(PRT_BAD_STRING, 0);
            p.rows = 1;
            prt_reader_report(r, p);
        }
    }
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        r->name_offsets[i] = (int32_t)used;
        if (by_id[i]) {
            if (by_id[i]->length) {
                memcpy(r->name_bytes + used, list->bytes + by_id[i]->at, by_id[i]->length);
            }
            used += by_id[i]->length;
            r->name_known[i] = 1;
        } else {
            char text[20];
            int length = i + 1 < count ? snprintf(text, sizeof text, "?name#%lu", (unsigned long)i) : snprintf(text, sizeof text, "?name");
            memcpy(r->name_bytes + used, text, (size_t)length);
            used += (size_t)length;
        }
    }
    r->name_offsets[count] = (int32_t)used;
    r->name_count = count;
    while (r->names_whole + 1 < count && r->name_known[r->names_whole + 1]) {
        r->names_whole++;
    }
    free(by_id);
    return 0;
}

/* Untouched pages of zeros cost no memory. */
static int make_zeros(prt_reader *r) {
    size_t most = 0;
    for (size_t i = 0; i < r->entry_count; i++) {
        most = r->entries[i].count > most ? r->entries[i].count : most;
    }
    r->zeros = calloc(most + 1, 8);
    return r->zeros ? 0 : -ENOMEM;
}

static int set_clock(struct walk *w) {
    prt_reader *r = w->reader;
    if (!w->anchor_count) {
        int needed = 0;
        for (unsigned type = 1; type < PRT_TYPES; type++) {
            needed |= has_times((uint16_t)type) && r->counts[type].blocks;
        }
        if (needed) {
            prt_reader_report(r, problem_at(PRT_NO_CLOCK, 0));
        }
        int status = grow_array(&w->anchors, 0, &w->anchor_capacity, sizeof *w->anchors);
        if (status) {
            return status;
        }
        w->anchors[w->anchor_count++] = (struct prt_anchor){w->first_time, r->header.created_ns, r->header.created_ns};
    }
    int status = prt_clock_begin(&r->clock, w->anchors, w->anchor_count, w->ticks_per_second);
    if (status) {
        return status;
    }
    if (r->clock.ignored) {
        prt_problem p = problem_at(PRT_BAD_CLOCK, 0);
        p.rows = r->clock.ignored;
        prt_reader_report(r, p);
    }
    for (size_t i = 0; i < r->problem_count; i++) { /* the clock is there now: ticks become times */
        prt_problem *p = &r->problems[i];
        if (p->first_ns != PRT_MISSING) {
            p->first_ns = prt_clock_time(&r->clock, p->first_ns);
        }
        if (p->last_ns != PRT_MISSING) {
            p->last_ns = prt_clock_time(&r->clock, p->last_ns);
        }
    }
    return 0;
}

/* The offset of the first block, or a negative errno value. */
static int64_t read_header(struct walk *w, char *message, size_t message_size) {
    prt_reader *r = w->reader;
    if (r->input.size < PRT_FILE_HEADER) {
        const uint8_t *at = r->input.size >= sizeof file_magic ? view(w, 0, sizeof file_magic) : NULL;
        int ours = at && memcmp(at, file_magic, sizeof file_magic) == 0;
        snprintf(message, message_size, ours ? "the file ends within its header" : "not a trace file of this library");
        return -EINVAL;
    }
    const uint8_t *at = view(w, 0, PRT_FILE_HEADER);
    if (!at) {
        snprintf(message, message_size, "cannot be read");
        return w->unread;
    }
    if (memcmp(at, file_magic, sizeof file_magic) != 0) {
        snprintf(message, message_size, "not a trace file of this library");
        return -EINVAL;
    }
    prt_reader_header *h = &r->header;
    *h = (prt_reader_header){.major = (uint16_t)get16(at + 8),
                             .minor = (uint16_t)get16(at + 10),
                             .compatible = get32(at + 16),
                             .incompatible = get32(at + 20),
                             .pid = get32(at + 40),
                             .parent = get32(at + 44),
                             .number = get32(at + 56),
                             .created_ns = (int64_t)get64(at + 48)};
    memcpy(h->session, at + 24, 16);
    uint32_t length = get32(at + 12);
    if (get32(at + 60) != prt_crc32c(0, at, 60)) {
        prt_reader_report(r, problem_at(PRT_BAD_HEADER, 0));
        return PRT_FILE_HEADER;
    }
    if (h->major != PRT_MAJOR) {
        snprintf(message, message_size, "version %u.%u of the format; this reader knows version %d", h->major, h->minor, PRT_MAJOR);
        return -ENOTSUP;
    }
    if (h->incompatible) {
        snprintf(message, message_size, "features 0x%x of the format are not known to this reader", h->incompatible);
        return -ENOTSUP;
    }
    return length < PRT_FILE_HEADER || length > r->input.size ? PRT_FILE_HEADER : (int64_t)length;
}

static int read_all(prt_reader *r, char *message, size_t message_size) {
    struct walk w = {.reader = r, .source = {.input = &r->input}, .waste_limit = 4 * r->input.size + PRT_STORED_MAX};
    uint64_t fair = r->input.size > UINT64_MAX / 64 ? UINT64_MAX : (1u << 20) + 32 * r->input.size;
    w.unpacked_limit = r->options.unpacked_limit ? r->options.unpacked_limit : UINT64_MAX;
    w.row_limit = r->options.row_limit ? r->options.row_limit : fair;
    int64_t start = read_header(&w, message, message_size);
    int status = start < 0 ? (int)start : walk_blocks(&w, (uint64_t)start);
    if (!status) {
        status = set_clock(&w);
    }
    if (!status) {
        status = number_names(&w);
    }
    if (!status) {
        status = make_zeros(r);
    }
    if (status == -ENOMEM) {
        snprintf(message, message_size, "not enough memory");
    }
    free(w.window);
    free(w.anchors);
    free(w.strings.items);
    free(w.strings.bytes);
    prt_block_source_free(&w.source);
    prt_workspace_free(&w.workspace);
    return status;
}

/* ---------------------------------------------------------------- open and close */

static int begin(prt_reader **reader, struct prt_input input, const prt_reader_options *options, char *message, size_t message_size) {
    *reader = NULL;
    prt_reader *r = calloc(1, sizeof *r);
    if (!r) {
        if (!input.memory) {
            close(input.fd);
        }
        snprintf(message, message_size, "not enough memory");
        return -ENOMEM;
    }
    atomic_init(&r->holders, 1);
    r->input = input;
    if (options) {
        r->options = *options;
    }
    pthread_mutex_init(&r->lock, NULL);
    int status = read_all(r, message, message_size);
    if (status) {
        prt_reader_release(r);
    } else {
        *reader = r;
    }
    return status;
}

int prt_reader_open(prt_reader **reader, const char *path, const prt_reader_options *options, char *message, size_t message_size) {
    *reader = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0) {
        int failed = -errno;
        snprintf(message, message_size, "%s", strerror(-failed));
        if (fd >= 0) {
            close(fd);
        }
        return failed;
    }
    if (!S_ISREG(status.st_mode)) {
        close(fd);
        snprintf(message, message_size, "not a regular file");
        return -EINVAL;
    }
    return begin(reader, (struct prt_input){NULL, fd, (uint64_t)status.st_size}, options, message, message_size);
}

int prt_reader_open_memory(prt_reader **reader, const void *data, size_t length, const prt_reader_options *options, char *message,
                           size_t message_size) {
    return begin(reader, (struct prt_input){data ? data : "", -1, length}, options, message, message_size);
}

void prt_reader_hold(prt_reader *r) { atomic_fetch_add(&r->holders, 1); }

void prt_reader_release(prt_reader *r) {
    if (!r || atomic_fetch_sub(&r->holders, 1) != 1) {
        return;
    }
    if (!r->input.memory) {
        close(r->input.fd);
    }
    free(r->entries);
    prt_clock_free(&r->clock);
    free(r->name_offsets);
    free(r->name_bytes);
    free(r->name_known);
    free(r->zeros);
    free(r->problems);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

const prt_reader_header *prt_reader_get_header(const prt_reader *r) { return &r->header; }
uint64_t prt_reader_size(const prt_reader *r) { return r->input.size; }
size_t prt_reader_names(const prt_reader *r) { return r->name_count; }

const char *prt_reader_name(const prt_reader *r, size_t index, size_t *length) {
    *length = (size_t)(r->name_offsets[index + 1] - r->name_offsets[index]);
    return (const char *)r->name_bytes + r->name_offsets[index];
}

prt_type_count prt_reader_count(const prt_reader *r, unsigned type) { return type < PRT_TYPES ? r->counts[type] : (prt_type_count){0}; }
