/* capture.c - how does a program in C record what it does?
 *
 *     cc capture.c $(pkg-config --cflags --libs postrun) -lm -o capture
 *     ./capture traces
 *
 * pkg-config finds the library if it was installed by
 *
 *     cmake -S native -B build/c && cmake --build build/c && cmake --install build/c --prefix ~/.local
 *
 * with PKG_CONFIG_PATH=~/.local/lib/pkgconfig (and LD_LIBRARY_PATH=~/.local/lib to run). The functions are explained in postrun(3). */
#include <math.h>
#include <postrun.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 50, SAMPLES = 200000 };

static double samples[SAMPLES];

static uint32_t name_of(const char *text) { return postrun_name(text, strlen(text)); }

int main(int argc, char **argv) {
    postrun_config config = POSTRUN_CONFIG_INIT;
    config.directory = argc > 1 ? argv[1] : NULL; /* else $POSTRUN_DIR, or postrun-traces */
    config.sample_ms = 100;                       /* also processors, memory, disks, network */
    int error = postrun_configure(&config);
    if (!error) {
        error = postrun_start();
    }
    if (error) { /* a program that only wants to be measured would go on here */
        fprintf(stderr, "cannot record: %s\n", strerror(-error));
        return 1;
    }
    postrun_metadata("model", "the mean of sines");

    /* Names are made once; their numbers cost nothing. */
    uint32_t step = name_of("step"), load = name_of("load"), compute = name_of("compute"), loss = name_of("loss");
    for (int i = 0; i < STEPS; i++) {
        postrun_begin(step, i); /* a range with a value: which step it is */

        postrun_begin(load, POSTRUN_NO_VALUE);
        for (int k = 0; k < SAMPLES; k++) {
            samples[k] = i + k * 1e-5;
        }
        postrun_end();

        postrun_begin(compute, POSTRUN_NO_VALUE);
        double sum = 0;
        for (int k = 0; k < SAMPLES; k++) {
            sum += sin(samples[k]);
        }
        postrun_end();

        postrun_counter(loss, sum / SAMPLES);
        postrun_end();
    }

    char path[4096] = "";
    postrun_path(path, sizeof path);
    error = postrun_stop();
    postrun_statistics statistics = {.size = sizeof statistics};
    postrun_get_statistics(&statistics);
    printf("%s: %llu records, %llu lost\n", path, (unsigned long long)statistics.written, (unsigned long long)statistics.lost);
    return error != 0;
}
