/* capture_ranges.c BEHAVIOR FOLDER - writes ranges, counters and facts. test_capture_library.py compares the files with the code here. */
#include "capture_check.h"

static void nesting(void) {
    uint32_t step = name_of("step"), forward = name_of("forward"), loss = name_of("loss");
    EQUAL(step, name_of("step"));
    CHECK(step && step != forward);
    for (int i = 0; i < 100; i++) {
        postrun_begin(step, i);
        postrun_begin(forward, POSTRUN_NO_VALUE);
        postrun_end();
        postrun_counter(loss, 1.0 / (i + 1));
        postrun_end();
    }
}

static void deep(void) { /* 100 deep: 64 are recorded, 36 counted */
    uint32_t name = name_of("level");
    for (int i = 0; i < 100; i++) {
        postrun_begin(name, i);
    }
    for (int i = 0; i < 100; i++) {
        postrun_end();
    }
    postrun_begin(name, 1000); /* all is well again */
    postrun_end();
}

static void unbalanced(void) {
    uint32_t name = name_of("range");
    postrun_end();
    postrun_end();
    postrun_begin(name, 1);
    postrun_end();
    postrun_end();
    postrun_begin(name, 2);
    postrun_end();
}

static void open_ranges(void) { /* closed by stop */
    postrun_begin(name_of("done"), 0);
    postrun_end();
    postrun_begin(name_of("outer"), 1);
    postrun_begin(name_of("inner"), 2);
    CHECK(postrun_range_begin(name_of("handle"), 3) != 0);
}

static uint64_t handles[1000];

static void *end_odd(void *unused) {
    for (int i = 999; i >= 0; i -= 2) {
        EQUAL(postrun_range_end(handles[i]), 0);
    }
    return unused;
}

static void by_handle(void) {
    uint32_t name = name_of("task");
    for (int i = 0; i < 1000; i++) {
        handles[i] = postrun_range_begin(name, i);
        CHECK(handles[i] != 0);
    }
    pthread_t other;
    EQUAL(pthread_create(&other, NULL, end_odd, NULL), 0);
    for (int i = 0; i < 1000; i += 2) {
        EQUAL(postrun_range_end(handles[i]), 0);
    }
    EQUAL(pthread_join(other, NULL), 0);
    for (int i = 0; i < 1000; i++) {
        EQUAL(postrun_range_end(handles[i]), -EINVAL); /* once is enough */
    }
    EQUAL(postrun_range_end(0), 0);
    EQUAL(postrun_range_end(12345), -EINVAL);
    EQUAL(postrun_range_end(UINT64_MAX / 3), -EINVAL);
    uint64_t again = postrun_range_begin(name, 1000);
    for (int i = 0; i < 1000; i++) {
        CHECK(again != handles[i]);
    }
    EQUAL(postrun_range_end(again), 0);
}

static void values(void) {
    uint32_t name = name_of("value"), counter = name_of("counter");
    int64_t some[] = {0, -1, 1, INT64_MAX, INT64_MIN + 1, POSTRUN_NO_VALUE};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        postrun_begin(name, some[i]);
        postrun_end();
    }
    double numbers[] = {0, -1.5, 1e300, 0.1, 12345.678};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        postrun_counter(counter, numbers[i]);
    }
    postrun_begin(987654, 1); /* a name that nobody was given */
    postrun_end();
}

static void facts(void) {
    EQUAL(postrun_metadata("model", "ResNet-50 \xc3\xa9"), 0);
    EQUAL(postrun_metadata("model", "ResNet-50 \xc3\xa9"), 0); /* known */
    EQUAL(postrun_metadata("batch", "32"), 0);
    EQUAL(postrun_flush(), 0);
    EQUAL(postrun_metadata("batch", "64"), 0);
    EQUAL(postrun_metadata("", "x"), -EINVAL);
    EQUAL(postrun_metadata(NULL, "x"), -EINVAL);
    EQUAL(postrun_metadata("x", NULL), -EINVAL);
}

static const struct {
    const char *name;
    void (*run)(void);
} behaviors[] = {{"nesting", nesting}, {"deep", deep},  {"unbalanced", unbalanced}, {"open", open_ranges}, {"handles", by_handle},
                 {"values", values},   {"facts", facts}};

int main(int argc, char **argv) {
    CHECK(argc == 3);
    EQUAL(postrun_metadata("before", "start"), 0);
    /* Nothing happens before start and after stop. */
    postrun_begin(name_of("never"), 1);
    postrun_counter(name_of("never"), 1);
    postrun_end();
    EQUAL(postrun_range_begin(name_of("never"), 1), 0);
    EQUAL(postrun_recording(), 0);
    EQUAL(postrun_stop(), -EALREADY);
    EQUAL(postrun_flush(), 0);
    start(argv[2]);
    EQUAL(postrun_recording(), 1);
    EQUAL(postrun_start(), -EALREADY);
    EQUAL(postrun_configure(NULL), -EBUSY);
    for (size_t i = 0; i < sizeof behaviors / sizeof *behaviors; i++) {
        if (strcmp(argv[1], behaviors[i].name) == 0) {
            behaviors[i].run();
        }
    }
    EQUAL(postrun_stop(), 0);
    EQUAL(postrun_recording(), 0);
    for (int i = 0; i < 1000 && handles[i]; i++) {
        EQUAL(postrun_range_end(handles[i]), -EINVAL);
    }
    postrun_begin(name_of("never"), 1);
    postrun_end();
    tell_statistics();
    return 0;
}
