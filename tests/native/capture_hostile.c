/* capture_hostile.c BEHAVIOR FOLDER ROUNDS - recording in a program that ends, cancels, forks and interrupts at any time. */
#include "capture_check.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

static void record(int count) {
    uint32_t name = name_of("step");
    for (int i = 0; i < count; i++) {
        postrun_begin(name, i);
        postrun_end();
    }
}

static void every(long microseconds) {
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    EQUAL(setitimer(ITIMER_REAL, microseconds ? &timer : &(struct itimerval){{0, 0}, {0, 0}}, NULL), 0);
}

/* ---------------------------------------------------------------- ends */

static int calls_until_end;
static void end_the_program(int number) {
    (void)number;
    if (--calls_until_end == 0) {
        exit(0); /* with the library's destructor, wherever the program is */
    }
}

/* A signal ends the program while it starts, flushes or stops. */
static void exit_in_a_handler(const char *folder, int rounds) {
    calls_until_end = rounds;
    signal(SIGALRM, end_the_program);
    configure(folder, 0, 1, 0, 0);
    every(997);
    for (;;) {
        (void)postrun_start();
        record(10);
        (void)postrun_flush();
        (void)postrun_flush();
        (void)postrun_stop();
    }
}

static void record_late(void) {
    record(5);
    (void)postrun_flush();
}
static __attribute__((destructor)) void record_last(void) { record_late(); }
static void record_on_exit(void *key) { /* its key runs again after the library's own */
    static _Thread_local int again;
    record(5);
    if (again++ < 2) {
        pthread_setspecific(*(pthread_key_t *)key, key);
    }
}
static pthread_key_t early, late;
static void *record_then_exit(void *unused) {
    EQUAL(pthread_setspecific(early, &early), 0);
    EQUAL(pthread_setspecific(late, &late), 0);
    record(5);
    postrun_begin(name_of("open"), 0);
    return unused;
}

/* From handlers of the end of a thread and of the program, before and after the library's own. */
static void at_the_end(const char *folder, int rounds) {
    EQUAL(pthread_key_create(&early, record_on_exit), 0);
    EQUAL(atexit(record_late), 0);
    start(folder);
    EQUAL(pthread_key_create(&late, record_on_exit), 0);
    for (int i = 0; i < rounds; i++) {
        pthread_t thread;
        EQUAL(pthread_create(&thread, NULL, record_then_exit, NULL), 0);
        EQUAL(pthread_join(thread, NULL), 0);
    }
    EQUAL(postrun_flush(), 0);
    postrun_statistics s = statistics();
    EQUAL(s.recorded + s.lost, rounds * (5 + 1 + 4 * 5));
    tell_statistics();
    exit(0);
}

/* ---------------------------------------------------------------- interruptions */

static void record_in_a_handler(int number) {
    (void)number;
    for (int i = 0; i < 3; i++) {
        postrun_begin(1, i);
        postrun_counter(1, 2.5);
        postrun_end();
    }
    postrun_end(); /* one too many, or that of the range that is interrupted */
}

/* No handle, no name: these may take a lock. An interrupted record may be counted wrongly, but the file stays readable. */
static void handlers_that_record(const char *folder, int rounds) {
    (void)name_of("step");
    configure(folder, 256, 1, 0, 0);
    EQUAL(postrun_start(), 0);
    record(1);
    signal(SIGALRM, record_in_a_handler);
    every(500);
    for (int i = 0; i < rounds; i++) {
        record(100);
        uint64_t handle = postrun_range_begin(1, i);
        postrun_counter(1, i);
        (void)postrun_range_end(handle);
    }
    every(0);
    EQUAL(postrun_stop(), 0);
}

static void *use_until_canceled(void *unused) {
    for (;;) {
        (void)postrun_start();
        record(3);
        (void)postrun_flush();
        (void)postrun_stop();
        pthread_testcancel();
    }
    return unused;
}

static void cancelled(const char *folder, int rounds) {
    configure(folder, 256, 1, 0, 0);
    for (int i = 0; i < rounds; i++) {
        pthread_t threads[3];
        for (int k = 0; k < 3; k++) {
            EQUAL(pthread_create(&threads[k], NULL, use_until_canceled, NULL), 0);
        }
        usleep((unsigned)(i % 7) * 500);
        for (int k = 0; k < 3; k++) {
            EQUAL(pthread_cancel(threads[k]), 0);
        }
        for (int k = 0; k < 3; k++) {
            EQUAL(pthread_join(threads[k], NULL), 0);
        }
        (void)postrun_stop();
        EQUAL(postrun_start(), 0);
        record(3);
        EQUAL(postrun_stop(), 0);
        EQUAL(statistics().written, 3);
    }
}

/* ---------------------------------------------------------------- the environment */

static _Atomic int going = 1;
static void *change_environment(void *unused) {
    char name[32];
    for (int i = 0; going; i++) { /* the list of variables grows, and moves */
        snprintf(name, sizeof name, "A_VARIABLE_%d", i % 20000);
        setenv(name, "1", 1);
    }
    return unused;
}

