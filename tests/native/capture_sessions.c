/* capture_sessions.c BEHAVIOR FOLDER ROUNDS - a session leaves nothing behind, and rejects values out of range. */
#include "capture_check.h"

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static int descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder)) {
        count++;
    }
    closedir(folder);
    return count;
}

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

static void *one_record(void *unused) {
    postrun_begin(name_of("thread"), 1);
    postrun_end();
    return unused;
}

/* Sizes of rings change, threads come and go; files are removed as they pile up. */
static void loop(const char *folder, int rounds) {
    int open_before = 0;
    long memory_before = 0, threads = status("Threads:"); /* a sanitizer may have one */
    uint32_t name = name_of("step");
    for (int i = 0; i < rounds; i++) {
        configure(folder, i % 100 < 50 ? 256 : 512, 0, 0, 0);
        EQUAL(postrun_start(), 0);
        char path[4096];
        CHECK(postrun_path(path, sizeof path) > 0);
        EQUAL(postrun_path(path, 3), -ENAMETOOLONG);
        postrun_begin(name, i);
        postrun_begin(name, i);
        postrun_end();
        uint64_t handle = postrun_range_begin(name, i);
        if (i % 2) {
            EQUAL(postrun_range_end(handle), 0);
        }
        postrun_metadata("round", "again");
        if (i % 10 == 0) {
            pthread_t thread;
            EQUAL(pthread_create(&thread, NULL, one_record, NULL), 0);
            EQUAL(pthread_join(thread, NULL), 0);
        }
        EQUAL(postrun_stop(), 0);
        EQUAL(postrun_path(path, sizeof path), -ENOENT);
        postrun_statistics s = statistics();
        EQUAL(s.written, 3 + (i % 10 == 0));
        EQUAL(s.lost, 0);
        EQUAL(s.unbalanced, 0);
        if (i >= 1) {
            CHECK(unlink(path) == 0 || errno == ENOENT);
        }
        if (i == rounds / 2) {
            open_before = descriptors();
            memory_before = status("VmRSS:");
        }
    }
    EQUAL(descriptors(), open_before);
    CHECK(status("Threads:") <= threads + 1);
    tell("threads", (uint64_t)status("Threads:"));
    tell("grown_kib", (uint64_t)(status("VmRSS:") > memory_before ? status("VmRSS:") - memory_before : 0));
}

/* A file each round: it is written by the flush alone. */
static void rotate(const char *folder, int rounds) {
    configure(folder, 0, 60000, 4096, 0);
    EQUAL(postrun_metadata("fact", "in every file"), 0);
    EQUAL(postrun_start(), 0);
    uint32_t name = name_of("step");
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < 500; k++) {
            postrun_begin(name, (int64_t)rand() << 20); /* of 8 bytes: 500 fill a file */
            postrun_end();
        }
        EQUAL(postrun_flush(), 0);
    }
    EQUAL(postrun_stop(), 0);
}

/* A record each 50 ms, under several names; one name comes later. A range is open all the time. */
static void record_slowly(int first, int rounds) {
    uint64_t all = postrun_range_begin(name_of("all"), first);
    for (int i = first; i < first + rounds; i++) {
        postrun_begin(name_of(i < first + rounds / 2 ? "early" : "late"), i);
        usleep(50000);
        postrun_end();
        postrun_counter(name_of("count"), i);
    }
    EQUAL(postrun_range_end(all), 0);
}

static void configure_age(const char *folder, uint64_t rotate_s, uint32_t flags) {
    postrun_config c = POSTRUN_CONFIG_INIT;
    c.directory = folder;
    c.drain_ms = 10;
    c.rotate_s = rotate_s;
    c.flags = flags;
    EQUAL(postrun_configure(&c), 0);
}

static void aged(const char *folder, int rounds) {
    configure_age(folder, 1, 0);
    EQUAL(postrun_metadata("fact", "in every file"), 0);
    EQUAL(postrun_start(), 0);
    record_slowly(0, rounds);
    EQUAL(postrun_stop(), 0);
}

