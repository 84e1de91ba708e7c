/* stub_wsl.c - for LD_PRELOAD: the machine says that it is WSL. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

__attribute__((visibility("default"))) FILE *fopen(const char *path, const char *mode) {
    static char release[] = "5.15.90.1-microsoft-standard-WSL2\n";
    if (strcmp(path, "/proc/sys/kernel/osrelease") == 0) {
        return fmemopen(release, sizeof release - 1, "r");
    }
    return ((FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen"))(path, mode);
}
