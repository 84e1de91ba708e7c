/* lookup.c - rows that are found by time: gaps, outermost rows, coverage, innermost ranges, equal times. */
#include <errno.h>
#include <stdlib.h>

#include "result.h"
#include "rows.h"

/* The first of rows[from, to) whose start is above `time` (or at least `time`, if `at_least`), searched from `hint`. */
static size_t search(const interval *rows, size_t from, size_t to, size_t hint, int64_t time, int at_least) {
    size_t low = from, high = to, step = 1;
#define BEFORE(i) (at_least ? rows[i].start < time : rows[i].start <= time)
    if (hint >= from && hint < to) { /* times often are in order: the next one is near */
        if (BEFORE(hint)) {
            for (low = hint + 1; low < to && BEFORE(low); step *= 2) {
                hint = low;
                low = to - low > step ? low + step : to;
            }
            high = low;
            low = hint + 1;
        } else {
            for (high = hint; high > from; step *= 2) {
                size_t probe = high - from > step ? high - step : from;
                if (BEFORE(probe)) {
                    low = probe + 1;
                    break;
                }
                high = probe;
            }
        }
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (BEFORE(middle)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
#undef BEFORE
    return low;
}

static int read_ordered(struct ArrowArrayStream *stream, const interval_reading *how, interval_groups *g, int ranked, interval_after *after,
                        interval_rows *r, char *message) {
    int status = interval_read(stream, how, g, r, message);
    if (!status && ranked) {
        status = interval_rank(g, g->count, r, 1);
    }
    if (!status) {
        status = interval_group(r, g->count);
    }
    return status ? status : interval_sort(r, g->count, after);
}

static int keys_fit(unsigned keys, unsigned orders, char *message) {
    return keys <= INTERVAL_KEYS_MAX && orders <= INTERVAL_ORDERS_MAX ? 0 : interval_refuse(message, "too many keys");
}

/* ---------------------------------------------------------------- rows of one table */

int interval_gaps(struct ArrowArrayStream *stream, unsigned keys, interval_table *out, char *message) {
    interval_groups g = {.keys = keys};
    interval_rows r = {0};
    interval_reading how = {.times = 2, .numbered = 1, .empty = 1};
    int status = keys_fit(keys, 0, message);
    status = status ? status : read_ordered(stream, &how, &g, 1, interval_by_end, &r, message);
    size_t found = 0;
    for (size_t k = 0; !status && k < g.count; k++) {
        int64_t latest = 0;
        for (size_t i = r.offsets[k]; i < r.offsets[k + 1]; i++) {
            interval row = r.rows[i];
            if (i > r.offsets[k] && row.start > latest) {
                r.rows[found++] = (interval){latest, row.start, row.group, row.mark}; /* found <= i */
            }
            int64_t end = row.end > row.start ? row.end : row.start;
            latest = i == r.offsets[k] || end > latest ? end : latest;
        }
    }
    if (!status) {
        out->rows = found;
        interval_column *number = interval_add(out, 'I'), *start = interval_add(out, 'l'), *end = interval_add(out, 'l');
        status = number && start && end ? 0 : -ENOMEM;
        for (size_t i = 0; !status && i < found; i++) {
            ((uint32_t *)number->values)[i] = r.rows[i].mark;
            ((int64_t *)start->values)[i] = r.rows[i].start;
            ((int64_t *)end->values)[i] = r.rows[i].end;
        }
    }
    interval_rows_free(&r);
    interval_groups_free(&g);
    return status;
}

int interval_outermost(struct ArrowArrayStream *stream, unsigned keys, interval_table *out, char *message) {
    interval_groups g = {.keys = keys};
    interval_rows r = {0};
    interval_reading how = {.times = 2, .numbered = 1, .empty = 1};
    int status = keys_fit(keys, 0, message);
    status = status ? status : read_ordered(stream, &how, &g, 1, interval_by_nesting, &r, message);
    size_t found = 0;
    for (size_t k = 0; !status && k < g.count; k++) {
        int64_t latest = 0;
        for (size_t i = r.offsets[k]; i < r.offsets[k + 1]; i++) {
            if (i == r.offsets[k] || r.rows[i].end > latest) {
                latest = r.rows[i].end;
                r.rows[found++] = r.rows[i];
            }
        }
    }
    if (!status) {
        out->rows = found;
        interval_column *number = interval_add(out, 'I');
        status = number ? 0 : -ENOMEM;
        for (size_t i = 0; !status && i < found; i++) {
            ((uint32_t *)number->values)[i] = r.rows[i].mark;
        }
    }
    interval_rows_free(&r);
    interval_groups_free(&g);
    return status;
}

/* Ends `row` with the innermost range on the stack that it mostly lies within, and returns that range, or NULL. Closes the others. */
static const interval *enclosing(interval *rows, const uint32_t *stack, size_t *depth, interval *row) {
    for (; *depth; --*depth) {
        interval *range = &rows[stack[*depth - 1]];
        if (range->end <= row->start) {
            continue;
        }
        uint64_t inside = (uint64_t)range->end - (uint64_t)row->start, length = (uint64_t)row->end - (uint64_t)row->start;
        if (row->end <= range->end) {
            return range;
        }
        if (inside >= length - inside) {
            row->end = range->end;
            return range;
        }
        range->end = row->start;
    }
    return NULL;
}

int interval_nested(struct ArrowArrayStream *stream, unsigned keys, interval_table *out, char *message) {
    interval_groups g = {.keys = keys};
    interval_rows r = {0};
    interval_reading how = {.times = 2, .numbered = 1, .empty = 1};
    int status = keys_fit(keys, 0, message);
    status = status ? status : read_ordered(stream, &how, &g, 0, interval_by_nesting, &r, message);
    uint32_t *stack = NULL;
    interval_column *parent = NULL, *end = NULL;
    if (!status) {
        out->rows = r.total;
        parent = interval_add(out, 'I');
        end = interval_add(out, 'l');
        stack = malloc((r.count + 1) * sizeof *stack);
        status = parent && end && stack ? 0 : -ENOMEM;
    }
    for (size_t i = 0; !status && r.count < r.total && i < r.total; i++) { /* rows with a null time are left out */
        status = interval_set_null(parent, r.total, i) || interval_set_null(end, r.total, i) ? -ENOMEM : 0;
    }
    for (size_t k = 0; !status && k < g.count; k++) {
        size_t depth = 0;
        for (size_t i = r.offsets[k]; i < r.offsets[k + 1]; i++) {
            interval *row = &r.rows[i];
            const interval *around = enclosing(r.rows, stack, &depth, row);
            if (around) {
                ((uint32_t *)parent->values)[row->mark] = around->mark;
            }
            if (!around && interval_set_null(parent, r.total, row->mark)) {
                status = -ENOMEM;
                break;
            }
            if (around && parent->valid) {
                parent->valid[row->mark] = 1;
            }
            if (row->end > row->start) {
                stack[depth++] = (uint32_t)i;
            }
        }
        for (size_t i = r.offsets[k]; i < r.offsets[k + 1]; i++) {
            ((int64_t *)end->values)[r.rows[i].mark] = r.rows[i].end;
            if (end->valid) {
                end->valid[r.rows[i].mark] = 1;
            }
        }
    }
    free(stack);
    interval_rows_free(&r);
    interval_groups_free(&g);
    return status;
}

/* ---------------------------------------------------------------- rows of one table by those of another */

/* Segments of the groups, each with the length of those before it in its group. */
typedef struct {
    size_t groups;
    interval *segments;
    uint64_t *before;
    size_t *offsets, *hints;
} coverage;

static uint64_t covered_until(coverage *c, uint32_t group, int64_t time) {
    size_t from = c->offsets[group], next = search(c->segments, from, c->offsets[group + 1], c->hints[group], time, 0);
    c->hints[group] = next;
    if (next == from) {
        return 0;
    }
    const interval *s = &c->segments[next - 1];
    return c->before[next - 1] + (uint64_t)(time < s->end ? time : s->end) - (uint64_t)s->start;
}

static int cover_row(void *context, const interval *row, interval_rows *rows) {
    coverage *c = context;
    if (row->group < c->groups) {
        uint64_t start = covered_until(c, row->group, row->start);
        rows->results[row->mark] = (int64_t)(covered_until(c, row->group, row->end) - start);
    }
    return 0;
}

static int make_coverage(interval_rows *r, size_t groups, coverage *c) {
    c->groups = groups;
    c->offsets = malloc((groups + 1) * sizeof *c->offsets);
    c->hints = calloc(groups + 1, sizeof *c->hints);
    int status = c->offsets && c->hints ? interval_union(r, groups, &c->segments, c->offsets) : -ENOMEM;
    if (status) {
        return status;
    }
    if (!(c->before = malloc((c->offsets[groups] + 1) * sizeof *c->before))) {
        return -ENOMEM;
    }
    for (size_t k = 0; k < groups; k++) {
        uint64_t total = 0;
        for (size_t i = c->offsets[k]; i < c->offsets[k + 1]; i++) {
            c->before[i] = total;
            total += (uint64_t)c->segments[i].end - (uint64_t)c->segments[i].start;
        }
    }
    return 0;
}

/* Makes the results of the rows, which the table owns then, its column. */
static int move_results(interval_table *out, interval_rows *rows) {
    out->rows = rows->total;
    if (!rows->results) { /* no batch */
        return interval_add(out, 'l') ? 0 : -ENOMEM;
    }
    out->columns[out->count++] = (interval_column){'l', rows->results, NULL};
    rows->results = NULL;
    return 0;
}

int interval_covered(struct ArrowArrayStream *rows, struct ArrowArrayStream *segments, unsigned keys, interval_table *out, char *message) {
    interval_groups g = {.keys = keys};
    interval_rows known = {0}, asked = {0};
    coverage c = {0};
    interval_reading how = {.times = 2, .mark = 1, .keyed = 1};
    interval_reading asking = {.times = 2, .numbered = 1, .empty = 1, .keyed = 1, .take = cover_row, .context = &c, .results = 1};
    int status = keys_fit(keys, 0, message);
    status = status ? status : read_ordered(segments, &how, &g, 0, interval_by_start, &known, message);
    status = status ? status : make_coverage(&known, g.count, &c);
    interval_rows_free(&known);
    status = status ? status : interval_read(rows, &asking, &g, &asked, message);
    status = status ? status : move_results(out, &asked);
    free(c.segments);
    free(c.before);
    free(c.offsets);
    free(c.hints);
    interval_rows_free(&asked);
    interval_groups_free(&g);
    return status;
}

/* The ranges that have begun and not ended: their ends as a heap, the earliest first, and a range per level of nesting. */
typedef struct {
    int64_t *ends;
    uint32_t *ranges;
    size_t depth, end_capacity, range_capacity;
} open_ranges;

static int open_range(open_ranges *o, const interval *range, uint32_t number) {
    if (interval_grow(&o->ends, o->depth, &o->end_capacity, sizeof *o->ends) ||
        interval_grow(&o->ranges, o->depth, &o->range_capacity, sizeof *o->ranges)) {
        return -ENOMEM;
    }
    size_t at = o->depth;
    o->ranges[o->depth++] = number;
    for (; at && o->ends[(at - 1) / 2] > range->end; at = (at - 1) / 2) {
        o->ends[at] = o->ends[(at - 1) / 2];
    }
    o->ends[at] = range->end;
    return 0;
}

static void close_earliest(open_ranges *o) {
    int64_t last = o->ends[--o->depth];
    size_t at = 0;
    for (size_t below = 1; below < o->depth; below = 2 * at + 1) {
        below += below + 1 < o->depth && o->ends[below + 1] < o->ends[below];
        if (o->ends[below] >= last) {
            break;
        }
        o->ends[at] = o->ends[below];
        at = below;
    }
    o->ends[at] = last;
}

/* Finds the innermost range of each point of a group. Ranges are nested or disjoint; if not, the one that ends first closes a level. */
static int find_innermost(const interval *points, size_t point_count, const interval_rows *known, size_t group, open_ranges *o,
                          int64_t *results) {
    const interval *ranges = known->rows + known->offsets[group];
    size_t next = 0, range_count = known->offsets[group + 1] - known->offsets[group];
    o->depth = 0;
    for (size_t i = 0; i < point_count; i++) {
        for (;;) {
            int opens = next < range_count && ranges[next].start <= points[i].start;
            if (o->depth && o->ends[0] <= points[i].start && (!opens || o->ends[0] <= ranges[next].start)) {
                close_earliest(o);
            } else if (opens) {
                if (open_range(o, &ranges[next], interval_number(known, &ranges[next]))) {
                    return -ENOMEM;
                }
                next++;
            } else {
                break;
            }
        }
        results[points[i].mark] = o->depth ? o->ranges[o->depth - 1] : NO_ROW;
    }
    return 0;
}

/* Adds the column of row numbers; NO_ROW is null. */
static int add_numbers(interval_table *out, const int64_t *numbers, size_t count) {
    out->rows = count;
    interval_column *c = interval_add(out, 'I');
    if (!c) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        ((uint32_t *)c->values)[i] = (uint32_t)numbers[i];
        if (numbers[i] == NO_ROW && interval_set_null(c, count, i)) {
            return -ENOMEM;
        }
    }
    return 0;
}

/* Rows of the groups, in order, and where the last one was found. */
typedef struct {
    size_t groups;
    const interval_rows *rows;
    size_t *hints;
} index_of_rows;

/* Keeps ranges with a point. */
static int has_point(void *context, const interval *range, interval_rows *unused) {
    index_of_rows *points = context;
    const interval_rows *r = points->rows;
    uint32_t k = range->group;
    (void)unused;
    if (k >= points->groups) {
        return 0;
    }
    size_t at = search(r->rows, r->offsets[k], r->offsets[k + 1], points->hints[k], range->start, 1);
    points->hints[k] = at;
    return at < r->offsets[k + 1] && r->rows[at].start < range->end;
}

int interval_innermost(struct ArrowArrayStream *points, struct ArrowArrayStream *ranges, unsigned keys, unsigned orders,
                       interval_table *out, char *message) {
    interval_groups g = {.keys = keys};
    interval_rows asked = {0}, known = {0};
    open_ranges open = {0};
    index_of_rows index = {.rows = &asked};
    interval_reading point = {.times = 1, .numbered = 1, .empty = 1, .keyed = 1, .results = 1, .initial = NO_ROW};
    interval_reading range = {.times = 2, .numbered = 1, .orders = orders, .keyed = 1, .take = has_point, .context = &index};
    int status = keys_fit(keys, orders, message);
    status = status ? status : read_ordered(points, &point, &g, 0, interval_by_start, &asked, message);
    size_t groups = index.groups = g.count;
    if (!status && !(index.hints = calloc(groups + 1, sizeof *index.hints))) {
        status = -ENOMEM;
    }
    status = status ? status : read_ordered(ranges, &range, &g, 0, interval_by_nesting, &known, message);
    for (size_t k = 0; !status && k < groups; k++) {
        status = find_innermost(asked.rows + asked.offsets[k], asked.offsets[k + 1] - asked.offsets[k], &known, k, &open, asked.results);
    }
    status = status ? status : add_numbers(out, asked.results, asked.total);
    free(index.hints);
    free(open.ends);
    free(open.ranges);
    interval_rows_free(&asked);
    interval_rows_free(&known);
    interval_groups_free(&g);
    return status;
}

static int find_first(void *context, const interval *point, interval_rows *points) {
    index_of_rows *known = context;
    const interval_rows *r = known->rows;
    uint32_t k = point->group;
    if (k < known->groups) {
        size_t at = search(r->rows, r->offsets[k], r->offsets[k + 1], known->hints[k], point->start, 1);
        known->hints[k] = at;
        if (at < r->offsets[k + 1] && r->rows[at].start == point->start) {
            points->results[point->mark] = interval_number(r, &r->rows[at]);
        }
    }
    return 0;
}

int interval_first(struct ArrowArrayStream *points, struct ArrowArrayStream *rows, unsigned keys, unsigned orders, interval_table *out,
                   char *message) {
    interval_groups g = {.keys = keys};
    interval_rows asked = {0}, known = {0};
    index_of_rows index = {.rows = &known};
    interval_reading row = {.times = 2, .orders = orders, .numbered = 1, .empty = 1, .keyed = 1};
    interval_reading point = {
        .times = 1, .numbered = 1, .empty = 1, .keyed = 1, .take = find_first, .context = &index, .results = 1, .initial = NO_ROW};
    int status = keys_fit(keys, orders, message);
    status = status ? status : read_ordered(rows, &row, &g, 0, interval_by_end, &known, message);
    index.groups = g.count;
    if (!status && !(index.hints = calloc(g.count + 1, sizeof *index.hints))) {
        status = -ENOMEM;
    }
    status = status ? status : interval_read(points, &point, &g, &asked, message);
    status = status ? status : add_numbers(out, asked.results, asked.total);
    free(index.hints);
    interval_rows_free(&asked);
    interval_rows_free(&known);
    interval_groups_free(&g);
    return status;
}
