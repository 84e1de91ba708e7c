/* digits.h - runs of decimal digits, eight at a time where the lowest byte of a word comes first. */
#ifndef POSTRUN_SCAN_DIGITS_H
#define POSTRUN_SCAN_DIGITS_H

#include "memory.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LITTLE_ENDIAN_WORDS 1
#endif

/* The end of the digits at p. */
static inline text skip_digits(text p, text end) {
#ifdef LITTLE_ENDIAN_WORDS
    for (; end - p >= 8; p += 8) {
        uint64_t word = load8(p);
        /* the highest bit of each byte that is not a digit; carries reach only bytes behind the first one */
        uint64_t strange = ((word + 0x4646464646464646u) | (word - 0x3030303030303030u)) & 0x8080808080808080u;
        if (strange) {
            return p + (__builtin_ctzll(strange) >> 3);
        }
    }
#endif
    while (p < end && *p >= '0' && *p <= '9') {
        p++;
    }
    return p;
}

/* The number that at most 18 digits represent. */
static inline int64_t number_of_digits(text p, text end) {
    int64_t number = 0;
#ifdef LITTLE_ENDIAN_WORDS
    for (; end - p >= 8; p += 8) {
        uint64_t word = load8(p) - 0x3030303030303030u;
        word = word * 10 + (word >> 8); /* each second byte: two digits */
        uint64_t outer = (word & 0x000000FF000000FFu) * 0x000F424000000064u;
        uint64_t inner = (word >> 16 & 0x000000FF000000FFu) * 0x0000271000000001u;
        number = number * 100000000 + (int64_t)((outer + inner) >> 32);
    }
#endif
    while (p < end) {
        number = number * 10 + (*p++ - '0');
    }
    return number;
}

#endif
