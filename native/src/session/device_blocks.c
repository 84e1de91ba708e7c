/* device_blocks.c - writes rows of GPU activity as blocks of the trace file.
 *
 * CUPTI's times are nanoseconds of CLOCK_REALTIME. They become ticks by the two anchors of the file around them, so that a reader gets the
 * same nanoseconds back. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device_rows.h"
#include "session.h"

#define BLOCK_ROWS 8192u
#define CONTEXTS 256
#define LAUNCHES 4096u     /* of CUDA graphs, whose starts are remembered */

/* The drain thread's. */
struct context {
    int64_t context, device;
};
struct launch {
    int64_t correlation, start;
};
static struct {
    uint32_t session;
    struct context contexts[CONTEXTS];
    size_t context_count;
    int64_t *columns; /* DEVICE_WORDS of BLOCK_ROWS each */
    struct launch launches[LAUNCHES]; /* by their correlation */
} writer;

/* ---------------------------------------------------------------- time */

struct segment { /* between two anchors, or beyond the last */
    int64_t from, to; /* ns: the range of the segment */
    int64_t base, ticks; /* of its first anchor */
    int64_t ticks_long, real_long, monotonic_long;
};

static const struct clock_anchor *anchor(const struct session *s, size_t back) { /* 0: the newest */
    return &s->anchors[(s->anchor_count - 1 - back) % ANCHORS];
}

/* The latest pair of anchors whose time contains `ns`; before the first and behind the last anchor, the nearest pair.
 * docs/trace-format.md describes the reader's way back. */
static struct segment segment_of(const struct session *s, int64_t ns) {
    size_t count = s->anchor_count < ANCHORS ? s->anchor_count : ANCHORS;
    const struct clock_anchor *newest = anchor(s, 0);
    struct segment segment = {0, 0, newest->realtime_ns, newest->ticks, (int64_t)postrun_clock_rate(), 1000000000, 1000000000};
    int64_t to = INT64_MAX;
    for (size_t back = 0; back + 1 < count; back++) {
        const struct clock_anchor *a = anchor(s, back + 1), *b = anchor(s, back);
        int64_t ticks = b->ticks - a->ticks, real = b->realtime_ns - a->realtime_ns, monotonic = b->monotonic_ns - a->monotonic_ns;
        if (ticks <= 0 || monotonic <= 0) {
            continue;
        }
        int64_t apart = real > monotonic ? real - monotonic : monotonic - real;
        bool set = real <= 0 || apart > 1000000 + monotonic / 1000; /* the clock, in between */
        segment = (struct segment){a->realtime_ns, to, a->realtime_ns, a->ticks, ticks, set ? monotonic : real, monotonic};
        if (ns >= a->realtime_ns) {
            return segment;
        }
        to = a->realtime_ns;
    }
    segment.from = INT64_MIN;
    segment.to = to;
    return segment;
}

/* Converts `ns` at the rate of `by` ticks per `over` ns to the tick next to the middle: readers round down, and get exactly these ns if
 * a tick is shorter. */
static int64_t ticks_in(int64_t ns, int64_t by, int64_t over) {
    __int128 value = ((__int128)2 * ns + 1) * by - over, whole = (__int128)2 * over;
    __int128 result = value > 0 ? (value + whole - 1) / whole : value / whole;
    return result > INT64_MAX ? INT64_MAX : result < INT64_MIN + 1 ? INT64_MIN + 1 : (int64_t)result;
}

static int64_t ticks_of(const struct segment *segment, int64_t ns) {
    return segment->ticks + ticks_in(ns - segment->base, segment->ticks_long, segment->real_long);
}

/* ---------------------------------------------------------------- blocks */

static void learn_context(int64_t context, int64_t device) {
    for (size_t i = writer.context_count; i-- > 0;) {
        if (writer.contexts[i].context == context) {
            writer.contexts[i].device = device;
            return;
        }
    }
    if (writer.context_count < CONTEXTS) {
        writer.contexts[writer.context_count++] = (struct context){context, device};
    }
}

