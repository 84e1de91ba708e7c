/* order.c - brings rows into order: groups by counting, rows of a group by merging the runs that are in order already. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

#define RUN 16 /* shorter runs are extended to this length by insertion */

/* ---------------------------------------------------------------- groups */

typedef struct {
    const int64_t *values;
    uint32_t nulls, number;
    unsigned keys;
} group_key;

static int compare_keys(const void *left, const void *right) {
    const group_key *a = left, *b = right;
    for (unsigned k = 0; k < a->keys; k++) {
        unsigned a_null = a->nulls >> k & 1, b_null = b->nulls >> k & 1;
        if (a_null != b_null) {
            return a_null ? -1 : 1;
        }
        if (a->values[k] != b->values[k]) {
            return a->values[k] < b->values[k] ? -1 : 1;
        }
    }
    return 0;
}

int interval_rank(interval_groups *g, size_t first_count, interval_rows *rows, size_t tables) {
    size_t count = g->count, keys = g->keys;
    group_key *order = malloc((count + 1) * sizeof *order);
    int64_t *values = malloc((count * keys + 1) * sizeof *values);
    uint32_t *nulls = malloc((count + 1) * sizeof *nulls), *rank = malloc((count + 1) * sizeof *rank);
    uint8_t *from_first = malloc(count + 1);
    if (!order || !values || !nulls || !rank || !from_first) {
        free(order);
        free(values);
        free(nulls);
        free(rank);
        free(from_first);
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        order[i] = (group_key){keys ? g->values + i * keys : NULL, g->nulls[i], (uint32_t)i, (unsigned)keys};
    }
    if (count) {
        qsort(order, count, sizeof *order, compare_keys);
    }
    for (size_t i = 0; i < count; i++) {
        if (keys) {
            memcpy(values + i * keys, order[i].values, keys * sizeof *values);
        }
        nulls[i] = order[i].nulls;
        rank[order[i].number] = (uint32_t)i;
        from_first[i] = order[i].number < first_count;
    }
    for (size_t t = 0; t < tables; t++) {
        for (size_t i = 0; i < rows[t].count; i++) {
            rows[t].rows[i].group = rank[rows[t].rows[i].group];
        }
    }
    free(order);
    free(rank);
    free(g->values);
    free(g->nulls);
    free(g->slots);
    free(g->from_first);
    g->values = values;
    g->nulls = nulls;
    g->slots = NULL;
    g->slot_count = 0;
    g->from_first = from_first;
    return 0;
}

int interval_group(interval_rows *r, size_t groups) {
    size_t *offsets = calloc(groups + 2, sizeof *offsets);
    if (!offsets) {
        return -ENOMEM;
    }
    int together = 1;
    for (size_t i = 0; i < r->count; i++) {
        offsets[r->rows[i].group + 2]++;
        together &= !i || r->rows[i].group >= r->rows[i - 1].group;
    }
    for (size_t i = 2; i < groups + 2; i++) {
        offsets[i] += offsets[i - 1];
    }
    if (!together) {
        interval *rows = malloc(r->count * sizeof *rows);
        if (!rows) {
            free(offsets);
            return -ENOMEM;
        }
        for (size_t i = 0; i < r->count; i++) { /* offsets[g + 1]: the place of the next row of g */
            rows[offsets[r->rows[i].group + 1]++] = r->rows[i];
        }
        free(r->rows);
        r->rows = rows;
        r->capacity = r->count;
    } else {
        memmove(offsets, offsets + 1, (groups + 1) * sizeof *offsets);
    }
    free(r->offsets);
    r->offsets = offsets;
    return 0;
}

/* ---------------------------------------------------------------- rows of a group */

int interval_by_start(const interval *a, const interval *b, const interval_rows *r) {
    (void)r;
    return a->start > b->start;
}

static int by_orders(const interval *a, const interval *b, const interval_rows *r) {
    for (unsigned k = 0; k < r->orders; k++) {
        int64_t x = r->order[k][a->mark], y = r->order[k][b->mark];
        if (x != y) {
            return x > y;
        }
    }
    return 0;
}

int interval_by_end(const interval *a, const interval *b, const interval_rows *r) {
    return a->start != b->start ? a->start > b->start : a->end != b->end ? a->end > b->end : by_orders(a, b, r);
}

int interval_by_nesting(const interval *a, const interval *b, const interval_rows *r) {
    return a->start != b->start ? a->start > b->start : a->end != b->end ? a->end < b->end : by_orders(a, b, r);
}

/* Merges rows[0, middle) and rows[middle, count); `spare` has room for the first of them. */
static void merge(interval *rows, size_t middle, size_t count, interval *spare, interval_after *after, const interval_rows *r) {
    if (!after(&rows[middle - 1], &rows[middle], r)) {
        return;
    }
    memcpy(spare, rows, middle * sizeof *rows);
    size_t left = 0, right = middle, to = 0;
    while (left < middle && right < count) {
        rows[to++] = after(&spare[left], &rows[right], r) ? rows[right++] : spare[left++];
    }
    memcpy(rows + to, spare + left, (middle - left) * sizeof *rows);
}

static size_t end_of_run(interval *rows, size_t count, interval_after *after, const interval_rows *r) {
    size_t end = 1;
    while (end < count && !after(&rows[end - 1], &rows[end], r)) {
        end++;
    }
    for (; end < count && end < RUN; end++) {
        interval row = rows[end];
        size_t at = end;
        for (; at && after(&rows[at - 1], &row, r); at--) {
            rows[at] = rows[at - 1];
        }
        rows[at] = row;
    }
    return end;
}

typedef struct {
    interval *spare;
    size_t spare_count, *runs, run_capacity;
} workspace;

static int sort_rows(interval *rows, size_t count, interval_after *after, const interval_rows *r, workspace *w) {
    size_t runs = 0;
    for (size_t at = 0; at < count;) {
        if (interval_grow(&w->runs, runs + 1, &w->run_capacity, sizeof *w->runs)) {
            return -ENOMEM;
        }
        w->runs[runs++] = at;
        at += end_of_run(rows + at, count - at, after, r);
        w->runs[runs] = at;
    }
    if (runs > 1 && w->spare_count < count) {
        free(w->spare);
        w->spare_count = 0;
        if (!(w->spare = malloc(count * sizeof *w->spare))) {
            return -ENOMEM;
        }
        w->spare_count = count;
    }
    while (runs > 1) { /* merges neighbors, so that the sort is stable */
        size_t merged = 0;
        for (size_t i = 0; i < runs; i += 2) {
            size_t from = w->runs[i];
            if (i + 1 < runs) {
                merge(rows + from, w->runs[i + 1] - from, w->runs[i + 2] - from, w->spare, after, r);
            }
            w->runs[merged++] = from;
        }
        w->runs[merged] = count;
        runs = merged;
    }
    return 0;
}

int interval_sort(interval_rows *r, size_t groups, interval_after *after) {
    workspace w = {0};
    int status = 0;
    for (size_t g = 0; !status && g < groups; g++) {
        status = sort_rows(r->rows + r->offsets[g], r->offsets[g + 1] - r->offsets[g], after, r, &w);
    }
    free(w.spare);
    free(w.runs);
    return status;
}
