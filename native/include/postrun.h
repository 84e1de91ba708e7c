/* postrun.h - the public C interface of postrun: records what a program does into trace files.
 *
 * License: Apache-2.0. This header needs nothing but a C11 (or C++) compiler. Functions that can fail return 0 or a negative errno value;
 * nothing prints and nothing exits. Every function may be called from any thread at any time, also before postrun_start and after
 * postrun_stop, when recording calls do nothing; but not from a signal handler, which may have interrupted one of them (it may end the
 * program with exit()).
 */
#ifndef POSTRUN_H
#define POSTRUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define POSTRUN_VERSION_MAJOR 0
#define POSTRUN_VERSION_MINOR 1
#define POSTRUN_VERSION_PATCH 0

#if defined(_WIN32)
#define POSTRUN_API __declspec(dllexport)
#else
#define POSTRUN_API __attribute__((visibility("default")))
#endif

/* The version of the library that is loaded, "MAJOR.MINOR.PATCH"; static storage, never NULL.
 * It may differ from the macros above when a program runs with another library than it was compiled with. */
POSTRUN_API const char *postrun_version(void);

/* ---------------------------------------------------------------- session */

/* With POSTRUN_CAPTURE=1 in the environment a session begins when the library is loaded, so that a program need not start one. A program
 * that does runs as it is: until its first postrun_start, postrun_configure returns 0 and keeps what it is given for a later session, and
 * that first postrun_start returns 0 and makes the session the program's, which its postrun_stop ends. A later postrun_start begins
 * another. Under `postrun record` (POSTRUN_RECORDER in the environment) each session of the program goes to the folder of the job, and has
 * no sampler, as the recorder samples the system. */

/* The configuration of a session. Fill with POSTRUN_CONFIG_INIT; 0 means the default. */
typedef struct postrun_config {
    size_t size;             /* sizeof(postrun_config): fields that a newer header adds are defaults for an older program */
    const char *directory;   /* where trace files go; created if missing. Default: $POSTRUN_DIR, else "postrun-traces" */
    uint64_t rotate_bytes;   /* a file larger than this is closed and another begun; default 1 GiB */
    uint32_t ring_records;   /* 32-byte records a thread can hold until they are drained, a power of two; default 16384 */
    uint32_t drain_ms;       /* time between two drains; default 50 */
    uint32_t sample_ms;      /* interval of the system sampler: 100, 200, 500, 1000, 5000 or 60000; default 0: no sampler */
    uint32_t sample_for_s;   /* seconds after which the sampler ends; default 0: with the session */
    int32_t zstd_level;      /* compression of blocks; default 0: none. -ENOTSUP from postrun_start where libzstd cannot be loaded */
    uint32_t flags;          /* POSTRUN_FOLLOW_FORK, POSTRUN_GPU, POSTRUN_NO_GPU_YET, POSTRUN_NO_GPU_SAMPLES, POSTRUN_GPU_BOUNDED */
    uint32_t cpu_for_s;      /* seconds for which processors are sampled; default 0: as long as the rest */
    /* 64 bits: 32 would be inside the padding at the end of an older structure, which callers leave uninitialized */
    uint64_t rotate_s;       /* a file that holds records and is older is closed, another begun; default: $POSTRUN_ROTATE_S, else never */
    uint64_t file_mode; /* permissions of files, such as 0640, whatever the umask; default: $POSTRUN_MODE, else 0600. New folders get the
                              * matching search permissions */
} postrun_config;

#define POSTRUN_CONFIG_INIT {sizeof(postrun_config), NULL, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define POSTRUN_FOLLOW_FORK 1u /* a forked child also records, to a file of its own */
#define POSTRUN_GPU 2u /* records GPU activity if possible; if not, metadata "capability.gpu" has the reason. Initializes CUDA */
#define POSTRUN_NO_GPU_YET 4u /* GPU activity is recorded from postrun_gpu(1) on */
#define POSTRUN_NO_GPU_SAMPLES 8u /* the sampler leaves GPUs out. POSTRUN_GPU=0 in the environment: neither samples nor activity of GPUs */
#define POSTRUN_GPU_BOUNDED \
    16u /* GPU activity that the session records unasked: in the bounded windows of POSTRUN_GPU_WINDOWS=auto, unless the
                                * environment has windows */

/* Sets the configuration of the next session; copies what it is given. -EBUSY while recording (but see above), -EINVAL for a value out of
 * range. */
POSTRUN_API int postrun_configure(const postrun_config *config);
/* Begins to record. 0, -EALREADY when already recording (nothing changes; but see above), or why no file can be written (-EACCES, -ENOSPC,
 * ...). */
POSTRUN_API int postrun_start(void);
/* Writes what is pending and ends the files. 0, or -EALREADY when not recording. Ranges that are open are closed here and marked. */
POSTRUN_API int postrun_stop(void);
/* 1 while recording, else 0. */
POSTRUN_API int postrun_recording(void);
/* Writes everything recorded before the call to the file. 0 or a negative errno value. */
POSTRUN_API int postrun_flush(void);
/* The file being written, into `path` of `size` bytes: its length, or -ENOENT when none is. */
POSTRUN_API int postrun_path(char *path, size_t size);

