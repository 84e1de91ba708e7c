/* series.h - order statistics of series of numbers that follow one another in one array: sorted values, quantiles of windows, counts.
 *
 * `ends`: the end of each series in the array, in ascending order; the first series begins at 0, the last ends with the array. A function returns 0, -EINVAL for bounds
 * that do not fit, or -ENOMEM. The order is total: -0 is before 0, and NaN is at the ends. */
#ifndef POSTRUN_SERIES_H
#define POSTRUN_SERIES_H

#include <stddef.h>
#include <stdint.h>

/* Copies the values of each series in ascending order to `sorted`; `ranks`: the position of each value in its sorted series. */
int series_sort(const double *values, size_t length, const int64_t *ends, size_t count, double *sorted, uint32_t *ranks);

/* Of the values of each window, the ranks of those before and after `fractions[i] * (number of values - 1)`, which is 0..1 of the way from
 * the first to the last in their order: two ranks per window and fraction. A window is not empty and lies inside one series. */
int series_windows(const uint32_t *ranks, size_t length, const int64_t *ends, size_t count, const int64_t *first, const int64_t *last,
                   size_t windows, const double *fractions, size_t fraction_count, uint32_t *out);

/* The number of values of each sorted series below each of its `width` limits: `width` numbers per series. */
int series_below(const double *sorted, size_t length, const int64_t *ends, size_t count, const double *limits, size_t width, int64_t *out);

#endif
