/* gpu_devices.c - the GPUs that the driver reports, and the values that are read from each of them.
 *
 * Each query is sent to each GPU until it is clear that this GPU does not answer it. Every problem is recorded as `capability.gpu.<what>`.
 * A lost GPU does not affect the others. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/clock.h"
#include "sampler_gpu.h"

#define FAILURES_MAX 10     /* in a row: the question is put no more */
#define ASLEEP_MS 30000u    /* how long a GPU that did not answer in time is skipped */
#define POWER_MAX 10000000u /* mW */
#define CLOCK_MAX 100000u   /* MHz */
#define REASONS_MAX (1ull << 53) /* exact as a double */
#define TEMPERATURE_MAX 200u /* degrees Celsius */
#define LAST_AFTER_S 10 /* health that was read longer ago is read once more at the end */

static const char *const questions[GPU_QUESTIONS] = {
    [ASK_UTILIZATION] = "gpu.utilization",
    [ASK_MEMORY] = "gpu.memory",
    [ASK_POWER] = "gpu.power",
    [ASK_SM_CLOCK] = "gpu.sm_clock",
    [ASK_THROTTLE_REASONS] = "gpu.throttle_reasons",
    [ASK_TEMPERATURE] = "gpu.temperature",
    [ASK_MEMORY_CLOCK] = "gpu.memory_clock",
    [ASK_MEMORY_TEMPERATURE] = "gpu.memory_temperature",
    [ASK_THROTTLE_TIME] = "gpu.throttle_time",
    [ASK_PCIE] = "gpu.pcie",
    [ASK_NVLINK] = "gpu.nvlink",
    [ASK_ENERGY] = "gpu.energy",
    [ASK_ECC] = "gpu.ecc",
    [ASK_REMAPPED_ROWS] = "gpu.remapped_rows",
    [ASK_XID] = "gpu.xid",
};
static const char *const units[GPU_QUESTIONS] = {
    [ASK_UTILIZATION] = "%",
    [ASK_MEMORY] = " B",
    [ASK_POWER] = " mW",
    [ASK_SM_CLOCK] = " MHz",
    [ASK_THROTTLE_REASONS] = "",
    [ASK_TEMPERATURE] = " C",
    [ASK_MEMORY_CLOCK] = " MHz",
    [ASK_MEMORY_TEMPERATURE] = " C",
    [ASK_THROTTLE_TIME] = "%",
    [ASK_PCIE] = " B/s",
    [ASK_NVLINK] = " B/s",
    [ASK_ENERGY] = " J",
    [ASK_ECC] = "",
    [ASK_REMAPPED_ROWS] = "",
    [ASK_XID] = "",
};

/* ---------------------------------------------------------------- text */

struct text {
    char *at;
    size_t size, length;
};

__attribute__((format(printf, 2, 3))) static void add(struct text *text, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int added = vsnprintf(text->at + text->length, text->size - text->length, format, list);
    va_end(list);
    if (added > 0) {
        text->length += (size_t)added < text->size - text->length ? (size_t)added : text->size - text->length - 1;
    }
}

static void add_error(struct text *text, int code) {
    const char *word = postrun_nvml_error(code);
    if (word) {
        add(text, "%s", word);
    } else {
        add(text, "error %d of the driver", code);
    }
}

/* "GPU 0 to 2, 5: why; GPU 3: why", of the GPUs for which `why_of` returns a text: each reason once. */
static void tell(struct gpus *gpus, const char *what, void (*why_of)(const struct gpus *, int gpu, int question, struct text *),
                 int question) {
    enum { REASON = 320 };
    char same[GPUS_MAX] = {0}; /* reported already, with an earlier GPU */
    char (*reasons)[REASON] = calloc((size_t)gpus->count, REASON);
    size_t size = (size_t)gpus->count * (REASON + 16) + 64;
    struct text text = {malloc(size), size, 0};
    if (reasons && text.at) {
        text.at[0] = 0;
        for (int i = 0; i < gpus->count; i++) {
            struct text reason = {reasons[i], REASON, 0};
            why_of(gpus, i, question, &reason);
        }
        for (int i = 0; i < gpus->count; i++) {
            if (!reasons[i][0] || same[i]) {
                continue;
            }
            add(&text, "%sGPU ", text.length ? "; " : "");
            const char *between = "";
            for (int j = i, last; j < gpus->count; j = last + 1) {
                last = j;
                if (strcmp(reasons[j], reasons[i]) != 0) {
                    continue;
                }
                while (last + 1 < gpus->count && strcmp(reasons[last + 1], reasons[i]) == 0) {
                    last++;
                }
                add(&text, last > j ? "%s%d to %d" : "%s%d", between, j, last);
                between = ", ";
                for (int listed = j > i ? j : i + 1; listed <= last; listed++) {
                    same[listed] = 1;
                }
            }
            add(&text, ": %s", reasons[i]);
        }
        if (text.length) {
            postrun_gpus_capability(gpus, what, text.at);
        }
    }
    free(reasons);
    free(text.at);
}

