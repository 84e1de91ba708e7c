/* elf_soname.c - reads the SONAME of a shared library from its file: path -> "libcupti.so.13".
 *
 * The library is not loaded, so none of its code runs. The file may be damaged or of another kind: the read that uses an offset checks it. */
#define _GNU_SOURCE
#include "elf_soname.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define SEGMENTS 64  /* a library has about ten */
#define ENTRIES 1024 /* of the dynamic section; a library has about thirty */

#define CLASS (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)
#define ENCODING (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)

static bool read_at(int fd, void *to, size_t size, uint64_t offset) {
    return offset <= INT64_MAX && pread(fd, to, size, (off_t)offset) == (ssize_t)size;
}

/* The offset in the file of an address of the loaded library. */
static bool offset_of(const ElfW(Phdr) * segments, size_t count, uint64_t address, uint64_t *offset) {
    for (size_t i = 0; i < count; i++) {
        if (segments[i].p_type == PT_LOAD && address >= segments[i].p_vaddr && address - segments[i].p_vaddr < segments[i].p_filesz) {
            *offset = segments[i].p_offset + (address - segments[i].p_vaddr);
            return true;
        }
    }
    return false;
}

/* Address of the texts, and offset of the name in them. */
static bool find_name(int fd, const ElfW(Phdr) * dynamic, uint64_t *texts, uint64_t *name) {
    bool has_texts = false, has_name = false;
    for (size_t i = 0; i < dynamic->p_filesz / sizeof(ElfW(Dyn)) && i < ENTRIES; i++) {
        ElfW(Dyn) entry;
        if (!read_at(fd, &entry, sizeof entry, dynamic->p_offset + i * sizeof entry) || entry.d_tag == DT_NULL) {
            break;
        }
        if (entry.d_tag == DT_STRTAB) {
            *texts = entry.d_un.d_ptr;
            has_texts = true;
        } else if (entry.d_tag == DT_SONAME) {
            *name = entry.d_un.d_val;
            has_name = true;
        }
    }
    return has_texts && has_name;
}

static bool read_name(int fd, char *to, size_t size) {
    ElfW(Ehdr) header;
    ElfW(Phdr) segments[SEGMENTS];
    uint64_t texts = 0, name = 0, offset = 0;
    if (!read_at(fd, &header, sizeof header, 0) || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != CLASS ||
        header.e_ident[EI_DATA] != ENCODING || header.e_type != ET_DYN || header.e_phentsize != sizeof *segments ||
        header.e_phnum > SEGMENTS || !read_at(fd, segments, header.e_phnum * sizeof *segments, header.e_phoff)) {
        return false;
    }
    const ElfW(Phdr) *dynamic = NULL;
    for (size_t i = 0; i < header.e_phnum; i++) {
        dynamic = segments[i].p_type == PT_DYNAMIC ? &segments[i] : dynamic;
    }
    if (!dynamic || !find_name(fd, dynamic, &texts, &name) || !offset_of(segments, header.e_phnum, texts + name, &offset)) {
        return false;
    }
    ssize_t length = offset <= INT64_MAX ? pread(fd, to, size, (off_t)offset) : 0; /* the file may end behind it */
    return length > 0 && memchr(to, 0, (size_t)length);
}

bool postrun_elf_soname(const char *path, char *name, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* not blocked by a pipe of that name */
    bool done = fd >= 0 && read_name(fd, name, size);
    if (fd >= 0) {
        close(fd);
    }
    return done;
}
