/* losses.c - collects losses and writes them as LOSS blocks. */
#include <errno.h>
#include <stdlib.h>

#include "session.h"

void postrun_loss_note(struct session *s, uint32_t source, enum prt_loss_reason reason, uint64_t count, int64_t first, int64_t last) {
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
            return; /* still in the postrun_totals */
        }
        s->losses = losses;
        s->loss_capacity = capacity;
    }
    s->losses[s->loss_count++] = (struct loss){source, reason, count, first, last};
}

void postrun_loss(struct session *s, uint32_t source, enum prt_loss_reason reason, uint64_t count, int64_t first, int64_t last) {
    s->out.lost += count;
    pthread_mutex_lock(&postrun_state_lock);
    postrun_totals.lost += count;
    pthread_mutex_unlock(&postrun_state_lock);
    postrun_loss_note(s, source, reason, count, first, last);
}

void postrun_losses_write(struct session *s) {
    if (s->loss_count == 0 || s->out.error) {
        return;
    }
    for (size_t i = 0; i < s->loss_count; i++) {
        struct loss *loss = &s->losses[i];
        int64_t source = loss->source, reason = loss->reason, count = (int64_t)loss->count;
        prt_column columns[] = {{1, PRT_COLUMN_INT, &source},
                                {2, PRT_COLUMN_INT, &reason},
                                {3, PRT_COLUMN_INT, &count},
                                {4, PRT_COLUMN_TIME, &loss->first},
                                {5, PRT_COLUMN_TIME, &loss->last}};
        postrun_file_block(s, PRT_LOSS, loss->source, 1, loss->first, COLUMNS(columns));
    }
    if (!s->out.error) {
        s->loss_count = 0;
    }
}

/* When the output has ended, a few bytes may still find room: how much is lost so far, and at stop the rest. */
void postrun_losses_last_words(struct session *s) {
    size_t left = 0;
    for (size_t i = 0; i < s->loss_count; i++) {
        struct loss *loss = &s->losses[i];
        int64_t source = loss->source, reason = loss->reason, count = (int64_t)loss->count;
        prt_column columns[] = {{1, PRT_COLUMN_INT, &source},
                                {2, PRT_COLUMN_INT, &reason},
                                {3, PRT_COLUMN_INT, &count},
                                {4, PRT_COLUMN_TIME, &loss->first},
                                {5, PRT_COLUMN_TIME, &loss->last}};
        if (postrun_output_last_word(&s->out, postrun_block_of(PRT_LOSS, loss->source, 1, loss->first, COLUMNS(columns))) != 0) {
            s->losses[left++] = *loss;
        }
    }
    s->loss_count = left;
}
