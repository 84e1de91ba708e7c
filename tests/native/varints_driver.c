/* varints_driver.c - reads numbers as prt_varints and prt_zigzags do.
 *
 * usage: varints_driver FILE: the file holds records of u32 bytes, u32 numbers to read, then the bytes. Prints a line for each: how many
 * bytes were taken and the numbers (-1: malformed), once plain and once as zigzag. Each record is in memory of its exact size. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reader/varints.h"

static void print(const char *kind, const uint8_t *bytes, const uint8_t *at, size_t count, const uint64_t *values) {
    printf("%s %td", kind, at ? at - bytes : (ptrdiff_t)-1);
    for (size_t i = 0; at && i < count; i++) {
        printf(" %" PRIu64, values[i]);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
    uint32_t sizes[2];
    if (!file) {
        return 2;
    }
    while (fread(sizes, 4, 2, file) == 2) {
        uint8_t *bytes = malloc(sizes[0] ? sizes[0] : 1);
        uint64_t *values = malloc(sizes[1] ? sizes[1] * sizeof *values : 1);
        if (!bytes || !values || fread(bytes, 1, sizes[0], file) != sizes[0]) {
            return 2;
        }
        print("plain", bytes, prt_varints(bytes, bytes + sizes[0], sizes[1], values), sizes[1], values);
        print("zigzag", bytes, prt_zigzags(bytes, bytes + sizes[0], sizes[1], values), sizes[1], values);
        free(bytes);
        free(values);
    }
    return fclose(file) ? 2 : 0;
}
