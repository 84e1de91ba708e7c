/* device.h - device work of known amount: device.cu does it with CUDA, device_stub.c has the stub libraries report it as done.
 *
 * Streams are numbers: 0 is the default stream, 1 to DEVICE_STREAMS are created. Functions that cannot fail print the error and exit with 70. */
#ifndef DEVICE_H
#define DEVICE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DEVICE_STREAMS 4
#define DEVICE_BYTES (1u << 20) /* size of each buffer that copies and memsets use */

enum device_kernel { DEVICE_ALPHA, DEVICE_BETA, DEVICE_GAMMA }; /* postrun_alpha, postrun_beta, postrun_gamma */
enum device_copy { DEVICE_TO_DEVICE_FROM_HOST = 1, DEVICE_TO_HOST = 2, DEVICE_TO_DEVICE = 8 }; /* as CUPTI numbers them */

struct device_shape {
    unsigned grid[3], block[3], shared; /* shared: dynamic shared memory, bytes */
};

void device_begin(void); /* initializes CUDA and allocates; once per process */
void device_launch(enum device_kernel kernel, const struct device_shape *shape, int stream);
void device_launch_small(enum device_kernel kernel); /* one block of 32 threads on the default stream */
void device_spin(int64_t ns, int stream); /* kernel postrun_spin */
void device_copy(enum device_copy kind, size_t bytes, int stream); /* pinned host memory */
void device_set(size_t bytes, int stream);
void device_synchronize(void);
void device_synchronize_stream(int stream);
double device_timed_spin(int64_t ns); /* a spin between two events, and waits: milliseconds between the events */
size_t device_free_memory(void);
int device_second_context(void (*work)(void)); /* runs it in a context of its own; 0, or an error */

/* A graph of kernels postrun_alpha, then copies on the device, then one memset, in a chain. */
void device_graph_build(int kernels, int copies);
void device_graph_launch(void);
int device_capture(void); /* captures a graph in global mode for some ms and replays it once: 0, or the error of CUDA */
uint64_t device_checksum(void); /* of the buffer that kernels and graphs write to */

#ifdef __cplusplus
}
#endif
#endif
