/* crc32c.c - CRC-32C (Castagnoli polynomial, reflected), with the processor's instruction if it has one. */
#include <string.h>

#include "block.h"

#define POLYNOMIAL 0x82F63B78u

static uint32_t table[8][256];

__attribute__((constructor)) static void make_table(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (POLYNOMIAL & (0u - (crc & 1u)));
        }
        table[0][i] = crc;
    }
    for (size_t slice = 1; slice < 8; slice++) {
        for (size_t i = 0; i < 256; i++) {
            table[slice][i] = (table[slice - 1][i] >> 8) ^ table[0][table[slice - 1][i] & 255u];
        }
    }
}

static uint32_t crc_by_table(uint32_t crc, const uint8_t *at, size_t length) {
    for (; length >= 8; at += 8, length -= 8) {
        crc ^= (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        crc = table[7][crc & 255u] ^ table[6][crc >> 8 & 255u] ^ table[5][crc >> 16 & 255u] ^ table[4][crc >> 24] ^ table[3][at[4]] ^
              table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    }
    for (; length; at++, length--) {
        crc = (crc >> 8) ^ table[0][(crc ^ *at) & 255u];
    }
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

// Since version 14, clang has a feature of its own for this instruction. GCC and older clang have it in SSE 4.2.
#if defined(__clang__) && __clang_major__ >= 14
#define CRC_TARGET __attribute__((target("sse4.2,crc32")))
#else
#define CRC_TARGET __attribute__((target("sse4.2")))
#endif

CRC_TARGET static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *at, size_t length) {
    uint64_t wide = crc;
    for (; length >= 8; at += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; length; at++, length--) {
        crc = _mm_crc32_u8(crc, *at);
    }
    return crc;
}

static uint32_t crc_of(uint32_t crc, const uint8_t *at, size_t length) {
    return __builtin_cpu_supports("sse4.2") ? crc_by_instruction(crc, at, length) : crc_by_table(crc, at, length);
}
#else
static uint32_t crc_of(uint32_t crc, const uint8_t *at, size_t length) { return crc_by_table(crc, at, length); }
#endif

uint32_t prt_crc32c(uint32_t crc, const void *data, size_t length) { return ~crc_of(~crc, data, length); }

uint32_t prt_crc32c_by_table(uint32_t crc, const void *data, size_t length) { return ~crc_by_table(~crc, data, length); }
