/* block.h - one block of a trace file: columns of values -> bytes (docs/trace-format.md). */
#ifndef POSTRUN_BLOCK_H
#define POSTRUN_BLOCK_H

#include <stddef.h>
#include <stdint.h>

enum prt_block_type {
    PRT_META = 1,
    PRT_STRINGS,
    PRT_CLOCK,
    PRT_PROCESS,
    PRT_THREAD,
    PRT_ANNOTATION,
    PRT_COUNTER,
    PRT_API,
    PRT_KERNEL,
    PRT_MEMCPY,
    PRT_MEMSET,
    PRT_SYNC,
    PRT_METRIC,
    PRT_LOSS,
    PRT_END,
    PRT_EXTERNAL
};
enum prt_loss_reason { PRT_LOSS_RING = 1, PRT_LOSS_DISK, PRT_LOSS_FORK, PRT_LOSS_DEPTH, PRT_LOSS_GPU, PRT_LOSS_UNTIMED };
enum prt_encoding {
    PRT_FIXED64,
    PRT_VARINT,
    PRT_ZIGZAG,
    PRT_DELTA,
    PRT_RLE,
    PRT_RLE_DELTA,
    PRT_BYTES,
    PRT_DELTA_SAME,
    PRT_GAP,
    PRT_SCALED,
    PRT_RLE_SAME
};

#define PRT_MAJOR 1
#define PRT_MINOR 1
#define PRT_FILE_HEADER 64
#define PRT_BLOCK_HEADER 48
#define PRT_STORED_MAX (16u << 20)
#define PRT_RAW_MAX (64u << 20)
#define PRT_COUNT_MAX (1u << 20)
#define PRT_SAME_MAX (1 << 20)  /* only names below this can be referred to by DELTA_SAME and RLE_SAME */
#define PRT_STREAMS_MAX 256     /* streams that GAP can distinguish in a block */

/* Bytes that grow; `failed` stays set once memory was refused. Begin with {0}. */
typedef struct prt_bytes {
    uint8_t *data;
    size_t length, capacity;
    int failed;
} prt_bytes;
void prt_bytes_free(prt_bytes *bytes);

/* The content of a column, which determines the encodings among which the shortest is chosen. */
enum prt_column_kind {
    PRT_COLUMN_INT,      /* int64_t */
    PRT_COLUMN_TIME,     /* int64_t ticks: differences from the block's first time */
    PRT_COLUMN_DURATION, /* int64_t: maybe against the last one of the same name (column id 1) */
    PRT_COLUMN_DOUBLE,   /* double */
    PRT_COLUMN_TEXT      /* prt_text */
};
typedef struct prt_text {
    const char *at;
    size_t length;
} prt_text;
typedef struct prt_column {
    uint8_t id;
    uint8_t kind;
    const void *values; /* `count` of the block */
} prt_column;
typedef struct prt_block {
    uint16_t type;
    uint32_t source, count;
    uint64_t sequence;
    int64_t first_time;
    const prt_column *columns;
    size_t column_count;
} prt_block;

/* Appends the whole block (header, payload, checksum) to `out`. zstd_level 0: not compressed; a block that zstd does not make smaller is
 * stored as it is. 0, -ENOMEM, or -EINVAL for counts beyond the caps. On failure `out` is as long as before. */
int prt_block_write(prt_bytes *out, const prt_block *block, int zstd_level);

/* Appends a file header. */
typedef struct prt_file_header {
    uint32_t compatible, incompatible;
    uint8_t session[16];
    uint32_t pid, parent, number;
    int64_t created_ns;
} prt_file_header;
int prt_file_header_write(prt_bytes *out, const prt_file_header *header);

/* Whether libzstd is there: compiled in, or loaded at run time (dlopen of libzstd.so.1). */
int prt_zstd_available(void);

/* Continues from `crc`, 0 at first. */
uint32_t prt_crc32c(uint32_t crc, const void *data, size_t length);
uint32_t prt_crc32c_by_table(uint32_t crc, const void *data, size_t length); /* the same without the processor's instruction */

#endif
