/* sweep.c - segments of equal classes: one pass over the rows of a group in the order of their starts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "result.h"
#include "rows.h"

typedef struct {
    unsigned wanted; /* classes of the segments that count; 0: all, by their classes */
    interval *segments;
    size_t count, capacity;
    int summed;                                /* segments are added to the totals, not kept */
    uint64_t totals[1 << INTERVAL_CLASSES_MAX]; /* by classes */
} sweep;

static int emit(sweep *s, uint32_t group, unsigned classes, int64_t start, int64_t end) {
    if (end <= start || (s->wanted && classes != s->wanted)) {
        return 0;
    }
    if (s->summed) {
        s->totals[classes] += (uint64_t)end - (uint64_t)start;
        return 0;
    }
    interval *last = s->count ? &s->segments[s->count - 1] : NULL;
    if (last && last->group == group && last->mark == classes && last->end == start) {
        last->end = end;
        return 0;
    }
    if (interval_grow(&s->segments, s->count, &s->capacity, sizeof *s->segments)) {
        return -ENOMEM;
    }
    s->segments[s->count++] = (interval){start, end, group, classes};
    return 0;
}

/* The classes that are active, each until its latest end. */
typedef struct {
    unsigned active;
    int64_t at, until[INTERVAL_CLASSES_MAX];
} front;

/* Emits what is active from f->at to `time`, or to its end. */
static int advance(sweep *s, uint32_t group, front *f, int64_t time, int to_end) {
    while (f->active) {
        int64_t first = INT64_MAX;
        for (unsigned c = 0; f->active >> c; c++) {
            first = f->active >> c & 1 && f->until[c] < first ? f->until[c] : first;
        }
        int64_t stop = to_end || first < time ? first : time;
        if (emit(s, group, f->active, f->at, stop)) {
            return -ENOMEM;
        }
        f->at = stop;
        for (unsigned c = 0, active = f->active; active >> c; c++) {
            f->active &= f->until[c] <= stop ? ~(1u << c) : ~0u;
        }
        if (stop != first) {
            break;
        }
    }
    return 0;
}

/* Adds a row that starts at f->at or later. */
static int add_row(sweep *s, front *f, const interval *row) {
    if (f->active && row->start > f->at && advance(s, row->group, f, row->start, 0)) {
        return -ENOMEM;
    }
    f->at = row->start;
    for (unsigned c = 0, mark = row->mark; mark; c++, mark >>= 1) {
        if (mark & 1 && (!(f->active >> c & 1) || f->until[c] < row->end)) {
            f->until[c] = row->end;
            f->active |= 1u << c;
        }
    }
    return 0;
}

static int sweep_group(sweep *s, const interval *rows, size_t count) {
    front f = {0};
    for (size_t i = 0; i < count; i++) {
        if (add_row(s, &f, &rows[i])) {
            return -ENOMEM;
        }
    }
    return count ? advance(s, rows[0].group, &f, 0, 1) : 0;
}

/* Rows while they are read: those in the order of their group become segments at once, so that nested rows need no memory. Rows that
 * come late are kept among the segments: the segments of all of them are those of the table. */
typedef struct {
    sweep s;
    front *fronts; /* by group */
    size_t count, capacity;
} condensed;

static int condense(void *context, const interval *row, interval_rows *unused) {
    condensed *c = context;
    (void)unused;
    for (; c->count <= row->group; c->count++) {
        if (interval_grow(&c->fronts, c->count, &c->capacity, sizeof *c->fronts)) {
            return -ENOMEM;
        }
        c->fronts[c->count] = (front){.at = INT64_MIN};
    }
    front *f = &c->fronts[row->group];
    return row->start < f->at ? emit(&c->s, row->group, row->mark, row->start, row->end) : add_row(&c->s, f, row);
}

/* Moves the segments and late rows of the groups to `r`, not in order. */
static int end_condensing(condensed *c, interval_rows *r) {
    int status = 0;
    for (size_t g = 0; !status && g < c->count; g++) {
        status = advance(&c->s, (uint32_t)g, &c->fronts[g], 0, 1);
    }
    free(c->fronts);
    r->rows = c->s.segments;
    r->count = c->s.count;
    return status;
}

int interval_union(interval_rows *r, size_t groups, interval **segments, size_t *offsets) {
    sweep s = {0};
    int status = 0;
    for (size_t g = 0; !status && g < groups; g++) {
        offsets[g] = s.count;
        status = sweep_group(&s, r->rows + r->offsets[g], r->offsets[g + 1] - r->offsets[g]);
    }
    offsets[groups] = s.count;
    if (status) {
        free(s.segments);
        return status;
    }
    *segments = s.segments;
    return 0;
}

/* ---------------------------------------------------------------- results */

/* Adds the columns of the keys, by the group of each row. */
static int add_keys(interval_table *out, const interval_groups *g, const uint32_t *group, size_t stride) {
    for (unsigned k = 0; k < g->keys; k++) {
        size_t width = interval_width(g->formats[k]);
        interval_column *c = interval_add(out, g->formats[k]);
        if (!c) {
            return -ENOMEM;
        }
        const char *at = (const char *)group;
        for (size_t i = 0; i < out->rows; i++, at += stride) {
            uint32_t number;
            memcpy(&number, at, sizeof number);
            interval_set(c, width, i, g->values[number * g->keys + k]);
            if (g->nulls[number] >> k & 1 && interval_set_null(c, out->rows, i)) {
                return -ENOMEM;
            }
        }
    }
    return 0;
}

