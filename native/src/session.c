/* session.c - what happens between start and stop?
 *
 * One thread drains: it turns the rings of all threads into blocks every drain_ms, and sooner when a ring is half full. Locks:
 * session_lock is held over a whole start, stop, configure or flush; state_lock only for moments, and never while a file is written. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/random.h>
#endif

#include "capture.h"
#include "fork.h"
#include "names.h"
#include "output.h"
#include "ring.h"

#define NS_PER_MS 1000000
#define ANCHOR_NS 1000000000
#define FIRST_ANCHOR_NS 100000000
#define TABLE_NS 60000000000 /* the whole table of names again: after so long, */
#define TABLE_BYTES (64u << 20) /* or so many bytes */
#define ROWS 16384u
#define METRICS_MAX 65536u
#define FLAG_STOPPED 1
#define FLAG_HANDLE 2
#define FACT_MAX 65536u  /* bytes of a key or value */
#define FACTS_MAX 65536u /* keys */
#define ROTATE_MIN 4096u
#define RING_MIN 64u
#define RING_MAX (1u << 22)
#define DRAIN_MS_MAX 60000u

struct rows { /* one block of annotations and one of counters, as columns */
    int64_t name[ROWS], start[ROWS], duration[ROWS], value[ROWS], depth[ROWS], flags[ROWS];
    int64_t counter[ROWS], time[ROWS];
    double reading[ROWS];
    uint32_t count, readings;
};
struct foreign { /* a range that ended on another thread than it began on */
    uint32_t source;
    int64_t flags;
    struct record record;
};
struct loss {
    uint32_t source;
    enum prt_loss_reason reason;
    uint64_t count;
    int64_t first, last;
};
struct metric {
    uint32_t name;
    int32_t unit;
    int64_t ticks;
    double value;
};
struct fact {
    uint64_t hash; /* of the key */
    char *key, *value;
};
struct facts { /* in the order in which they were told; the last of a key holds */
    struct fact *list;
    size_t count, capacity, keys;
};

struct session {
    uint32_t number;
    pid_t pid;
    postrun_config config;
    pthread_t drainer, sampler;
    bool has_sampler;
    _Atomic uint32_t stopping, sampler_stop;

    /* the drain thread's, and before it runs the starter's */
    struct output out;
    struct rows *rows;
    struct foreign *foreign;
    size_t foreign_count, foreign_capacity;
    struct loss *losses;
    size_t loss_count, loss_capacity;
    uint32_t names_written;
    int64_t anchor_due, table_at, losses_at;
    uint64_t table_bytes, records_at_table;
    uint64_t stray_taken; /* changed under state_lock */
    bool disk_loss_told;
    int64_t rank, local_rank, world_size;

    /* under flush_lock */
    pthread_mutex_t flush_lock;
    pthread_cond_t flushed;
    uint64_t flush_wanted, flush_done;

    /* under state_lock */
    struct metric *metrics;
    size_t metric_count, metric_capacity;
    uint64_t metrics_lost, metrics_lost_taken;
    struct facts facts;
    size_t facts_written;
    char path[PATH_MAX];
};

#if defined(PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP)
#define SESSION_LOCK_INITIALIZER PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP
#else
#define SESSION_LOCK_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#endif
static pthread_mutex_t session_lock = SESSION_LOCK_INITIALIZER;
static pthread_mutex_t state_lock = PTHREAD_MUTEX_INITIALIZER;
static struct session *current;        /* changed under both */
static postrun_statistics totals;      /* state_lock */
static struct facts pending;           /* state_lock; for the next session */
static postrun_config configuration = POSTRUN_CONFIG_INIT; /* session_lock */
static char *configured_folder;
static uint32_t last_number;
static struct session *parent;         /* in a forked child: the session it goes on with */
static _Atomic uint32_t wake_word;

/* Takes session_lock. Whoever has it is not cancelled, as it would never be released. -EDEADLK in a signal handler (maybe one that ends
 * the program) which interrupted a thread that has it. */
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

/* ---------------------------------------------------------------- waiting */

/* Until the word is not 0, or the time is over; takes the word. */
static void wait_for(_Atomic uint32_t *word, int64_t ns) {
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
    atomic_store(word, 0);
}

static void wake(_Atomic uint32_t *word) {
    if (atomic_load_explicit(word, memory_order_relaxed) == 0 && atomic_exchange(word, 1) == 0) {
#if defined(__linux__)
        int saved = errno;
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        errno = saved;
#endif
    }
}

void postrun_session_wake(void) { wake(&wake_word); }

/* ---------------------------------------------------------------- facts */

static uint64_t hash_of(const char *text) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++) {
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    }
    return hash;
}

static struct fact *last_of(const struct facts *facts, size_t from, uint64_t hash, const char *key) { /* behind `from` */
    for (size_t i = facts->count; i-- > from;) {
        if (facts->list[i].hash == hash && strcmp(facts->list[i].key, key) == 0) {
            return &facts->list[i];
        }
    }
    return NULL;
}

/* `replace`: what the key had before is needed no more. */
static int fact_add(struct facts *facts, const char *key, const char *value, bool replace) {
    uint64_t hash = hash_of(key);
    struct fact *known = last_of(facts, 0, hash, key);
    if (known && strcmp(known->value, value) == 0) {
        return 0;
    }
    char *copy = known || facts->keys < FACTS_MAX ? strdup(value) : NULL;
    if (!copy) {
        return -ENOMEM;
    }
    if (known && replace) {
        free(known->value);
        known->value = copy;
        return 0;
    }
    if (facts->count == facts->capacity) {
        size_t capacity = facts->capacity ? facts->capacity * 2 : 32;
        struct fact *list = realloc(facts->list, capacity * sizeof *list);
        if (list) {
            facts->list = list;
            facts->capacity = capacity;
        }
    }
    struct fact fact = {hash, facts->count < facts->capacity ? strdup(key) : NULL, copy};
    if (!fact.key) {
        free(copy);
        return -ENOMEM;
    }
    facts->keys += !known;
    facts->list[facts->count++] = fact;
    return 0;
}

