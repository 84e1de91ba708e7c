/* session.c - starts, stops, configures and flushes the session. session_lock is held during each of these calls. */
#define _GNU_SOURCE
#include "session.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/random.h>
#endif

#include "core/process.h"
#include "core/redact.h"
#include "core/waiting.h"
#include "fork.h"
#include "gpu/device_rows.h"
#include "gpu/gpu.h"

#define FIRST_ANCHOR_NS 100000000
#define ROTATE_MIN 4096u
#define RING_MIN 64u
#define RING_MAX (1u << 22)
#define DRAIN_MS_MAX 60000u

#if defined(PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP)
#define SESSION_LOCK_INITIALIZER PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP
#else
#define SESSION_LOCK_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#endif
static pthread_mutex_t session_lock = SESSION_LOCK_INITIALIZER;
pthread_mutex_t postrun_state_lock = PTHREAD_MUTEX_INITIALIZER;
struct session *postrun_current;
postrun_statistics postrun_totals;
static postrun_config configuration = POSTRUN_CONFIG_INIT; /* session_lock */
static char *configured_folder;
static uint32_t last_number;
static struct session *parent; /* in a forked child: the session that it continues */

/* Takes session_lock. Its owner is not cancelled, as the lock would never be released. -EDEADLK in a signal handler (maybe one that ends
 * the program) that interrupted the thread which has the lock. */
static int enter(int *cancellation) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, cancellation);
    int error = -pthread_mutex_lock(&session_lock);
    if (error) {
        pthread_setcancelstate(*cancellation, NULL);
    }
    return error;
}

static void leave(int cancellation) {
    pthread_mutex_unlock(&session_lock);
    pthread_setcancelstate(cancellation, NULL);
}

/* ---------------------------------------------------------------- start and stop */

static void session_free(struct session *s) {
    prt_bytes_free(&s->out.buffer);
    pthread_mutex_destroy(&s->flush_lock);
    pthread_cond_destroy(&s->flushed);
    postrun_facts_free(&s->facts);
    free(s->rows);
    free(s->foreign);
    free(s->losses);
    free(s->metrics);
    free(s->anchors);
    free(s);
}

static void random_bytes(uint8_t *bytes, size_t size) {
#if defined(__linux__)
    if (getrandom(bytes, size, GRND_NONBLOCK) == (ssize_t)size) {
        return;
    }
#endif
    uint64_t x = (uint64_t)postrun_clock_realtime() ^ (uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)&bytes;
    for (size_t i = 0; i < size; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(x >> 56);
    }
}

static void library_facts(struct session *s) {
    static const char *const clocks[] = {[CLOCK_TSC] = "tsc", [CLOCK_CNTVCT] = "cntvct", [CLOCK_SYSTEM] = "monotonic"};
    char text[64];
    postrun_facts_add(&s->facts, "version", postrun_version(), false);
    postrun_facts_add(&s->facts, "clock", clocks[postrun_clock_kind()], false);
    snprintf(text, sizeof text, "%.0f", postrun_clock_rate());
    postrun_facts_add(&s->facts, "clock.ticks_per_second", text, false);
    postrun_facts_add(&s->facts, "host", s->out.host, false);
    postrun_facts_add(&s->facts, "command", s->command, false);
    snprintf(text, sizeof text, "%u", s->config.sample_ms);
    postrun_facts_add(&s->facts, "sample_ms", text, false);
    if (s->config.sample_ms && s->config.cpu_for_s) {
        snprintf(text, sizeof text, "%u", s->config.cpu_for_s);
        postrun_facts_add(&s->facts, "sample_cpu_for_s", text, false);
    }
    if (parent) {
        snprintf(text, sizeof text, "%ld", (long)parent->pid);
        postrun_facts_add(&s->facts, "forked_from", text, false);
    }
}

/* POSTRUN_GPU=0: nothing of GPUs, in any session. */
static bool gpu_off(void) {
    const char *gpu = getenv("POSTRUN_GPU");
    return gpu && strcmp(gpu, "0") == 0;
}

/* POSTRUN_ROTATE_S, if the program does not configure it; 0: never. */
static uint64_t rotate_by_environment(struct facts *facts) {
    const char *text = getenv("POSTRUN_ROTATE_S");
    if (!text || !*text) {
        return 0;
    }
    char *end, why[256];
    errno = 0;
    uint64_t seconds = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && *end == 0 && errno == 0) {
        return seconds;
    }
    snprintf(why, sizeof why, "POSTRUN_ROTATE_S=%.60s is not heeded: a whole number of seconds is expected", text);
    postrun_facts_add(facts, "capability.rotation", why, false);
    return 0;
}

