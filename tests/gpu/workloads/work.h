/* work.h - the known amount of work that `workload counts` records and `plain ... counts` does without postrun in the program. */
#ifndef WORK_H
#define WORK_H

#include "program.h"

/* 10 * scale kernels in three shapes, scale / 2 copies of each kind, scale / 5 memsets, scale / 20 stream synchronizations. */
static inline void known_work(long scale) {
    static const struct device_shape shapes[] = {
        [DEVICE_ALPHA] = {{1, 1, 1}, {32, 1, 1}, 0},
        [DEVICE_BETA] = {{7, 3, 2}, {64, 2, 1}, 1024},
        [DEVICE_GAMMA] = {{33, 1, 5}, {16, 4, 2}, 4096},
    };
    static const enum device_copy kinds[] = {DEVICE_TO_DEVICE_FROM_HOST, DEVICE_TO_HOST, DEVICE_TO_DEVICE};
    for (long i = 0; i < 10 * scale; i++) { /* 5 alpha, 3 beta, 2 gamma in each 10 */
        enum device_kernel kernel = i % 10 < 5 ? DEVICE_ALPHA : i % 10 < 8 ? DEVICE_BETA : DEVICE_GAMMA;
        device_launch(kernel, &shapes[kernel], (int)(i % (DEVICE_STREAMS + 1)));
        if (i % 20 == 0) {
            for (int k = 0; k < 3; k++) {
                device_copy(kinds[k], 1024 + (size_t)(i / 20 % 64) * 4096, 1 + k);
            }
        }
        if (i % 50 == 0) {
            device_set(256 + (size_t)(i / 50 % 16) * 1024, 4);
        }
        if (i % 200 == 199) {
            device_synchronize_stream(1);
        }
    }
}

static inline void report_known_work(long scale) {
    long long copied = 0, set = 0;
    for (long i = 0; i < 10 * scale; i += 20) {
        copied += 1024 + i / 20 % 64 * 4096;
    }
    for (long i = 0; i < 10 * scale; i += 50) {
        set += 256 + i / 50 % 16 * 1024;
    }
    printf("{\"kernels\": {\"postrun_alpha\": %ld, \"postrun_beta\": %ld, \"postrun_gamma\": %ld}, \"copies\": {\"1\": %ld, \"2\": %ld, "
           "\"8\": %ld},"
           " \"copy_bytes\": %lld, \"memsets\": %ld, \"memset_bytes\": %lld, \"synchronizations\": %ld}\n",
           5 * scale, 3 * scale, 2 * scale, scale / 2, scale / 2, scale / 2, copied, scale / 5, set, scale / 20);
}

#endif
