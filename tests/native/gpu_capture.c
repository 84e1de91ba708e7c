/* gpu_capture.c - records GPU activity of the stub libraries: one behavior per mode. */
#include "capture_check.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

static void *library(const char *path, int flags) {
    void *found = dlopen(path, RTLD_NOW | flags);
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
    }
    CHECK(found != NULL);
    return found;
}

static void *stub(const char *name) { /* of the libcupti that the recorder loaded */
    const char *told = getenv("STUB_CUPTI"), *path = told ? told : getenv("POSTRUN_CUPTI");
    void *found = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    void *at = found ? dlsym(found, name) : NULL;
    if (found) {
        dlclose(found);
    }
    return at;
}

static char *text_of(const char *path) {
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    char *text = calloc(1, 1 << 22);
    size_t length = fread(text, 1, (1 << 22) - 1, file);
    text[length] = 0;
    fclose(file);
    return text;
}

static int play(const char *text) {
    int (*function)(const char *, uint64_t) = (int (*)(const char *, uint64_t))stub("stub_play");
    uint64_t base = (uint64_t)postrun_now_ns();
    int played = function ? function(text, base) : 0;
    if (played) {
        tell("base", base);
    }
    return played;
}

static void cuda_init(void) {
    int (*function)(unsigned) = (int (*)(unsigned))dlsym(library("libcuda.so.1", 0), "cuInit");
    EQUAL(function(0), 0);
}

static void gpu_session(const char *folder, uint32_t flags) {
    configure(folder, 0, 10, 0, POSTRUN_GPU | flags);
    EQUAL(postrun_start(), 0);
}

static void pause_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

/* Until the recorder has attached. */
static int wait_attached(int wanted) {
    for (int i = 0; i < 1000; i++) {
        int (*attached)(void) = (int (*)(void))stub("stub_attached");
        if ((attached && attached()) == wanted) {
            return 1;
        }
        pause_ms(10);
    }
    return 0;
}

static int other(const char *name) { return ((int (*)(void))stub(name))(); }
static int other_subscribe(int multiple) { return ((int (*)(const char *, int))stub("stub_other_subscribe"))("the other", multiple); }

static char *text;
static void *play_on_thread(void *times) {
    int (*function)(const char *, uint64_t) = (int (*)(const char *, uint64_t))stub("stub_play");
    for (int i = 0; i < *(int *)times; i++) {
        EQUAL(function(text, (uint64_t)postrun_now_ns()), 1);
    }
    return NULL;
}

static void tell_reason(const char *key, int expected) { /* and that what is too long is cut */
    char reason[512], cut[8];
    EQUAL(postrun_gpu_reason(reason, sizeof reason), expected);
    EQUAL(postrun_gpu_reason(cut, sizeof cut), expected);
    EQUAL(postrun_gpu_reason(NULL, 0), expected);
    CHECK(strncmp(cut, reason, sizeof cut - 1) == 0 && strlen(cut) <= sizeof cut - 1);
    CHECK((expected == 0) == (reason[0] == 0));
    fprintf(stderr, "%s: %s\n", key, reason);
}

static void leave(int number) { /* the end of a program, in a signal handler */
    (void)number;
    exit(0);
}

static void *leave_soon(void *argument) {
    pause_ms(500);
    pthread_kill(*(pthread_t *)argument, SIGALRM);
    return NULL;
}

static uint64_t resident_kib(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return (uint64_t)resident * 4;
}