/* Forgets values that others of the same key followed, where they are many. */
static void facts_forget(struct facts *facts) {
    size_t count = facts->count, kept = count;
    if (count < 1024 + 2 * facts->keys) {
        return;
    }
    for (size_t i = count; i-- > 0;) {
        struct fact fact = facts->list[i];
        if (last_of(facts, kept, fact.hash, fact.key)) {
            free(fact.key);
            free(fact.value);
        } else {
            facts->list[--kept] = fact;
        }
    }
    memmove(facts->list, facts->list + kept, (count - kept) * sizeof *facts->list);
    facts->count = count - kept;
}

static void facts_free(struct facts *facts) {
    for (size_t i = 0; i < facts->count; i++) {
        free(facts->list[i].key);
        free(facts->list[i].value);
    }
    free(facts->list);
    *facts = (struct facts){0};
}

int postrun_metadata(const char *key, const char *value) {
    if (!key || !*key || !value || strlen(key) > FACT_MAX || strlen(value) > FACT_MAX) {
        return -EINVAL;
    }
    pthread_mutex_lock(&state_lock);
    int result = fact_add(current ? &current->facts : &pending, key, value, !current);
    pthread_mutex_unlock(&state_lock);
    return result;
}

int postrun_session_capability(const char *key, const char *why) {
    char name[256];
    snprintf(name, sizeof name, "capability.%s", key);
    return postrun_metadata(name, why);
}

int postrun_session_metric(uint32_t name, int32_t unit, int64_t ticks, double value) {
    int result = 0;
    pthread_mutex_lock(&state_lock);
    struct session *s = current;
    if (!s) {
        result = -EALREADY;
    } else if (s->metric_count == s->metric_capacity) {
        size_t capacity = s->metric_capacity ? s->metric_capacity * 2 : 256;
        struct metric *metrics = capacity <= METRICS_MAX ? realloc(s->metrics, capacity * sizeof *metrics) : NULL;
        if (metrics) {
            s->metrics = metrics;
            s->metric_capacity = capacity;
        } else {
            s->metrics_lost++;
            result = -ENOMEM;
        }
    }
    if (!result) {
        s->metrics[s->metric_count++] = (struct metric){name, unit, ticks, value};
    }
    pthread_mutex_unlock(&state_lock);
    return result;
}

/* ---------------------------------------------------------------- what is lost */

/* For the next LOSS block. */
static void note_loss(struct session *s, uint32_t source, enum prt_loss_reason reason, uint64_t count, int64_t first, int64_t last) {
    if (count == 0) {
        return;
    }
    for (size_t i = 0; i < s->loss_count; i++) {
        struct loss *loss = &s->losses[i];
        if (loss->source == source && loss->reason == reason) {
            loss->count += count;
            loss->first = first < loss->first ? first : loss->first;
            loss->last = last > loss->last ? last : loss->last;
            return;
        }
    }
    if (s->loss_count == s->loss_capacity) {
        size_t capacity = s->loss_capacity ? s->loss_capacity * 2 : 16;
        struct loss *losses = realloc(s->losses, capacity * sizeof *losses);
        if (!losses) {
            return; /* still in the totals */
        }
        s->losses = losses;
        s->loss_capacity = capacity;
    }
    s->losses[s->loss_count++] = (struct loss){source, reason, count, first, last};
}

/* Records, which the statistics count, too. */
static void lose(struct session *s, uint32_t source, enum prt_loss_reason reason, uint64_t count, int64_t first, int64_t last) {
    s->out.lost += count;
    pthread_mutex_lock(&state_lock);
    totals.lost += count;
    pthread_mutex_unlock(&state_lock);
    note_loss(s, source, reason, count, first, last);
}

/* ---------------------------------------------------------------- blocks */

#define COLUMNS(columns) (columns), sizeof(columns) / sizeof *(columns)

static prt_block block_of(enum prt_block_type type, uint32_t source, uint32_t count, int64_t first, const prt_column *columns, size_t n) {
    return (prt_block){.type = (uint16_t)type, .source = source, .count = count, .first_time = first, .columns = columns, .column_count = n};
}

static int write_block(struct session *s, enum prt_block_type type, uint32_t source, uint32_t count, int64_t first,
                       const prt_column *columns, size_t n) {
    return postrun_output_block(&s->out, block_of(type, source, count, first, columns, n));
}

static void write_anchor(struct session *s) {
    struct clock_anchor anchor;
    postrun_clock_anchor(&anchor);
    prt_column columns[] = {{1, PRT_COLUMN_TIME, &anchor.ticks}, {2, PRT_COLUMN_INT, &anchor.monotonic_ns},
                            {3, PRT_COLUMN_INT, &anchor.realtime_ns}, {4, PRT_COLUMN_INT, &anchor.uncertainty_ns}};
    write_block(s, PRT_CLOCK, 0, 1, anchor.ticks, COLUMNS(columns));
}

static prt_text text_of(const char *text) { return (prt_text){text, strlen(text)}; }

/* Facts from number `from` on; at most 64 a block, as they may be long. Nobody but the drain thread, here, takes texts away. */
static void write_facts(struct session *s, size_t from) {
    for (;;) {
        prt_text keys[64], values[64];
        uint32_t n = 0;
        pthread_mutex_lock(&state_lock);
        for (; n < 64 && from < s->facts.count; n++, from++) {
            keys[n] = text_of(s->facts.list[from].key);
            values[n] = text_of(s->facts.list[from].value);
        }
        s->facts_written = from;
        if (n == 0) { /* all are in the file */
            facts_forget(&s->facts);
            s->facts_written = s->facts.count;
        }
        pthread_mutex_unlock(&state_lock);
        if (n == 0) {
            return;
        }
        prt_column columns[] = {{1, PRT_COLUMN_TEXT, keys}, {2, PRT_COLUMN_TEXT, values}};
        write_block(s, PRT_META, 0, n, 0, COLUMNS(columns));
    }
}