static int64_t device_of(int64_t context) {
    for (size_t i = writer.context_count; i-- > 0;) {
        if (writer.contexts[i].context == context) {
            return writer.contexts[i].device;
        }
    }
    return DEVICE_NONE;
}

static void learn_contexts(const struct device_batch *batch) {
    for (size_t at = 0; at < batch->count; at += 1u + postrun_device_shapes[batch->words[at]].count) {
        const int64_t *row = batch->words + at + 1;
        switch ((enum device_table)batch->words[at]) {
        case DEVICE_CONTEXT: learn_context(row[0], row[1]); break;
        case DEVICE_KERNEL: learn_context(row[4], row[3]); break;
        case DEVICE_MEMCPY:
        case DEVICE_MEMSET: learn_context(row[3], row[2]); break;
        default: break;
        }
    }
}

static void check_launches(struct device_batch *batches, int64_t from) {
    uint64_t wrong = 0;
    for (const struct device_batch *batch = batches; batch; batch = batch->next) {
        for (size_t at = 0; at < batch->count; at += 1u + postrun_device_shapes[batch->words[at]].count) {
            const int64_t *row = batch->words + at + 1;
            if (batch->words[at] == DEVICE_API) {
                writer.launches[(uint64_t)row[3] % LAUNCHES] = (struct launch){row[3], row[1]};
            }
        }
    }
    for (struct device_batch *batch = batches; batch; batch = batch->next) {
        for (size_t at = 0; at < batch->count; at += 1u + postrun_device_shapes[batch->words[at]].count) {
            int64_t *row = batch->words + at + 1;
            if (batch->words[at] != DEVICE_KERNEL || row[15] == 0 || row[1] < from) {
                continue;
            }
            const struct launch *launch = &writer.launches[(uint64_t)row[6] % LAUNCHES];
            if (launch->correlation == row[6] && row[6] != 0 && row[1] < launch->start) {
                row[6] = 0;
                wrong++;
            }
        }
    }
    postrun_device_rows_wrong_launches(wrong);
}

static void write_block(struct session *s, const struct device_shape *shape, uint32_t count) {
    prt_column columns[DEVICE_WORDS];
    int64_t first = 0, last = 0;
    for (uint8_t c = 0; c < shape->count && c < DEVICE_WORDS; c++) {
        bool start = c == shape->start, duration = shape->start != NO_START && c == shape->start + 1;
        columns[c] = (prt_column){shape->ids[c],
                                  start      ? PRT_COLUMN_TIME
                                  : duration ? PRT_COLUMN_DURATION
                                             : PRT_COLUMN_INT,
                                  writer.columns + (size_t)c * BLOCK_ROWS};
    }
    if (shape->start != NO_START) {
        const int64_t *starts = writer.columns + (size_t)shape->start * BLOCK_ROWS;
        first = INT64_MAX;
        last = INT64_MIN;
        for (uint32_t i = 0; i < count; i++) {
            int64_t end = starts[i] + starts[BLOCK_ROWS + i];
            first = starts[i] < first ? starts[i] : first;
            last = end > last ? end : last;
        }
    }
    postrun_file_before_rows(s);
    postrun_file_names(s, s->names_written);
    uint64_t before = s->out.total_bytes;
    int error = postrun_file_block(s, shape->type, 0, count, first, columns, shape->count);
    postrun_device_rows_wrote(s->out.total_bytes - before);
    postrun_rows_account(s, error, 0, count, first, last);
}