/* Read and write for the user; no execute permission. */
static bool is_file_mode(uint64_t mode) { return mode <= 0666 && (mode & 0600) == 0600 && !(mode & 0111); }

/* POSTRUN_MODE, in octal, if the program does not configure it; by default for the user alone. */
static mode_t mode_by_environment(struct facts *facts) {
    const char *text = getenv("POSTRUN_MODE");
    if (!text || !*text) {
        return 0600;
    }
    char *end, why[256];
    unsigned long mode = strtoul(text, &end, 8);
    if (*text >= '0' && *text <= '7' && *end == 0 && is_file_mode(mode)) {
        return (mode_t)mode;
    }
    snprintf(why, sizeof why, "POSTRUN_MODE=%.60s is not used: a file mode in octal such as 0640 is expected", text);
    postrun_facts_add(facts, "capability.mode", why, false);
    return 0600;
}

static int begin(struct session *s) {
    const char *job = getenv("POSTRUN_DIR"), *recorder = getenv("POSTRUN_RECORDER"), *folder = configured_folder ? configured_folder : job;
    s->config = parent ? parent->config : configuration; /* the program may have set another since */
    if (recorder && *recorder && job && *job) { /* all files of a job are in one folder, and its recorder samples the machine */
        folder = job;
        s->config.sample_ms = 0;
    }
    s->config.rotate_bytes = s->config.rotate_bytes ? s->config.rotate_bytes : (uint64_t)1 << 30;
    s->config.rotate_s = s->config.rotate_s ? s->config.rotate_s : rotate_by_environment(&s->facts);
    s->config.ring_records = s->config.ring_records ? s->config.ring_records : 16384;
    s->config.drain_ms = s->config.drain_ms ? s->config.drain_ms : 50;
    bool gpu_asked = s->config.flags & POSTRUN_GPU;
    if (gpu_off()) {
        s->config.flags = (s->config.flags & ~POSTRUN_GPU) | POSTRUN_NO_GPU_SAMPLES;
    }
    postrun_gpu_visible_take(&s->visible);
    s->out.zstd_level = s->config.zstd_level;
    s->out.fd = -1;
    if (s->config.zstd_level && !prt_zstd_available()) {
        return -ENOTSUP;
    }
    s->rows = malloc(sizeof *s->rows); /* only the pages that blocks fill are touched */
    s->anchors = malloc(ANCHORS * sizeof *s->anchors);
    if (!s->rows || !s->anchors) {
        return -ENOMEM;
    }
    s->rows->count = s->rows->readings = 0;
    postrun_clock_init();
    if (gethostname(s->out.host, sizeof s->out.host) != 0 || !s->out.host[0]) {
        strcpy(s->out.host, "localhost");
    }
    s->out.host[sizeof s->out.host - 1] = 0;
    s->redaction = postrun_redaction();
    if (s->redaction.hosts) {
        postrun_redact_host(s->out.host, sizeof s->out.host);
    }
    for (char *c = s->out.host; *c; c++) {
        *c = *c == '/' ? '_' : *c;
    }
    s->out.started_us = postrun_clock_realtime() / 1000;
    if (parent) {
        memcpy(s->out.session, parent->out.session, sizeof s->out.session);
        folder = parent->out.folder;
        s->config.sample_ms = 0; /* the parent samples the machine */
    } else {
        random_bytes(s->out.session, sizeof s->out.session);
    }
    s->out.mode = s->config.file_mode ? (mode_t)s->config.file_mode : mode_by_environment(&s->facts);
    int error = postrun_output_folder(&s->out, folder && *folder ? folder : "postrun-traces");
    if (error) {
        return error;
    }
    postrun_process_command(s->command, sizeof s->command, &s->redaction);
    library_facts(s);
    if (gpu_asked && gpu_off()) {
        postrun_facts_add(&s->facts, "capability.gpu", "POSTRUN_GPU=0 turns it off", false);
    }
    postrun_process_rank(&s->rank, &s->local_rank, &s->world_size); /* here: the drain thread must not meet a program that sets variables */
    s->anchor_due = postrun_clock_monotonic() + FIRST_ANCHOR_NS;
    return postrun_file_open(s);
}