static void write_names(struct session *s, uint32_t from) { /* the ids behind `from` */
    uint32_t end = postrun_names_count();
    while (from < end) {
        int64_t ids[512];
        prt_text texts[512];
        uint32_t n = 0;
        for (; n < 512 && from < end; n++) {
            ids[n] = ++from;
            texts[n] = postrun_names_text(from);
        }
        prt_column columns[] = {{1, PRT_COLUMN_INT, ids}, {2, PRT_COLUMN_TEXT, texts}};
        write_block(s, PRT_STRINGS, 0, n, 0, COLUMNS(columns));
    }
    s->names_written = end;
}

static void write_thread(struct session *s, const struct thread *thread) {
    int64_t number = thread->number, tid = thread->tid;
    prt_text name = {thread->name, strnlen(thread->name, sizeof thread->name)};
    prt_column columns[] = {{1, PRT_COLUMN_INT, &number}, {2, PRT_COLUMN_INT, &tid}, {3, PRT_COLUMN_TEXT, &name}};
    write_block(s, PRT_THREAD, 0, 1, 0, COLUMNS(columns));
}

static void write_threads(struct session *s) { /* that have recorded and live */
    for (struct thread *t = atomic_load(&postrun_threads); t; t = atomic_load(&t->next)) {
        if (t->met == s->number) {
            write_thread(s, t);
        }
    }
}

static void write_table(struct session *s) {
    write_names(s, 0);
    s->table_at = postrun_clock_monotonic();
    s->table_bytes = s->out.total_bytes;
    s->records_at_table = s->out.records;
}

static bool read_number(const char *name, int64_t *number) {
    const char *text = getenv(name);
    if (!text || !*text) {
        return false;
    }
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *number = value;
    return *end == 0 && errno == 0 && value >= 0 && value <= INT32_MAX;
}

/* Who starts several processes tells each which one it is; a job inside a job (mpirun inside sbatch) has the innermost first. */
static void read_rank(int64_t *rank, int64_t *local, int64_t *world) {
    static const char *const families[][3] = {
        {"RANK", "LOCAL_RANK", "WORLD_SIZE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"},
        {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"},
    };
    *rank = *local = *world = -1;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (read_number(families[i][0], rank)) {
            if (!read_number(families[i][1], local)) {
                *local = -1;
            }
            if (!read_number(families[i][2], world)) {
                *world = -1;
            }
            return;
        }
        *rank = -1;
    }
}

static size_t read_file(const char *path, char *text, size_t size) {
    size_t length = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n;
        while (length + 1 < size && (n = read(fd, text + length, size - 1 - length)) > 0) {
            length += (size_t)n;
        }
        close(fd);
    }
    text[length] = 0;
    return length;
}

static void read_command(char *text, size_t size) { /* the arguments with blanks between */
    size_t length = read_file("/proc/self/cmdline", text, size);
    while (length && text[length - 1] == 0) {
        length--;
    }
    for (size_t i = 0; i < length; i++) {
        if (text[i] == 0) {
            text[i] = ' ';
        }
    }
}

static int64_t process_start(void) { /* CLOCK_REALTIME ns; the time of now where the system does not tell */
    char text[1024];
    int64_t now = postrun_clock_realtime();
    read_file("/proc/self/stat", text, sizeof text);
    const char *at = strrchr(text, ')'); /* behind the name, which may hold anything; the state is field 3 */
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    long per_second = sysconf(_SC_CLK_TCK);
    struct timespec boot;
    if (!at || per_second <= 0 || clock_gettime(CLOCK_BOOTTIME, &boot) != 0) {
        return now;
    }
    int64_t since_boot = (int64_t)boot.tv_sec * 1000000000 + boot.tv_nsec;
    int64_t started = (int64_t)(strtod(at, NULL) / (double)per_second * 1e9);
    return started <= since_boot ? now - (since_boot - started) : now;
}

static void write_process(struct session *s) {
    char command[4096];
    int64_t pid = getpid(), ppid = getppid(), start = process_start();
    read_command(command, sizeof command);
    prt_text command_text = text_of(command), host = text_of(s->out.host);
    prt_column columns[] = {{1, PRT_COLUMN_INT, &pid},       {2, PRT_COLUMN_INT, &ppid},  {3, PRT_COLUMN_INT, &start},
                            {4, PRT_COLUMN_TEXT, &command_text}, {5, PRT_COLUMN_TEXT, &host}, {6, PRT_COLUMN_INT, &s->rank},
                            {7, PRT_COLUMN_INT, &s->local_rank}, {8, PRT_COLUMN_INT, &s->world_size}};
    write_block(s, PRT_PROCESS, 0, 1, 0, COLUMNS(columns));
}

/* The next file, with all that is needed to read it. */
static int open_file(struct session *s) {
    int error = postrun_output_open(&s->out);
    if (error) {
        return error;
    }
    pthread_mutex_lock(&state_lock);
    memcpy(s->path, s->out.path, sizeof s->path);
    pthread_mutex_unlock(&state_lock);
    write_anchor(s);
    write_facts(s, 0);
    write_process(s);
    write_threads(s);
    write_table(s);
    return s->out.error;
}

static void write_losses(struct session *s) {
    if (s->loss_count == 0 || s->out.error) {
        return;
    }
    for (size_t i = 0; i < s->loss_count; i++) {
        struct loss *loss = &s->losses[i];
        int64_t source = loss->source, reason = loss->reason, count = (int64_t)loss->count;
        prt_column columns[] = {{1, PRT_COLUMN_INT, &source}, {2, PRT_COLUMN_INT, &reason}, {3, PRT_COLUMN_INT, &count},
                                {4, PRT_COLUMN_TIME, &loss->first}, {5, PRT_COLUMN_TIME, &loss->last}};
        write_block(s, PRT_LOSS, loss->source, 1, loss->first, COLUMNS(columns));
    }
    if (!s->out.error) {
        s->loss_count = 0;
    }
}

