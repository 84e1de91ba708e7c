/* elf_soname.h - the SONAME of a shared library that is not loaded. */
#ifndef POSTRUN_ELF_SONAME_H
#define POSTRUN_ELF_SONAME_H

#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

/* Reads it from the file. False: the file has none, or is not a shared library of this kind of machine. */
bool postrun_elf_soname(const char *path, char *name, size_t size);

#pragma GCC visibility pop
#endif
