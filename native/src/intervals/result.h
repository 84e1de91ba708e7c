/* result.h - the columns of a result, and its export to Arrow. */
#ifndef POSTRUN_INTERVAL_RESULT_H
#define POSTRUN_INTERVAL_RESULT_H

#include "intervals.h"

/* Bytes of a value while it is computed; 0: not a type of a column. */
size_t interval_width(char format);
/* Adds a column of table->rows values, which are 0; NULL: no memory, or too many columns. */
interval_column *interval_add(interval_table *table, char format);
void interval_set(interval_column *column, size_t width, size_t row, int64_t value);
int interval_set_null(interval_column *column, size_t rows, size_t row);
/* Writes the message of an input that cannot be used; returns -EINVAL. */
int interval_refuse(char *message, const char *text);

#endif