/* When the output has ended, a few bytes may still find room: how much is lost so far, and at stop the rest. */
static void write_last_words(struct session *s) {
    size_t left = 0;
    for (size_t i = 0; i < s->loss_count; i++) {
        struct loss *loss = &s->losses[i];
        int64_t source = loss->source, reason = loss->reason, count = (int64_t)loss->count;
        prt_column columns[] = {{1, PRT_COLUMN_INT, &source}, {2, PRT_COLUMN_INT, &reason}, {3, PRT_COLUMN_INT, &count},
                                {4, PRT_COLUMN_TIME, &loss->first}, {5, PRT_COLUMN_TIME, &loss->last}};
        if (postrun_output_last_word(&s->out, block_of(PRT_LOSS, loss->source, 1, loss->first, COLUMNS(columns))) != 0) {
            s->losses[left++] = *loss;
        }
    }
    s->loss_count = left;
}

static void close_file(struct session *s) {
    write_losses(s);
    if (s->out.error) {
        write_last_words(s);
    }
    int64_t blocks = (int64_t)s->out.sequence, records = (int64_t)s->out.records, lost = (int64_t)s->out.lost;
    prt_column columns[] = {{1, PRT_COLUMN_INT, &blocks}, {2, PRT_COLUMN_INT, &records}, {3, PRT_COLUMN_INT, &lost}};
    if (s->out.error != -ENOENT) {
        postrun_output_last_word(&s->out, block_of(PRT_END, 0, 1, 0, COLUMNS(columns)));
    }
    postrun_output_close(&s->out);
}

/* ---------------------------------------------------------------- rows */

static void rotate_if_due(struct session *s) {
    if (!s->out.error && s->out.offset >= s->config.rotate_bytes) {
        close_file(s);
        if (!s->out.error) {
            open_file(s);
        }
    }
}

/* After a block of rows: was it written? */
static void account(struct session *s, int error, uint32_t source, uint32_t count, int64_t first, int64_t last) {
    if (error) {
        lose(s, source, PRT_LOSS_DISK, count, first, last);
        if (s->out.error && !s->disk_loss_told) {
            s->disk_loss_told = true;
            write_last_words(s);
        }
        return;
    }
    s->out.records += count;
    pthread_mutex_lock(&state_lock);
    totals.written += count;
    pthread_mutex_unlock(&state_lock);
    rotate_if_due(s);
}

static void range_of(const int64_t *times, const int64_t *durations, uint32_t count, int64_t *first, int64_t *last) {
    *first = INT64_MAX;
    *last = INT64_MIN;
    for (uint32_t i = 0; i < count; i++) {
        int64_t end = times[i] + (durations ? durations[i] : 0);
        *first = times[i] < *first ? times[i] : *first;
        *last = end > *last ? end : *last;
    }
}

static void write_rows(struct session *s, uint32_t source) {
    struct rows *rows = s->rows;
    int64_t first, last;
    uint32_t count = rows->count, readings = rows->readings;
    if (count + readings == 0) {
        return;
    }
    rows->count = rows->readings = 0;
    write_names(s, s->names_written);
    if (readings) {
        range_of(rows->time, NULL, readings, &first, &last);
        prt_column columns[] = {{1, PRT_COLUMN_INT, rows->counter}, {2, PRT_COLUMN_TIME, rows->time}, {3, PRT_COLUMN_DOUBLE, rows->reading}};
        int error = write_block(s, PRT_COUNTER, source, readings, first, COLUMNS(columns));
        if (error) {
            lose(s, source, PRT_LOSS_DISK, readings, first, last);
        } else {
            s->out.records += readings;
            pthread_mutex_lock(&state_lock);
            totals.written += readings;
            pthread_mutex_unlock(&state_lock);
        }
    }
    first = last = 0;
    int error = s->out.error;
    if (count) {
        range_of(rows->start, rows->duration, count, &first, &last);
        prt_column columns[] = {{1, PRT_COLUMN_INT, rows->name}, {2, PRT_COLUMN_TIME, rows->start}, {3, PRT_COLUMN_DURATION, rows->duration},
                                {5, PRT_COLUMN_INT, rows->depth}, {6, PRT_COLUMN_INT, rows->flags}, {4, PRT_COLUMN_INT, rows->value}};
        size_t n = sizeof columns / sizeof *columns - 1; /* without values where none has one */
        for (uint32_t i = 0; i < count; i++) {
            if (rows->value[i] != POSTRUN_NO_VALUE) {
                n = sizeof columns / sizeof *columns;
                break;
            }
        }
        error = write_block(s, PRT_ANNOTATION, source, count, first, columns, n);
    }
    account(s, error, source, count, first, last);
}

static void add_row(struct session *s, const struct record *record, int64_t flags) {
    struct rows *rows = s->rows;
    uint32_t i = rows->count++;
    rows->name[i] = (int64_t)(record->what & UINT32_MAX);
    rows->start[i] = record->start;
    rows->duration[i] = record->end > record->start ? record->end - record->start : 0;
    rows->value[i] = record->value;
    rows->depth[i] = (int64_t)(record->what >> 32 & 0xff);
    rows->flags[i] = flags;
}

static void add_foreign(struct session *s, uint32_t source, const struct record *record, int64_t flags) {
    if (s->foreign_count == s->foreign_capacity) {
        size_t capacity = s->foreign_capacity ? s->foreign_capacity * 2 : 64;
        struct foreign *list = realloc(s->foreign, capacity * sizeof *list);
        if (!list) {
            lose(s, source, PRT_LOSS_DISK, 1, record->start, record->end);
            return;
        }
        s->foreign = list;
        s->foreign_capacity = capacity;
    }
    s->foreign[s->foreign_count++] = (struct foreign){source, flags, *record};
}

