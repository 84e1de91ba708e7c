/* facts.h - a list of keys with values. It is used under the lock of its owner. */
#ifndef POSTRUN_FACTS_H
#define POSTRUN_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fact {
    uint64_t hash; /* of the key */
    char *key, *value;
};
struct facts { /* in the order of arrival; the last value of a key is valid */
    struct fact *list;
    size_t count, capacity, keys;
};

#define FACT_MAX 65536u /* bytes of a key or value */

/* `replace`: the previous value of the key is not needed any more. 0, or -ENOMEM: no memory, or too many keys. */
int postrun_facts_add(struct facts *facts, const char *key, const char *value, bool replace);
void postrun_facts_forget(struct facts *facts); /* drops values that later ones of the same key replaced, if there are many */
void postrun_facts_free(struct facts *facts);

/* Moves the metadata that the program stated before this session into its facts. Under postrun_state_lock. */
void postrun_facts_take_pending(struct facts *facts);
void postrun_facts_forked(void); /* in a child: forgets the pending metadata of the parent */

#endif
