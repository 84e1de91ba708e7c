/* capture_threads.c BEHAVIOR FOLDER THREADS ROUNDS - many threads at once lose no record that is not counted. */
#include "capture_check.h"

static int rounds;
static pthread_barrier_t all;
static uint32_t ids[64][500];

static void *record(void *number) {
    uint32_t name = name_of("work"), counter = name_of("count");
    for (int i = 0; i < rounds; i++) {
        postrun_begin(name, i);
        if (i % 4 == 0) {
            postrun_counter(counter, i);
        }
        postrun_end();
    }
    return number;
}

static void *intern(void *number) { /* the same names in another order */
    size_t mine = (size_t)(uintptr_t)number;
    char text[32];
    pthread_barrier_wait(&all);
    for (size_t i = 0; i < 500; i++) {
        size_t n = (i * 7 + mine * 131) % 500;
        snprintf(text, sizeof text, "name %zu", n);
        ids[mine][n] = name_of(text);
        postrun_begin(ids[mine][n], (int64_t)n);
        postrun_end();
    }
    return NULL;
}

static void names(void) {
    char text[5000];
    for (size_t n = 0; n < 500; n++) {
        snprintf(text, 32, "name %zu", n);
        for (int i = 0; i < rounds; i++) {
            EQUAL(ids[i][n], ids[0][n]);
        }
        EQUAL(name_of(text), ids[0][n]);
        CHECK(n == 0 || ids[0][n] != ids[0][n - 1]);
    }
    EQUAL(postrun_name(NULL, 3), 0);
    CHECK(postrun_name("", 0) != 0);
    CHECK(postrun_name("a\0b", 3) != postrun_name("a", 1));
    memset(text, 'x', sizeof text);
    EQUAL(postrun_name(text, 5000), postrun_name(text, 4095));
    CHECK(postrun_name(text, 4094) != postrun_name(text, 4095));
    memcpy(text + 4094, "\xc3\xa9", 2); /* a character that does not fit */
    EQUAL(postrun_name(text, 5000), postrun_name(text, 4094));
}

static _Atomic int going = 1;
static void *record_until_told(void *number) {
    uint32_t name = name_of("work");
    uint64_t open = 0;
    while (going) {
        for (int i = 0; i < 100; i++) {
            postrun_begin(name, i);
            uint64_t handle = postrun_range_begin(name, i);
            postrun_end();
            postrun_range_end(open);
            open = handle;
        }
        usleep(100);
    }
    return number;
}

static void *start_and_stop(void *number) {
    for (int i = 0; i < rounds; i++) {
        (void)postrun_start();
        (void)postrun_metadata("key", "value");
        (void)postrun_flush();
        (void)statistics();
        char path[4096];
        (void)postrun_path(path, sizeof path);
        (void)postrun_stop();
    }
    return number;
}

static void run_threads(void *(*run)(void *), int count) {
    pthread_t *threads = calloc((size_t)count, sizeof *threads);
    for (int i = 0; i < count; i++) {
        EQUAL(pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i), 0);
    }
    for (int i = 0; i < count; i++) {
        EQUAL(pthread_join(threads[i], NULL), 0);
    }
    free(threads);
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    int count = atoi(argv[3]);
    rounds = atoi(argv[4]);
    if (strcmp(argv[1], "overflow") == 0) { /* rings are drained only when a half-full ring wakes the drain thread */
        configure(argv[2], 64, 60000, 0, 0);
        EQUAL(postrun_start(), 0);
        run_threads(record, count);
        postrun_statistics s = statistics();
        EQUAL(s.recorded + s.lost, (int64_t)count * (rounds + (rounds + 3) / 4));
        EQUAL(postrun_stop(), 0);
        s = statistics();
        EQUAL(s.recorded + s.lost, (int64_t)count * (rounds + (rounds + 3) / 4));
        EQUAL(s.recorded, s.written);
    } else if (strcmp(argv[1], "record") == 0) {
        start(argv[2]);
        run_threads(record, count);
        EQUAL(postrun_stop(), 0);
        postrun_statistics s = statistics();
        EQUAL(s.recorded + s.lost, (int64_t)count * (rounds + (rounds + 3) / 4));
        EQUAL(s.recorded, s.written);
    } else if (strcmp(argv[1], "names") == 0) {
        start(argv[2]);
        rounds = count;
        CHECK(count <= 64 && pthread_barrier_init(&all, NULL, (unsigned)count) == 0);
        run_threads(intern, count);
        names();
        EQUAL(postrun_stop(), 0);
    } else if (strcmp(argv[1], "stop") == 0) { /* others record, start and stop at the same time */
        configure(argv[2], 1024, 1, 0, 0);
        pthread_t recording[2];
        EQUAL(pthread_create(&recording[0], NULL, record_until_told, NULL), 0);
        EQUAL(pthread_create(&recording[1], NULL, record_until_told, NULL), 0);
        run_threads(start_and_stop, count);
        EQUAL(postrun_recording(), 0);
        going = 0;
        pthread_join(recording[0], NULL);
        pthread_join(recording[1], NULL);
    } else {
        CHECK(!"known");
    }
    tell_statistics();
    return 0;
}
