/* gpu.c - decides when GPU activity is recorded, and runs the thread that does it.
 *
 * A session with GPU activity waits, if the environment requested it, until the program itself has initialized CUDA: a process that has
 * done so cannot fork children that use it. Then a window is open, from the start or from a later time: CUPTI is attached, and detached
 * when the window closes. A thread of its own waits, checks the time and signals, and flushes records every second.
 *
 * A thread that calls CUDA or CUPTI has passed the gate, which admits one thread at a time. No lock is held during the call, and callbacks
 * never enter the gate. */
#define _GNU_SOURCE
#include "gpu.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/capture.h"
#include "core/clock.h"
#include "core/ring.h"
#include "core/waiting.h"
#include "cuda_driver.h"
#include "cupti_attach.h"
#include "cupti_buffers.h"
#include "cupti_loader.h"
#include "device_rows.h"
#include "gpu_periodic.h"
#include "gpu_window.h"
#include "postrun.h"

#define MS 1000000
#define FLUSH_NS (1000 * (int64_t)MS)
#define POLL_NS (20 * (int64_t)MS)
#define INJECTED_POLL_NS (1 * (int64_t)MS) /* while the driver, which called us, initializes */
#define INJECTED_NS (30000 * (int64_t)MS)
#define SIGNAL_NS (50 * (int64_t)MS)
#define DEVICE_NS (2000 * (int64_t)MS) /* how long a window that closes waits for work that is not done */
#define END_NS (2000 * (int64_t)MS)    /* how long the end of the program waits for the thread behind the gate */
#define RETRY_NS (10000 * (int64_t)MS) /* after a periodic window that could not open: another profiler may have stopped by then */
#define RESUME_NS (1000 * (int64_t)MS) /* after the program's own profiler, which may end CUPTI in a thread of its own */
#define FOR_EVER (-1)
#define FORKED "a process forked by one that used CUDA cannot use it"
#define REASON 480

#if defined(PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP)
#define GATE_INITIALIZER PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP
#else
#define GATE_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#endif

enum state { STATE_NONE, STATE_WAITING, STATE_READY, STATE_OPEN, STATE_FAILED };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t free;
    bool busy;
    pthread_t owner; /* while busy */
} gate = {.lock = GATE_INITIALIZER, .free = PTHREAD_COND_INITIALIZER};

/* Behind the gate. */
static struct {
    uint32_t session; /* its number; 0: none */
    pid_t pid;
    enum state state;
    bool environment, wanted, opened, told_devices, has_thread;
    pthread_t thread;
    struct gpu_window window;
    struct periodic periodic;
    int64_t started, flushed;
    uint32_t windows; /* of this session, so far */
    int64_t opened_at, good_at; /* CLOCK_REALTIME; good_at: when CUPTI was last known to record for us */
    uint32_t yields;        /* the program's own profilers that run now */
    char yielded_to[128];   /* the first of them */
    int64_t resumes;        /* CLOCK_MONOTONIC: not before then a window opens again; 0: none waits for that */
} gpu;
static _Atomic uint32_t wake_word, quit; /* set on any thread; the GPU thread takes them (waiting.c) */
static _Atomic int64_t injected; /* when; 0: never. postrun_gpu_begin_injected() stores it, the GPU thread reads it */
static _Atomic bool never; /* set in a child of a process that used CUDA, and at the program's end; read before each call into CUPTI */

/* Why GPU activity is not recorded, for postrun_gpu_reason. */
static struct {
    pthread_mutex_t lock;
    char why[REASON];
} reason = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Atomic uint32_t asked; /* number of the session that requested it; begin and end store it, postrun_gpu_reason() reads it */

/* Waits this many ns, or FOR_EVER. False: the time is over, or this thread is behind the gate already, and a signal handler that ends
 * the program interrupted it. */
static bool gate_enter(int *cancellation, int64_t ns) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, cancellation);
    int64_t until = ns > 0 ? postrun_clock_realtime() + ns : 0;
    struct timespec time = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    int error = pthread_mutex_lock(&gate.lock);
    if (!error) {
        while (gate.busy && !error) {
            error = pthread_equal(gate.owner, pthread_self()) ? EDEADLK
                    : ns == FOR_EVER                          ? pthread_cond_wait(&gate.free, &gate.lock)
                    : ns > 0                                  ? pthread_cond_timedwait(&gate.free, &gate.lock, &time)
                                                              : EBUSY;
        }
        if (!gate.busy) {
            error = 0;
            gate.busy = true;
            gate.owner = pthread_self();
        }
        pthread_mutex_unlock(&gate.lock);
    }
    if (error) {
        pthread_setcancelstate(*cancellation, NULL);
    }
    return error == 0;
}

