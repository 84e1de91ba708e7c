/* device_times.c - does a time of the device's tracer come back to the nanosecond, through ticks and the anchors of a file?
 *
 * For clocks of several rates, whose two times of an anchor were read a little apart. Prints, for a rate in kHz, how many of the times and
 * durations do not come back. */
#include "../../native/src/reader/trace_clock.c"
#include "../../native/src/session/device_blocks.c"

#include <stdio.h>

#define TIMES 200000
#define SECONDS 20
static struct session session;
static struct clock_anchor remembered[ANCHORS];
static struct prt_anchor anchors[SECONDS + 1];

static uint64_t state = 88172645463325252u;
static uint64_t chance(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

int main(int count, char **rates) {
    for (int r = 1; r < count; r++) {
        int64_t khz = atoll(rates[r]), start = 1700000000123456789, bad_starts = 0, bad_durations = 0, farthest = 0;
        memset(&session, 0, sizeof session);
        session.anchors = remembered;
        for (int i = 0; i <= SECONDS; i++) {
            int64_t monotonic = 5000000000 + i * 1000000000LL + (int64_t)chance(1000000);
            int64_t ticks = 77777 + (int64_t)((__int128)monotonic * khz / 1000000);
            int64_t real = start + monotonic + (khz == 1000000 ? 0 : (int64_t)chance(100));
            struct clock_anchor *a = &session.anchors[session.anchor_count++ % ANCHORS];
            a->ticks = ticks, a->monotonic_ns = monotonic, a->realtime_ns = real;
            anchors[i].ticks = ticks, anchors[i].monotonic_ns = monotonic, anchors[i].realtime_ns = real;
        }
        struct prt_clock clock;
        int kept = session.anchor_count < ANCHORS ? (int)session.anchor_count : ANCHORS;
        if (prt_clock_begin(&clock, anchors + SECONDS + 1 - kept, (size_t)kept, 1e9) != 0) {
            return 1;
        }
        int64_t first = anchor(&session, (size_t)kept - 1)->realtime_ns, span = anchor(&session, 0)->realtime_ns - first;
        for (int i = 0; i < TIMES; i++) {
            int64_t ns = first + (int64_t)chance((uint64_t)span), length = (int64_t)chance(i % 2 ? 5000 : 50000000), back, took;
            struct segment segment = segment_of(&session, ns);
            if (ns + length >= segment.to) {
                continue; /* its end is between other anchors */
            }
            int64_t ticks = ticks_of(&segment, ns), long_ = length ? ticks_in(length, segment.ticks_long, segment.monotonic_long) : 0;
            prt_clock_times(&clock, &ticks, 1, &back);
            prt_clock_durations(&clock, &ticks, &long_, 1, &took);
            bad_starts += back != ns;
            bad_durations += took != length;
            int64_t apart = back > ns ? back - ns : ns - back;
            farthest = apart > farthest ? apart : farthest;
        }
        prt_clock_free(&clock);
        printf("%lld_starts %lld\n%lld_durations %lld\n%lld_farthest %lld\n", (long long)khz, (long long)bad_starts, (long long)khz,
               (long long)bad_durations, (long long)khz, (long long)farthest);
    }
    return 0;
}
