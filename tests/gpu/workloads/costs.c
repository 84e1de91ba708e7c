/* costs.c - the cost of recording: time per launch and replay, bytes, growth over minutes; load for the sampler. */
#define _GNU_SOURCE
#include <dirent.h>

#include "modes.h"
#include "session.h"

#define BLOCKS 7
#define KERNELS 20 /* of the graph */

static void launches(long count) {
    for (long i = 0; i < count; i++) {
        device_launch_small(DEVICE_ALPHA);
    }
}

static void replays(long count) {
    for (long i = 0; i < count; i++) {
        device_graph_launch();
    }
}

/* Nanoseconds per operation until the device is done. */
static double block(void (*work)(long), long count) {
    device_synchronize();
    int64_t begin = program_time(CLOCK_MONOTONIC);
    work(count);
    device_synchronize();
    return (double)(program_time(CLOCK_MONOTONIC) - begin) / (double)count;
}

static void print_blocks(const char *name, const double *ns) {
    printf("\"%s\": [", name);
    for (int i = 0; i < BLOCKS; i++) {
        printf("%s%.2f", i ? ", " : "", ns[i]);
    }
    printf("]");
}

/* overhead launches|replays COUNT: blocks before the first window, then in windows and after them in turns. */
int mode_overhead(int argc, char **argv) {
    void (*work)(long) = argc > 1 && strcmp(argv[1], "replays") == 0 ? replays : launches;
    long count = NUMBER(2, 20000);
    double before[BLOCKS], on[BLOCKS], off[BLOCKS];
    device_begin();
    device_graph_build(KERNELS, 0);
    session_start(POSTRUN_NO_GPU_YET);
    block(work, count); /* warm-up */
    for (int i = 0; i < BLOCKS; i++) {
        before[i] = block(work, count);
    }
    for (int i = 0; i < BLOCKS; i++) {
        session_window(1);
        on[i] = block(work, count);
        session_window(0);
        off[i] = block(work, count);
    }
    session_stop();
    printf("{");
    print_blocks("before", before);
    printf(", ");
    print_blocks("on", on);
    printf(", ");
    print_blocks("off", off);
    printf("}\n");
    return 0;
}

/* rate LAUNCHES PER_SECOND: evenly over time, in groups of 150. */
int mode_rate(int argc, char **argv) {
    long count = NUMBER(1, 1000000), per_second = NUMBER(2, 150000), launched = 0;
    device_begin();
    session_start(0);
    int64_t begin = program_time(CLOCK_MONOTONIC);
    while (launched < count) {
        for (int i = 0; i < 150 && launched < count; i++, launched++) {
            device_launch_small(DEVICE_ALPHA);
        }
        int64_t due = begin + launched * 1000000000 / per_second, now = program_time(CLOCK_MONOTONIC);
        if (due > now) {
            usleep((unsigned)((due - now) / 1000));
        }
    }
    double seconds = (double)(program_time(CLOCK_MONOTONIC) - begin) / 1e9;
    device_synchronize();
    session_stop();
    printf("{\"launched\": %ld, \"per_second\": %.0f}\n", launched, (double)launched / seconds);
    return 0;
}

/* Processor time of all threads but the main one, in clock ticks. */
static long other_threads_ticks(void) {
    DIR *tasks = opendir("/proc/self/task");
    long sum = 0;
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        char path[300], text[1024] = "";
        long user, kernel;
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == (int)getpid()) {
            continue;
        }
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file) {
            text[fread(text, 1, sizeof text - 1, file)] = 0;
            fclose(file);
        }
        const char *after_name = strrchr(text, ')');
        if (after_name && sscanf(after_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &kernel) == 2) {
            sum += user + kernel;
        }
    }
    if (tasks) {
        closedir(tasks);
    }
    return sum;
}

static long resident_kib(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &pages, &resident) != 2) {
        return 0;
    }
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* long SECONDS KERNELS: graph kernels evenly over the time, in one window; usage in each third of it. */
int mode_long(int argc, char **argv) {
    long seconds = NUMBER(1, 180), kernels = NUMBER(2, 2000000), total = kernels / KERNELS, done = 0;
    long ticks[4], resident[4], device_kib[4];
    device_begin();
    device_graph_build(KERNELS, 0);
    session_start(0);
    int64_t begin = program_time(CLOCK_MONOTONIC);
    for (int third = 0; third < 4; third++) {
        for (; third > 0 && done < total * third / 3; done++) {
            device_graph_launch();
            if (done % 10 == 9) {
                device_synchronize();
                int64_t due = begin + done * seconds * 1000000000 / total, now = program_time(CLOCK_MONOTONIC);
                if (due > now) {
                    usleep((unsigned)((due - now) / 1000));
                }
            }
        }
        device_synchronize();
        ticks[third] = other_threads_ticks();
        resident[third] = resident_kib();
        device_kib[third] = -(long)(device_free_memory() >> 10);
    }
    session_stop();
    double tick_s = 1.0 / (double)sysconf(_SC_CLK_TCK);
    printf("{\"kernels\": %ld, \"cpu_s\": [%.2f, %.2f, %.2f], \"resident_kib\": %ld, \"device_kib\": %ld}\n", done * KERNELS,
           (double)(ticks[1] - ticks[0]) * tick_s, (double)(ticks[2] - ticks[1]) * tick_s, (double)(ticks[3] - ticks[2]) * tick_s,
           resident[3] - resident[1], device_kib[3] - device_kib[1]);
    return 0;
}

/* load SECONDS SAMPLE_MS: a busy device while the system and the GPUs are sampled. */
int mode_load(int argc, char **argv) {
    long seconds = NUMBER(1, 10);
    postrun_config config = POSTRUN_CONFIG_INIT;
    config.flags = POSTRUN_GPU;
    config.sample_ms = (uint32_t)NUMBER(2, 100);
    device_begin();
    if (postrun_configure(&config) != 0 || postrun_start() != 0) {
        return 71;
    }
    int64_t end = program_time(CLOCK_MONOTONIC) + seconds * 1000000000;
    while (program_time(CLOCK_MONOTONIC) < end) {
        for (int i = 0; i < 4; i++) {
            device_spin(5000000, 1);
        }
        device_synchronize();
    }
    session_stop();
    printf("{\"seconds\": %ld}\n", seconds);
    return 0;
}