static void gate_leave(int cancellation) {
    pthread_mutex_lock(&gate.lock);
    gate.busy = false;
    pthread_cond_signal(&gate.free);
    pthread_mutex_unlock(&gate.lock);
    pthread_setcancelstate(cancellation, NULL);
}

/* ---------------------------------------------------------------- behind the gate */

static void set_reason(const char *why) {
    pthread_mutex_lock(&reason.lock);
    snprintf(reason.why, sizeof reason.why, "%s", why);
    pthread_mutex_unlock(&reason.lock);
}

static void tell_reason(const char *why) {
    pthread_mutex_lock(&reason.lock);
    bool known = strcmp(reason.why, why) == 0; /* as when a window is tried again */
    pthread_mutex_unlock(&reason.lock);
    if (!known) {
        set_reason(why);
        postrun_session_capability("gpu", why);
    }
}

static bool has_reason(void) {
    pthread_mutex_lock(&reason.lock);
    bool has = reason.why[0] != 0;
    pthread_mutex_unlock(&reason.lock);
    return has;
}

static void fail(const char *why) {
    gpu.state = STATE_FAILED;
    postrun_periodic_disarm();
    tell_reason(why);
}

/* Whether CUDA is there: WAITING becomes READY, FAILED, or stays. */
static void look_for_cuda(bool initialize) {
    char why[REASON] = "";
    switch (postrun_cuda_state(initialize, why, sizeof why)) {
    case CUDA_ABSENT: fail(why); break;
    case CUDA_NOT_YET: break;
    case CUDA_READY:
        gpu.state = STATE_READY;
        if (!gpu.told_devices) {
            gpu.told_devices = true;
            postrun_cuda_tell_devices();
        }
        break;
    }
}

static void tell_count(const char *key, uint64_t count) {
    if (count) {
        char text[32];
        snprintf(text, sizeof text, "%llu", (unsigned long long)count);
        postrun_metadata(key, text);
    }
}

static void tell_counts(void) {
    struct device_counts counts;
    postrun_device_rows_counts(&counts);
    tell_count("cupti.overhead_records", counts.overhead);
    tell_count("cupti.unknown_records", counts.unknown);
    tell_count("cupti.negative_spans", counts.negative);
    tell_count("cupti.noisy_calls", counts.ignored);
}

/* The time of recording, for readers: nothing is known outside of it. `closed`: why a periodic window closed, NULL: another window. */
static void tell_window(bool over, int64_t now, const char *closed) {
    char key[48], text[64];
    if (over && closed) {
        snprintf(key, sizeof key, "gpu.window.%u.closed", gpu.windows);
        postrun_metadata(key, closed);
    }
    if (!over) {
        gpu.opened_at = gpu.good_at = now;
    }
    snprintf(key, sizeof key, "gpu.window.%u", gpu.windows);
    if (over) {
        snprintf(text, sizeof text, "%lld %lld", (long long)gpu.opened_at, (long long)now);
    } else {
        snprintf(text, sizeof text, "%lld", (long long)now);
    }
    postrun_metadata(key, text);
    gpu.windows += over;
    if (over) {
        postrun_periodic_closed();
    }
}

/* Another client has ended our recording without notice: CUPTI is not called any more. */
static void lose_window(void) {
    char other[128] = "", why[320];
    postrun_cupti_lost(gpu.good_at, other, sizeof other);
    snprintf(why, sizeof why, "another profiler took CUPTI over (%s): nothing is known of GPU activity after that", other);
    tell_reason(why);
    gpu.state = STATE_READY;
    tell_window(true, gpu.good_at, postrun_periodic_armed() ? "profiler" : NULL);
    tell_counts();
}

/* Whether CUPTI still records for us; else the window ends. */
static bool window_lasts(void) {
    if (!postrun_cupti_lasts()) {
        lose_window();
        return false;
    }
    gpu.good_at = postrun_clock_realtime();
    return true;
}

