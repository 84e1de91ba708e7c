/* gpu_xid.c - XID errors of the GPUs, from a set of events that the driver fills and that is read without waiting.
 *
 * A set that fails is created again from the remaining GPUs: one lost GPU must not hide the errors of the others. */
#include "sampler_gpu.h"

#define EVENTS_MAX 16   /* at once */
#define FAILURES_MAX 10 /* in a row; then no set is made any more */

/* A problem of the set, whatever its code means for a device. */
static void judge_all(struct gpus *gpus, int code) {
    code = code == NVML_GPU_IS_LOST || code == NVML_RESET_REQUIRED || code == NVML_TIMED_OUT ? NVML_UNKNOWN : code;
    for (int i = 0; i < gpus->count; i++) {
        if (gpus->gpu[i].there) {
            postrun_gpu_judge(gpus, &gpus->gpu[i], ASK_XID, code);
        }
    }
}

void postrun_gpu_xids_close(struct gpus *gpus) {
    if (gpus->xids) {
        gpus->nvml->free_event_set(gpus->xids);
    }
    gpus->xids = NULL;
}

void postrun_gpu_xids_open(struct gpus *gpus) {
    const struct nvml *nvml = gpus->nvml;
    int code = nvml->event_set && nvml->register_events && nvml->wait_event && nvml->free_event_set ? nvml->event_set(&gpus->xids)
                                                                                                    : NVML_FUNCTION_NOT_FOUND;
    if (code != NVML_OK) {
        gpus->xids = NULL;
        judge_all(gpus, code);
        return;
    }
    int registered = 0;
    for (int i = 0; i < gpus->count; i++) {
        struct gpu *gpu = &gpus->gpu[i];
        if (!gpu->there || gpu->asked[ASK_XID].answer == ANSWER_NEVER) {
            continue;
        }
        code = nvml->register_events(gpu->handle, NVML_XID_EVENT, gpus->xids);
        if (code == NVML_UNKNOWN) { /* the set may not be used after that */
            postrun_gpu_xids_close(gpus);
            judge_all(gpus, code);
            return;
        }
        registered += postrun_gpu_judge(gpus, gpu, ASK_XID, code);
    }
    if (!registered) {
        postrun_gpu_xids_close(gpus);
    }
}

static void note(struct gpus *gpus, const struct nvml_event *event) {
    int number = -1;
    for (int i = 0; i < gpus->count; i++) {
        if (gpus->gpu[i].met && gpus->gpu[i].handle == event->device) {
            number = i;
            gpus->gpu[i].due[GPU_HEALTH] = gpus->gpu[i].health_at = 0; /* its errors are read again at once */
        }
    }
    postrun_gpu_put(gpus, M_GPU_XID, number, (double)event->eventData);
}

void postrun_gpu_xids_read(struct gpus *gpus) {
    for (int i = 0; gpus->xids && i < EVENTS_MAX; i++) {
        struct nvml_event event = {.eventType = 0};
        int code = gpus->nvml->wait_event(gpus->xids, &event, 0);
        if (code == NVML_OK) {
            if (event.eventType & NVML_XID_EVENT) {
                note(gpus, &event);
            }
            continue;
        }
        if (code == NVML_TIMED_OUT) { /* nothing happened */
            gpus->xid_failures = 0;
            return;
        }
        postrun_gpu_xids_close(gpus);
        if (++gpus->xid_failures < FAILURES_MAX) {
            postrun_gpu_xids_open(gpus);
        } else {
            judge_all(gpus, code);
        }
        return;
    }
}