static void environment_changes(const char *folder, int rounds) {
    configure(folder, 0, 60000, 4096, 0);
    EQUAL(postrun_start(), 0);
    pthread_t thread;
    EQUAL(pthread_create(&thread, NULL, change_environment, NULL), 0);
    for (int i = 0; i < rounds; i++) { /* a file each, written by the flush alone */
        for (int k = 0; k < 500; k++) {
            postrun_begin(name_of("step"), (int64_t)rand() << 20); /* of 8 bytes: 500 fill a file */
            postrun_end();
        }
        EQUAL(postrun_flush(), 0);
    }
    going = 0;
    EQUAL(pthread_join(thread, NULL), 0);
    EQUAL(postrun_stop(), 0);
}

/* The clock of the day is set while the program records. */
static _Atomic int64_t set_by;
int clock_gettime(clockid_t which, struct timespec *t) {
    long result = syscall(SYS_clock_gettime, which, t);
    if (which == CLOCK_REALTIME) {
        t->tv_sec += set_by;
    }
    return (int)result;
}

static void clock_is_set(const char *folder, int rounds) {
    configure(folder, 0, 20, 0, 0);
    EQUAL(postrun_start(), 0);
    uint32_t name = name_of("step");
    for (int i = 0; i < rounds; i++) {
        postrun_begin(name, i);
        usleep(100000);
        postrun_end();
        if (i == rounds / 2) {
            set_by = -3600;
        }
    }
    EQUAL(postrun_stop(), 0);
}

/* ---------------------------------------------------------------- what grows */

static long status(const char *key) { /* of /proc/self/status */
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) == 0) {
            value = atol(line + strlen(key));
        }
    }
    fclose(file);
    return value;
}

static void idle(const char *folder, int rounds) {
    long before = status("VmRSS:");
    postrun_config c = POSTRUN_CONFIG_INIT;
    c.directory = folder;
    c.sample_ms = 100;
    EQUAL(postrun_configure(&c), 0);
    EQUAL(postrun_start(), 0);
    for (int i = 0; i < rounds; i++) {
        record(10);
        usleep(100000);
    }
    tell("idle_kib", (uint64_t)(status("VmRSS:") - before));
    EQUAL(postrun_stop(), 0);
}

static void many_names(const char *folder, int rounds) {
    char text[4200];
    start(folder);
    memset(text, 'x', sizeof text);
    for (int i = 0; i < rounds; i++) {
        int length = snprintf(text, sizeof text, "name %d", i);
        if (i % 1000 == 0) {
            text[length] = (char)0xff; /* no UTF-8, and long */
            length = 4100;
        }
        uint32_t name = postrun_name(text, (size_t)length);
        CHECK(name != 0);
        postrun_begin(name, i);
        postrun_end();
        if (i % 8192 == 0) {
            EQUAL(postrun_flush(), 0);
        }
    }
    EQUAL(postrun_stop(), 0);
    EQUAL(statistics().written, rounds);
}

static void facts_that_change(const char *folder, int rounds) {
    char text[32];
    int refused = 0;
    long before = 0;
    for (int i = 0; i < 2 * rounds; i++) { /* the first half while nothing records */
        if (i == rounds) {
            start(folder);
        }
        snprintf(text, sizeof text, "%d", i);
        int error = postrun_metadata("step", text);
        CHECK(error == 0 || error == -ENOMEM);
        refused += error != 0;
        if (i % 1000 == 0) {
            EQUAL(postrun_flush(), 0);
        }
        if (i == rounds + rounds / 4) {
            before = status("VmRSS:");
        }
    }
    tell("grown_kib", (uint64_t)(status("VmRSS:") > before ? status("VmRSS:") - before : 0));
    EQUAL(postrun_stop(), 0);
    tell("refused", (uint64_t)refused);
}

static void metrics_alone(const char *folder, int rounds) {
    postrun_config c = POSTRUN_CONFIG_INIT;
    c.directory = folder;
    c.sample_ms = 100;
    c.drain_ms = 10;
    c.rotate_bytes = 4096;
    EQUAL(postrun_configure(&c), 0);
    EQUAL(postrun_start(), 0);
    usleep((unsigned)rounds * 100000);
    EQUAL(postrun_stop(), 0);
}

/* A ring overflows, in two sessions; the second one's loss is its own. */
static void overflow_twice(const char *folder, int rounds) {
    configure(folder, 64, 60000, 0, 0);
    for (int i = 0; i < 2; i++) {
        EQUAL(postrun_start(), 0);
        tell(i ? "second" : "first", (uint64_t)postrun_now_ns());
        do {
            record(rounds);
        } while (statistics().lost == 0);
        EQUAL(postrun_stop(), 0);
        usleep(20000);
    }
}

/* ---------------------------------------------------------------- limits */

