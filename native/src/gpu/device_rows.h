/* device_rows.h - rows of GPU activity, on their way from the callbacks of CUPTI to the blocks of a trace file. */
#ifndef POSTRUN_DEVICE_ROWS_H
#define POSTRUN_DEVICE_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/block.h"

#pragma GCC visibility push(hidden)

/* Each row is a table and then its words: the columns of its block in the order of device_rows.c. Times are ns of CLOCK_REALTIME. */
enum device_table { DEVICE_API, DEVICE_KERNEL, DEVICE_MEMCPY, DEVICE_MEMSET, DEVICE_SYNC, DEVICE_EXTERNAL, DEVICE_CONTEXT, DEVICE_TABLES };
#define DEVICE_WORDS 16 /* at most, without the table */
#define DEVICE_NONE INT64_MIN

/* Columns of a table: ids in the block. Word 0 (or 1, behind a name) is a start, the next one a duration. */
struct device_shape {
    enum prt_block_type type;
    uint8_t count, start; /* start: its word; NO_START */
    uint8_t ids[DEVICE_WORDS];
};
#define NO_START 255
extern const struct device_shape postrun_device_shapes[DEVICE_TABLES];

struct device_batch { /* begin with {0} */
    int64_t *words;
    size_t count, capacity;
    uint64_t rows;
    uint64_t no_room;   /* rows that found no memory */
    uint64_t dropped;   /* records that the tracer lost */
    uint64_t untimed;   /* records without times */
    uint64_t unknown, overhead, negative, ignored;
    uint64_t outside;   /* records of work outside of windows */
    int64_t now;        /* when it was read */
    bool graphs;        /* some rows are of CUDA graphs */
    struct device_batch *next;
};

uint32_t postrun_device_columns(enum device_table table);
void postrun_device_add(struct device_batch *batch, enum device_table table, const int64_t *values);

/* Opens, or closes, a window at a time. Rows of work that began outside of the last two windows are dropped, however early or late they
 * arrive. */
void postrun_device_rows_open(int64_t ns);
void postrun_device_rows_close(int64_t ns);
/* From this time on the launches that kernels of CUDA graphs name may be wrong: a kernel that starts before its launch then names none.
 * INT64_MAX: they are right. */
void postrun_device_rows_check_launches(int64_t from_ns);

/* The queue of session `number`. Rows that are put there after its end are dropped. */
void postrun_device_rows_begin(uint32_t number);
void postrun_device_rows_put(struct device_batch *batch); /* takes its words */
void postrun_device_rows_lost(uint64_t records);          /* that the tracer lost */
void postrun_device_rows_end(uint32_t number);
void postrun_device_rows_forked(void);
struct device_counts {
    uint64_t rows, unknown, overhead, negative, ignored, untimed, dropped, no_room, outside, wrong_launches;
};
void postrun_device_rows_counts(struct device_counts *counts); /* since the start */
void postrun_device_rows_wrote(uint64_t bytes);   /* adds to postrun_device_rows_bytes */
uint64_t postrun_device_rows_bytes(void); /* of the blocks of rows that this process has written to files, in all its sessions */

/* Takes what has arrived, on the drain thread; false: the queue is not that of session `number`. */
struct device_taken {
    struct device_batch *batches;
    uint64_t lost, untimed; /* records since the last call */
};
bool postrun_device_rows_take(uint32_t number, struct device_taken *taken);
void postrun_device_batches_free(struct device_batch *batch);
int64_t postrun_device_rows_checked_from(void); /* as passed to postrun_device_rows_check_launches */
void postrun_device_rows_wrong_launches(uint64_t wrong);

#pragma GCC visibility pop
#endif
