/* series.c - see series.h. */
#include "series.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DIGIT_BITS = 11, DIGITS = 6, BUCKETS = 1 << DIGIT_BITS, SHORT = 48, WORD = 64, BLOCK_WORDS = 8 };

typedef struct {
    uint64_t key;
    uint32_t at;
} element;

static int ends_fit(size_t length, const int64_t *ends, size_t count) {
    int64_t before = 0;
    for (size_t s = 0; s < count; s++) {
        if (ends[s] < before || (uint64_t)(ends[s] - before) > UINT32_MAX) {
            return 0;
        }
        before = ends[s];
    }
    return (uint64_t)before == length;
}

/* ---------------------------------------------------------------- sorting */

/* An integer with the order of the number: the bits of a negative one are inverted, the sign of another is set. */
static uint64_t key_of(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits ^ ((uint64_t)0 - (bits >> 63) | (uint64_t)1 << 63);
}

static void insertion_sort(element *rows, size_t n) {
    for (size_t i = 1; i < n; i++) {
        element row = rows[i];
        size_t at = i;
        for (; at && rows[at - 1].key > row.key; at--) {
            rows[at] = rows[at - 1];
        }
        rows[at] = row;
    }
}

/* Sorts by one digit after the other, from the lowest; digits that all keys share are skipped. Returns the array with the result. */
static element *radix_sort(element *rows, element *spare, size_t n, uint32_t (*counts)[BUCKETS]) {
    memset(counts, 0, sizeof *counts * DIGITS);
    for (size_t i = 0; i < n; i++) {
        for (unsigned d = 0; d < DIGITS; d++) {
            counts[d][rows[i].key >> (d * DIGIT_BITS) & (BUCKETS - 1)]++;
        }
    }
    for (unsigned d = 0; d < DIGITS; d++) {
        unsigned shift = d * DIGIT_BITS;
        if (counts[d][rows[0].key >> shift & (BUCKETS - 1)] == n) {
            continue;
        }
        uint32_t begin = 0;
        for (size_t b = 0; b < BUCKETS; b++) {
            uint32_t size = counts[d][b];
            counts[d][b] = begin;
            begin += size;
        }
        for (size_t i = 0; i < n; i++) {
            spare[counts[d][rows[i].key >> shift & (BUCKETS - 1)]++] = rows[i];
        }
        element *sorted = spare;
        spare = rows;
        rows = sorted;
    }
    return rows;
}

int series_sort(const double *values, size_t length, const int64_t *ends, size_t count, double *sorted, uint32_t *ranks) {
    if (!ends_fit(length, ends, count)) {
        return -EINVAL;
    }
    size_t longest = 1;
    for (size_t s = 0; s < count; s++) {
        size_t n = (size_t)(ends[s] - (s ? ends[s - 1] : 0));
        longest = n > longest ? n : longest;
    }
    element *rows = calloc(longest, 2 * sizeof *rows);
    uint32_t (*counts)[BUCKETS] = malloc(sizeof *counts * DIGITS);
    if (!rows || !counts) {
        free(rows);
        free(counts);
        return -ENOMEM;
    }
    size_t begin = 0;
    for (size_t s = 0; s < count; s++) {
        size_t n = (size_t)ends[s] - begin;
        for (size_t i = 0; i < n; i++) {
            rows[i] = (element){key_of(values[begin + i]), (uint32_t)i};
        }
        element *result = rows;
        if (n <= SHORT) {
            insertion_sort(rows, n);
        } else {
            result = radix_sort(rows, rows + longest, n, counts);
        }
        for (size_t i = 0; i < n; i++) {
            sorted[begin + i] = values[begin + result[i].at];
            ranks[begin + result[i].at] = (uint32_t)i;
        }
        begin = (size_t)ends[s];
    }
    free(rows);
    free(counts);
    return 0;
}

/* ---------------------------------------------------------------- windows */

/* The values of a window as the set of their ranks: a bit per rank, and the number of bits of each block of words. */
typedef struct {
    uint64_t *words;
    uint32_t *blocks;
    size_t block_count;
    size_t first, last; /* rows of the window */
} rank_set;

static void flip(rank_set *set, uint32_t rank) {
    uint64_t bit = (uint64_t)1 << rank % WORD;
    set->words[rank / WORD] ^= bit;
    set->blocks[rank / (WORD * BLOCK_WORDS)] += set->words[rank / WORD] & bit ? 1 : UINT32_MAX;
}

