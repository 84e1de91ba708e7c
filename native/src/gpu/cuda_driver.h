/* cuda_driver.h - the CUDA driver, which is loaded at run time and never linked. */
#ifndef POSTRUN_CUDA_DRIVER_H
#define POSTRUN_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

enum cuda_state { CUDA_ABSENT, CUDA_NOT_YET, CUDA_READY };

/* Whether this process can use CUDA devices. `initialize`: calls cuInit; otherwise a process that has not called it is NOT_YET. If
 * ABSENT, `why` is the reason. */
enum cuda_state postrun_cuda_state(bool initialize, char *why, size_t size);
bool postrun_cuda_used(void);         /* it was READY in this process once */
void postrun_cuda_tell_devices(void); /* metadata cuda.<index>.<fact> */
int postrun_cuda_devices(void);
int postrun_cuda_version(void); /* that the driver supports, as 12040; 0: unknown */
/* Waits until the device has completed the work of this thread's context, at most `ns`; false: it has not. */
bool postrun_cuda_wait(int64_t ns);
void postrun_cuda_call(void); /* a harmless call into the driver */

#pragma GCC visibility pop
#endif
