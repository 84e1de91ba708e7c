/* sampler.c - reads the system's counters once per interval, and lengthens the interval if a sample costs too much.
 *
 * Files stay open and are read with pread into one buffer. The first sample opens them and grows the buffer; later samples allocate
 * nothing unless a device appears. The code that reads a metric defines its meaning (sampler_proc.c, sampler_cgroup.c, sampler_perf.c,
 * sampler_infiniband.c, gpu_devices.c, gpu_fields.c, gpu_xid.c); docs/capture-metrics.md lists all metrics. */
#define _DEFAULT_SOURCE 1
#include "sampler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEAR_SAMPLES 3   /* this many in a row double the interval: a single one may be a page fault or an interrupt */
#define CHEAP_SAMPLES 60 /* this many in a row halve it again */
#define INTERVAL_MAX 60000u

static const char *const metric_names[SAMPLER_METRICS] = {
    "cpu_utilization",
    "cpu_iowait",
    "memory_used_percent",
    "disk_iops",
    "disk_read",
    "disk_write",
    "network_receive",
    "network_transmit",
    "cgroup.cpu_quota_cores",
    "cgroup.throttled_percent",
    "cgroup.memory_used_bytes",
    "cgroup.memory_limit_bytes",
    "psi.cpu_some",
    "psi.memory_some",
    "psi.memory_full",
    "psi.io_some",
    "psi.io_full",
    "perf.ref_cycles",
    "perf.itlb_misses",
    "perf.cycles",
    "perf.instructions",
    "gpu_utilization",
    "gpu_memory_controller",
    "gpu_memory_used_percent",
    "gpu_memory_used_bytes",
    "gpu_memory_total_bytes",
    "gpu_power",
    "gpu_sm_clock",
    "gpu_throttle_reasons",
    "gpu_temperature",
    "gpu_memory_temperature",
    "gpu_memory_clock",
    "gpu_throttle_power",
    "gpu_throttle_thermal",
    "gpu_throttle_sync_boost",
    "gpu_throttle_board_limit",
    "gpu_throttle_reliability",
    "gpu_pcie_transmit",
    "gpu_pcie_receive",
    "gpu_nvlink_transmit",
    "gpu_nvlink_receive",
    "gpu_energy",
    "gpu_ecc_corrected",
    "gpu_ecc_uncorrected",
    "gpu_ecc_corrected_lifetime",
    "gpu_ecc_uncorrected_lifetime",
    "gpu_remapped_rows_corrected",
    "gpu_remapped_rows_uncorrected",
    "gpu_row_remapping_pending",
    "gpu_row_remapping_failed",
    "gpu_xid",
    "infiniband_transmit",
    "infiniband_receive",
    "infiniband_link_active",
    "infiniband_link_rate",
    "infiniband_symbol_errors",
    "infiniband_link_downed",
    "infiniband_link_recoveries",
    "infiniband_receive_errors",
    "infiniband_transmit_discards",
    "infiniband_transmit_wait",
    "roce_out_of_sequence",
    "roce_sequence_errors",
    "roce_ack_timeouts",
    "roce_congestion_notifications",
    "sampler.cost_us",
    "sampler.interval_ms",
};

static int64_t processor_ns(void) { /* of this thread: waiting for a core costs nothing */
    struct timespec now;
    if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0) {
        return 0;
    }
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct sampler *postrun_sampler_new(uint32_t interval_ms, const char *proc_root, const char *sys_root) {
    struct sampler *sampler = calloc(1, sizeof *sampler);
    if (sampler == NULL) {
        return NULL;
    }
    sampler->made_up = proc_root != NULL || sys_root != NULL;
    int proc = snprintf(sampler->proc, sizeof sampler->proc, "%s", proc_root != NULL ? proc_root : "/proc");
    int sys = snprintf(sampler->sys, sizeof sampler->sys, "%s", sys_root != NULL ? sys_root : "/sys");
    if (proc < 0 || (size_t)proc >= sizeof sampler->proc || sys < 0 || (size_t)sys >= sizeof sampler->sys) {
        free(sampler);
        return NULL;
    }
    sampler->asked_ms = sampler->interval_ms = interval_ms > 0 ? interval_ms : 1;
    sampler->stat = sampler->meminfo = sampler->diskstats = sampler->net = -1;
    for (int i = 0; i < PSI_FILES; i++) {
        sampler->psi[i].fd = -1;
    }
    for (int i = 0; i < SAMPLER_METRICS; i++) {
        sampler->names[i] = postrun_name(metric_names[i], strlen(metric_names[i]));
    }
    return sampler;
}

