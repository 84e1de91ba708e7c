/* gpu_fields.c - values of a GPU that are costly to read or seldom change: memory clock and temperature, time at reduced clocks, bytes
 * over PCIe and NVLink, energy, memory errors.
 *
 * There are two groups, each read by one nvmlDeviceGetFieldValues, at a rate that also depends on how long the driver takes: TRAFFIC every
 * 5 s, HEALTH every 60 s. nvmlDeviceGetPcieThroughput is not used: each call waits for 20 ms.
 *
 * Bytes over PCIe below 4 GiB may come from a counter of 32 bits, which can wrap unnoticed within 5 s. Their rate is therefore that of a
 * short window: two readings, between which the thread waits after it has answered the sampler. */
#define _GNU_SOURCE
#include <limits.h>

#include "core/clock.h"
#include "sampler_gpu.h"

#define CLOCK_MAX 100000u /* MHz */
#define COST_FACTOR 500   /* at most 1/500 of the time is spent in one group of one GPU */
#define SHORTEST_S 0.05   /* between two readings of a counter, for a rate */
#define WRAP (1ull << 32) /* a counter beyond has more than 32 bits */
#define WINDOW_LEAST_NS 10000000 /* between the two readings of a window */
#define WINDOW_MOST_NS 33000000  /* in which 128 GB/s are 4 GiB */

static const double period_s[GPU_GROUPS] = {[GPU_TRAFFIC] = 5, [GPU_HEALTH] = 60};

enum kind {
    GAUGE,
    RATE,  /* of a counter, per second */
    SINCE, /* of a counter, from its first reading */
    LEVEL, /* written when it changes */
};

static const struct field {
    enum gpu_group group;
    enum gpu_question question;
    enum kind kind;
    unsigned id, scope, newer; /* newer: the id in drivers that lack the first one; in bytes if that is in KiB */
    enum sampler_metric metric;
    double factor, most; /* of the value */
} fields[] = {
    {GPU_TRAFFIC, ASK_MEMORY_TEMPERATURE, GAUGE, NVML_MEMORY_TEMPERATURE, 0, 0, M_GPU_MEMORY_TEMPERATURE, 1, 200},
    {GPU_TRAFFIC, ASK_THROTTLE_TIME, RATE, NVML_HELD_BY_POWER, 0, 0, M_GPU_THROTTLE_POWER, 1e-7, 101}, /* ns per s -> % */
    {GPU_TRAFFIC, ASK_THROTTLE_TIME, RATE, NVML_HELD_BY_HEAT, 0, 0, M_GPU_THROTTLE_THERMAL, 1e-7, 101},
    {GPU_TRAFFIC, ASK_THROTTLE_TIME, RATE, NVML_HELD_BY_SYNC_BOOST, 0, 0, M_GPU_THROTTLE_SYNC_BOOST, 1e-7, 101},
    {GPU_TRAFFIC, ASK_THROTTLE_TIME, RATE, NVML_HELD_BY_BOARD_LIMIT, 0, 0, M_GPU_THROTTLE_BOARD_LIMIT, 1e-7, 101},
    {GPU_TRAFFIC, ASK_THROTTLE_TIME, RATE, NVML_HELD_BY_RELIABILITY, 0, 0, M_GPU_THROTTLE_RELIABILITY, 1e-7, 101},
    {GPU_TRAFFIC, ASK_PCIE, RATE, NVML_PCIE_BYTES_SENT, 0, 0, M_GPU_PCIE_TRANSMIT, 1, 1e12},
    {GPU_TRAFFIC, ASK_PCIE, RATE, NVML_PCIE_BYTES_RECEIVED, 0, 0, M_GPU_PCIE_RECEIVE, 1, 1e12},
    {GPU_TRAFFIC, ASK_NVLINK, RATE, NVML_NVLINK_KIB_SENT, NVML_ALL_LINKS, NVML_NVLINK_BYTES_SENT, M_GPU_NVLINK_TRANSMIT, 1024, 1e13},
    {GPU_TRAFFIC, ASK_NVLINK, RATE, NVML_NVLINK_KIB_RECEIVED, NVML_ALL_LINKS, NVML_NVLINK_BYTES_RECEIVED, M_GPU_NVLINK_RECEIVE, 1024, 1e13},
    {GPU_HEALTH, ASK_ENERGY, SINCE, NVML_ENERGY, 0, 0, M_GPU_ENERGY, 1e-3, 1e12},
    {GPU_HEALTH, ASK_ECC, LEVEL, NVML_ECC_CORRECTED_VOLATILE, 0, 0, M_GPU_ECC_CORRECTED, 1, 1e15},
    {GPU_HEALTH, ASK_ECC, LEVEL, NVML_ECC_UNCORRECTED_VOLATILE, 0, 0, M_GPU_ECC_UNCORRECTED, 1, 1e15},
    {GPU_HEALTH, ASK_ECC, LEVEL, NVML_ECC_CORRECTED_AGGREGATE, 0, 0, M_GPU_ECC_CORRECTED_LIFETIME, 1, 1e15},
    {GPU_HEALTH, ASK_ECC, LEVEL, NVML_ECC_UNCORRECTED_AGGREGATE, 0, 0, M_GPU_ECC_UNCORRECTED_LIFETIME, 1, 1e15},
    {GPU_HEALTH, ASK_REMAPPED_ROWS, LEVEL, NVML_ROWS_CORRECTED, 0, 0, M_GPU_ROWS_CORRECTED, 1, 1e9},
    {GPU_HEALTH, ASK_REMAPPED_ROWS, LEVEL, NVML_ROWS_UNCORRECTED, 0, 0, M_GPU_ROWS_UNCORRECTED, 1, 1e9},
    {GPU_HEALTH, ASK_REMAPPED_ROWS, LEVEL, NVML_ROWS_PENDING, 0, 0, M_GPU_ROWS_PENDING, 1, 1},
    {GPU_HEALTH, ASK_REMAPPED_ROWS, LEVEL, NVML_ROWS_FAILED, 0, 0, M_GPU_ROWS_FAILED, 1, 1},
};
enum { FIELDS = sizeof fields / sizeof *fields };
_Static_assert(FIELDS <= GPU_FIELDS, "room for the counters");

