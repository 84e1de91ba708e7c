/* rows.h - the rows of Arrow tables in memory, with their groups as numbers, in order. */
#ifndef POSTRUN_INTERVAL_ROWS_H
#define POSTRUN_INTERVAL_ROWS_H

#include "intervals.h"

#define NO_ROW UINT32_MAX

typedef struct {
    int64_t start, end;
    uint32_t group;
    uint32_t mark; /* classes as bits, or the number of the row in its table, or (with orders) among the rows kept */
} interval;

/* The distinct keys of the tables read so far; their numbers count from 0. */
typedef struct {
    unsigned keys;
    char formats[INTERVAL_KEYS_MAX];
    size_t count, capacity, slot_count;
    int64_t *values;  /* `keys` per group; 0 where null */
    uint32_t *nulls;  /* a bit per key */
    uint32_t *slots;  /* of a hash table: group + 1, or 0 */
    uint64_t seed;
    uint8_t *from_first; /* whether the first table has the group; set by interval_rank */
} interval_groups;

typedef struct {
    interval *rows;
    size_t count, capacity;
    size_t total;     /* rows of the table, including those left out */
    size_t *offsets;  /* of the groups, one more than there are; NULL until the rows are grouped */
    unsigned orders;
    int64_t *order[INTERVAL_ORDERS_MAX]; /* by mark; null is INT64_MIN */
    uint32_t *numbers;                   /* with orders, the number of the row by mark */
    int64_t *results;                    /* by row number */
    size_t result_capacity;
} interval_rows;

/* Uses a row: 1 to keep it among the rows, 0, or a negative errno. */
typedef int interval_taker(void *context, const interval *row, interval_rows *rows);

typedef struct {
    unsigned times;    /* 1: `end` is the time; 2: start and end */
    unsigned classes;  /* boolean columns, which make the mark */
    unsigned orders;   /* integer columns */
    uint32_t mark;     /* of rows without classes, unless they are numbered */
    int numbered;      /* the mark is a number */
    int empty;         /* keep rows with end <= start */
    int keyed;         /* leave out rows with a null key */
    interval_taker *take;
    void *context;
    int results;    /* the rows have results, at first `initial` */
    int64_t initial;
} interval_reading;

/* Reads a table to its end. Rows with a null time are left out. */
int interval_read(struct ArrowArrayStream *stream, const interval_reading *how, interval_groups *groups, interval_rows *out, char *message);
/* Sorts the keys, null first, and numbers the groups of the rows in that order. The first table had the first `first_count` groups. */
int interval_rank(interval_groups *groups, size_t first_count, interval_rows *rows, size_t tables);
/* Returns the number of a row in its table. */
uint32_t interval_number(const interval_rows *rows, const interval *row);
/* Brings rows of equal groups together, in their order, and sets the offsets. */
int interval_group(interval_rows *rows, size_t groups);

typedef int interval_after(const interval *a, const interval *b, const interval_rows *rows); /* whether a belongs after b */
interval_after interval_by_start, interval_by_end, interval_by_nesting;
/* Sorts the rows of each group, stable. */
int interval_sort(interval_rows *rows, size_t groups, interval_after *after);

/* The unions of the rows of each group, in order, and where those of a group begin (`groups` + 1 offsets). All rows have one mark. */
int interval_union(interval_rows *rows, size_t groups, interval **segments, size_t *offsets);

void interval_groups_free(interval_groups *groups);
void interval_rows_free(interval_rows *rows);

/* Makes room for one more element of an array; -ENOMEM. `pointer`: to the pointer to it, of any type. */
int interval_grow(void *pointer, size_t count, size_t *capacity, size_t size);

#endif
