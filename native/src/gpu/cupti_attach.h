/* cupti_attach.h - recording through CUPTI, from attaching to detaching. */
#ifndef POSTRUN_CUPTI_ATTACH_H
#define POSTRUN_CUPTI_ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* Reads the environment: only on threads of the program, when a session begins. */
void postrun_cupti_environment(void);
/* Reads TEARDOWN_CUPTI again, which PyTorch sets while it runs: only on threads of the program. */
void postrun_cupti_teardown(void);

/* One call at a time, and no lock held. Only where the CUDA driver is READY. */
bool postrun_cupti_attach(char *why, size_t size); /* false: not attached; `why` */
/* Whether CUPTI still records for us. False: another client has ended that, and nothing of CUPTI may be called but postrun_cupti_lost. */
bool postrun_cupti_lasts(void);
void postrun_cupti_flush(void); /* records of work that is done come in */
/* Everything comes in, nothing is recorded any more, and other clients may use CUPTI. `whole` false: it only gives what it has, as when the
 * program ends. Records of work that begins after `end_ns` are not taken. */
void postrun_cupti_detach(bool whole, int64_t end_ns);
/* Records of work that begins after `last_ns` are not taken; `other`: who it may have been. */
void postrun_cupti_lost(int64_t last_ns, char *other, size_t size);
void postrun_cupti_forked(void);

#pragma GCC visibility pop
#endif