static void aged_child(const char *folder, int rounds) {
    configure_age(folder, 1, POSTRUN_FOLLOW_FORK);
    EQUAL(postrun_start(), 0);
    pid_t child = fork();
    if (child == 0) {
        record_slowly(1000, rounds);
        EQUAL(postrun_stop(), 0);
        _exit(0);
    }
    int how = -1;
    CHECK(waitpid(child, &how, 0) == child);
    EQUAL(how, 0);
    EQUAL(postrun_stop(), 0);
}

/* Nothing, then a record, then nothing, then a record; the configuration does not set the age of files. */
static void idle(const char *folder, int rounds) {
    configure_age(folder, 0, 0);
    EQUAL(postrun_start(), 0);
    for (int i = 0; i < rounds; i++) {
        usleep(1300000);
        postrun_begin(name_of("step"), i);
        postrun_end();
        EQUAL(postrun_flush(), 0);
    }
    EQUAL(postrun_stop(), 0);
}

static int try(postrun_config c) { return postrun_configure(&c); }

static void limits(const char *folder, int rounds) {
    (void)rounds;
    postrun_config good = POSTRUN_CONFIG_INIT, c;
    good.directory = folder;
    EQUAL(try(good), 0);
#define REFUSED(field, value) \
    c = good;                 \
    c.field = value;          \
    EQUAL(try(c), -EINVAL)
#define TAKEN(field, value) \
    c = good;               \
    c.field = value;        \
    EQUAL(try(c), 0)
    REFUSED(ring_records, 1000);
    REFUSED(ring_records, 32);
    REFUSED(ring_records, 1u << 23);
    REFUSED(sample_ms, 250);
    REFUSED(rotate_bytes, 100);
    REFUSED(drain_ms, 60001);
    REFUSED(zstd_level, 23);
    REFUSED(flags, 1u << 31);
    REFUSED(directory, "");
    REFUSED(size, 0);
    TAKEN(ring_records, 64);
    TAKEN(sample_ms, 100);
    TAKEN(sample_ms, 60000);
    TAKEN(rotate_s, UINT64_MAX);
    TAKEN(size, offsetof(postrun_config, rotate_bytes)); /* an older program */
    struct { /* what has been added since begins where it ended */
        size_t size;
        const char *directory;
        uint64_t rotate_bytes;
        uint32_t ring_records, drain_ms, sample_ms, sample_for_s;
        int32_t zstd_level;
        uint32_t flags, cpu_for_s;
    } older;
    EQUAL(offsetof(postrun_config, rotate_s), sizeof older);
    struct {
        postrun_config known;
        uint64_t newer;
    } longer = {.known = good};
    longer.known.size = sizeof longer;
    EQUAL(postrun_configure(&longer.known), 0);
    longer.newer = 1;
    EQUAL(postrun_configure(&longer.known), -EINVAL);
    EQUAL(postrun_configure(NULL), 0);
    postrun_statistics s = {.size = offsetof(postrun_statistics, lost), .lost = 42};
    postrun_get_statistics(&s);
    EQUAL(s.lost, 42);
    int64_t now = postrun_now_ns();
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    CHECK(llabs((int64_t)t.tv_sec * 1000000000 + t.tv_nsec - now) < 1000000000);
}

/* A signal of the program never meets a thread of the library. */
static pthread_t main_thread;
static _Atomic int signals, elsewhere;
static void on_signal(int number) {
    (void)number;
    signals++;
    elsewhere += !pthread_equal(pthread_self(), main_thread);
}

static void with_signals(const char *folder, int rounds) {
    main_thread = pthread_self();
    CHECK(signal(SIGALRM, on_signal) != SIG_ERR);
    configure(folder, 0, 1, 0, 0);
    EQUAL(postrun_start(), 0);
    for (int i = 0; i < rounds; i++) {
        CHECK(kill(getpid(), SIGALRM) == 0);
        usleep(1000);
    }
    EQUAL(postrun_stop(), 0);
    EQUAL(signals, rounds);
    EQUAL(elsewhere, 0);
}

/* Stop never runs: the end of the program does it. */
static void at_exit(const char *folder, int rounds) {
    start(folder);
    for (int i = 0; i < rounds; i++) {
        postrun_begin(name_of("step"), i);
        postrun_end();
    }
    exit(0);
}

