/* output.c - writes blocks to the trace files of a session.
 *
 * Each block is one write() call, so a process that is killed leaves complete blocks and at most one incomplete block at the end. A write
 * that ends early is taken back and ends the output. */
#define _GNU_SOURCE
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"

int postrun_output_folder(struct output *output, const char *folder) {
    char path[PATH_MAX];
    size_t length = strlen(folder);
    if (length == 0 || length >= sizeof path) {
        return length ? -ENAMETOOLONG : -ENOENT;
    }
    memcpy(path, folder, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] == '/' || path[i] == 0) {
            char separator = path[i];
            path[i] = 0;
            struct stat there; /* "/" of a read-only system answers EROFS, although it is there */
            mode_t mode = output->mode | (output->mode & 0444) >> 2;
            int error = mkdir(path, mode) == 0 ? 0 : errno;
            if (error && error != EEXIST && stat(path, &there) != 0) {
                return -error;
            }
            if (!error && mode != 0700) {
                chmod(path, mode); /* the umask may have taken something away */
            }
            path[i] = separator;
        }
    }
    return realpath(path, output->folder) ? 0 : -errno;
}

static int name_next(struct output *output) {
    char number[16] = "";
    if (output->number > 1) {
        snprintf(number, sizeof number, "-%u", output->number);
    }
    int length = snprintf(output->path, sizeof output->path, "%s/%s.%ld.%lld%s.prt", output->folder, output->host, (long)getpid(),
                          (long long)output->started_us, number);
    return length > 0 && (size_t)length < sizeof output->path ? 0 : -ENAMETOOLONG;
}

/* A program that closes all descriptors, as some do, may have opened a file of its own by the same number. */
static bool is_ours(const struct output *output, struct stat *file) {
    return fstat(output->fd, file) == 0 && file->st_dev == output->device && file->st_ino == output->inode;
}

/* Writes all of `data`, or nothing: the file is cut back. If a limit on file sizes is reached, its signal (blocked here) is consumed. */
static int write_all(struct output *output, const uint8_t *data, size_t length) {
    size_t done = 0;
    struct stat file;
    if (!is_ours(output, &file)) {
        output->fd = -1;
        return -EBADF;
    }
    while (done < length) {
        ssize_t n = write(output->fd, data + done, length - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            int error = n == 0 ? ENOSPC : errno;
            if (error == EFBIG) {
                sigset_t limit;
                sigemptyset(&limit);
                sigaddset(&limit, SIGXFSZ);
                sigtimedwait(&limit, NULL, &(struct timespec){0, 0});
            }
            if (done && ftruncate(output->fd, (off_t)output->offset) == 0) {
                lseek(output->fd, (off_t)output->offset, SEEK_SET);
            }
            return -error;
        }
    }
    output->offset += length;
    output->total_bytes += length;
    return 0;
}

int postrun_output_open(struct output *output) {
    int fd = -1;
    output->number++;
    for (int attempt = 0; fd < 0 && attempt < 1000; attempt++) {
        int error = name_next(output);
        if (error) {
            return output->error = error;
        }
        fd = open(output->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, output->mode);
        if (fd < 0 && errno != EEXIST && errno != EINTR) {
            return output->error = -errno;
        }
        if (fd < 0 && errno == EEXIST && output->number == 1) {
            output->started_us++; /* a session before began in the same microsecond */
        } else if (fd < 0 && errno == EEXIST) {
            return output->error = -EEXIST;
        }
    }
    if (fd >= 0 && fd <= STDERR_FILENO) { /* the program's own, although it closed them */
        int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        int error = errno == EINVAL ? EMFILE : errno; /* beyond the limit */
        close(fd);
        if (higher < 0) {
            unlink(output->path);
            errno = error;
        }
        fd = higher;
    }
    if (fd < 0) {
        return output->error = -errno;
    }
    struct stat file;
    if (output->mode != 0600) {
        fchmod(fd, output->mode); /* the umask may have taken something away */
    }
    if (fstat(fd, &file) != 0) {
        output->error = -errno;
        close(fd);
        return output->error;
    }
    output->fd = fd;
    output->device = file.st_dev;
    output->inode = file.st_ino;
    output->offset = output->sequence = output->records = output->lost = 0;
    prt_file_header header = {0, 0, {0}, (uint32_t)getpid(), (uint32_t)getppid(), output->number, postrun_clock_realtime()};
    memcpy(header.session, output->session, sizeof header.session);
    output->buffer.length = 0;
    int error = prt_file_header_write(&output->buffer, &header);
    if (!error) {
        error = write_all(output, output->buffer.data, output->buffer.length);
    }
    if (error) {
        output->error = error;
        if (output->offset == 0) {
            unlink(output->path);
        }
    }
    return error;
}

static int append(struct output *output, prt_block *block) {
    block->sequence = output->sequence;
    output->buffer.length = 0;
    int error = prt_block_write(&output->buffer, block, output->zstd_level);
    if (error) { /* no memory: this block is lost, the next may do */
        output->buffer.failed = 0;
        return error;
    }
    error = write_all(output, output->buffer.data, output->buffer.length);
    if (!error) {
        output->sequence++;
        output->total_blocks++;
    } else if (!output->error) {
        output->error = error;
    }
    if (output->buffer.capacity > (4u << 20)) { /* after a large table of names */
        prt_bytes_free(&output->buffer);
        output->buffer = (prt_bytes){0};
    }
    return error;
}

int postrun_output_block(struct output *output, prt_block block) { return output->error ? output->error : append(output, &block); }

int postrun_output_last_word(struct output *output, prt_block block) { return output->fd < 0 ? output->error : append(output, &block); }

void postrun_output_check(struct output *output) {
    struct stat file;
    if (!output->error && output->fd >= 0 && is_ours(output, &file) && file.st_nlink == 0) {
        output->error = -ENOENT;
    }
}

void postrun_output_abandon(struct output *output) {
    struct stat file;
    if (output->fd >= 0 && is_ours(output, &file)) {
        close(output->fd);
    }
}

void postrun_output_close(struct output *output) {
    struct stat file;
    int fd = output->fd >= 0 && is_ours(output, &file) ? output->fd : -1;
    output->fd = -1;
    if (fd >= 0 && close(fd) != 0 && errno != EINTR && !output->error) {
        output->error = -errno;
    }
}
