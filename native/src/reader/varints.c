/* varints.c - decodes many varints (seven bits per byte) quickly, eight bytes at a time.
 *
 * With AVX2 and BMI2, the bits that mark the ends of numbers select from a table how bytes are spread to lanes, so alternating lengths
 * cost no branch mispredictions. Without them (and with PRT_PORTABLE), words are taken apart. */
#include "varints.h"

#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(PRT_PORTABLE)
#define WITH_LANES 1
#include <immintrin.h>
#include <pthread.h>
#endif

#define CONTINUED 0x8080808080808080u
#define PAIRS 0x8000800080008000u

static uint64_t get64(const uint8_t *at) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
#else
    uint64_t word = 0;
    for (unsigned i = 0; i < 8; i++) {
        word |= (uint64_t)at[i] << 8 * i;
    }
    return word;
#endif
}

#define ALWAYS_INLINE inline __attribute__((always_inline))

/* `sign`: numbers are zigzag. The compiler makes two functions of each that takes this. */
static ALWAYS_INLINE uint64_t number(uint64_t value, int sign) { return sign ? prt_unzigzag(value) : value; }

static ALWAYS_INLINE const uint8_t *one_by_one(const uint8_t *at, const uint8_t *end, size_t count, uint64_t *values, int sign) {
    for (size_t i = 0; i < count; i++) {
        uint64_t value;
        if (at < end && *at < 128) {
            value = *at++;
        } else if (!(at = prt_varint(at, end, &value))) {
            return NULL;
        }
        values[i] = number(value, sign);
    }
    return at;
}

/* ---------------------------------------------------------------- words */

/* Takes the seven low bits of each byte of `word` together. */
static uint64_t join(uint64_t word) {
    word = (word & 0x007F007F007F007Fu) | (word & 0x7F007F007F007F00u) >> 1;
    word = (word & 0x00003FFF00003FFFu) | (word & 0x3FFF00003FFF0000u) >> 2;
    return (word & 0x000000000FFFFFFFu) | (word & 0x0FFFFFFF00000000u) >> 4;
}

static ALWAYS_INLINE const uint8_t *by_words(const uint8_t *at, const uint8_t *end, size_t count, uint64_t *values, int sign) {
    size_t i = 0;
    while (count - i >= 8 && end - at >= 8) {
        uint64_t word = get64(at), ends = ~word & CONTINUED;
        if (ends == CONTINUED) { /* eight numbers of one byte */
            for (size_t k = 0; k < 8; k++) {
                values[i + k] = number(at[k], sign);
            }
            i += 8;
            at += 8;
            continue;
        }
        if (ends == PAIRS) { /* four numbers of two bytes */
            word = (word & 0x007F007F007F007Fu) | (word & 0x7F007F007F007F00u) >> 1;
            for (size_t k = 0; k < 4; k++) {
                values[i + k] = number(word >> 16 * k & 0xFFFFu, sign);
            }
            i += 4;
            at += 8;
            continue;
        }
        if (!ends) { /* longer than eight bytes */
            if (!(at = one_by_one(at, end, 1, &values[i++], sign))) {
                return NULL;
            }
            continue;
        }
        uint64_t upto = ends ^ (ends - 1), more = ends & (ends - 1);
        unsigned first = ((unsigned)__builtin_ctzll(ends) >> 3) + 1;
        values[i] = number(join(word & upto), sign);
        if (!more) {
            i++;
            at += first;
            continue;
        }
        /* a second one in the same word */
        values[i + 1] = number(join((word & (more ^ (more - 1)) & ~upto) >> (8 * first)), sign);
        i += 2;
        at += ((unsigned)__builtin_ctzll(more) >> 3) + 1;
    }
    return one_by_one(at, end, count - i, values + i, sign);
}

/* ---------------------------------------------------------------- lanes */

#ifdef WITH_LANES

/* For the eight bits that mark continued bytes: the destination of each byte, the number of varints, and their bytes. No varints: the
 * first one is too long for a lane. */
struct shape {
    uint8_t from[16];
    uint8_t numbers, bytes;
};
static struct shape narrow[256], wide[256]; /* eight lanes of two bytes; four of four */

static struct shape shape_of(unsigned continued, unsigned lanes) {
    struct shape s = {.numbers = 0};
    unsigned size = 16 / lanes;
    memset(s.from, 0x80, sizeof s.from); /* a zero */
    for (unsigned at = 0; s.numbers < lanes;) {
        unsigned length = 1;
        while (at + length <= 8 && continued >> (at + length - 1) & 1) {
            length++;
        }
        if (at + length > 8 || length > size) {
            break;
        }
        for (unsigned i = 0; i < length; i++) {
            s.from[s.numbers * size + i] = (uint8_t)(at + i);
        }
        s.numbers++;
        s.bytes = (uint8_t)(at += length);
    }
    return s;
}

static void make_shapes(void) {
    for (unsigned i = 0; i < 256; i++) {
        narrow[i] = shape_of(i, 8);
        wide[i] = shape_of(i, 4);
    }
}

#define LANES __attribute__((target("avx2,bmi,bmi2")))

/* A number that no lane has room for. */
LANES static ALWAYS_INLINE const uint8_t *long_number(const uint8_t *at, const uint8_t *end, uint64_t *value, int sign) {
    uint64_t word = get64(at), ends = ~word & CONTINUED;
    if (!ends) {
        return one_by_one(at, end, 1, value, sign);
    }
    *value = number(_pext_u64(word & (ends ^ (ends - 1)), ~CONTINUED), sign);
    return at + ((unsigned)__builtin_ctzll(ends) >> 3) + 1;
}

