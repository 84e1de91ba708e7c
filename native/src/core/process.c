/* process.c - facts about this process: its command, its start time and its rank in the job. */
#define _GNU_SOURCE
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"

static bool read_number(const char *name, int64_t *number) {
    const char *text = getenv(name);
    if (!text || !*text) {
        return false;
    }
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    *number = value;
    return *end == 0 && errno == 0 && value >= 0 && value <= INT32_MAX;
}

/* The launcher of several processes passes each one its rank. In a job inside a job (mpirun inside sbatch) the innermost launcher
 * counts. */
void postrun_process_rank(int64_t *rank, int64_t *local, int64_t *world) {
    static const char *const families[][3] = {
        {"RANK", "LOCAL_RANK", "WORLD_SIZE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"},
        {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"},
    };
    *rank = *local = *world = -1;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (read_number(families[i][0], rank)) {
            if (!read_number(families[i][1], local)) {
                *local = -1;
            }
            if (!read_number(families[i][2], world)) {
                *world = -1;
            }
            return;
        }
        *rank = -1;
    }
}

static size_t read_file(const char *path, char *text, size_t size) {
    size_t length = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n;
        while (length + 1 < size && (n = read(fd, text + length, size - 1 - length)) > 0) {
            length += (size_t)n;
        }
        close(fd);
    }
    text[length] = 0;
    return length;
}

void postrun_process_command(char *text, size_t size, const struct redaction *wish) {
    size_t length = wish->command ? 0 : read_file("/proc/self/cmdline", text, size);
    while (length && text[length - 1] == 0) {
        length--;
    }
    char *masked = length ? postrun_redact_places(postrun_redact_arguments(text, length), wish) : NULL;
    *text = 0; /* also without memory: the arguments may hold secrets */
    if (masked) {
        strncat(text, masked, size - 1);
        free(masked);
    }
}

int64_t postrun_process_start(void) {
    char text[1024];
    int64_t now = postrun_clock_realtime();
    read_file("/proc/self/stat", text, sizeof text);
    const char *at = strrchr(text, ')'); /* behind the name, which may hold anything; the state is field 3 */
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at + 1, ' ');
    }
    long per_second = sysconf(_SC_CLK_TCK);
    struct timespec boot;
    if (!at || per_second <= 0 || clock_gettime(CLOCK_BOOTTIME, &boot) != 0) {
        return now;
    }
    int64_t since_boot = (int64_t)boot.tv_sec * 1000000000 + boot.tv_nsec;
    int64_t started = (int64_t)(strtod(at, NULL) / (double)per_second * 1e9);
    return started <= since_boot ? now - (since_boot - started) : now;
}