int main(int argc, char **argv) {
    CHECK(argc >= 4);
    const char *mode = argv[1], *folder = argv[2];
    text = text_of(argv[3]);
    int number = argc > 4 ? atoi(argv[4]) : 0;
    if (strcmp(mode, "play") == 0) {
        gpu_session(folder, 0);
        tell("played", (uint64_t)play(text));
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "open") == 0) { /* whatever fails, the session is whole */
        gpu_session(folder, 0);
        uint32_t step = name_of("step");
        postrun_begin(step, 1);
        play(text);
        postrun_end();
        postrun_gpu(0);
        postrun_gpu(1);
        play(text);
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "window") == 0) {
        gpu_session(folder, POSTRUN_NO_GPU_YET);
        CHECK(!play(text));
        EQUAL(postrun_gpu(0), -EALREADY);
        EQUAL(postrun_gpu(1), 0);
        EQUAL(postrun_gpu(1), -EALREADY);
        tell("played", (uint64_t)play(text));
        EQUAL(postrun_gpu(0), 0);
        CHECK(!play(text));
        EQUAL(postrun_gpu(1), 0);
        tell("again", (uint64_t)play(text));
        EQUAL(postrun_stop(), 0);
        EQUAL(postrun_gpu(1), -EALREADY);
    } else if (strcmp(mode, "threads") == 0) {
        pthread_t threads[4];
        gpu_session(folder, 0);
        for (int i = 0; i < 4; i++) {
            EQUAL(pthread_create(&threads[i], NULL, play_on_thread, &number), 0);
        }
        for (int i = 0; i < 5; i++) {
            EQUAL(postrun_flush(), 0);
        }
        for (int i = 0; i < 4; i++) {
            EQUAL(pthread_join(threads[i], NULL), 0);
        }
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "hoard") == 0) {
        gpu_session(folder, 0);
        int (*hoard)(int) = (int (*)(int))stub("stub_hoard");
        tell("got", (uint64_t)hoard(number));
        play(text);
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "late") == 0) { /* records that come after the stop */
        gpu_session(folder, 0);
        play(text);
        EQUAL(postrun_stop(), 0);
        ((int (*)(const char *, uint64_t))stub("stub_play"))(text, (uint64_t)postrun_now_ns());
        ((void (*)(void))stub("stub_deliver"))();
    } else if (strcmp(mode, "cycles") == 0) {
        uint64_t before = 0;
        for (int i = 0; i < number; i++) {
            if (i == number / 4) {
                before = resident_kib();
            }
            gpu_session(folder, 0);
            play(text);
            EQUAL(postrun_stop(), 0);
            char path[4096];
            CHECK(postrun_path(path, sizeof path) == -ENOENT);
        }
        uint64_t after = resident_kib();
        tell("grown_kib", after > before ? after - before : 0);
    } else if (strcmp(mode, "environment") == 0 || strcmp(mode, "injected") == 0) {
        if (strcmp(mode, "environment") == 0) {
            CHECK(postrun_recording());
        }
        pause_ms(100);
        CHECK(!stub("stub_play")); /* as long as the program does not use CUDA */
        cuda_init();
        CHECK(postrun_recording());
        CHECK(wait_attached(1));
        tell("played", (uint64_t)play(text));
        if (number == 0) {
            EQUAL(postrun_stop(), 0); /* else the end of the program stops */
        }
    } else if (strcmp(mode, "unused") == 0) {
        pause_ms(100);
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "brief") == 0) {
        pause_ms(number); /* the recorder's thread has looked for CUDA once, and waits */
        cuda_init();
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "steps") == 0) { /* number: 0 values, 1 numbers in names, 2 neither, 3 handles */
        cuda_init();
        for (int i = 0; i < 8; i++) {
            char name[32];
            snprintf(name, sizeof name, number == 1 ? "step_%d" : "step", i);
            uint64_t handle = 0;
            if (number == 3) {
                handle = postrun_range_begin(name_of(name), i);
            } else {
                postrun_begin(name_of(name), number == 0 ? i : POSTRUN_NO_VALUE);
            }
            postrun_begin(name_of("Forward"), i);
            int (*attached)(void) = (int (*)(void))stub("stub_attached");
            int is = attached && attached();
            printf("step%d %d\n", i, is);
            if (is) {
                play(text);
            }
            postrun_end();
            if (number == 3) {
                EQUAL(postrun_range_end(handle), 0);
            } else {
                postrun_end();
            }
        }
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "time") == 0) {
        cuda_init();
        CHECK(wait_attached(1));
        play(text);
        CHECK(wait_attached(0));
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "signal") == 0) {
        cuda_init();
        pause_ms(150);
        CHECK(!stub("stub_attached"));
        raise(SIGUSR2);
        CHECK(wait_attached(1));
        play(text);
        raise(SIGUSR2);
        CHECK(wait_attached(0));
        EQUAL(postrun_stop(), 0);
        struct sigaction now;
        EQUAL(sigaction(SIGUSR2, NULL, &now), 0);
        CHECK(now.sa_handler == SIG_DFL);
    } else if (strcmp(mode, "fork") == 0) {
        configure(folder, 0, 60000, 0, POSTRUN_GPU | POSTRUN_FOLLOW_FORK);
        EQUAL(postrun_start(), 0);
        play(text);
        tell("parent", (uint64_t)getpid());
        fflush(stdout);
        wait_until_others_sleep();
        pid_t child = fork();
        if (child == 0) {
            postrun_begin(name_of("in the child"), 1);
            postrun_end();
            EQUAL(postrun_gpu(1), -ENOTSUP);
            EQUAL(postrun_stop(), 0);
            configure(folder, 0, 10, 0, POSTRUN_GPU);
            EQUAL(postrun_start(), 0);
            EQUAL(postrun_gpu(1), -ENOTSUP);
            exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        tell("child", (uint64_t)child);
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "busy") == 0) { /* the device never finishes */
        void *cuda = library("libcuda.so.1", 0);
        gpu_session(folder, 0);
        EQUAL(((int (*)(void *))dlsym(cuda, "cuCtxSetCurrent"))(&text), 0);
        play(text);
        EQUAL(postrun_stop(), 0);
        tell_statistics();
        fflush(stdout);
        _exit(0);
    } else if (strcmp(mode, "window2") == 0) {
        gpu_session(folder, 0);
        play(text);
        EQUAL(postrun_gpu(0), 0);
        int (*attached)(void) = (int (*)(void))stub("stub_attached");
        tell("between", (uint64_t)attached());
        pause_ms(number);
        EQUAL(postrun_gpu(1), 0);
        play(text);
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "foreign") == 0) {
        gpu_session(folder, 0);
        tell("foreign", (uint64_t)((int (*)(void))stub("stub_foreign"))());
        play(text);
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "windows") == 0) { /* that many */
        gpu_session(folder, POSTRUN_NO_GPU_YET);
        for (int i = 0; i < number; i++) {
            EQUAL(postrun_gpu(1), 0);
            play(text);
            EQUAL(postrun_gpu(0), 0);
        }
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "teardown") == 0) { /* the program changes its mind while it is recorded */
        gpu_session(folder, 0);
        play(text);
        setenv("TEARDOWN_CUPTI", "0", 1);
        EQUAL(postrun_gpu(0), 0);
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "takeover") == 0) { /* another client ends CUPTI and never asked */
        gpu_session(folder, 0);
        play(text);
        pause_ms(1300); /* the records come in */
        tell("before", (uint64_t)postrun_now_ns());
        other("stub_other_finalize");
        pause_ms(number); /* the recorder requests records, or not yet */
        tell_reason("lost", number ? -ENOTSUP : 0);
        tell("after", (uint64_t)play(text));
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "takeover_exit") == 0) {
        gpu_session(folder, 0);
        play(text);
        pause_ms(1300);
        other("stub_other_finalize");
        fflush(stdout);
        exit(0);
    } else if (strcmp(mode, "refused") == 0) { /* another client asks while a window is open, and after it */
        gpu_session(folder, 0);
        tell("in", (uint64_t)other_subscribe(0));
        play(text);
        EQUAL(postrun_gpu(0), 0);
        tell("after", (uint64_t)other_subscribe(0));
        tell("threads", (uint64_t)other("stub_other_thread_ids"));
        tell("with_it", (uint64_t)-postrun_gpu(1));
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "together") == 0) { /* two clients that both allow others */
        gpu_session(folder, 0);
        tell("in", (uint64_t)other_subscribe(1));
        other("stub_other_profile");
        play(text);
        EQUAL(postrun_gpu(0), 0);
        play(text);
        ((void (*)(void))stub("stub_deliver"))();
        tell("others", (uint64_t)other("stub_other_kernels"));
        EQUAL(postrun_gpu(1), 0);
        play(text);
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "yield") == 0) { /* number: the other one never ends its subscription */
        gpu_session(folder, 0);
        play(text);
        EQUAL(postrun_gpu_yield("PyTorch's profiler"), 0);
        EQUAL(postrun_gpu_yield("another one in it"), 0);
        tell("attached", (uint64_t)other("stub_attached"));
        tell("in", (uint64_t)other_subscribe(0));
        other("stub_other_profile");
        play(text);
        EQUAL(postrun_gpu(1), -ENOTSUP);
        ((void (*)(void))stub("stub_deliver"))();
        tell("others", (uint64_t)other("stub_other_kernels"));
        if (number) {
            tell_reason("yielded", -ENOTSUP);
        } else {
            other("stub_other_finalize");
        }
        EQUAL(postrun_gpu_yield(NULL), 0);
        EQUAL(postrun_gpu_yield(NULL), 0);
        EQUAL(postrun_gpu_yield(NULL), -EALREADY);
        if (number) {
            pause_ms(2500);
            tell_reason("stays", -ENOTSUP);
        } else {
            CHECK(wait_attached(1));
            play(text);
        }
        EQUAL(postrun_stop(), 0);
        EQUAL(postrun_gpu_yield("after the end"), -EALREADY);
    } else if (strcmp(mode, "outside") == 0) { /* a kind is enabled after the window, and we receive records */
        gpu_session(folder, 0);
        play(text);
        EQUAL(postrun_gpu(0), 0);
        pause_ms(20);
        ((int (*)(int))stub("stub_other_enable"))(10);
        tell("played", (uint64_t)play(text));
        ((void (*)(void))stub("stub_deliver"))();
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "keeps") == 0) { /* CUPTI keeps all buffers of `number` windows */
        gpu_session(folder, POSTRUN_NO_GPU_YET);
        for (int i = 0; i < number; i++) {
            EQUAL(postrun_gpu(1), 0);
            CHECK(((int (*)(int))stub("stub_hoard"))(2) == 2);
            ((void (*)(void))stub("stub_forget"))();
            EQUAL(postrun_gpu(0), 0);
        }
        EQUAL(postrun_gpu(1), 0);
        play(text);
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "reason") == 0) { /* number: the flags */
        tell_reason("before", -EALREADY);
        configure(folder, 0, 10, 0, (uint32_t)number);
        EQUAL(postrun_start(), 0);
        tell_reason("in", argc > 5 ? -ENOTSUP : 0);
        EQUAL(postrun_stop(), 0);
        tell_reason("after", -EALREADY);
    } else if (strcmp(mode, "leave") == 0) { /* a signal handler ends the program while a window closes */
        void *cuda = library("libcuda.so.1", 0);
        gpu_session(folder, 0);
        EQUAL(((int (*)(void *))dlsym(cuda, "cuCtxSetCurrent"))(&text), 0);
        postrun_begin(name_of("step"), 1);
        postrun_end();
        struct sigaction action = {.sa_handler = leave};
        EQUAL(sigaction(SIGALRM, &action, NULL), 0);
        pthread_t self = pthread_self(), other;
        EQUAL(pthread_create(&other, NULL, leave_soon, &self), 0);
        postrun_gpu(0);
        CHECK(!"interrupted");
    } else if (strcmp(mode, "yield_window") == 0) { /* the program opens a window while its own profiler runs */
        gpu_session(folder, POSTRUN_NO_GPU_YET);
        EQUAL(postrun_gpu_yield("PyTorch's profiler"), 0);
        EQUAL(postrun_gpu(1), -ENOTSUP);
        tell_reason("in", -ENOTSUP);
        EQUAL(postrun_gpu_yield(NULL), 0);
        EQUAL(postrun_gpu(1), -ENOTSUP);
        CHECK(wait_attached(1));
        for (int i = 0; i < 1000 && postrun_gpu_reason(NULL, 0); i++) { /* it goes after the last kind is enabled */
            pause_ms(10);
        }
        tell_reason("after", 0);
        play(text);
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "yield_steps") == 0) { /* the steps of the window pass meanwhile */
        cuda_init();
        EQUAL(postrun_gpu_yield("PyTorch's profiler"), 0);
        for (int i = 0; i < 8; i++) {
            postrun_begin(name_of("step"), i);
            postrun_end();
        }
        EQUAL(postrun_gpu_yield(NULL), 0);
        pause_ms(1300);
        CHECK(!stub("stub_attached"));
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(mode, "exit") == 0) {
        gpu_session(folder, 0);
        pause_ms(number); /* until the recorder requests records, as it does each second */
        play(text);
        fflush(stdout);
        exit(0); /* without a stop */
    } else {
        CHECK(!"a mode");
    }
    free(text);
    if (strcmp(mode, "injected") != 0 || number == 0) {
        tell_statistics();
    }
    return 0;
}
