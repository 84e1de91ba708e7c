/* fork.h - for those who notice a fork that no handler was called for. */
#ifndef POSTRUN_FORK_H
#define POSTRUN_FORK_H

void postrun_forked(void);

#endif
