/* cupti_buffers.h - memory that CUPTI fills with records. */
#ifndef POSTRUN_CUPTI_BUFFERS_H
#define POSTRUN_CUPTI_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define CUPTI_BUFFER (4u << 20)

void postrun_buffers_limit(size_t bytes);          /* of all that CUPTI holds; default 128 MiB */
uint8_t *postrun_buffer_get(size_t *size, int may_decline); /* NULL: declined */
/* 0: nobody else has written to it. 1: it was shared, and what stands in it is lost. */
int postrun_buffer_is_shared(const uint8_t *buffer);
void postrun_buffer_put(uint8_t *buffer);
void postrun_buffers_trim(void); /* frees those that CUPTI does not hold */
void postrun_buffers_forked(void);

#pragma GCC visibility pop
#endif
