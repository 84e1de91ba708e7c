/* device.cu - device.h with CUDA. */
#include "device.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MUST(call)                                                                                            \
    do {                                                                                                      \
        cudaError_t error_ = (call);                                                                          \
        if (error_ != cudaSuccess) {                                                                          \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_));        \
            exit(70);                                                                                         \
        }                                                                                                     \
    } while (0)

static uint32_t *numbers; /* on the device */
static uint8_t *source, *target;
static uint8_t *pinned; /* on the host */
static cudaStream_t streams[DEVICE_STREAMS + 1]; /* the first one is the default stream */
static cudaEvent_t before, after;
static cudaGraphExec_t graph;
static thread_local bool elsewhere; /* this thread works in the second context, which does not own the buffers */

extern "C" __global__ void postrun_alpha(uint32_t *data) {
    if (blockIdx.x == 0 && threadIdx.x == 0 && data) {
        data[0] = data[0] * 1664525u + 1013904223u;
    }
}
extern "C" __global__ void postrun_beta(uint32_t *data) {
    if (blockIdx.x == 0 && threadIdx.x == 0 && data) {
        data[1] += 3u;
    }
}
extern "C" __global__ void postrun_gamma(uint32_t *data) {
    if (blockIdx.x == 0 && threadIdx.x == 0 && data) {
        data[2] ^= 0x9e3779b9u;
    }
}
extern "C" __global__ void postrun_spin(uint64_t ns) {
    uint64_t start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - start < ns);
}

extern "C" void device_begin(void) {
    MUST(cudaSetDevice(0));
    MUST(cudaMalloc(&numbers, 4096));
    MUST(cudaMemset(numbers, 0, 4096));
    MUST(cudaMalloc(&source, DEVICE_BYTES));
    MUST(cudaMalloc(&target, DEVICE_BYTES));
    MUST(cudaMallocHost(&pinned, DEVICE_BYTES));
    for (int i = 1; i <= DEVICE_STREAMS; i++) {
        MUST(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
    }
    MUST(cudaEventCreate(&before));
    MUST(cudaEventCreate(&after));
    MUST(cudaDeviceSynchronize());
}

extern "C" void device_launch(enum device_kernel kernel, const struct device_shape *shape, int stream) {
    dim3 grid(shape->grid[0], shape->grid[1], shape->grid[2]), block(shape->block[0], shape->block[1], shape->block[2]);
    uint32_t *data = elsewhere ? nullptr : numbers;
    switch (kernel) {
    case DEVICE_ALPHA: postrun_alpha<<<grid, block, shape->shared, streams[stream]>>>(data); break;
    case DEVICE_BETA: postrun_beta<<<grid, block, shape->shared, streams[stream]>>>(data); break;
    case DEVICE_GAMMA: postrun_gamma<<<grid, block, shape->shared, streams[stream]>>>(data); break;
    }
    MUST(cudaGetLastError());
}

extern "C" void device_launch_small(enum device_kernel kernel) {
    const struct device_shape shape = {{1, 1, 1}, {32, 1, 1}, 0};
    device_launch(kernel, &shape, 0);
}

extern "C" void device_spin(int64_t ns, int stream) {
    postrun_spin<<<1, 1, 0, streams[stream]>>>((uint64_t)ns);
    MUST(cudaGetLastError());
}

extern "C" void device_copy(enum device_copy kind, size_t bytes, int stream) {
    if (kind == DEVICE_TO_DEVICE_FROM_HOST) {
        MUST(cudaMemcpyAsync(target, pinned, bytes, cudaMemcpyHostToDevice, streams[stream]));
    } else if (kind == DEVICE_TO_HOST) {
        MUST(cudaMemcpyAsync(pinned, source, bytes, cudaMemcpyDeviceToHost, streams[stream]));
    } else {
        MUST(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToDevice, streams[stream]));
    }
}

extern "C" void device_set(size_t bytes, int stream) { MUST(cudaMemsetAsync(target, 0x5a, bytes, streams[stream])); }

extern "C" void device_synchronize(void) { MUST(cudaDeviceSynchronize()); }