/* When the program ends, before the libraries of CUDA do. */
static void at_exit(void) {
    int cancellation;
    if (atomic_exchange(&never, true) || !gate_enter(&cancellation, END_NS)) {
        return; /* another thread is inside: it is not touched */
    }
    if (gpu.state == STATE_OPEN && gpu.pid == getpid() && window_lasts()) {
        postrun_cuda_wait(DEVICE_NS);
        int64_t end = postrun_clock_realtime();
        postrun_cupti_detach(false, end);
        gpu.state = STATE_READY;
        tell_window(true, end, postrun_periodic_armed() ? "end" : NULL);
        tell_counts();
    }
    gate_leave(cancellation);
}

static void tell_yield(void) {
    char why[REASON];
    snprintf(why, sizeof why, "%s was used by the program: while it was, nothing else could record GPU activity", gpu.yielded_to);
    tell_reason(why);
}

static int open_window(void) {
    static bool registered;
    char why[REASON] = "";
    if (atomic_load(&never)) {
        return -ENOTSUP;
    }
    if (gpu.yields || postrun_clock_monotonic() < gpu.resumes) {
        tell_yield();
        return -ENOTSUP; /* it opens when that profiler has ended, if it is still wanted */
    }
    if (!postrun_cupti_attach(why, sizeof why)) {
        tell_reason(why);
        return -ENOTSUP; /* it may be possible later: another profiler may stop */
    }
    set_reason("");
    gpu.state = STATE_OPEN;
    gpu.opened = true;
    gpu.resumes = 0;
    tell_window(false, postrun_clock_realtime(), NULL);
    gpu.flushed = postrun_clock_monotonic();
    if (!registered) {
        registered = atexit(at_exit) == 0;
    }
    return 0;
}

static void close_window(const char *closed) { /* as tell_window */
    if (!window_lasts()) {
        return;
    }
    postrun_cuda_wait(DEVICE_NS);
    int64_t end = postrun_clock_realtime(); /* work that starts while CUPTI is detached may be missing */
    postrun_cupti_detach(true, end);
    gpu.state = STATE_READY;
    tell_window(true, end, closed);
    tell_counts();
}

/* Opens or closes the window as wanted: 0, -EALREADY, -ENOTSUP. */
static int set_window(bool open) {
    if (gpu.session == 0 || gpu.pid != getpid()) {
        return -EALREADY;
    }
    if (gpu.state == STATE_WAITING) {
        look_for_cuda(!gpu.environment);
    }
    if (gpu.state == STATE_WAITING) { /* as soon as the program has initialized CUDA */
        int already = gpu.wanted == open ? -EALREADY : 0;
        gpu.wanted = open;
        return already;
    }
    gpu.wanted = open;
    if (gpu.state == STATE_FAILED || atomic_load(&never)) {
        return -ENOTSUP;
    }
    if ((gpu.state == STATE_OPEN) == open) {
        return -EALREADY;
    }
    if (open) {
        return open_window();
    }
    close_window(NULL);
    return 0;
}

/* ---------------------------------------------------------------- periodic windows, behind the gate */

static void open_periodic(void) {
    if (postrun_periodic_spent(postrun_device_rows_bytes())) {
        char why[128];
        snprintf(why, sizeof why, "no more windows open: GPU activity of this process takes %llu MiB (total_mib)",
                 (unsigned long long)(gpu.periodic.total_bytes >> 20));
        postrun_periodic_disarm();
        postrun_session_capability("gpu.windows", why);
    } else if (open_window() == 0) {
        postrun_periodic_opened(postrun_clock_monotonic(), postrun_device_rows_bytes());
        postrun_gpu_wake(); /* a step opened it while the thread sleeps: its time, its size, and the next window are due before that ends */
    } else {
        postrun_periodic_later(postrun_clock_monotonic() + RETRY_NS);
    }
}

/* Does the due work of periodic windows; returns the time until more is due, in ns. */
static int64_t do_periodic(int64_t now, int64_t wait) {
    if (gpu.state == STATE_OPEN) {
        const char *why = postrun_periodic_closes(now, postrun_device_rows_bytes(), &wait);
        if (why) {
            close_window(why);
        }
    }
    if (gpu.state == STATE_READY && postrun_periodic_opens(now, &wait)) {
        open_periodic();
        wait = 0;
    }
    return wait;
}

/* From now on the program itself requests windows. True: this closed one. */
static bool end_periodic(void) {
    bool open = gpu.state == STATE_OPEN && gpu.session && gpu.pid == getpid() && postrun_periodic_armed() && !atomic_load(&never);
    if (open) {
        close_window("program");
    }
    postrun_periodic_disarm();
    return open;
}

