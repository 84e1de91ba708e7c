/* cupti_buffers.h - memory that CUPTI fills with records. */
#ifndef POSTRUN_CUPTI_BUFFERS_H
#define POSTRUN_CUPTI_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define CUPTI_BUFFER (512u << 10) /* bytes, with the header: CUPTI 13 may take a buffer for each thread, and most are nearly empty */

void postrun_buffers_limit(size_t bytes); /* of all that CUPTI has; default 128 MiB */
uint8_t *postrun_buffer_get(size_t *size, int may_decline); /* NULL: declined */
/* SHARED: others have written to it also, so its content is lost. FOREIGN: another tool supplied it, whose callbacks ours replaced. */
enum buffer_origin { BUFFER_OWN, BUFFER_SHARED, BUFFER_FOREIGN };
enum buffer_origin postrun_buffer_origin(const uint8_t *buffer);
void postrun_buffer_put(uint8_t *buffer); /* only BUFFER_OWN */
void postrun_buffers_trim(void); /* frees those that CUPTI does not hold: until then they are kept for its next request */
void postrun_buffers_abandon(void); /* CUPTI returns no more buffers: those that it has no longer count */
void postrun_buffers_forked(void);

#pragma GCC visibility pop
#endif