static int compare_foreign(const void *a, const void *b) {
    const struct foreign *x = a, *y = b;
    if (x->source != y->source) {
        return x->source < y->source ? -1 : 1;
    }
    return x->record.end < y->record.end ? -1 : x->record.end > y->record.end;
}

static void write_foreign(struct session *s) {
    if (s->foreign_count == 0) {
        return;
    }
    qsort(s->foreign, s->foreign_count, sizeof *s->foreign, compare_foreign);
    for (size_t i = 0; i < s->foreign_count; i++) {
        add_row(s, &s->foreign[i].record, s->foreign[i].flags);
        if (s->rows->count == ROWS || i + 1 == s->foreign_count || s->foreign[i + 1].source != s->foreign[i].source) {
            write_rows(s, s->foreign[i].source);
        }
    }
    s->foreign_count = 0;
}

/* ---------------------------------------------------------------- draining */

static void meet(struct session *s, struct thread *thread) {
    pthread_mutex_lock(&state_lock);
    thread->met = s->number;
    atomic_store_explicit(&thread->lost_taken, 0, memory_order_relaxed);
    thread->unbalanced_taken = thread->beyond_taken = 0;
    thread->last = (struct record){INT64_MIN, 0, 0, 0};
    pthread_mutex_unlock(&state_lock);
    write_thread(s, thread);
}

static void take_counts(struct session *s, struct thread *thread) {
    uint64_t lost = atomic_load_explicit(&thread->lost, memory_order_acquire);
    uint64_t taken = atomic_load_explicit(&thread->lost_taken, memory_order_relaxed);
    uint64_t unbalanced = atomic_load_explicit(&thread->unbalanced, memory_order_relaxed);
    uint64_t beyond = atomic_load_explicit(&thread->beyond, memory_order_relaxed);
    int64_t now = clock_ticks();
    if (lost > taken) {
        int64_t first = atomic_load_explicit(&thread->lost_first, memory_order_relaxed);
        int64_t last = atomic_load_explicit(&thread->lost_last, memory_order_relaxed);
        pthread_mutex_lock(&state_lock);
        atomic_store_explicit(&thread->lost_taken, lost, memory_order_relaxed);
        pthread_mutex_unlock(&state_lock);
        lose(s, thread->number, PRT_LOSS_RING, lost - taken, first < last ? first : last, last);
    }
    if (beyond > thread->beyond_taken) {
        note_loss(s, thread->number, PRT_LOSS_DEPTH, beyond - thread->beyond_taken, now, now);
    }
    pthread_mutex_lock(&state_lock);
    totals.unbalanced += unbalanced - thread->unbalanced_taken + beyond - thread->beyond_taken;
    thread->unbalanced_taken = unbalanced;
    thread->beyond_taken = beyond;
    pthread_mutex_unlock(&state_lock);
}

/* Ranges still open on a thread that records no more, or no longer matters: ended at `now`. The frame of what was drained last may still be
 * there, as a thread that is just ending it takes the frame away after it wrote the record. */
static void close_frames(struct session *s, struct thread *thread, int64_t now) {
    const struct record *last = &thread->last;
    uint32_t depth = atomic_load_explicit(&thread->depth, memory_order_acquire), closed = 0;
    for (uint32_t i = 0; i < depth && i < STACK_DEPTH; i++) {
        struct frame *frame = &thread->stack[i];
        struct record record = {atomic_load_explicit(&frame->start, memory_order_relaxed), now,
                                atomic_load_explicit(&frame->value, memory_order_relaxed),
                                RECORD_WHAT(atomic_load_explicit(&frame->name, memory_order_relaxed), i, RECORD_RANGE)};
        if (record.start != last->start || record.what != (last->what & 0xffffffffffff)) {
            if (s->rows->count == ROWS) {
                write_rows(s, thread->number);
            }
            add_row(s, &record, FLAG_STOPPED);
            closed++;
        }
    }
    pthread_mutex_lock(&state_lock);
    totals.recorded += closed;
    pthread_mutex_unlock(&state_lock);
}

static void drain_thread(struct session *s, struct thread *thread, bool final) {
    int64_t exited = atomic_load_explicit(&thread->exited, memory_order_acquire);
    if (atomic_load_explicit(&thread->session, memory_order_acquire) == s->number) {
        if (thread->met != s->number) {
            meet(s, thread);
        }
        struct rows *rows = s->rows;
        uint64_t stamp = (uint64_t)(s->number & 0xffff);
        uint64_t tail = atomic_load_explicit(&thread->tail, memory_order_relaxed);
        uint64_t head = atomic_load_explicit(&thread->head, memory_order_acquire);
        uint32_t source = thread->number;
        while (tail != head) {
            uint64_t taken = 0;
            for (; tail != head && rows->count < ROWS && rows->readings < ROWS; tail++) {
                const struct record *record = &thread->ring[tail & thread->mask];
                if (record->what >> 48 != stamp) {
                    continue; /* written by a call that was still under way when the session before had stopped */
                }
                enum record_kind kind = record->what >> 40 & 0xff;
                if (kind == RECORD_SOURCE) {
                    source = (uint32_t)record->start;
                    continue;
                }
                taken++;
                if (kind == RECORD_COUNTER) {
                    uint32_t i = rows->readings++;
                    rows->counter[i] = (int64_t)(record->what & UINT32_MAX);
                    rows->time[i] = record->start;
                    memcpy(&rows->reading[i], &record->value, sizeof(double));
                } else if (source != thread->number) {
                    add_foreign(s, source, record, FLAG_HANDLE);
                    source = thread->number;
                } else {
                    add_row(s, record, kind == RECORD_HANDLE ? FLAG_HANDLE : 0);
                    thread->last = *record;
                }
            }
            pthread_mutex_lock(&state_lock);
            totals.recorded += taken;
            atomic_store_explicit(&thread->tail, tail, memory_order_release);
            pthread_mutex_unlock(&state_lock);
            if (rows->count == ROWS || rows->readings == ROWS) {
                write_rows(s, thread->number);
            }
            if (tail == head && (final || exited)) {
                head = atomic_load_explicit(&thread->head, memory_order_acquire);
            }
        }
        if (final || exited) {
            close_frames(s, thread, exited ? exited : clock_ticks());
        }
        write_rows(s, thread->number);
        take_counts(s, thread);
    }
    if (exited) {
        pthread_mutex_lock(&state_lock);
        postrun_thread_remove(thread);
        pthread_mutex_unlock(&state_lock);
    }
}

