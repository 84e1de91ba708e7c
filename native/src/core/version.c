/* version.c - the version of the library. */
#include "postrun.h"

#define STRING_(x) #x
#define STRING(x) STRING_(x)

const char *postrun_version(void) {
    return STRING(POSTRUN_VERSION_MAJOR) "." STRING(POSTRUN_VERSION_MINOR) "." STRING(POSTRUN_VERSION_PATCH);
}