extern "C" void device_synchronize_stream(int stream) { MUST(cudaStreamSynchronize(streams[stream])); }

extern "C" double device_timed_spin(int64_t ns) {
    float ms = 0;
    MUST(cudaEventRecord(before, streams[1]));
    device_spin(ns, 1);
    MUST(cudaEventRecord(after, streams[1]));
    MUST(cudaStreamSynchronize(streams[1]));
    MUST(cudaEventElapsedTime(&ms, before, after));
    return ms;
}

extern "C" size_t device_free_memory(void) {
    size_t free_bytes = 0, total = 0;
    MUST(cudaMemGetInfo(&free_bytes, &total));
    return free_bytes;
}

/* By name: the header's cuCtxCreate takes other arguments since CUDA 13, the symbol of the driver does not. */
extern "C" int device_second_context(void (*work)(void)) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    auto create = driver ? (int (*)(void **, unsigned, int))dlsym(driver, "cuCtxCreate_v2") : nullptr;
    auto destroy = driver ? (int (*)(void *))dlsym(driver, "cuCtxDestroy_v2") : nullptr;
    void *context = nullptr;
    if (!create || !destroy) {
        return -1;
    }
    int error = create(&context, 0, 0); /* becomes the thread's current one, which the runtime uses */
    if (error) {
        return error;
    }
    elsewhere = true;
    work();
    elsewhere = false;
    MUST(cudaDeviceSynchronize());
    return destroy(context);
}

/* ---------------------------------------------------------------- graphs */

extern "C" void device_graph_build(int kernels, int copies) {
    cudaGraph_t built;
    MUST(cudaStreamBeginCapture(streams[1], cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < kernels; i++) {
        postrun_alpha<<<1, 32, 0, streams[1]>>>(numbers);
    }
    for (int i = 0; i < copies; i++) {
        MUST(cudaMemcpyAsync(target, source, DEVICE_BYTES, cudaMemcpyDeviceToDevice, streams[1]));
    }
    MUST(cudaMemsetAsync(source, 0x33, DEVICE_BYTES, streams[1]));
    MUST(cudaStreamEndCapture(streams[1], &built));
    MUST(cudaGraphInstantiate(&graph, built, 0));
    MUST(cudaGraphDestroy(built));
}

extern "C" void device_graph_launch(void) { MUST(cudaGraphLaunch(graph, streams[1])); }

extern "C" int device_capture(void) {
    cudaGraph_t built = nullptr;
    cudaGraphExec_t ready = nullptr;
    cudaError_t error = cudaStreamBeginCapture(streams[2], cudaStreamCaptureModeGlobal);
    for (int i = 0; i < 20 && error == cudaSuccess; i++) {
        postrun_gamma<<<1, 32, 0, streams[2]>>>(numbers);
        error = cudaGetLastError();
        usleep(500);
    }
    cudaError_t ended = cudaStreamEndCapture(streams[2], &built);
    error = error == cudaSuccess ? ended : error;
    if (error == cudaSuccess) {
        error = cudaGraphInstantiate(&ready, built, 0);
    }
    if (error == cudaSuccess) {
        error = cudaGraphLaunch(ready, streams[2]);
    }
    if (error == cudaSuccess) {
        error = cudaStreamSynchronize(streams[2]);
    }
    if (ready) {
        cudaGraphExecDestroy(ready);
    }
    if (built) {
        cudaGraphDestroy(built);
    }
    if (error != cudaSuccess) {
        fprintf(stderr, "capture: %s\n", cudaGetErrorString(error));
        cudaGetLastError();
    }
    return (int)error;
}

extern "C" uint64_t device_checksum(void) {
    uint32_t values[4] = {0};
    uint8_t last = 0;
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(values, numbers, sizeof values, cudaMemcpyDeviceToHost));
    MUST(cudaMemcpy(&last, target + DEVICE_BYTES - 1, 1, cudaMemcpyDeviceToHost));
    return ((uint64_t)values[0] << 32 | values[1]) ^ ((uint64_t)values[2] << 8) ^ last;
}
