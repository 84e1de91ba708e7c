/* step_name.h - recognizes the name of a step and its number. */
#ifndef POSTRUN_STEP_NAME_H
#define POSTRUN_STEP_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* step, step_10, step-10, step 10, step10, ProfilerStep#10, in any case. `number`: the one at its end, -1: none. */
static inline bool step_name(const char *at, size_t length, int64_t *number) {
    size_t from = 4;
    if (length >= 13 && strncasecmp(at, "ProfilerStep#", 13) == 0) {
        from = 13;
    } else if (length < 4 || strncasecmp(at, "step", 4) != 0) {
        return false;
    } else if (length > 5 && memchr("_ -", at[4], 3)) {
        from = 5;
    }
    *number = -1;
    if (from == length && from != 4) {
        return false;
    }
    for (size_t i = from; i < length; i++) {
        if (at[i] < '0' || at[i] > '9' || i - from > 17) {
            return false;
        }
        *number = (i == from ? 0 : *number * 10) + (at[i] - '0');
    }
    return true;
}

#endif
