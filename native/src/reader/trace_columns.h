/* trace_columns.h - decodes the bytes of a block into columns of values (docs/trace-format.md). Every length is checked. */
#ifndef POSTRUN_TRACE_COLUMNS_H
#define POSTRUN_TRACE_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

#include "format/block.h"

#define PRT_COLUMN_IDS 32 /* columns with a larger id are skipped */
#define PRT_MISSING INT64_MIN
#define PRT_SLACK 8 /* elements behind the last row of a column, which decoding may write */
#define PRT_TOO_WIDE 2

/* The columns of a payload; at is NULL for a missing column. */
struct prt_payload {
    uint16_t type;
    uint32_t count;
    int64_t first_time;
    struct {
        const uint8_t *at;
        uint32_t length;
        uint8_t encoding;
    } columns[PRT_COLUMN_IDS];
};

/* Memory that decoding keeps from column to column and from block to block. Begin with {0}. */
struct prt_workspace {
    const struct prt_payload *payload;
    int64_t *values[PRT_COLUMN_IDS]; /* of columns that others refer to */
    uint8_t known[PRT_COLUMN_IDS];
    size_t capacity[PRT_COLUMN_IDS];
    uint32_t *names; /* column 1, if others refer to it */
    int64_t *last;   /* by name */
    size_t name_capacity, last_capacity, largest_name;
    int complete; /* prt_integers saw that no value of the column is PRT_MISSING; 0: there may be some */
    uint64_t unknown_encodings;
};
void prt_workspace_free(struct prt_workspace *workspace);
void prt_workspace_begin(struct prt_workspace *workspace, const struct prt_payload *payload);

/* 0, or -EBADMSG if columns do not fit into the payload. */
int prt_payload_find(struct prt_payload *payload, const uint8_t *data, size_t length);

/* Each of these returns 0, 1 if the payload has no such column (or one of an unknown encoding), -EBADMSG if it is malformed, or -ENOMEM. */
int prt_integers(struct prt_workspace *workspace, uint8_t id, int64_t *values);            /* room for `count` and PRT_SLACK more */
int prt_kept_integers(struct prt_workspace *workspace, uint8_t id, const int64_t **values); /* decoded once; valid to the next block */
/* The same as int32; PRT_TOO_WIDE if a value does not fit. */
int prt_narrow_integers(struct prt_workspace *workspace, uint8_t id, int32_t *values);
int prt_doubles(struct prt_workspace *workspace, uint8_t id, double *values);
/* `count` + 1 offsets into `bytes`, which are as long as the column; bytes that are not UTF-8 become '?'. */
int prt_texts(struct prt_workspace *workspace, uint8_t id, int32_t *offsets, uint8_t *bytes);

/* Whether the column is one run of one value. */
int prt_constant(const struct prt_workspace *workspace, uint8_t id, int64_t *value);

#endif
