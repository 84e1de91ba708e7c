/* reader.h - reads a trace file, including a damaged one (docs/trace-format.md).
 *
 * Opening reads the file once, checks every block, and keeps the blocks' offsets, the strings and the clock anchors. The rows of a table
 * are decoded block by block as an Arrow C stream. A damaged file opens; its losses are reported as problems. */
#ifndef POSTRUN_READER_H
#define POSTRUN_READER_H

#include <stddef.h>
#include <stdint.h>

#include "format/arrow.h"

typedef struct prt_reader prt_reader;

typedef struct {
    uint64_t row_limit; /* rows of all tables together; 0: 1 Mi and 32 for each byte of the file */
    int name_ids;       /* names as int32 indices of prt_reader_name, not as Arrow dictionaries */
    uint64_t unpacked_limit; /* bytes of all compressed blocks, decompressed; 0: none */
} prt_reader_options;

typedef struct {
    uint16_t major, minor;
    uint32_t compatible, incompatible, pid, parent, number;
    uint8_t session[16];
    int64_t created_ns;
} prt_reader_header;

enum prt_problem_code {
    PRT_DAMAGED,          /* bytes that are not a block */
    PRT_MISSING_BLOCKS,   /* sequence numbers missing although no byte is damaged */
    PRT_TRUNCATED,        /* the file ends inside a block */
    PRT_NO_END,           /* not stopped properly, or still being written */
    PRT_BAD_HEADER,       /* the file header fails its checksum */
    PRT_UNDECODABLE,      /* an intact block whose columns make no sense */
    PRT_NO_ZSTD,          /* compressed, and libzstd cannot be loaded */
    PRT_UNKNOWN_CODEC,
    PRT_UNKNOWN_TYPE,
    PRT_UNKNOWN_ENCODING,
    PRT_OUT_OF_ORDER,     /* sequence numbers that go back */
    PRT_ROW_LIMIT,        /* blocks left out */
    PRT_NO_CLOCK,         /* no anchor: times count from when the file was made */
    PRT_BAD_CLOCK,        /* anchors that contradict each other, left out */
    PRT_BAD_STRING,       /* an id beyond reason, or with two texts */
    PRT_UNRESOLVED_NAME,  /* rows whose name is not in the file */
    PRT_OUT_OF_RANGE,     /* numbers that do not fit their column: null */
    PRT_UNREADABLE,       /* the operating system failed to read */
    PRT_UNPACKED_LIMIT,   /* compressed blocks left out */
    PRT_PROBLEMS
};

/* Blocks lost (or affected), bytes and rows lost if known; the affected time range, INT64_MIN if unknown. */
typedef struct {
    enum prt_problem_code code;
    uint64_t offset, bytes, blocks, rows;
    int64_t first_ns, last_ns;
} prt_problem;

/* 0 or a negative errno value; then `message` is the reason: not a trace file, another version, ... */
int prt_reader_open(prt_reader **reader, const char *path, const prt_reader_options *options, char *message, size_t message_size);
/* The same of bytes in memory, which must stay there until the last stream and array is released. */
int prt_reader_open_memory(prt_reader **reader, const void *data, size_t length, const prt_reader_options *options, char *message,
                           size_t message_size);
void prt_reader_release(prt_reader *reader); /* streams and arrays have a reference also */

const prt_reader_header *prt_reader_get_header(const prt_reader *reader);
uint64_t prt_reader_size(const prt_reader *reader);
size_t prt_reader_names(const prt_reader *reader);
const char *prt_reader_name(const prt_reader *reader, size_t index, size_t *length);

/* The rows of intact blocks by type; types from PRT_TYPES count as 0. */
#define PRT_TYPES 17
typedef struct {
    uint64_t blocks, rows, stored, raw;
} prt_type_count;
prt_type_count prt_reader_count(const prt_reader *reader, unsigned type);

/* Problems known so far: those inside blocks are detected as streams are read. Beyond a thousand, sites of one kind are reported
 * together. */
size_t prt_reader_problem_count(prt_reader *reader);
prt_problem prt_reader_problem(prt_reader *reader, size_t index);
const char *prt_problem_name(enum prt_problem_code code);

size_t prt_tables(void);
const char *prt_table_name(size_t table);
/* The rows of a table; any number of streams, on any thread each. 0 or -ENOMEM, -EINVAL. */
int prt_reader_stream(prt_reader *reader, size_t table, struct ArrowArrayStream *out);

#endif
