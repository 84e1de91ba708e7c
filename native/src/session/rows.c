/* rows.c - collects records and metrics, and writes them as blocks. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/names.h"
#include "session.h"

#define METRICS_MAX 65536u
#define METRICS_NS INT64_C(1000000000) /* how long samples wait for others to share a block with */

void postrun_rows_account(struct session *s, int error, uint32_t source, uint32_t count, int64_t first, int64_t last) {
    if (error) {
        postrun_loss(s, source, PRT_LOSS_DISK, count, first, last);
        if (s->out.error && !s->disk_loss_told) {
            s->disk_loss_told = true;
            postrun_losses_last_words(s);
        }
        return;
    }
    s->out.records += count;
    pthread_mutex_lock(&postrun_state_lock);
    postrun_totals.written += count;
    pthread_mutex_unlock(&postrun_state_lock);
    postrun_file_after_rows(s);
}

static void range_of(const int64_t *times, const int64_t *durations, uint32_t count, int64_t *first, int64_t *last) {
    *first = INT64_MAX;
    *last = INT64_MIN;
    for (uint32_t i = 0; i < count; i++) {
        int64_t end = times[i] + (durations ? durations[i] : 0);
        *first = times[i] < *first ? times[i] : *first;
        *last = end > *last ? end : *last;
    }
}

void postrun_rows_write(struct session *s, uint32_t source) {
    struct rows *rows = s->rows;
    int64_t first, last;
    uint32_t count = rows->count, readings = rows->readings;
    if (count + readings == 0) {
        return;
    }
    rows->count = rows->readings = 0;
    postrun_file_before_rows(s);
    postrun_file_names(s, s->names_written);
    if (readings) {
        range_of(rows->time, NULL, readings, &first, &last);
        prt_column columns[] = {
            {1, PRT_COLUMN_INT, rows->counter}, {2, PRT_COLUMN_TIME, rows->time}, {3, PRT_COLUMN_DOUBLE, rows->reading}};
        int error = postrun_file_block(s, PRT_COUNTER, source, readings, first, COLUMNS(columns));
        if (error) {
            postrun_loss(s, source, PRT_LOSS_DISK, readings, first, last);
        } else {
            s->out.records += readings;
            pthread_mutex_lock(&postrun_state_lock);
            postrun_totals.written += readings;
            pthread_mutex_unlock(&postrun_state_lock);
        }
    }
    first = last = 0;
    int error = s->out.error;
    if (count) {
        range_of(rows->start, rows->duration, count, &first, &last);
        prt_column columns[] = {{1, PRT_COLUMN_INT, rows->name},          {2, PRT_COLUMN_TIME, rows->start},
                                {3, PRT_COLUMN_DURATION, rows->duration}, {5, PRT_COLUMN_INT, rows->depth},
                                {6, PRT_COLUMN_INT, rows->flags},         {4, PRT_COLUMN_INT, rows->value}};
        size_t n = sizeof columns / sizeof *columns - 1; /* without values if no row has one */
        for (uint32_t i = 0; i < count; i++) {
            if (rows->value[i] != POSTRUN_NO_VALUE) {
                n = sizeof columns / sizeof *columns;
                break;
            }
        }
        error = postrun_file_block(s, PRT_ANNOTATION, source, count, first, columns, n);
    }
    postrun_rows_account(s, error, source, count, first, last);
}

void postrun_rows_add(struct session *s, const struct record *record, int64_t flags) {
    struct rows *rows = s->rows;
    uint32_t i = rows->count++;
    rows->name[i] = (int64_t)(record->what & UINT32_MAX);
    rows->start[i] = record->start;
    rows->duration[i] = record->end > record->start ? record->end - record->start : 0;
    rows->value[i] = record->value;
    rows->depth[i] = (int64_t)(record->what >> 32 & 0xff);
    rows->flags[i] = flags;
}

void postrun_rows_add_foreign(struct session *s, uint32_t source, const struct record *record, int64_t flags) {
    if (s->foreign_count == s->foreign_capacity) {
        size_t capacity = s->foreign_capacity ? s->foreign_capacity * 2 : 64;
        struct foreign *list = realloc(s->foreign, capacity * sizeof *list);
        if (!list) {
            postrun_loss(s, source, PRT_LOSS_DISK, 1, record->start, record->end);
            return;
        }
        s->foreign = list;
        s->foreign_capacity = capacity;
    }
    s->foreign[s->foreign_count++] = (struct foreign){source, flags, *record};
}

