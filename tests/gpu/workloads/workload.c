/* workload.c - the program that the cases of the acceptance suite record: `workload MODE [ARGUMENT...]`. */
#include <stdio.h>
#include <string.h>

#include "modes.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} modes[] = {
    {"counts", mode_counts},     {"clock", mode_clock},   {"windows", mode_windows},   {"cycles", mode_cycles},
    {"threads", mode_threads},   {"graphs", mode_graphs}, {"captures", mode_captures}, {"clients", mode_clients},
    {"overhead", mode_overhead}, {"rate", mode_rate},     {"long", mode_long},         {"load", mode_load},
};

int main(int argc, char **argv) {
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            return modes[i].run(argc - 1, argv + 1);
        }
    }
    fprintf(stderr, "workload: unknown mode\n");
    return 64;
}
