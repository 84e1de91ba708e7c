/* trace_clock.h - converts ticks of a trace file into nanoseconds since 1970, by the anchors of the file. */
#ifndef POSTRUN_TRACE_CLOCK_H
#define POSTRUN_TRACE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

struct prt_anchor {
    int64_t ticks, monotonic_ns, realtime_ns;
};

/* Between two anchors; the first and last also reach beyond. Rates are nanoseconds per tick, times 2^40. */
struct prt_segment {
    int64_t start, end; /* ticks */
    int64_t realtime_ns, monotonic_ns;
    int64_t realtime_rate, monotonic_rate;
};

struct prt_clock {
    struct prt_segment *segments;
    size_t count;
    size_t ignored; /* anchors that cannot be */
};

/* From anchors in any order (they are sorted) and the rate that the file states (0: none), which is used if there is a single anchor. 0
 * or -ENOMEM. Without an anchor, every tick is nanosecond 0. */
int prt_clock_begin(struct prt_clock *clock, struct prt_anchor *anchors, size_t count, double ticks_per_second);
void prt_clock_free(struct prt_clock *clock);

int64_t prt_clock_time(const struct prt_clock *clock, int64_t ticks);
void prt_clock_times(const struct prt_clock *clock, const int64_t *ticks, size_t count, int64_t *times);
/* Of lengths in ticks: monotonic time from start to start + length. */
void prt_clock_durations(const struct prt_clock *clock, const int64_t *starts, const int64_t *lengths, size_t count, int64_t *durations);

#endif