static void write_table(struct session *s, enum device_table table, const struct device_batch *batches) {
    const struct device_shape *shape = &postrun_device_shapes[table];
    struct segment segment = {0, 0, 0, 0, 1, 1, 1}; /* contains nothing */
    uint32_t n = 0;
    for (const struct device_batch *batch = batches; batch; batch = batch->next) {
        for (size_t at = 0; at < batch->count; at += 1u + postrun_device_shapes[batch->words[at]].count) {
            if (batch->words[at] != (int64_t)table) {
                continue;
            }
            const int64_t *row = batch->words + at + 1;
            for (uint8_t c = 0; c < shape->count; c++) {
                writer.columns[(size_t)c * BLOCK_ROWS + n] = row[c];
            }
            if (shape->start != NO_START) {
                int64_t *start = writer.columns + (size_t)shape->start * BLOCK_ROWS + n, *duration = start + BLOCK_ROWS;
                if (*start < segment.from || *start >= segment.to) {
                    segment = segment_of(s, *start);
                }
                int64_t end = *start + *duration;
                *duration = *duration ? ticks_in(*duration, segment.ticks_long, segment.monotonic_long) : 0;
                *start = ticks_of(&segment, *start);
                if (end >= segment.to) { /* its end is between other anchors, which differ a little; not if the clock was set */
                    struct segment other = segment_of(s, end);
                    int64_t exact = ticks_of(&other, end) - *start, apart = exact > *duration ? exact - *duration : *duration - exact;
                    *duration = apart <= *duration / 1000 ? exact : *duration;
                }
            }
            if (table == DEVICE_SYNC) {
                writer.columns[2 * BLOCK_ROWS + n] = device_of(row[3]);
            }
            if (++n == BLOCK_ROWS) {
                write_block(s, shape, n);
                n = 0;
            }
        }
    }
    if (n) {
        write_block(s, shape, n);
    }
}

static void write_batches(struct session *s, struct device_batch *batches) {
    uint64_t rows = 0;
    for (const struct device_batch *batch = batches; batch; batch = batch->next) {
        learn_contexts(batch);
        rows += batch->rows;
    }
    if (!writer.columns) {
        writer.columns = malloc(sizeof(int64_t) * DEVICE_WORDS * BLOCK_ROWS); /* only the pages that blocks fill are touched */
    }
    if (!writer.columns) {
        int64_t now = clock_ticks();
        postrun_loss(s, 0, PRT_LOSS_GPU, rows, now, now);
        return;
    }
    int64_t from = postrun_device_rows_checked_from();
    if (from < INT64_MAX) {
        check_launches(batches, from);
    }
    pthread_mutex_lock(&postrun_state_lock);
    postrun_totals.recorded += rows;
    pthread_mutex_unlock(&postrun_state_lock);
    postrun_file_anchor(s); /* so that all of them are between two anchors */
    for (int table = 0; table < DEVICE_CONTEXT; table++) {
        write_table(s, (enum device_table)table, batches);
    }
}

static void tell_count(struct session *s, const char *key, uint64_t count) {
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)count);
    pthread_mutex_lock(&postrun_state_lock);
    if (count) {
        postrun_facts_add(&s->facts, key, text, true);
    }
    pthread_mutex_unlock(&postrun_state_lock);
}

void postrun_device_blocks_write(struct session *s, bool final) {
    struct device_taken taken;
    if (!postrun_device_rows_take(s->number, &taken)) {
        return;
    }
    if (writer.session != s->number) {
        writer.session = s->number;
        writer.context_count = 0;
    }
    if (taken.batches) {
        write_batches(s, taken.batches);
        postrun_device_batches_free(taken.batches);
    }
    int64_t now = clock_ticks();
    if (taken.lost) {
        postrun_loss(s, 0, PRT_LOSS_GPU, taken.lost, s->gpu_losses_at ? s->gpu_losses_at : now, now);
    }
    if (taken.untimed) {
        postrun_loss(s, 0, PRT_LOSS_UNTIMED, taken.untimed, s->gpu_losses_at ? s->gpu_losses_at : now, now);
    }
    s->gpu_losses_at = now;
    if (final) {
        struct device_counts counts;
        postrun_device_rows_counts(&counts);
        tell_count(s, "cupti.records_outside", counts.outside);
        tell_count(s, "cupti.wrong_launches", counts.wrong_launches);
        free(writer.columns);
        writer.columns = NULL;
    }
}

void postrun_device_blocks_forked(void) { memset(&writer, 0, sizeof writer); }