static void drain_metrics(struct session *s) {
    pthread_mutex_lock(&state_lock);
    struct metric *metrics = s->metrics;
    size_t count = s->metric_count;
    uint64_t lost = s->metrics_lost - s->metrics_lost_taken;
    s->metrics_lost_taken = s->metrics_lost;
    if (count) {
        s->metrics = NULL;
        s->metric_count = s->metric_capacity = 0;
    }
    pthread_mutex_unlock(&state_lock);
    int64_t now = clock_ticks();
    note_loss(s, 0, PRT_LOSS_RING, lost, now, now);
    if (count == 0) {
        return;
    }
    write_names(s, s->names_written);
    struct rows *rows = s->rows;
    for (size_t from = 0; from < count;) {
        uint32_t n = 0;
        for (; n < ROWS && from < count; n++, from++) {
            rows->counter[n] = metrics[from].name;
            rows->flags[n] = metrics[from].unit;
            rows->time[n] = metrics[from].ticks;
            rows->reading[n] = metrics[from].value;
        }
        prt_column columns[] = {{1, PRT_COLUMN_INT, rows->counter}, {2, PRT_COLUMN_INT, rows->flags},
                                {3, PRT_COLUMN_TIME, rows->time}, {4, PRT_COLUMN_DOUBLE, rows->reading}};
        int64_t first, last;
        range_of(rows->time, NULL, n, &first, &last);
        int error = write_block(s, PRT_METRIC, 0, n, first, COLUMNS(columns));
        if (error) {
            note_loss(s, 0, PRT_LOSS_DISK, n, first, last);
        }
        rotate_if_due(s);
    }
    free(metrics);
}

static void drain(struct session *s, bool all, bool final) {
    int64_t now = postrun_clock_monotonic();
    if (now >= s->anchor_due) {
        postrun_output_check(&s->out);
        write_anchor(s);
        s->anchor_due = now + ANCHOR_NS;
    }
    pthread_mutex_lock(&state_lock);
    size_t from = s->facts_written, facts = s->facts.count;
    pthread_mutex_unlock(&state_lock);
    if (from < facts) {
        write_facts(s, from);
    }
    for (struct thread *thread = atomic_load(&postrun_threads), *next; thread; thread = next) {
        next = atomic_load(&thread->next);
        drain_thread(s, thread, final);
    }
    if (final) {
        struct open_range range;
        uint32_t at = 0;
        while (postrun_handle_close_next(&at, &range)) {
            if (range.session == s->number) {
                struct record record = {range.start, clock_ticks(), range.value, RECORD_WHAT(range.name, range.depth, RECORD_HANDLE)};
                add_foreign(s, range.number, &record, FLAG_HANDLE | FLAG_STOPPED);
                pthread_mutex_lock(&state_lock);
                totals.recorded++;
                pthread_mutex_unlock(&state_lock);
            }
        }
    }
    write_foreign(s);
    drain_metrics(s);
    uint64_t stray = atomic_load(&postrun_stray_lost);
    int64_t ticks = clock_ticks();
    if (stray != s->stray_taken) {
        uint64_t taken = s->stray_taken;
        pthread_mutex_lock(&state_lock);
        s->stray_taken = stray;
        pthread_mutex_unlock(&state_lock);
        lose(s, 0, PRT_LOSS_RING, stray - taken, ticks, ticks);
    }
    if (all || now - s->losses_at >= ANCHOR_NS) {
        write_losses(s);
        s->losses_at = now;
    }
    bool due = now - s->table_at >= TABLE_NS || s->out.total_bytes - s->table_bytes >= TABLE_BYTES;
    if (due && s->out.records > s->records_at_table && !s->out.error) {
        write_threads(s);
        write_table(s);
    }
}

static void finish(struct session *s) {
    char rate[32];
    snprintf(rate, sizeof rate, "%.0f", postrun_clock_rate()); /* better known than at the start */
    pthread_mutex_lock(&state_lock);
    fact_add(&s->facts, "clock.ticks_per_second", rate, false);
    pthread_mutex_unlock(&state_lock);
    write_facts(s, s->facts_written);
    write_anchor(s);
    close_file(s);
}

static void tell_totals(struct session *s) {
    pthread_mutex_lock(&state_lock);
    totals.bytes = s->out.total_bytes;
    totals.blocks = s->out.total_blocks;
    totals.error = s->out.error;
    pthread_mutex_unlock(&state_lock);
}

static void *drain_loop(void *argument) {
    struct session *s = argument;
    pthread_setname_np(pthread_self(), "postrun-drain");
    int64_t period = (int64_t)s->config.drain_ms * NS_PER_MS, due = postrun_clock_monotonic() + period;
    for (bool final = false; !final;) {
        int64_t now = postrun_clock_monotonic();
        wait_for(&wake_word, due - now);
        now = postrun_clock_monotonic();
        due = due > now ? due : now + period;
        final = atomic_load(&s->stopping);
        pthread_mutex_lock(&s->flush_lock);
        uint64_t wanted = s->flush_wanted;
        bool all = final || wanted != s->flush_done;
        pthread_mutex_unlock(&s->flush_lock);
        drain(s, all, final);
        if (final) {
            finish(s);
        }
        tell_totals(s);
        pthread_mutex_lock(&s->flush_lock);
        s->flush_done = wanted;
        pthread_cond_broadcast(&s->flushed);
        pthread_mutex_unlock(&s->flush_lock);
    }
    return NULL;
}