/* With every signal blocked: those of the program go to its own threads. */
static int start_session(bool by_environment) {
    struct session *s = calloc(1, sizeof *s);
    if (!s) {
        return -ENOMEM;
    }
    s->unasked = parent ? parent->by_environment : by_environment;
    s->by_environment = s->unasked;
    pthread_mutex_init(&s->flush_lock, NULL);
    pthread_cond_init(&s->flushed, NULL);
    s->pid = getpid();
    if (++last_number == SESSION_LAZY) {
        last_number = 1;
    }
    s->number = last_number;
    int error = begin(s);
    if (!error) {
        atomic_store(&postrun_stray_lost, 0);
        error = -pthread_create(&s->drainer, NULL, postrun_drain_loop, s);
    }
    if (error) {
        if (s->out.fd >= 0) {
            unlink(s->out.path);
        }
        postrun_output_close(&s->out);
        session_free(s);
        return error;
    }
    pthread_mutex_lock(&postrun_state_lock);
    postrun_facts_take_pending(&s->facts);
    postrun_totals = (postrun_statistics){.size = sizeof postrun_totals};
    postrun_current = s;
    pthread_mutex_unlock(&postrun_state_lock);
    parent = NULL;
    atomic_store(&postrun_ring_records, s->config.ring_records);
    atomic_store(&postrun_direct, postrun_clock_has_counter && !atomic_load(&postrun_steps_watched));
    atomic_store_explicit(&postrun_session, s->number, memory_order_release); /* pairs with ring.c: postrun_thread_attach() */
    if (s->config.sample_ms) {
        error = pthread_create(&s->sampler, NULL, postrun_sample_loop, s);
        s->has_sampler = error == 0;
        if (error) {
            postrun_session_capability("sampler", strerror(error));
        }
    }
    return 0;
}

static int start_locked(bool by_environment) {
    if (postrun_current && postrun_current->pid != getpid()) {
        postrun_forked(); /* by a fork that called no handlers */
    }
    if (postrun_current) {
        bool unasked = postrun_current->unasked;
        postrun_current->unasked = false; /* from now on it is the program's */
        return unasked ? 0 : -EALREADY;
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = start_session(by_environment);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        atomic_store(&postrun_session, SESSION_NONE);
        pthread_mutex_lock(&postrun_state_lock);
        postrun_totals = (postrun_statistics){.size = sizeof postrun_totals, .error = error};
        pthread_mutex_unlock(&postrun_state_lock);
    }
    return error;
}

static void environment_flags(void) {
    const char *follow = getenv("POSTRUN_FOLLOW_FORK"), *gpu = getenv("POSTRUN_GPU");
    configuration.flags |= follow && strcmp(follow, "1") == 0 ? POSTRUN_FOLLOW_FORK : 0;
    configuration.flags |= gpu && strcmp(gpu, "1") == 0 ? POSTRUN_GPU : 0;
}

/* The number of the running session, 0: none; and its flags, with GPU activity if the program configured that for a session that the
 * environment had begun. */
static uint32_t running_locked(uint32_t *flags) {
    struct session *s = postrun_current;
    *flags = s && s->pid == getpid() ? s->config.flags : 0;
    *flags |= s && s->by_environment && !s->unasked && !gpu_off() ? configuration.flags & POSTRUN_GPU : 0;
    return s && s->pid == getpid() ? s->number : 0;
}

static int start(bool by_environment) {
    uint32_t number = 0, flags = 0;
    int cancellation, error = enter(&cancellation);
    if (!error) {
        error = start_locked(by_environment);
        number = running_locked(&flags);
        leave(cancellation);
        if (!error) {
            postrun_gpu_begin(number, flags, by_environment);
        }
    }
    return error;
}

int postrun_start(void) { return start(false); }

int InitializeInjection(void) {
    uint32_t number = 0, flags = 0;
    int cancellation;
    if (!gpu_off() && enter(&cancellation) == 0) {
        if (!postrun_current || postrun_current->pid != getpid()) {
            environment_flags();
            start_locked(true);
        }
        number = running_locked(&flags);
        leave(cancellation);
    }
    if (number) {
        postrun_gpu_begin_injected(number, flags);
    }
    return 1;
}

