/* names.h - names by id, for the writer of trace files. */
#ifndef POSTRUN_NAMES_H
#define POSTRUN_NAMES_H

#include "format/block.h"

uint32_t postrun_names_count(void);              /* ids 1 to this exist, and never change */
prt_text postrun_names_text(uint32_t id);        /* of an existing id */
void postrun_names_forked(void);                 /* in a child: no other thread is in here any more */

#endif
