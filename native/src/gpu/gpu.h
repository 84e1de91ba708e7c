/* gpu.h - GPU activity, as the session starts and stops it.
 *
 * No lock is held across a call into CUDA or CUPTI: session.c calls these functions without its lock, and callbacks of CUPTI only put rows
 * into a queue, which the drain thread empties. */
#ifndef POSTRUN_GPU_H
#define POSTRUN_GPU_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* gpu.c. After the start of session `number`, and before and after its end. `environment`: begun by POSTRUN_CAPTURE=1, so CUDA is left to
 * the program to initialize, and POSTRUN_GPU_STEPS, _TIME and _SIGNAL hold. */
void postrun_gpu_begin(uint32_t number, uint32_t flags, bool environment);
void postrun_gpu_begin_injected(uint32_t number, uint32_t flags); /* called by the CUDA driver while it initializes */
void postrun_gpu_end(uint32_t number);
void postrun_gpu_forked(void);

#pragma GCC visibility pop
#endif
