/* fork.h - the child's handler, for callers that detect a fork without fork handlers. */
#ifndef POSTRUN_FORK_H
#define POSTRUN_FORK_H

void postrun_forked(void);

#endif
