/* facts.c - lists of facts (key and value), and the metadata that the program and the library state about the run. */
#define _GNU_SOURCE
#include "facts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

#define FACTS_MAX 65536u

static struct facts pending; /* for the next session; under postrun_state_lock */

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

int postrun_facts_add(struct facts *facts, const char *key, const char *value, bool replace) {
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

void postrun_facts_forget(struct facts *facts) {
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

void postrun_facts_free(struct facts *facts) {
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
    pthread_mutex_lock(&postrun_state_lock);
    struct redaction wish = postrun_current ? postrun_current->redaction : postrun_redaction();
    pthread_mutex_unlock(&postrun_state_lock);
    bool dropped = wish.command && strcmp(key, "job.command") == 0; /* its presence marks the file of a recorder */
    char *redacted = postrun_redact_places(postrun_redact_value(key, dropped ? "" : value), &wish);
    if (!redacted) {
        return -ENOMEM;
    }
    pthread_mutex_lock(&postrun_state_lock);
    int result = postrun_facts_add(postrun_current ? &postrun_current->facts : &pending, key, redacted, !postrun_current);
    pthread_mutex_unlock(&postrun_state_lock);
    free(redacted);
    return result;
}

int postrun_session_capability(const char *key, const char *why) {
    char name[256];
    snprintf(name, sizeof name, "capability.%s", key);
    return postrun_metadata(name, why);
}

void postrun_facts_take_pending(struct facts *facts) {
    for (size_t i = 0; i < pending.count; i++) {
        postrun_facts_add(facts, pending.list[i].key, pending.list[i].value, false);
    }
    postrun_facts_free(&pending);
}

void postrun_facts_forked(void) { pending = (struct facts){0}; }
