/* gpu_visible.h - the GPUs that CUDA_VISIBLE_DEVICES leaves to CUDA. */
#ifndef POSTRUN_GPU_VISIBLE_H
#define POSTRUN_GPU_VISIBLE_H

#define VISIBLE_LIST 4096

/* The environment, read when a session starts, on the starter's thread. */
struct gpu_visible {
    int listed;            /* CUDA_VISIBLE_DEVICES is set; -1: it is too long */
    int bus_order;         /* CUDA_DEVICE_ORDER=PCI_BUS_ID: in the driver's order; otherwise the fastest is first */
    char list[VISIBLE_LIST];
};

struct gpu_known { /* a GPU in the driver's order, which is that of the bus */
    const char *uuid, *name; /* empty: not known */
    int mig;                 /* is divided */
    const char *parts;       /* UUIDs of its MIG devices, with commas between */
};

enum { VISIBLE_NO, VISIBLE_YES, VISIBLE_UNKNOWN };

#pragma GCC visibility push(hidden)

void postrun_gpu_visible_take(struct gpu_visible *visible);
/* For each GPU whether it is visible (one of the above), and its number in CUDA, -1: none or unknown. NULL, or why it is unknown. */
const char *postrun_gpu_visible(const struct gpu_visible *visible, const struct gpu_known *gpus, int count, int *seen, int *number);

#pragma GCC visibility pop

#endif
