/* stub_deadly.c - a libcupti that ends the program: when it is loaded (-DAT_LOAD), else when any of its functions is called.
 *
 * -DLIKE_13_2: has the functions by which CUPTI 13.2 is known. */
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))
#define DEADLY(name) \
    EXPORT int name(void) { abort(); }

#ifdef AT_LOAD
static __attribute__((constructor)) void loaded(void) { abort(); }
#endif
DEADLY(cuptiGetVersion)
DEADLY(cuptiGetResultString)
DEADLY(cuptiActivityRegisterCallbacks)
DEADLY(cuptiActivityEnable)
DEADLY(cuptiActivityDisable)
DEADLY(cuptiActivityFlushAll)
DEADLY(cuptiActivityGetNextRecord)
#ifdef LIKE_13_2
DEADLY(cuptiActivityEnable_v2)
#endif
