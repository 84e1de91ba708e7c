/* zstd_loader.h - the functions of libzstd, which is loaded at the first use and never linked. */
#ifndef POSTRUN_ZSTD_LOADER_H
#define POSTRUN_ZSTD_LOADER_H

#include <stddef.h>

struct prt_zstd {
    size_t (*compress_bound)(size_t size);
    size_t (*compress)(void *to, size_t capacity, const void *from, size_t size, int level);
    size_t (*decompress)(void *to, size_t capacity, const void *from, size_t size);
    unsigned (*is_error)(size_t code);
};

const struct prt_zstd *prt_zstd(void); /* NULL: not there */

#endif