LANES static ALWAYS_INLINE void put4(uint64_t *to, __m256i numbers, int sign) {
    if (sign) {
        __m256i negative = _mm256_sub_epi64(_mm256_setzero_si256(), _mm256_and_si256(numbers, _mm256_set1_epi64x(1)));
        numbers = _mm256_xor_si256(_mm256_srli_epi64(numbers, 1), negative);
    }
    _mm256_storeu_si256((__m256i *)(void *)to, numbers);
}

/* For numbers of mostly one byte. */
LANES static ALWAYS_INLINE const uint8_t *by_narrow_lanes(const uint8_t *at, const uint8_t *end, size_t count, uint64_t *values, int sign) {
    const __m128i low = _mm_set1_epi16(0x007F), high = _mm_set1_epi16(0x7F00);
    size_t i = 0;
    while (count - i >= 16 && end - at >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
        unsigned continued = (unsigned)_mm_movemask_epi8(bytes);
        if (!continued) { /* sixteen numbers of one byte */
            put4(values + i, _mm256_cvtepu8_epi64(bytes), sign);
            put4(values + i + 4, _mm256_cvtepu8_epi64(_mm_srli_si128(bytes, 4)), sign);
            put4(values + i + 8, _mm256_cvtepu8_epi64(_mm_srli_si128(bytes, 8)), sign);
            put4(values + i + 12, _mm256_cvtepu8_epi64(_mm_srli_si128(bytes, 12)), sign);
            i += 16;
            at += 16;
            continue;
        }
        const struct shape *s = &narrow[continued & 255];
        if (!s->numbers) {
            if (!(at = long_number(at, end, &values[i++], sign))) {
                return NULL;
            }
            continue;
        }
        __m128i lanes = _mm_shuffle_epi8(bytes, _mm_loadu_si128((const __m128i *)(const void *)s->from));
        lanes = _mm_or_si128(_mm_and_si128(lanes, low), _mm_srli_epi16(_mm_and_si128(lanes, high), 1));
        put4(values + i, _mm256_cvtepu16_epi64(lanes), sign);
        put4(values + i + 4, _mm256_cvtepu16_epi64(_mm_srli_si128(lanes, 8)), sign);
        i += s->numbers;
        at += s->bytes;
    }
    return one_by_one(at, end, count - i, values + i, sign);
}

/* For numbers of mostly two to four bytes. */
LANES static ALWAYS_INLINE const uint8_t *by_wide_lanes(const uint8_t *at, const uint8_t *end, size_t count, uint64_t *values, int sign) {
    const __m128i low = _mm_set1_epi16(0x007F), high = _mm_set1_epi16(0x7F00), weights = _mm_set1_epi32(1 << 30 | 1);
    size_t i = 0;
    while (count - i >= 4 && end - at >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
        const struct shape *s = &wide[(unsigned)_mm_movemask_epi8(bytes) & 255];
        if (!s->numbers) {
            if (!(at = long_number(at, end, &values[i++], sign))) {
                return NULL;
            }
            continue;
        }
        __m128i lanes = _mm_shuffle_epi8(bytes, _mm_loadu_si128((const __m128i *)(const void *)s->from));
        lanes = _mm_or_si128(_mm_and_si128(lanes, low), _mm_srli_epi16(_mm_and_si128(lanes, high), 1));
        lanes = _mm_madd_epi16(lanes, weights); /* the low half and 2^14 of the high one */
        put4(values + i, _mm256_cvtepu32_epi64(lanes), sign);
        i += s->numbers;
        at += s->bytes;
    }
    return one_by_one(at, end, count - i, values + i, sign);
}

LANES static ALWAYS_INLINE const uint8_t *by_lanes(const uint8_t *at, const uint8_t *end, size_t count, uint64_t *values, int sign) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_shapes);
    unsigned continued = 0; /* of the first bytes */
    size_t seen = (size_t)(end - at) < 64 ? (size_t)(end - at) : 64;
    for (size_t i = 0; i < seen; i++) {
        continued += at[i] >> 7;
    }
    return continued < seen * 3 / 10 ? by_narrow_lanes(at, end, count, values, sign) : by_wide_lanes(at, end, count, values, sign);
}

LANES static const uint8_t *varints_by_lanes(const uint8_t *at, const uint8_t *end, size_t count, uint64_t *values) {
    return by_lanes(at, end, count, values, 0);
}

LANES static const uint8_t *zigzags_by_lanes(const uint8_t *at, const uint8_t *end, size_t count, uint64_t *values) {
    return by_lanes(at, end, count, values, 1);
}

static int has_lanes(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"); }

#endif

const uint8_t *prt_varints(const uint8_t *at, const uint8_t *end, size_t count, uint64_t *values) {
    if (count > (size_t)(end - at)) {
        return NULL;
    }
#ifdef WITH_LANES
    if (has_lanes()) {
        return varints_by_lanes(at, end, count, values);
    }
#endif
    return by_words(at, end, count, values, 0);
}

const uint8_t *prt_zigzags(const uint8_t *at, const uint8_t *end, size_t count, uint64_t *values) {
    if (count > (size_t)(end - at)) {
        return NULL;
    }
#ifdef WITH_LANES
    if (has_lanes()) {
        return zigzags_by_lanes(at, end, count, values);
    }
#endif
    return by_words(at, end, count, values, 1);
}