/* Makes the window that of rows first to last: rows of only one of both windows enter or leave the set. */
static void move(rank_set *set, const uint32_t *ranks, size_t first, size_t last) {
    if (first >= set->last || last <= set->first) {
        for (; set->first < set->last; set->first++) {
            flip(set, ranks[set->first]);
        }
        set->first = set->last = first;
    }
    for (; set->first < first; set->first++) {
        flip(set, ranks[set->first]);
    }
    while (set->first > first) {
        flip(set, ranks[--set->first]);
    }
    for (; set->last < last; set->last++) {
        flip(set, ranks[set->last]);
    }
    while (set->last > last) {
        flip(set, ranks[--set->last]);
    }
}

/* The rank of the member before which there are `before` others; UINT32_MAX if there is none, because ranks were repeated. */
static uint32_t member(const rank_set *set, size_t before) {
    size_t block = 0;
    while (before >= set->blocks[block]) {
        before -= set->blocks[block++];
        if (block == set->block_count) {
            return UINT32_MAX;
        }
    }
    size_t word = block * BLOCK_WORDS;
    for (size_t here; before >= (here = (size_t)__builtin_popcountll(set->words[word])); word++) {
        before -= here;
    }
    uint64_t bits = set->words[word];
    for (; before; before--) {
        bits &= bits - 1;
    }
    return (uint32_t)(word * WORD + (size_t)__builtin_ctzll(bits));
}

static int ranks_fit(const uint32_t *ranks, const int64_t *ends, size_t count) {
    size_t at = 0;
    for (size_t s = 0; s < count; s++) {
        size_t begin = at;
        for (; at < (size_t)ends[s]; at++) {
            if (ranks[at] >= (size_t)ends[s] - begin) {
                return 0;
            }
        }
    }
    return 1;
}

/* The number of the series of a window, or `count`. */
static size_t series_of(const int64_t *ends, size_t count, int64_t first, int64_t last, size_t guess) {
    size_t low = 0, high = count;
    if (guess < count && first < ends[guess] && first >= (guess ? ends[guess - 1] : 0)) {
        low = guess;
    } else {
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (ends[middle] <= first) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
    }
    return first >= 0 && first < last && low < count && last <= ends[low] ? low : count;
}

int series_windows(const uint32_t *ranks, size_t length, const int64_t *ends, size_t count, const int64_t *first, const int64_t *last,
                   size_t windows, const double *fractions, size_t fraction_count, uint32_t *out) {
    if (!ends_fit(length, ends, count) || !ranks_fit(ranks, ends, count)) {
        return -EINVAL;
    }
    for (size_t i = 0; i < fraction_count; i++) {
        if (!(fractions[i] >= 0 && fractions[i] <= 1)) {
            return -EINVAL;
        }
    }
    size_t longest = 0;
    for (size_t s = 0; s < count; s++) {
        size_t n = (size_t)(ends[s] - (s ? ends[s - 1] : 0));
        longest = n > longest ? n : longest;
    }
    size_t blocks = longest / (WORD * BLOCK_WORDS) + 1;
    rank_set set = {calloc(blocks * BLOCK_WORDS, sizeof *set.words), calloc(blocks, sizeof *set.blocks), blocks, 0, 0};
    int result = set.words && set.blocks ? 0 : -ENOMEM;
    for (size_t w = 0, s = 0; w < windows && !result; w++) {
        s = series_of(ends, count, first[w], last[w], s);
        if (s == count) {
            result = -EINVAL;
            break;
        }
        move(&set, ranks, (size_t)first[w], (size_t)last[w]);
        size_t n = (size_t)(last[w] - first[w]);
        for (size_t i = 0; i < fraction_count; i++) {
            size_t below = (size_t)(fractions[i] * (double)(n - 1));
            out[0] = member(&set, below);
            out[1] = below + 1 < n ? member(&set, below + 1) : out[0];
            if (out[0] == UINT32_MAX || out[1] == UINT32_MAX) {
                result = -EINVAL;
            }
            out += 2;
        }
    }
    free(set.words);
    free(set.blocks);
    return result;
}

/* ---------------------------------------------------------------- counts */

int series_below(const double *sorted, size_t length, const int64_t *ends, size_t count, const double *limits, size_t width, int64_t *out) {
    if (!ends_fit(length, ends, count)) {
        return -EINVAL;
    }
    size_t begin = 0;
    for (size_t s = 0; s < count; s++) {
        size_t end = (size_t)ends[s];
        for (size_t i = 0; i < width; i++) {
            size_t low = begin, high = end;
            while (low < high) {
                size_t middle = low + (high - low) / 2;
                if (sorted[middle] < limits[s * width + i]) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            *out++ = (int64_t)(low - begin);
        }
        begin = end;
    }
    return 0;
}