void postrun_sampler_free(struct sampler *sampler) {
    if (sampler == NULL) {
        return;
    }
    postrun_sampler_gpu_close(sampler);
    postrun_sampler_perf_close(sampler);
    postrun_sampler_infiniband_close(sampler);
    postrun_sampler_cgroup_close(sampler);
    postrun_sampler_proc_close(sampler);
    free(sampler->buffer);
    free(sampler);
}

void postrun_sampler_without_cores(struct sampler *sampler) { sampler->cores_off = 1; }

void postrun_sampler_gpus(struct sampler *sampler, const struct gpu_visible *visible) { sampler->gpu_wanted = visible; }

uint32_t postrun_sampler_interval_ms(const struct sampler *sampler) { return sampler->interval_ms; }

/* One percent of an interval is 10 us per ms. */
static void adapt(struct sampler *sampler, int64_t cost_ns) {
    int64_t limit_ns = (int64_t)sampler->interval_ms * 10000;
    sampler->dear = cost_ns > limit_ns ? sampler->dear + 1 : 0;
    sampler->cheap = cost_ns < limit_ns / 4 ? sampler->cheap + 1 : 0;
    uint32_t interval_ms = sampler->interval_ms;
    if (sampler->dear >= DEAR_SAMPLES && interval_ms < INTERVAL_MAX) {
        interval_ms = interval_ms > INTERVAL_MAX / 2 ? INTERVAL_MAX : interval_ms * 2;
    } else if (sampler->cheap >= CHEAP_SAMPLES && interval_ms > sampler->asked_ms) {
        interval_ms = interval_ms / 2 > sampler->asked_ms ? interval_ms / 2 : sampler->asked_ms;
    }
    if (interval_ms == sampler->interval_ms) {
        return;
    }
    if (!sampler->backed_off) {
        char why[160];
        snprintf(why, sizeof why, "a sample took %lld us, more than 1%% of %u ms: longer intervals, see sampler.interval_ms",
                 (long long)(cost_ns / 1000), sampler->interval_ms);
        postrun_session_capability("sampler.interval", why);
        sampler->backed_off = 1;
    }
    sampler->interval_ms = interval_ms;
    sampler->dear = sampler->cheap = 0;
    postrun_sampler_emit(sampler, M_INTERVAL, -1, interval_ms);
}

int postrun_sampler_sample(struct sampler *sampler, int64_t ticks) {
    int64_t begun = processor_ns();
    int first = sampler->number++ == 0;
    double rate = postrun_clock_rate();
    sampler->ticks = ticks;
    sampler->elapsed_s = first || ticks <= sampler->last_ticks || !(rate > 0) ? 0 : (double)(ticks - sampler->last_ticks) / rate;
    sampler->error = 0;
    sampler->anything = 0;
    if (first) {
        postrun_sampler_proc_open(sampler);
        postrun_sampler_cgroup_open(sampler);
        postrun_sampler_infiniband_open(sampler);
        postrun_sampler_gpu_open(sampler);
    }
    postrun_sampler_proc_sample(sampler);
    postrun_sampler_cgroup_sample(sampler);
    postrun_sampler_infiniband_sample(sampler);
    if (first) {
        postrun_sampler_perf_open(sampler);
    }
    if (!sampler->cores_off) {
        postrun_sampler_perf_sample(sampler);
    }
    int64_t of_gpus = postrun_sampler_gpu_sample(sampler);
    sampler->last_ticks = ticks;

    int64_t cost = processor_ns() - begun + of_gpus;
    postrun_sampler_emit(sampler, M_COST, -1, (double)cost / 1e3);
    if (first) { /* it opens everything, so its cost does not predict the others' */
        postrun_sampler_emit(sampler, M_INTERVAL, -1, sampler->interval_ms);
    } else {
        adapt(sampler, cost);
    }
    return sampler->error != 0 ? sampler->error : sampler->anything ? 0 : -ENODATA;
}