static void why_not_there(const struct gpus *gpus, int number, int question, struct text *text) {
    const struct gpu *gpu = &gpus->gpu[number];
    (void)question;
    if (gpu->lost) {
        add_error(text, gpu->lost);
        if (gpu->met) {
            add(text, "%s%s%s; not sampled any more", *gpu->uuid ? " (" : "", gpu->uuid, *gpu->uuid ? ")" : "");
        }
    } else if (gpu->slow) {
        add(text, "no answer in time; asked again every %u s", ASLEEP_MS / 1000);
    }
}

static void why_no_answer(const struct gpus *gpus, int number, int question, struct text *text) {
    const struct gpu *gpu = &gpus->gpu[number];
    const struct gpu_asked *asked = &gpu->asked[question];
    if (!gpu->there || asked->answer == ANSWER_FINE) {
        return;
    }
    if (asked->answer == ANSWER_SOMETIMES) {
        add(text, "left out of some samples: ");
    }
    if (asked->code == NVML_OK) {
        add(text, "%llu%s, which cannot be", asked->absurd, units[question]);
    } else if (gpu->mig && question == ASK_UTILIZATION && asked->code == NVML_NOT_SUPPORTED) {
        add(text, "the GPU is divided (MIG), for which the driver has none");
    } else {
        add_error(text, asked->code);
    }
}

static void why_no_uuid(const struct gpus *gpus, int number, int question, struct text *text) {
    (void)question;
    if (gpus->gpu[number].there && !*gpus->gpu[number].uuid) {
        add(text, "no UUID");
    }
}

/* ---------------------------------------------------------------- opening */

static void fact(struct gpus *gpus, int number, const char *what, const char *value) {
    char key[64];
    snprintf(key, sizeof key, "gpu.%d.%s", number, what);
    if (*value) {
        postrun_gpus_fact(gpus, key, value);
    }
}

static void clean(char *text) { /* of NVML_TEXT + 1 bytes: terminated, with printable characters only */
    text[NVML_TEXT] = 0;
    for (char *c = text; *c; c++) {
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    }
}

static void ask_text(nvml_result (*ask)(nvml_device, char *, unsigned), nvml_device device, char *text) { /* of NVML_TEXT + 1 bytes */
    memset(text, 0, NVML_TEXT + 1);
    if (!ask || ask(device, text, NVML_TEXT) != NVML_OK) {
        text[0] = 0;
    }
    clean(text);
}

static void open_parts(const struct nvml *nvml, struct gpu *gpu) {
    unsigned now = 0, later = 0, most = 0;
    gpu->mig = nvml->mig_mode && nvml->mig_mode(gpu->handle, &now, &later) == NVML_OK && now == 1;
    if (!gpu->mig || !nvml->mig_count || !nvml->mig_handle || nvml->mig_count(gpu->handle, &most) != NVML_OK || most > 64 ||
        !(gpu->parts = calloc(most + 1, NVML_TEXT + 1))) {
        return;
    }
    struct text text = {gpu->parts, (most + 1) * (NVML_TEXT + 1), 0};
    for (unsigned i = 0; i < most; i++) {
        nvml_device part;
        char uuid[NVML_TEXT + 1];
        if (nvml->mig_handle(gpu->handle, i, &part) == NVML_OK) {
            ask_text(nvml->uuid, part, uuid);
            add(&text, "%s%s", text.length && *uuid ? "," : "", uuid);
        }
    }
}

static void open_gpu(const struct nvml *nvml, unsigned number, struct gpu *gpu) {
    int code = nvml->handle(number, &gpu->handle);
    gpu->there = gpu->met = code == NVML_OK;
    gpu->lost = code;
    if (gpu->there) {
        ask_text(nvml->uuid, gpu->handle, gpu->uuid);
        ask_text(nvml->name, gpu->handle, gpu->name);
        open_parts(nvml, gpu);
        gpu->old_memory = !nvml->memory_v2;
    }
}