void postrun_session_start_lazy(void) {
    int saved = errno, cancellation;
    if (enter(&cancellation) == 0) {
        uint32_t number = 0, flags = 0;
        if (atomic_load(&postrun_session) == SESSION_LAZY && start_locked(false) == 0) {
            number = running_locked(&flags);
        }
        leave(cancellation);
        if (number) {
            postrun_gpu_begin(number, flags, true); /* a forked child: it gets only what it requested */
        }
    }
    errno = saved;
}

static void sweep_locked(void) {
    pthread_mutex_lock(&postrun_state_lock);
    for (struct thread *thread = atomic_load(&postrun_threads), *next; thread; thread = next) {
        next = atomic_load(&thread->next);
        /* pairs with ring.c: thread_exit() and postrun_thread_attach() */
        if (atomic_load_explicit(&thread->exited, memory_order_acquire)) {
            postrun_thread_remove(thread);
        }
    }
    pthread_mutex_unlock(&postrun_state_lock);
}

void postrun_session_sweep(void) {
    if (pthread_mutex_trylock(&session_lock) == 0) {
        if (!postrun_current) {
            sweep_locked();
        }
        pthread_mutex_unlock(&session_lock);
    }
}

static int stop_locked(void) {
    struct session *s = postrun_current;
    if (s && s->pid != getpid()) {
        postrun_forked();
        s = NULL;
    }
    if (!s) {
        uint32_t lazy = SESSION_LAZY;
        return atomic_compare_exchange_strong(&postrun_session, &lazy, SESSION_NONE) ? 0 : -EALREADY;
    }
    atomic_store(&postrun_session, SESSION_NONE);
    atomic_store(&s->stopping, 1);
    if (s->has_sampler) {
        postrun_wake(&s->sampler_stop);
        pthread_join(s->sampler, NULL);
    }
    postrun_session_wake();
    pthread_join(s->drainer, NULL);
    pthread_mutex_lock(&postrun_state_lock);
    postrun_current = NULL;
    pthread_mutex_unlock(&postrun_state_lock);
    postrun_device_rows_end(s->number);
    session_free(s);
    sweep_locked();
    return 0;
}

int postrun_stop(void) {
    uint32_t number, flags;
    int cancellation, error = enter(&cancellation);
    if (error) {
        return error;
    }
    number = running_locked(&flags);
    leave(cancellation);
    if (number) {
        postrun_gpu_end(number); /* its last rows still reach the file */
    }
    error = enter(&cancellation);
    if (!error) {
        number = running_locked(&flags);
        error = stop_locked();
        leave(cancellation);
        if (number) {
            postrun_gpu_end(number); /* if it began only now */
        }
    }
    return error;
}

int postrun_recording(void) { return atomic_load_explicit(&postrun_session, memory_order_relaxed) != SESSION_NONE; }

int postrun_flush(void) {
    int cancellation, error = enter(&cancellation);
    if (error) {
        return error;
    }
    struct session *s = postrun_current;
    if (s && s->pid == getpid()) {
        pthread_mutex_lock(&s->flush_lock);
        uint64_t wanted = ++s->flush_wanted;
        postrun_session_wake();
        while (s->flush_done < wanted) {
            pthread_cond_wait(&s->flushed, &s->flush_lock);
        }
        pthread_mutex_unlock(&s->flush_lock);
        pthread_mutex_lock(&postrun_state_lock);
        error = postrun_totals.error;
        pthread_mutex_unlock(&postrun_state_lock);
    }
    leave(cancellation);
    return error;
}

int postrun_path(char *path, size_t size) {
    int result = -ENOENT;
    pthread_mutex_lock(&postrun_state_lock);
    if (postrun_current) {
        size_t length = strlen(postrun_current->path);
        result = path && length < size ? (int)length : -ENAMETOOLONG;
        if (result > 0) {
            memcpy(path, postrun_current->path, length + 1);
        }
    }
    pthread_mutex_unlock(&postrun_state_lock);
    return result;
}