static unsigned long long whole(const struct nvml_field *answer) {
    switch (answer->valueType) {
    case NVML_DOUBLE: return answer->value.dVal >= 0 && answer->value.dVal < 0x1p64 ? (unsigned long long)answer->value.dVal : ULLONG_MAX;
    case NVML_UNSIGNED: return answer->value.uiVal;
    case NVML_UNSIGNED_LONG: return answer->value.ulVal;
    case NVML_SIGNED_LONG_LONG: return answer->value.sllVal >= 0 ? (unsigned long long)answer->value.sllVal : ULLONG_MAX;
    case NVML_SIGNED: return answer->value.siVal >= 0 ? (unsigned long long)answer->value.siVal : ULLONG_MAX;
    case NVML_UNSIGNED_SHORT: return answer->value.usVal;
    default: return answer->value.ullVal;
    }
}

static void take_value(struct gpus *gpus, struct gpu *gpu, int number, const struct field *field, unsigned long long value, int64_t at) {
    struct gpu_counter *counter = &gpu->counter[field - fields];
    struct gpu_counter before = *counter;
    int first = !before.known;
    double elapsed = (double)(at - before.at) / postrun_clock_rate();
    if (field->kind == RATE && !first && elapsed < SHORTEST_S) {
        return;
    }
    double factor = field->newer && gpu->nvlink_bytes ? 1 : field->factor, result = (double)value * factor;
    *counter = (struct gpu_counter){1, first ? value : before.first, value, at};
    if (field->kind == LEVEL && !first && value == before.last) {
        return;
    }
    if (field->kind == SINCE) {
        result = value < counter->first ? -1 : (double)(value - counter->first) * factor;
    }
    if (field->kind == RATE) {
        int narrow = field->question == ASK_PCIE && value < WRAP;
        gpu->window = narrow && gpu->window == WINDOW_NONE ? WINDOW_WANTED : gpu->window;
        if (first || value < before.last || narrow || (field->question == ASK_PCIE && before.last < WRAP)) {
            return;
        }
        result = (double)(value - before.last) * factor / elapsed;
    }
    int sound = result >= 0 && result <= field->most && (field->question != ASK_MEMORY_TEMPERATURE || value > 0);
    if (postrun_gpu_sound(gpus, gpu, field->question, sound, result >= 0 && result < 0x1p63 ? (unsigned long long)result : value)) {
        postrun_gpu_put(gpus, field->metric, number, field->factor < 1e-6 && result > 100 ? 100 : result);
    }
}