/* Opens (1) or closes (0) a window in which a running session records GPU activity; outside of it nothing slows the GPU's calls. If the
 * calling thread has a CUDA context, closing waits for the GPU to finish its work. 0; -EALREADY if the window is so already or nothing
 * records; -ENOTSUP if GPU activity cannot be recorded: the metadata "capability.gpu" has the reason. */
POSTRUN_API int postrun_gpu(int on);
/* Writes why GPU activity is not recorded, for the program's user, into `text` of `size` bytes: at most 480 bytes, cut if necessary. 0 and
 * an empty text if it is recorded, or will be (in the next window, or when the program uses CUDA). -ENOTSUP and the reason if it cannot be
 * recorded, or was not requested; -EALREADY if nothing records. */
POSTRUN_API int postrun_gpu_reason(char *text, size_t size);

/* For a language runtime with a lock that its threads hold while they run code, such as Python's global interpreter lock. A begin or an end
 * that opens or closes a window of the environment (POSTRUN_GPU_STEPS, POSTRUN_GPU_WINDOWS) can take seconds; `release` is called before
 * that, and `acquire` after it with the result of `release`. `release` returns NULL if the calling thread does not hold the lock; `acquire`
 * is not called then. For the life of the process; NULL, NULL: none. */
POSTRUN_API void postrun_lock_hooks(void *(*release)(void), void (*acquire)(void *held));

/* Another profiler of the program goes first: before it starts, `who` closes an open window and postpones others; the metadata
 * "capability.gpu" then name it. After it has ended, NULL: about a second later the window that is due opens. Calls may nest. 0, or -EALREADY
 * if nothing records GPU activity. A profiler that uses CUPTI without this call gets CUPTI's error 39 while a window is open. */
POSTRUN_API int postrun_gpu_yield(const char *who);

/* For the CUDA driver, which calls it when CUDA_INJECTION64_PATH names this library: records as with POSTRUN_CAPTURE=1 and POSTRUN_GPU=1
 * in the environment. */
POSTRUN_API int InitializeInjection(void);
/* For NVTX, whose ranges become annotations when NVTX_INJECTION64_PATH names this library. */
POSTRUN_API int InitializeInjectionNvtx2(const void *(*get)(uint32_t));
/* 1 once the program has begun a range of NVTX that is named as a step (step, step_10, ProfilerStep#10), else 0. */
POSTRUN_API int postrun_nvtx_steps(void);

/* Counters of a session so far. */
typedef struct postrun_statistics {
    size_t size; /* sizeof(postrun_statistics) */
    uint64_t recorded; /* records put into rings */
    uint64_t written; /* records written to files */
    uint64_t lost; /* records dropped: ring full, disk full */
    uint64_t bytes; /* written to files */
    uint64_t blocks;
    uint64_t unbalanced; /* ends without a begin, and begins beyond the depth of 64 */
    int32_t error; /* 0, or the negative errno value that ended file output */
} postrun_statistics;
POSTRUN_API void postrun_get_statistics(postrun_statistics *statistics);

/* ---------------------------------------------------------------- names */

/* The id of a name; the same text gives the same id as long as the process lives. 0 when there is no memory or `text` is NULL.
 * `length` bytes; cut at 4095. Not for the hot path: keep the id. */
POSTRUN_API uint32_t postrun_name(const char *text, size_t length);

/* ---------------------------------------------------------------- recording */

#define POSTRUN_NO_VALUE INT64_MIN

/* A range of the calling thread: begins now, ends at the matching postrun_end. Ranges nest, at most 64 deep. */
POSTRUN_API void postrun_begin(uint32_t name, int64_t value);
POSTRUN_API void postrun_end(void);

/* A range that may end in any order and on any thread. The handle is never 0 while recording, and 0 (to which an end is nothing) else.
 * postrun_range_end: 0, or -EINVAL for a handle that is not open. */
POSTRUN_API uint64_t postrun_range_begin(uint32_t name, int64_t value);
POSTRUN_API int postrun_range_end(uint64_t handle);
/* Ends a range that is not recorded after all. As postrun_range_end. */
POSTRUN_API int postrun_range_drop(uint64_t handle);

/* The value of a counter at this time. */
POSTRUN_API void postrun_counter(uint32_t name, double value);

/* A fact of the run (key and value as UTF-8, at most 65536 bytes each), kept for the next session when none is recording. A later value of
 * the same key holds. 0, -EINVAL, or -ENOMEM (also beyond 65536 keys). */
POSTRUN_API int postrun_metadata(const char *key, const char *value);

/* Nanoseconds of CLOCK_REALTIME as the library's own clock gives them, for measurements that accompany a trace. */
POSTRUN_API int64_t postrun_now_ns(void);

#ifdef __cplusplus
}
#endif

#endif /* POSTRUN_H */
