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

/* One call at a time, without a lock. Only if the CUDA driver is READY. */
bool postrun_cupti_attach(char *why, size_t size); /* false: not attached; `why` */
/* Whether CUPTI still records for us. False: another client has ended that, and nothing of CUPTI may be called but postrun_cupti_lost. */
bool postrun_cupti_lasts(void);
void postrun_cupti_flush(void); /* delivers the records of finished work */
/* Delivers everything and stops recording; other clients may then use CUPTI. `whole` false: CUPTI only delivers what it has, as when the
 * program ends. Records of work that begins after `end_ns` are dropped. */
void postrun_cupti_detach(bool whole, int64_t end_ns);
/* Records of work that begins after `last_ns` are not taken; `other`: who it may have been. */
void postrun_cupti_lost(int64_t last_ns, char *other, size_t size);
void postrun_cupti_forked(void);

#pragma GCC visibility pop
#endif