static void read_group(struct gpus *gpus, struct gpu *gpu, int number, enum gpu_group group) {
    struct nvml_field answers[FIELDS];
    const struct field *of[FIELDS];
    int count = 0;
    memset(answers, 0, sizeof answers);
    for (const struct field *field = fields; field < fields + FIELDS; field++) {
        if (field->group == group && gpu->asked[field->question].answer != ANSWER_NEVER) {
            answers[count].fieldId = field->newer && gpu->nvlink_bytes ? field->newer : field->id;
            answers[count].scopeId = field->scope;
            answers[count].nvmlReturn = (nvml_result)NVML_UNKNOWN; /* of one that the driver passes over */
            of[count++] = field;
        }
    }
    if (count == 0) {
        return;
    }
    int64_t at = postrun_gpus_now(gpus);
    int whole_code = gpus->nvml->fields ? (int)gpus->nvml->fields(gpu->handle, count, answers) : NVML_FUNCTION_NOT_FOUND;
    for (int i = 0, next; i < count && gpu->there && gpu->asleep == 0; i = next) {
        enum gpu_question question = of[i]->question;
        int code = whole_code;
        for (next = i; next < count && of[next]->question == question; next++) {
            code = code == NVML_OK ? (int)answers[next].nvmlReturn : code;
        }
        if (question == ASK_NVLINK && !gpu->nvlink_bytes && (code == NVML_NOT_SUPPORTED || code == NVML_INVALID_ARGUMENT)) {
            gpu->nvlink_bytes = 1; /* from the next time */
            continue;
        }
        if (!postrun_gpu_judge(gpus, gpu, question, code)) {
            continue;
        }
        for (int k = i; k < next; k++) {
            take_value(gpus, gpu, number, of[k], whole(&answers[k]), at);
        }
    }
}

static void read_memory_clock(struct gpus *gpus, struct gpu *gpu, int number) {
    unsigned clock = 0;
    int code = gpus->nvml->clock ? (int)gpus->nvml->clock(gpu->handle, (nvml_clock)NVML_MEMORY_CLOCK, &clock) : NVML_FUNCTION_NOT_FOUND;
    if (postrun_gpu_judge(gpus, gpu, ASK_MEMORY_CLOCK, code) && postrun_gpu_sound(gpus, gpu, ASK_MEMORY_CLOCK, clock <= CLOCK_MAX, clock)) {
        postrun_gpu_put(gpus, M_GPU_MEMORY_CLOCK, number, clock);
    }
}

/* ---------------------------------------------------------------- windows */

/* Both counters of bytes over PCIe, and about when. */
static int read_pcie(const struct gpus *gpus, const struct gpu *gpu, uint32_t value[2], int64_t *at_ns) {
    struct nvml_field answers[2];
    memset(answers, 0, sizeof answers);
    answers[0].fieldId = NVML_PCIE_BYTES_SENT;
    answers[1].fieldId = NVML_PCIE_BYTES_RECEIVED;
    answers[0].nvmlReturn = answers[1].nvmlReturn = (nvml_result)NVML_UNKNOWN;
    int64_t begun = postrun_clock_monotonic();
    int code = (int)gpus->nvml->fields(gpu->handle, 2, answers);
    *at_ns = begun + (postrun_clock_monotonic() - begun) / 2;
    for (int i = 0; i < 2; i++) {
        code = code == NVML_OK ? (int)answers[i].nvmlReturn : code;
        value[i] = (uint32_t)whole(&answers[i]);
    }
    return code == NVML_OK;
}

