/* getenv_guard.c - to be preloaded: ends the program where the recorder's thread of GPUs reads the environment, which the program may be
 * changing at that time. The stub libraries may: their variables do not change. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

char *getenv(const char *name) {
    static char *(*real)(const char *);
    char thread[16] = "";
    if (!real) real = (char *(*)(const char *))dlsym(RTLD_NEXT, "getenv");
    prctl(PR_GET_NAME, thread);
    if (strcmp(thread, "postrun-gpu") == 0 && strncmp(name, "STUB_", 5) != 0) {
        fprintf(stderr, "postrun-gpu reads %s\n", name);
        abort();
    }
    return real(name);
}