static void without_handlers(const char *folder, int rounds) { /* without any handler: what is older than a drain period is there */
    start(folder);
    for (int i = 0; i < rounds; i++) {
        postrun_begin(name_of("step"), i);
        postrun_end();
    }
    usleep(500000);
    for (int i = 0; i < 10; i++) {
        postrun_begin(name_of("late"), i);
        postrun_end();
    }
    _exit(0);
}

static void by_environment(const char *folder, int rounds) { /* the program knows nothing of files */
    (void)folder;
    EQUAL(postrun_recording(), 1);
    for (int i = 0; i < rounds; i++) {
        postrun_begin(name_of("step"), i);
        postrun_end();
    }
}

static void steps_of(int first, int rounds) {
    for (int i = first; i < first + rounds; i++) {
        postrun_begin(name_of("step"), i);
        postrun_end();
    }
}

/* A program with sessions of its own, in one that the environment began. */
static void own_sessions(const char *folder, int rounds) {
    steps_of(0, rounds);
    postrun_config c = POSTRUN_CONFIG_INIT;
    c.directory = folder;
    c.sample_ms = 100;
    EQUAL(postrun_configure(&c), 0);
    c.sample_ms = 42;
    EQUAL(postrun_configure(&c), -EINVAL);
    c.sample_ms = 100;
    EQUAL(postrun_recording(), 1);
    EQUAL(postrun_start(), 0);
    EQUAL(postrun_start(), -EALREADY);
    EQUAL(postrun_configure(&c), -EBUSY);
    steps_of(rounds, rounds);
    EQUAL(postrun_stop(), 0);
    EQUAL(postrun_stop(), -EALREADY);
    steps_of(1000, rounds); /* not recorded */
    EQUAL(postrun_start(), 0);
    EQUAL(postrun_start(), -EALREADY);
    EQUAL(postrun_configure(&c), -EBUSY);
    steps_of(2 * rounds, rounds);
    usleep(300000); /* for the sampler, if it runs */
    EQUAL(postrun_stop(), 0);
}

/* A forked child goes on with the session, and has one of its own then. */
static void own_session_of_a_child(const char *folder, int rounds) {
    EQUAL(postrun_start(), 0);
    steps_of(0, rounds);
    postrun_config c = POSTRUN_CONFIG_INIT; /* does not follow forks, but the session does */
    c.directory = folder;
    pid_t child = fork();
    if (child == 0) {
        steps_of(rounds, rounds);
        EQUAL(postrun_configure(&c), 0);
        EQUAL(postrun_start(), 0);
        EQUAL(postrun_start(), -EALREADY);
        EQUAL(postrun_stop(), 0);
        _exit(0);
    }
    int how = -1;
    CHECK(waitpid(child, &how, 0) == child);
    EQUAL(how, 0);
    EQUAL(postrun_stop(), 0);
}

static void sampled(const char *folder, int rounds) {
    postrun_config c = POSTRUN_CONFIG_INIT;
    c.directory = folder;
    c.sample_ms = 100;
    EQUAL(postrun_configure(&c), 0);
    EQUAL(postrun_start(), 0);
    usleep((unsigned)rounds * 100000);
    EQUAL(postrun_stop(), 0);
}

static void compressed(const char *folder, int rounds) {
    postrun_config c = POSTRUN_CONFIG_INIT;
    c.directory = folder;
    c.zstd_level = 3;
    EQUAL(postrun_configure(&c), 0);
    int error = postrun_start();
    if (error == -ENOTSUP) {
        exit(77);
    }
    EQUAL(error, 0);
    for (int i = 0; i < rounds; i++) {
        postrun_begin(name_of("step"), i);
        postrun_end();
    }
    EQUAL(postrun_stop(), 0);
}

static const struct {
    const char *name;
    void (*run)(const char *folder, int rounds);
} behaviors[] = {{"loop", loop},
                 {"rotate", rotate},
                 {"aged", aged},
                 {"aged child", aged_child},
                 {"idle", idle},
                 {"limits", limits},
                 {"signals", with_signals},
                 {"exit", at_exit},
                 {"quick", without_handlers},
                 {"environment", by_environment},
                 {"own", own_sessions},
                 {"own child", own_session_of_a_child},
                 {"sampled", sampled},
                 {"compressed", compressed}};

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
