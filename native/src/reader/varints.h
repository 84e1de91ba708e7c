/* varints.h - decodes many varints, seven bits per byte (docs/trace-format.md). Bytes before and after them are not accessed. */
#ifndef POSTRUN_VARINTS_H
#define POSTRUN_VARINTS_H

#include <stddef.h>
#include <stdint.h>

/* Reads the number at `at` and returns the position behind it; NULL if it does not end before `end` or does not fit 64 bits. */
static inline const uint8_t *prt_varint(const uint8_t *at, const uint8_t *end, uint64_t *value) {
    uint64_t result = 0;
    for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
        uint64_t byte = *at++;
        if (shift == 63 && byte > 1) {
            return NULL;
        }
        result |= (byte & 127u) << shift;
        if (byte < 128) {
            *value = result;
            return at;
        }
    }
    return NULL;
}

static inline uint64_t prt_unzigzag(uint64_t value) { return (value >> 1) ^ (0u - (value & 1u)); }

/* Reads `count` numbers and returns the position behind them; NULL as above. */
const uint8_t *prt_varints(const uint8_t *at, const uint8_t *end, size_t count, uint64_t *values);
/* The same of zigzag numbers. */
const uint8_t *prt_zigzags(const uint8_t *at, const uint8_t *end, size_t count, uint64_t *values);

#endif
