/* cupti_attach.h - recording through CUPTI, from attaching to detaching. */
#ifndef POSTRUN_CUPTI_ATTACH_H
#define POSTRUN_CUPTI_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* One call at a time, and no lock held. Only where the CUDA driver is READY. */
bool postrun_cupti_attach(char *why, size_t size); /* false: not attached; `why` */
void postrun_cupti_flush(void);                    /* records of work that is done come in */
/* Everything comes in, and CUPTI leaves the process. `whole` false: it only gives what it has, as when the program ends. False: another
 * profiler has come in the meantime, so CUPTI is left to it; `other`: its name. */
bool postrun_cupti_detach(bool whole, char *other, size_t size);
void postrun_cupti_forked(void);

#pragma GCC visibility pop
#endif
