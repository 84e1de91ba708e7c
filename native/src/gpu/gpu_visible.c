/* gpu_visible.c - applies CUDA_VISIBLE_DEVICES: the driver's GPUs -> the GPUs that CUDA sees.
 *
 * The variable is a list of numbers, of UUIDs (`GPU-`, `MIG-`) or of their beginnings, and ends at the first entry that matches no device.
 * Numbers count in the order of CUDA_DEVICE_ORDER. Its default, fastest first, is the order of the bus if all GPUs have one model. */
#define _GNU_SOURCE
#include "gpu_visible.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void postrun_gpu_visible_take(struct gpu_visible *visible) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES"), *order = getenv("CUDA_DEVICE_ORDER");
    visible->listed = !list ? 0 : strlen(list) < sizeof visible->list ? 1 : -1;
    visible->bus_order = order && strcmp(order, "PCI_BUS_ID") == 0;
    snprintf(visible->list, sizeof visible->list, "%s", visible->listed > 0 ? list : "");
}

/* How many of the UUIDs in a list begin with these bytes. */
static int beginnings(const char *parts, const char *begin, size_t length) {
    int found = 0;
    for (const char *at = parts; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        found += strncmp(at, begin, length) == 0;
    }
    return found;
}

/* The only GPU that a UUID or its beginning means; -1: none, or several. */
static int of_uuid(const struct gpu_known *gpus, int count, const char *entry, size_t length) {
    int found = -1, matches = 0;
    const char *slash = memchr(entry, '/', length);
    int part = length >= 4 && strncmp(entry, "MIG-", 4) == 0;
    for (int i = 0; i < count; i++) {
        int here = !part   ? strncmp(gpus[i].uuid, entry, length) == 0
                   : slash ? slash > entry + 8 && strncmp(gpus[i].uuid, entry + 4, (size_t)(slash - entry) - 4) == 0 /* MIG-GPU-UUID/1/0 */
                           : beginnings(gpus[i].parts, entry, length);
        matches += here;
        found = here ? i : found;
    }
    return matches == 1 ? found : -1;
}

static const char *unknown(int count, int *seen, const char *why) {
    for (int i = 0; i < count; i++) {
        seen[i] = VISIBLE_UNKNOWN;
    }
    return why;
}

const char *postrun_gpu_visible(const struct gpu_visible *visible, const struct gpu_known *gpus, int count, int *seen, int *number) {
    int alike = 1, divided = 0;
    for (int i = 0; i < count; i++) {
        alike = alike && strcmp(gpus[i].name, gpus[0].name) == 0 && *gpus[i].name;
        divided = divided || gpus[i].mig;
        seen[i] = visible->listed ? VISIBLE_NO : VISIBLE_YES;
        number[i] = -1;
    }
    int counted = (alike || visible->bus_order || count == 1) && !divided; /* numbers are those of the driver */
    if (visible->listed < 0) {
        return unknown(count, seen, "CUDA_VISIBLE_DEVICES is too long");
    }
    if (!visible->listed) {
        for (int i = 0; counted && i < count; i++) {
            number[i] = i;
        }
        return NULL;
    }
    int next = 0;
    enum { ANY, NUMBERS, UUIDS } kind = ANY;
    for (const char *at = visible->list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        at += strspn(at, " \t");
        size_t length = strcspn(at, ",");
        while (length > 0 && (at[length - 1] == ' ' || at[length - 1] == '\t')) {
            length--;
        }
        int gpu = -1;
        if (kind != UUIDS && length > 0 && length < 7 && strspn(at, "0123456789") == length) {
            kind = NUMBERS;
            gpu = atoi(at) < count ? atoi(at) : -1;
            if (gpu >= 0 && !counted) {
                return unknown(count, seen,
                               divided ? "CUDA_VISIBLE_DEVICES has numbers, and GPUs are divided (MIG): which are meant is not known"
                                       : "CUDA_VISIBLE_DEVICES has numbers that count the fastest GPU first, and the models differ:"
                                         " which are meant is not known without CUDA_DEVICE_ORDER=PCI_BUS_ID");
            }
        } else if (kind != NUMBERS && length > 4 && (strncmp(at, "GPU-", 4) == 0 || strncmp(at, "MIG-", 4) == 0)) {
            kind = UUIDS;
            gpu = of_uuid(gpus, count, at, length);
        }
        if (gpu < 0) {
            break;
        }
        if (seen[gpu] == VISIBLE_YES && !gpus[gpu].mig) {
            memset(number, -1, (size_t)count * sizeof *number);
            return unknown(count, seen, "CUDA_VISIBLE_DEVICES names a GPU twice");
        }
        number[gpu] = seen[gpu] == VISIBLE_YES ? number[gpu] : next;
        seen[gpu] = VISIBLE_YES;
        next++;
    }
    return NULL;
}
