/* session.h - the state that the parts of a running session share.
 *
 * Locks: session.c locks one during a start, stop, configure or flush. postrun_state_lock is held only briefly, and never while a file is
 * written. */
#ifndef POSTRUN_SESSION_H
#define POSTRUN_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/capture.h"
#include "core/redact.h"
#include "core/ring.h"
#include "facts.h"
#include "gpu/gpu_visible.h"
#include "output.h"

#define NS_PER_MS 1000000
#define NS_PER_S 1000000000
#define ANCHOR_NS 1000000000 /* from one clock anchor to the next */
#define ROWS 16384u          /* of a block */
#define ANCHORS 1024u        /* that are remembered */
#define FLAG_STOPPED 1
#define FLAG_HANDLE 2

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

struct session {
    uint32_t number;
    pid_t pid;
    postrun_config config;
    pthread_t drainer, sampler;
    bool has_sampler;
    struct gpu_visible visible; /* as the program was started: it may change its environment */
    bool by_environment; /* POSTRUN_CAPTURE=1 began it, or the session of the parent that it continues */
    bool unasked;        /* and the program has not started one itself; session_lock */
    _Atomic uint32_t stopping;     /* stop_locked() sets it; the drain and sample loops read it */
    _Atomic uint32_t sampler_stop; /* stop_locked() wakes the sample loop with it (waiting.c) */

    /* the drain thread's, and before it runs the starter's */
    struct output out;
    struct rows *rows;
    struct foreign *foreign;
    size_t foreign_count, foreign_capacity;
    struct loss *losses;
    size_t loss_count, loss_capacity;
    uint32_t names_written;
    int64_t anchor_due, table_at, losses_at;
    int64_t file_opened_at; /* monotonic ns */
    bool file_has_rows;
    uint64_t table_bytes, records_at_table;
    uint64_t stray_taken; /* changed under postrun_state_lock */
    bool disk_loss_told;
    int64_t rank, local_rank, world_size;
    struct redaction redaction;
    char command[4096];
    struct clock_anchor *anchors; /* the last ones of the files */
    size_t anchor_count;
    int64_t gpu_losses_at;
    int64_t metrics_due; /* monotonic ns at which samples are written at the latest */

    /* under flush_lock */
    pthread_mutex_t flush_lock;
    pthread_cond_t flushed;
    uint64_t flush_wanted, flush_done;

    /* under postrun_state_lock */
    struct metric *metrics;
    size_t metric_count, metric_capacity;
    uint64_t metrics_lost, metrics_lost_taken;
    struct facts facts;
    size_t facts_written;
    char path[PATH_MAX];
};

#pragma GCC visibility push(hidden)

extern pthread_mutex_t postrun_state_lock;
extern struct session *postrun_current;   /* changed under both locks */
extern postrun_statistics postrun_totals; /* of the session; postrun_state_lock */

/* losses.c: losses wait for the next LOSS block. */
void postrun_loss_note(struct session *s, uint32_t source, enum prt_loss_reason reason, uint64_t count, int64_t first, int64_t last);
/* Lost records, which the statistics count also. */
void postrun_loss(struct session *s, uint32_t source, enum prt_loss_reason reason, uint64_t count, int64_t first, int64_t last);
void postrun_losses_write(struct session *s);
void postrun_losses_last_words(struct session *s); /* when the output has ended, a few bytes may still find room */

/* trace_file.c: blocks other than rows. */
#define COLUMNS(columns) (columns), sizeof(columns) / sizeof *(columns)
prt_block postrun_block_of(enum prt_block_type type, uint32_t source, uint32_t count, int64_t first, const prt_column *columns, size_t n);
int postrun_file_block(struct session *s, enum prt_block_type type, uint32_t source, uint32_t count, int64_t first,
                       const prt_column *columns, size_t n);
void postrun_file_anchor(struct session *s);
void postrun_file_facts(struct session *s, size_t from); /* starting with this number */
void postrun_file_names(struct session *s, uint32_t from); /* the ids behind `from` */
void postrun_file_thread(struct session *s, const struct thread *thread);
void postrun_file_tables(struct session *s); /* all threads and names again */
int postrun_file_open(struct session *s);    /* the next file, with all that is needed to read it */
void postrun_file_close(struct session *s);
void postrun_file_before_rows(struct session *s); /* begins the next file if this one is old */
void postrun_file_after_rows(struct session *s);  /* begins the next file if this one is long */

/* rows.c: records wait here until a block is full or its thread drained. */
void postrun_rows_add(struct session *s, const struct record *record, int64_t flags);
void postrun_rows_write(struct session *s, uint32_t source);
void postrun_rows_add_foreign(struct session *s, uint32_t source, const struct record *record, int64_t flags);
void postrun_rows_write_foreign(struct session *s);
void postrun_rows_write_metrics(struct session *s, bool all); /* all: none waits any longer */
/* After a block of rows: counts it, as written or lost. */
void postrun_rows_account(struct session *s, int error, uint32_t source, uint32_t count, int64_t first, int64_t last);

/* device_blocks.c: GPU activity. On the drain thread: writes the rows that have arrived. */
void postrun_device_blocks_write(struct session *s, bool final);
void postrun_device_blocks_forked(void);

void *postrun_drain_loop(void *session);  /* drain.c */
void *postrun_sample_loop(void *session); /* sampling.c */

#pragma GCC visibility pop

#endif
