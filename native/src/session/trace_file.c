/* trace_file.c - writes the blocks of a trace file other than rows: clock anchors, facts, names, threads, the process, the end. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/names.h"
#include "core/process.h"
#include "session.h"

prt_block postrun_block_of(enum prt_block_type type, uint32_t source, uint32_t count, int64_t first, const prt_column *columns, size_t n) {
    return (prt_block){
        .type = (uint16_t)type, .source = source, .count = count, .first_time = first, .columns = columns, .column_count = n};
}

int postrun_file_block(struct session *s, enum prt_block_type type, uint32_t source, uint32_t count, int64_t first,
                       const prt_column *columns, size_t n) {
    return postrun_output_block(&s->out, postrun_block_of(type, source, count, first, columns, n));
}

void postrun_file_anchor(struct session *s) {
    struct clock_anchor anchor;
    postrun_clock_anchor(&anchor);
    s->anchors[s->anchor_count++ % ANCHORS] = anchor;
    prt_column columns[] = {{1, PRT_COLUMN_TIME, &anchor.ticks},
                            {2, PRT_COLUMN_INT, &anchor.monotonic_ns},
                            {3, PRT_COLUMN_INT, &anchor.realtime_ns},
                            {4, PRT_COLUMN_INT, &anchor.uncertainty_ns}};
    postrun_file_block(s, PRT_CLOCK, 0, 1, anchor.ticks, COLUMNS(columns));
}

/* In a file that follows another: its first rows, and late rows, were recorded before it began. */
static void write_last_anchors(struct session *s) {
    int64_t values[4][8];
    uint32_t n = 0;
    for (size_t i = s->anchor_count > 8 ? s->anchor_count - 8 : 0; i < s->anchor_count; i++, n++) {
        const struct clock_anchor *anchor = &s->anchors[i % ANCHORS];
        values[0][n] = anchor->ticks;
        values[1][n] = anchor->monotonic_ns;
        values[2][n] = anchor->realtime_ns;
        values[3][n] = anchor->uncertainty_ns;
    }
    if (n) {
        prt_column columns[] = {{1, PRT_COLUMN_TIME, values[0]},
                                {2, PRT_COLUMN_INT, values[1]},
                                {3, PRT_COLUMN_INT, values[2]},
                                {4, PRT_COLUMN_INT, values[3]}};
        postrun_file_block(s, PRT_CLOCK, 0, n, values[0][0], COLUMNS(columns));
    }
}

static prt_text text_of(const char *text) { return (prt_text){text, strlen(text)}; }

/* Facts from number `from`; at most 64 per block, as they may be long. Only this function, on the drain thread, removes texts. */
void postrun_file_facts(struct session *s, size_t from) {
    for (;;) {
        prt_text keys[64], values[64];
        uint32_t n = 0;
        pthread_mutex_lock(&postrun_state_lock);
        for (; n < 64 && from < s->facts.count; n++, from++) {
            keys[n] = text_of(s->facts.list[from].key);
            values[n] = text_of(s->facts.list[from].value);
        }
        s->facts_written = from;
        if (n == 0) { /* all are in the file */
            postrun_facts_forget(&s->facts);
            s->facts_written = s->facts.count;
        }
        pthread_mutex_unlock(&postrun_state_lock);
        if (n == 0) {
            return;
        }
        prt_column columns[] = {{1, PRT_COLUMN_TEXT, keys}, {2, PRT_COLUMN_TEXT, values}};
        postrun_file_block(s, PRT_META, 0, n, 0, COLUMNS(columns));
    }
}

void postrun_file_names(struct session *s, uint32_t from) {
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
        postrun_file_block(s, PRT_STRINGS, 0, n, 0, COLUMNS(columns));
    }
    s->names_written = end;
}

void postrun_file_thread(struct session *s, const struct thread *thread) {
    int64_t number = thread->number, tid = thread->tid;
    prt_text name = {thread->name, strnlen(thread->name, sizeof thread->name)};
    prt_column columns[] = {{1, PRT_COLUMN_INT, &number}, {2, PRT_COLUMN_INT, &tid}, {3, PRT_COLUMN_TEXT, &name}};
    postrun_file_block(s, PRT_THREAD, 0, 1, 0, COLUMNS(columns));
}

static void write_threads(struct session *s) { /* that have recorded and live */
    for (struct thread *t = atomic_load(&postrun_threads); t; t = atomic_load(&t->next)) {
        if (t->met == s->number) {
            postrun_file_thread(s, t);
        }
    }
}

static void write_table(struct session *s) {
    postrun_file_names(s, 0);
    s->table_at = postrun_clock_monotonic();
    s->table_bytes = s->out.total_bytes;
    s->records_at_table = s->out.records;
}

void postrun_file_tables(struct session *s) {
    write_threads(s);
    write_table(s);
}

static void write_process(struct session *s) {
    int64_t pid = getpid(), ppid = getppid(), start = postrun_process_start();
    prt_text command_text = text_of(s->command), host = text_of(s->out.host);
    prt_column columns[] = {{1, PRT_COLUMN_INT, &pid},           {2, PRT_COLUMN_INT, &ppid},         {3, PRT_COLUMN_INT, &start},
                            {4, PRT_COLUMN_TEXT, &command_text}, {5, PRT_COLUMN_TEXT, &host},        {6, PRT_COLUMN_INT, &s->rank},
                            {7, PRT_COLUMN_INT, &s->local_rank}, {8, PRT_COLUMN_INT, &s->world_size}};
    postrun_file_block(s, PRT_PROCESS, 0, 1, 0, COLUMNS(columns));
}

int postrun_file_open(struct session *s) {
    int error = postrun_output_open(&s->out);
    if (error) {
        return error;
    }
    pthread_mutex_lock(&postrun_state_lock);
    memcpy(s->path, s->out.path, sizeof s->path);
    pthread_mutex_unlock(&postrun_state_lock);
    s->file_opened_at = postrun_clock_monotonic();
    s->file_has_rows = false;
    write_last_anchors(s);
    postrun_file_anchor(s);
    postrun_file_facts(s, 0);
    write_process(s);
    postrun_file_tables(s);
    return s->out.error;
}

void postrun_file_close(struct session *s) {
    postrun_losses_write(s);
    if (s->out.error) {
        postrun_losses_last_words(s);
    }
    int64_t blocks = (int64_t)s->out.sequence, records = (int64_t)s->out.records, lost = (int64_t)s->out.lost;
    prt_column columns[] = {{1, PRT_COLUMN_INT, &blocks}, {2, PRT_COLUMN_INT, &records}, {3, PRT_COLUMN_INT, &lost}};
    if (s->out.error != -ENOENT) {
        postrun_output_last_word(&s->out, postrun_block_of(PRT_END, 0, 1, 0, COLUMNS(columns)));
    }
    postrun_output_close(&s->out);
}

static void begin_next(struct session *s) {
    postrun_file_close(s);
    if (!s->out.error) {
        postrun_file_open(s);
    }
}

/* Here, and not as soon as the file is old: so no file is without records, however long a session is idle. */
void postrun_file_before_rows(struct session *s) {
    if (!s->out.error && s->file_has_rows && s->config.rotate_s) {
        uint64_t age_s = (uint64_t)(postrun_clock_monotonic() - s->file_opened_at) / NS_PER_S;
        if (age_s >= s->config.rotate_s) {
            begin_next(s);
        }
    }
}

void postrun_file_after_rows(struct session *s) {
    s->file_has_rows = true;
    if (!s->out.error && s->out.offset >= s->config.rotate_bytes) {
        begin_next(s);
    }
}
