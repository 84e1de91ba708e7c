/* intervals.h - interval algebra over Arrow tables, exact in int64: unions, sweeps with classes, coverage, gaps, innermost ranges.
 *
 * A table is an Arrow stream of batches whose columns are, in order: the keys, which name the group of a row (integers or booleans; null
 * is a value of its own), one or two times (int64), and what the function needs besides. Rows are sorted only if they are not in order:
 * first they are distributed to their groups, then the runs of a group are merged. Lengths are differences modulo 2^64, exact if they fit
 * int64. A function returns 0 or a negative errno, with a message for -EINVAL; it starts nothing and may run in several threads. */
#ifndef POSTRUN_INTERVALS_H
#define POSTRUN_INTERVALS_H

#include <stddef.h>
#include <stdint.h>

#include "format/arrow.h"

enum {
    INTERVAL_KEYS_MAX = 16,
    INTERVAL_CLASSES_MAX = 8,
    INTERVAL_ORDERS_MAX = 4,
    INTERVAL_COLUMNS_MAX = INTERVAL_KEYS_MAX + 2 + INTERVAL_CLASSES_MAX,
    INTERVAL_MESSAGE = 160
};

/* A result: columns of equal length, in memory of their own. */
typedef struct {
    char format; /* of Arrow; 'b' has a byte per value until it is exported */
    void *values;
    uint8_t *valid; /* a byte per value; NULL: no value is null */
} interval_column;

typedef struct {
    size_t rows, count;
    interval_column columns[INTERVAL_COLUMNS_MAX];
} interval_table;

void interval_table_free(interval_table *table);
/* Moves the columns into a stream of one batch, with the names "0", "1", ...; -ENOMEM leaves them in the table. */
int interval_table_export(interval_table *table, struct ArrowArrayStream *out);

/* All functions read their streams to the end and leave their release to the caller. `keys`: number of keys. */

/* Disjoint segments by group and start: keys, start, end, and a boolean per class. Input: keys, start, end, and a boolean per class (null
 * is false), or several tables without booleans, whose rows are of the class of their table. A segment has the same classes throughout,
 * and touches no other one with the same. `wanted`: the classes of the segments, as bits, instead of all; such segments have no booleans. */
int interval_segments(struct ArrowArrayStream *const *tables, size_t count, unsigned keys, unsigned classes, unsigned wanted,
                      interval_table *out, char *message);
/* The summed lengths of these segments: keys, a boolean per class, length. Without booleans each group of the first table has a row. */
int interval_lengths(struct ArrowArrayStream *const *tables, size_t count, unsigned keys, unsigned classes, unsigned wanted,
                     interval_table *out, char *message);
/* Gaps between a row and the latest end before it in its group, by group, start and end: row number, start and end of the gap. */
int interval_gaps(struct ArrowArrayStream *rows, unsigned keys, interval_table *out, char *message);
/* Numbers of the rows that no other of their group contains, by group and start; the first of equal ones. */
int interval_outermost(struct ArrowArrayStream *rows, unsigned keys, interval_table *out, char *message);
/* Per row, the number of the innermost row of its group that it lies within, or null, and its end. A row that overlaps the end of another
 * ends with it if at least half of it lies inside; else the other ends where the row starts. So the ends make the rows nested or disjoint.
 * Of rows that start together the longest is outermost, then the first. An empty row encloses none. */
int interval_nested(struct ArrowArrayStream *rows, unsigned keys, interval_table *out, char *message);
/* Of the functions with two tables below, rows with a null key match none.
 *
 * The part of each row that the union of the segments of its group covers. */
int interval_covered(struct ArrowArrayStream *rows, struct ArrowArrayStream *segments, unsigned keys, interval_table *out, char *message);
/* The number of the innermost range around each point (keys, time), or null. Ranges: keys, start, end, `orders` integers. Of ranges that
 * start together the longest is outermost, then the one with the lowest integers, then the first. */
int interval_innermost(struct ArrowArrayStream *points, struct ArrowArrayStream *ranges, unsigned keys, unsigned orders,
                       interval_table *out, char *message);
/* The number of the first row of each point's group that has its time, or null. Rows: keys, time, the int64 that orders them, and
 * `orders` integers for those that are equal; null is the lowest. */
int interval_first(struct ArrowArrayStream *points, struct ArrowArrayStream *rows, unsigned keys, unsigned orders, interval_table *out,
                   char *message);

#endif