/* ---------------------------------------------------------------- the thread */

static int64_t nearer(int64_t a, int64_t b) { return a < b ? a : b; }

/* Does the due work; returns the time until more is due, in ns. */
static int64_t do_what_is_due(bool *was_open_by_time) {
    int64_t now = postrun_clock_monotonic(), wait = FLUSH_NS, since = now - gpu.started;
    if (gpu.state == STATE_WAITING) {
        look_for_cuda(false);
        if (gpu.state == STATE_READY && gpu.wanted) {
            open_window();
        }
        int64_t when = atomic_load(&injected);
        wait = when && now - when < INJECTED_NS ? INJECTED_POLL_NS : POLL_NS;
    }
    if (gpu.window.by_time) {
        bool in = since >= gpu.window.first_ns && since < gpu.window.end_ns;
        if (in != *was_open_by_time) {
            *was_open_by_time = in;
            set_window(in);
        }
        if (since < gpu.window.end_ns) {
            wait = nearer(wait, (in ? gpu.window.end_ns : gpu.window.first_ns) - since);
        }
    }
    if (gpu.window.by_signal) {
        if (postrun_signal_came()) {
            set_window(gpu.state == STATE_WAITING ? !gpu.wanted : gpu.state != STATE_OPEN);
        }
        wait = nearer(wait, SIGNAL_NS);
    }
    if (postrun_periodic_armed() && !atomic_load(&never)) {
        wait = do_periodic(now, wait);
    }
    if (gpu.resumes && gpu.state == STATE_READY && gpu.wanted && !gpu.yields) {
        if (now >= gpu.resumes && open_window() != 0) {
            gpu.resumes = now + RESUME_NS;
        }
        wait = nearer(wait, gpu.resumes > now ? gpu.resumes - now : wait);
    }
    if (gpu.state == STATE_OPEN && !atomic_load(&never)) {
        if (now - gpu.flushed >= FLUSH_NS && window_lasts()) {
            postrun_cupti_flush();
            gpu.flushed = now = postrun_clock_monotonic();
        }
        wait = gpu.state == STATE_OPEN ? nearer(wait, gpu.flushed + FLUSH_NS - now) : wait;
    }
    return wait > 0 ? wait : MS;
}

static void *watch_loop(void *argument) {
    (void)argument;
    pthread_setname_np(pthread_self(), "postrun-gpu");
    bool by_time = false;
    for (;;) {
        int cancellation;
        if (!gate_enter(&cancellation, FOR_EVER)) {
            return NULL;
        }
        int64_t wait = do_what_is_due(&by_time);
        bool done = gpu.state == STATE_FAILED;
        gate_leave(cancellation);
        if (done || atomic_load(&quit)) {
            return NULL;
        }
        postrun_wait(&wake_word, wait);
        if (atomic_load(&quit)) {
            return NULL;
        }
    }
}

static void start_thread(void) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_store(&quit, 0);
    int error = pthread_create(&gpu.thread, NULL, watch_loop, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    gpu.has_thread = error == 0;
    if (error) {
        fail(strerror(error));
    }
}

/* ---------------------------------------------------------------- the session */

static void begin_periodic(bool wanted) {
    char text[256];
    if (!postrun_periodic_read(&gpu.periodic, wanted, text, sizeof text)) {
        fail(text);
    } else if (gpu.periodic.wanted) {
        gpu.wanted = false;
        postrun_periodic_text(&gpu.periodic, text, sizeof text);
        postrun_metadata("gpu.windows", text);
        postrun_periodic_arm(&gpu.periodic, gpu.started);
    }
}

static void read_environment(uint32_t flags) {
    char why[256];
    postrun_cupti_environment();
    postrun_cupti_places();
    const char *memory = getenv("POSTRUN_GPU_MEMORY");
    char *end = NULL;
    int64_t mib = memory ? strtoll(memory, &end, 10) : 0;
    if (mib > 0 && mib < 16384 && *end == 0) {
        postrun_buffers_limit((size_t)mib << 20);
    } else if (memory && *memory) {
        snprintf(why, sizeof why, "POSTRUN_GPU_MEMORY=%.60s is not heeded: a number of MiB from 1 to 16383 is expected", memory);
        postrun_session_capability("gpu.memory_limit", why);
    }
    if (!gpu.environment) {
        return;
    }
    if (!postrun_window_read(&gpu.window, why, sizeof why)) {
        memset(&gpu.window, 0, sizeof gpu.window);
        fail(why);
        return;
    }
    if (gpu.window.by_signal && !postrun_signal_watch(gpu.window.signal)) {
        gpu.window.by_signal = false;
        snprintf(why, sizeof why, "the program handles signal %d itself, so it opens no window", gpu.window.signal);
        fail(why);
        return;
    }
    if (gpu.window.by_steps || gpu.window.by_time || gpu.window.by_signal) {
        gpu.wanted = false;
    }
    if (gpu.window.by_steps) {
        postrun_steps_watch(gpu.window.first_step, gpu.window.end_step);
    }
    if (!gpu.window.by_steps && !gpu.window.by_time && !gpu.window.by_signal) {
        begin_periodic(flags & POSTRUN_GPU_BOUNDED);
    }
}