static void tell_visible(struct gpus *gpus) {
    struct gpu_known known[GPUS_MAX];
    int seen[GPUS_MAX], number[GPUS_MAX];
    for (int i = 0; i < gpus->count; i++) {
        const struct gpu *gpu = &gpus->gpu[i];
        known[i] = (struct gpu_known){gpu->uuid, gpu->name, gpu->mig, gpu->parts};
    }
    const char *why = postrun_gpu_visible(&gpus->visible, known, gpus->count, seen, number);
    for (int i = 0; i < gpus->count; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", number[i]);
        fact(gpus, i, "visible", seen[i] == VISIBLE_YES ? "1" : seen[i] == VISIBLE_NO ? "0" : "");
        fact(gpus, i, "visible_index", number[i] >= 0 ? text : "");
    }
    if (why) {
        postrun_gpus_capability(gpus, "gpu.visible", why);
    }
}

static int refuse(struct gpus *gpus, const char *asked, int code) {
    char why[256];
    struct text text = {why, sizeof why, 0};
    add(&text, "%s: ", asked);
    add_error(&text, code);
    postrun_gpus_capability(gpus, "gpu.samples", why);
    return 0;
}

int postrun_gpus_open(struct gpus *gpus) {
    const char *why;
    const struct nvml *nvml = postrun_nvml(&why);
    if (!nvml) {
        postrun_gpus_capability(gpus, "gpu.samples", why);
        return 0;
    }
    int code = nvml->init();
    if (code != NVML_OK) {
        return refuse(gpus, "nvmlInit", code);
    }
    gpus->nvml = nvml;
    unsigned count = 0;
    if ((code = nvml->count(&count)) != NVML_OK) {
        return refuse(gpus, "nvmlDeviceGetCount", code);
    }
    char text[NVML_TEXT + 1] = "", driver[NVML_TEXT + 1] = "";
    snprintf(text, sizeof text, "%u", count);
    postrun_gpus_fact(gpus, "gpu.count", text);
    if (nvml->driver_version && nvml->driver_version(driver, NVML_TEXT) != NVML_OK) {
        driver[0] = 0;
    }
    clean(driver);
    if (count > GPUS_MAX) {
        snprintf(text, sizeof text, "%u GPUs; those from %d on are not sampled", count, GPUS_MAX);
        postrun_gpus_capability(gpus, "gpu.samples", text);
        count = GPUS_MAX;
    }
    if (count == 0) {
        postrun_gpus_capability(gpus, "gpu.samples", "the driver knows no GPU");
        return 0;
    }
    gpus->gpu = calloc(count, sizeof *gpus->gpu);
    if (!gpus->gpu) {
        return refuse(gpus, "calloc", NVML_NO_MEMORY);
    }
    gpus->count = (int)count;
    for (int i = 0; i < gpus->count; i++) {
        struct gpu *gpu = &gpus->gpu[i];
        open_gpu(nvml, (unsigned)i, gpu);
        fact(gpus, i, "uuid", gpu->uuid);
        fact(gpus, i, "name", gpu->name);
        fact(gpus, i, "driver_version", driver);
        fact(gpus, i, "mig", gpu->mig ? "1" : "");
        fact(gpus, i, "mig_devices", gpu->parts ? gpu->parts : "");
    }
    postrun_gpu_xids_open(gpus);
    tell_visible(gpus);
    tell(gpus, "gpu.devices", why_not_there, 0);
    tell(gpus, "gpu.uuid", why_no_uuid, 0);
    return 1;
}

void postrun_gpus_close(struct gpus *gpus) {
    for (int i = 0; i < gpus->count; i++) {
        free(gpus->gpu[i].parts);
    }
    free(gpus->gpu);
    gpus->gpu = NULL;
    gpus->count = 0;
    postrun_gpu_xids_close(gpus);
    if (gpus->nvml) {
        gpus->nvml->shutdown();
    }
    gpus->nvml = NULL;
}

/* ---------------------------------------------------------------- reading */

int64_t postrun_gpus_now(const struct gpus *gpus) {
    return gpus->base_ticks + (int64_t)((double)(postrun_clock_monotonic() - gpus->base_ns) / 1e9 * postrun_clock_rate());
}

void postrun_gpu_put(struct gpus *gpus, enum sampler_metric metric, int unit, double value) {
    if (gpus->fresh_count < GPU_READINGS) {
        gpus->fresh[gpus->fresh_count++] = (struct gpu_reading){metric, unit, gpus->stamp, value};
    }
}

static int for_good(int code) { /* asking again would not help */
    switch (code) {
    case NVML_UNINITIALIZED:
    case NVML_INVALID_ARGUMENT:
    case NVML_NOT_SUPPORTED:
    case NVML_NO_PERMISSION:
    case NVML_FUNCTION_NOT_FOUND:
    case NVML_ARGUMENT_VERSION:
    case NVML_IS_DEPRECATED: return 1;
    default: return 0;
    }
}

