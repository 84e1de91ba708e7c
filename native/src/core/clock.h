/* clock.h - the current time in ticks, inlined into the hot path. */
#ifndef POSTRUN_CLOCK_H
#define POSTRUN_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#pragma GCC visibility push(hidden)

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

void postrun_clock_init(void);          /* before the first tick is read; cheap when done before */
extern bool postrun_clock_has_counter;  /* the processor's counter can be trusted; set by postrun_clock_init */
int64_t postrun_clock_monotonic(void);  /* CLOCK_MONOTONIC, ns */
int64_t postrun_clock_realtime(void);   /* CLOCK_REALTIME, ns */

/* The counter itself, if CLOCK_INLINE says that it is the clock. */
#if defined(__x86_64__)
#define CLOCK_INLINE postrun_clock_has_counter
static inline int64_t clock_counter(void) { return (int64_t)__rdtsc(); }
#elif defined(__aarch64__)
#define CLOCK_INLINE postrun_clock_has_counter
static inline int64_t clock_counter(void) {
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return (int64_t)ticks;
}
#else
#define CLOCK_INLINE 0
static inline int64_t clock_counter(void) { return 0; }
#endif

static inline int64_t clock_ticks(void) { return LIKELY(CLOCK_INLINE) ? clock_counter() : postrun_clock_monotonic(); }

#pragma GCC visibility pop
#endif