void postrun_get_statistics(postrun_statistics *statistics) {
    size_t size = statistics ? statistics->size : 0;
    if (size < sizeof size) {
        return;
    }
    pthread_mutex_lock(&postrun_state_lock);
    postrun_statistics now = postrun_totals;
    if (postrun_current) { /* and the records in the rings */
        now.lost += atomic_load(&postrun_stray_lost) - postrun_current->stray_taken;
        for (struct thread *t = atomic_load(&postrun_threads); t; t = atomic_load(&t->next)) {
            /* pairs with ring.c: postrun_thread_attach() */
            if (atomic_load_explicit(&t->session, memory_order_acquire) == postrun_current->number) {
                bool met = t->met == postrun_current->number;
                now.recorded += atomic_load_explicit(&t->head, memory_order_relaxed) - atomic_load_explicit(&t->tail, memory_order_relaxed);
                now.lost += atomic_load_explicit(&t->lost, memory_order_relaxed) -
                            (met ? atomic_load_explicit(&t->lost_taken, memory_order_relaxed) : 0);
                now.unbalanced += atomic_load_explicit(&t->unbalanced, memory_order_relaxed) - (met ? t->unbalanced_taken : 0) +
                                  atomic_load_explicit(&t->beyond, memory_order_relaxed) - (met ? t->beyond_taken : 0);
            }
        }
    }
    pthread_mutex_unlock(&postrun_state_lock);
    memcpy(statistics, &now, size < sizeof now ? size : sizeof now);
    statistics->size = size;
}

static bool is_power_of_two(uint32_t n) { return (n & (n - 1)) == 0; }

static bool in_range(const postrun_config *c) {
    static const uint32_t intervals[] = {0, 100, 200, 500, 1000, 5000, 60000};
    bool interval = false;
    for (size_t i = 0; i < sizeof intervals / sizeof *intervals; i++) {
        interval |= c->sample_ms == intervals[i];
    }
    return interval && (c->rotate_bytes == 0 || c->rotate_bytes >= ROTATE_MIN) && c->drain_ms <= DRAIN_MS_MAX &&
           (c->ring_records == 0 || (is_power_of_two(c->ring_records) && c->ring_records >= RING_MIN && c->ring_records <= RING_MAX)) &&
           c->zstd_level >= -7 && c->zstd_level <= 22 &&
           (c->flags & ~(POSTRUN_FOLLOW_FORK | POSTRUN_GPU | POSTRUN_NO_GPU_YET | POSTRUN_NO_GPU_SAMPLES | POSTRUN_GPU_BOUNDED)) == 0 &&
           (!c->file_mode || is_file_mode(c->file_mode)) && (!c->directory || (*c->directory && strlen(c->directory) < PATH_MAX));
}

int postrun_configure(const postrun_config *config) {
    postrun_config c = POSTRUN_CONFIG_INIT;
    if (config) { /* NULL: the defaults again */
        if (config->size < sizeof config->size || config->size > 4096) {
            return -EINVAL;
        }
        for (size_t i = sizeof c; i < config->size; i++) {
            if (((const char *)config)[i]) {
                return -EINVAL; /* a newer program requests something unknown to this library */
            }
        }
        memcpy(&c, config, config->size < sizeof c ? config->size : sizeof c);
        c.size = sizeof c;
    }
    if (!in_range(&c)) {
        return -EINVAL;
    }
    char *folder = c.directory ? strdup(c.directory) : NULL;
    if (c.directory && !folder) {
        return -ENOMEM;
    }
    c.directory = NULL;
    int cancellation, error = enter(&cancellation);
    if (error) {
        free(folder);
        return error;
    }
    if (postrun_current && postrun_current->pid == getpid() && !postrun_current->unasked) {
        error = -EBUSY;
        free(folder);
    } else {
        free(configured_folder);
        configured_folder = folder;
        configuration = c;
        parent = NULL;
    }
    leave(cancellation);
    return error;
}

/* In a child: inherited state is left unchanged, except for the file. */
void postrun_session_forked(void) {
    session_lock = (pthread_mutex_t)SESSION_LOCK_INITIALIZER;
    postrun_state_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    postrun_facts_forked();
    postrun_totals = (postrun_statistics){.size = sizeof postrun_totals};
    if (!postrun_current) {
        return;
    }
    bool follow = (postrun_current->config.flags & POSTRUN_FOLLOW_FORK) && atomic_load(&postrun_session) != SESSION_NONE;
    postrun_output_abandon(&postrun_current->out);
    parent = follow ? postrun_current : NULL;
    postrun_current = NULL;
    atomic_store(&postrun_session, follow ? SESSION_LAZY : SESSION_NONE);
}

/* For programs that do not use the library: POSTRUN_CAPTURE=1, POSTRUN_DIR, POSTRUN_FOLLOW_FORK=1, POSTRUN_GPU=1. */
int postrun_session_environment(void) {
    const char *capture = getenv("POSTRUN_CAPTURE");
    if (!capture || strcmp(capture, "1") != 0) {
        return 0;
    }
    environment_flags();
    return start(true);
}
