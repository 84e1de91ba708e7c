/* zstd_loader.c - loads libzstd at the first use, if it is installed; never linked. */
#include "zstd_loader.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "block.h"

static struct prt_zstd functions;
static int loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A function pointer is not an object pointer in C: its bytes are copied, as POSIX allows. */
static int find(void *library, const char *name, void *function) {
    void *at = dlsym(library, name);
    memcpy(function, &at, sizeof at);
    return at != NULL;
}

static void load(void) {
    void *library = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return;
    }
    loaded = find(library, "ZSTD_compressBound", &functions.compress_bound) && find(library, "ZSTD_compress", &functions.compress) &&
             find(library, "ZSTD_decompress", &functions.decompress) && find(library, "ZSTD_isError", &functions.is_error);
    if (!loaded) {
        dlclose(library);
    }
}

const struct prt_zstd *prt_zstd(void) {
    pthread_once(&once, load);
    return loaded ? &functions : NULL;
}

int prt_zstd_available(void) { return prt_zstd() != NULL; }
