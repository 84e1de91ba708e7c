/* trace_scan.h - scans the text of a Chrome trace into typed columns. ingest/chrome_trace/scan.py states the rules.
 *
 * A scanner is used by one thread at a time. Text arrives in chunks that end anywhere; events are returned as rows of columns. A missing
 * value is TRACE_SCAN_MISSING in an int64 column and -1 in an int32 column. The only error is running out of memory (-1). */
#ifndef POSTRUN_TRACE_SCAN_H
#define POSTRUN_TRACE_SCAN_H

#include <stddef.h>
#include <stdint.h>

#define TRACE_SCAN_MISSING INT64_MIN
#define TRACE_SCAN_DEPTH_MAX 1024
#define TRACE_SCAN_EXAMPLE 60

enum trace_scan_kind { TRACE_SCAN_INT, TRACE_SCAN_TEXT, TRACE_SCAN_INT3 };

typedef struct {
    const uint8_t *at;
    size_t length;
} trace_scan_text;

typedef struct {
    const enum trace_scan_kind *kinds; /* one per argument column, those of every event first */
    size_t dense, narrow, all;         /* how many of them every event has, has or has in the sparse table, how many there are */
    const trace_scan_text *keys;       /* keys of "args" ... */
    const size_t *key_columns;         /* ... and the column of each */
    size_t key_count;
    size_t parts; /* members of "args" whose combination has an id: those with the columns all, all + 1, ... */
    const trace_scan_text *wide_categories;
    size_t wide_category_count;
    size_t event_limit, member_limit; /* bytes of text */
    unsigned depth_limit;             /* at most TRACE_SCAN_DEPTH_MAX */
    size_t text_limit;                /* bytes of one text of a row; longer ones are cut. 0: none, like the next two */
    size_t string_limit, total_limit; /* distinct texts, and their bytes; others become one text */
} trace_scan_options;

enum trace_scan_width { TRACE_SCAN_U8 = 1, TRACE_SCAN_I32 = 4, TRACE_SCAN_I64 = 8 };

typedef struct {
    enum trace_scan_width width;
    void *values;
} trace_scan_column;

typedef struct {
    size_t rows, capacity, column_count;
    trace_scan_column *columns;
} trace_scan_table;

typedef struct {
    const char *code;
    int64_t count;
    int64_t first_offset;
    size_t example_length;
    uint8_t example[TRACE_SCAN_EXAMPLE];
} trace_scan_defect;

typedef struct {
    int64_t before; /* X, B and E events before it */
    trace_scan_text raw;
} trace_scan_metadata;

typedef struct {
    trace_scan_text key, raw;
    int broken;
} trace_scan_member;

typedef struct {
    trace_scan_text phase, category;
    int64_t count;
} trace_scan_count;

typedef struct trace_scan trace_scan;

trace_scan *trace_scan_new(const trace_scan_options *options); /* NULL: out of memory; copies the options */
void trace_scan_free(trace_scan *scan);
int trace_scan_feed(trace_scan *scan, const uint8_t *data, size_t length);
int trace_scan_finish(trace_scan *scan);

/* The decoded results; valid until the next call of feed, finish or clear. */
const trace_scan_table *trace_scan_events(const trace_scan *scan);
const trace_scan_table *trace_scan_sparse(const trace_scan *scan); /* row of the event, then the columns from dense to narrow */
const trace_scan_table *trace_scan_wide(const trace_scan *scan);
/* A combination: for each part the length of its text plus one, or 0 if it is absent (uint32), and the text. Its id is the last column of the
 * events and of the wide events, if there are parts. */
size_t trace_scan_combination_count(const trace_scan *scan); /* new ones since the last clear */
trace_scan_text trace_scan_combination(const trace_scan *scan, size_t index);
size_t trace_scan_string_count(const trace_scan *scan);                 /* new ones since the last clear */
trace_scan_text trace_scan_string(const trace_scan *scan, size_t index); /* valid UTF-8 */
size_t trace_scan_metadata_count(const trace_scan *scan);
const trace_scan_metadata *trace_scan_metadata_at(const trace_scan *scan, size_t index);
void trace_scan_clear(trace_scan *scan); /* forget rows, metadata and new strings; string ids run on */

/* After finish. */
size_t trace_scan_member_count(const trace_scan *scan);
const trace_scan_member *trace_scan_member_at(const trace_scan *scan, size_t index);
size_t trace_scan_count_count(const trace_scan *scan);
trace_scan_count trace_scan_count_at(const trace_scan *scan, size_t index);
size_t trace_scan_defect_codes(void);
const trace_scan_defect *trace_scan_defect_at(const trace_scan *scan, size_t index); /* count 0: did not happen */

#endif
