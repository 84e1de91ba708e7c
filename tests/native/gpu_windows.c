/* gpu_windows.c - a program with CUDA and steps, whose GPU activity is recorded in windows of the environment: one behavior a mode. */
#include "capture_check.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <time.h>

static void pause_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static void cuda_init(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(cuda != NULL);
    EQUAL(((int (*)(unsigned))dlsym(cuda, "cuInit"))(0), 0);
}

static void *stub(const char *name) { /* of the libcupti that the recorder loaded */
    void *found = dlopen(getenv("POSTRUN_CUPTI"), RTLD_NOW | RTLD_NOLOAD), *at = found ? dlsym(found, name) : NULL;
    if (found) {
        dlclose(found);
    }
    return at;
}

static int launch(uint32_t correlation) {
    int (*function)(uint32_t) = (int (*)(uint32_t))stub("stub_launch");
    return function ? function(correlation) : 0;
}

static int attached(void) {
    int (*function)(void) = (int (*)(void))stub("stub_attached");
    return function && function();
}

static int wait_attached(int wanted) {
    for (int i = 0; i < 1000 && attached() != wanted; i++) {
        pause_ms(5);
    }
    return attached() == wanted;
}

/* Step `number`, with a kernel of its number at its start and one at its end. */
static void step(int number, long ms) {
    postrun_begin(name_of("step"), number);
    postrun_begin(name_of("Forward"), POSTRUN_NO_VALUE);
    launch((uint32_t)number);
    postrun_end();
    if (ms) {
        pause_ms(ms);
    }
    launch((uint32_t)number);
    postrun_end();
}

#define LAUNCHES 100
static pthread_barrier_t barrier;
static int threads_count, rounds;
static _Atomic long faults; /* page faults of launches after the first round */
static void *launch_on_thread(void *argument) {
    int own = (int)(intptr_t)argument;
    for (int round = 0; round < rounds; round++) {
        struct rusage before, after;
        pthread_barrier_wait(&barrier);
        getrusage(RUSAGE_THREAD, &before);
        for (int i = 0; i < LAUNCHES; i++) {
            launch((uint32_t)((round * threads_count + own) * LAUNCHES + i));
        }
        getrusage(RUSAGE_THREAD, &after);
        faults += round ? after.ru_minflt - before.ru_minflt : 0;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

static int steps_of_thread;
static void *step_on_thread(void *argument) {
    (void)argument;
    for (int i = 0; i < steps_of_thread; i++) {
        step(i, 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc >= 2);
    const char *mode = argv[1];
    int number = argc > 2 ? atoi(argv[2]) : 0;
    long ms = argc > 3 ? atol(argv[3]) : 0;
    CHECK(postrun_recording());
    if (strcmp(mode, "steps") == 0) { /* `number` steps of `ms` */
        step(0, 0);
        cuda_init();
        for (int i = 1; i < number; i++) {
            step(i, ms);
        }
    } else if (strcmp(mode, "no-steps") == 0) { /* for `ms`, a kernel each 2 ms */
        cuda_init();
        for (uint32_t i = 0; i < (uint32_t)ms / 2; i++) {
            launch(i);
            pause_ms(2);
        }
    } else if (strcmp(mode, "no-cuda") == 0) {
        pause_ms(ms);
    } else if (strcmp(mode, "late-steps") == 0) { /* they begin in a window of seconds */
        cuda_init();
        CHECK(wait_attached(1));
        launch(100);
        step(0, 0);
        CHECK(wait_attached(0));
        launch(101);
        for (int i = 1; i < number; i++) {
            step(i, ms);
        }
        pause_ms(ms * 10);
        CHECK(!attached());
    } else if (strcmp(mode, "many") == 0) { /* `number` launches each `ms`, twenty times */
        cuda_init();
        CHECK(wait_attached(1));
        int (*function)(uint32_t) = (int (*)(uint32_t))stub("stub_launch");
        for (int round = 0; round < 20; round++) {
            for (int i = 0; i < number; i++) {
                function((uint32_t)i * 7919u | 1u << 31);
            }
            pause_ms(ms);
        }
    } else if (strcmp(mode, "program") == 0) { /* the program has windows of its own, while one of seconds is open */
        cuda_init();
        CHECK(wait_attached(1));
        launch(1);
        EQUAL(postrun_gpu(1), 0);
        launch(2);
        EQUAL(postrun_gpu(1), -EALREADY);
        EQUAL(postrun_gpu(0), 0);
        launch(3);
        for (int i = 10; i < 20; i++) {
            step(i, ms);
        }
        EQUAL(postrun_gpu(0), -EALREADY);
        EQUAL(postrun_gpu(1), 0);
        launch(4);
        EQUAL(postrun_gpu(0), 0);
    } else if (strcmp(mode, "close") == 0) { /* the program closes the one that is open */
        cuda_init();
        CHECK(wait_attached(1));
        launch(1);
        EQUAL(postrun_gpu(0), 0);
        CHECK(!attached());
        pause_ms(ms);
        CHECK(!attached());
    } else if (strcmp(mode, "threads") == 0) { /* steps on several threads, with windows all the time */
        pthread_t threads[4];
        cuda_init();
        steps_of_thread = number;
        for (int i = 0; i < 4; i++) {
            EQUAL(pthread_create(&threads[i], NULL, step_on_thread, NULL), 0);
        }
        for (int i = 0; i < 4; i++) {
            EQUAL(pthread_join(threads[i], NULL), 0);
        }
    } else if (strcmp(mode, "launches") == 0) { /* `number` threads of 100 launches, `ms` rounds of them, each with a flush at its end */
        pthread_t threads[256];
        cuda_init();
        CHECK(number <= 256 && wait_attached(1));
        uint64_t (*requests)(void) = (uint64_t (*)(void))stub("stub_requests");
        void *cupti = dlopen(getenv("POSTRUN_CUPTI"), RTLD_NOW | RTLD_NOLOAD);
        int (*flush)(uint32_t) = (int (*)(uint32_t))dlsym(cupti, "cuptiActivityFlushAll");
        threads_count = number, rounds = (int)ms;
        EQUAL(pthread_barrier_init(&barrier, NULL, (unsigned)number + 1), 0);
        for (intptr_t i = 0; i < number; i++) {
            EQUAL(pthread_create(&threads[i], NULL, launch_on_thread, (void *)i), 0);
        }
        for (int round = 0; round < rounds; round++) {
            pthread_barrier_wait(&barrier);
            pthread_barrier_wait(&barrier);
            EQUAL(flush(0), 0);
        }
        for (int i = 0; i < number; i++) {
            EQUAL(pthread_join(threads[i], NULL), 0);
        }
        tell("faults", (uint64_t)faults);
        struct rusage all;
        getrusage(RUSAGE_SELF, &all);
        tell("requests", requests());
        tell("peak_kib", (uint64_t)all.ru_maxrss);
    } else {
        CHECK(!"a mode");
    }
    EQUAL(postrun_stop(), 0);
    tell_statistics();
    return 0;
}