static int add_classes(interval_table *out, unsigned classes, const interval *rows) {
    for (unsigned k = 0; k < classes; k++) {
        interval_column *c = interval_add(out, 'b');
        if (!c) {
            return -ENOMEM;
        }
        for (size_t i = 0; i < out->rows; i++) {
            ((uint8_t *)c->values)[i] = rows[i].mark >> k & 1;
        }
    }
    return 0;
}

static int keep_segments(sweep *s, const interval_groups *g, unsigned classes, interval_table *out) {
    out->rows = s->count;
    int status = add_keys(out, g, s->count ? &s->segments->group : NULL, sizeof *s->segments);
    interval_column *start = status ? NULL : interval_add(out, 'l'), *end = start ? interval_add(out, 'l') : NULL;
    if (!end) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < s->count; i++) {
        ((int64_t *)start->values)[i] = s->segments[i].start;
        ((int64_t *)end->values)[i] = s->segments[i].end;
    }
    return add_classes(out, classes, s->segments);
}

/* Turns the totals of a group into rows: group, classes, and the length as start. */
static int keep_totals(sweep *s, uint32_t group, unsigned classes, interval **rows, size_t *count, size_t *capacity) {
    for (unsigned mark = 0; mark < 1u << INTERVAL_CLASSES_MAX; mark++) {
        if (classes && !s->totals[mark]) {
            continue;
        }
        if (interval_grow(rows, *count, capacity, sizeof **rows)) {
            return -ENOMEM;
        }
        if (classes) {
            (*rows)[(*count)++] = (interval){(int64_t)s->totals[mark], 0, group, mark};
            s->totals[mark] = 0;
            continue;
        }
        uint64_t total = 0;
        for (unsigned any = 0; any < 1u << INTERVAL_CLASSES_MAX; any++) {
            total += s->totals[any];
        }
        memset(s->totals, 0, sizeof s->totals);
        (*rows)[(*count)++] = (interval){(int64_t)total, 0, group, 0};
        break;
    }
    return 0;
}

/* ---------------------------------------------------------------- functions */

static int read_tables(struct ArrowArrayStream *const *tables, size_t count, unsigned keys, unsigned classes, interval_groups *g,
                       interval_rows *r, char *message) {
    if (keys > INTERVAL_KEYS_MAX || classes > INTERVAL_CLASSES_MAX || count < 1 || count > INTERVAL_CLASSES_MAX || (classes && count > 1)) {
        return interval_refuse(message, "too many tables, keys or classes");
    }
    g->keys = keys;
    condensed c = {0};
    size_t first_count = 0;
    int status = 0;
    for (size_t i = 0; !status && i < count; i++) {
        interval_reading how = {.times = 2, .classes = classes, .mark = 1u << i, .take = condense, .context = &c};
        status = interval_read(tables[i], &how, g, r, message);
        first_count = i ? first_count : g->count;
    }
    int ended = end_condensing(&c, r);
    status = status ? status : ended;
    if (!status) {
        status = interval_rank(g, first_count, r, 1);
    }
    if (!status) {
        status = interval_group(r, g->count);
    }
    return status ? status : interval_sort(r, g->count, interval_by_start);
}

int interval_segments(struct ArrowArrayStream *const *tables, size_t count, unsigned keys, unsigned classes, unsigned wanted,
                      interval_table *out, char *message) {
    interval_groups g = {0};
    interval_rows r = {0};
    sweep s = {.wanted = wanted};
    int status = read_tables(tables, count, keys, classes, &g, &r, message);
    for (size_t i = 0; !status && i < g.count; i++) {
        status = sweep_group(&s, r.rows + r.offsets[i], r.offsets[i + 1] - r.offsets[i]);
    }
    interval_rows_free(&r);
    if (!status) {
        status = keep_segments(&s, &g, wanted ? 0 : classes, out);
    }
    free(s.segments);
    interval_groups_free(&g);
    return status;
}

int interval_lengths(struct ArrowArrayStream *const *tables, size_t count, unsigned keys, unsigned classes, unsigned wanted,
                     interval_table *out, char *message) {
    interval_groups g = {0};
    interval_rows r = {0};
    sweep s = {.wanted = wanted, .summed = 1};
    interval *rows = NULL;
    size_t capacity = 0, found = 0;
    unsigned shown = wanted ? 0 : classes;
    int status = read_tables(tables, count, keys, classes, &g, &r, message);
    for (size_t i = 0; !status && i < g.count; i++) {
        status = sweep_group(&s, r.rows + r.offsets[i], r.offsets[i + 1] - r.offsets[i]);
        if (!status && (shown || g.from_first[i])) {
            status = keep_totals(&s, (uint32_t)i, shown, &rows, &found, &capacity);
        } else {
            memset(s.totals, 0, sizeof s.totals);
        }
    }
    if (!status) {
        out->rows = found;
        status = add_keys(out, &g, rows ? &rows->group : NULL, sizeof *rows);
    }
    if (!status) {
        status = add_classes(out, shown, rows);
    }
    interval_column *length = status ? NULL : interval_add(out, 'l');
    for (size_t i = 0; length && i < found; i++) {
        ((int64_t *)length->values)[i] = rows[i].start;
    }
    status = status || length ? status : -ENOMEM;
    free(rows);
    interval_rows_free(&r);
    interval_groups_free(&g);
    return status;
}