/* `driver`: the CUDA driver is the caller, so it must not be called now. */
static void begin(uint32_t number, uint32_t flags, bool environment, bool driver) {
    if (gpu.session == number) {
        return;
    }
    memset(&gpu, 0, sizeof gpu);
    gpu.session = number;
    gpu.pid = getpid();
    gpu.state = STATE_WAITING;
    gpu.environment = environment;
    gpu.wanted = !(flags & POSTRUN_NO_GPU_YET);
    gpu.started = postrun_clock_monotonic();
    set_reason("");
    atomic_store(&asked, number);
    if (atomic_load(&never)) {
        fail(FORKED);
        return;
    }
    postrun_device_rows_begin(number);
    read_environment(flags);
    if (gpu.state != STATE_FAILED && !environment && !driver) {
        look_for_cuda(true);
        if (gpu.state == STATE_READY && gpu.wanted) {
            open_window();
        }
    }
    if (gpu.state != STATE_FAILED) {
        start_thread();
    }
}

void postrun_gpu_begin(uint32_t number, uint32_t flags, bool environment) {
    int cancellation;
    if (!(flags & POSTRUN_GPU)) {
        return;
    }
    if (gate_enter(&cancellation, FOR_EVER)) {
        begin(number, flags, environment, false);
        gate_leave(cancellation);
    }
}

void postrun_gpu_begin_injected(uint32_t number, uint32_t flags) {
    atomic_store(&injected, postrun_clock_monotonic());
    int cancellation;
    if (gate_enter(&cancellation, 0)) { /* else a session begins or ends right now, which looks for CUDA itself */
        begin(number, flags | POSTRUN_GPU, true, true);
        gate_leave(cancellation);
    }
    postrun_wake(&wake_word);
}

void postrun_gpu_end(uint32_t number) {
    int cancellation;
    postrun_cupti_teardown();
    int64_t patience = atomic_load(&never) ? END_NS : FOR_EVER;
    if (!gate_enter(&cancellation, patience)) {
        return;
    }
    bool ours = gpu.session == number && number != 0 && gpu.pid == getpid(), thread = ours && gpu.has_thread;
    if (!ours) {
        gate_leave(cancellation);
        return;
    }
    gpu.has_thread = false;
    pthread_t watcher = gpu.thread;
    gate_leave(cancellation);
    if (thread) { /* it passes the gate also */
        atomic_store(&quit, 1);
        postrun_wake(&wake_word);
        pthread_join(watcher, NULL);
    }
    if (!gate_enter(&cancellation, patience)) {
        return;
    }
    if (gpu.session == number) {
        if (gpu.window.by_steps) {
            postrun_steps_unwatch();
        }
        if (gpu.window.by_signal) {
            postrun_signal_unwatch();
        }
        bool waited = gpu.state == STATE_WAITING;
        char missed[160];
        if (waited && !atomic_load(&never)) { /* a program may end before the thread looks again */
            look_for_cuda(false);
        }
        if (gpu.state == STATE_WAITING) {
            postrun_session_capability("gpu", "the program did not use CUDA");
        } else if (gpu.state == STATE_READY && !gpu.opened && !has_reason() &&
                   (gpu.window.by_steps || gpu.window.by_time || gpu.window.by_signal)) {
            char why[160];
            postrun_window_missed(&gpu.window, why, sizeof why);
            postrun_session_capability("gpu", why);
        } else if (gpu.state == STATE_READY && postrun_periodic_missed(missed, sizeof missed)) {
            postrun_session_capability("gpu", missed);
        } else if (gpu.state == STATE_READY && waited && (gpu.wanted || postrun_periodic_armed())) {
            postrun_session_capability("gpu", "the program used CUDA only just before it ended");
        }
        if (gpu.state == STATE_OPEN && !atomic_load(&never)) {
            close_window(postrun_periodic_armed() ? "end" : NULL);
        }
        postrun_periodic_disarm();
        gpu.session = 0;
        gpu.state = STATE_NONE;
    }
    gate_leave(cancellation);
}