static int files_in(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder));) {
        count += entry->d_name[0] != '.';
    }
    closedir(folder);
    return count;
}

static void no_descriptors(const char *folder, int rounds) {
    (void)rounds;
    struct rlimit old, none;
    EQUAL(getrlimit(RLIMIT_NOFILE, &old), 0);
    configure(folder, 0, 1, 4096, 0);
    int top = dup(0);
    none = (struct rlimit){(rlim_t)top, old.rlim_max};
    close(top);
    EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    EQUAL(postrun_start(), -EMFILE);
    EQUAL(postrun_recording(), 0);
    close(0); /* the only free one is one that the library must not take */
    EQUAL(postrun_start(), -EMFILE);
    EQUAL(setrlimit(RLIMIT_NOFILE, &old), 0);
    EQUAL(files_in(folder), 0);
    EQUAL(open("/dev/null", O_RDONLY), 0);
    EQUAL(postrun_start(), 0);
    none.rlim_cur++; /* what the file has, and no more */
    EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < 20000; i++) { /* through some files: the old one makes room for the next */
        postrun_begin(name_of("step"), rand());
        postrun_end();
        if (i % 500 == 0) {
            (void)postrun_flush();
        }
    }
    (void)postrun_stop();
}

static void no_threads(const char *folder, int rounds) { /* nor memory: refused, and nothing is left */
    (void)rounds;
    struct rlimit old;
    configure(folder, 0, 1, 0, 0);
    EQUAL(getrlimit(RLIMIT_AS, &old), 0);
    for (rlim_t more = 0; more < 24; more++) {
        struct rlimit little = {(rlim_t)status("VmSize:") * 1024 + (more << 20), old.rlim_max};
        EQUAL(setrlimit(RLIMIT_AS, &little), 0);
        int error = postrun_start();
        CHECK(error == 0 || error == -ENOMEM || error == -EAGAIN);
        record(100);
        postrun_range_end(postrun_range_begin(name_of("range"), 1));
        (void)postrun_metadata("key", "value");
        EQUAL(setrlimit(RLIMIT_AS, &old), 0);
        if (!error) {
            EQUAL(postrun_stop(), 0);
            postrun_statistics s = statistics();
            EQUAL(s.written + s.lost, 101);
        }
    }
    EQUAL(postrun_start(), 0);
    record(100);
    EQUAL(postrun_stop(), 0);
    EQUAL(statistics().written, 100);
}

/* ---------------------------------------------------------------- processes */

static void daemon_of(const char *folder, int rounds) { /* the usual two forks; it follows, to its own file */
    int told[2];
    EQUAL(pipe(told), 0);
    configure(folder, 0, 60000, 0, POSTRUN_FOLLOW_FORK);
    EQUAL(postrun_start(), 0);
    record(10);
    wait_until_others_sleep();
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            close(0);
            EQUAL(chdir("/"), 0);
            record(rounds);
            EQUAL(postrun_stop(), 0);
            uint64_t written = statistics().written;
            CHECK(write(told[1], &written, sizeof written) == sizeof written);
            _exit(0);
        }
        _exit(0);
    }
    close(told[1]);
    uint64_t written = 0;
    CHECK(read(told[0], &written, sizeof written) == sizeof written);
    EQUAL(written, rounds);
    wait(NULL);
    EQUAL(postrun_stop(), 0);
}

static void exec_while_recording(const char *folder, int rounds) {
    start(folder);
    record(rounds);
    usleep(200000);
    record(5);
    execl("/bin/true", "true", (char *)NULL);
}

static void unloaded(const char *folder, int rounds) { /* the library stays, as its threads run in it */
    (void)folder;
    void *library = dlopen("libpostrun.so", RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL);
    start(folder);
    dlclose(library);
    dlclose(library);
    record(rounds);
    EQUAL(postrun_stop(), 0);
}

static const struct {
    const char *name;
    void (*run)(const char *folder, int rounds);
} behaviors[] = {{"exit in a handler", exit_in_a_handler},
                 {"at the end", at_the_end},
                 {"handlers", handlers_that_record},
                 {"cancelled", cancelled},
                 {"environment", environment_changes},
                 {"clock", clock_is_set},
                 {"idle", idle},
                 {"names", many_names},
                 {"facts", facts_that_change},
                 {"metrics", metrics_alone},
                 {"overflow twice", overflow_twice},
                 {"descriptors", no_descriptors},
                 {"memory", no_threads},
                 {"daemon", daemon_of},
                 {"exec", exec_while_recording},
                 {"dlclose", unloaded}};

int main(int argc, char **argv) {
    CHECK(argc == 4);
    for (size_t i = 0; i < sizeof behaviors / sizeof *behaviors; i++) {
        if (strcmp(argv[1], behaviors[i].name) == 0) {
            behaviors[i].run(argv[2], atoi(argv[3]));
            tell_statistics();
            return 0;
        }
    }
    CHECK(!"known");
}