static void *sample_loop(void *argument) {
    struct session *s = argument;
    pthread_setname_np(pthread_self(), "postrun-sampler");
    struct sampler *sampler = postrun_sampler_new(s->config.sample_ms, NULL, NULL);
    if (!sampler) {
        postrun_session_capability("sampler", strerror(ENOMEM));
        return NULL;
    }
    int64_t begin = postrun_clock_monotonic(), due = begin;
    int64_t end = s->config.sample_for_s ? begin + (int64_t)s->config.sample_for_s * 1000000000 : INT64_MAX;
    while (!atomic_load(&s->stopping) && due < end) {
        postrun_sampler_sample(sampler, clock_ticks());
        int64_t interval = (int64_t)postrun_sampler_interval_ms(sampler) * NS_PER_MS, now = postrun_clock_monotonic();
        due += interval;
        if (due <= now) { /* late: at the next moment of the grid */
            due += (now - due) / interval * interval + interval;
        }
        while (!atomic_load(&s->stopping) && now < due) {
            wait_for(&s->sampler_stop, due - now);
            now = postrun_clock_monotonic();
        }
    }
    postrun_sampler_free(sampler);
    return NULL;
}

/* ---------------------------------------------------------------- start and stop */

static void session_free(struct session *s) {
    prt_bytes_free(&s->out.buffer);
    pthread_mutex_destroy(&s->flush_lock);
    pthread_cond_destroy(&s->flushed);
    facts_free(&s->facts);
    free(s->rows);
    free(s->foreign);
    free(s->losses);
    free(s->metrics);
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
    char text[4096];
    fact_add(&s->facts, "version", postrun_version(), false);
    fact_add(&s->facts, "clock", clocks[postrun_clock_kind()], false);
    snprintf(text, sizeof text, "%.0f", postrun_clock_rate());
    fact_add(&s->facts, "clock.ticks_per_second", text, false);
    fact_add(&s->facts, "host", s->out.host, false);
    read_command(text, sizeof text);
    fact_add(&s->facts, "command", text, false);
    snprintf(text, sizeof text, "%u", s->config.sample_ms);
    fact_add(&s->facts, "sample_ms", text, false);
    if (parent) {
        snprintf(text, sizeof text, "%ld", (long)parent->pid);
        fact_add(&s->facts, "forked_from", text, false);
    }
}

static int begin(struct session *s) {
    const char *folder = configured_folder ? configured_folder : getenv("POSTRUN_DIR");
    s->config = configuration;
    s->config.rotate_bytes = s->config.rotate_bytes ? s->config.rotate_bytes : (uint64_t)1 << 30;
    s->config.ring_records = s->config.ring_records ? s->config.ring_records : 16384;
    s->config.drain_ms = s->config.drain_ms ? s->config.drain_ms : 50;
    s->out.zstd_level = s->config.zstd_level;
    s->out.fd = -1;
    if (s->config.zstd_level && !prt_zstd_available()) {
        return -ENOTSUP;
    }
    s->rows = malloc(sizeof *s->rows); /* pages are touched as far as blocks are long */
    if (!s->rows) {
        return -ENOMEM;
    }
    s->rows->count = s->rows->readings = 0;
    postrun_clock_init();
    if (gethostname(s->out.host, sizeof s->out.host) != 0 || !s->out.host[0]) {
        strcpy(s->out.host, "localhost");
    }
    s->out.host[sizeof s->out.host - 1] = 0;
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
    int error = postrun_output_folder(&s->out, folder && *folder ? folder : "postrun-traces");
    if (error) {
        return error;
    }
    library_facts(s);
    read_rank(&s->rank, &s->local_rank, &s->world_size); /* here: the drain thread must not meet a program that sets variables */
    s->anchor_due = postrun_clock_monotonic() + FIRST_ANCHOR_NS;
    return open_file(s);
}

/* With every signal blocked: those of the program go to its own threads. */
static int start_session(void) {
    struct session *s = calloc(1, sizeof *s);
    if (!s) {
        return -ENOMEM;
    }
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
        atomic_store(&wake_word, 0);
        error = -pthread_create(&s->drainer, NULL, drain_loop, s);
    }
    if (error) {
        if (s->out.fd >= 0) {
            unlink(s->out.path);
        }
        postrun_output_close(&s->out);
        session_free(s);
        return error;
    }
    pthread_mutex_lock(&state_lock);
    for (size_t i = 0; i < pending.count; i++) {
        fact_add(&s->facts, pending.list[i].key, pending.list[i].value, false);
    }
    facts_free(&pending);
    totals = (postrun_statistics){.size = sizeof totals};
    current = s;
    pthread_mutex_unlock(&state_lock);
    parent = NULL;
    atomic_store(&postrun_ring_records, s->config.ring_records);
    atomic_store_explicit(&postrun_session, s->number, memory_order_release);
    if (s->config.sample_ms) {
        error = pthread_create(&s->sampler, NULL, sample_loop, s);
        s->has_sampler = error == 0;
        if (error) {
            postrun_session_capability("sampler", strerror(error));
        }
    }
    return 0;
}

static int start_locked(void) {
    if (current && current->pid != getpid()) {
        postrun_forked(); /* by a fork that asked no handlers */
    }
    if (current) {
        return -EALREADY;
    }
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = start_session();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        atomic_store(&postrun_session, SESSION_NONE);
        pthread_mutex_lock(&state_lock);
        totals = (postrun_statistics){.size = sizeof totals, .error = error};
        pthread_mutex_unlock(&state_lock);
    }
    return error;
}

int postrun_start(void) {
    int cancellation, error = enter(&cancellation);
    if (!error) {
        error = start_locked();
        leave(cancellation);
    }
    return error;
}

void postrun_session_start_lazy(void) {
    int saved = errno, cancellation;
    if (enter(&cancellation) == 0) {
        if (atomic_load(&postrun_session) == SESSION_LAZY) {
            start_locked();
        }
        leave(cancellation);
    }
    errno = saved;
}

