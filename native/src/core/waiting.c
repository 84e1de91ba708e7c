/* waiting.c - waits on a word until another thread sets it: a futex on Linux, polling elsewhere. */
#define _GNU_SOURCE
#include "waiting.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#define NS_PER_MS 1000000

void postrun_wait_keep(_Atomic uint32_t *word, int64_t ns) {
    if (ns > 0 && atomic_load(word) == 0) {
        struct timespec time = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
#if defined(__linux__)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0);
#else
        time = (struct timespec){0, NS_PER_MS};
        for (; ns > 0 && atomic_load(word) == 0; ns -= NS_PER_MS) {
            nanosleep(&time, NULL);
        }
#endif
    }
}

void postrun_wait(_Atomic uint32_t *word, int64_t ns) {
    postrun_wait_keep(word, ns);
    atomic_store(word, 0);
}

void postrun_wake(_Atomic uint32_t *word) {
    if (atomic_load_explicit(word, memory_order_relaxed) == 0 && atomic_exchange(word, 1) == 0) {
#if defined(__linux__)
        int saved = errno;
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        errno = saved;
#endif
    }
}