int postrun_gpu_windows_begin(struct gpus *gpus) {
    int begun = 0;
    for (int i = 0; i < gpus->count; i++) {
        struct gpu *gpu = &gpus->gpu[i];
        if (gpu->window == WINDOW_WANTED) {
            gpu->window = gpu->there && read_pcie(gpus, gpu, gpu->window_bytes, &gpu->window_ns) ? WINDOW_BEGUN : WINDOW_NONE;
            begun += gpu->window == WINDOW_BEGUN;
        }
    }
    return begun;
}

void postrun_gpu_windows_end(struct gpus *gpus) {
    for (int i = 0; i < gpus->count; i++) {
        struct gpu *gpu = &gpus->gpu[i];
        uint32_t value[2];
        int64_t at_ns;
        if (gpu->window != WINDOW_BEGUN) {
            continue;
        }
        gpu->window = WINDOW_NONE;
        if (!read_pcie(gpus, gpu, value, &at_ns)) {
            continue;
        }
        int64_t elapsed = at_ns - gpu->window_ns;
        if (elapsed >= WINDOW_LEAST_NS && elapsed <= WINDOW_MOST_NS) {
            for (int k = 0; k < 2; k++) {
                gpu->window_rate[k] = (double)(uint32_t)(value[k] - gpu->window_bytes[k]) * 1e9 / (double)elapsed;
            }
            gpu->window_ticks = postrun_gpus_now(gpus);
            gpu->window = WINDOW_DONE;
        }
    }
}

void postrun_gpu_windows_put(struct gpus *gpus) {
    for (int i = 0; i < gpus->count; i++) {
        struct gpu *gpu = &gpus->gpu[i];
        if (gpu->window == WINDOW_DONE) {
            gpus->stamp = gpu->window_ticks;
            postrun_gpu_put(gpus, M_GPU_PCIE_TRANSMIT, i, gpu->window_rate[0]);
            postrun_gpu_put(gpus, M_GPU_PCIE_RECEIVE, i, gpu->window_rate[1]);
            gpu->window = WINDOW_NONE;
        }
    }
}

/* ---------------------------------------------------------------- groups */

void postrun_gpu_health_read(struct gpus *gpus, struct gpu *gpu, int number) { read_group(gpus, gpu, number, GPU_HEALTH); }

void postrun_gpu_fields_read(struct gpus *gpus, struct gpu *gpu, int number) {
    double rate = postrun_clock_rate();
    int64_t near = (int64_t)(gpus->interval_ms * rate / 2e3); /* half an interval: rather now than at the sample after */
    for (int group = 0; group < GPU_GROUPS; group++) {
        int64_t now = gpus->base_ticks;
        if (!gpu->there || gpu->asleep || (gpu->due[group] != 0 && now + near < gpu->due[group])) {
            continue;
        }
        int64_t begun = postrun_clock_monotonic();
        if (group == GPU_TRAFFIC && gpu->asked[ASK_MEMORY_CLOCK].answer != ANSWER_NEVER) {
            read_memory_clock(gpus, gpu, number);
        }
        read_group(gpus, gpu, number, (enum gpu_group)group);
        double cost_s = (double)(postrun_clock_monotonic() - begun) / 1e9;
        double next_s = period_s[group] > cost_s * COST_FACTOR ? period_s[group] : cost_s * COST_FACTOR;
        if (gpu->due[group] == 0 && !gpu->begun[group]) { /* the GPUs take turns: not all in one sample */
            next_s *= (double)(number + 1) / gpus->count;
        }
        gpu->begun[group] = 1;
        gpu->due[group] = now + (int64_t)(next_s * rate);
        if (group == GPU_HEALTH) {
            gpu->health_at = now;
        }
    }
}
