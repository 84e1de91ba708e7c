/* capture.h - functions that the rooms of the recording library call of each other: clock, session, sampler. Not for users. */
#ifndef POSTRUN_CAPTURE_H
#define POSTRUN_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

#include "format/block.h"
#include "postrun.h"

/* clock.c: ticks of the fastest clock that can be trusted. */
enum clock_kind { CLOCK_TSC, CLOCK_CNTVCT, CLOCK_SYSTEM };
enum clock_kind postrun_clock_kind(void);
double postrun_clock_rate(void); /* ticks per second, by present knowledge */
struct clock_anchor {
    int64_t ticks, monotonic_ns, realtime_ns, uncertainty_ns;
};
void postrun_clock_anchor(struct clock_anchor *anchor);

/* session.c: the sampler passes its values while a session runs. Each call appends to the next METRIC block and never blocks on a file.
 * `name` is from postrun_name. Unit -1: the whole machine. */
int postrun_session_metric(uint32_t name, int32_t unit, int64_t ticks, double value);
int postrun_session_capability(const char *key, const char *why); /* META "capability.<key>" */

/* sampler.c: reads the system's counters. Runs on a thread of its own, which session.c starts and stops; 0 or a negative errno value. */
struct sampler;
struct sampler *postrun_sampler_new(uint32_t interval_ms, const char *proc_root,
                                    const char *sys_root); /* roots: NULL for "/proc", "/sys" */
int postrun_sampler_sample(struct sampler *sampler, int64_t ticks); /* one sample; values go to postrun_session_metric */
uint32_t postrun_sampler_interval_ms(const struct sampler *sampler); /* longer than requested if a sample costs more than 1 % of it */
void postrun_sampler_free(struct sampler *sampler);
/* Before the first sample: GPUs are sampled also. `visible` must live as long as the sampler. */
struct gpu_visible;
void postrun_sampler_without_cores(struct sampler *sampler); /* from now on: neither cores nor perf counters */
void postrun_sampler_gpus(struct sampler *sampler, const struct gpu_visible *visible);

#endif
