/* reader_internal.h - the state that reader.c and reader_arrow.c share. */
#ifndef POSTRUN_READER_INTERNAL_H
#define POSTRUN_READER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "reader.h"
#include "trace_clock.h"
#include "trace_columns.h"

struct prt_entry { /* an intact block */
    uint64_t offset;
    int64_t first_time;
    uint32_t stored, raw, count, source;
    uint16_t type;
    uint8_t codec, reported; /* reported: its problems are */
};

struct prt_input { /* a file, or bytes in memory */
    const uint8_t *memory;
    int fd;
    uint64_t size;
};

struct prt_reader {
    atomic_size_t holders;
    struct prt_input input;
    prt_reader_options options;
    prt_reader_header header;
    struct prt_entry *entries;
    size_t entry_count, entry_capacity;
    prt_type_count counts[PRT_TYPES];
    struct prt_clock clock;
    /* names: index i has the text from name_offsets[i] to name_offsets[i + 1]; id i has index i */
    int32_t *name_offsets;
    uint8_t *name_bytes;
    uint8_t *name_known;
    uint64_t names_whole; /* ids from 1 to this all have a text */
    size_t name_count; /* the last one represents every higher id */
    void *zeros; /* 8 bytes for each row of the largest block, and 8 more */
    pthread_mutex_t lock; /* problems */
    prt_problem *problems;
    size_t problem_count, problem_capacity, sites[PRT_PROBLEMS];
};

/* Reads blocks; the result is valid until the next call. */
struct prt_block_source {
    const struct prt_input *input;
    uint8_t *stored, *raw;
    size_t stored_capacity, raw_capacity;
};
void prt_block_source_free(struct prt_block_source *source);
/* The payload of a block, decompressed. 0, -EBADMSG, -ENOTSUP (no libzstd, unknown codec), -EIO, -ENOMEM. */
int prt_block_payload(struct prt_block_source *source, const struct prt_entry *entry, const uint8_t **payload);

void prt_reader_hold(prt_reader *reader);
/* Reports a problem; the range is in ticks. */
void prt_reader_report(prt_reader *reader, prt_problem problem);
int prt_reader_first_telling(prt_reader *reader, size_t entry); /* whether the problems of a block are still to be reported */
void prt_reader_report_block(prt_reader *reader, enum prt_problem_code code, const struct prt_entry *entry);

#endif