int postrun_gpu_judge(struct gpus *gpus, struct gpu *gpu, enum gpu_question question, int code) {
    struct gpu_asked *asked = &gpu->asked[question];
    if (code == NVML_OK) {
        asked->failures = 0;
        return 1;
    }
    if (code == NVML_GPU_IS_LOST || code == NVML_RESET_REQUIRED) {
        gpu->there = 0;
        gpu->lost = code;
        gpus->changed |= 1u << GPU_QUESTIONS;
        return 0;
    }
    if (code == NVML_TIMED_OUT) {
        gpu->asleep = (int)((ASLEEP_MS + gpus->interval_ms - 1) / gpus->interval_ms);
        gpus->changed |= gpu->slow ? 0 : 1u << GPU_QUESTIONS;
        gpu->slow = 1;
        return 0;
    }
    enum gpu_answer before = asked->answer;
    asked->failures++;
    asked->answer = for_good(code) || asked->failures >= FAILURES_MAX ? ANSWER_NEVER : ANSWER_SOMETIMES;
    if (asked->answer != before) {
        asked->code = code;
        gpus->changed |= 1u << question;
    }
    return 0;
}

int postrun_gpu_sound(struct gpus *gpus, struct gpu *gpu, enum gpu_question question, int sound, unsigned long long value) {
    struct gpu_asked *asked = &gpu->asked[question];
    if (!sound && asked->answer == ANSWER_FINE) {
        asked->answer = ANSWER_SOMETIMES;
        asked->code = NVML_OK;
        asked->absurd = value;
        gpus->changed |= 1u << question;
    }
    return sound;
}

static void read_utilization(struct gpus *gpus, struct gpu *gpu, int number) {
    struct nvml_utilization used = {0, 0};
    if (!postrun_gpu_judge(gpus, gpu, ASK_UTILIZATION,
                           gpus->nvml->utilization ? gpus->nvml->utilization(gpu->handle, &used) : NVML_FUNCTION_NOT_FOUND)) {
        return;
    }
    if (postrun_gpu_sound(gpus, gpu, ASK_UTILIZATION, used.gpu <= 100, used.gpu)) {
        postrun_gpu_put(gpus, M_GPU_UTILIZATION, number, used.gpu);
    }
    if (postrun_gpu_sound(gpus, gpu, ASK_UTILIZATION, used.memory <= 100, used.memory)) {
        postrun_gpu_put(gpus, M_GPU_MEMORY_CONTROLLER, number, used.memory);
    }
}

static void read_memory(struct gpus *gpus, struct gpu *gpu, int number) {
    unsigned long long total = 0, used = 0;
    int code = NVML_FUNCTION_NOT_FOUND;
    if (!gpu->old_memory) {
        struct nvml_memory_v2 memory = {.version = NVML_MEMORY_V2};
        code = gpus->nvml->memory_v2(gpu->handle, &memory);
        total = memory.total;
        used = memory.used;
        gpu->old_memory =
            code == NVML_ARGUMENT_VERSION || code == NVML_FUNCTION_NOT_FOUND || code == NVML_INVALID_ARGUMENT || code == NVML_NOT_SUPPORTED;
    }
    if (gpu->old_memory && gpus->nvml->memory) {
        struct nvml_memory memory = {0, 0, 0};
        code = gpus->nvml->memory(gpu->handle, &memory);
        total = memory.total;
        used = memory.used;
    }
    if (!postrun_gpu_judge(gpus, gpu, ASK_MEMORY, code) ||
        !postrun_gpu_sound(gpus, gpu, ASK_MEMORY, total > 0 && total < 1ull << 50, total) ||
        !postrun_gpu_sound(gpus, gpu, ASK_MEMORY, used <= total, used)) {
        return;
    }
    postrun_gpu_put(gpus, M_GPU_MEMORY_USED_PERCENT, number, 100.0 * (double)used / (double)total);
    postrun_gpu_put(gpus, M_GPU_MEMORY_USED, number, (double)used);
    if (total != gpu->total) {
        char text[32];
        snprintf(text, sizeof text, "%llu", total);
        fact(gpus, number, "memory_bytes", text);
        postrun_gpu_put(gpus, M_GPU_MEMORY_TOTAL, number, (double)total);
        gpu->total = total;
    }
}

static void read_power(struct gpus *gpus, struct gpu *gpu, int number) {
    unsigned power = 0;
    if (postrun_gpu_judge(gpus, gpu, ASK_POWER, gpus->nvml->power ? gpus->nvml->power(gpu->handle, &power) : NVML_FUNCTION_NOT_FOUND) &&
        postrun_gpu_sound(gpus, gpu, ASK_POWER, power > 0 && power <= POWER_MAX, power)) {
        postrun_gpu_put(gpus, M_GPU_POWER, number, power / 1e3);
    }
}

