/* trace_clock.c - converts ticks of a trace file into nanoseconds since 1970, by the anchors of the file.
 *
 * Realtime is linear between two anchors, unless the clock was set between them: then it continues at the monotonic rate and jumps at the
 * second anchor. Durations are monotonic time, so setting the clock does not affect them. */
#include "trace_clock.h"

#include <errno.h>
#include <stdlib.h>

#define FRACTION 40
#define SET_NS 1000000 /* realtime and monotonic apart by more than this and a thousandth: the clock was set */

typedef __int128 wide; /* pedantic compilers accept it as an extension */

static int64_t clamp(wide value) { return value > INT64_MAX ? INT64_MAX : value < INT64_MIN ? INT64_MIN : (int64_t)value; }

static int by_ticks(const void *a, const void *b) {
    int64_t left = ((const struct prt_anchor *)a)->ticks, right = ((const struct prt_anchor *)b)->ticks;
    return (left > right) - (left < right);
}

/* Nanoseconds per tick; 0 if that is not a rate. */
static int64_t rate_of(wide nanoseconds, wide ticks) {
    if (nanoseconds <= 0 || ticks <= 0) {
        return 0;
    }
    wide rate = (nanoseconds << FRACTION) / ticks;
    return rate > INT64_MAX ? 0 : (int64_t)rate;
}

/* Appends the segment between two anchors; 0 if the second is impossible. */
static int add_segment(struct prt_clock *c, const struct prt_anchor *from, const struct prt_anchor *to) {
    wide ticks = (wide)to->ticks - from->ticks, real = (wide)to->realtime_ns - from->realtime_ns;
    wide monotonic = (wide)to->monotonic_ns - from->monotonic_ns;
    int64_t real_rate = rate_of(real, ticks), monotonic_rate = rate_of(monotonic, ticks);
    if (!monotonic_rate) {
        monotonic_rate = real_rate;
    }
    wide apart = real > monotonic ? real - monotonic : monotonic - real;
    if (monotonic > 0 && apart > SET_NS + monotonic / 1000) {
        real_rate = monotonic_rate;
    }
    if (!real_rate) {
        real_rate = monotonic_rate;
    }
    if (!real_rate) {
        return 0;
    }
    c->segments[c->count++] =
        (struct prt_segment){from->ticks, to->ticks, from->realtime_ns, from->monotonic_ns, real_rate, monotonic_rate};
    return 1;
}

int prt_clock_begin(struct prt_clock *c, struct prt_anchor *anchors, size_t count, double ticks_per_second) {
    *c = (struct prt_clock){0};
    if (!count) {
        return 0;
    }
    qsort(anchors, count, sizeof *anchors, by_ticks);
    c->segments = malloc(count * sizeof *c->segments);
    if (!c->segments) {
        return -ENOMEM;
    }
    const struct prt_anchor *from = anchors;
    for (size_t i = 1; i < count; i++) {
        if (add_segment(c, from, &anchors[i])) {
            from = &anchors[i];
        } else if (anchors[i].ticks != from->ticks) {
            c->ignored++;
        }
    }
    if (!c->count) {
        double rate = ticks_per_second > 0 ? 1e9 / ticks_per_second * (double)((int64_t)1 << FRACTION) : 0;
        int64_t fixed = rate >= 1 && rate < 9e18 ? (int64_t)rate : (int64_t)1 << FRACTION;
        c->segments[0] = (struct prt_segment){from->ticks, from->ticks, from->realtime_ns, from->monotonic_ns, fixed, fixed};
        c->count = 1;
    }
    /* The last one extends until its times exceed 64 bits. */
    struct prt_segment *last = &c->segments[c->count - 1];
    wide rate = last->realtime_rate > last->monotonic_rate ? last->realtime_rate : last->monotonic_rate;
    wide reach = ((wide)(INT64_MAX - (last->realtime_ns > 0 ? last->realtime_ns : 0)) << FRACTION) / rate;
    last->end = clamp(last->start + reach);
    return 0;
}

void prt_clock_free(struct prt_clock *c) {
    free(c->segments);
    *c = (struct prt_clock){0};
}

/* The segment of a tick: the last that starts no later, else the first. */
static const struct prt_segment *find(const struct prt_clock *c, int64_t ticks) {
    size_t low = 0, high = c->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (c->segments[middle].start <= ticks) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &c->segments[low];
}

static wide after(const struct prt_segment *s, int64_t rate, int64_t ticks) { return ((wide)ticks - s->start) * rate >> FRACTION; }

int64_t prt_clock_time(const struct prt_clock *c, int64_t ticks) {
    if (!c->count) {
        return 0;
    }
    const struct prt_segment *s = find(c, ticks);
    return clamp(s->realtime_ns + after(s, s->realtime_rate, ticks));
}

/* One segment, for ticks from `start`, fewer than `limit`: the time since is the high word of (ticks << shift) * factor. */
struct stretch {
    uint64_t start, limit, base, factor;
    unsigned shift;
};

static struct stretch stretch_of(const struct prt_clock *c, int64_t ticks, int monotonic) {
    if (!c->count) {
        return (struct stretch){0};
    }
    const struct prt_segment *s = find(c, ticks);
    uint64_t rate = (uint64_t)(monotonic ? s->monotonic_rate : s->realtime_rate);
    unsigned bits = 64u - (unsigned)__builtin_clzll(rate), shift = bits > FRACTION ? bits - FRACTION : 0;
    struct stretch found = {(uint64_t)s->start, (uint64_t)s->end - (uint64_t)s->start, (uint64_t)s->realtime_ns,
                            rate << (64 - FRACTION - shift), shift};
    if (s->end < s->start || (shift && found.limit >> (64 - shift))) {
        found.limit = 0;
    }
    return found;
}

static inline uint64_t passed(const struct stretch *s, uint64_t ticks) {
    return (uint64_t)((unsigned __int128)(ticks << s->shift) * s->factor >> 64);
}

void prt_clock_times(const struct prt_clock *c, const int64_t *ticks, size_t count, int64_t *times) {
    struct stretch s = {0};
    for (size_t i = 0; i < count; i++) {
        uint64_t since = (uint64_t)ticks[i] - s.start;
        if (since >= s.limit) {
            s = stretch_of(c, ticks[i], 0);
            since = (uint64_t)ticks[i] - s.start;
            if (since >= s.limit) {
                times[i] = prt_clock_time(c, ticks[i]);
                continue;
            }
        }
        times[i] = (int64_t)(s.base + passed(&s, since));
    }
}

static int64_t long_duration(const struct prt_clock *c, int64_t start, int64_t duration) {
    if (!c->count) {
        return 0;
    }
    int64_t end = clamp((wide)start + duration);
    const struct prt_segment *a = find(c, start), *b = find(c, end);
    wide from = a->monotonic_ns + after(a, a->monotonic_rate, start), to = b->monotonic_ns + after(b, b->monotonic_rate, end);
    return clamp(to - from);
}

void prt_clock_durations(const struct prt_clock *c, const int64_t *starts, const int64_t *lengths, size_t count, int64_t *durations) {
    struct stretch s = {0};
    for (size_t i = 0; i < count; i++) {
        uint64_t since = (uint64_t)starts[i] - s.start, length = (uint64_t)lengths[i];
        if (since >= s.limit || length >= s.limit - since) {
            s = stretch_of(c, starts[i], 1);
            since = (uint64_t)starts[i] - s.start;
            if (since >= s.limit || length >= s.limit - since) {
                durations[i] = long_duration(c, starts[i], lengths[i]);
                continue;
            }
        }
        durations[i] = (int64_t)passed(&s, length);
    }
}
