/* plain.c - a CUDA program that knows nothing of postrun: `plain counts SCALE`, `plain spins SECONDS`.
 *
 * The static CUDA runtime is linked, so that only the driver loads what CUDA_INJECTION64_PATH names. */
#include "work.h"

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "counts") == 0) {
        long scale = NUMBER(2, 1000);
        device_begin();
        pause_ms(NUMBER(3, 500)); /* until the recorder has attached */
        known_work(scale);
        device_synchronize();
        report_known_work(scale);
        return 7; /* an exit code to be kept */
    }
    fprintf(stderr, "plain: unknown mode\n");
    return 64;
}