static int compare_foreign(const void *a, const void *b) {
    const struct foreign *x = a, *y = b;
    if (x->source != y->source) {
        return x->source < y->source ? -1 : 1;
    }
    return x->record.end < y->record.end ? -1 : x->record.end > y->record.end;
}

void postrun_rows_write_foreign(struct session *s) {
    if (s->foreign_count == 0) {
        return;
    }
    qsort(s->foreign, s->foreign_count, sizeof *s->foreign, compare_foreign);
    for (size_t i = 0; i < s->foreign_count; i++) {
        postrun_rows_add(s, &s->foreign[i].record, s->foreign[i].flags);
        if (s->rows->count == ROWS || i + 1 == s->foreign_count || s->foreign[i + 1].source != s->foreign[i].source) {
            postrun_rows_write(s, s->foreign[i].source);
        }
    }
    s->foreign_count = 0;
}

int postrun_session_metric(uint32_t name, int32_t unit, int64_t ticks, double value) {
    int result = 0;
    pthread_mutex_lock(&postrun_state_lock);
    struct session *s = postrun_current;
    if (!s) {
        result = -EALREADY;
    } else if (s->metric_count == s->metric_capacity) {
        size_t capacity = s->metric_capacity ? s->metric_capacity * 2 : 256;
        struct metric *metrics = capacity <= METRICS_MAX ? realloc(s->metrics, capacity * sizeof *metrics) : NULL;
        if (metrics) {
            s->metrics = metrics;
            s->metric_capacity = capacity;
        } else {
            s->metrics_lost++;
            result = -ENOMEM;
        }
    }
    if (!result) {
        s->metrics[s->metric_count++] = (struct metric){name, unit, ticks, value};
    }
    pthread_mutex_unlock(&postrun_state_lock);
    return result;
}

/* By time, metric and unit: values of one metric are adjacent, and their differences are small. */
static int compare_metrics(const void *a, const void *b) {
    const struct metric *x = a, *y = b;
    if (x->ticks != y->ticks) {
        return x->ticks < y->ticks ? -1 : 1;
    }
    if (x->name != y->name) {
        return x->name < y->name ? -1 : 1;
    }
    return x->unit < y->unit ? -1 : x->unit > y->unit;
}

void postrun_rows_write_metrics(struct session *s, bool all) {
    int64_t monotonic = postrun_clock_monotonic();
    pthread_mutex_lock(&postrun_state_lock);
    struct metric *metrics = s->metrics;
    size_t count = s->metric_count;
    if (!all && count < ROWS && monotonic < s->metrics_due) {
        pthread_mutex_unlock(&postrun_state_lock);
        return;
    }
    s->metrics_due = monotonic + METRICS_NS;
    uint64_t lost = s->metrics_lost - s->metrics_lost_taken;
    s->metrics_lost_taken = s->metrics_lost;
    if (count) {
        s->metrics = NULL;
        s->metric_count = s->metric_capacity = 0;
    }
    pthread_mutex_unlock(&postrun_state_lock);
    int64_t now = clock_ticks();
    postrun_loss_note(s, 0, PRT_LOSS_RING, lost, now, now);
    if (count == 0) {
        return;
    }
    qsort(metrics, count, sizeof *metrics, compare_metrics);
    postrun_file_before_rows(s);
    postrun_file_names(s, s->names_written);
    struct rows *rows = s->rows;
    for (size_t from = 0; from < count;) {
        uint32_t n = 0;
        for (; n < ROWS && from < count; n++, from++) {
            rows->counter[n] = metrics[from].name;
            rows->flags[n] = metrics[from].unit;
            rows->time[n] = metrics[from].ticks;
            rows->reading[n] = metrics[from].value;
        }
        prt_column columns[] = {{1, PRT_COLUMN_INT, rows->counter},
                                {2, PRT_COLUMN_INT, rows->flags},
                                {3, PRT_COLUMN_TIME, rows->time},
                                {4, PRT_COLUMN_DOUBLE, rows->reading}};
        int64_t first, last;
        range_of(rows->time, NULL, n, &first, &last);
        int error = postrun_file_block(s, PRT_METRIC, 0, n, first, COLUMNS(columns));
        if (error) {
            postrun_loss_note(s, 0, PRT_LOSS_DISK, n, first, last);
        }
        postrun_file_after_rows(s);
    }
    free(metrics);
}
