/* device_stub.c - device.h with the stub libraries of tests/native: each operation becomes a line of a text that the stub of CUPTI plays.
 *
 * A thread's operations are played when it synchronizes. STUB_DEVICE plants a defect, so that a check is known to fail:
 *   lose       every 50th kernel has no record          twice      every 50th launch call is recorded twice
 *   shape      kernels have one thread more             late       kernels are recorded 2 s late
 *   bytes      copies have one byte more                capture    a capture is invalidated
 *   thread     launch calls name another thread         leak       each wait of the main thread leaks 4 MiB
 *   graph      graph kernels name the launch before     nothing    no record at all */
#define _GNU_SOURCE
#include "device.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define US 1000
#define LEAK_BYTES (4 << 20)
#define PLAY_BYTES (256 << 10) /* a text of this size is played at once */

static const char *const kernel_names[] = {"postrun_alpha", "postrun_beta", "postrun_gamma"};
static _Atomic uint64_t correlations, launches;
static uint64_t checksum;
static char *volatile leaked; /* volatile: else the compiler leaves it out */
static int graph_kernels, graph_copies;
static _Thread_local struct {
    char *text;
    size_t length, size;
    int64_t base, device_free; /* ns of CLOCK_REALTIME: the zero of times in the text; when the device is idle again */
} queue;
static _Thread_local int context = 1;

static int planted(const char *defect) {
    const char *wanted = getenv("STUB_DEVICE");
    return wanted && strcmp(wanted, defect) == 0;
}

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void play(void) {
    const char *path = getenv("POSTRUN_CUPTI");
    void *library = path && queue.length ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    int (*function)(const char *, uint64_t) = library ? (int (*)(const char *, uint64_t))dlsym(library, "stub_play") : NULL;
    if (function && !planted("nothing")) {
        function(queue.text, (uint64_t)queue.base);
    }
    if (library) {
        dlclose(library);
    }
    queue.length = 0;
}

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    size_t length = (size_t)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (queue.length + length + 1 > queue.size) {
        queue.size = queue.size ? queue.size * 2 : 4096;
        queue.text = realloc(queue.text, queue.size);
    }
    memcpy(queue.text + queue.length, line, length + 1);
    queue.length += length;
}

/* The call that begins an operation: its correlation. `duration` ns after the work that is queued, the device is idle again. */
static uint64_t call(const char *name, int64_t duration, int64_t *start) {
    if (queue.length > PLAY_BYTES) {
        play();
    }
    int64_t time = now();
    if (queue.length == 0) {
        queue.base = time;
    }
    uint64_t correlation = atomic_fetch_add(&correlations, 1) + 1;
    int tid = (int)gettid() + planted("thread");
    put("runtime %s %" PRId64 " %" PRId64 " %d %" PRIu64 "\n", name, time - queue.base, time - queue.base + US, tid, correlation);
    int64_t begin = time + US > queue.device_free ? time + US : queue.device_free;
    queue.device_free = begin + duration;
    *start = begin - queue.base + (planted("late") ? 2000000000 : 0);
    return correlation;
}

static void put_kernel(const char *name, int64_t start, int64_t duration, int stream, uint64_t correlation,
                       const struct device_shape *shape, uint64_t node) {
    uint64_t number = atomic_fetch_add(&launches, 1);
    if (planted("lose") && number % 50 == 49) {
        return;
    }
    put("kernel %s %" PRId64 " %" PRId64 " 0 %d %d %" PRIu64 " %u %u %u %u %u %u 16 0 %u %" PRIu64 "\n", name, start, start + duration,
        context, 7 + stream, correlation, shape->grid[0], shape->grid[1], shape->grid[2], shape->block[0] + (unsigned)planted("shape"),
        shape->block[1], shape->block[2], shape->shared, node);
}

void device_begin(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*initialize)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
    if (!initialize || initialize(0) != 0) {
        fprintf(stderr, "no stub driver\n");
        exit(70);
    }
}