static void sweep_locked(void) {
    pthread_mutex_lock(&state_lock);
    for (struct thread *thread = atomic_load(&postrun_threads), *next; thread; thread = next) {
        next = atomic_load(&thread->next);
        if (atomic_load_explicit(&thread->exited, memory_order_acquire)) {
            postrun_thread_remove(thread);
        }
    }
    pthread_mutex_unlock(&state_lock);
}

void postrun_session_sweep(void) {
    if (pthread_mutex_trylock(&session_lock) == 0) {
        if (!current) {
            sweep_locked();
        }
        pthread_mutex_unlock(&session_lock);
    }
}

static int stop_locked(void) {
    struct session *s = current;
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
        wake(&s->sampler_stop);
        pthread_join(s->sampler, NULL);
    }
    postrun_session_wake();
    pthread_join(s->drainer, NULL);
    pthread_mutex_lock(&state_lock);
    current = NULL;
    pthread_mutex_unlock(&state_lock);
    session_free(s);
    sweep_locked();
    return 0;
}

int postrun_stop(void) {
    int cancellation, error = enter(&cancellation);
    if (!error) {
        error = stop_locked();
        leave(cancellation);
    }
    return error;
}

int postrun_recording(void) { return atomic_load_explicit(&postrun_session, memory_order_relaxed) != SESSION_NONE; }

int postrun_flush(void) {
    int cancellation, error = enter(&cancellation);
    if (error) {
        return error;
    }
    struct session *s = current;
    if (s && s->pid == getpid()) {
        pthread_mutex_lock(&s->flush_lock);
        uint64_t wanted = ++s->flush_wanted;
        postrun_session_wake();
        while (s->flush_done < wanted) {
            pthread_cond_wait(&s->flushed, &s->flush_lock);
        }
        pthread_mutex_unlock(&s->flush_lock);
        pthread_mutex_lock(&state_lock);
        error = totals.error;
        pthread_mutex_unlock(&state_lock);
    }
    leave(cancellation);
    return error;
}

int postrun_path(char *path, size_t size) {
    int result = -ENOENT;
    pthread_mutex_lock(&state_lock);
    if (current) {
        size_t length = strlen(current->path);
        result = path && length < size ? (int)length : -ENAMETOOLONG;
        if (result > 0) {
            memcpy(path, current->path, length + 1);
        }
    }
    pthread_mutex_unlock(&state_lock);
    return result;
}

void postrun_get_statistics(postrun_statistics *statistics) {
    size_t size = statistics ? statistics->size : 0;
    if (size < sizeof size) {
        return;
    }
    pthread_mutex_lock(&state_lock);
    postrun_statistics now = totals;
    if (current) { /* and what waits in the rings */
        now.lost += atomic_load(&postrun_stray_lost) - current->stray_taken;
        for (struct thread *t = atomic_load(&postrun_threads); t; t = atomic_load(&t->next)) {
            if (atomic_load_explicit(&t->session, memory_order_acquire) == current->number) {
                bool met = t->met == current->number;
                now.recorded += atomic_load_explicit(&t->head, memory_order_relaxed) - atomic_load_explicit(&t->tail, memory_order_relaxed);
                now.lost += atomic_load_explicit(&t->lost, memory_order_relaxed) -
                            (met ? atomic_load_explicit(&t->lost_taken, memory_order_relaxed) : 0);
                now.unbalanced += atomic_load_explicit(&t->unbalanced, memory_order_relaxed) - (met ? t->unbalanced_taken : 0) +
                                  atomic_load_explicit(&t->beyond, memory_order_relaxed) - (met ? t->beyond_taken : 0);
            }
        }
    }
    pthread_mutex_unlock(&state_lock);
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
           (c->ring_records == 0 ||
            (is_power_of_two(c->ring_records) && c->ring_records >= RING_MIN && c->ring_records <= RING_MAX)) &&
           c->zstd_level >= -7 && c->zstd_level <= 22 && (c->flags & ~POSTRUN_FOLLOW_FORK) == 0 &&
           (!c->directory || (*c->directory && strlen(c->directory) < PATH_MAX));
}

int postrun_configure(const postrun_config *config) {
    postrun_config c = POSTRUN_CONFIG_INIT;
    if (config) { /* NULL: the defaults again */
        if (config->size < sizeof config->size || config->size > 4096) {
            return -EINVAL;
        }
        for (size_t i = sizeof c; i < config->size; i++) {
            if (((const char *)config)[i]) {
                return -EINVAL; /* a newer program asks for something that this library does not know */
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
    if (current && current->pid == getpid()) {
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

/* In a child: what is inherited is left as it is, but for the file. */
void postrun_session_forked(void) {
    session_lock = (pthread_mutex_t)SESSION_LOCK_INITIALIZER;
    state_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_store(&wake_word, 0);
    pending = (struct facts){0};
    totals = (postrun_statistics){.size = sizeof totals};
    if (!current) {
        return;
    }
    bool follow = (current->config.flags & POSTRUN_FOLLOW_FORK) && atomic_load(&postrun_session) != SESSION_NONE;
    postrun_output_abandon(&current->out);
    parent = follow ? current : NULL;
    current = NULL;
    atomic_store(&postrun_session, follow ? SESSION_LAZY : SESSION_NONE);
}

/* For programs that do not know of the library: POSTRUN_CAPTURE=1, POSTRUN_DIR, POSTRUN_FOLLOW_FORK=1. */
int postrun_session_environment(void) {
    const char *capture = getenv("POSTRUN_CAPTURE"), *follow = getenv("POSTRUN_FOLLOW_FORK");
    if (!capture || strcmp(capture, "1") != 0) {
        return 0;
    }
    if (follow && strcmp(follow, "1") == 0) {
        configuration.flags |= POSTRUN_FOLLOW_FORK;
    }
    return postrun_start();
}
