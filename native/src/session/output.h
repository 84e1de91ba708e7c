/* output.h - the trace files of one session. Used by one thread at a time. */
#ifndef POSTRUN_OUTPUT_H
#define POSTRUN_OUTPUT_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "format/block.h"

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif
#define HOST_MAX 65

struct output {
    int fd;
    dev_t device; /* of the file behind fd, in case the program closes a descriptor that is not its own */
    ino_t inode;
    int error; /* negative errno value that ended the output; 0: continues */
    int zstd_level;
    mode_t mode;                     /* of files, whatever the umask; folders can be searched by whom the files can be read */
    uint32_t number;                 /* of the file, from 1 */
    uint64_t offset, sequence;       /* bytes and blocks of this file */
    uint64_t total_bytes, total_blocks;
    uint64_t records, lost;          /* of this file, for its END */
    uint8_t session[16];
    int64_t started_us;
    char host[HOST_MAX];
    char folder[PATH_MAX];
    char path[PATH_MAX];
    prt_bytes buffer;
};

/* Creates the folder if it is missing and makes its path absolute: 0 or a negative errno value. */
int postrun_output_folder(struct output *output, const char *folder);
int postrun_output_open(struct output *output); /* the next file and its header */
/* Appends a block. After an error nothing more is written, and the file ends with its last complete block. */
int postrun_output_block(struct output *output, prt_block block);
/* Tries to append a block although the output has ended: a few bytes may fit where many did not. */
int postrun_output_last_word(struct output *output, prt_block block);
void postrun_output_check(struct output *output); /* ends the output if the file was deleted */
void postrun_output_close(struct output *output);
void postrun_output_abandon(struct output *output); /* in a forked child: only closes */

#endif
