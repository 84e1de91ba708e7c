/* waiting.h - a word on which one thread waits until another thread wakes it. */
#ifndef POSTRUN_WAITING_H
#define POSTRUN_WAITING_H

#include <stdatomic.h>
#include <stdint.h>

/* Until the word is not 0, or the time is over; takes the word. */
void postrun_wait(_Atomic uint32_t *word, int64_t ns);
/* The same, but leaves the word. */
void postrun_wait_keep(_Atomic uint32_t *word, int64_t ns);
void postrun_wake(_Atomic uint32_t *word); /* sets the word; makes no system call if it is set already. Pairs with postrun_wait() */

#endif
