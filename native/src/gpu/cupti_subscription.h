/* cupti_subscription.h - the subscription to CUPTI that a window holds.
 *
 * Its holder is the only client of CUPTI in the process: others get error 39 with the name "postrun". From CUDA 13.3 Update 1, several
 * clients can have one each if all of them agree; CUPTI then requires the functions that take the subscription. */
#ifndef POSTRUN_CUPTI_SUBSCRIPTION_H
#define POSTRUN_CUPTI_SUBSCRIPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cupti;

#pragma GCC visibility push(hidden)

/* Reads the environment. Only on threads of the program: at the start of a session. */
void postrun_subscription_environment(void);
/* 0, or an error of CUPTI; `other`: after error 39, the client that has subscribed. Without an error the caller has the subscription
 * until it ends it. */
int postrun_subscribe(const struct cupti *cupti, char *other, size_t size);
/* Whether it is still there. Makes a harmless call into the driver and listens to it, so that CUPTI itself is not called: another client
 * may be ending it right now. True if nothing can be listened to. */
bool postrun_subscription_lasts(void);
/* The handle for functions that take one; NULL: CUPTI has one client, and requires the other functions. */
void *postrun_subscription_shared(void);
void postrun_subscription_never_shared(void); /* starting with the next one */
void postrun_unsubscribe(const struct cupti *cupti);
/* Ends the subscription and calls `act`, at the end of a call into the driver if one can be listened to, as the vendor advises. The result
 * is that of `act`. */
int postrun_unsubscribe_and(const struct cupti *cupti, int (*act)(void));
void postrun_subscription_lost(void); /* another client ended it: it is not used again */
void postrun_subscription_guess(char *name, size_t size); /* which tools the process has loaded */
void postrun_subscription_forked(void);

#pragma GCC visibility pop
#endif