static void read_clock(struct gpus *gpus, struct gpu *gpu, int number) {
    unsigned clock = 0;
    if (postrun_gpu_judge(gpus, gpu, ASK_SM_CLOCK,
                          gpus->nvml->clock ? gpus->nvml->clock(gpu->handle, NVML_SM_CLOCK, &clock) : NVML_FUNCTION_NOT_FOUND) &&
        postrun_gpu_sound(gpus, gpu, ASK_SM_CLOCK, clock <= CLOCK_MAX, clock)) {
        postrun_gpu_put(gpus, M_GPU_SM_CLOCK, number, clock);
    }
}

static void read_throttle_reasons(struct gpus *gpus, struct gpu *gpu, int number) {
    unsigned long long reasons = 0;
    int code = gpus->nvml->throttle_reasons ? gpus->nvml->throttle_reasons(gpu->handle, &reasons) : NVML_FUNCTION_NOT_FOUND;
    if (postrun_gpu_judge(gpus, gpu, ASK_THROTTLE_REASONS, code) &&
        postrun_gpu_sound(gpus, gpu, ASK_THROTTLE_REASONS, reasons < REASONS_MAX, reasons)) {
        postrun_gpu_put(gpus, M_GPU_THROTTLE_REASONS, number, (double)reasons);
    }
}

static void read_temperature(struct gpus *gpus, struct gpu *gpu, int number) {
    unsigned degrees = 0;
    int code = gpus->nvml->temperature ? gpus->nvml->temperature(gpu->handle, NVML_GPU_SENSOR, &degrees) : NVML_FUNCTION_NOT_FOUND;
    if (postrun_gpu_judge(gpus, gpu, ASK_TEMPERATURE, code) &&
        postrun_gpu_sound(gpus, gpu, ASK_TEMPERATURE, degrees <= TEMPERATURE_MAX, degrees)) {
        postrun_gpu_put(gpus, M_GPU_TEMPERATURE, number, degrees);
    }
}

static void tell_changes(struct gpus *gpus) {
    for (int question = 0; gpus->changed && question < GPU_QUESTIONS; question++) {
        if (gpus->changed >> question & 1) {
            tell(gpus, questions[question], why_no_answer, question);
        }
    }
    if (gpus->changed >> GPU_QUESTIONS & 1) {
        tell(gpus, "gpu.devices", why_not_there, 0);
    }
    gpus->changed = 0;
}

void postrun_gpus_read(struct gpus *gpus) {
    static void (*const readers[EACH_SAMPLE])(struct gpus *, struct gpu *, int) = {
        [ASK_UTILIZATION] = read_utilization,
        [ASK_MEMORY] = read_memory,
        [ASK_POWER] = read_power,
        [ASK_SM_CLOCK] = read_clock,
        [ASK_THROTTLE_REASONS] = read_throttle_reasons,
        [ASK_TEMPERATURE] = read_temperature,
    };
    gpus->fresh_count = 0;
    gpus->base_ticks = gpus->ticks; /* the sampler changes neither while it waits for the answer */
    gpus->base_ns = gpus->asked_ns;
    postrun_gpu_windows_put(gpus);
    gpus->stamp = gpus->base_ticks;
    for (int i = 0; i < gpus->count; i++) {
        struct gpu *gpu = &gpus->gpu[i];
        gpu->asleep -= gpu->asleep > 0;
        for (int question = 0; question < EACH_SAMPLE; question++) {
            if (gpu->there && gpu->asleep == 0 && gpu->asked[question].answer != ANSWER_NEVER) {
                readers[question](gpus, gpu, i);
            }
        }
        if (gpu->there && gpu->asleep == 0) {
            postrun_gpu_fields_read(gpus, gpu, i);
        }
    }
    postrun_gpu_xids_read(gpus);
    tell_changes(gpus);
}

void postrun_gpus_read_last(struct gpus *gpus) {
    postrun_gpu_windows_put(gpus);
    gpus->stamp = postrun_gpus_now(gpus);
    postrun_gpu_xids_read(gpus);
    for (int i = 0; i < gpus->count; i++) {
        struct gpu *gpu = &gpus->gpu[i];
        if (gpu->there && gpu->asleep == 0 && gpus->stamp - gpu->health_at > LAST_AFTER_S * (int64_t)postrun_clock_rate()) {
            postrun_gpu_health_read(gpus, gpu, i);
        }
    }
    tell_changes(gpus);
}