void device_launch(enum device_kernel kernel, const struct device_shape *shape, int stream) {
    int64_t start;
    uint64_t correlation = call("cudaLaunchKernel_v7000", US, &start);
    if (planted("twice") && correlation % 50 == 49) {
        put("runtime cudaLaunchKernel_v7000 0 1 %d %" PRIu64 "\n", (int)gettid(), correlation);
    }
    put_kernel(kernel_names[kernel], start, US, stream, correlation, shape, 0);
}

void device_launch_small(enum device_kernel kernel) {
    const struct device_shape shape = {{1, 1, 1}, {32, 1, 1}, 0};
    device_launch(kernel, &shape, 0);
}

void device_spin(int64_t ns, int stream) {
    const struct device_shape shape = {{1, 1, 1}, {1, 1, 1}, 0};
    int64_t start;
    uint64_t correlation = call("cudaLaunchKernel_v7000", ns, &start);
    put_kernel("postrun_spin", start, ns, stream, correlation, &shape, 0);
}

void device_copy(enum device_copy kind, size_t bytes, int stream) {
    int64_t start;
    uint64_t correlation = call("cudaMemcpyAsync_v3020", US, &start);
    put("memcpy %d 2 3 %zu %" PRId64 " %" PRId64 " 0 %d %d %" PRIu64 "\n", (int)kind, bytes + (size_t)planted("bytes"), start, start + US,
        context, 7 + stream, correlation);
}

void device_set(size_t bytes, int stream) {
    int64_t start;
    uint64_t correlation = call("cudaMemsetAsync_v3020", US, &start);
    put("memset %zu %" PRId64 " %" PRId64 " 0 %d %d %" PRIu64 "\n", bytes, start, start + US, context, 7 + stream, correlation);
}

static void wait_and_play(void) {
    int64_t left = queue.device_free + 10 * US - now();
    if (left > 0) {
        nanosleep(&(struct timespec){left / 1000000000, left % 1000000000}, NULL);
    }
    if (planted("leak") && gettid() == getpid()) {
        leaked = malloc(LEAK_BYTES);
        memset((void *)leaked, 1, LEAK_BYTES);
    }
    play();
}

void device_synchronize(void) { wait_and_play(); }

void device_synchronize_stream(int stream) {
    int64_t start;
    uint64_t correlation = call("cudaStreamSynchronize_v3020", 0, &start);
    put("sync 3 %" PRId64 " %" PRId64 " %d %d %" PRIu64 "\n", start, start + US, context, 7 + stream, correlation);
    wait_and_play();
}

double device_timed_spin(int64_t ns) {
    device_spin(ns, 1);
    wait_and_play();
    return (double)ns / 1e6;
}

size_t device_free_memory(void) { return (size_t)64 << 30; }

int device_second_context(void (*work)(void)) {
    context = 2;
    work();
    wait_and_play();
    context = 1;
    return 0;
}

void device_graph_build(int kernels, int copies) {
    graph_kernels = kernels;
    graph_copies = copies;
}

void device_graph_launch(void) {
    const struct device_shape shape = {{1, 1, 1}, {32, 1, 1}, 0};
    int64_t start;
    uint64_t correlation = call("cudaGraphLaunch_v10000", (graph_kernels + graph_copies + 1) * US, &start);
    uint64_t of_kernels = correlation - (uint64_t)planted("graph"), node = 100;
    for (int i = 0; i < graph_kernels; i++, start += US) {
        put_kernel("postrun_alpha", start, US, 1, of_kernels, &shape, node++);
        checksum = checksum * 1664525u + 1013904223u;
    }
    for (int i = 0; i < graph_copies; i++, start += US) {
        put("memcpy 8 3 3 %u %" PRId64 " %" PRId64 " 0 %d 8 %" PRIu64 "\n", DEVICE_BYTES, start, start + US, context, correlation);
    }
    put("memset %u %" PRId64 " %" PRId64 " 0 %d 8 %" PRIu64 "\n", DEVICE_BYTES, start, start + US, context, correlation);
}

int device_capture(void) {
    usleep(2000);
    return planted("capture") ? 901 : 0;
}

uint64_t device_checksum(void) { return checksum; }
