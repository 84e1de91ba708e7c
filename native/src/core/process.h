/* process.h - facts about this process for the PROCESS block of a trace file. */
#ifndef POSTRUN_PROCESS_H
#define POSTRUN_PROCESS_H

#include <stddef.h>
#include <stdint.h>

#include "redact.h"

void postrun_process_rank(int64_t *rank, int64_t *local, int64_t *world); /* from the environment; -1: unknown */
void postrun_process_command(char *text, size_t size,
                             const struct redaction *wish); /* the arguments with blanks between, without secrets */
int64_t postrun_process_start(void); /* CLOCK_REALTIME ns; the current time if the system does not report it */

#endif
