/* sampler_io.c - functions that all parts of the sampler use: open and read the kernel's files, name errors, emit a value. */
#define _DEFAULT_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sampler.h"

#define BUFFER_START 16384u
#define BUFFER_MAX (8u << 20)

int postrun_sampler_open(const char *root, const char *name) {
    char path[2 * PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/%s", root, name);
    if (length < 0 || (size_t)length >= sizeof path) {
        return -ENAMETOOLONG;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    if (fd < 3) {
        int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3), error = errno;
        close(fd);
        if (moved < 0) {
            return -error;
        }
        fd = moved;
    }
    return fd;
}

void postrun_sampler_close(int *fd) {
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

int64_t postrun_sampler_read(struct sampler *sampler, int fd, int single, char **text) {
    if (fd < 0) {
        return -EBADF;
    }
    size_t length = 0;
    for (;;) {
        if (length + 1 >= sampler->capacity) {
            size_t capacity = sampler->capacity == 0 ? BUFFER_START : sampler->capacity * 2;
            if (capacity > BUFFER_MAX) {
                break; /* the last line is cut off, and lines without an end are not used */
            }
            char *buffer = realloc(sampler->buffer, capacity);
            if (buffer == NULL) {
                return -ENOMEM;
            }
            sampler->buffer = buffer;
            sampler->capacity = capacity;
        }
        size_t room = sampler->capacity - 1 - length;
        ssize_t got = pread(fd, sampler->buffer + length, room, (off_t)length);
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -errno;
        }
        length += (size_t)got;
        if (got == 0 || (single && (size_t)got < room)) {
            break;
        }
    }
    sampler->buffer[length] = '\0';
    *text = sampler->buffer;
    return (int64_t)length;
}

const char *postrun_sampler_error(int error) {
    switch (error) {
    case EPERM: return "operation not permitted";
    case EACCES: return "permission denied";
    case ENOENT: return "not there";
    case ENODEV: return "no such device";
    case EINVAL: return "not known to the kernel";
    case ENOSYS: return "the kernel has no such call";
    case EOPNOTSUPP: return "not supported";
    case EMFILE: return "too many open files";
    case ENFILE: return "too many open files on the machine";
    case ENOMEM: return "no memory";
    case EBUSY: return "used by another program";
    case ENOTDIR: return "part of the path is not a folder";
    case EIO: return "input/output error";
    default: return NULL;
    }
}

void postrun_sampler_emit(struct sampler *sampler, enum sampler_metric metric, int32_t unit, double value) {
    double thousandths = value * 1e3;
    if (fabs(thousandths) < 9007199254740992.0) { /* exact as a double; fewer digits make shorter blocks */
        value = (double)(int64_t)(thousandths < 0 ? thousandths - 0.5 : thousandths + 0.5) / 1e3;
    }
    int error = postrun_session_metric(sampler->names[metric], unit, sampler->ticks, value);
    if (error < 0 && sampler->error == 0) {
        sampler->error = error;
    }
}