void postrun_gpu_forked(void) {
    bool used = postrun_cuda_used();
    gate.lock = (pthread_mutex_t)GATE_INITIALIZER;
    reason.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    reason.why[0] = 0;
    atomic_store(&asked, 0);
    gate.free = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    gate.busy = false;
    if (gpu.window.by_steps) {
        postrun_steps_unwatch();
    }
    postrun_periodic_disarm();
    memset(&gpu, 0, sizeof gpu);
    atomic_store(&wake_word, 0);
    atomic_store(&quit, 0);
    atomic_store(&injected, 0);
    if (used) {
        atomic_store(&never, true);
    }
    postrun_cupti_forked();
    postrun_device_rows_forked();
}

/* ---------------------------------------------------------------- windows */

int postrun_gpu(int on) {
    int cancellation;
    postrun_cupti_teardown();
    if (!gate_enter(&cancellation, FOR_EVER)) {
        return -EDEADLK;
    }
    bool closed = end_periodic();
    int result = set_window(on != 0);
    gate_leave(cancellation);
    return closed && !on ? 0 : result;
}

static int yield_to(const char *who) {
    if (gpu.session == 0 || gpu.pid != getpid() || (!who && gpu.yields == 0)) {
        return -EALREADY;
    }
    if (!who) {
        gpu.yields--;
        gpu.resumes = gpu.yields == 0 ? postrun_clock_monotonic() + RESUME_NS : 0;
        return 0;
    }
    if (gpu.yields++ == 0) {
        snprintf(gpu.yielded_to, sizeof gpu.yielded_to, "%s", who);
    }
    if (gpu.state == STATE_OPEN) {
        tell_yield();
        close_window(postrun_periodic_armed() ? "profiler" : NULL);
    }
    return 0;
}

int postrun_gpu_yield(const char *who) {
    int cancellation;
    if (!gate_enter(&cancellation, FOR_EVER)) {
        return -EDEADLK;
    }
    int result = yield_to(who);
    gate_leave(cancellation);
    postrun_wake(&wake_word); /* it waits for another time now */
    return result;
}

int postrun_gpu_reason(char *text, size_t size) {
    uint32_t session = atomic_load(&postrun_session);
    const char *off = getenv("POSTRUN_GPU");
    char why[REASON] = "";
    if (session == SESSION_NONE) {
        snprintf(why, sizeof why, "nothing is being recorded");
    } else if (off && strcmp(off, "0") == 0) {
        snprintf(why, sizeof why, "POSTRUN_GPU=0 turns it off");
    } else if (session == atomic_load(&asked)) {
        pthread_mutex_lock(&reason.lock);
        memcpy(why, reason.why, sizeof why);
        pthread_mutex_unlock(&reason.lock);
    } else if (session == SESSION_LAZY) {
        snprintf(why, sizeof why, "%s", atomic_load(&never) ? FORKED : "");
    } else {
        snprintf(why, sizeof why, "the session was begun without POSTRUN_GPU");
    }
    if (text && size) {
        snprintf(text, size, "%s", why);
    }
    return session == SESSION_NONE ? -EALREADY : why[0] ? -ENOTSUP : 0;
}

void postrun_gpu_window(bool open) {
    int cancellation;
    if (gate_enter(&cancellation, FOR_EVER)) {
        set_window(open);
        gate_leave(cancellation);
    }
}

void postrun_gpu_periodic(bool open) {
    int cancellation;
    if (!gate_enter(&cancellation, FOR_EVER)) {
        return;
    }
    if (gpu.session && gpu.pid == getpid() && postrun_periodic_step_waits(open) && !atomic_load(&never)) {
        if (open && gpu.state == STATE_WAITING) {
            look_for_cuda(false);
        }
        if (gpu.state == STATE_OPEN) { /* a window of seconds, or the one that ends */
            close_window("steps");
        }
        if (open && gpu.state == STATE_READY) {
            open_periodic();
        } else if (open) {
            postrun_periodic_later(0);
        }
    }
    gate_leave(cancellation);
}

void postrun_gpu_wake(void) { postrun_wake(&wake_word); }
